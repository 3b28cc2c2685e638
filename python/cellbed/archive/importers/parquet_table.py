"""Tables in Parquet: columns of time and of rates or round-trip times, of any types, as series."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cellbed.archive.draft import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers.column_names import Column, Mapped
from cellbed.archive.importers.header import dated
from cellbed.archive.importers.options import Options
from cellbed.archive.series import Content, Part, Series
from cellbed.archive.soundness import LATEST_NS
from cellbed.support import inputs
from cellbed.support.parquet_stream import write_rows

if TYPE_CHECKING:
    import polars as pl

_DAY_NS: Final = 86_400 * 10**9
_UNITS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, None: 10**6}
_FARTHEST_NS: Final = 9.2e18
_LONGEST_RATE_NS: Final = (2**32 - 1) * 10**6
"""The longest trace that can be played, as in Mahimahi's format."""
_HIGHEST_BIT_S: Final = 1e12
_EARLIEST_NS: Final = 946_684_800 * 10**9
"""2000-01-01: earlier stamps come from an unset clock."""
_MOMENTS: Final = (
    "%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f %z",
    "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y%m%dT%H%M%S%.f", "%Y-%m-%dT%H:%M",
)  # fmt: skip


def kinds(path: Path) -> dict[str, tuple[str, str]]:
    """Return the kind (``number``, ``moment``, ``text`` or ``other``) and the type of each column by its name."""
    return {name: (_kind(dtype), str(dtype)) for name, dtype in _schema(path).items()}


def read(path: Path, mapped: Mapped, options: Options, draft: Draft) -> None:
    """Write the series of the mapped columns into the draft. Raises TraceError."""
    import polars as pl

    try:
        _read(path, mapped, options, draft)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise _damaged(path, error) from None


def _read(path: Path, mapped: Mapped, options: Options, draft: Draft) -> None:
    import polars as pl

    schema = _schema(path)
    values = {part: _value(part, column, options.missing) for part, column in mapped.values.items()}
    rows = (
        pl.scan_parquet(inputs.checked(path))
        .select(_stamp(mapped.time, schema[mapped.time.name]).alias("stamp"), *values.values())
        .with_row_index("row", 1)
        .with_columns(at=pl.col("stamp") - pl.col("stamp").first(), step=pl.col("stamp").diff())
    )
    again = pl.col("step") == 0
    lost = {part: pl.col(f"lost {part}").sum() for part in values}
    figures = rows.select(
        pl.len().alias("rows"),
        pl.col("stamp").first().alias("zero"),
        pl.col("at").last().alias("last"),
        pl.col("step").filter(pl.col("step") > 0).last().alias("each"),
        again.sum().alias("again"),
        pl.col("row").filter(again).first().alias("first_again"),
        _fault(values).any().alias("faulty"),
        *lost.values(),
    )
    found = figures.collect(engine="streaming").row(0, named=True)
    if found["rows"] == 0:
        raise TraceError(f"{path}: it has no rows of values")
    if found["faulty"]:
        wrong = rows.filter(_fault(values)).head(1).collect().row(0, named=True)
        raise TraceError(f"{path}: row {wrong['row']}: {_reason(wrong, mapped)}")
    if options.duration_ns is None and found["each"] is None:
        raise TraceError(f"{path}: all rows have the same time, so the duration is unknown: write --duration")
    duration_ns: int = options.duration_ns if options.duration_ns is not None else found["last"] + found["each"]
    if not max(1, found["last"]) <= duration_ns <= min(map(_longest, values)):
        raise TraceError(
            f"{path}: it lasts {_seconds(duration_ns)} with the last row at {_seconds(found['last'])}: a series lasts "
            "at least to its last row, and at most 49 days with rates, else ten years"
        )
    for part in values:
        content, name = (Content.ROUND_TRIP, "round_trip_ns") if part == "round-trip" else (Content.RATE, "bit_s")
        series = Series(content, draft.folder / f"{part}.parquet", duration_ns)
        write_rows(rows.select(pl.col("at").alias("at_ns"), pl.col(part).alias(name)), series.path, "zstd")
        draft.parts[part] = series
    _note(found, options, draft)
    if mapped.time.unit is None and found["zero"] >= _EARLIEST_NS:
        dated(draft, found["zero"])


def _note(found: dict[str, Any], options: Options, draft: Draft) -> None:
    if options.duration_ns is None:
        draft.notes.append(
            f"the last row is assumed to last as long as the previous one, {_seconds(found['each'])}; "
            "correct with --duration"
        )
    rates = [part for part in draft.parts if part != "round-trip"]
    if rates and found["again"]:
        first = f"row {found['first_again']}"
        many = f"{found['again']} rows (the first: {first}) have"
        draft.notes.append(
            f"{f'a row ({first}) has' if found['again'] == 1 else many} the time of the row above: "
            "of rates at the same time only the last one counts"
        )
    for part in rates:
        if missing := found[f"lost {part}"]:
            draft.notes.append(f"{missing} {'row' if missing == 1 else 'rows'} of the {part} had no rate")


def _stamp(column: Column, dtype: pl.DataType) -> pl.Expr:
    """Return the time in ns, null where it is missing or out of range."""
    import polars as pl

    it = pl.col(column.name)
    if isinstance(dtype, pl.String | pl.Categorical | pl.Enum):
        text = it.cast(pl.String).str.strip_chars().str.strip_suffix(" UTC")
        parsed = [text.str.to_datetime(each, time_unit="ns", time_zone="UTC", strict=False) for each in _MOMENTS]
        days = text.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("ns", "UTC"))
        return pl.coalesce(*parsed, days).to_physical()
    if isinstance(dtype, pl.Date):
        it, unit = it.to_physical(), _DAY_NS
    elif isinstance(dtype, pl.Datetime | pl.Duration):
        it, unit = it.to_physical(), _UNITS[dtype.time_unit]
    else:
        unit = int(column.unit or 1)
    if dtype.is_float() or dtype.is_decimal():
        ns = (it.cast(pl.Float64) * unit).round()
        return pl.when(ns.abs() < _FARTHEST_NS).then(ns).cast(pl.Int64, strict=False)
    whole = it.cast(pl.Int64, strict=False)
    most = int(_FARTHEST_NS) // unit
    return pl.when(whole.is_between(-most, most)).then(whole * unit)


def _value(part: Part, column: Column, missing: str | None) -> pl.Expr:
    """Return a structure's two columns: the value, and ``lost PART``, whether the row has none."""
    import polars as pl

    given = (pl.col(column.name).cast(pl.Float64) * column.unit).fill_nan(None)
    if part == "round-trip":
        given = pl.when(given.is_between(0, _FARTHEST_NS) | given.is_null()).then(given.round()).otherwise(-1.0)
        value = given.cast(pl.Int64)
    elif missing == "hold":
        value = given.forward_fill().fill_null(0.0)
    else:
        value = given.fill_null(0.0) if missing == "zero" else given
    return pl.struct(value.alias(part), given.is_null().alias(f"lost {part}")).alias(f"of {part}").struct.unnest()


def _fault(values: dict[Part, pl.Expr]) -> pl.Expr:
    """Return an expression that is true for an invalid row."""
    import polars as pl

    time = pl.col("stamp").is_null() | (pl.col("step") < 0).fill_null(False)
    wrong = [time, *((pl.col("at") > _longest(part)).fill_null(False) for part in values)]
    for part in values:
        it = pl.col(part)
        possible = it.is_between(0, _HIGHEST_BIT_S) if part != "round-trip" else (it >= 0) | it.is_null()
        wrong.append(~possible.fill_null(False))
    return pl.any_horizontal(wrong)


def _reason(row: dict[str, Any], mapped: Mapped) -> str:
    """Return the first thing wrong in a row that has a fault."""
    if row["stamp"] is None:
        return "no time, or one that cannot be read"
    if row["step"] is not None and row["step"] < 0:
        return f"its time is {_seconds(-row['step'])} before that of the row above: rows must be in order of time"
    for part in mapped.values:
        value = row[part]
        if row["at"] > (longest := _longest(part)):
            start = f"its time, {_seconds(row['at'])} from the start"
            return f"{start}, is beyond the {_seconds(longest)} that a series can last"
        if part == "round-trip":
            if value is not None and value < 0:
                return f"impossible round trip in '{mapped.values[part].name}'"
        elif value is None:
            return (
                "missing rate: write --missing zero if nothing came through, or --missing hold if the previous rate "
                "continued"
            )
        elif not 0 <= value <= _HIGHEST_BIT_S:
            return f"impossible rate of {value:.12g} bit/s"
    return "no time, or one that cannot be read"


def _longest(part: Part) -> int:
    return LATEST_NS if part == "round-trip" else _LONGEST_RATE_NS


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:.3f}".rstrip("0").rstrip(".") + " s"


def _schema(path: Path) -> pl.Schema:
    import polars as pl

    try:
        return pl.scan_parquet(inputs.checked(path)).collect_schema()
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _damaged(path, error) from None


def _kind(dtype: pl.DataType) -> str:
    import polars as pl

    if dtype.is_numeric() or isinstance(dtype, pl.Boolean):
        return "number"
    if isinstance(dtype, pl.Datetime | pl.Date | pl.Duration):
        return "moment"
    return "text" if isinstance(dtype, pl.String | pl.Categorical | pl.Enum) else "other"


def _damaged(path: Path, error: BaseException) -> TraceError:
    line = next(iter(str(error).splitlines()), "")
    return TraceError(f"{path}: not a readable Parquet file, perhaps truncated: {line:.200}")
