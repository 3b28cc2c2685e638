"""Writing of imported series into a draft, with the rules for rows; texts of messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import polars as pl

from cellbed.archive.entry import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.series import Content, Part, Series
from cellbed.archive.soundness import HIGHEST_BIT_S, LATEST_NS, LONGEST_TRIP_NS
from cellbed.support.errors import printable
from cellbed.support.readable import rate_words
from cellbed_node.errors import LeftOut

UNANSWERED = -1
"""The round-trip time of a probe without an answer."""

_LONGEST_TRACE_NS = (2**32 - 1) * 1_000_000
"""Maximum length of a trace, ns, as in Mahimahi's format: some 49 days."""
_LONG_HOLD = 5
"""Minimum gap between rows that a note reports, in usual gaps."""
_NEAR = 8
"""Number of rows examined above a row out of order."""


def write_series(
    draft: Draft,
    part: Part,
    at_ns: Sequence[int] | np.ndarray,
    values: Sequence[float] | np.ndarray,
    duration_ns: int,
    source: Path,
    place: Callable[[int], str],
    left_out: LeftOut | None = None,
) -> None:
    """Write rates (bit/s) or round-trip times (ns) of a recording into the draft. Impossible values are left out.

    source, place: the file, and the place of a row in the file, for messages. left_out: rows left out before. Raises
    TraceError if rows are not in order of time, if most rows are left out, or if the duration does not fit.
    """
    is_rate = part != "round-trip"
    longest = _LONGEST_TRACE_NS if is_rate else LATEST_NS
    left_out = left_out or LeftOut()
    try:
        at, value = np.asarray(at_ns, np.int64), np.asarray(values, np.float64)
    except OverflowError:
        raise TraceError(f"{source}: its times are beyond the ten years that a series can last") from None
    total = len(at) + left_out.count
    is_odd = ~((value >= 0) & (value <= (HIGHEST_BIT_S if is_rate else LONGEST_TRIP_NS)))
    is_odd &= is_rate | (value != UNANSWERED)
    what, unit = ("rate", "bit/s") if is_rate else ("round-trip time", "ns")
    left_out.add_all(
        np.flatnonzero(is_odd).tolist(), lambda row: (place(row), f"impossible {what} of {value[row]:.15g} {unit}")
    )
    require_most(left_out, total, source)
    at, value, numbers = at[~is_odd], value[~is_odd], np.flatnonzero(~is_odd)
    if not len(at):
        raise TraceError(f"{source}: contains nothing of the {part}")
    if not max(1, int(at[-1])) <= duration_ns <= longest:
        raise TraceError(
            f"{source}: its {part} lasts {duration_ns / 1e9:g} s with the last row at {int(at[-1]) / 1e9:g} s: "
            f"a series lasts longer than nothing, at least to its last row, and at most {longest / 1e9:g} s"
        )
    if left_out.count:
        draft.notes.append(left_out.note(f"row of the {part} is", f"rows of the {part} are"))
    rows = pl.DataFrame({"at_ns": at})
    if is_rate:
        at[0] = 0  # differs if the first row is left out
        draft.notes.extend(_hold_note(at, value, duration_ns, lambda row: place(int(numbers[row]))))
        rows = pl.DataFrame({"at_ns": at, "bit_s": value})
    else:
        trips = pl.when(pl.col("round_trip_ns") != UNANSWERED).then(pl.col("round_trip_ns").cast(pl.Int64))
        rows = pl.DataFrame({"at_ns": at, "round_trip_ns": value}).with_columns(trips)
    path = draft.folder / f"{part}.parquet"
    try:
        rows.write_parquet(path)
    except OSError as error:
        raise TraceError(f"{path}: the series could not be written: {error.strerror or error}") from None
    draft.parts[part] = Series(Content.RATE if is_rate else Content.ROUND_TRIP, path, duration_ns)


def _hold_note(at: np.ndarray, rates: np.ndarray, duration_ns: int, place: Callable[[int], str]) -> Iterator[str]:
    """Yield a note if one rate holds much longer than the others."""
    holds, steps = np.diff(at, append=duration_ns), np.diff(at)
    usual, row = float(np.median(steps[steps > 0])) if len(at) > 2 and at[-1] else 0.0, int(holds.argmax())
    if usual and holds[row] >= _LONG_HOLD * usual:
        mean, of_rows = (rate_words(float(it)) for it in ((rates * holds).sum() / holds.sum(), rates.mean()))
        yield (
            f"{place(row)}: {rate_words(float(rates[row]))} hold for {seconds(int(holds[row]))}, "
            f"{holds[row] / usual:.3g} times as long as usual (mean {mean}, of the rows {of_rows}): if nothing came "
            "through, add a row of rate 0"
        )


def require_most(left_out: LeftOut, total: int, source: Path) -> None:
    """Raise TraceError with the first reason if at least half of the rows are left out, as with a wrong unit."""
    if 0 < total <= 2 * left_out.count:
        raise TraceError(f"{source}: {left_out.named[0]} ({left_out.count} of {total} rows cannot be read)")


def in_order(
    times_ns: np.ndarray, source: Path, place: Callable[[int], str], left_out: LeftOut, slack_ns: int = 0
) -> np.ndarray:
    """Return a mask of the rows in order of time. Single rows out of order are left out.

    slack_ns: maximum decrease of time from row to row.

    Raises TraceError if time begins again, as in a file of several runs.
    """
    kept = np.ones(len(times_ns), bool)
    earlier, later = times_ns[:-1], times_ns[1:]
    # Differences of signed 64-bit times need another bit.
    ahead = (later.astype(np.uint64) - earlier.astype(np.uint64) > _LONGEST_TRACE_NS) & (later > earlier)
    breaks = np.flatnonzero(ahead | (later < earlier - slack_ns)) + 1

    def step(one: int, other: int) -> int:
        return int(times_ns[other]) - int(times_ns[one])

    def refuse(row: int, remedy: str) -> NoReturn:
        distance = _distance(step(row - 1, row))
        raise TraceError(f"{source}: {place(row)}: its time is {distance} the row above: {remedy}")

    if 2 * len(breaks) > len(times_ns):
        refuse(int(breaks[0]), "sort by time")
    for row in breaks.tolist():
        before = [each for each in range(max(0, row - 1 - _NEAR), row) if kept[each]][-2:]
        if not before or -slack_ns <= step(before[-1], row) <= _LONGEST_TRACE_NS:
            continue
        if row + 1 == len(times_ns) or -slack_ns < step(before[-1], row + 1) <= _LONGEST_TRACE_NS:
            odd = row
        elif len(before) == 1 or -slack_ns < step(before[0], row) <= _LONGEST_TRACE_NS:
            odd = before[-1]
        else:
            refuse(row, "another run begins here: write each run into a separate file")
        kept[odd] = False
        above, where = (odd - 1, "above") if odd else (1, "below")
        left_out.add(place(odd), f"its time is {_distance(step(above, odd))} the row {where}")
    return kept


def _distance(step_ns: int) -> str:
    return f"{abs(step_ns) / 1e9:.12g} s {'before' if step_ns < 0 else 'after'}"


def in_quotes(text: str, most: int = 40) -> str:
    """Return the first characters of a text in quotes, control characters escaped."""
    return f"`{printable(text[:most], kept='')}{'…' if len(text) > most else ''}`"


def count_of(number: int, one: str, many: str) -> str:
    """Return a number with the singular or plural of a noun."""
    return f"{number} {one if number == 1 else many}"


def seconds(ns: int, places: int = 3) -> str:
    """Return a time in seconds, with at most `places` decimals and no trailing zeros."""
    return f"{ns / 1e9:.{places}f}".rstrip("0").rstrip(".") + " s"
