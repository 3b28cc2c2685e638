"""The rules for tables of times and of rates or round-trip times, the same for every file format."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellbed.archive.draft import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers.column_names import Column, Mapped
from cellbed.archive.importers.header import dated
from cellbed.archive.importers.options import Options
from cellbed.archive.importers.wording import counted, in_quotes, seconds
from cellbed.archive.importers.written import UNANSWERED, write_series
from cellbed.archive.series import Part

if TYPE_CHECKING:
    import polars as pl

_FARTHEST_NS: Final = 9e18
_MOMENTS: Final = (
    "%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f %z",
    "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y%m%dT%H%M%S%.f", "%Y-%m-%dT%H:%M",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a file that are read, as numbers.

    rows: ``stamp``, ns, null where it cannot be read; and a column of the name of each part, bit/s or ns: null for an
    empty cell, not a number for one that cannot be read. place, cell: the place of a row in the file and the
    text of its cell, for messages.
    """

    path: Path
    rows: pl.DataFrame
    place: Callable[[int], str]
    cell: Callable[[int, Column], str]


def write_table(table: Table, mapped: Mapped, options: Options, draft: Draft) -> None:
    """Write the series of the mapped columns into the draft. Raises TraceError."""
    path, rows = table.path, table.rows
    if rows.is_empty():
        raise TraceError(f"{path}: it has no rows of values")
    _require_readable(table, mapped, options)
    stamps = rows["stamp"]
    times, steps = stamps - stamps[0], stamps.diff()
    each_ns: int | None = next(iter(steps.filter(steps > 0).tail(1)), None)
    if options.duration_ns is None and each_ns is None and not (steps < 0).any():
        raise TraceError(f"{path}: all rows have the same time, so the duration is unknown: write --duration")
    duration_ns = times[-1] + (each_ns or 0) if options.duration_ns is None else options.duration_ns
    if options.duration_ns is None:
        draft.notes.append(
            f"the last row is assumed to last as long as the previous one, {seconds(each_ns or 0)}; "
            "correct with --duration"
        )
    rates = [part for part in mapped.values if part != "round-trip"]
    again = (steps == 0).arg_true()
    if rates and len(again):
        first = table.place(again[0])
        many = f"a row ({first}) has" if len(again) == 1 else f"{len(again)} rows (the first: {first}) have"
        draft.notes.append(f"{many} the time of the row above: of rates at the same time only the last one counts")
    for part in mapped.values:
        values = rows[part]
        if part == "round-trip":
            values = values.round(mode="half_away_from_zero").fill_null(UNANSWERED)
        else:
            values = (values.forward_fill() if options.missing == "hold" else values).fill_null(0.0)
        write_series(draft, part, times.to_numpy(), values.to_numpy(), duration_ns, path, table.place)
    for part in rates:
        if missing := rows[part].null_count():
            draft.notes.append(f"{counted(missing, 'row', 'rows')} of the {part} had no rate")
    dated(draft, stamps[0] if mapped.time.unit is None else None)


def _require_readable(table: Table, mapped: Mapped, options: Options) -> None:
    """Raise TraceError for the first row with a cell that cannot be read."""
    import polars as pl

    wrong = {"stamp": pl.col("stamp").is_null()}
    for part in mapped.values:
        it = pl.col(part)
        if part == "round-trip":
            wrong[part] = (it.is_nan() | ~it.is_between(0, _FARTHEST_NS, closed="left")).fill_null(False)
        else:
            wrong[part] = it.is_nan().fill_null(options.missing is None)
    faults = table.rows.select(**wrong).with_row_index("row").filter(pl.any_horizontal(*wrong)).head(1)
    if faults.is_empty():
        return
    row, untimed, *_ = faults.row(0)
    if untimed:
        moment = "as in 2021-04-30T12:00:00.250Z"
        unit = "in the assumed unit: for another unit, --column time=NAME:UNIT"
        shown = in_quotes(table.cell(row, mapped.time))
        reason = f"{shown} is not a possible time {moment if mapped.time.unit is None else unit}"
    else:
        reason = _reason(table, row, next(each for each in mapped.values.items() if faults[each[0]][0]))
    raise TraceError(f"{table.path}: {table.place(row)}: {reason}")


def _reason(table: Table, row: int, of: tuple[Part, Column]) -> str:
    part, column = of
    value = table.rows[part][row]
    if value is None:
        return (
            "missing rate: write --missing zero if nothing came through, or --missing hold if the previous rate "
            "continued"
        )
    shown = in_quotes(table.cell(row, column))
    return f"{shown} is not a number" if math.isnan(value) else f"impossible round trip of {shown}"


def moment_ns(text: pl.Expr) -> pl.Expr:
    """Return ISO 8601 times in ns since 1970, UTC without a zone; null for other texts."""
    import polars as pl

    text = text.str.strip_chars().str.to_uppercase()
    plain = text.str.strip_suffix(" UTC")
    parsed = [plain.str.to_datetime(form, time_unit="ns", time_zone="UTC", strict=False) for form in _MOMENTS]
    days = plain.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("ns", "UTC"))
    is_in_64_bits = plain.str.slice(0, 4).cast(pl.Int32, strict=False).is_between(1678, 2261)
    return pl.when(is_in_64_bits).then(pl.coalesce(*parsed, days)).to_physical()


def whole_ns(ns: pl.Expr) -> pl.Expr:
    """Return the times in ns as whole numbers, null beyond 64 bits."""
    import polars as pl

    return pl.when(ns.abs() < _FARTHEST_NS).then(ns.round(mode="half_away_from_zero")).cast(pl.Int64, strict=False)
