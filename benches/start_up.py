"""From the command to the first request: how long `cellbed run` takes to plan, bring up, prove and start.

Each round runs a one-second scenario whose endpoints begin at different places of their traces, and reads the run's own
account; the memory of all its processes is their proportional set size while it runs (proc(5), ``smaps_rollup``). The
time that a bare Python interpreter takes to start is measured beside it, as a measure of how busy the machine is.

All commands share compiled Python files in a folder that is new and filled by a warm-up run: without such files
(PYTHONDONTWRITEBYTECODE) loading cellbed takes 0.2 s of processor time more.

With --up the scenario has no programs: `cellbed up --no-proof` until it returns, its memory, and `cellbed down`.

    python benches/start_up.py [--rounds N] [--endpoints N] [--up] [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CELLBED = [sys.executable, "-P", "-m", "cellbed"]
SCENARIO = """
name = "start-up"
duration = "1 s"
[nodes.endpoint]
count = {endpoints}
cpus = 1.0
memory = "512 MiB"
stagger = "1700 ms"
[nodes.edge]
cpus = 2.0
memory = "2 GiB"
[links.mobile]
up = "lte-suburban.up"
down = "lte-suburban.down"
[links.core]
edge = "base-edge"
"""
WORKLOAD = """
[workload]
kind = "image-classification"
on = "edge"
rate = "{rate} /s"
drain = "1 s"
"""


def once(folder: Path, number: int, endpoints: int) -> dict[str, float]:
    """First request (s) and memory (MiB) of one run; all endpoints together send 4 requests a second."""
    scenario = folder / "scenario.toml"
    scenario.write_text(SCENARIO.format(endpoints=endpoints) + WORKLOAD.format(rate=4 / endpoints))
    out = folder / str(number)
    used = 0.0
    with subprocess.Popen(
        [*CELLBED, "run", str(scenario), "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        said = []
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if line.startswith("running for"):
                used = memory(process.pid)
    if process.returncode != 0:
        sys.exit(f"the run failed: {''.join(said).strip()}")
    (run,) = out.iterdir()
    return {"first_request_s": float(json.loads((run / "run.json").read_text())["first_request_s"]), "memory_mib": used}


def stand(folder: Path, number: int, endpoints: int) -> dict[str, float]:
    """Seconds of `cellbed up` and `cellbed down` without programs, and memory (MiB) in between."""
    scenario = folder / "scenario.toml"
    scenario.write_text(SCENARIO.format(endpoints=endpoints))
    name = f"start-up-{os.getpid()}"
    begin = time.monotonic()
    command = ["up", str(scenario), "--name", name, "--no-proof", "--out", str(folder / str(number))]
    subprocess.run([*CELLBED, *command], check=True, capture_output=True)
    up_s = time.monotonic() - begin
    status = subprocess.run([*CELLBED, "status", name, "--json"], check=True, capture_output=True)
    used = memory(json.loads(status.stdout)["process"])
    begin = time.monotonic()
    subprocess.run([*CELLBED, "down", name], check=True, capture_output=True)
    return {"up_s": up_s, "memory_mib": used, "down_s": time.monotonic() - begin}


def memory(process: int) -> float:
    """Proportional set size of a process and its descendants, MiB."""
    total, waiting = 0, [process]
    while waiting:
        each = Path(f"/proc/{waiting.pop()}")
        with contextlib.suppress(OSError):  # it has ended
            waiting += [int(child) for path in each.glob("task/*/children") for child in path.read_text().split()]
            lines = (each / "smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def interpreter() -> float:
    """Seconds that a bare interpreter takes to start and end."""
    begin = time.monotonic()
    subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
    return time.monotonic() - begin


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="runs to measure, after one warm-up (default 7)")
    parser.add_argument("--endpoints", type=int, default=1, help="endpoints of the scenario (default 1)")
    parser.add_argument("--up", action="store_true", help="bring up without programs instead")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    measure = stand if options.up else once
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        measure(folder, 0, options.endpoints)
        rounds, bare = [], []
        for number in range(1, options.rounds + 1):
            bare.append(interpreter())
            rounds.append(measure(folder, number, options.endpoints))
    figures = {key: [each[key] for each in rounds] for key in rounds[0]}
    result: dict[str, Any] = {"rounds": options.rounds, "endpoints": options.endpoints}
    for key, values in figures.items():
        result[key] = {"min": min(values), "median": statistics.median(values), "max": max(values)}
    result["bare_interpreter_s"] = {"median": statistics.median(bare)}
    if options.json:
        print(json.dumps(result, indent=1))
        return
    print(f"{options.endpoints} endpoints, {options.rounds} rounds (a bare interpreter takes ", end="")
    print(f"{statistics.median(bare) * 1e3:.0f} ms here)")
    for key, values in figures.items():
        print(f"{key}: median {statistics.median(values):.2f}, {min(values):.2f} to {max(values):.2f}")


if __name__ == "__main__":
    main()
