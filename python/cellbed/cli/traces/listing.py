"""The entries of the archive as lines of text, as fast as ten thousand of them need it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

Value = str | int | float | bool | None
_GAP = "  "
_WIDEST = 40
"""Letters of a text at most, however wide the terminal is."""
_NARROWEST = 9
"""Letters of a text that is shortened so that the table fits."""


@dataclass(frozen=True, slots=True)
class _Column:
    """heading: with the unit. of: its column in the table of entries. scale: one of its units in the heading's.

    spare: what is left out first, the highest number, where there is no room for all; 0 stays.
    """

    heading: str
    of: str
    scale: float | None = None
    decimals: int = 0
    spare: int = 0

    @property
    def whole(self) -> bool:
        """Whether a value is shown whole at any width: numbers, days, and the name, to go on with."""
        return self.scale is not None or self.of in ("name", "date")


_COLUMNS = (
    _Column("name", "name"),
    _Column("tech", "technology", spare=1),
    _Column("band", "band", spare=6),
    _Column("operator", "operator", spare=4),
    _Column("place", "place", spare=3),
    _Column("date", "date", spare=5),
    _Column("mobility", "mobility", spare=2),
    _Column("obstacle", "obstacle", spare=7),
    _Column("s", "duration_ns", 1e-9),
    _Column("uplink Mbit/s", "uplink_mean_bit_s", 1e-6, 2),
    _Column("downlink Mbit/s", "downlink_mean_bit_s", 1e-6, 2),
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


def listing(table: pl.DataFrame, sort: str, width: int) -> Listing:
    """A heading and a line for each entry; columns of which nothing is known in any of them are left out.

    Not a table of `rich`, which takes seconds for ten thousand rows. sort: a column that is always shown.
    width: letters of a line. Where they are too few, long texts are shortened, then headings get a second line, then
    columns go. Names and numbers are always whole, be the line longer.
    """
    columns = list(_COLUMNS)
    if all(sort != column.of for column in columns):
        kind = table.schema[sort]
        columns.insert(-1, _Column(sort, sort, 1 if kind.is_numeric() else None, 3 if kind.is_float() else 0))
    values = {column.of: table[column.of].to_list() for column in columns if column.of in table.columns}
    shown = [column for column in columns if any(value is not None for value in values.get(column.of, ()))]
    cells = {column.heading: _cells(column, values[column.of]) for column in shown}
    longest = {heading: max(map(len, texts)) for heading, texts in cells.items()}
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


def _rows(cells: dict[str, list[str]], shown: list[_Column], widths: list[int]) -> list[str]:
    fitted = []
    for column, width in zip(shown, widths, strict=True):
        texts = cells[column.heading]
        if not column.whole:
            texts = [text if len(text) <= width else f"{text[: width - 1]}…" for text in texts]
        fitted.append(texts)
    line = _GAP.join(
        f"%{'-' if column.scale is None else ''}{width}s" for column, width in zip(shown, widths, strict=True)
    )
    return [(line % row).rstrip() for row in zip(*fitted, strict=True)]


def _cells(column: _Column, values: Sequence[Value]) -> list[str]:
    """What a column shows of its values."""
    if column.scale is not None:
        return _numbers(values, column.scale, column.decimals)
    if column.of == "date":
        values = [value[: len("2025-03-14")] if isinstance(value, str) else value for value in values]
    texts = {value: _line(value) for value in set(values)}
    return [texts[value] for value in values]


def _numbers(values: Sequence[Value], scale: float, decimals: int) -> list[str]:
    # 0.003 Mbit/s is not 0.00, nor 0.056 ms 0.1.
    least = min(1.0, 10.0 ** (1 - decimals))
    # A half that a decimal writes exactly goes to the even digit, not to where the binary number happens to lie.
    power, finer = 10**decimals, 10 ** (decimals + 2)
    written, written_finer = f"%.{decimals}f", f"%.{decimals + 2}f"
    return [
        ""
        if value is None
        else written_finer % (round(number * finer) / finer)
        if -least < (number := float(value) * scale) < least and number
        else written % (round(number * power) / power)
        for value in values
    ]


def _line(value: Value) -> str:
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if text.isprintable():
        return text
    from unicodedata import category

    # A description with line breaks is still one line.
    return "".join("?" if category(letter)[0] == "C" else letter for letter in text)


def _bold(text: str) -> str:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[1m{text}\x1b[0m" if coloured else text
