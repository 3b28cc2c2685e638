"""Delivery opportunities from Mahimahi's text: a whole number of milliseconds a line."""

from __future__ import annotations

from pathlib import Path

from cellbed.traces.draft import Draft
from cellbed.traces.errors import TraceError
from cellbed.traces.series import OPPORTUNITY_BYTES, Content, Part, Series
from cellbed.traces.sources.reading import reading

_NS = 1_000_000


def put_opportunities(draft: Draft, part: Part, path: Path, each_bytes: int = OPPORTUNITY_BYTES) -> None:
    """Make a file of opportunities a part of the draft. Raises TraceError when it is none.

    each_bytes: what one opportunity of the file carries. Where that is not the archive's own, the bytes are counted up
    and an opportunity stands where each further 1500 of them have come, so that the rate stays.
    """
    import polars as pl

    with reading(path.name):
        rows = pl.read_csv(
            path, has_header=False, new_columns=["at_ms"], schema={"at_ms": pl.Int64}, comment_prefix="#"
        )
    rows = rows.drop_nulls()
    at = rows["at_ms"]
    if not rows.height or int(at[0]) < 0 or not at.is_sorted() or int(at[-1]) == 0:
        raise TraceError(f"{path.name}: its milliseconds are negative, run backwards or are all zero")
    if each_bytes != OPPORTUNITY_BYTES:
        whole = pl.int_range(1, pl.len() + 1, dtype=pl.Int64) * each_bytes // OPPORTUNITY_BYTES
        rows = rows.filter(whole > whole.shift(1, fill_value=0))
    place = draft.folder / f"{part}.parquet"
    rows.select(at_ns=pl.col("at_ms") * _NS).write_parquet(place)
    draft.parts[part] = Series(Content.OPPORTUNITIES, place, int(at[-1]) * _NS)
