"""Assertions of the paper on pDCell under other readings of it.

    python papers/benches/pdcell_readings.py [--part PART] [--flows 1000] [--seeds 5] [--jobs 1] [--figure FIGURE]...

Prints the assertions of `cellbed reproduce pdcell` with each variant of a part side by side, and means over the seeds
of each setting: percentiles of the flow completion time (FCT), the mean FCT of flows of at most 10 KB by the user's
channel, and the share of packets that the central unit refuses.

* readings: each reading (datacentre/docs/pdcell.md) is replaced alone, then all of them;
* batches: the paper-like load, a batch, with 0.2, 0.5 and 1 times so many flows;
* bounds: Fig. 10b with the flows of at most 10 KB alone, and with each of these alone in the cell: limits of the gain
  by a scheduler.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from cellbed_papers.publication import VERDICTS, Data, Finding, SimulatedPublication, evaluate, statements
from cellbed_papers.publications import pdcell
from cellbed_papers.reproduce.simulated import Simulations

ALONE = {"first_threshold": "equal", "rank": "head", "cut": "first", "backoff_from": "credit"}
READINGS = {"present": {}, **{f"{key} = {value}": {key: value} for key, value in ALONE.items()}, "all four": ALONE}
BATCHES = (0.2, 0.5, 1.0)
"""Sizes of batches, in --flows."""
APART_PS = 500_000_000_000
MEANS = [
    *(f"fct_p{each}_s" for each in pdcell.PERCENTILES),
    *(f"short_{name}_s" for name in pdcell.QUALITIES),
    "refused_share",
]


class Variant(NamedTuple):
    """A variant of the publication. loads: of the settings. flows: in --flows."""

    publication: SimulatedPublication = pdcell.PUBLICATION
    loads: tuple[str, ...] = pdcell.MODES
    flows: float = 1.0


def read_as(readings: Mapping[str, str], *asked: Any) -> dict[str, Any]:
    """Return the simulation of a setting with other readings."""
    description = pdcell.describe(*asked)
    description["radio"]["readings"] = readings
    return description


def measure_short(apart: bool, description: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Measure the short flows of a simulation without the others: at their times, or one after the other."""
    found = pdcell.run_content(description, seed)["flows"]
    order = np.argsort(found["flow"])
    order = order[found["bytes"][order] <= pdcell.SHORT_BYTES]
    columns = [found[name][order].tolist() for name in ("bytes", "source", "destination", "start_ps", "user")]
    if apart:
        columns[3] = [number * APART_PS for number in range(len(order))]
    trace = [list(row) for row in zip(*columns, strict=True)]
    return pdcell.measure({**description, "traffic": {"trace": trace}}, seed)


PARTS = {
    "readings": {
        name: Variant(replace(pdcell.PUBLICATION, describe=partial(read_as, readings)))
        for name, readings in READINGS.items()
    },
    "batches": {f"{size:g} times the flows": Variant(loads=(pdcell.PAPER,), flows=size) for size in BATCHES},
    "bounds": {
        "all flows": Variant(),
        "only short flows": Variant(replace(pdcell.PUBLICATION, measure=partial(measure_short, False))),
        "one at a time": Variant(replace(pdcell.PUBLICATION, measure=partial(measure_short, True))),
    },
}


class Quiet:
    """A listener of simulations that prints nothing."""

    def note(self, text: str) -> None:
        pass

    def state(self, text: str) -> None:
        pass


def simulate(variant: Variant, options: argparse.Namespace) -> Data:
    """Run the simulations of a variant."""
    scale = {"seeds": options.seeds, "flows": round(variant.flows * options.flows)}
    with tempfile.TemporaryDirectory() as folder:
        found = Simulations(variant.publication, options.figure, Path(folder), short=False, jobs=options.jobs, **scale)
        for name, group in found.runs.items():
            found.runs[name] = [run for run in group if run.labels["load"] in variant.loads]
        found.run(Quiet())
        return found.data()


def show_means(data: Data) -> None:
    """Print means over the seeds by setting."""
    for figure, trials in data.items():
        print(f"Fig. {figure}")
        with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=240, tbl_hide_dataframe_shape=True):
            print(trials.measured.group_by(*pdcell.USUAL, maintain_order=True).agg(pl.mean(*MEANS)))


def show_findings(columns: Mapping[str, Mapping[str, Finding]]) -> None:
    """Print the findings of the variants side by side."""
    print(f"\n| Fig. | assertion | {' | '.join(f'{name} | ' for name in columns)} |")
    print("|---|---|" + "---|---|" * len(columns))
    for key, first in next(iter(columns.values())).items():
        if first.interval.value is not None:  # of these loads
            cells = " | ".join(f"{each[key].ours} | {verdict(each[key])}" for each in columns.values())
            print(f"| {first.claim.experiment} | {first.claim.statement} | {cells} |")


def verdict(finding: Finding) -> str:
    """Return the verdict on the direction, and on the magnitude where a figure is published."""
    text = VERDICTS[finding.same]
    return text + (f"; magnitude: {VERDICTS[finding.magnitude]}" if finding.magnitude != "–" else "")


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, default="readings")
    parser.add_argument("--flows", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--figure", action="append", default=[], help="default: all, 10b of bounds")
    options = parser.parse_args()
    if options.part == "bounds":
        options.figure = options.figure or ["10b"]
    columns = {}
    for name, variant in PARTS[options.part].items():
        data = simulate(variant, options)
        columns[name] = evaluate(variant.publication, data)
        print(f"{name}: {statements(columns[name].values())}")
        show_means(data)
    show_findings(columns)


if __name__ == "__main__":
    main()
