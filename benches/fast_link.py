"""What a second of TCP over a link of 100 Gbit/s costs in virtual time.

A file that takes about a second, 0.1 ms each way, over queues of 0.04, 0.4 and 4 bandwidth-delay products. The cost is
the processor time of one core over the virtual time, so that other work on the machine does not count; the aim is 20 at
most.

    python benches/fast_link.py [--gigabytes N] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, Literal

from cellbed.link import Link
from cellbed.path import Path, Tcp

CONTROLS: tuple[Literal["cubic", "newreno", "bbr"], ...] = ("cubic", "newreno", "bbr")
QUEUES = ("100 kB", "1 MB", "10 MB")
AIM = 20


def cost(control: Literal["cubic", "newreno", "bbr"], queue: str, size: int) -> dict[str, Any]:
    """Virtual and processor time of a file."""
    path = Path(*(Link(rate="100 Gbit/s", queue=queue, delay="0.1 ms") for _ in range(2)))
    tcp = Tcp(control=control)
    began = time.process_time()
    download = path.downloads(sizes=[size], tcp=tcp)
    processor = time.process_time() - began
    virtual = int(download.taken[0]) / 1e9
    return {
        "control": control,
        "queue": queue,
        "gbit_s": 8 * size / virtual / 1e9,
        "repairs": int(download.repairs[0]),
        "virtual_s": virtual,
        "processor_s": processor,
        "cost": processor / virtual,
        "ns_per_segment": processor / (size / tcp.segment) * 1e9,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=12.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = [cost(control, queue, round(arguments.gigabytes * 1e9)) for control in CONTROLS for queue in QUEUES]
    if arguments.json:
        print(json.dumps(rows))
    else:
        print("control  queue    Gbit/s  repairs  virtual s  processor s  processor/virtual  ns/segment")
        for row in rows:
            print(
                f"{row['control']:8} {row['queue']:7} {row['gbit_s']:7.1f} {row['repairs']:8} {row['virtual_s']:10.3f} "
                f"{row['processor_s']:12.2f} {row['cost']:18.1f} {row['ns_per_segment']:11.0f}"
            )
    slow = [row for row in rows if row["cost"] > AIM]
    if slow:
        print(f"{len(slow)} of {len(rows)} cost more than {AIM} times their virtual time", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
