"""Writing what a data set says into a draft. What is in it is judged when the archive keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellbed.archive.errors import TraceError
from cellbed.archive.series import Content, Part, Series

if TYPE_CHECKING:
    import polars as pl

    from cellbed.archive.draft import Draft


def put_rate(draft: Draft, part: Part, rows: pl.DataFrame, last_ns: int) -> None:
    """Make ``rows`` (`at_ns` int64, `bit_s` float64) a part of the draft. last_ns: how long the last rate holds."""
    _put(draft, part, Content.RATE, rows.select("at_ns", "bit_s"), last_ns)


def put_round_trips(draft: Draft, rows: pl.DataFrame, last_ns: int) -> None:
    """Make ``rows`` (`at_ns` int64, `round_trip_ns` int64 or null) its round-trip times. last_ns: as of `put_rate`."""
    _put(draft, "round-trip", Content.ROUND_TRIP, rows.select("at_ns", "round_trip_ns"), last_ns)


def _put(draft: Draft, part: Part, content: Content, rows: pl.DataFrame, last_ns: int) -> None:
    if not rows.height:
        raise TraceError("there is no measurement in it")
    path = draft.folder / f"{part}.parquet"
    rows.write_parquet(path)
    draft.parts[part] = Series(content, path, int(rows["at_ns"][-1]) + last_ns)
