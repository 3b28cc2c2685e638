"""Our link beside Mahimahi's: departures, opportunities and drops for the same arrivals, line by line.

    MAHIMAHI=/prefix MAHIMAHI_QUEUE=/program python papers/benches/mahimahi_departures.py TRACE…
        [--seconds N] [--queue NAME] [--mode live|virtual]

Packets of varying load pass the original; the arrivals in its log pass ours in virtual time; both logs are compared.
"live" is its mm-link with real packets (root, or an ordinary user where net.ipv4.ip_forward is 1). "virtual" is its
LinkQueue in a program of its own, with numbers in place of the clock and of the system's random numbers. The program is
called with TRACE LOG QUEUE ARGUMENTS once|looped END_MS SEED, reads lines "MS BYTES", the arrivals with their headers,
and writes the link's log.
Live, CoDel and PIE depend on the lateness of the process and on chance: two runs differ, and only totals are compared.
Without the original, that part is left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from mahimahi_lines import HEADER_BYTES, original_lines

from cellbed._core import parse_trace
from cellbed.link import Link
from cellbed.measure.packetlog.mahimahi import MS, Opportunities
from cellbed.measure.packets import RECORD
from cellbed.outcomes import Fate

HERE = Path(__file__).resolve().parent
SEED = 7


@dataclass(frozen=True)
class Queue:
    """A queue of both programs.

    name: for the table. kind, arguments: the original's. ours: the emulator's. once: the schedule plays once. live:
    whether the original can be run with it: where one packet displaces two, its drop-head ends with a failed assertion.
    """

    name: str
    kind: str
    arguments: str
    ours: dict[str, Any]
    once: bool = False
    live: bool = True


CODEL = {"kind": "mahimahi-codel", "packets": 200, "target_ns": 10 * MS, "interval_ns": 100 * MS}
PIE = {"kind": "mahimahi-pie", "bytes": 300_000, "qdelay_ref_ns": 20 * MS, "max_burst_ns": 75 * MS, "seed": SEED}
QUEUES = (
    Queue("infinite", "infinite", "", {"kind": "infinite"}),
    Queue("infinite, once", "infinite", "", {"kind": "infinite"}, once=True),
    Queue("droptail packets", "droptail", "packets=50", {"kind": "droptail", "packets": 50, "bytes": None}),
    Queue("droptail bytes", "droptail", "bytes=60000", {"kind": "droptail", "packets": None, "bytes": 60000}),
    Queue("drophead packets", "drophead", "packets=50", {"kind": "drophead", "packets": 50, "bytes": None}),
    Queue(
        "drophead bytes", "drophead", "bytes=60000", {"kind": "drophead", "packets": None, "bytes": 60000}, live=False
    ),
    Queue("codel", "codel", "packets=200, target=10, interval=100", CODEL),
    Queue("pie", "pie", "bytes=300000, qdelay_ref=20, max_burst=75", PIE),
)


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    mode: str
    trace: str
    queue: str
    lines: int
    departures: int
    drops: int
    differences: int
    our_departures: int
    our_drops: int
    first: str = ""


def plan(trace: Path, seconds: float, seed: int) -> list[tuple[float, int]]:
    """Times (s) and IP bytes of packets: saturation, mixed sizes, bursts, a few, none, in turn and by chance."""
    random = np.random.default_rng([seed, *trace.name.encode()])
    known = parse_trace(trace)
    rate = known.capacity(0, known.duration_ns) / (known.duration_ns / 1e9)
    packets: list[tuple[float, int]] = []
    begin = 0.0
    while begin < seconds:
        length = min(random.uniform(0.5, 3), seconds - begin)
        kind = random.choice(["saturated", "mixed", "bursts", "sparse", "idle"], p=[0.3, 0.25, 0.2, 0.15, 0.1])
        if kind == "saturated":
            times = np.sort(random.uniform(0, length, int(1.4 * rate * length / 1500)))
            sizes = np.full(len(times), 1500)
        elif kind == "mixed":
            times = np.sort(random.uniform(0, length, int(rate * length / 780)))
            sizes = random.integers(60, 1501, len(times))
        elif kind == "bursts":
            times = np.repeat(np.arange(0, length, 0.2), int(np.clip(0.15 * rate / 800, 5, 500)))
            sizes = random.choice([60, 576, 1280, 1499, 1500], len(times))
        else:
            times = np.arange(0, length, 0.05 if kind == "sparse" else length)
            sizes = random.integers(60, 1501, len(times))
        packets += zip((begin + times).tolist(), sizes.tolist(), strict=True)
        begin += length
    return packets


def replay(original: list[str], trace: Path, queue: Queue, until: int) -> list[str]:
    """Our log for the arrivals in the original's, up to the ms `until`."""
    base = next(int(line.split(":")[1]) for line in original if line.startswith("# base timestamp:"))
    arrivals = [line.split() for line in original if not line.startswith("# ") and line.split()[1] == "+"]
    stamps = np.array([int(it[0]) for it in arrivals], np.int64) - base
    # Arrivals of one millisecond are told apart by nanoseconds.
    times = stamps * MS + np.arange(len(stamps)) - np.searchsorted(stamps, stamps)
    sizes = np.array([int(it[2]) for it in arrivals], np.uint32) - HEADER_BYTES
    schedule = {"kind": "trace", "path": str(trace), "looped": not queue.once}
    link = Link.of_stages([{"kind": "bottleneck", "schedule": schedule, "queue": queue.ours, "mahimahi": True}])
    outcomes = link.run(times, sizes)
    records = np.zeros(len(outcomes), RECORD)
    for field, column in (("packet", outcomes.packet), ("arrived", outcomes.arrived), ("bytes", outcomes.size)):
        records[field] = column
    records["drop"] = outcomes.fate
    never = np.iinfo(np.int64).max // 2
    held = outcomes.fate == Fate.HELD
    records["released"] = np.where(held, never, outcomes.released)
    records["departed"] = np.where(held, never, outcomes.departed)
    order = np.argsort(records["departed"], kind="stable")
    end = (until - base + 1) * MS
    offered = Opportunities(parse_trace(trace), looped=not queue.once).between(0, end)
    lines = original_lines(records[order], offered, end)
    return [f"{int(stamp) + base} {rest}" for stamp, rest in (line.split(" ", 1) for line in lines)]


def compare(mode: str, trace: Path, queue: Queue, path: Path, keep: Path | None, *, complete: bool) -> Row:
    """Compare the log at `path` with ours.

    complete: whether its last millisecond is whole. keep: folder for both logs.
    """
    original = path.read_text().splitlines()
    events = [line for line in original if not line.startswith("# ")]
    last = int(events[-1].split()[0]) - (not complete)
    events = [line for line in events if int(line.split()[0]) <= last]
    ours = replay(original, trace, queue, last)
    if keep:
        head = [line for line in original if line.startswith("# ")]
        for whose, lines in (("original", events), ("ours", ours)):
            name = f"{mode}-{trace.name}-{queue.name}-{whose}.log".replace(" ", "_")
            (keep / name).write_text("".join(f"{line}\n" for line in (*head, *lines)))
    differences, first = 0, ""
    for theirs, mine in zip_longest(_group_by_time(events), _group_by_time(ours), fillvalue=(0, [])):
        if theirs != mine:
            same = sum(block.size for block in SequenceMatcher(None, theirs[1], mine[1]).get_matching_blocks())
            differences += max(len(theirs[1]), len(mine[1])) - same
            first = first or f"{theirs[1][:4]} against {mine[1][:4]}"
    (left, lost), (our_left, our_lost) = _counts(events), _counts(ours)
    return Row(mode, trace.name, queue.name, len(events), left, lost, differences, our_left, our_lost, first)


def _counts(events: list[str]) -> tuple[int, int]:
    """Return the departures and the dropped packets in a log."""
    fields = [line.split() for line in events]
    return sum(it[1] == "-" for it in fields), sum(int(it[2]) for it in fields if it[1] == "d")


def _group_by_time(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    groups = {int(stamp): list(group) for stamp, group in groupby(lines, lambda line: line.split(" ", 1)[0])}
    yield from ((at, groups.get(at, [])) for at in range(max(groups, default=-1) + 1))


def virtual(program: Path, folder: Path, trace: Path, queue: Queue, options: argparse.Namespace) -> Row:
    """Run the original in virtual time; by default the whole trace and a tenth of the next pass."""
    known = parse_trace(trace).duration_ns / 1e9
    span = options.seconds or 1.1 * known
    end = int(span * 1000)
    arrivals = "".join(f"{int(at * 1000)} {size + HEADER_BYTES}\n" for at, size in plan(trace, span, SEED))
    log = folder / f"{trace.name}-{queue.name}.log"
    repeat = "once" if queue.once else "looped"
    command = [program, trace, log, queue.kind, queue.arguments, repeat, str(end), str(SEED)]
    subprocess.run(list(map(str, command)), input=arrivals, text=True, check=True)
    row = compare("virtual", trace, queue, log, options.logs, complete=True)
    log.unlink()
    return row


def live(prefix: Path, folder: Path, traces: tuple[Path, Path], queue: Queue, options: argparse.Namespace) -> list[Row]:
    """Run the original's mm-link with real packets in both directions."""
    place = Path(tempfile.mkdtemp(dir=folder))
    place.chmod(0o777)
    for name, trace in zip(("uplink", "downlink"), traces, strict=True):
        packets = plan(trace, options.seconds or 20, SEED)
        (place / f"{name}.plan").write_text("".join(f"{at:.6f} {size}\n" for at, size in packets))
    script = shutil.copy(HERE / "mahimahi_load.py", place)
    shell = [prefix / "bin/mm-link", *traces, *(["--once"] if queue.once else [])]
    for name in ("uplink", "downlink"):
        shell += [f"--{name}-log={place / name}.log", f"--{name}-queue={queue.kind}"]
        shell += [f"--{name}-queue-args={queue.arguments}"]
    python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
    command = [python, script, "outside", place, "--", *shell, "--"]
    if os.geteuid() == 0:
        # In a new network namespace with forwarding, as nobody: the original requires forwarding and refuses root.
        set_up = 'ip link set lo up && echo 1 > /proc/sys/net/ipv4/ip_forward && exec setpriv "$@"'
        user = ["--reuid=65534", "--regid=65534", "--clear-groups"]
        command = ["unshare", "--net", "sh", "-c", set_up, "sh", *user, *command]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0 and not queue.once:
        sys.exit(f"mm-link failed: {done.stderr.strip()}")
    ways = zip(("uplink", "downlink"), traces, strict=True)
    return [compare("live", trace, queue, place / f"{name}.log", options.logs, complete=False) for name, trace in ways]


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path, help="trace files; NAME.up and NAME.down go together")
    parser.add_argument("--seconds", type=float, help="how long (live: 20; virtual: the trace and a tenth more)")
    parser.add_argument("--queue", action="append", choices=[queue.name for queue in QUEUES], help="only this one")
    parser.add_argument("--mode", choices=["live", "virtual"], help="only this one")
    parser.add_argument("--jobs", type=int, default=4, help="live runs at a time (default 4)")
    parser.add_argument("--logs", type=Path, help="folder to keep the logs of both in")
    options = parser.parse_args()
    queues = [queue for queue in QUEUES if not options.queue or queue.name in options.queue]
    if options.logs:
        options.logs.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        rows += _virtual(options, queues, folder)
        rows += _live(options, queues, folder)
    if any(row.differences for row in rows if row.mode != "live"):
        sys.exit(1)


def _virtual(options: argparse.Namespace, queues: list[Queue], folder: Path) -> Iterator[Row]:
    program = os.environ.get("MAHIMAHI_QUEUE")
    if options.mode not in (None, "virtual"):
        return
    if not program:
        print("virtual: left out, set MAHIMAHI_QUEUE to a program with Mahimahi's queue", file=sys.stderr)
        return
    for trace in options.traces:
        for queue in queues:
            yield _print_row(virtual(Path(program), folder, trace.resolve(), queue, options))


def _live(options: argparse.Namespace, queues: list[Queue], folder: Path) -> Iterator[Row]:
    prefix = os.environ.get("MAHIMAHI")
    if options.mode not in (None, "live"):
        return
    if not prefix:
        print("live: left out, set MAHIMAHI to the prefix where Mahimahi is installed", file=sys.stderr)
        return
    by_stem: dict[str, list[Path]] = {}
    for trace in sorted(options.traces, key=lambda it: it.suffix, reverse=True):  # .up before .down
        by_stem.setdefault(trace.stem, []).append(trace.resolve())
    pairs = [(group[0], group[-1]) for group in by_stem.values()]
    with ThreadPoolExecutor(options.jobs) as pool:
        futures = [
            pool.submit(live, Path(prefix), folder, pair, queue, options)
            for pair in pairs
            for queue in queues
            if queue.live
        ]
        for future in futures:
            yield from map(_print_row, future.result())


def _print_row(row: Row) -> Row:
    text = f"{row.mode:8} {row.trace:24} {row.queue:17} {row.lines:8} lines {row.departures:7} departures"
    ours = f" (ours: {row.our_departures} departures, {row.our_drops} dropped)" if row.differences else ""
    print(f"{text} {row.drops:7} dropped {row.differences:6} differences{ours}", flush=True)
    if row.first and row.mode != "live":
        print(f"  first: {row.first}", flush=True)
    return row


if __name__ == "__main__":
    main()
