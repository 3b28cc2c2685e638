"""Entries that answer a question, of the table of all: `technology = 5g`, a mean above 20 Mbit/s, in an order."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from cellbed.archive.entry_table import as_text
from cellbed.archive.errors import TraceError

if TYPE_CHECKING:
    from cellbed.archive.entry_table import Column, EntryTable, Rows, Value

OTHER_NAMES: Final = {"lte": "4g", "nr": "5g", "umts": "3g", "hspa": "3g", "wlan": "wifi"}
"""What technologies are called, too."""
Way = Literal["uplink", "downlink"]
_WAYS: Final[tuple[Way, ...]] = ("uplink", "downlink")
_ENDLESS_NS: Final = float(2**63)
"""Longer than anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is asked; ``None`` is not.

    technology, band, mobility, obstacle, origin: the value, in any case. operator, place, source, licence: part of it.
    name: part of the name. date: how it begins, "2021" or "2021-04". minimum_mean, maximum_mean: bit/s of a direction:
    of the one that `way` names, else of any. way: which direction it must have. minimum_duration: ns. where: a
    condition in SQLite's SQL over the table's columns. sort: a column. descending: the largest first.
    """

    name: str | None = None
    technology: str | None = None
    band: str | None = None
    mobility: str | None = None
    obstacle: str | None = None
    origin: str | None = None
    operator: str | None = None
    place: str | None = None
    source: str | None = None
    licence: str | None = None
    date: str | None = None
    way: Way | None = None
    minimum_mean: float | None = None
    maximum_mean: float | None = None
    minimum_duration: int | None = None
    where: str | None = None
    sort: str = "name"
    descending: bool = False


def found(table: EntryTable, query: Query, columns: Collection[str] | None = None) -> Rows:
    """The entries that answer `query`, in its order; those of which the column of the order is unknown come last.

    columns: those that are wanted, as far as they are there; left out: all.

    Raises TraceError for a column that is not there and a condition that cannot be read.
    """
    if query.sort not in table.columns:
        from cellbed.archive.condition import no_column

        raise TraceError(f"--sort: {no_column(query.sort, table.columns)}")
    wanted = [each for each in table.columns if columns is None or each in columns]
    where, values = _conditions(query, table.columns)
    name, sort = table.columns["name"].sql, table.columns[query.sort].sql
    order = name if sort == name else f"{sort} IS NULL, {sort}"
    order += " DESC" if query.descending else ""
    order += "" if sort == name else f", {name}"
    if query.where is None:
        return table.rows(wanted, where, values, order)
    from cellbed.archive.condition import rows_where

    return rows_where(query.where, table, wanted, where, values, order)


def _conditions(query: Query, columns: Mapping[str, Column]) -> tuple[list[str], list[Value]]:
    """Conditions of SQL, and the values that stand in them as question marks."""
    conditions: list[str] = []
    values: list[Value] = []

    def add(sql: str, *said: Value) -> None:
        conditions.append(sql)
        values.extend(as_text(each) if isinstance(each, str) else each for each in said)

    for key in ("technology", "band", "mobility", "obstacle", "origin"):
        wanted = getattr(query, key)
        if wanted is not None:
            wanted = wanted.casefold().strip()
            wanted = OTHER_NAMES.get(wanted, wanted) if key == "technology" else wanted
            add(f"casefold({columns[key].sql}) = ?", wanted)
    for key in ("name", "operator", "place", "source", "licence"):
        part = getattr(query, key)
        if part is not None:
            add(f"instr(casefold({columns[key].sql}), ?)", part.casefold())
    if query.date is not None:
        add(f"substr({columns['date'].sql}, 1, ?) = ?", len(query.date), query.date)
    if query.way is not None:
        add(f"{columns[f'{query.way}_content'].sql} NOT NULL")
    if query.minimum_mean is not None or query.maximum_mean is not None:
        means = [columns[f"{way}_mean_bit_s"].sql for way in ((query.way,) if query.way else _WAYS)]
        low = query.minimum_mean or 0.0
        high = math.inf if query.maximum_mean is None else query.maximum_mean
        between = " OR ".join(f"{mean} BETWEEN ? AND ?" for mean in means)
        add(f"({between})", *(low, high) * len(means))
    if query.minimum_duration is not None:
        add(f"{columns['duration_ns'].sql} >= ?", min(query.minimum_duration, _ENDLESS_NS))
    return conditions, values
