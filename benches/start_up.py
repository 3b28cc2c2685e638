"""Time of `cellbed run` from the command to the first request: plan, bring up, prove and start.

Each round runs a short scenario whose endpoints begin at different places of their traces, and reads run.json. The
memory is the proportional set size of all processes of the run (proc(5), ``smaps_rollup``). The start of a bare Python
interpreter is measured in the same rounds and shows the load of the machine. A warm-up run compiles the Python files.

With --up the scenario has no programs: `cellbed up --no-proof` until it returns, its memory, and `cellbed down`.

    python benches/start_up.py [--rounds N] [--endpoints N] [--up]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import Figures, format_range

CELLBED = [sys.executable, "-P", "-m", "cellbed"]
SCENARIO = """
name = "start-up"
duration = "{seconds} s"
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


def once(folder: Path, number: int, endpoints: int) -> Figures:
    """Return the time of the first request (s) and the memory (MiB) of a run with 4 requests per second in total."""
    scenario = folder / "scenario.toml"
    # Reading the memory of hundreds of processes takes seconds.
    seconds = 1 + endpoints // 50
    scenario.write_text(SCENARIO.format(endpoints=endpoints, seconds=seconds) + WORKLOAD.format(rate=4 / endpoints))
    out = folder / str(number)
    used = 0.0
    with subprocess.Popen(
        [*CELLBED, "run", str(scenario), "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        output = []
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            if line.startswith("running for"):
                used = memory(process.pid)
    if process.returncode != 0:
        sys.exit(f"the run failed, status {process.returncode}: {''.join(output).strip()}")
    (run,) = out.iterdir()
    return {"first_request_s": float(json.loads((run / "run.json").read_text())["first_request_s"]), "memory_mib": used}


def stand(folder: Path, number: int, endpoints: int) -> Figures:
    """Return the seconds of `cellbed up` and `cellbed down` without programs, and the memory (MiB) in between."""
    scenario = folder / "scenario.toml"
    scenario.write_text(SCENARIO.format(endpoints=endpoints, seconds=1))
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
    """Return the proportional set size of a process and its descendants, MiB."""
    total, waiting = 0, [process]
    while waiting:
        each = Path(f"/proc/{waiting.pop()}")
        with contextlib.suppress(OSError):  # the process has ended
            waiting += [int(child) for path in each.glob("task/*/children") for child in path.read_text().split()]
            lines = (each / "smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def interpreter() -> float:
    """Return the seconds that a bare interpreter takes to start and end."""
    begin = time.monotonic()
    subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
    return time.monotonic() - begin


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="runs to measure, after one warm-up (default 7)")
    parser.add_argument("--endpoints", type=int, default=1, help="endpoints of the scenario (default 1)")
    parser.add_argument("--up", action="store_true", help="bring up without programs instead")
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
    print(f"{options.endpoints} endpoints, {options.rounds} rounds; a bare interpreter, s: {format_range(bare, 3)}")
    for key in rounds[0]:
        print(f"{key}: {format_range([each[key] for each in rounds], 2)}")


if __name__ == "__main__":
    main()
