"""Figures of a measure over the levels of a factor."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from cellbed.measure.factors import Axis, Factor, Study, limits
from cellbed.measure.repetitions import mean_interval, median_interval
from cellbed.measure.rows import PART
from cellbed.report import plot
from cellbed.report.figures import COLOURS, DASHES
from cellbed.report.formats import measure_axis
from cellbed.report.plot import Bars
from cellbed.runformat.spans import PLACES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_SERIES = len(COLOURS)
_MOST_PANELS = 9
_MOST_BARS = 16
_LOGARITHMIC = 50.0
"""Minimum ratio of maximum to minimum for a logarithmic axis."""


@dataclass(frozen=True, slots=True)
class FactorFigure:
    """A figure of a measure of an application over the levels of a factor, with intervals over repetitions.

    statuses: statuses that count. axis: ``None`` if the levels are neither numbers nor quantities; positions:
    positions of the levels on the axis. joined: whether lines join the marks of a series; else there is a mark for each
    point. series, panels: other factors with their levels. points: points to draw, ``None`` for all. pooled: number
    of points per mark; the mark is their mean in each repetition that has all of them.
    unit: unit of a measure that programs wrote.
    """

    app: str
    measure: str
    factor: str
    statistic: str
    statuses: tuple[str, ...]
    axis: Axis | None
    positions: dict[str, float]
    joined: bool
    series: dict[str, list[str]]
    panels: dict[str, list[str]]
    points: list[int] | None
    pooled: int
    unit: str = ""

    @property
    def name(self) -> str:
        """Return the name of the figure's file."""
        return f"{self.app}-{self.measure}-{self.factor}"

    @property
    def _logarithmic(self) -> bool:
        least, most = min(self.positions.values()), max(self.positions.values())
        return self.axis is not None and least > 0 and most / least >= _LOGARITHMIC

    def _shifted(self, position: float, share: float) -> float:
        """Return a position shifted by a share of the axis, or of the distance between levels that are no numbers."""
        least, most = min(self.positions.values()), max(self.positions.values())
        if self._logarithmic:
            return position * float((most / least) ** share)
        return position + share * (most - least if self.axis is not None else 1.0)

    def _marks(self, trials: pl.DataFrame, scale: float) -> pl.DataFrame:
        """Return a row for each mark: the levels of all shown factors, and ``value``, a list over repetitions."""

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

    def draw(self, trials: pl.DataFrame) -> Figure:
        """Return the figure for a dataset, in matplotlib's current style."""
        from matplotlib.figure import Figure

        panels = list(itertools.product(*self.panels.values()))
        columns = min(3, len(panels))
        rows = -(-len(panels) // columns)
        figure = Figure(figsize=(9, 3.4 if rows == 1 else 2.6 * rows), layout="constrained")
        finite = trials[self.measure].fill_nan(None).replace(math.inf, None)
        most = float(finite.drop_nulls().to_numpy().max(initial=0.0))
        ylabel, scale = measure_axis(self.measure, most, self.unit)
        marks = self._marks(trials, scale)
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        series = list(itertools.product(*self.series.values()))
        for axes, panel in itertools.zip_longest(grid.flat, panels):
            if panel is None:
                axes.remove()
                continue
            axes.set_title(", ".join(f"{name} = {level}" for name, level in zip(self.panels, panel, strict=True)))
            for number, levels in enumerate(series):
                chosen = zip([*self.panels, *self.series], [*panel, *levels], strict=True)
                of_series = marks.filter(*(pl.col(name) == level for name, level in chosen))
                # Series are shifted relative to each other to keep their intervals visible.
                shift = number - (len(series) - 1) / 2
                shift *= 0.006 if self.axis is not None else min(0.08, 0.5 / len(series))
                self._draw_series(axes, of_series, scale, number, shift, ", ".join(levels))
            if self._logarithmic:
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
                axes.xaxis.set_minor_formatter(lambda value, _: "")
        first = grid.flat[0]
        if self.axis is None:
            step = -(-len(self.positions) // 25)
            first.set_xticks(list(self.positions.values())[::step], list(self.positions)[::step])
            for axes in grid.flat:
                axes.tick_params(axis="x", labelrotation=90 if len(self.positions) * columns > 12 else 0)
            first.set_xlim(-0.5, len(self.positions) - 0.5)
        elif self.joined and len(self.positions) <= 8:
            first.set_xticks(sorted(self.positions.values()))
        _clip([axes for axes in grid.flat if axes.figure is not None], marks)
        unit = self.axis.unit if self.axis is not None else ""
        figure.supxlabel(", ".join(filter(None, [self.factor, unit])), fontsize=9)
        figure.supylabel(ylabel, fontsize=9)
        if self.series:
            figure.legend(*first.get_legend_handles_labels(), title=", ".join(self.series), loc="outside right upper")
        return figure

    def _draw_series(
        self, axes: Axes, marks: pl.DataFrame, scale: float, number: int, shift: float, label: str
    ) -> None:
        """Draw the marks of a series with their intervals. number: selects colour and dashes."""
        rows = [
            (self._shifted(self.positions[level], shift), *self._interval(values, scale))
            for level, values in marks.select(self.factor, "value").iter_rows()
            if level in self.positions
        ]
        x, middle, low, high = np.array(sorted(rows), float).reshape(-1, 4).T
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
            label=label or None,
        )

    def _interval(self, values: list[float], scale: float) -> tuple[float, ...]:
        """Return the statistic over repetitions and the bounds of its interval; NaN for too few repetitions."""
        least, most = limits(self.measure, self.unit, values)
        found = median_interval(values) if self.statistic == "median" else mean_interval(values, least, most * scale)
        return tuple(math.nan if each is None else each for each in (found.value, found.low, found.high))


def _clip(panels: list[Axes], marks: pl.DataFrame) -> None:
    """Limit the shared vertical axis to the values of single trials with equal margins; begin at 0 if 0 is near. An
    arrow marks an interval beyond the axis."""
    from matplotlib.container import ErrorbarContainer

    bottom, top = panels[0].get_ylim()
    values = np.array([each for row in marks["value"] for each in row], float)
    if len(values := values[np.isfinite(values)]):
        room = max(np.ptp(values), 0.1 * np.abs(values).max())
        bottom, top = max(bottom, values.min() - room), min(top, values.max() + room)
    bottom = 0 if 0 < bottom < top / 2 else bottom
    panels[0].set_ylim(bottom, top)
    for axes in panels:
        for line, _, bars in (each.lines for each in axes.containers if isinstance(each, ErrorbarContainer)):
            finite = (segment for segment in bars[0].get_segments() if len(segment) == 2)
            for (x, start), (_, end) in finite:
                for edge, marker, leaves in ((bottom, "v", start < bottom), (top, "^", end > top)):
                    if leaves:
                        axes.plot(x, edge, marker, color=line.get_color(), markersize=6, clip_on=False)


def make_figures(study: Study, app: str, measure: str) -> list[FactorFigure]:
    """Return the figures of a measure: one for each factor with more than one level in the dataset."""
    points = study.trials.filter(app=app).unique("point").sort("point")
    figures = (_make_figure(study, points, factor, app, measure) for factor in study.factors)
    return [figure for figure in figures if figure is not None]


def draw_parts(study: Study, app: str) -> dict[str, Bars]:
    """Return the mean parts of the latency as stacked bars for each level, by factor; without means of parts, the mean
    time at each place. Factors with one level or too many for bars are left out."""
    used = study.trials.filter(pl.col("app") == app, pl.col("status").is_in(study.statuses))
    having = [name for name in used.columns if name.endswith("_mean_s") and used[name].is_not_null().any()]
    parts = {name: name.removeprefix(PART).removesuffix("_mean_s") for name in having if name.startswith(PART)}
    shown = {name: (words.replace("_", " "), plot.shade(words)) for name, words in parts.items()}
    places = {f"{place}_mean_s": (words, plot.palette(place)[1]) for place, words in PLACES.items()}
    shown = shown or {name: each for name, each in places.items() if name in having}
    levels = {
        factor.name: [level for level in factor.levels if level in set(used[factor.name])] for factor in study.factors
    }
    return {
        factor: _parts_by_level(used, factor, found, shown)
        for factor, found in levels.items()
        if shown and 2 <= len(found) <= _MOST_BARS
    }


def _parts_by_level(
    used: pl.DataFrame, factor: str, levels: Sequence[str], shown: Mapping[str, tuple[str, str]]
) -> Bars:
    means = {row[factor]: row for row in used.group_by(factor).agg(pl.col(*shown).mean()).to_dicts()}
    rows = {name: [(means[level][name] or 0.0) * 1e3 for level in levels] for name in shown}
    widest = max(map(sum, zip(*rows.values(), strict=True)))
    parts = [
        (words if max(rows[name]) >= 0.002 * widest else "", colour, rows[name])
        for name, (words, colour) in shown.items()
    ]
    return Bars([f"{factor} {level}" for level in levels], parts, "mean of the parts of a request, ms")


def _make_figure(study: Study, points: pl.DataFrame, factor: Factor, app: str, measure: str) -> FactorFigure | None:
    """Return the figure of a factor, ``None`` for a single level. points: a row for each point."""
    levels = [level for level in factor.levels if level in set(points[factor.name])]
    if len(levels) < 2:
        return None
    others = [each.name for each in study.factors if each.name != factor.name]
    # Points that differ from another point only in this factor.
    comparable = points.filter(pl.len().over(others) > 1) if others else points
    joined = not study.additive and len(comparable) > 0
    series: list[str] = []
    panels: list[str] = []
    pooled = 1
    if joined:
        varying = {name: count for name in others if (count := comparable[name].n_unique()) > 1}
        series = next(([name] for name, count in varying.items() if count <= _MOST_SERIES), [])
        rest = {name: count for name, count in varying.items() if name not in series}
        if math.prod(rest.values()) <= _MOST_PANELS:
            panels = list(rest)
        pooled = max(comparable.group_by(factor.name, *series, *panels).len()["len"])
    order = {it.name: [level for level in it.levels if level in set(comparable[it.name])] for it in study.factors}
    axis = Axis.of(levels)
    return FactorFigure(
        app=app,
        measure=measure,
        factor=factor.name,
        statistic=study.statistic,
        statuses=study.statuses,
        axis=axis,
        positions=axis.places if axis else {level: float(at) for at, level in enumerate(levels)},
        joined=joined,
        series={name: order[name] for name in series},
        panels={name: order[name] for name in panels},
        points=comparable["point"].to_list() if joined and len(comparable) < len(points) else None,
        pooled=pooled,
        unit=study.unit(app, measure),
    )
