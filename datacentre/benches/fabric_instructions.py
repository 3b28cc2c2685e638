"""Instructions of the data-centre simulator for a packet at a port, counted by callgrind.

Unlike times, counts do not depend on other work of the machine. Each case has load 0.6 and flow sizes of the pHost
paper, in its topology (9 racks, 144 hosts) or in 2 racks of 4 hosts, where few flows make a stationary load. User time
and memory are of the same case without callgrind, the best of three runs.

    python datacentre/benches/fabric_instructions.py
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
CASES = [("phost", 144, 500), ("phost", 144, 5000), ("phost", 8, 500), ("phost", 8, 5000), ("pfabric", 144, 2000)]


def measure(program: Path, transport: str, hosts: int, flows: int) -> dict[str, float | str]:
    """Return the measurements of a case."""
    command = [str(program), f"traffic.flows={flows}", "topology.card_buffer_bytes=36864"]
    if hosts == 8:
        command += ["topology.racks=2", "topology.hosts_per_rack=4"]
    command.append(f'transport={{"kind": "{transport}"}}')
    times = []
    for _ in range(3):
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        times.append(float(re.findall(r"([\d.]+) s of user time", text)[0]))
    with tempfile.TemporaryDirectory() as folder:
        options = ["--tool=callgrind", f"--callgrind-out-file={folder}/counts"]
        counted = subprocess.run(["valgrind", *options, *command], capture_output=True, text=True, check=True)
    (hops,) = re.findall(r"(\d+) packet-hops", text)
    (instructions,) = re.findall(r"refs:\s+([\d,]+)", counted.stderr)
    (memory,) = re.findall(r"peak memory (\d+) MB", text)
    return {
        "transport": transport,
        "hosts": hosts,
        "flows": flows,
        "packet_hops": int(hops),
        "instructions_per_hop": int(instructions.replace(",", "")) / int(hops),
        "nanoseconds_per_hop": min(times) / int(hops) * 1e9,
        "memory_mb": int(memory),
    }


def main() -> None:
    """Measure all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is missing: install the package valgrind")
    build = ["cargo", "build", "--release", "--quiet", "-p", "cellbed-fabric", "--example", "fabric"]
    subprocess.run(build, cwd=ROOT, check=True)
    print(f"{'transport':12}{'hosts':>6}{'flows':>8}{'packet-hops':>14}{'instructions':>14}{'ns a hop':>10}{'MB':>5}")
    for case in CASES:
        row = measure(ROOT / "target/release/examples/fabric", *case)
        print(
            f"{row['transport']:12}{row['hosts']:6}{row['flows']:8}{row['packet_hops']:14}"
            f"{row['instructions_per_hop']:14.0f}{row['nanoseconds_per_hop']:10.0f}{row['memory_mb']:5}"
        )


if __name__ == "__main__":
    main()
