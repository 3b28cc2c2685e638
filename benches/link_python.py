"""Packets per second that `cellbed.Link` carries through one direction, over arrays, beside copying these arrays.

Each round runs every pipeline once on five million packets; figures are medians. "of the CPU" is by processor time
instead of the clock, for a machine with other work.

    python benches/link_python.py [--rounds N] [--packets N]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from measuring import Figures, interleave, median_figures

from cellbed import Link

TRACE = "lte-suburban.up"
MEAN_GAP_NS = 780_000
"""Mean gap of 1500-byte packets at the trace's mean rate, ns."""

PIPELINES: dict[str, dict[str, Any]] = {
    "trace + drop-tail + delay": {"rate": TRACE, "queue": "1 MB", "delay": "20 ms"},
    "the same with Mahimahi's accounting": {"rate": TRACE, "queue": "1 MB", "delay": "20 ms", "mahimahi": True},
    "the same with 1 % of loss": {"rate": TRACE, "queue": "1 MB", "delay": "20 ms", "loss": "1 %"},
    "constant rate + drop-tail + delay": {"rate": "15.4 Mbit/s", "queue": "1 MB", "delay": "20 ms"},
    "trace + CoDel + delay": {"rate": TRACE, "queue": "codel", "delay": "20 ms"},
    "trace + FQ-CoDel + delay": {"rate": TRACE, "queue": "fqcodel", "delay": "20 ms"},
    "trace + PIE + delay": {"rate": TRACE, "queue": "pie", "delay": "20 ms"},
    "delay": {"delay": "20 ms"},
    "delay, normally distributed": {"delay": "normal mean=20ms deviation=2ms"},
}


def rates(work: Callable[[], object], packets: int) -> Figures:
    """Return millions of packets per second, by the clock and by processor time."""
    clock, cpu = time.perf_counter(), time.process_time()
    work()
    clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
    return {"clock": packets / clock / 1e6, "cpu": packets / cpu / 1e6}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--packets", type=int, default=5_000_000)
    arguments = parser.parse_args()

    times = np.arange(arguments.packets, dtype=np.int64) * MEAN_GAP_NS
    sizes = np.full(arguments.packets, 1500, np.uint32)

    def run(pipeline: dict[str, Any]) -> Callable[[], object]:
        return lambda: Link(**pipeline).run(times, sizes)

    def portions(pipeline: dict[str, Any]) -> Callable[[], object]:
        link = Link(**pipeline)
        cuts = range(0, arguments.packets, 10_000)
        return lambda: [link.send(times[at : at + 10_000], sizes[at : at + 10_000]) for at in cuts]

    columns = [times, times, times, times, times, sizes, sizes.view(np.uint8)[: len(times)]]
    plain = next(iter(PIPELINES))
    works = {name: lambda pipeline=pipeline: run(pipeline) for name, pipeline in PIPELINES.items()}
    works[f"{plain}, sent in portions of 10,000"] = lambda: portions(PIPELINES[plain])
    works["copying the columns"] = lambda: lambda: [column.copy() for column in columns]
    cases = {name: lambda work=work: rates(work(), arguments.packets) for name, work in works.items()}
    results = interleave(cases, arguments.rounds)
    print(f"{arguments.packets} packets of 1500 bytes, medians of {arguments.rounds} rounds, million packets a second")
    for name, each in results.items():
        medians = median_figures(each)
        print(f"  {name:<55} {medians['clock']:6.2f}   of the CPU {medians['cpu']:6.2f}")


if __name__ == "__main__":
    main()
