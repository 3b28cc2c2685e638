"""Statistics as tables for a terminal: of one entry, and of several beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cellbed.readable import duration_words, rate_words, significant
from cellbed.traces.series import Part
from cellbed.traces.statistics import FIGURES, Statistics

_UNTOLD = {"definition"}
BESIDE = (
    "mean_bit_s",
    "p5_bit_s_100ms",
    "p50_bit_s_100ms",
    "p95_bit_s_100ms",
    "cv_1s",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "loss",
    "modes",
    "outages",
    "outage_share",
    "outage_longest_ms",
    "stationary",
    "correlation_time_s",
    "batched_share_5ms",
)
"""What a comparison tells of each entry."""


def of_one(parts: Mapping[Part, Statistics]) -> RenderableType:
    """Every figure of an entry with what it means; lists of numbers are left to ``--json``."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("figure", no_wrap=True)
    for part in parts:
        table.add_column(part, justify="right", no_wrap=True)
    table.add_column("meaning", style="dim")
    for key, figure in FIGURES.items():
        values = [found.get(key) for found in parts.values()]
        if key in _UNTOLD or all(value is None or isinstance(value, list) for value in values):
            continue
        table.add_row(key, *(words(key, value) for value in values), figure.about)
    places = [
        Text(f"{part}: modes at {', '.join(duration_words(place / 1e3) for place in found['modes_ms'])}")
        for part, found in parts.items()
        if found.get("modes", 1) > 1
    ]
    return Group(table, *places)


def beside(entries: Mapping[str, Mapping[Part, Statistics]], directions: Iterable[Part]) -> RenderableType:
    """Several entries beside each other, a table for each direction that one of them has."""
    tables = []
    for part in directions:
        having = {name: parts[part] for name, parts in entries.items() if part in parts}
        if not having:
            continue
        table = Table(box=box.SIMPLE_HEAD, title=part, title_justify="left", title_style="bold")
        table.add_column("figure", no_wrap=True)
        for name in having:
            table.add_column(name, justify="right", overflow="fold")
        for key in BESIDE:
            if any(key in found for found in having.values()):
                table.add_row(key, *(words(key, found.get(key)) for found in having.values()))
        tables.append(table)
    return Group(*tables)


def words(key: str, value: Any) -> str:
    """A figure with its unit: ``"16.7 Mbit/s"``, ``"yes"``, ``"–"`` for one that is not there."""
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
