"""pDCell under other readings of its paper: which assertions depend on which choice.

    python benches/pdcell_readings.py [--flows 1000] [--seeds 5] [--jobs 1] [--part PART]...

Each reading (docs/explanation/pdcell.md) is replaced alone, then all of them. Times are means over the seeds of the
percentiles of the flow completion time (FCT), in ms. In both loads, with the settings of `cellbed reproduce pdcell`:

* schedulers: pDCell-MRFS beside pDCell-PFS (Fig. 9);
* short: flows of at most 10 KB, pDCell-PFS over pDCell-MRFS, by the user's channel (Fig. 10b);
* bounds: the same flows if there were no others, and if each were alone in the cell: what a scheduler could gain;
* buffers: mean FCT with a buffer of 30 MB over that with 3 MB, for both (Fig. 11c);
* refused: the share of packets that the central unit refuses, pHost+PFS minus pDCell-PFS, with a buffer of 3 MB
  (Fig. 11a);
* batches: the assertions of `cellbed reproduce pdcell` on the paper-like load, a batch, by its number of flows: 200,
  500 and 1000 with the default --flows; only where it is asked for;
* channels: mean FCT with fixed CQIs over that with varying ones, with MRFS, PFS, and round robin, which does not see
  the channel: its ratio is the effect of the cell's capacity alone (Fig. 10a).

"holds": the 95 % interval over the seeds is inside the assertion; "no": outside; "open": a part of it is.
"""

from __future__ import annotations

import argparse
import itertools
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cellbed.experiments.reproduce.simulated import Simulations
from cellbed.measure.repetitions import paired_difference
from cellbed.reproduction import Finding, ends, evaluate, run_content, statements
from cellbed_reproductions import pdcell

PERCENTILES = (10, 25, 50, 90, 99)
ALONE = {"first_threshold": "equal", "rank": "head", "cut": "first", "backoff_from": "credit"}
READINGS: dict[str, dict[str, str]] = {"present": {}}
READINGS |= {f"{key} = {value}": {key: value} for key, value in ALONE.items()} | {"all four": ALONE}
ROUND_ROBIN = pdcell.ROUND_ROBIN
ALL, SHORT, APART = "all", "only short", "one at a time"
APART_PS = 500_000_000_000


class Run(NamedTuple):
    """One simulation."""

    load: str
    transport: str
    scheduler: str
    cqi: str
    buffer: str
    readings: str
    seed: int
    flows: str = ALL


Measures = Mapping[Run, Mapping[str, Any]]


def simulate(run: Run, flows: int) -> dict[str, float]:
    """Percentiles, means, and the share of refused packets."""
    labels = pdcell.USUAL | {"load": run.load, "transport": run.transport, "cqi": run.cqi, "buffer": run.buffer}
    labels["scheduler"] = run.scheduler
    description = pdcell.describe(labels, {"flows": flows}, pdcell.sizes())
    description["radio"]["readings"] = READINGS[run.readings]
    if run.flows != ALL:
        description["traffic"] = {"trace": short_flows(description, run)}
    found = pdcell.measure(description, run.seed)
    times = [math.inf if each == "inf" else each for each in found["fct_s"]]
    return {f"p{each}": pdcell.rank(times, each / 100) for each in PERCENTILES} | {
        "mean": float(np.mean(times)),
        **{name: found[f"short_{name}_s"] for name in pdcell.QUALITIES},
        "refused": found["refused_share"],
        "bits": found["bits_per_block"],
        "elapsed": found["elapsed_s"],
    }


def short_flows(description: Mapping[str, Any], run: Run) -> list[list[int]]:
    """The short flows of a simulation as a trace: at their times, or one after the other."""
    found = run_content(description, run.seed)["flows"]
    order = np.argsort(found["flow"])
    order = order[found["bytes"][order] <= pdcell.SHORT_BYTES]
    columns = [found[name][order].tolist() for name in ("bytes", "source", "destination", "start_ps", "user")]
    if run.flows == APART:
        columns[3] = [number * APART_PS for number in range(len(order))]
    return [list(row) for row in zip(*columns, strict=True)]


def verdict(values: Sequence[float], limit: float) -> str:
    """Whether the mean is at least a limit."""
    interval = paired_difference(list(values))
    low, high = ends(interval)
    return "holds" if low >= limit else "no" if high < limit else "open"


def _pdcell(load: str, scheduler: str, readings: str, seed: int = 0) -> Run:
    return Run(load, pdcell.PDCELL, scheduler, pdcell.TRACE, "usual", readings, seed)


def schedulers(seeds: Sequence[int]) -> list[Run]:
    return [
        _pdcell(load, scheduler, readings, seed)
        for seed in seeds
        for load in pdcell.MODES
        for readings in READINGS
        for scheduler in (pdcell.MRFS, pdcell.PFS)
    ]


def show_schedulers(measures: Measures) -> None:
    for load in pdcell.MODES:
        print(f"\n{load}: FCT in ms (P{', P'.join(map(str, PERCENTILES))}), packets refused, MRFS at most PFS")
        for readings in READINGS:
            settings = [_pdcell(load, scheduler, readings) for scheduler in (pdcell.MRFS, pdcell.PFS)]
            parts = []
            for setting in settings:
                ranks = " ".join(f"{1000 * np.mean(of(measures, setting, f'p{each}')):8.1f}" for each in PERCENTILES)
                parts.append(f"{setting.scheduler} {ranks} {np.mean(of(measures, setting, 'refused')):6.1%}")
            found = []
            for each in PERCENTILES:
                quick, slow = (of(measures, setting, f"p{each}") for setting in settings)
                found.append(verdict([math.log(a / b) for a, b in zip(slow, quick, strict=True)], 0))
            print(f"{readings:26}", *parts, *(f"{each:5}" for each in found), sep=" | ")


def show_short(measures: Measures) -> None:
    print("\nmean FCT of flows of at most 10 KB, PFS over MRFS, by the user's channel: mean and 95 % interval")
    for load in pdcell.MODES:
        for readings in READINGS:
            texts = []
            for quality in pdcell.QUALITIES:
                slow, quick = (
                    of(measures, _pdcell(load, scheduler, readings), quality) for scheduler in (pdcell.PFS, pdcell.MRFS)
                )
                texts.append(f"{quality} {times(slow, quick)}")
            print(f"{load:10} | {readings:26}", *texts, sep=" | ")


def bounds(seeds: Sequence[int]) -> list[Run]:
    return [
        _pdcell(load, scheduler, "present", seed)._replace(flows=flows)
        for seed in seeds
        for load in pdcell.MODES
        for scheduler, flows in ((pdcell.PFS, ALL), (pdcell.MRFS, ALL), (pdcell.MRFS, SHORT), (pdcell.MRFS, APART))
    ]


def show_bounds(measures: Measures) -> None:
    print("\nmean FCT of flows of at most 10 KB to users with a bad channel, ms")
    for load in pdcell.MODES:
        for setting in (run for run in bounds([0]) if run.load == load):
            mean = 1000 * np.mean(of(measures, setting, "bad"))
            print(f"{load:10} | {setting.scheduler:4} | {setting.flows:13} | {mean:.1f}")


def buffers(seeds: Sequence[int]) -> list[Run]:
    both = schedulers(seeds)
    return [run._replace(buffer=buffer) for run in both for buffer in ("usual", "30 MB")]


def show_buffers(measures: Measures) -> None:
    print("\nmean FCT of pDCell, buffer of 30 MB over 3 MB: mean and 95 % interval")
    for load in pdcell.MODES:
        for readings in READINGS:
            texts = []
            for scheduler in (pdcell.MRFS, pdcell.PFS):
                small = _pdcell(load, scheduler, readings)
                large = small._replace(buffer="30 MB")
                texts.append(f"{scheduler} {times(of(measures, large, 'mean'), of(measures, small, 'mean'))}")
            print(f"{load:10} | {readings:26}", *texts, sep=" | ")


def of(measures: Measures, run: Run, key: str) -> list[float]:
    """A measure of a setting, by seed."""
    return [found[key] for each, found in measures.items() if each._replace(seed=run.seed) == run]


def times(above: Sequence[float], below: Sequence[float]) -> str:
    """The geometric mean of ratios with its 95 % interval. A seed without such flows does not count."""
    pairs = zip(above, below, strict=True)
    found = paired_difference([math.log(a / b) for a, b in pairs if a is not None and b is not None])
    value, low, high = (math.exp(each) for each in (found.value, *ends(found)))
    return f"{value:.2f} ({low:.2f}–{high:.2f})"


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
            ratio = times([each["mean"] for each in fixed], [each["mean"] for each in varying])
            bits = " ".join(f"{np.mean([each['bits'] for each in group]):.0f}" for group in (fixed, varying))
            print(f"{load:10} | {scheduler:11} | {ratio} | {bits}")


PARTS: dict[str, tuple[Callable[[Sequence[int]], list[Run]], Callable[[Measures], None]]] = {
    "schedulers": (schedulers, show_schedulers),
    "short": (schedulers, show_short),
    "bounds": (bounds, show_bounds),
    "buffers": (buffers, show_buffers),
    "refused": (refused, show_refused),
    "channels": (channels, show_channels),
}


BATCHES = (0.2, 0.5, 1.0)
"""Sizes of batches, in --flows."""


def show_batches(flows: int, seeds: int, jobs: int, figures: Sequence[str]) -> None:
    """Print the assertions on the paper-like load side by side, by the number of flows."""
    columns = {}
    for size in (round(share * flows) for share in BATCHES):
        scale = {"seeds": seeds, "flows": size}
        with tempfile.TemporaryDirectory() as folder:
            found = Simulations(pdcell.PUBLICATION, figures, Path(folder), short=False, jobs=jobs, **scale)
            for name, group in found.runs.items():
                found.runs[name] = [run for run in group if run.labels["load"] == pdcell.PAPER]
            found.run(Quiet())
            every = evaluate(pdcell.PUBLICATION, found.data())
        findings = {key: each for key, each in every.items() if key.endswith("-paper")}
        columns[size] = findings
        print(f"{size} flows: {statements(findings.values())}", flush=True)
    print(f"\n| Fig. | assertion | {' | '.join(f'{size} flows | ' for size in columns)} |")
    print("|---|---|" + "---|---|" * len(columns))
    for key, first in next(iter(columns.values())).items():
        cells = " | ".join(f"{each[key].ours} | {verdict_of(each[key])}" for each in columns.values())
        print(f"| {first.claim.experiment} | {first.claim.statement.removesuffix(' (paper-like)')} | {cells} |")


def verdict_of(finding: Finding) -> str:
    """Of the direction, and of the magnitude where a figure is published."""
    words = pdcell.PUBLICATION.verdicts
    text = words[finding.same]
    return text + (f"; magnitude: {words[finding.magnitude]}" if finding.magnitude != "–" else "")


class Quiet:
    """A listener of simulations that prints nothing."""

    def note(self, text: str) -> None:
        pass

    def state(self, text: str) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flows", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--part", choices=[*PARTS, "batches"], action="append")
    parser.add_argument("--figure", action="append", default=[], help="of batches; default: all")
    options = parser.parse_args()
    if options.part and "batches" in options.part:
        show_batches(options.flows, options.seeds, options.jobs, options.figure)
        options.part.remove("batches")
        if not options.part:
            return
    parts = [PARTS[part] for part in dict.fromkeys(options.part or PARTS)]
    seeds = range(1, options.seeds + 1)
    listed = list(dict.fromkeys(itertools.chain(*(runs(seeds) for runs, _ in parts))))
    with ProcessPoolExecutor(options.jobs) as pool:
        measures = dict(zip(listed, pool.map(simulate, listed, itertools.repeat(options.flows)), strict=True))
    for runs, show in parts:
        show({run: measures[run] for run in runs(seeds)})


if __name__ == "__main__":
    main()
