"""Predictions of `cellbed run --virtual` beside real runs of the same scenarios: latency at the median and at P99.

    .venv/bin/python benches/virtual_agreement.py [--traces BASE …] [--only NAME …] [--seconds 60] [--profile run]
        [--keep FOLDER]

Ten scenarios of one endpoint to eight, `ping` and `iperf3`, each over three traces. The columns of `ping` are its
round-trip times; those of `iperf3` are Mbit/s of uplink and downlink instead. BASE: a trace without its ending, for
BASE.up and BASE.down; without BASE.down the uplink's is used for both. The column "network" is the difference at the
median of what passes on the links, which a busy machine hardly disturbs; a real run that the machine disturbed is
marked with *. The profile is that of the user's cache, measured over fast links, or of each real run itself (`--profile
run`), which shows how well links, TCP and queues are predicted on a machine whose programs do not always take the same
time. --keep keeps the real runs in FOLDER and does not repeat those that are there, for predictions of another version.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from cellbed.measure.run_folder import applications_of, read_run
from cellbed.measure.summary import Summary

BASES = ("lte-suburban", "5g-midband", "lte-suburban@60 s")
"""Synthetic traces of the archive; behind @ where they start."""
HEAD = """
name = "agreement"
duration = "{seconds} s"
seed = {seed}

[nodes.endpoint]
count = {count}
cpus = 0.5
memory = "256 MiB"
{cell}
[nodes.edge]
cpus = 1.0
memory = "512 MiB"

[links.mobile]
up = "{up}"
down = "{down}"
start = "{start}"
base_delay = "10 ms"
queue = {{ kind = "droptail", limit = "1 MB" }}

[links.core]
edge = "{core}"

[transport]
congestion_control = "{control}"
"""
IMAGES = '[workload]\nkind = "image-classification"\nserver = "edge"\narrivals = "poisson"\nrate = "{rate} /s"\n'
TEXT = '[workload]\nkind = "translation"\nserver = "edge"\narrivals = "poisson"\nrate = "{rate} /s"\n'
WEB = """
[apps.web]
kind = "http"
url = "http://{{server.address}}:8080/file"
arrivals = "poisson"
rate = "{rate} /s"
{more}
[apps.web.server]
on = "edge"
command = "python3 -m http.server --protocol HTTP/1.1 8080"
copy_in = {{ "file" = "file" }}
ready = {{ port = 8080 }}
"""
PING = """
[apps.ping]
kind = "program"
client = {{ on = "endpoint", command = "ping -i 0.05 -w {most} edge" }}
"""
# One way after the other.
IPERF3 = """
[apps.up]
kind = "program"
client = {{ on = "endpoint", command = "iperf3 -c edge -t {part}" }}
server = {{ on = "edge", command = "iperf3 -s", ready = {{ port = 5201 }} }}

[apps.down]
kind = "program"
client = {{ on = "endpoint", command = "iperf3 -c edge -p 5202 -R -t {part}" }}
server = {{ on = "edge", command = "iperf3 -s -p 5202", ready = {{ port = 5202 }} }}
start = "{half} s"
"""
CELL = '\n[cells.macro]\nscheduler = "proportional-fair"\n'
# Endpoints, what they do, bytes of the file, round trip of the core, congestion control, cell.
SCENARIOS: dict[str, tuple[int, str, int, str, str, bool]] = {
    "image-1": (1, IMAGES.format(rate=1), 0, "2 ms", "reno", False),
    "image-4-a-second": (1, IMAGES.format(rate=4), 0, "2 ms", "reno", False),
    "image-bbr": (1, IMAGES.format(rate=2), 0, "20 ms", "bbr", False),
    "image-2-endpoints": (2, IMAGES.format(rate=1), 0, "20 ms", "reno", False),
    "image-reduced": (
        1,
        IMAGES.format(rate=5) + 'policy = { kind = "reduce-resolution", above = "200 ms", scale = 0.5 }\n',
        0,
        "2 ms",
        "reno",
        False,
    ),
    "text-1": (1, TEXT.format(rate=1), 0, "2 ms", "reno", False),
    "text-4-endpoints": (4, TEXT.format(rate=0.3), 0, "20 ms", "reno", False),
    "web-76-kB": (1, WEB.format(rate=4, more=""), 76_000, "2 ms", "reno", False),
    "web-8-endpoints": (8, WEB.format(rate=1, more=""), 30_000, "20 ms", "reno", False),
    "ping": (1, PING, 0, "2 ms", "reno", False),
    "iperf3": (1, IPERF3, 0, "2 ms", "reno", False),
    "web-cell-4-endpoints": (4, WEB.format(rate=2, more="connections = 2") + CELL, 76_000, "2 ms", "reno", True),
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--traces", nargs="+", default=BASES)
    arguments.add_argument("--only", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS))
    arguments.add_argument("--seconds", type=int, default=60)
    arguments.add_argument("--profile", choices=["cache", "run"], default="cache")
    arguments.add_argument("--keep", type=Path)
    asked = arguments.parse_args()
    print(f"{'scenario':22}{'trace':26}{'requests':>9}{'median, ms':>22}{'P99, ms':>24}{'network':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.only:
            for base in asked.traces:
                kept = (asked.keep or Path(folder, "kept")) / f"{name}-{Path(base).name}-{asked.seconds}"
                for row in compared(Path(folder), kept, name, base, asked.seconds, own=asked.profile == "run"):
                    print(row, flush=True)


def compared(folder: Path, real: Path, name: str, base: str, seconds: int, *, own: bool) -> Iterator[str]:
    """A line on a scenario over a trace. real: folder of the real run, which is made if it is missing."""
    count, work, size, core, control, cell = SCENARIOS[name]
    trace, _, start = base.partition("@")
    up, down = (f"{trace}.{way}" for way in ("up", "down"))
    if "/" in trace and not Path(down).exists():
        down = up
    (folder / "file").write_bytes(bytes(size))
    head = HEAD.format(
        seconds=seconds, seed=7, count=count, up=up, down=down, start=start or "0 s", core=core, control=control,
        cell='cell = "macro"' if cell else "",
    )  # fmt: skip
    is_program = name in ("ping", "iperf3")
    if is_program:
        work = work.format(most=seconds - 2, half=seconds // 2, part=seconds // 2 - 4)
    (folder / "scenario.toml").write_text(head + work)
    if not real.exists():
        real.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(run(folder), real)
    predicted = run(folder, "--virtual", *(["--profile", str(real.resolve())] if own and not is_program else []))
    figures_of = printed if is_program else latencies
    (measured, network), (guess, guessed_network) = figures_of(real), figures_of(predicted)
    disturbed = "*" if Summary.read(real).disturbances else " "
    figures = [
        f"{both[0]:8.1f} →{both[1]:7.1f} {change(*both):+5.1f} %"
        for both in ((measured[0], guess[0]), (measured[1], guess[1]))
    ]
    share = change(network, guessed_network)
    label = Path(trace).name + (f" from {start}" if start else "")
    yield f"{name:22}{label:26}{measured[2]:8}{disturbed} {figures[0]}  {figures[1]}  {share:+5.1f} %"


def change(before: float, after: float) -> float:
    """From one figure to another, %."""
    return (after / before - 1) * 100 if before else float("nan")


def run(folder: Path, *options: str) -> Path:
    """The folder of a run of the scenario."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "cellbed",
        "run",
        str(folder / "scenario.toml"),
        "--out",
        str(folder / "runs"),
    ]
    before = set((folder / "runs").glob("*"))
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{done.stderr}{done.stdout}")
    (made,) = set((folder / "runs").glob("*")) - before
    return made


def latencies(run: Path) -> tuple[tuple[float, float, int], float]:
    """Median and P99 of the latency with the number of replies, and the median of the time on the links, ms."""
    (application,) = [each for each in applications_of(read_run(run)) if each.spans]
    requests = pl.read_parquet(run / "requests.parquet").drop_nulls("latency_s")
    links = [span.column for span in application.spans if span.place in ("uplink", "downlink")]
    network = requests.select(pl.sum_horizontal(links, ignore_nulls=False)).to_series().median()
    latency = requests["latency_s"] * 1e3
    return (float(latency.median() or 0), float(latency.quantile(0.99) or 0), len(latency)), float(str(network)) * 1e3  # type: ignore[arg-type]


def printed(run: Path) -> tuple[tuple[float, float, int], float]:
    """The same of what ping has printed, ms; of iperf3 the rates of both ways, Mbit/s, and their sum."""
    texts = [path.read_text() for path in sorted((run / "raw").glob("*.client.out"), reverse=True)]
    if times := [float(each) for each in re.findall(r"time=([\d.]+) ms", texts[0])]:
        taken = pl.Series(times)
        return (float(str(taken.median())), float(str(taken.quantile(0.99))), len(taken)), float(str(taken.median()))
    scale = {"": 1e-6, "K": 1e-3, "M": 1.0, "G": 1e3}
    found = [([("0", ""), *re.findall(r"([\d.]+) ([KMG]?)bits/sec +receiver", text)])[-1] for text in texts]
    up, down = (float(rate) * scale[unit] for rate, unit in found)
    return (up, down, len(found)), up + down


if __name__ == "__main__":
    main()
