"""Checks of stored data: the columns and values of a series, and the hashes of an entry's files."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.archive.errors import TraceError
from cellbed.archive.series import Content, Series
from cellbed_node import inputs

if TYPE_CHECKING:
    from cellbed.archive.entry import Entry

LATEST_NS = 10 * 365 * 24 * 3600 * 10**9
"""Maximum time, ns: no recording is longer than ten years, so a larger time is in another unit."""
HIGHEST_BIT_S = 1e12
"""Maximum rate, bit/s: no link is faster, so a larger rate is in another unit."""
LONGEST_TRIP_NS = 3600 * 10**9
"""Maximum round-trip time, ns: an hour; a longer one is in another unit."""


def require_sound(series: Series) -> int:
    """Return the number of rows of a series, read once as a stream.

    Raises TraceError ``FILE: reason`` for a file that is not Parquet, has other columns, or invalid values.
    """
    import polars as pl

    at, value = pl.col("at_ns"), pl.lit(None, pl.Float64)
    integers, floats = (pl.Int64, "whole numbers"), (pl.Float64, "numbers in floating point")
    columns: dict[str, tuple[type[pl.DataType], str]] = {"at_ns": integers}
    if series.content is not Content.OPPORTUNITIES:
        name = "bit_s" if series.content is Content.RATE else "round_trip_ns"
        value = pl.col(name).cast(pl.Float64)
        columns[name] = floats if series.content is Content.RATE else integers
    with name_file_in_errors(series.path):
        rows = series.scan()
        schema = rows.collect_schema()
        for column, (kind, words) in columns.items():
            if schema.get(column) != kind:
                raise TraceError(f"{series.path}: a {series.content} series has a column {column} of {words}")
        # Differences are a separate column: within the aggregation they would be held in memory.
        found = (
            rows.with_columns(step_ns=at.diff())
            .select(
                rows=pl.len(),
                untimed=at.null_count(),
                first=at.min(),
                last=at.max(),
                backwards=(pl.col("step_ns") < 0).any(),
                unknown=(value.is_null() | ~value.is_finite()).sum(),
                lowest=value.min(),
                highest=value.max(),
            )
            .collect(engine="streaming")
        )
    figures = found.row(0, named=True)
    fault = _fault(series, figures)
    if fault:
        raise TraceError(f"{series.path}: {fault}")
    return int(figures["rows"])


@contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """Raise TraceError with the path if a file is missing or is no readable Parquet file."""
    import polars as pl

    try:
        yield
    except FileNotFoundError:
        raise TraceError(f"{path}: missing") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).strip().partition("\n")[0]
        raise TraceError(f"{path}: not a readable Parquet file, perhaps truncated: {reason:.200}") from None


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file.

    Args:
        path: The file.

    Returns:
        The digest of its bytes in hexadecimal.

    Raises:
        TraceError: The file cannot be read.
    """
    try:
        return inputs.sha256(path)
    except OSError as error:
        wrong = "missing" if error.errno == errno.ENOENT else f"cannot be read: {error.strerror}"
        raise TraceError(f"{path}: {wrong}") from None


def _fault(series: Series, found: dict[str, Any]) -> str:
    """Return the problem of a series with the figures `found`; empty if there is none."""
    rate = series.content is Content.RATE
    if not found["rows"]:
        return "no rows: nothing to replay"
    if found["untimed"]:
        return "missing times in at_ns"
    if found["first"] < 0:
        return "a time is negative: times count from the recording's start"
    if found["backwards"]:
        return "the times decrease: sort the rows by time"
    if found["last"] > LATEST_NS:
        return f"a time is {found['last'] / 1e9:.3g} s, more than ten years: wrong unit?"
    if not found["last"] <= series.duration_ns <= LATEST_NS or series.duration_ns < 1:
        return f"a duration of {series.duration_ns} ns does not fit: the last row is at {found['last']} ns"
    if rate and found["unknown"]:
        return f"{found['unknown']} rows have no rate"
    if (found["lowest"] or 0) < 0:
        return f"a {'rate' if rate else 'round-trip time'} is negative"
    if rate and not found["highest"]:
        return "all rates are 0: no packet would ever pass"
    if series.content is Content.ROUND_TRIP and (found["highest"] or 0) > LONGEST_TRIP_NS:
        return f"a round-trip time is {found['highest'] / 1e9:.3g} s, more than an hour: wrong unit?"
    if rate and found["highest"] > HIGHEST_BIT_S:
        return f"a rate is {found['highest']:.3g} bit/s, above 1 Tbit/s: wrong unit?"
    return ""


def find_faults(entry: Entry, folder: Path) -> list[str]:
    """Return the problems of an entry's files, each in a sentence that names the file.

    Every byte of the files is read.
    """
    found = []
    for path, digest in _files(entry, folder):
        try:
            if sha256(path) != digest:
                found.append(f"{path}: not the file that was added: its SHA-256 differs")
        except TraceError as error:
            found.append(str(error))
    if found:
        return found
    for held in entry.parts.values():
        try:
            require_sound(Series(held.content, folder / held.file, held.duration_ns))
        except TraceError as error:
            found.append(str(error))
    return found


def _files(entry: Entry, folder: Path) -> Iterator[tuple[Path, str]]:
    for held in entry.parts.values():
        yield folder / held.file, held.sha256
    if entry.site is not None:
        yield folder / entry.site.file, entry.site.sha256
    for table, digest in entry.tables.items():
        yield folder / table, digest
    if entry.recording is not None:
        for file, digest in entry.recording_files.items():
            yield folder / entry.recording / file, digest
