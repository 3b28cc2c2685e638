"""Whether a series is what its content says: columns, times that never run backwards, something to replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.traces.errors import TraceError
from cellbed.traces.series import Content, Series

if TYPE_CHECKING:
    import polars as pl

LATEST_NS = 10 * 365 * 24 * 3600 * 10**9
"""No recording is longer than ten years: a larger time is one in another unit."""
_HIGHEST_BIT_S = 1e12


def require_sound(series: Series) -> int:
    """The number of rows of a series, read once as a stream.

    Raises TraceError ``FILE: reason`` for what is no Parquet file, has other columns, or what cannot be in them.
    """
    import polars as pl

    path = series.path
    try:
        table = series.scan()
        _require_columns(path, series.content, table.collect_schema())
        found = table.select(**_measures(series.content)).collect(engine="streaming").row(0, named=True)
    except FileNotFoundError:
        raise TraceError(f"{path}: missing") from None
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError) as error:
        raise TraceError(f"{path}: no readable Parquet file, perhaps cut short: {_first_line(error)}") from None
    fault = _fault(series, found)
    if fault:
        raise TraceError(f"{path}: {fault}")
    return int(found["rows"])


def sha256(path: Path) -> str:
    """Hexadecimal digest of a file's bytes. Raises TraceError."""
    import hashlib

    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TraceError(f"{path}: {'missing' if error.errno == 2 else f'cannot be read: {error.strerror}'}") from None


def _require_columns(path: Path, content: Content, schema: pl.Schema) -> None:
    import polars as pl

    wanted: dict[str, pl.DataType] = {"at_ns": pl.Int64()}
    if content is Content.RATE:
        wanted["bit_s"] = pl.Float64()
    elif content is Content.ROUND_TRIP:
        wanted["round_trip_ns"] = pl.Int64()
    for name, kind in wanted.items():
        if schema.get(name) != kind:
            has = f"is {schema[name]}" if name in schema else "is missing"
            raise TraceError(f"{path}: the column {name} {has}; a series of content {content} has it as {kind}")


def _measures(content: Content) -> dict[str, pl.Expr]:
    """What a series is judged by, in one pass."""
    import polars as pl

    at = pl.col("at_ns")
    measures = {
        "rows": pl.len(),
        "first": at.min(),
        "last": at.max(),
        "sorted": at.is_sorted(),
        "unknown": at.null_count(),
    }
    if content is Content.RATE:
        rate = pl.col("bit_s")
        measures |= {"no_rate": rate.null_count() + (~rate.is_finite()).sum(), "lowest": rate.min()}
        measures |= {"highest": rate.max()}
    elif content is Content.ROUND_TRIP:
        measures |= {"lowest": pl.col("round_trip_ns").min()}
    return measures


def _fault(series: Series, found: dict[str, int | float | bool | None]) -> str:
    """What is wrong with a series that measures so; empty if nothing."""
    first, last, lowest, highest = (found.get(name) for name in ("first", "last", "lowest", "highest"))
    if not found["rows"]:
        return "no rows: there is nothing to replay"
    if found["unknown"]:
        return f"{found['unknown']} rows have no time"
    assert first is not None
    assert last is not None
    if first < 0:
        return "a time is negative: times count from the recording's start"
    if last > LATEST_NS:
        return f"a time is {last / 1e9:.3g} s, later than ten years: is it in another unit?"
    if not found["sorted"]:
        return "times run backwards"
    if not last <= series.duration_ns <= LATEST_NS or series.duration_ns < 1:
        return f"a duration of {series.duration_ns} ns does not fit: the last row is at {last} ns"
    if found.get("no_rate"):
        return f"{found['no_rate']} rows have no rate"
    if lowest is not None and lowest < 0:
        return f"a {'rate' if series.content is Content.RATE else 'round-trip time'} is negative"
    if series.content is Content.RATE and not highest:
        return "all rates are 0: nothing would ever pass"
    if highest is not None and highest > _HIGHEST_BIT_S:
        return f"a rate is {highest:.3g} bit/s, above 1 Tbit/s: is it in another unit?"
    return ""


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
