"""pDCell under other readings of its paper: which assertions depend on which choice.

    python benches/pdcell_readings.py [--flows 1000] [--seeds 5] [--jobs 1] [--part schedulers|refused|channels]

Each reading (docs/explanation/pdcell.md) is replaced alone, then all of them. Times are means over the seeds of the
percentiles of the flow completion time (FCT), in ms. In both loads, with the settings of `cellbed reproduce pdcell`:

* schedulers: pDCell-MRFS beside pDCell-PFS (Fig. 9);
* refused: the share of packets that the central unit refuses, pHost+PFS minus pDCell-PFS, with a buffer of 3 MB
  (Fig. 11a);
* channels: mean FCT with fixed CQIs over that with varying ones, with MRFS, PFS, and round robin, which does not see
  the channel: its ratio is the effect of the cell's capacity alone (Fig. 10a).

"holds": the 95 % interval over the seeds is inside the assertion; "no": outside; "open": a part of it is.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from cellbed.experiments.reproduce import pdcell
from cellbed.measure.repetitions import paired_difference

PERCENTILES = (10, 25, 50, 90, 99)
ALONE = {"first_threshold": "active", "rank": "head", "cut": "first", "backoff_from": "credit"}
READINGS: dict[str, dict[str, str]] = {"present": {}}
READINGS |= {f"{key} = {value}": {key: value} for key, value in ALONE.items()} | {"all four": ALONE}
ROUND_ROBIN = "round robin"


class Run(NamedTuple):
    """One simulation."""

    load: str
    transport: str
    scheduler: str
    cqi: str
    buffer: str
    readings: str
    seed: int


Measures = Mapping[Run, Mapping[str, Any]]


def simulate(run: Run, flows: int) -> dict[str, float]:
    """Percentiles, the mean, and the share of refused packets."""
    labels = pdcell.USUAL | {"load": run.load, "transport": run.transport, "cqi": run.cqi, "buffer": run.buffer}
    labels["scheduler"] = pdcell.PFS if run.scheduler == ROUND_ROBIN else run.scheduler
    description = pdcell.describe(labels, {"flows": flows}, pdcell.sizes())
    if run.scheduler == ROUND_ROBIN:
        description["radio"]["scheduler"] = {"kind": "round-robin"}
    description["radio"]["readings"] = READINGS[run.readings]
    found = pdcell.measure(description, run.seed)
    times = [math.inf if each == "inf" else each for each in found["fct_s"]]
    return {f"p{each}": pdcell.rank(times, each / 100) for each in PERCENTILES} | {
        "mean": float(np.mean(times)),
        "refused": found["refused_share"],
        "bits": found["bits_per_block"],
        "elapsed": found["elapsed_s"],
    }


def verdict(values: Sequence[float], limit: float) -> str:
    """Whether the mean is at least a limit."""
    interval = paired_difference(list(values))
    low, high = (interval.value if each is None else each for each in (interval.low, interval.high))
    return "holds" if low >= limit else "no" if high < limit else "open"


def schedulers(seeds: Sequence[int]) -> list[Run]:
    return [
        Run(load, pdcell.PDCELL, scheduler, pdcell.TRACE, "usual", readings, seed)
        for seed in seeds
        for load in pdcell.MODES
        for readings in READINGS
        for scheduler in (pdcell.MRFS, pdcell.PFS)
    ]


def show_schedulers(measures: Measures) -> None:
    seeds = sorted({run.seed for run in measures})
    for load in pdcell.MODES:
        print(f"\n{load}: FCT in ms (P{', P'.join(map(str, PERCENTILES))}), packets refused, MRFS at most PFS")
        for readings in READINGS:

            def of(scheduler: str, key: str, at: tuple[str, str] = (load, readings)) -> list[float]:
                runs = [Run(at[0], pdcell.PDCELL, scheduler, pdcell.TRACE, "usual", at[1], seed) for seed in seeds]
                return [measures[run][key] for run in runs]

            parts = []
            for scheduler in (pdcell.MRFS, pdcell.PFS):
                times = " ".join(f"{1000 * np.mean(of(scheduler, f'p{each}')):8.1f}" for each in PERCENTILES)
                parts.append(f"{scheduler} {times} {np.mean(of(scheduler, 'refused')):6.1%}")
            found = []
            for each in PERCENTILES:
                slow, quick = of(pdcell.PFS, f"p{each}"), of(pdcell.MRFS, f"p{each}")
                found.append(verdict([math.log(a / b) for a, b in zip(slow, quick, strict=True)], 0))
            print(f"{readings:26}", *parts, *(f"{each:5}" for each in found), sep=" | ")


def refused(seeds: Sequence[int]) -> list[Run]:
    """pHost depends on the reading of cut packets alone."""
    return [
        Run(load, transport, pdcell.PFS, pdcell.TRACE, "3 MB", readings, seed)
        for seed in seeds
        for load in pdcell.MODES
        for transport in (pdcell.PHOST, pdcell.PDCELL)
        for readings in (READINGS if transport == pdcell.PDCELL else ("present", "cut = first"))
    ]


def show_refused(measures: Measures) -> None:
    seeds = sorted({run.seed for run in measures})
    print("\npackets refused at 3 MB: pHost+PFS, pDCell-PFS, pHost refuses more")
    for load in pdcell.MODES:
        for readings in READINGS:
            other = "cut = first" if readings in ("cut = first", "all four") else "present"
            phost, own = (
                [
                    measures[Run(load, transport, pdcell.PFS, pdcell.TRACE, "3 MB", at, seed)]["refused"]
                    for seed in seeds
                ]
                for transport, at in ((pdcell.PHOST, other), (pdcell.PDCELL, readings))
            )
            found = verdict([a - b for a, b in zip(phost, own, strict=True)], 0)
            print(f"{load:10} | {readings:26} | {np.mean(phost):6.1%} | {np.mean(own):6.1%} | {found}")


def channels(seeds: Sequence[int]) -> list[Run]:
    return [
        Run(load, pdcell.PDCELL, scheduler, cqi, "usual", "present", seed)
        for seed in seeds
        for load in pdcell.MODES
        for scheduler in (pdcell.MRFS, pdcell.PFS, ROUND_ROBIN)
        for cqi in (pdcell.FIXED, pdcell.TRACE)
    ]


def show_channels(measures: Measures) -> None:
    seeds = sorted({run.seed for run in measures})
    print("\nmean FCT, fixed over varying CQIs: mean and 95 % interval; bits in a resource block, fixed and varying")
    for load in pdcell.MODES:
        for scheduler in (pdcell.MRFS, pdcell.PFS, ROUND_ROBIN):
            fixed, varying = (
                [measures[Run(load, pdcell.PDCELL, scheduler, cqi, "usual", "present", seed)] for seed in seeds]
                for cqi in (pdcell.FIXED, pdcell.TRACE)
            )
            logs = [math.log(a["mean"] / b["mean"]) for a, b in zip(fixed, varying, strict=True)]
            found = paired_difference(logs)
            ends = [math.exp(found.value if each is None else each) for each in (found.low, found.high)]
            bits = " ".join(f"{np.mean([each['bits'] for each in group]):.0f}" for group in (fixed, varying))
            ratio = f"{math.exp(found.value):.2f} ({ends[0]:.2f}–{ends[1]:.2f})"
            print(f"{load:10} | {scheduler:11} | {ratio} | {bits}")


PARTS: dict[str, tuple[Callable[[Sequence[int]], list[Run]], Callable[[Measures], None]]] = {
    "schedulers": (schedulers, show_schedulers),
    "refused": (refused, show_refused),
    "channels": (channels, show_channels),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flows", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--part", choices=PARTS, action="append")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        for part in options.part or PARTS:
            listed, show = PARTS[part]
            runs = listed(range(1, options.seeds + 1))
            found = pool.map(simulate, runs, [options.flows] * len(runs))
            show(dict(zip(runs, found, strict=True)))


if __name__ == "__main__":
    main()
