"""Shifts of median and P99 beside busy loops and with a stopped emulator, and which runs are marked as disturbed.

    .venv/bin/python benches/disturbance.py [--rounds 3] [--seconds 30]

Two scenarios, an HTTP server and photographs, run on an idle machine, beside one, two and four busy loops of the lowest
priority, beside four of ordinary priority, and with an emulator stopped for two seconds. The conditions take turns. A
row is the median over the rounds: the true shift is the difference from the quiet run of the same round, "added" the
time that the report of the run attributes to the machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from rich.table import Table

from cellbed.measure.summary import Summary
from cellbed.support.console import Console

HEAD = """
name = "{name}"
duration = "{seconds} s"
seed = 1

[nodes.endpoint]
cpus = 0.5
memory = "256 MiB"

[nodes.edge]
cpus = 1.0
memory = "512 MiB"

[links.mobile]
up = "lte-suburban.up"
down = "lte-suburban.down"
base_delay = "10 ms"
queue = {{ kind = "droptail", limit = "1 MB" }}

[links.core]
edge = "1 ms"
"""
LOADS = {
    "http": """
[apps.web]
kind = "http"
url = "http://{server.address}:8080/file"
arrivals = "poisson"
rate = "15 /s"

[apps.web.server]
on = "edge"
command = "python3 -m http.server --protocol HTTP/1.1 8080"
copy_in = { "file" = "file" }
ready = { port = 8080 }
""",
    "image": '[workload]\nkind = "image-classification"\nserver = "edge"\narrivals = "poisson"\nrate = "5 /s"\n',
}
CONDITIONS = ("quiet", "1 loop, nice 19", "2 loops, nice 19", "4 loops, nice 19", "4 loops", "stopped for 2 s")
STOP_AT_S, STOPPED_S = 8.0, 2.0


def loops(condition: str) -> list[subprocess.Popen[bytes]]:
    """Start the busy loops of a condition."""
    count = int(condition.split()[0]) if "loop" in condition else 0
    nice = ["nice", "-n", "19"] if "nice" in condition else []
    return [subprocess.Popen([*nice, sys.executable, "-c", "while True: pass"]) for _ in range(count)]


def find_emulator(run: int) -> int | None:
    """Return the process of the emulator of a run, by its command line."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            words = (entry / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        if parent == run and b"emulat" in words:
            return int(entry.name)
    return None


def stop_for_a_while(run: int, folder: Path) -> None:
    """Stop the emulator of a run some seconds after its workload begins."""
    while not any('"schedule started"' in it.read_text() for it in folder.glob("*/events.jsonl")):
        time.sleep(0.1)
    time.sleep(STOP_AT_S)
    emulator = find_emulator(run)
    if emulator is None:
        sys.exit("the emulator of the run was not found")
    os.kill(emulator, signal.SIGSTOP)
    time.sleep(STOPPED_S)
    os.kill(emulator, signal.SIGCONT)


def measure(scenario: Path, condition: str, folder: Path) -> Summary:
    """Run a scenario under a condition and return its summary."""
    burning = loops(condition)
    try:
        command = [sys.executable, "-m", "cellbed", "run", scenario, "--out", folder]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if condition.startswith("stopped"):
            threading.Thread(target=stop_for_a_while, args=(run.pid, folder), daemon=True).start()
        _, errors = run.communicate()
    finally:
        for each in burning:
            each.kill()
            each.wait()
    (made,) = folder.iterdir()
    if run.returncode:
        sys.exit(f"{scenario.stem}, {condition}: exit status {run.returncode}\n{errors}")
    return Summary.read(made)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--only", nargs="*", default=list(LOADS), choices=list(LOADS))
    options = parser.parse_args()
    found: dict[str, dict[str, list[Summary]]] = {name: {each: [] for each in CONDITIONS} for name in options.only}
    with tempfile.TemporaryDirectory() as parent:
        place = Path(parent)
        (place / "file").write_bytes(os.urandom(40_000))
        for number in range(options.rounds):
            for name in options.only:
                scenario = place / f"{name}.toml"
                scenario.write_text(HEAD.format(name=name, seconds=options.seconds) + LOADS[name])
                for condition in CONDITIONS:
                    folder = place / f"{name}-{number}-{CONDITIONS.index(condition)}"
                    found[name][condition].append(measure(scenario, condition, folder))
                    print(f"round {number + 1}, {name}, {condition}: done", file=sys.stderr, flush=True)
    rows = [row(name, condition, found[name]) for name in options.only for condition in CONDITIONS]
    table = Table(*rows[0], title="medians over the rounds; ms")
    for each in rows:
        table.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in each.values()))
    Console(width=160).print(table)


def row(name: str, condition: str, runs: dict[str, list[Summary]]) -> dict[str, object]:
    """Return a row of the table: milliseconds, medians over the rounds."""
    these, quiet = runs[condition], runs["quiet"]
    cells: dict[str, object] = {"scenario": name, "beside": condition}
    for number, label in ((0, "median"), (2, "P99")):
        values = [each.applications[0].percentiles[number].value for each in these]
        base = [each.applications[0].percentiles[number].value for each in quiet]
        added = [each.applications[0].added_s.get(label) for each in these]
        pairs = [(a - b) * 1e3 for a, b in zip(values, base, strict=True) if a is not None and b is not None]
        known = [each * 1e3 for each in added if each is not None]
        cells[label] = statistics.median(each * 1e3 for each in values if each is not None) if pairs else "–"
        cells[f"true shift of {label}"] = statistics.median(pairs) if pairs else "–"
        cells[f"added to {label}"] = statistics.median(known) if known else "–"
    cells["disturbed"] = f"{sum(bool(each.disturbances) for each in these)} of {len(these)}"
    return cells


if __name__ == "__main__":
    main()
