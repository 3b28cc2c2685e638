"""How much one TCP flow gets through a link that depends on its load, beside a plain link of the same trace and delay.

Run ``python benches/replay_throughput.py`` (root, or a user who may open /dev/net/tun; needs iperf3). The fastest trace
is faster than the machine, so that its case shows what the emulator can do. Repetitions are interleaved; medians are
shown, with the range.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from emulator_nodes import ADDRESSES, Case, Stages, configuration, fixed, running, traced, write_trace
from emulator_throughput import PAYLOAD_SHARE, one_flow

DELAY_MS = 2
QUEUE = 2_000_000
RATES = {"100 Mbit/s": 10**8, "1 Gbit/s": 10**9, "24 Gbit/s": 24 * 10**9}


def replayed(folder: Path, heavy: Path) -> Stages:
    """The trace as heavy workload; trains of 50 packets in 2 ms, every 50 ms, as the light one."""
    light = folder / "light"
    train = " ".join(f"{packet * 0.04:g}" for packet in range(50))
    light.write_text("".join(f"{50 * row} {DELAY_MS} {train}\n" for row in range(1200)))
    queue = {"kind": "droptail", "packets": None, "bytes": QUEUE}
    files = {"light": str(light), "heavy": str(heavy), "looped": True}
    how = {"idle_ns": 20_000_000, "opportunity_bytes": 1500}
    return [{"kind": "workload-dependent", **files, **how, "queue": queue}]


def case(stages: Stages) -> Case:
    def measure(seconds: float) -> dict[str, float]:
        with running(configuration(stages)) as emulator:
            return one_flow(emulator, ADDRESSES["edge"], seconds)

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=4, help="length of each flow (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of each case (default: %(default)s)")
    arguments = parser.parse_args()
    if shutil.which("iperf3") is None:
        sys.exit("error: iperf3 is missing; install the package iperf3")

    flows: dict[str, tuple[list[dict[str, float]], list[dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        traces = {rate: write_trace(folder, bit_rate) for rate, bit_rate in RATES.items()}
        for _ in range(arguments.repeat):
            for rate, trace in traces.items():
                plain, replay = flows.setdefault(rate, ([], []))
                plain.append(case([*traced(trace, QUEUE), fixed(DELAY_MS)])(arguments.seconds))
                replay.append(case(replayed(folder, trace))(arguments.seconds))

    print(f"one TCP flow (reno), {os.cpu_count()} cores shared with iperf3; medians of {arguments.repeat} (range)")
    print(
        f"{'trace':12} {'plain link, Mbit/s':>26} {'replay, Mbit/s':>26} {'replay of plain':>16} {'of the trace':>13}"
    )
    for rate, both in flows.items():
        goodputs = [[run["goodput"] for run in runs] for runs in both]
        plain, replay = (statistics.median(goodput) for goodput in goodputs)
        spreads = [f"{statistics.median(each):8.1f} ({min(each):.1f}–{max(each):.1f})" for each in goodputs]
        of_trace = replay / PAYLOAD_SHARE / (RATES[rate] / 1e6)
        print(f"{rate:12} {spreads[0]:>26} {spreads[1]:>26} {replay / plain:16.1%} {of_trace:13.1%}")


if __name__ == "__main__":
    main()
