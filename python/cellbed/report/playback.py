"""Playbacks of videos: bit rate, throughput and buffer over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cellbed.report import plot
from cellbed.report.plot import Drawing

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import FigureBase

_RATE, _BUFFER, _THROUGHPUT, _STALL = "bitrate_mbit_s", "buffer_s", "throughput_mbit_s", "stall_s"


def of_measures(table: pl.DataFrame, colours: Sequence[str]) -> Drawing | None:
    """Return the playbacks of an application, one for each node; None without any. table: its rows of
    ``measures.parquet`` that have a time."""
    if not {_RATE, _BUFFER} <= set(table["measure"].unique()):
        return None
    return Drawing(4.4, lambda figure: _draw(figure, table, colours))


def _draw(figure: FigureBase, table: pl.DataFrame, colours: Sequence[str]) -> None:
    import polars as pl

    rates, buffers = figure.subplots(2, 1, sharex=True)
    nodes = table["node"].unique(maintain_order=True).to_list()
    for colour, node in zip(colours, nodes, strict=False):
        series = {
            name: table.filter(pl.col("node") == node, pl.col("measure") == name).sort("time_s")
            for name in (_RATE, _BUFFER, _THROUGHPUT, _STALL)
        }
        name = node if len(nodes) > 1 else ""
        steps, end_s = series[_RATE], series[_BUFFER]["time_s"].max()
        times, values = [*steps["time_s"], end_s], [*steps["value"], *steps["value"][-1:]]
        rates.step(times, values, where="post", color=colour, lw=1.4, label=f"{name} bit rate".strip())
        came = series[_THROUGHPUT]
        label = f"{name} throughput of a chunk".strip()
        rates.plot(came["time_s"], came["value"], ".", color=colour, ms=5, alpha=0.6, label=label)
        buffers.plot(series[_BUFFER]["time_s"], series[_BUFFER]["value"], color=colour, lw=1.2)
        for at, length in series[_STALL].select("time_s", "value").iter_rows():
            for axes in (rates, buffers):
                axes.axvspan(at, at + length, color=plot.ALARM, alpha=0.15, lw=0)
    rates.set(ylabel="Mbit/s (logarithmic)", yscale="log")
    plot.label_decades(rates.yaxis, *rates.get_ylim())
    buffers.set(ylabel="buffer, s", ylim=(0, None), xlabel="time since the start of the schedule, s", xlim=(0, None))
    buffers.set_title("red: stalls", fontsize=8, fontweight="normal")
    figure.legend(*rates.get_legend_handles_labels(), loc="outside upper right", ncols=4)
