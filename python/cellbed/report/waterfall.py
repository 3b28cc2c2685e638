"""Waterfalls: the spans of a request across services, with calls divided into nodes and network."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cellbed.report import plot

if TYPE_CHECKING:
    import polars as pl

    from cellbed.measure.decomposition import Decomposition

MOST_REQUESTS, MOST_ROWS = 200, 40
SEGMENTS = {
    "before_s": ("the caller", plot.palette("endpoint")[1]),
    "connect_s": ("the handshake", plot.palette("uplink")[3]),
    "uplink_s": ("the way there", plot.palette("uplink")[1]),
    "server_s": ("the server", plot.palette("remote")[1]),
    "downlink_s": ("the way back", plot.palette("downlink")[1]),
    "after_s": ("the caller", plot.palette("endpoint")[1]),
}
"""Columns of calls, with a name and a colour."""


@dataclass(slots=True)
class Row:
    """A span, or the mean of spans at the same place in several requests' traces. depth: number of spans above;
    begin_s: since the request's begin; requests: number with this span. segments: a call's durations with colours."""

    node: str
    name: str
    depth: int
    begin_s: float = 0.0
    duration_s: float = 0.0
    requests: int = 0
    segments: list[tuple[str, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Waterfall:
    """Spans of `requests` requests around a percentile, with mean latency `latency_s`. left_out: number of rows beyond
    MOST_ROWS."""

    requests: int
    latency_s: float
    rows: list[Row]
    left_out: int


def waterfalls(
    traces: "pl.DataFrame", requests: "pl.DataFrame", decompositions: Sequence["Decomposition"]
) -> list[Waterfall | None]:
    """Return the waterfall of each decomposition: of one request for the median, else the mean of the requests around
    the percentile; None without traces. requests, traces: the application's. Pure."""
    import polars as pl

    keys = ["endpoint", "request"]
    traced = requests.drop_nulls("latency_s").join(traces.select(keys).unique(), on=keys, how="semi")
    found: list[Waterfall | None] = []
    for each in decompositions:
        around = traced.filter(pl.col("latency_s") >= (each.low or 0.0)).sort("latency_s")
        if each.high is not None:
            around = around.filter(pl.col("latency_s") <= each.high)
        around = around[len(around) // 2 : len(around) // 2 + 1] if each.quantile == 0.5 else around[:MOST_REQUESTS]
        spans = traces.join(around.select(keys), on=keys, how="semi", maintain_order="left")
        rows = mean(spans.to_dicts())
        latency = float(around["latency_s"].mean() or 0.0)  # type: ignore[arg-type]
        left_out = max(0, len(rows) - MOST_ROWS)
        found.append(Waterfall(len(around), latency, rows[:MOST_ROWS], left_out) if rows else None)
    return found


def mean(spans: list[dict[str, object]]) -> list[Row]:
    """Return the means of spans at the same place: with the same names above, and equally many spans of the same name
    before. spans: rows of the table of traces, parents first."""
    rows: dict[tuple[object, ...], Row] = {}
    totals: dict[tuple[object, ...], dict[str, float]] = {}
    path: list[tuple[object, ...]] = []
    seen: dict[tuple[object, ...], int] = {}
    for span in spans:
        depth = int(str(span["depth"]))
        seen = {} if depth == 0 else seen
        place = (*(path[depth - 1] if depth else ()), (span["node"], span["kind"], span["name"]))
        seen[place] = seen.get(place, 0) + 1
        place = (*place[:-1], (place[-1], seen[place]))
        path[depth:] = [place]
        row = rows.setdefault(place, Row(str(span["node"]), str(span["name"]), depth))
        row.requests += 1
        total = totals.setdefault(place, dict.fromkeys(("begin_s", "duration_s", *SEGMENTS), 0.0))
        for name in total:
            value = span[name]
            total[name] += value if isinstance(value, float) else 0.0
    for place, row in rows.items():
        of = {name: value / row.requests for name, value in totals[place].items()}
        row.begin_s, row.duration_s = of["begin_s"], of["duration_s"]
        if any(of[name] for name in SEGMENTS):
            row.segments = [(colour, of[name]) for name, (_, colour) in SEGMENTS.items()]
    order = sorted(rows, key=lambda place: [rows[place[: length + 1]].begin_s for length in range(len(place))])
    return [rows[place] for place in order]
