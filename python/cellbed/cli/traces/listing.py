"""The entries of the archive as lines of text, as fast as ten thousand of them need it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

_WIDEST = 40


@dataclass(frozen=True, slots=True)
class _Column:
    """heading: with the unit. of: its column in the table of entries. scale: units of that in one of the heading's."""

    heading: str
    of: str
    scale: float | None = None
    decimals: int = 0


_COLUMNS = (
    _Column("name", "name"),
    _Column("technology", "technology"),
    _Column("band", "band"),
    _Column("operator", "operator"),
    _Column("place", "place"),
    _Column("date", "date"),
    _Column("mobility", "mobility"),
    _Column("obstacle", "obstacle"),
    _Column("s", "duration_ns", 1e9),
    _Column("uplink Mbit/s", "uplink_mean_bit_s", 1e6, 2),
    _Column("downlink Mbit/s", "downlink_mean_bit_s", 1e6, 2),
    _Column("RTT ms", "round_trip_p50_ms", 1, 1),
    _Column("origin", "origin"),
)


def columns(sort: str) -> set[str]:
    """The columns of the table of entries that lines are made of."""
    return {sort, *(column.of for column in _COLUMNS)}


def lines(table: pl.DataFrame, sort: str) -> list[str]:
    """A heading and a line for each entry; columns of which nothing is known in any of them are left out.

    Not a table of `rich`, which takes seconds for ten thousand rows. sort: the column that is shown whatever it is.
    """
    import polars as pl

    columns = list(_COLUMNS)
    if all(sort != column.of for column in columns):
        number = table.schema[sort].is_numeric()
        columns.insert(-1, _Column(sort, sort, 1 if number else None, 3 if table.schema[sort].is_float() else 0))
    shown = [column for column in columns if column.of in table.columns and table[column.of].null_count() < len(table)]
    cells = table.select(_cell(column).alias(column.heading) for column in shown)
    padded = []
    for column in shown:
        widths = cells[column.heading].str.len_chars().to_list()
        width = max(len(column.heading), *widths)
        for text in (pl.col(column.heading), pl.lit(column.heading)):
            padded.append(text.str.pad_end(width) if column.scale is None else text.str.pad_start(width))
    rows = cells.select(pl.concat_str(padded[::2], separator="  ").str.strip_chars_end())
    heading = pl.select(pl.concat_str(padded[1::2], separator="  ")).item()
    return [_bold(str(heading).rstrip()), *rows.to_series().to_list()]


def _cell(column: _Column) -> pl.Expr:
    import polars as pl

    value = pl.col(column.of)
    if column.scale is not None:
        number = value.cast(pl.Float64) / column.scale
        text = number.cast(pl.Decimal(38, column.decimals)).cast(pl.String)
    else:
        text = value.cast(pl.String)
        text = pl.when(text.str.len_chars() > _WIDEST).then(text.str.head(_WIDEST - 1) + "…").otherwise(text)
        # A line stays a line, whatever somebody wrote into the description.
        text = text.str.replace_all(r"\p{C}", "?")
    return text.fill_null("")


def _bold(text: str) -> str:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[1m{text}\x1b[0m" if coloured else text
