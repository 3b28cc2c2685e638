"""A measure over the levels of a factor."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cellbed.measure.factors import Axis, Factor, Study, limits
from cellbed.measure.repetitions import mean_interval, quantile_interval
from cellbed.report.figures import COLOURS, DASHES
from cellbed.report.formats import measure_axis

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

_MOST_SERIES = len(COLOURS)
_MOST_PANELS = 9
_LOGARITHMIC = 50.0
"""A numeric axis is logarithmic from this ratio of its ends on."""


@dataclass(frozen=True, slots=True)
class FactorFigure:
    """A figure of a measure of an application, with intervals over repetitions.

    statuses: of the trials that are used. axis: of the levels, ``None`` where they are neither numbers nor quantities;
    places: of the levels on it. joined: draw lines; else a mark for each point. series, panels: factors with their
    levels. points: those that are drawn, ``None`` for all. pooled: points of each mark, which is of their mean in each
    repetition that has all of them.
    """

    app: str
    measure: str
    factor: str
    statistic: str
    statuses: tuple[str, ...]
    axis: Axis | None
    places: dict[str, float]
    joined: bool
    series: dict[str, list[str]]
    panels: dict[str, list[str]]
    points: list[int] | None
    pooled: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.app}-{self.measure}-{self.factor}"

    @property
    def _logarithmic(self) -> bool:
        least, most = min(self.places.values()), max(self.places.values())
        return self.axis is not None and least > 0 and most / least >= _LOGARITHMIC

    def _beside(self, place: float, aside: float) -> float:
        """Return a place moved by a share of the axis, or of the distance between levels without numbers."""
        least, most = min(self.places.values()), max(self.places.values())
        if self._logarithmic:
            return place * float((most / least) ** aside)
        return place + aside * (most - least if self.axis is not None else 1.0)

    def _marks(self, trials: pl.DataFrame, scale: float) -> pl.DataFrame:
        """Return the values of each mark over repetitions, by the levels of all factors that are shown."""
        import polars as pl

        used = trials.filter(pl.col("app") == self.app, pl.col("status").is_in(self.statuses))
        if self.points is not None:
            used = used.filter(pl.col("point").is_in(self.points))
        keys = [*self.panels, *self.series, self.factor, *([] if self.joined else ["point"])]
        value = pl.col(self.measure).fill_null(math.nan) * scale
        return (
            used.group_by(*keys, "repetition")
            .agg(value.mean().alias("value"), pl.len().alias("points"))
            .filter(pl.col("points") == self.pooled)
            .sort("repetition")
            .group_by(keys)
            .agg(pl.col("value"))
        )

    def drawn(self, trials: pl.DataFrame) -> Figure:
        """Return the figure of a dataset, in the style of matplotlib at this moment."""
        import polars as pl
        from matplotlib.figure import Figure

        panel_levels = list(itertools.product(*self.panels.values()))
        columns = min(3, len(panel_levels))
        rows = -(-len(panel_levels) // columns)
        figure = Figure(figsize=(9, 3.4 if rows == 1 else 2.6 * rows), layout="constrained")
        finite = trials[self.measure].fill_nan(None).replace(math.inf, None)
        ylabel, scale = measure_axis(self.measure, float(finite.drop_nulls().to_numpy().max(initial=0.0)))
        marks = self._marks(trials, scale)
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        names = list(itertools.product(*self.series.values()))
        for axes, shown in itertools.zip_longest(grid.flat, panel_levels):
            if shown is None:
                axes.remove()
                continue
            axes.set_title(", ".join(f"{name} = {level}" for name, level in zip(self.panels, shown, strict=True)))
            for number, levels in enumerate(names):
                at = zip([*self.panels, *self.series], [*shown, *levels], strict=True)
                chosen = marks.filter(*(pl.col(name) == level for name, level in at))
                # Series stand beside each other, so that their intervals can be seen.
                aside = number - (len(names) - 1) / 2
                aside *= 0.006 if self.axis is not None else min(0.08, 0.5 / len(names))
                x, middle, low, high = (
                    np.array(
                        sorted(
                            (
                                self._beside(self.places[row[self.factor]], aside),
                                *self._over_repetitions(row["value"], scale),
                            )
                            for row in chosen.iter_rows(named=True)
                            if row[self.factor] in self.places
                        ),
                        float,
                    )
                    .reshape(-1, 4)
                    .T
                )
                axes.errorbar(
                    x,
                    middle,
                    [np.fmax(middle - low, 0), np.fmax(high - middle, 0)],
                    fmt="o" if self.joined else ".",
                    linestyle=DASHES[number % len(DASHES)] if self.joined else "none",
                    color=COLOURS[number % len(COLOURS)],
                    markersize=4,
                    linewidth=1.3,
                    elinewidth=1 if len(x) <= 100 else 0.4,
                    capsize=3 if len(x) <= 50 else 0,
                    label=", ".join(levels) or None,
                )
            if self._logarithmic:
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
                axes.xaxis.set_minor_formatter(lambda value, _: "")
        first = grid.flat[0]
        if self.axis is None:
            step = -(-len(self.places) // 25)
            first.set_xticks(list(self.places.values())[::step], list(self.places)[::step])
            for axes in grid.flat:
                axes.tick_params(axis="x", labelrotation=90 if len(self.places) * columns > 12 else 0)
            first.set_xlim(-0.5, len(self.places) - 0.5)
        elif self.joined and len(self.places) <= 8:
            first.set_xticks(sorted(self.places.values()))
        bottom, top = first.get_ylim()
        if 0 < bottom < top / 2:
            first.set_ylim(0, None)
        unit = self.axis.unit if self.axis is not None else ""
        figure.supxlabel(", ".join(filter(None, [self.factor, unit])), fontsize=9)
        figure.supylabel(ylabel, fontsize=9)
        if self.series:
            figure.legend(*first.get_legend_handles_labels(), title=", ".join(self.series), loc="outside right upper")
        return figure

    def _over_repetitions(self, values: list[float], scale: float) -> tuple[float, ...]:
        """Return the statistic and the ends of its interval; NaN where there are too few repetitions."""
        least, most = limits(self.measure)
        found = quantile_interval(values) if self.statistic == "median" else mean_interval(values, least, most * scale)
        return tuple(math.nan if each is None else each for each in (found.value, found.low, found.high))


def of_factors(study: Study, app: str, measure: str) -> list[FactorFigure]:
    """Return the figures of a measure: one for each factor with more than one level in the dataset."""
    rows = study.trials.filter(app=app).unique("point").sort("point")
    return [made for factor in study.factors if (made := _of_factor(study, rows, factor, app, measure)) is not None]


def _of_factor(study: Study, rows: pl.DataFrame, factor: Factor, app: str, measure: str) -> FactorFigure | None:
    """Return the figure of a factor, None for a single level. rows: one for each point."""
    import polars as pl

    levels = [level for level in factor.levels if level in set(rows[factor.name])]
    if len(levels) < 2:
        return None
    others = [each.name for each in study.factors if each.name != factor.name]
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
    order = {each.name: [level for level in each.levels if level in set(alike[each.name])] for each in study.factors}
    axis = Axis.of(levels)
    return FactorFigure(
        app=app,
        measure=measure,
        factor=factor.name,
        statistic=study.statistic,
        statuses=study.statuses,
        axis=axis,
        places=axis.places if axis else {level: float(at) for at, level in enumerate(levels)},
        joined=joined,
        series={name: order[name] for name in series},
        panels={name: order[name] for name in panels},
        points=chosen,
        pooled=pooled,
    )
