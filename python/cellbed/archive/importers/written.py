"""Series that an importer has read, written into a draft with the rules for their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.archive.draft import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.series import Content, Part, Series
from cellbed.archive.soundness import HIGHEST_BIT_S, LATEST_NS, LONGEST_TRIP_NS

if TYPE_CHECKING:
    import numpy as np

UNANSWERED = -1
"""The round-trip time of a probe without an answer."""

_LONGEST_TRACE_NS = (2**32 - 1) * 1_000_000
"""The longest trace that can be played, as in Mahimahi's format, some 49 days."""


def write_series(
    draft: Draft,
    part: Part,
    at_ns: Sequence[int] | np.ndarray,
    values: Sequence[float] | np.ndarray,
    duration_ns: int,
    source: Path,
    place: Callable[[int], str],
) -> None:
    """Write rates (bit/s) or round-trip times (ns) of a recording into the draft.

    source, place: the file, and the place of a row in it, for messages. Raises TraceError for rows that are not in
    order of time, impossible rates and round-trip times, and a duration that does not fit.
    """
    import numpy as np
    import polars as pl

    is_rate = part != "round-trip"
    longest = _LONGEST_TRACE_NS if is_rate else LATEST_NS
    try:
        rows = pl.DataFrame({"at_ns": np.asarray(at_ns, np.int64), "value": np.asarray(values)})
    except OverflowError:
        raise TraceError(f"{source}: its times are beyond the ten years that a series can last") from None
    at, value = pl.col("at_ns"), pl.col("value")
    rules = [
        (~value.is_between(0, HIGHEST_BIT_S) & is_rate, "impossible rate of {value:.15g} bit/s"),
        ((value > LONGEST_TRIP_NS) & (not is_rate), "impossible round-trip time of {value:.15g} ns"),
        (at < at.shift(1, fill_value=0), "its time is {back:.12g} s before that of the one above it: sort by time"),
        (at > longest, f"its time is beyond the {longest / 1e9:g} s that a series can last"),
    ]
    reasons = rows.select(pl.coalesce([pl.when(rule).then(pl.lit(reason)) for rule, reason in rules])).to_series()
    for row in reasons.is_not_null().arg_true().head(1):
        back = (rows["at_ns"][row - 1] - rows["at_ns"][row]) / 1e9 if row else -rows["at_ns"][row] / 1e9
        raise TraceError(f"{source}: {place(row)}: {reasons[row].format(value=rows['value'][row], back=back)}")
    if not rows.height:
        raise TraceError(f"{source}: contains nothing of the {part}")
    last_ns = int(rows["at_ns"][-1])
    if not max(1, last_ns) <= duration_ns <= longest:
        raise TraceError(
            f"{source}: its {part} lasts {duration_ns / 1e9:g} s with the last row at {last_ns / 1e9:g} s: "
            f"a series lasts longer than nothing, at least to its last row, and at most {longest / 1e9:g} s"
        )
    values_ns = pl.when(value != UNANSWERED).then(value.cast(pl.Int64)).alias("round_trip_ns")
    rows = rows.select("at_ns", value.cast(pl.Float64).alias("bit_s") if is_rate else values_ns)
    path = draft.folder / f"{part}.parquet"
    try:
        rows.write_parquet(path)
    except OSError as error:
        raise TraceError(f"{path}: the series could not be written: {error.strerror or error}") from None
    draft.parts[part] = Series(Content.RATE if is_rate else Content.ROUND_TRIP, path, duration_ns)
