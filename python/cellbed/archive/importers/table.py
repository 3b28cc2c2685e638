"""The rules for tables of times with rates or round-trip times, common to all file formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from cellbed.archive.entry import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers.column_names import Column, Mapped
from cellbed.archive.importers.format import Options, set_start
from cellbed.archive.importers.written import (
    UNANSWERED,
    count_of,
    in_order,
    in_quotes,
    require_most,
    seconds,
    write_series,
)
from cellbed.archive.series import Part
from cellbed_node.errors import LeftOut

_FARTHEST_NS: Final = 9e18
MOMENT: Final = (
    r"(?P<year>[0-9]{4})[-./]?(?:(?P<month>[0-9]{2})[-./]?(?P<day>[0-9]{2})|W(?P<week>[0-9]{2})-?(?P<weekday>[1-7])"
    r"|(?P<ordinal>[0-9]{3}))(?:[T _]+(?P<hour>[0-9]{2})(?:[:.]?(?P<minute>[0-9]{2})(?:[:.]?(?P<second>[0-9]{2})"
    r"(?:[.,:](?P<decimals>[0-9]+))?)?)? ?(?:Z|UTC|GMT|(?P<zone>[+-][0-9]{2}(?::?[0-9]{2})?))?)?"
)
"""Times with the year first, in upper case: all forms of ISO 8601 and RFC 3339 but fractional hours and minutes. Other
separators are accepted, such as 2019.11.25_15.34.34."""


@dataclass(frozen=True, slots=True)
class Table:
    """The mapped columns of a file, as numbers.

    rows: a column ``stamp``, ns, null if unreadable; and a column named after each part, bit/s or ns: null for an empty
    cell, NaN for an unreadable one. place, cell: return the place of a row in the file and the text of a cell, for
    messages.
    """

    path: Path
    rows: pl.DataFrame
    place: Callable[[int], str]
    cell: Callable[[int, Column], str]


def write_table(table: Table, mapped: Mapped, options: Options, draft: Draft) -> None:
    """Write the series of the mapped columns into the draft. Unreadable rows are left out.

    Raises TraceError.
    """
    path, rows, left_out = table.path, table.rows.with_row_index("row"), LeftOut()
    total = len(rows)
    if not total:
        raise TraceError(f"{path}: it has no rows of values")

    def place(row: int) -> str:
        return table.place(int(rows["row"][row]))

    def describe(row: int) -> tuple[str, str]:
        return table.place(row), _reason_of_time(table, row, mapped.time)

    left_out.add_all(rows.filter(pl.col("stamp").is_null())["row"].to_list(), describe)
    require_most(left_out, total, path)
    rows = rows.drop_nulls("stamp")
    rows = rows.filter(in_order(rows["stamp"].to_numpy(), path, place, left_out))
    require_most(left_out, total, path)
    if left_out.count:
        draft.notes.append(left_out.note("row is", "rows are"))
    rates = [part for part in mapped.values if part != "round-trip"]
    missing = rows.filter(pl.any_horizontal(pl.lit(False), *(pl.col(part).is_null() for part in rates)))["row"]
    if options.missing is None and len(missing):
        raise TraceError(
            f"{path}: {table.place(missing[0])}: missing rate: write --missing zero if nothing came through, or "
            "--missing hold if the previous rate continued"
        )
    stamps = rows["stamp"]
    times, steps = stamps - stamps[0], stamps.diff()
    each_ns: int | None = next(iter(steps.filter(steps > 0).tail(1)), None)
    if options.duration_ns is None and each_ns is None:
        raise TraceError(f"{path}: all rows have the same time, so the duration is unknown: write --duration")
    duration_ns = times[-1] + (each_ns or 0) if options.duration_ns is None else options.duration_ns
    if options.duration_ns is None:
        draft.notes.append(
            f"the last row is assumed to last as long as the previous one, {seconds(each_ns or 0)}; "
            "correct with --duration"
        )
    again = (steps == 0).arg_true()
    if rates and len(again):
        first = place(again[0])
        many = f"a row ({first}) has" if len(again) == 1 else f"{len(again)} rows (the first: {first}) have"
        draft.notes.append(f"{many} the time of the row above: of rates at the same time only the last one counts")
    for part, column in mapped.values.items():
        _write_part(table, part, column, rows.with_columns(at_ns=times), duration_ns, options, draft)
    set_start(draft, stamps[0] if mapped.time.unit is None else None)


def _write_part(
    table: Table, part: Part, column: Column, rows: pl.DataFrame, duration_ns: int, options: Options, draft: Draft
) -> None:
    """Write the series of a column into the draft, without unreadable values."""
    left_out, value = LeftOut(), pl.col(part)
    if part == "round-trip":
        is_odd = value.is_nan() | (value < 0)
        whole = value.round(mode="half_away_from_zero").fill_null(UNANSWERED)
    else:
        is_odd = value.is_nan()
        whole = (value.forward_fill() if options.missing == "hold" else value).fill_null(0.0)
        if missing := rows[part].null_count():
            draft.notes.append(f"{count_of(missing, 'row', 'rows')} of the {part} had no rate")

    def describe(row: int) -> tuple[str, str]:
        return table.place(row), f"{in_quotes(table.cell(row, column))} is not a number from 0 on"

    left_out.add_all(rows.filter(is_odd)["row"].to_list(), describe)
    kept = rows.filter(is_odd.not_().fill_null(True)).with_columns(whole)

    def place(row: int) -> str:
        return table.place(int(kept["row"][row]))

    at_ns, values = kept["at_ns"].to_numpy(), kept[part].to_numpy()
    write_series(draft, part, at_ns, values, duration_ns, table.path, place, left_out)


def _reason_of_time(table: Table, row: int, column: Column) -> str:
    moment = "as in 2021-04-30T12:00:00.250Z"
    unit = "in the assumed unit: for another unit, --column time=NAME:UNIT"
    return f"{in_quotes(table.cell(row, column))} is not a possible time {moment if column.unit is None else unit}"


def moment_ns(text: pl.Expr) -> pl.Expr:
    """Return times of the form `MOMENT` in ns since 1970; null for other texts. Times without a zone are UTC."""
    fields = text.str.strip_chars().str.to_uppercase().str.extract_groups(f"^{MOMENT}$").struct

    def number(name: str) -> pl.Expr:
        return fields.field(name).cast(pl.Int64, strict=False)

    def date(form: str, *names: str) -> pl.Expr:
        return pl.concat_str([fields.field(name) for name in names]).str.to_date(form, strict=False)

    days = pl.coalesce(
        date("%Y%m%d", "year", "month", "day"),
        date("%Y%j", "year", "ordinal"),
        date("%G%V%u", "year", "week", "weekday"),
    )
    hour, minute, second = (number(name).fill_null(0) for name in ("hour", "minute", "second"))
    zone = fields.field("zone").str.replace(":", "", literal=True)
    ahead = zone.str.slice(1, 2).cast(pl.Int64) * 60 + zone.str.slice(3, 2).cast(pl.Int64, strict=False).fill_null(0)
    ahead = pl.when(zone.str.starts_with("-")).then(-ahead).otherwise(ahead).fill_null(0)
    whole = ((days.cast(pl.Int32).cast(pl.Int64) * 24 + hour) * 60 + minute - ahead) * 60 + second
    decimals = fields.field("decimals").str.slice(0, 9).str.pad_end(9, "0").cast(pl.Int64).fill_null(0)
    is_possible = (hour < 24) & (minute < 60) & (second <= 60) & number("year").is_between(1678, 2261)
    return pl.when(is_possible).then(whole * 10**9 + decimals)


def whole_ns(ns: pl.Expr) -> pl.Expr:
    """Return the times in ns as whole numbers, null beyond 64 bits."""
    return pl.when(ns.abs() < _FARTHEST_NS).then(ns.round(mode="half_away_from_zero")).cast(pl.Int64, strict=False)
