"""Entries on a terminal: statistics as tables, of one entry, or of several entries side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rich import box
from rich.table import Table
from rich.text import Text

from cellbed.archive.series import Part
from cellbed.archive.statistics import FIGURES, Statistics
from cellbed.support.readable import duration_unit, duration_words, rate_unit, rate_words, significant

_UNTOLD = {"definition"}
BESIDE: Final = {
    "mean_bit_s": "mean",
    "p5_bit_s_100ms": "P5 over 100 ms",
    "p50_bit_s_100ms": "P50 over 100 ms",
    "p95_bit_s_100ms": "P95 over 100 ms",
    "cv_1s": "variation over 1 s",
    "p50_ms": "P50",
    "p95_ms": "P95",
    "p99_ms": "P99",
    "loss": "lost",
    "outages": "outages",
    "outage_share": "time in outages",
    "outage_longest_ms": "longest outage",
    "stationary": "stationary",
    "correlation_time_s": "correlated for",
    "batched_share_5ms": "in bursts after 5 ms",
}
"""The figures of a comparison, with their headings."""


def entry_table(parts: Mapping[Part, Statistics]) -> Table:
    """Return every figure of an entry with its meaning; lists are only in ``--json``."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("figure", no_wrap=True)
    for part in parts:
        table.add_column(part, justify="right", no_wrap=True)
    table.add_column("meaning", style="dim")
    for key, figure in FIGURES.items():
        values = [found.get(key) for found in parts.values()]
        if key not in _UNTOLD and any(value is not None and not isinstance(value, list) for value in values):
            table.add_row(key, *(words(key, value) for value in values), figure.about)
    return table


def comparison_tables(
    entries: Mapping[str, Mapping[Part, Statistics]], directions: Iterable[Part]
) -> Iterator[tuple[Part, Table]]:
    """Yield several entries side by side, a table for each direction of any entry.

    A figure has the same unit for all entries.
    """
    for part in directions:
        having = {name: parts[part] for name, parts in entries.items() if part in parts}
        if not having:
            continue
        table = Table(box=box.SIMPLE_HEAD, title=part, title_justify="left", title_style="bold")
        table.add_column("figure", no_wrap=True)
        for name in having:
            table.add_column(Text(name), justify="right", overflow="fold")
        table.add_column("unit", no_wrap=True)
        for key, label in BESIDE.items():
            if any(key in found for found in having.values()):
                table.add_row(label, *_in_one_unit(key, [found.get(key) for found in having.values()]))
        yield part, table


def _in_one_unit(key: str, values: list[Any]) -> list[str]:
    """Return each value as a number, and then the common unit."""
    known = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    unit = FIGURES[key].unit
    if not known or unit not in ("bit/s", "ms", "s"):
        written = [words(key, value) for value in values]
        return [text.removesuffix(" %") for text in written] + ["%" if any(" %" in text for text in written) else ""]
    factor = 1e-3 if unit == "ms" else 1.0
    # The unit suits the middle value, so that neither the minimum nor the maximum has many digits.
    positive = [value * factor for value in known if value > 0] or [1.0]
    middle = (min(positive) * max(positive)) ** 0.5
    of_all = rate_unit(middle) if unit == "bit/s" else duration_unit(middle)
    numbers = ["–" if value is None else significant(value * factor * of_all.factor) for value in values]
    return [*numbers, of_all.name]


def words(key: str, value: Any) -> str:
    """Return a figure with its unit: ``"16.7 Mbit/s"``, ``"yes"``, ``"–"`` for a missing figure."""
    if value is None or isinstance(value, list):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key.endswith("share") or key in ("loss", "batched_share_5ms"):
        return f"{value * 100:.3g} %"
    unit = FIGURES[key].unit
    if unit == "bit/s":
        return rate_words(value)
    if unit in ("ms", "s"):
        return duration_words(value / 1e3 if unit == "ms" else value)
    number = f"{value:,}" if isinstance(value, int) else significant(value)
    return f"{number} {unit}".rstrip()
