"""The waterfall of a page: when each of its objects was wanted, requested and complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cellbed.report import plot
from cellbed.report.plot import Drawing
from cellbed.runformat.description import Description
from cellbed.runformat.spans import HANDSHAKE, Place, Span

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import FigureBase

MOST_ROWS = 60
"""Objects that are drawn, those that were wanted first."""
_STAGES: dict[str, tuple[Place, int]] = {
    "browser": ("endpoint", 2),
    "handshake": ("uplink", 3),
    "uplink": ("uplink", 1),
    "server": ("remote", 1),
    "downlink": ("downlink", 1),
    "received": ("endpoint", 1),
}
"""Parts of a bar, with the place and the number of their shade."""
_LINES = {
    "first_byte_s": "first byte",
    "first_paint_s": "first paint",
    "largest_paint_s": "largest paint",
    "latency_s": "load event",
}


def draw_page_loads(
    application: Description, described: Sequence[Description], requests: pl.DataFrame
) -> Drawing | None:
    """Return the waterfall of an application, one of those `described`, whose requests consist of others; else None.
    requests: of all applications."""
    import polars as pl

    objects = next((each for each in described if each.name == application.consists_of), None)
    if objects is None:
        return None
    loads = requests.filter(pl.col("app") == application.name)
    return waterfall(loads, requests.filter(pl.col("app") == objects.name), objects.spans)


def waterfall(loads: pl.DataFrame, objects: pl.DataFrame, spans: Sequence[Span]) -> Drawing | None:
    """Return the objects of the load with the median load time; None without a load that has objects.

    loads: of an application; objects, spans: of the application that they consist of.
    """
    import polars as pl

    if "load" not in objects.columns:
        return None
    known = loads.drop_nulls("latency_s").sort("latency_s")
    known = known.join(objects.select("endpoint", request="load").unique(), on=["endpoint", "request"], how="semi")
    if known.is_empty():
        return None
    load = known.sort("latency_s").row((len(known) - 1) // 2, named=True)
    own = objects.filter(endpoint=load["endpoint"], load=load["request"]).sort("intended_ns", "request")
    begin = (pl.col("intended_ns") - load["intended_ns"]) / 1e9
    rows = own.with_columns(begin_s=begin).head(MOST_ROWS).to_dicts()
    return Drawing(1.2 + 0.16 * len(rows), lambda figure: _draw(figure, load, rows, spans, len(own)))


def _stage(span: Span) -> str:
    if span.short == "handshake" or span in HANDSHAKE:
        return "handshake"
    if span.place == "endpoint":
        return "received" if span.name == "endpoint_receive" else "browser"
    return "server" if span.place == "remote" else span.place


def _draw(
    figure: FigureBase, load: dict[str, object], rows: Sequence[dict[str, object]], spans: Sequence[Span], total: int
) -> None:
    axes = figure.subplots()
    labels: dict[str, Any] = {}
    for number, row in enumerate(rows):
        at = float(str(row["begin_s"]))
        for span in spans:
            length = row.get(span.column)
            if not isinstance(length, float) or length <= 0:
                continue
            stage = _stage(span)
            place, shade = _STAGES[stage]
            colour = plot.palette(place)[shade]
            labels[stage] = axes.barh(number, length, left=at, height=0.8, color=colour)
            at += length
    moments: dict[float, list[str]] = {}
    for column, name in _LINES.items():
        if isinstance(value := load.get(column), float):
            moments.setdefault(value, []).append(name)
    for value, names in moments.items():
        axes.axvline(value, color=plot.MUTED, lw=0.8)
        text = ", ".join(names)
        axes.annotate(text, (value, 0), (2, 3), textcoords="offset points", rotation=90, va="top", fontsize=6)
    axes.set_yticks(range(len(rows)), [_name(str(row["url"])) for row in rows], fontsize=6)
    axes.set(xlabel="time since the intended time, s", xlim=(0, None), ylim=(len(rows) - 0.5, -0.5))
    shown = f", first {len(rows)} of {total} objects" if len(rows) < total else ""
    axes.set_title(f"Load {load['request']} of {load['endpoint']}{shown}")
    figure.legend(
        [labels[stage] for stage in _STAGES if stage in labels],
        [stage for stage in _STAGES if stage in labels],
        loc="outside upper right",
        ncols=6,
    )


def _name(url: str) -> str:
    parts = urlsplit(url)
    path = parts.path if len(parts.path) <= 30 else f"…{parts.path[-29:]}"
    return f"{(parts.hostname or '').split('.')[0]}{path}"
