"""A measure over the levels of a factor, and a script that draws the same without cellbed.

The script has the source of the functions here that draw, and of those that compute the intervals.
"""

from __future__ import annotations

import inspect
import itertools
import math
import os
import pprint
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cellbed.measure import repetitions, statistics
from cellbed.measure.factors import Axis, Factor, Study
from cellbed.measure.repetitions import mean_bounds, quantile_bounds
from cellbed.report.figures import COLOURS, DASHES, file_name
from cellbed.report.formats import measure_axis
from cellbed.report.plot import STYLE

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure, FigureBase

_MOST_SERIES = len(COLOURS)
_MOST_PANELS = 9
_LOGARITHMIC = 50.0
"""A numeric axis is logarithmic from this ratio of its ends on."""


@dataclass(frozen=True, slots=True)
class FactorFigure:
    """A figure of a measure of an application. rows: of panels. spec: arguments of :func:`draw_factor`."""

    app: str
    factor: str
    rows: int
    statuses: tuple[str, ...]
    spec: dict[str, Any]

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.app}-{self.spec['measure']}-{self.factor}"

    @property
    def _height(self) -> float:
        return 3.4 if self.rows == 1 else 2.6 * self.rows

    def drawn(self, trials: pl.DataFrame) -> Figure:
        """Return the figure of a dataset, in the style of matplotlib at this moment."""
        import polars as pl
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, self._height), layout="constrained")
        used = trials.filter(pl.col("app") == self.app, pl.col("status").is_in(self.statuses))
        draw_factor(figure, used, **self.spec)
        return figure

    def script(self, dataset: Path, folder: Path) -> str:
        """Return a Python program in `folder` that draws the figure of the file `dataset`."""
        intervals = (repetitions._t, mean_bounds, statistics.needed, repetitions._lower_end, quantile_bounds)
        sources = [inspect.getsource(each) for each in (*intervals, over_repetitions, draw_factor)]
        style = {name: value for name, value in STYLE.items() if name != "svg.hashsalt"}
        return _SCRIPT.format(
            name=file_name(self.name),
            style=pprint.pformat(style, width=110, sort_dicts=False),
            colours=COLOURS,
            dashes=DASHES,
            sources="\n\n".join(sources),
            dataset=os.path.relpath(dataset.resolve(), folder.resolve()),
            app=self.app,
            statuses=list(self.statuses),
            spec=pprint.pformat(self.spec, width=110, sort_dicts=False),
            height=self._height,
        )


_SCRIPT = '''\
"""The figure {name} of a sweep. Needs polars, numpy, scipy and matplotlib.

Usage: python SCRIPT [FIGURE.svg|.pdf|.png [trials.parquet]]
"""

from __future__ import annotations

import itertools
import math
import sys
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import polars as pl
from matplotlib.figure import Figure, FigureBase
from numpy.typing import NDArray

Values = NDArray[np.float64]
CONFIDENCE = 0.95
STYLE = {style}
COLOURS = {colours}
DASHES = {dashes}
APP = {app!r}
STATUSES = {statuses}  # of the trials that are used
SPEC = {spec}
"""What is drawn, see `draw_factor`; the statistic is "mean" or "median"."""


{sources}

def main(target: Path, dataset: Path) -> None:
    trials = pl.read_parquet(dataset).filter(pl.col("app") == APP, pl.col("status").is_in(STATUSES))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, {height}), layout="constrained")
        draw_factor(figure, trials, **SPEC)
        figure.savefig(target)


if __name__ == "__main__":
    here = Path(__file__)
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else here.with_suffix(".svg")
    main(target, Path(sys.argv[2]) if len(sys.argv) > 2 else here.parent / {dataset!r})
'''


def of_factors(study: Study, app: str, measure: str) -> list[FactorFigure]:
    """Return the figures of a measure: one for each factor with more than one level in the dataset."""
    rows = study.trials.filter(app=app).unique("point").sort("point")
    return [made for factor in study.factors if (made := _of_factor(study, rows, factor, app, measure)) is not None]


def _of_factor(study: Study, rows: pl.DataFrame, factor: Factor, app: str, measure: str) -> FactorFigure | None:
    """rows: one for each point."""
    import polars as pl

    names = [each.name for each in study.factors]
    levels = [level for level in factor.levels if level in set(rows[factor.name])]
    if len(levels) < 2:
        return None
    others = [name for name in names if name != factor.name]
    alike = rows.filter(pl.len().over(others) > 1) if others else rows
    joined = not study.additive and len(alike) > 0
    series: list[str] = []
    panels: list[str] = []
    chosen = None
    pooled = 1
    if joined:
        chosen = alike["point"].to_list() if len(alike) < len(rows) else None
        varying = {name: count for name in others if (count := alike[name].n_unique()) > 1}
        series = next(([name] for name, count in varying.items() if count <= _MOST_SERIES), [])
        rest = {name: count for name, count in varying.items() if name not in series}
        if math.prod(rest.values()) <= _MOST_PANELS:
            panels = list(rest)
        pooled = max(alike.group_by(factor.name, *series, *panels).len()["len"])
    order = {
        name: [
            level for each in study.factors if each.name == name for level in each.levels if level in set(alike[name])
        ]
        for name in (*series, *panels)
    }
    axis = Axis.of(levels)
    places = axis.places if axis else {level: float(at) for at, level in enumerate(levels)}
    lowest, highest = min(places.values()), max(places.values())
    finite = study.trials[measure].fill_nan(None).replace(math.inf, None)
    ylabel, scale = measure_axis(measure, float(finite.drop_nulls().to_numpy().max(initial=0.0)))
    spec: dict[str, Any] = {
        "measure": measure,
        "ylabel": ylabel,
        "scale": scale,
        "statistic": study.statistic,
        "factor": factor.name,
        "places": places,
        "xlabel": ", ".join([factor.name, axis.unit] if axis and axis.unit else [factor.name]),
        "numeric": axis is not None,
        "logarithmic": axis is not None and lowest > 0 and highest / lowest >= _LOGARITHMIC,
        "joined": joined,
        "series": {name: order[name] for name in series},
        "panels": {name: order[name] for name in panels},
        "points": chosen,
        "pooled": pooled,
    }
    count = math.prod(len(each) for each in spec["panels"].values())
    return FactorFigure(app, factor.name, -(-count // 3), study.statuses, spec)


def over_repetitions(values: NDArray[np.float64], statistic: str, most: float = math.inf) -> tuple[float, float, float]:
    """Return mean or median and the ends of its 95 % interval, within 0 and `most`; NaN where there are too few."""
    n, value, low, high = len(values), math.nan, math.nan, math.nan
    if n and statistic == "median":
        value = float(np.median(values))
        if n >= 5 and not np.isnan(values).any():
            low, high = (float(each) for each in quantile_bounds(values, 0.5))
    elif n and np.isfinite(values).all():
        value = float(values.mean())
        if n >= 2:
            low, high = (float(each) for each in mean_bounds(values, 0, most))
    value, low, high = (each if math.isfinite(each) else math.nan for each in (value, low, high))
    return value, low, high


def draw_factor(
    figure: FigureBase,
    trials: pl.DataFrame,
    *,
    measure: str,
    ylabel: str,
    scale: float,
    statistic: str,
    factor: str,
    places: dict[str, float],
    xlabel: str,
    numeric: bool,
    logarithmic: bool,
    joined: bool,
    series: dict[str, list[str]],
    panels: dict[str, list[str]],
    points: list[int] | None,
    pooled: int,
) -> None:
    """Draw a measure over the levels of a factor, with intervals over repetitions.

    scale: units of the axis per unit of the measure. places: of the levels on the axis. joined: draw lines; else a mark
    for each point. series, panels: factors with their levels. points: those that are drawn, None for all.
    pooled: points of each mark, which is of their mean in each repetition that has all of them.
    """
    import polars as pl

    if points is not None:
        trials = trials.filter(pl.col("point").is_in(points))
    keys = [*panels, *series, factor, *([] if joined else ["point"])]
    value = pl.col(measure).fill_null(math.nan) * scale
    marks = (
        trials.group_by(*keys, "repetition")
        .agg(value.mean().alias("value"), pl.len().alias("points"))
        .filter(pl.col("points") == pooled)
        .sort("repetition")
        .group_by(keys)
        .agg(pl.col("value"))
    )
    least, most = min(places.values()), max(places.values())

    def beside(place: float, aside: float) -> float:
        """Return a place moved by a share of the axis, or of the distance between levels without numbers."""
        if logarithmic:
            return place * float((most / least) ** aside)
        return place + aside * (most - least if numeric else 1.0)

    panel_levels = list(itertools.product(*panels.values()))
    columns = min(3, len(panel_levels))
    grid = figure.subplots(-(-len(panel_levels) // columns), columns, sharex=True, sharey=True, squeeze=False)
    names = list(itertools.product(*series.values()))
    for axes, shown in itertools.zip_longest(grid.flat, panel_levels):
        if shown is None:
            axes.remove()
            continue
        axes.set_title(", ".join(f"{name} = {level}" for name, level in zip(panels, shown, strict=True)))
        for number, levels in enumerate(names):
            chosen = marks.filter(
                *(pl.col(n) == level for n, level in zip([*panels, *series], [*shown, *levels], strict=True))
            )
            # Series stand beside each other, so that their intervals can be seen.
            aside = number - (len(names) - 1) / 2
            aside *= 0.006 if numeric else min(0.08, 0.5 / len(names))
            greatest = scale if measure.endswith("_share") else math.inf
            rows = sorted(
                (beside(places[row[factor]], aside), *over_repetitions(np.array(row["value"]), statistic, greatest))
                for row in chosen.iter_rows(named=True)
                if row[factor] in places
            )
            x, middle, low, high = np.array(rows, float).reshape(-1, 4).T
            axes.errorbar(
                x,
                middle,
                [np.fmax(middle - low, 0), np.fmax(high - middle, 0)],
                fmt="o" if joined else ".",
                linestyle=DASHES[number % len(DASHES)] if joined else "none",
                color=COLOURS[number % len(COLOURS)],
                markersize=4,
                linewidth=1.3,
                elinewidth=1 if len(x) <= 100 else 0.4,
                capsize=3 if len(x) <= 50 else 0,
                label=", ".join(levels) or None,
            )
        if logarithmic:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.xaxis.set_minor_formatter(lambda value, _: "")
    first = grid.flat[0]
    if not numeric:
        step = -(-len(places) // 25)
        turned = 90 if len(places) * columns > 12 else 0
        first.set_xticks(list(places.values())[::step], list(places)[::step])
        for axes in grid.flat:
            axes.tick_params(axis="x", labelrotation=turned)
        first.set_xlim(-0.5, len(places) - 0.5)
    elif joined and len(places) <= 8:
        first.set_xticks(sorted(places.values()))
    bottom, top = first.get_ylim()
    if bottom > 0 and bottom < top / 2:
        first.set_ylim(0, None)
    figure.supxlabel(xlabel, fontsize=9)
    figure.supylabel(ylabel, fontsize=9)
    if series:
        figure.legend(*first.get_legend_handles_labels(), title=", ".join(series), loc="outside right upper")
