"""The table of entries for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import polars as pl

_LONGEST: Final = 40
"""Maximum characters of a text."""
_TEXTS: Final = {
    "name": "name", "technology": "tech", "band": "band", "operator": "operator", "place": "place", "date": "date",
    "mobility": "mobility", "obstacle": "obstacle",
}  # fmt: skip
"""Columns of the table of entries, with their headings."""
_NUMBERS: Final = {
    "duration_ns": ("s", 1e-9, 0),
    "uplink_mean_bit_s": ("uplink Mbit/s", 1e-6, 2),
    "downlink_mean_bit_s": ("downlink Mbit/s", 1e-6, 2),
    "round_trip_p50_ms": ("RTT ms", 1, 1),
    "site_origins": ("origins", 1, 0),
    "site_objects": ("objects", 1, 0),
    "site_bytes": ("site MB", 1e-6, 2),
}
"""The same with the factor of the heading's unit, and decimals."""


def list_table(entries: pl.DataFrame, sort: str) -> Table:
    """Return a row for each entry. Columns without a value in any entry are left out. sort: a column to add."""
    shown = [name for name in (*_TEXTS, *_NUMBERS, "origin") if name in entries.columns and entries[name].count()]
    columns = list(dict.fromkeys((*shown, sort)))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        numeric = entries.schema[name].is_numeric()
        heading = _TEXTS.get(name, name) if name not in _NUMBERS else _NUMBERS[name][0]
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=numeric or name in ("name", "date"))
    for row in entries.select(columns).iter_rows(named=True):
        table.add_row(*(Text(_cell(name, value)) for name, value in row.items()))
    return table


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | str):
        text = str(value).replace("\n", " ")[: len("2025-03-14") if name == "date" else None]
        return text if len(text) <= _LONGEST or name == "name" else f"{text[: _LONGEST - 1]}…"
    _, factor, decimals = _NUMBERS.get(name, ("", 1, 3))
    number = value * factor
    # 0.003 Mbit/s is not 0.00.
    small = 0 < abs(number) < min(1.0, 10.0 ** (1 - decimals))
    return f"{number:.{decimals + 2 * small}f}"
