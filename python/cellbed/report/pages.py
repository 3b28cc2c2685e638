"""The waterfall of a page: when the page needed each object, and when it was requested and complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import polars as pl

from cellbed.report import plot
from cellbed.report.plot import Drawing
from cellbed.runformat.description import Composed, Description
from cellbed.runformat.spans import HANDSHAKE, Place, Span

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

MOST_ROWS = 60
"""Maximum number of objects drawn, in order of request."""
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
    """Return the waterfall of an application whose requests consist of others (one of `described`): the objects of the
    load with the median load time. None for other applications, and if no load has objects.

    requests: requests of all applications.
    """
    consists_of = application.consists_of if isinstance(application, Composed) else None
    of = next((each for each in described if each.name == consists_of), None)
    if of is None or "load" not in requests.columns:
        return None
    objects = requests.filter(app=of.name)
    known = requests.filter(app=application.name).drop_nulls("latency_s").sort("latency_s")
    known = known.join(objects.select("endpoint", request="load").unique(), on=["endpoint", "request"], how="semi")
    if known.is_empty():
        return None
    load = known.sort("latency_s").row((len(known) - 1) // 2, named=True)
    own = objects.filter(endpoint=load["endpoint"], load=load["request"]).sort("intended_ns", "request")
    rows = own.with_columns(begin_s=(pl.col("intended_ns") - load["intended_ns"]) / 1e9).head(MOST_ROWS).to_dicts()

    def draw(figure: FigureBase) -> None:
        axes = figure.subplots()
        bars: dict[str, Any] = {}
        for number, row in enumerate(rows):
            at = row["begin_s"]
            for span in of.spans:
                length = row.get(span.column)
                if isinstance(length, float) and length > 0:
                    stage = _stage(span)
                    place, shade = _STAGES[stage]
                    bars[stage] = axes.barh(number, length, left=at, height=0.8, color=plot.palette(place)[shade])
                    at += length
        moments: dict[float, list[str]] = {}
        for column, name in _LINES.items():
            if isinstance(value := load.get(column), float):
                moments.setdefault(value, []).append(name)
        for value, names in moments.items():
            axes.axvline(value, color=plot.MUTED, lw=0.8)
            style: Any = {"textcoords": "offset points", "rotation": 90, "va": "top", "fontsize": 6}
            axes.annotate(", ".join(names), (value, 0), (2, 3), **style)
        axes.set_yticks(range(len(rows)), [_name(str(row["url"])) for row in rows], fontsize=6)
        axes.set(xlabel="time since the intended time, s", xlim=(0, None), ylim=(len(rows) - 0.5, -0.5))
        shown = f", first {len(rows)} of {len(own)} objects" if len(rows) < len(own) else ""
        axes.set_title(f"Load {load['request']} of {load['endpoint']}{shown}")
        stages = [stage for stage in _STAGES if stage in bars]
        figure.legend([bars[stage] for stage in stages], stages, loc="outside upper right", ncols=6)

    return Drawing(1.2 + 0.16 * len(rows), draw)


def _stage(span: Span) -> str:
    if span.short == "handshake" or span in HANDSHAKE:
        return "handshake"
    if span.place == "endpoint":
        return "received" if span.name == "endpoint_receive" else "browser"
    return "server" if span.place == "remote" else span.place


def _name(url: str) -> str:
    parts = urlsplit(url)
    path = parts.path if len(parts.path) <= 30 else f"…{parts.path[-29:]}"
    return f"{(parts.hostname or '').split('.')[0]}{path}"
