"""From the command to the first request: how long `cellbed run` takes to plan, bring up, prove and start.

Each round runs a one-second scenario and reads the run's own account; the time that a bare Python interpreter takes to
start is measured beside it, as a measure of how busy the machine is.

    python benches/start_up.py [--rounds N] [--endpoints N] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCENARIO = """
name = "start-up"
duration = "1 s"
[nodes.endpoint]
count = {endpoints}
cpus = 1.0
memory = "512 MiB"
[nodes.edge]
cpus = 2.0
memory = "2 GiB"
[links.mobile]
up = "lte-suburban.up"
down = "lte-suburban.down"
[links.core]
edge = "base-edge"
[workload]
kind = "image-classification"
on = "edge"
rate = "{rate} /s"
drain = "1 s"
"""


def once(folder: Path, number: int, endpoints: int) -> float:
    """Seconds from the command to the first request of one run; all endpoints together send 4 requests a second."""
    scenario = folder / "scenario.toml"
    scenario.write_text(SCENARIO.format(endpoints=endpoints, rate=4 / endpoints))
    out = folder / str(number)
    command = [sys.executable, "-P", "-m", "cellbed", "run", str(scenario), "--out", str(out)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    if outcome.returncode != 0:
        sys.exit(f"the run failed: {outcome.stderr.strip()}")
    (run,) = out.iterdir()
    return float(json.loads((run / "run.json").read_text())["first_request_s"])


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
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        once(folder, 0, options.endpoints)
        first, bare = [], []
        for number in range(1, options.rounds + 1):
            bare.append(interpreter())
            first.append(once(folder, number, options.endpoints))
    result = {
        "rounds": options.rounds,
        "endpoints": options.endpoints,
        "first_request_s": {"min": min(first), "median": statistics.median(first), "max": max(first)},
        "bare_interpreter_s": {"median": statistics.median(bare)},
    }
    if options.json:
        print(json.dumps(result, indent=1))
        return
    print(
        f"command to first request, {options.endpoints} endpoints: median {statistics.median(first):.2f} s, "
        f"{min(first):.2f} to {max(first):.2f} s in {options.rounds} runs "
        f"(a bare interpreter takes {statistics.median(bare) * 1e3:.0f} ms here)"
    )


if __name__ == "__main__":
    main()
