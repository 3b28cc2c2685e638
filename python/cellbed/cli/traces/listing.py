"""The entries of the archive as lines of text, as fast as ten thousand of them need it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

_GAP = "  "
_WIDEST = 40
"""Letters of a text at most, however wide the terminal is."""
_NARROWEST = 12
"""Letters of a text that is shortened so that the table fits."""


@dataclass(frozen=True, slots=True)
class _Column:
    """heading: with the unit. of: its column in the table of entries. scale: units of that in one of the heading's.

    spare: what is left out first, the highest number, where there is no room for all; 0 stays.
    """

    heading: str
    of: str
    scale: float | None = None
    decimals: int = 0
    spare: int = 0

    @property
    def whole(self) -> bool:
        """Whether a value is shown whole, whatever there is room for: numbers, and the name, with which one goes on."""
        return self.scale is not None or self.of == "name"


_COLUMNS = (
    _Column("name", "name"),
    _Column("tech", "technology", spare=1),
    _Column("band", "band", spare=6),
    _Column("operator", "operator", spare=4),
    _Column("place", "place", spare=3),
    _Column("date", "date", spare=5),
    _Column("mobility", "mobility", spare=2),
    _Column("obstacle", "obstacle", spare=7),
    _Column("s", "duration_ns", 1e9),
    _Column("uplink Mbit/s", "uplink_mean_bit_s", 1e6, 2),
    _Column("downlink Mbit/s", "downlink_mean_bit_s", 1e6, 2),
    _Column("RTT ms", "round_trip_p50_ms", 1, 1),
    _Column("origin", "origin", spare=8),
)


@dataclass(frozen=True, slots=True)
class Listing:
    """lines: the heading, of two lines where one has no room, and one for each entry.

    left_out: headings of columns without room.
    """

    lines: list[str]
    left_out: list[str]


def columns(sort: str) -> set[str]:
    """The columns of the table of entries that lines are made of."""
    return {sort, *(column.of for column in _COLUMNS)}


def listing(table: pl.DataFrame, sort: str, width: int) -> Listing:
    """A heading and a line for each entry; columns of which nothing is known in any of them are left out.

    Not a table of `rich`, which takes seconds for ten thousand rows. sort: the column that is shown whatever it is.
    width: letters of a line. Where they are too few, long texts are shortened, then headings get a second line, then
    columns go. Names and numbers are always whole, be the line longer.
    """
    import polars as pl

    columns = list(_COLUMNS)
    if all(sort != column.of for column in columns):
        number = table.schema[sort].is_numeric()
        columns.insert(-1, _Column(sort, sort, 1 if number else None, 3 if table.schema[sort].is_float() else 0))
    shown = [column for column in columns if column.of in table.columns and table[column.of].null_count() < len(table)]
    cells = table.select(_cell(column).alias(column.heading) for column in shown)
    longest: dict[str, int] = cells.select(pl.all().str.len_chars().max().fill_null(0)).row(0, named=True)
    spare = sorted((column for column in shown if column.spare and column.of != sort), key=lambda it: -it.spare)
    left_out: list[str] = []
    tall = False
    while (widths := _fitted(shown, longest, width, tall)) is None:
        if not tall:
            tall = True
        elif spare:
            left_out.append(spare[0].heading)
            shown.remove(spare.pop(0))
        else:
            widths = _widths(shown, longest, _NARROWEST, tall)
            break
    return Listing([*_heading(shown, widths, tall), *_rows(cells, shown, widths)], left_out)


def _fitted(shown: list[_Column], longest: dict[str, int], width: int, tall: bool) -> list[int] | None:
    """Widths with which a line is at most `width` long, if texts need not be too short for that."""
    for most in range(_WIDEST, _NARROWEST - 1, -1):
        widths = _widths(shown, longest, most, tall)
        if sum(widths) + len(_GAP) * (len(widths) - 1) <= width:
            return widths
    return None


def _widths(shown: list[_Column], longest: dict[str, int], most: int, tall: bool) -> list[int]:
    """Of each column. most: letters of a text. tall: whether a heading has a line for each of its words."""
    found = []
    for column in shown:
        cell = longest[column.heading]
        words = column.heading.split() if tall else [column.heading]
        found.append(max(cell if column.whole else min(cell, most), *map(len, words)))
    return found


def _heading(shown: list[_Column], widths: list[int], tall: bool) -> list[str]:
    words = [column.heading.split(" ", 1) if tall else [column.heading] for column in shown]
    count = max(map(len, words))
    # The last word stands above the figures.
    padded = [[""] * (count - len(each)) + each for each in words]
    lines = zip(*padded, strict=True)
    return [
        _bold(
            _GAP.join(
                word.ljust(width) if column.scale is None else word.rjust(width)
                for word, width, column in zip(line, widths, shown, strict=True)
            ).rstrip()
        )
        for line in lines
    ]


def _rows(cells: pl.DataFrame, shown: list[_Column], widths: list[int]) -> list[str]:
    import polars as pl

    padded = []
    for column, width in zip(shown, widths, strict=True):
        text = pl.col(column.heading)
        if not column.whole:
            text = pl.when(text.str.len_chars() > width).then(text.str.head(width - 1) + "…").otherwise(text)
        padded.append(text.str.pad_end(width) if column.scale is None else text.str.pad_start(width))
    return cells.select(pl.concat_str(padded, separator=_GAP).str.strip_chars_end()).to_series().to_list()


def _cell(column: _Column) -> pl.Expr:
    import polars as pl

    value = pl.col(column.of)
    if column.scale is not None:
        number = value.cast(pl.Float64) / column.scale
        text = number.cast(pl.Decimal(38, column.decimals)).cast(pl.String)
        # 0.003 Mbit/s is not 0.00, nor 0.056 ms 0.1.
        finer = number.cast(pl.Decimal(38, column.decimals + 2)).cast(pl.String)
        small = (number != 0) & (number.abs() < min(1.0, 10.0 ** (1 - column.decimals)))
        text = pl.when(small).then(finer).otherwise(text)
    else:
        text = value.cast(pl.String)
        # A line stays a line, whatever somebody wrote into the description.
        text = text.str.replace_all(r"\p{C}", "?")
    return text.fill_null("")


def _bold(text: str) -> str:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[1m{text}\x1b[0m" if coloured else text
