"""The data-centre simulator beside the public pHost simulator, on the same flows, in one run.

    python datacentre/benches/simulator.py --reference PATH --sizes FILE... [--seeds N] [--flows 10000] [--load 0.6]
        [--repeats 1] [--network NAME]
    python datacentre/benches/simulator.py --reference PATH --trace FILE...

The reference is https://github.com/NetSys/simulator (BSD licence), built without changes.

FILE of --sizes is a distribution of flow sizes such as its py/CDF_aditya.txt: lines of packets, 1, share. FILE of
--trace has lines of number, bytes, source, destination, start in microseconds; flows are whole packets of 1460 bytes.

Each seed makes a trace of Poisson arrivals from any host to any other on the paper's topology (144 hosts, 9 racks, 4
core switches, 10 and 40 Gbit/s, 200 ns a hop, ports of 36,864 bytes, cut-through, packet spraying) or on another
--network of as many hosts. --repeats adds copies of each trace with starts moved by up to 2 ns, which both simulators
answer with other collisions. Slowdown is the time until the source knows that all has arrived, divided by our ideal
time. A class pools the flows of all runs. A mean within 2 % and a 99th percentile within 6 % pass; of fewer than 1000
flows the percentile depends on ten flows at most and does not count ("few"). ± is the half width of the 95 % interval
of the difference over the runs, by Student's t; "open" is outside a limit by less than that, which more runs decide.
The exit status is 1 unless all classes pass; "phost-defaults" does not count.

"phost-defaults" has our default settings. In the other rows of pHost, repeated packets have headers alone, as in the
reference (repeats_carry_data). Flows that the reference does not end are left out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

HOSTS, RATE, SEGMENT, PACKET = 144, 10_000_000_000, 1460, 1500
CLASSES = {"all": (0, 1 << 62), "≤ 10 KiB": (0, 10_240), "≤ 100 KiB": (10_240, 102_400)} | {
    "≤ 1 MiB": (102_400, 1 << 20),
    "> 1 MiB": (1 << 20, 1 << 62),
}
MEAN_WITHIN, P99_WITHIN, FEW = 0.02, 0.06, 1000
#: Our transport, and the differences of the reference's configuration from BASE.
TRANSPORTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "phost-one-priority": ({"kind": "phost", "short_flow": 0, "repeats_carry_data": False}, {}),
    "phost": ({"kind": "phost", "repeats_carry_data": False}, {"capability_third_level": 1}),
    "phost-defaults": ({"kind": "phost"}, {"capability_third_level": 1}),
    "pfabric": (
        {"kind": "pfabric"},
        {"flow_type": 2, "host_type": 1, "init_cwnd": 12, "max_cwnd": 15, "retx_timeout": 45e-6},
    ),
}
DEFAULTS = "phost-defaults"
BASE = {
    "init_cwnd": 1,
    "max_cwnd": 6,
    "retx_timeout": 9.50003e-06,
    "queue_size": 36864,
    "propagation_delay": 2e-7,
    "bandwidth": float(RATE),
    "queue_type": 2,
    "flow_type": 112,
    "cut_through": 1,
    "mean_flow_size": 0,
    "load_balancing": 0,
    "preemptive_queue": 0,
    "big_switch": 0,
    "host_type": 12,
    "traffic_imbalance": 0,
    "load": 0.6,
    "reauth_limit": 3,
    "magic_trans_slack": 1.1,
    "magic_delay_scheduling": 1,
    "use_flow_trace": 1,
    "smooth_cdf": 1,
    "bytes_mode": 0,
    "burst_at_beginning": 0,
    "capability_timeout": 1.5,
    "capability_resend_timeout": 9,
    "capability_initial": 8,
    "capability_window": 8,
    "capability_window_timeout": 25,
    "capability_prio_thresh": 8,
    "capability_third_level": 0,
    "capability_fourth_level": 0,
    "ddc": 0,
    "deadline": 0,
    "schedule_by_deadline": 0,
    "avg_deadline": 0.0001,
    "magic_inflate": 1,
    "interarrival_cdf": "none",
    "num_host_types": 13,
    "permutation_tm": 0,
}
TOPOLOGY = {
    "kind": "leaf-spine",
    "racks": 9,
    "hosts_per_rack": 16,
    "spines": 4,
    "host_bps": RATE,
    "core_bps": 4 * RATE,
    "hop_ps": 200_000,
    "buffer_bytes": 36864,
}
#: Differences from TOPOLOGY, and from BASE.
NETWORKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "paper": ({}, {}),
    "ecmp": ({"balancing": "ecmp"}, {"load_balancing": 1}),
    "store-and-forward": ({"switching": "store-and-forward"}, {"cut_through": 0}),
    "large-buffers": (
        {"buffer_bytes": 100_000, "hop_ps": 1_000_000},
        {"queue_size": 100_000, "propagation_delay": 1e-6},
    ),
    "fast": ({"host_bps": 4 * RATE, "core_bps": 16 * RATE}, {"bandwidth": 4.0 * RATE}),
    "one-switch": (
        {"kind": "graph", "hosts": HOSTS, "switches": 1, "links": [[it, HOSTS, RATE, 200_000] for it in range(HOSTS)]},
        {"big_switch": 1},
    ),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Sizes (bytes) and times (s) of flows by number, and for our simulator their ideal times.

    Also the cost of the run: processor time (s), peak memory (MB), hops.
    """

    sizes: dict[int, int]
    times: dict[int, float]
    ideals: dict[int, float]
    seconds: float
    megabytes: float
    packet_hops: int = 0


def measure(command: list[str], output: Path) -> tuple[float, float]:
    """Run a command and return its processor time (s) and peak memory (MB).

    The memory is read while the command runs: the kernel's final value includes this process, the parent.
    """
    peak = 0
    with output.open("wb") as file, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(command, stdout=file, stderr=errors)
        while True:
            found, status, usage = os.wait4(child.pid, os.WNOHANG)
            if found:
                break
            fields = Path(f"/proc/{child.pid}/status").read_text().partition("VmHWM:")[2].split()
            peak = int(fields[0]) if fields else peak
            time.sleep(0.02)
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        if child.returncode:
            text = errors.read().decode(errors="replace").strip()[-500:]
            sys.exit(f"error: {command[0]} ended with status {child.returncode}: {text}")
    return usage.ru_utime + usage.ru_stime, peak / 1024


def random_trace(sizes: Path, seed: int, flows: int, load: float, path: Path, rate: float = RATE) -> None:
    """Write a trace of Poisson arrivals; sizes are linear between the points of the distribution.

    rate: of the links of hosts, bit/s.
    """
    packets, share = np.loadtxt(sizes, usecols=(0, 2), unpack=True)
    steps = np.diff(share, prepend=0.0)
    mean = float(np.sum(steps * (packets + np.concatenate([[1.0], packets[:-1]])) / 2))
    random = np.random.default_rng(seed)
    starts = np.cumsum(random.exponential(mean * PACKET * 8 / (load * rate * HOSTS), flows))
    lengths = np.maximum(1, np.floor(np.interp(random.random(flows), share, packets) + 0.5)).astype(int)
    sources = random.integers(0, HOSTS, flows)
    others = (sources + 1 + random.integers(0, HOSTS - 1, flows)) % HOSTS
    rows = zip(lengths * SEGMENT, sources, others, starts * 1e6, strict=True)
    path.write_text("".join(f"{n} {b} {s} {d} {t:.6f}\n" for n, (b, s, d, t) in enumerate(rows)))


def shift_starts(trace: Path, repeat: int, path: Path) -> None:
    """Write the trace with starts delayed by up to 2 ns."""
    random = np.random.default_rng(repeat)
    rows = (line.rsplit(maxsplit=1) for line in trace.read_text().splitlines())
    path.write_text("".join(f"{rest} {float(start) + random.uniform(0, 0.002):.6f}\n" for rest, start in rows))


def simulate_reference(binary: Path, trace: Path, settings: dict[str, Any], folder: Path) -> Outcome:
    flows = [line.split() for line in trace.read_text().splitlines()]
    if bad := next((flow for flow in flows if int(flow[1]) % SEGMENT), None):
        sys.exit(f"error: {trace}: flow {bad[0]} has {bad[1]} bytes; the reference reads multiples of {SEGMENT} only")
    lines = (f"{n} {float(t) / 1e6!r} 0 0 {int(b) // SEGMENT} 0 0 {s} {d}\n" for n, b, s, d, t in flows)
    (folder / "reference.trace").write_text("".join(lines))
    settings = BASE | settings | {"num_flow": len(flows), "flow_trace": folder / "reference.trace"}
    (folder / "reference.conf").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
    seconds, megabytes = measure([str(binary), "1", str(folder / "reference.conf")], folder / "reference.out")
    sizes, times = {}, {}
    for line in (folder / "reference.out").read_text().splitlines():
        fields = line.split()
        if len(fields) >= 12 and fields[0].isdigit():
            sizes[int(fields[0])] = int(fields[1])
            times[int(fields[0])] = float(fields[6]) * 1e-6
    if not sizes:
        sys.exit(f"error: {binary} printed no flow: is it the simulator of NetSys?")
    return Outcome(sizes, times, {}, seconds, megabytes)


def simulate_ours(
    binary: Path, trace: Path, transport: dict[str, Any], folder: Path, network: dict[str, Any] | None = None
) -> Outcome:
    topology = TOPOLOGY | (network or {})
    if topology["kind"] == "graph":
        topology = {"buffer_bytes": topology["buffer_bytes"]} | (network or {})
    description = {"seed": 1, "topology": topology, "transport": transport, "traffic": {"trace": []}}
    (folder / "ours.json").write_text(json.dumps(description))
    out = folder / "flows"
    command = [str(binary), str(folder / "ours.json"), f"traffic.file={trace}", f"flows={out}"]
    seconds, megabytes = measure(command, folder / "ours.out")
    hops = int((folder / "ours.out").read_text().split(" packet-hops")[0].rsplit(" ", 1)[-1])
    rows = [[int(field) for field in line.split()] for line in out.read_text().splitlines()]
    sizes = {row[0]: row[1] for row in rows}
    times = {number: (known - start) * 1e-12 for number, _, start, _, known, _ in rows}
    ideals = {row[0]: row[5] * 1e-12 for row in rows}
    return Outcome(sizes, times, ideals, seconds, megabytes, hops)


def split_classes(reference: Outcome, ours: Outcome) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield the slowdowns of the flows that ended in both simulators, for each class."""
    for low, high in CLASSES.values():
        numbers = [n for n, size in reference.sizes.items() if low < size <= high and n in ours.times]
        yield (
            np.array([reference.times[n] / ours.ideals[n] for n in numbers]),
            np.array([ours.times[n] / ours.ideals[n] for n in numbers]),
        )


def half_widths(differences: list[tuple[float, float]]) -> list[float]:
    """Return the half widths of the 95 % intervals of mean differences over runs, by Student's t; none with one run."""
    n = len(differences)
    if n < 2:
        return []
    return [float(each) for each in stdtrit(n - 1, 0.975) * np.std(differences, axis=0, ddof=1) / math.sqrt(n)]


def verdict(mean: float, tail: float, halves: list[float]) -> str:
    """Return the verdict on the relative differences of a mean and of a 99th percentile. halves: their half widths."""
    over = [abs(mean) - MEAN_WITHIN, abs(tail) - P99_WITHIN]
    if max(over) <= 0:
        return "pass"
    return "open" if halves and all(part <= half for part, half in zip(over, halves, strict=True)) else "FAIL"


def compare(name: str, pairs: list[tuple[Outcome, Outcome]], repeats: int) -> bool:
    """Print a table of classes over all runs; return whether all classes pass."""
    whole = True
    for label, parts in zip(CLASSES, zip(*(split_classes(*pair) for pair in pairs), strict=True), strict=True):
        theirs, mine = (np.concatenate(part) for part in zip(*parts, strict=True))
        if not theirs.size:
            continue
        means = theirs.mean(), mine.mean()
        tails = np.percentile(theirs, 99), np.percentile(mine, 99)
        mean, tail = means[1] / means[0] - 1, tails[1] / tails[0] - 1
        each = [(b.mean() / a.mean() - 1, np.percentile(b, 99) / np.percentile(a, 99) - 1) for a, b in parts if a.size]
        halves = half_widths(each)
        error = [f" ± {part:.1%}" for part in halves] or ["", ""]
        few = theirs.size < FEW * repeats
        found = verdict(mean, 0.0 if few else tail, halves)
        whole &= found == "pass" or name == DEFAULTS
        print(
            f"| {name} | {label} | {theirs.size} | {means[0]:.3f} | {means[1]:.3f} | {mean:+.1%}{error[0]} "
            f"| {tails[0]:.2f} | {tails[1]:.2f} | {tail:+.1%}{error[1]} | {found}{', few' * few} |"
        )
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, help="the built reference simulator")
    parser.add_argument("--sizes", type=Path, nargs="*", default=[], help="distributions of flow sizes")
    parser.add_argument("--trace", type=Path, nargs="*", default=[], help="flow traces")
    parser.add_argument("--seeds", type=int, default=4, help="traces for each distribution (default: 4)")
    parser.add_argument("--flows", type=int, default=10_000)
    parser.add_argument("--load", type=float, default=0.6)
    parser.add_argument("--repeats", type=int, default=1, help="runs of each trace, starts moved by up to 2 ns")
    parser.add_argument("--network", default="paper", choices=list(NETWORKS))
    parser.add_argument("--transports", nargs="*", default=list(TRANSPORTS), choices=list(TRANSPORTS))
    options = parser.parse_args()
    if options.reference is None or not os.access(options.reference, os.X_OK):
        found = "none given" if options.reference is None else f"no program at {options.reference}"
        parser.error(f"the reference simulator is missing ({found}); --help describes how to build it")
    if missing := next((path for path in options.sizes + options.trace if not path.is_file()), None):
        parser.error(f"no file {missing}")
    if not options.sizes + options.trace:
        parser.error("give flow sizes (--sizes) or traces (--trace)")
    root = Path(__file__).parents[2]
    build = ["cargo", "build", "--release", "--quiet", "--package", "cellbed-fabric", "--example", "fabric"]
    subprocess.run(build, cwd=root, check=True)
    binary = root / "target/release/examples/fabric"
    network, settings = NETWORKS[options.network]
    whole = True
    costs = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sets = {path.name: [[path]] for path in options.trace}
        for sizes in options.sizes:
            sets[sizes.name] = [[folder / f"{sizes.stem}-{seed}"] for seed in range(1, options.seeds + 1)]
            for seed, (path,) in enumerate(sets[sizes.name], 1):
                rate = settings.get("bandwidth", float(RATE))
                random_trace(sizes, seed, options.flows, options.load, path, rate)
        for label, traces in sets.items():
            for trace in traces:
                for repeat in range(1, options.repeats):
                    trace.append(folder / f"{trace[0].name}-{repeat}")
                    shift_starts(trace[0], repeat, trace[-1])
            print(f"\n{label}, traces: {len(traces)}; runs of each: {options.repeats}; network {options.network}\n")
            print("| transport | class | flows | mean: reference | ours | | p99: reference | ours | | |")
            print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
            for transport in options.transports:
                mine, theirs = TRANSPORTS[transport]
                pairs = []
                for trace in itertools.chain(*traces):
                    expected = simulate_reference(options.reference, trace, settings | theirs, folder)
                    pairs.append((expected, simulate_ours(binary, trace, mine, folder, network)))
                whole &= compare(transport, pairs, options.repeats)
                costs.append((label, transport, pairs))
                sys.stdout.flush()
    print("\nProcessor time, peak memory, packet-hops (ours, for both) a second of processor time:\n")
    print("| flows | transport | reference | ours | |\n|---|---|---|---|---|")
    for label, transport, pairs in costs:
        hops = np.array([pair[1].packet_hops for pair in pairs])
        seconds = np.array([[outcome.seconds for outcome in pair] for pair in pairs])
        memory = np.array([[outcome.megabytes for outcome in pair] for pair in pairs]).max(axis=0)
        rates = [np.median(hops / seconds[:, side]) / 1e6 for side in (0, 1)]
        cells = [f"{np.median(seconds[:, it]):.1f} s, {memory[it]:.0f} MB, {rates[it]:.1f} M/s" for it in (0, 1)]
        ratio = np.median(seconds[:, 0] / seconds[:, 1])
        print(f"| {label} | {transport} | {cells[0]} | {cells[1]} | {ratio:.1f} times |")
    print(time.strftime("\nMeasured %Y-%m-%d, medians over the runs.", time.gmtime()))
    sys.exit(not whole)


if __name__ == "__main__":
    main()
