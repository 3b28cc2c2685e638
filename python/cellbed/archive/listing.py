"""The table of entries as lines of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cellbed.support.errors import printable

if TYPE_CHECKING:
    import polars as pl

_GAP: Final = "  "
_WIDEST: Final = 40
"""Maximum characters of a text, however wide the terminal is."""
_NARROWEST: Final = 9
"""Characters to which texts are shortened before columns are left out."""


@dataclass(frozen=True, slots=True)
class _Column:
    """heading: with the unit. of: its column in the table of entries. scale: one of its units in the heading's.

    spare: the highest number is left out first where there is no room for all; 0 stays.
    """

    heading: str
    of: str
    scale: float | None = None
    decimals: int = 0
    spare: int = 0

    @property
    def whole(self) -> bool:
        """Return whether a value is never shortened: numbers, dates, and the name, which other commands need."""
        return self.scale is not None or self.of in ("name", "date")

    def cell(self, value: Any) -> str:
        """Return a value as text of one line."""
        if value is None:
            return ""
        if self.scale is None:
            text = printable(str(value).lower() if isinstance(value, bool) else str(value)).replace("\n", " ")
            return text[: len("2025-03-14")] if self.of == "date" else text
        number = value * self.scale
        # 0.003 Mbit/s is not 0.00.
        small = 0 < abs(number) < min(1.0, 10.0 ** (1 - self.decimals))
        return f"{number:.{self.decimals + 2 * small}f}"


_COLUMNS: Final = (
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


def listing(table: pl.DataFrame, sort: str, width: int) -> tuple[list[str], list[str]]:
    """Return a heading and a line for each entry, and the headings of the columns that have no room.

    Columns without a value in any entry are not shown. sort: a column that is always shown. width: maximum characters
    of a line. Where they are too few, long texts are shortened, then columns are left out; names and numbers are whole,
    even if the line is longer.
    """
    columns = list(_COLUMNS)
    if all(sort != column.of for column in columns):
        kind = table.schema[sort]
        columns.insert(-1, _Column(sort, sort, 1 if kind.is_numeric() else None, 3 if kind.is_float() else 0))
    shown = [column for column in columns if column.of in table.columns and table[column.of].count()]
    cells = {column: [column.heading, *map(column.cell, table[column.of])] for column in shown}
    longest = {column: max(map(len, texts)) for column, texts in cells.items()}

    def widths(most: int) -> list[int]:
        return [longest[column] if column.whole else min(longest[column], most) for column in shown]

    def fits(most: int) -> bool:
        return sum(widths(most)) + len(_GAP) * (len(shown) - 1) <= width

    left_out = []
    for column in sorted(shown, key=lambda column: -column.spare):
        if column.spare and column.of != sort and not fits(_NARROWEST):
            left_out.append(column.heading)
            shown.remove(column)
    fitted = widths(next((most for most in range(_WIDEST, _NARROWEST, -1) if fits(most)), _NARROWEST))
    lines = [
        _GAP.join(
            _placed(cells[column][row], size, column) for column, size in zip(shown, fitted, strict=True)
        ).rstrip()
        for row in range(len(table) + 1)
    ]
    return lines, left_out


def _placed(text: str, width: int, column: _Column) -> str:
    if column.scale is not None:
        return text.rjust(width)
    return (text if len(text) <= width else f"{text[: width - 1]}…").ljust(width)
