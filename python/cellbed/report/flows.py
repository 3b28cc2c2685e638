"""Figures of the flows of a sweep: laws compared by throughput, round-trip time, fairness and recovery."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from cellbed.measure.flows import BIN_S, SCHEMA, around_outages, bin_flows, transfers
from cellbed.measure.outages import find_outages
from cellbed.measure.run_folder import read_run
from cellbed.report import plot
from cellbed.report.figures import COLOURS, DASHES
from cellbed.report.plot import Drawing
from cellbed_node import inputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

    from cellbed.measure.factors import Study

_MOST_ROWS = 6
_BOX = (5, 25, 50, 75, 95)
"""Percentiles of a box, as in Lim et al., "An Empirical Study of 5G" (IEEE TMC, 2024)."""


def compare(panels: Mapping[str, Mapping[str, pl.DataFrame]]) -> Drawing | None:
    """Return throughput by round-trip time, and the distributions of both, a row for each panel; None without flows.

    panels: tables of `bin_flows` by panel and series, such as links and laws; at most 6 rows are drawn.
    """
    rows = {name: series for name, series in panels.items() if any(len(bins) for bins in series.values())}
    rows = dict(list(rows.items())[:_MOST_ROWS])
    names = list(dict.fromkeys(name for series in rows.values() for name in series))

    def draw(figure: FigureBase) -> None:
        grid = figure.subplots(len(rows), 3, squeeze=False)
        for (boxes, rates, trips), (panel, series) in zip(grid, rows.items(), strict=True):
            for name, bins in series.items():
                place = names.index(name)
                style: Any = {"color": COLOURS[place % len(COLOURS)]}
                known = bins.drop_nulls("rtt_s")
                rate, trip = bins["throughput_mbit_s"].to_numpy(), known["rtt_s"].to_numpy() * 1e3
                if not len(trip):
                    continue
                _box(boxes, trip, rate, name, style)
                style["linestyle"] = DASHES[place // len(COLOURS) % len(DASHES)]
                rates.ecdf(rate, lw=1.3, **style)
                trips.ecdf(trip, lw=1.3, **style)
            boxes.set_title(panel)
            boxes.set(xlabel="round trip, ms", ylabel="throughput, Mbit/s", xlim=(0, None), ylim=(0, None))
            rates.set(xlabel="throughput, Mbit/s", ylabel="share of bins", xlim=(0, None))
            trips.set(xlabel="round trip, ms", ylabel="share of bins", xlim=(0, None))
        found = [axes.get_legend_handles_labels() for axes in grid[:, 0]]
        handles = {label: handle for of_axes in found for handle, label in zip(*of_axes, strict=True)}
        figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4)

    return Drawing(0.6 + 2.9 * len(rows), draw) if rows else None


def _box(axes: Axes, trip: np.ndarray[Any, Any], rate: np.ndarray[Any, Any], name: str, style: dict[str, Any]) -> None:
    from matplotlib.patches import Rectangle

    x, y = np.percentile(trip, _BOX), np.percentile(rate, _BOX)
    axes.add_patch(Rectangle((x[1], y[1]), x[3] - x[1], y[3] - y[1], alpha=0.3, **style))
    axes.plot([x[0], x[4]], [y[2], y[2]], lw=1, **style)
    axes.plot([x[2], x[2]], [y[0], y[4]], lw=1, **style)
    axes.plot(x[2], y[2], "o", ms=4, label=name, **style)


def fairness(shares: Mapping[tuple[str, str], float]) -> Drawing | None:
    """Return the matrix of byte shares of a law (row) against a rival (column); None for fewer than two
    pairs."""
    if len(shares) < 2:
        return None
    laws, rivals = (list(dict.fromkeys(pair[at] for pair in shares)) for at in (0, 1))

    def draw(figure: FigureBase) -> None:
        axes = figure.subplots()
        values = np.array([[shares.get((law, rival), np.nan) for rival in rivals] for law in laws])
        image = axes.imshow(values * 100, cmap="RdBu", vmin=0, vmax=100, aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                dark = abs(value - 0.5) > 0.3
                axes.text(column, row, f"{value:.0%}", ha="center", va="center", color="white" if dark else plot.INK)
        axes.set_xticks(range(len(rivals)), rivals)
        axes.set_yticks(range(len(laws)), laws)
        axes.set(xlabel="rival", ylabel="law")
        axes.grid(visible=False)
        figure.colorbar(image, label="share of the bytes, %")

    return Drawing(1.2 + 0.4 * len(laws), draw)


def recovery(around: Mapping[str, pl.DataFrame]) -> Drawing | None:
    """Return the mean throughput of flows around outages; None without an outage.

    around: tables of :func:`cellbed.measure.flows.around_outages` by series, such as laws.
    """
    series = {name: table for name, table in around.items() if len(table)}

    def draw(figure: FigureBase) -> None:
        axes = figure.subplots()
        for number, (name, table) in enumerate(series.items()):
            step = (pl.col("since_s") / BIN_S).round() * BIN_S
            mean = table.group_by(since_s=step).agg(pl.col("share").mean()).sort("since_s")
            style: Any = {"color": COLOURS[number % len(COLOURS)], "lw": 1.3}
            dash = DASHES[number // len(COLOURS) % len(DASHES)]
            axes.plot(mean["since_s"], mean["share"] * 100, dash, label=name, **style)
        axes.axvline(0, color=plot.ALARM, lw=0.8)
        axes.set(xlabel="time since the end of the outage, s", ylabel="throughput, % of that before", ylim=(0, None))
        figure.legend(loc="outside upper center", ncols=4)

    return Drawing(3.4, draw) if series else None


def sweep_drawings(study: Study, folder: Path) -> dict[str, dict[str, Drawing]]:
    """Return the figures of each application's flows in the trials of a sweep, by name; empty without series.

    The first factor with several levels gives the series, the other factors give panels. The first and the last bin of
    a flow are left out. folder: folder of the sweep.
    """
    factors = [factor.name for factor in study.factors if study.trials[factor.name].n_unique() > 1]
    apps = study.trials["app"].unique(maintain_order=True).to_list()
    panels: dict[str, dict[str, dict[str, list[pl.DataFrame]]]] = {app: {} for app in apps}
    around: dict[str, dict[str, list[pl.DataFrame]]] = {app: {} for app in apps}
    shares: dict[tuple[str, str], list[float]] = {}
    used = study.trials.filter(pl.col("status").is_in(study.statuses)).drop_nulls("folder")
    for trial in used.unique("folder", maintain_order=True).iter_rows(named=True):
        run = folder / trial["folder"]
        flows = transfers(_table(run, "flows"))
        if not len(flows):
            continue
        name = str(trial[factors[0]]) if factors else "all trials"
        panel = ", ".join(f"{each} = {trial[each]}" for each in factors[1:])
        outages = find_outages(read_run(run), _table(run, "links"))
        for (app,), of_app in flows.group_by("app"):
            if app in panels:
                bins = bin_flows(of_app).filter(pl.col("time_s").is_between(*_inner(pl.col("time_s"))))
                panels[app].setdefault(panel, {}).setdefault(name, []).append(bins)
                around[app].setdefault(name, []).append(around_outages(of_app, outages))
        carried = flows.drop_nulls("app").group_by("app", "law").agg(pl.col("acked_bytes").sum())
        pair = sorted(carried.iter_rows(), key=lambda row: apps.index(row[0]) if row[0] in apps else len(apps))
        if len(pair) == 2 and pair[0][0] != pair[1][0]:
            shares.setdefault((pair[0][1], pair[1][1]), []).append(pair[0][2] / (pair[0][2] + pair[1][2]))
    found: dict[str, dict[str, Drawing]] = {}
    for app in apps:
        drawings = {
            "flows": compare({at: {it: pl.concat(each) for it, each in by.items()} for at, by in panels[app].items()}),
            "recovery": recovery({name: pl.concat(tables) for name, tables in around[app].items()}),
        }
        if app == apps[0]:
            drawings["fairness"] = fairness({pair: float(np.mean(values)) for pair, values in shares.items()})
        found[app] = {name: drawing for name, drawing in drawings.items() if drawing is not None}
    return found


def _inner(time: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Return begin and end of the complete bins of each flow."""
    return time.min().over("flow") + BIN_S / 2, time.max().over("flow") - BIN_S / 2


def _table(run: Path, name: str) -> pl.DataFrame:
    try:
        return pl.read_parquet(inputs.check(run / f"{name}.parquet"))
    except OSError:
        return pl.DataFrame(schema=SCHEMA)
