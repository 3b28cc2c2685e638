"""Kinds of drawings of a reproduction's trials: bars, boxes, distributions, lines, courses over time, and places.

Each kind returns a function for `Experiment.drawings`, which draws the trials, or returns None without data. Series,
panels and positions are levels of a factor, or named settings. A setting has levels by factor; its other names stand
for parts of a column's name, such as ``uplink_{percentile}_s``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from cellbed.extension.reports import (
    COLOURS,
    DASHES,
    PLACES,
    Bars,
    Interval,
    bin_flows,
    flows,
    mean_interval,
    plot,
    read_tables,
    transfers,
)
from cellbed_papers.publication import Draw, Trials, Values, ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

Array = np.ndarray[Any, Any]
Setting = Mapping[str, str]
Levels = str | Mapping[str, Setting]
"""A factor, for all its levels; or settings by name."""
Column = str | Callable[[Trials, Setting], Values]
"""A measure: a column, or the values in a setting."""
Source = Callable[[Trials, Setting], Array]
"""Single values, such as latencies of requests, of all repetitions in a setting."""
Table = Literal["requests", "links", "flows"]
Place = Literal["endpoint", "uplink", "remote", "downlink"]
Mark = Callable[["Axes", Any, int, str, str], None]
"""Draws a series. Arguments: data, number, name and colour."""

ANY: Setting = {}
"""The setting of all trials."""
_ONE: Levels = {"": ANY}
_BESIDE = 3
"""Maximum number of panels beside each other."""
_BOX = (5, 25, 50, 75, 95)
_STEP_S = 0.2
_MOST_RUNS = 100
"""Maximum number of runs used of a setting."""
_MOST_POINTS = 600
"""Maximum number of points drawn of a line."""
_MOST_REQUESTS = 2_000
"""Maximum number of requests drawn of a series."""
_MOST_OUTLIERS = 100
"""Maximum number of outliers drawn at each end of a box."""
_WIDE = 90
"""Maximum number of characters below an axis."""


# ---- data


def _settings(trials: Trials, levels: Levels) -> Mapping[str, Setting]:
    if isinstance(levels, str):
        return {level: {levels: level} for level in trials.measured[levels].unique(maintain_order=True)}
    return levels


def _read(
    trials: Trials, panels: Levels, by: Levels, at: Setting, read: Callable[[Setting], Any]
) -> dict[str, dict[str, Any]]:
    """Return what `read` returns of each setting, by panel and series, without empty results."""
    found: dict[str, dict[str, Any]] = {}
    for panel, of_panel in _settings(trials, panels).items():
        for name, own in _settings(trials, by).items():
            if len(data := read({**at, **of_panel, **own})):
                found.setdefault(panel, {})[name] = data
    return found


def _rows(trials: Trials, setting: Setting) -> pl.DataFrame:
    return trials.at(**{name: level for name, level in setting.items() if name in trials.frame.columns})


def _values(trials: Trials, column: Column, factor: float, setting: Setting) -> list[float]:
    """Return the values of a measure, one for each repetition; a repetition without the measure has none."""
    if callable(column):
        found = list(column(trials, setting).values())
    else:
        rows, name = _rows(trials, setting), column.format_map(setting)
        found = rows[name].drop_nulls().to_list() if name in rows.columns else []
    return [factor * each for each in found if not math.isnan(each)]


def _mean(trials: Trials, column: Column, factor: float, setting: Setting) -> Interval | None:
    """Return the mean over repetitions with its interval; infinite if a repetition is. None without values."""
    values = _values(trials, column, factor, setting)
    if not all(map(math.isfinite, values)):
        return Interval(math.inf, None, None, len(values))
    return mean_interval(values, 0.0 if min(values) >= 0 else -math.inf) if values else None


def _tables(trials: Trials, table: Table, setting: Setting, most: int = _MOST_RUNS) -> Iterator[pl.DataFrame]:
    """Yield a table of each run in a setting. Errors: :class:`CellbedError` for a damaged table.

    Requests have an additional column ``uplink_s``; flows are in complete bins of 0.2 s. most: maximum number of runs.
    """
    rows = _rows(trials, setting)
    if trials.folder is None or "folder" not in rows.columns:
        return
    for folder, app in rows.select("folder", "app").drop_nulls().head(most).iter_rows():
        if not (trials.folder / folder / f"{table}.parquet").is_file():
            continue
        found = read_tables(trials.folder / folder, table)[0]
        if table == "requests":
            found = found.filter(pl.col("status") != "skipped", pl.col("app") == app)
            parts = [name for name in found.columns if name.startswith("part_uplink_")]
            uplink = pl.sum_horizontal(parts) if parts else pl.lit(None, pl.Float64)
            found = found.with_columns(uplink_s=pl.when(pl.col("latency_s").is_not_null()).then(uplink))
        if table == "flows":
            time = pl.col("time_s")
            found = bin_flows(transfers(found.filter(pl.col("app") == app)))
            found = found.filter(time > time.min().over("flow"), time < time.max().over("flow"))
        yield found


def listed(column: str, factor: float = 1.0) -> Source:
    """Return the source of the values in a column of lists. factor: to the unit of the axis."""

    def read(trials: Trials, setting: Setting) -> Array:
        rows, name = _rows(trials, setting), column.format_map(setting)
        found = rows[name].drop_nulls().to_list() if name in rows.columns else []
        return factor * np.array([value for each in found for value in each if value is not None], float)

    return read


def tabled(table: Table, column: str, factor: float = 1.0) -> Source:
    """Return the source of the values in a column of a table of the runs. factor: to the unit of the axis."""

    def read(trials: Trials, setting: Setting) -> Array:
        found = [each[column].drop_nulls().to_numpy() for each in _tables(trials, table, setting)]
        return factor * np.concatenate([np.empty(0), *found])

    return read


# ---- kinds


def bars(
    label: str,
    column: Column,
    x: Levels,
    by: Levels = _ONE,
    panels: Levels = _ONE,
    at: Setting = ANY,
    *,
    factor: float = 1.0,
    log: bool = False,
) -> Draw:
    """Return groups of bars: means over repetitions with 95 % intervals; 0 and ∞ as text.

    label: of the measure; x: groups; by: bars of a group. factor: to the unit of the label.
    """

    def draw(trials: Trials) -> plot.Drawing | None:
        groups = _settings(trials, x)

        def read(setting: Setting) -> dict[str, Interval]:
            means = {name: _mean(trials, column, factor, {**setting, **own}) for name, own in groups.items()}
            return {name: mean for name, mean in means.items() if mean is not None and mean.value is not None}

        found = _read(trials, panels, by, at, read)
        means = [series for of_panel in found.values() for series in of_panel.values()]
        if all(math.isinf(mean.value or 0.0) for series in means for mean in series.values()):
            return None
        names = [name for name in groups if any(name in series for series in means)]
        width = 0.8 / len({name for of_panel in found.values() for name in of_panel})

        def mark(axes: Axes, series: Mapping[str, Interval], number: int, label: str, colour: str) -> None:
            for name, mean in series.items():
                left, value = names.index(name) + number * width, mean.value or 0.0
                if value == 0 or math.isinf(value):
                    text = "∞" if value else "0"
                    axes.text(left, 0.02, text, transform=axes.get_xaxis_transform(), ha="center", color=colour)
                if math.isinf(value):
                    continue
                axes.bar(left, value, width, label=label, color=colour, edgecolor="w", lw=0.4)
                low, high = ends(mean)
                axes.vlines(left, max(low, value / 100) if log else low, high, color=plot.INK, lw=1)

        def finish(axes: Axes) -> None:
            axes.set_xticks([each + 0.4 - width / 2 for each in range(len(names))], names)
            spare = max(0.2, 2 / min(len(found), _BESIDE) - len(names) / 2)
            axes.set_xlim(-width / 2 - spare, len(names) - 0.2 - width / 2 + spare)
            if max(map(len, names)) * len(names) > _WIDE / min(len(found), _BESIDE):
                for each in axes.get_xticklabels():
                    each.set(rotation=45, ha="right", rotation_mode="anchor", fontsize=7)
            axes.grid(visible=False, axis="x")
            if log:
                _scale_log(axes, "y")
            elif all((mean.value or 0.0) >= 0 for series in means for mean in series.values()):
                axes.set_ylim(0, None)

        return _arrange(found, mark, finish, label)

    return draw


def boxes(label: str, source: Source, by: Levels, at: Setting = ANY, *, log: bool = False) -> Draw:
    """Return boxes below each other: quartiles, whiskers from P5 to P95, and the farthest outliers."""

    def draw(trials: Trials) -> plot.Drawing | None:
        found = _read(trials, _ONE, by, at, partial(source, trials)).get("", {})

        def paint(figure: FigureBase) -> None:
            axes = figure.subplots()
            for place, values in enumerate(map(np.sort, found.values())):
                colour = COLOURS[place % len(COLOURS)]
                low, first, median, third, high = np.percentile(values, _BOX)
                beyond = *values[values < low][:_MOST_OUTLIERS], *values[values > high][-_MOST_OUTLIERS:]
                axes.barh(place, third - first, 0.6, first, color=colour, alpha=0.5)
                axes.hlines([place, place], [low, third], [first, high], color=colour)
                axes.vlines(median, place - 0.3, place + 0.3, color=plot.INK, lw=1.6)
                axes.plot(beyond, np.full(len(beyond), place), ".", ms=3, color=colour)
            axes.set_yticks(range(len(found)), [f"{name} ({len(values):,})" for name, values in found.items()])
            axes.set(xlabel=label, ylim=(len(found) - 0.5, -0.5))
            axes.grid(visible=False, axis="y")
            if log:
                _scale_log(axes, "x")

        return plot.Drawing(1.0 + 0.5 * len(found), paint) if found else None

    return draw


def distributions(
    label: str,
    source: Source,
    by: Levels,
    panels: Levels = _ONE,
    *,
    of: str = "requests",
    log: bool = False,
) -> Draw:
    """Return cumulative distributions. Infinite values count, beyond the axis. of: what has the values."""

    def draw(trials: Trials) -> plot.Drawing | None:
        def mark(axes: Axes, values: Array, number: int, label: str, colour: str) -> None:
            ranks = np.unique(np.linspace(0, len(values) - 1, _MOST_POINTS).astype(int))
            ranks = ranks[np.isfinite(found := np.sort(values)[ranks])]
            style: Any = {"where": "post", "color": colour, "ls": DASHES[number % len(DASHES)], "lw": 1.3}
            axes.step(found[: len(ranks)], (ranks + 1) / len(values), label=label, **style)

        def finish(axes: Axes) -> None:
            axes.set(xlabel=label, ylim=(0, 1.01))
            if log:
                _scale_log(axes, "x")

        found = _read(trials, panels, by, ANY, partial(source, trials))
        return _arrange(found, mark, finish, f"share of {of}")

    return draw


def lines(
    label: str,
    column: Column,
    x: Levels,
    numbers: tuple[str, Mapping[str, float]],
    by: Levels,
    panels: Levels = _ONE,
    *,
    factor: float = 1.0,
    fit: bool = False,
) -> Draw:
    """Return means over repetitions with 95 % intervals over a number. numbers: label of its axis, and the number of
    each level of `x`. fit: draw the repetitions as points, with a least-squares line."""

    def draw(trials: Trials) -> plot.Drawing | None:
        def read(setting: Setting) -> Array:
            points: list[tuple[float, ...]] = []
            for name, own in _settings(trials, x).items():
                at, where = numbers[1][name], {**setting, **own}
                mean = _mean(trials, column, factor, where)
                if fit:
                    points += [(at, value, value, value) for value in _values(trials, column, factor, where)]
                elif mean is not None and mean.value is not None:
                    points.append((at, mean.value, *ends(mean)))
            return np.array([each for each in points if all(map(math.isfinite, each))], float).reshape(-1, 4)

        def mark(axes: Axes, points: Array, number: int, label: str, colour: str) -> None:
            at, value, low, high = points.T
            axes.plot(at, value, "o" if fit else "o-", ms=4, color=colour, label=label)
            axes.fill_between(at, low, high, color=colour, alpha=0.2, lw=0)
            if fit and len(span := np.unique(at)) > 1:
                axes.plot(span, np.polyval(np.polyfit(at, value, 1), span), color=colour)

        def finish(axes: Axes) -> None:
            axes.set(xlabel=numbers[0], ylim=(0, None))

        return _arrange(_read(trials, panels, by, ANY, read), mark, finish, label, shared=not fit)

    return draw


def curves(labels: tuple[str, str], source: Source, by: Levels, panels: Levels = _ONE) -> Draw:
    """Return curves through points. labels: of the axes; source: of points."""

    def draw(trials: Trials) -> plot.Drawing | None:
        def mark(axes: Axes, points: Array, number: int, label: str, colour: str) -> None:
            axes.plot(*points.T, DASHES[number % len(DASHES)], lw=1.3, color=colour, label=label)

        def finish(axes: Axes) -> None:
            axes.set(xlabel=labels[0], ylim=(0, None))

        return _arrange(_read(trials, panels, by, ANY, partial(source, trials)), mark, finish, labels[1])

    return draw


@dataclass(frozen=True, slots=True)
class Course:
    """A value over the time of a run: a column of a table. label: with the unit; factor: to this unit. direction: of a
    link."""

    label: str
    table: Table
    column: str
    factor: float = 1.0
    direction: str = ""
    log: bool = False

    def read(self, trials: Trials, setting: Setting) -> Array:
        """Return times and values in the first repetition: of each request, infinite without a reply; else means."""
        for rows in _tables(trials, self.table, setting, 1):
            single = self.table == "requests"
            chosen = rows.filter(pl.col("direction") == self.direction) if self.direction else rows
            value = pl.col(self.column) * self.factor
            if single:
                value = pl.when(pl.col("latency_s").is_null()).then(math.inf).otherwise(value)
            points = chosen.select(time="intended_s" if single else "time_s", value=value).drop_nulls().sort("time")
            if not points["value"].is_finite().any():
                break
            if single:
                return points.gather_every(1 + len(points) // _MOST_REQUESTS).to_numpy()
            step = max(_STEP_S, (points["time"][-1] - points["time"][0]) / _MOST_POINTS)
            bins = points.group_by((pl.col("time") / step).floor() * step, maintain_order=True)
            return bins.agg(pl.col("value").mean()).to_numpy()
        return np.empty((0, 2))


def courses(tracks: Sequence[Course], by: Levels, at: Setting = ANY) -> Draw:
    """Return values over the time of the first repetition, in panels below each other; × for no reply."""

    def draw(trials: Trials) -> plot.Drawing | None:
        found = [_read(trials, _ONE, by, at, partial(each.read, trials)).get("", {}) for each in tracks]
        names = list(dict.fromkeys(name for series in found for name in series))

        def paint(figure: FigureBase) -> None:
            grid = figure.subplots(len(tracks), 1, squeeze=False, sharex=True)[:, 0]
            for axes, track, series in zip(grid, tracks, found, strict=True):
                for name, points in series.items():
                    number, finite = names.index(name), np.isfinite(points[:, 1])
                    style: Any = {"color": COLOURS[number % len(COLOURS)], "ms": 4, "lw": 1.2}
                    dash = "." if track.table == "requests" else DASHES[number % len(DASHES)]
                    axes.plot(*points[finite].T, dash, label=name, **style)
                    if not all(finite):
                        lost, top = points[~finite, 0], axes.get_xaxis_transform()
                        axes.plot(lost, np.full(len(lost), 0.97), "x", label="no reply", transform=top, **style)
                axes.set_ylabel(track.label)
                if track.log:
                    _scale_log(axes, "y")
                else:
                    axes.set_ylim(0, None)
            grid[-1].set_xlabel("time since the start, s")
            _add_legend(figure, grid)

        return plot.Drawing(1.0 + 1.9 * len(tracks), paint) if all(found) else None

    return draw


def places(
    percentile: Literal["p50", "p99"],
    x: Levels,
    network: bool = False,
    faster: Mapping[str, tuple[str, float]] | None = None,
) -> Draw:
    """Return stacked bars of the time at each place; as in the thesis, percentiles of places are separate.

    network: without endpoint and remote node. faster: more bars by arithmetic: a level, and its compute's speed-up.
    """

    def draw(trials: Trials) -> Bars | None:
        settings = _settings(trials, x)
        shown = {name: (setting, 1.0) for name, setting in settings.items()}
        shown |= {name: (settings[of], by) for name, (of, by) in (faster or {}).items() if of in settings}

        def measure(place: Place, setting: Setting, by: float) -> float:
            mean = _mean(trials, f"{place}_{percentile}_s", 1e3 / (by if place == "remote" else 1), setting)
            return mean.value if mean and mean.value and math.isfinite(mean.value) else 0.0

        parts = [
            (PLACES[place], plot.palette(place)[1], [measure(place, *each) for each in shown.values()])
            for place in PLACES
            if not network or place in ("uplink", "downlink")
        ]
        label = f"{'median' if percentile == 'p50' else 'P99'} of the time at each place, mean of repetitions, ms"
        return Bars(list(shown), parts, label) if any(any(lengths) for *_, lengths in parts) else None

    return draw


def flow_boxes(panels: Levels, by: Levels) -> Draw:
    """Return boxes of throughput by round-trip time, and the distributions of both, in rows for the panels."""

    def draw(trials: Trials) -> plot.Drawing | None:
        def read(setting: Setting) -> pl.DataFrame:
            return pl.concat([pl.DataFrame(), *_tables(trials, "flows", setting)], how="diagonal")

        return flows.compare(_read(trials, panels, by, ANY, read))

    return draw


# ---- panels


def _arrange(
    found: Mapping[str, Mapping[str, Any]],
    mark: Mark,
    finish: Callable[[Axes], None],
    label: str,
    *,
    shared: bool = True,
) -> plot.Drawing | None:
    """Return panels with titles, and a legend below; None without panels. label: of the vertical axes."""
    names = list(dict.fromkeys(name for series in found.values() for name in series))

    def paint(figure: FigureBase) -> None:
        grid = figure.subplots(-(-len(found) // _BESIDE), min(len(found), _BESIDE), squeeze=False, sharey=shared)
        for axes, (panel, series) in zip(grid.flat, found.items(), strict=False):
            axes.set_title(panel)
            for name, data in series.items():
                number = names.index(name)
                mark(axes, data, number, name, COLOURS[number % len(COLOURS)])
        for axes in grid.flat[: len(found)]:
            finish(axes)
        for axes in grid.flat[len(found) :]:
            axes.remove()
        for axes in grid[:, 0]:
            axes.set_ylabel(label)
        _add_legend(figure, grid.flat[: len(found)])

    return plot.Drawing(0.6 + 2.7 * -(-len(found) // _BESIDE), paint) if found else None


def _add_legend(figure: FigureBase, panels: Iterable[Axes]) -> None:
    found = [axes.get_legend_handles_labels() for axes in panels]
    handles = {label: handle for of_axes in found for handle, label in zip(*of_axes, strict=True)}
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)


def _scale_log(axes: Axes, which: Literal["x", "y"]) -> None:
    axes.set(**{f"{which}scale": "log"})
    axis, limits = (axes.xaxis, axes.get_xlim()) if which == "x" else (axes.yaxis, axes.get_ylim())
    plot.label_decades(axis, *limits)
