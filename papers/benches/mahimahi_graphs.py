"""Our mm-throughput-graph and mm-delay-graph beside Mahimahi's: the statistics that they print, and how long they take.

    MAHIMAHI=/prefix python papers/benches/mahimahi_graphs.py LOG… [--bin MS]

Logs of mm-link, of either program (`mahimahi_departures.py --logs FOLDER` keeps some). The original's
mm-throughput-graph ends at a line that tells of a drop; it is given the log without these.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

NUMBER = re.compile(r"\d+(?:\.\d+)?")
OURS = "import sys; from cellbed.shell.mahimahi import graphs; sys.exit(graphs.{}(sys.argv[1:]))"


def run(command: list[str], log: bytes) -> tuple[dict[str, float], float]:
    """The statistics by their wording, and the seconds that it took.

    Errors: :class:`SystemExit` with the program's message.
    """
    begin = time.monotonic()
    done = subprocess.run(command, input=log, capture_output=True, check=False)
    took = time.monotonic() - begin
    said = done.stderr.decode()
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed: {said.strip()}")
    figures: dict[str, float] = {}
    for line in said.splitlines():
        label, _, values = line.partition(": ")
        for place, value in enumerate(NUMBER.findall(values)):
            figures[label + (" (utilization)" if place else "")] = float(value)
    return figures, took


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--bin", default="500", help="width of the bins, ms (default 500)")
    options = parser.parse_args()
    prefix = os.environ.get("MAHIMAHI")
    if not prefix:
        print("left out: set MAHIMAHI to the prefix where Mahimahi is installed", file=sys.stderr)
        return
    worst, compared = 0.0, 0
    for path in options.logs:
        log = path.read_bytes()
        dropless = b"".join(line for line in log.splitlines(keepends=True) if b" d " not in line)
        for name, arguments in (("throughput_graph", [options.bin]), ("delay_graph", [])):
            command = f"{prefix}/bin/mm-{name.replace('_', '-')}"
            theirs, their_time = run([command, *arguments], dropless if arguments else log)
            ours, our_time = run([sys.executable, "-P", "-c", OURS.format(name), *arguments], log)
            if theirs.keys() != ours.keys():
                sys.exit(f"{path}: the words differ: {list(theirs)} against {list(ours)}")
            for label, value in theirs.items():
                off = abs(ours[label] - value) / value if value else abs(ours[label])
                worst, compared = max(worst, off), compared + 1
                if off:
                    print(f"{path.name}: {label}: {value} against our {ours[label]} ({off:.2%})")
            lines = log.count(b"\n")
            print(f"{path.name:60} {name:17} {lines:9} lines  original {their_time:6.2f} s  ours {our_time:6.2f} s")
    print(f"{compared} statistics, largest difference {worst:.3%}")


if __name__ == "__main__":
    main()
