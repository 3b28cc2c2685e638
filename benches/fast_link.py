"""Cost of TCP in virtual time over a link of 100 Gbit/s.

A file takes about a second with 0.1 ms each way, over queues of 0.04, 0.4 and 4 bandwidth-delay products. The cost is
the processor time of one core over the virtual time; other work of the machine has no effect. The aim is at most 20.

    python benches/fast_link.py [--gigabytes N]
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Literal

from cellbed.link import Link
from cellbed.path import Path, Tcp

CONTROLS: tuple[Literal["cubic", "newreno", "bbr"], ...] = ("cubic", "newreno", "bbr")
QUEUES = ("100 kB", "1 MB", "10 MB")
AIM = 20


def measure_download(control: Literal["cubic", "newreno", "bbr"], queue: str, size: int) -> float:
    """Print the figures of a download; return processor time over virtual time."""
    path = Path(*(Link(rate="100 Gbit/s", queue=queue, delay="0.1 ms") for _ in range(2)))
    tcp = Tcp(control=control)
    began = time.process_time()
    download = path.downloads(sizes=[size], tcp=tcp)
    processor = time.process_time() - began
    virtual = int(download.taken[0]) / 1e9
    cost, per_segment = processor / virtual, processor / (size / tcp.segment) * 1e9
    figures = f"{8 * size / virtual / 1e9:7.1f} {int(download.repairs[0]):8} {virtual:10.3f} {processor:12.2f}"
    print(f"{control:8} {queue:7} {figures} {cost:18.1f} {per_segment:11.0f}", flush=True)
    return cost


def main() -> int:
    """Measure and print; return 1 if a download costs more than the aim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=12.0)
    size = round(parser.parse_args().gigabytes * 1e9)
    print("control  queue    Gbit/s  repairs  virtual s  processor s  processor/virtual  ns/segment")
    costs = [measure_download(control, queue, size) for control in CONTROLS for queue in QUEUES]
    slow = sum(cost > AIM for cost in costs)
    if slow:
        print(f"{slow} of {len(costs)} cost more than {AIM} times their virtual time", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
