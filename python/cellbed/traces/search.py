"""Entries that answer a question, of the table of all: `technology = 5g`, a mean above 20 Mbit/s, in an order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from cellbed.traces.errors import TraceError

if TYPE_CHECKING:
    import polars as pl

OTHER_NAMES: Final = {"lte": "4g", "nr": "5g", "umts": "3g", "hspa": "3g", "wlan": "wifi"}
"""What technologies are called, too."""
Way = Literal["uplink", "downlink"]
_WAYS: Final[tuple[Way, ...]] = ("uplink", "downlink")
_LONG: Final = 12
"""So many columns are told to who names one that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is asked; ``None`` is not.

    technology, band, mobility, obstacle, origin: the value, in any case. operator, place, source, licence: part of it.
    name: part of the name. date: how it begins, "2021" or "2021-04". minimum_mean, maximum_mean: bit/s of a direction:
    of the one that `way` names, else of any. way: which direction it must have. minimum_duration: ns. where: an
    expression of SQL over the table's columns. sort: a column. descending: the largest first.
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


def found(index: pl.LazyFrame, query: Query, columns: Collection[str] | None = None) -> pl.DataFrame:
    """The rows that answer `query`, in its order; entries of which the column of the order is unknown come last.

    columns: those that are wanted, as far as they are there; left out: all.

    Raises TraceError for a column that is not there and an expression that cannot be read.
    """
    import polars as pl

    there = list(index.collect_schema())
    if query.sort not in there:
        raise TraceError(f"--sort: {_no_column(query.sort, there)}")
    for condition in _conditions(query):
        index = index.filter(condition)
    if query.where is not None:
        index = index.filter(_expression(index, query.where))
    index = index.sort(query.sort, "name", descending=[query.descending, False], nulls_last=True)
    if columns is not None:
        index = index.select(name for name in there if name in columns)
    try:
        return index.collect()
    except pl.exceptions.PolarsError as error:
        raise _unreadable(query.where or "", error) from None


def _conditions(query: Query) -> list[pl.Expr]:
    import polars as pl

    conditions = []
    for column in ("technology", "band", "mobility", "obstacle", "origin"):
        wanted = getattr(query, column)
        if wanted is not None:
            wanted = wanted.casefold().strip()
            wanted = OTHER_NAMES.get(wanted, wanted) if column == "technology" else wanted
            conditions.append(pl.col(column).str.to_lowercase() == wanted)
    for column in ("name", "operator", "place", "source", "licence"):
        part = getattr(query, column)
        if part is not None:
            conditions.append(pl.col(column).str.to_lowercase().str.contains(part.lower(), literal=True))
    if query.date is not None:
        conditions.append(pl.col("date").str.starts_with(query.date))
    ways: tuple[Way, ...] = (query.way,) if query.way else _WAYS
    if query.way is not None:
        conditions.append(pl.col(f"{query.way}_content").is_not_null())
    means = [pl.col(f"{way}_mean_bit_s") for way in ways]
    if query.minimum_mean is not None or query.maximum_mean is not None:
        low, high = query.minimum_mean or 0.0, query.maximum_mean or float("inf")
        conditions.append(pl.any_horizontal(*(mean.is_between(low, high) for mean in means)))
    if query.minimum_duration is not None:
        conditions.append(pl.col("duration_ns") >= query.minimum_duration)
    return conditions


def _expression(index: pl.LazyFrame, text: str) -> pl.Expr:
    import polars as pl

    columns = list(index.collect_schema())
    try:
        expression = pl.sql_expr(text)
        for name in expression.meta.root_names():
            if name not in columns:
                raise TraceError(f"--where: {_no_column(name, columns)}")
        kind = index.select(expression.alias("condition")).collect_schema()["condition"]
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, TypeError, ValueError) as error:
        raise _unreadable(text, error) from None
    if kind != pl.Boolean:
        raise TraceError(f"--where: {text!r:.60} is no condition: write one such as 'uplink_mean_bit_s > 20e6'")
    return expression


def _unreadable(text: str, error: Exception) -> TraceError:
    reason = next(iter(str(error).splitlines()), "it is no expression")
    return TraceError(
        f"--where: {text!r:.60} cannot be read ({reason}): "
        "write a condition in SQL, such as \"uplink_mean_bit_s > 20e6 AND mobility = 'driving'\""
    )


def _no_column(name: str, columns: list[str]) -> str:
    from cellbed.traces.near_names import near_names, question

    near = question(near_names(name, sorted(columns))) or f"write one of {', '.join(columns[:_LONG])}, …"
    return f"there is no column {name!r:.60}: {near} `cellbed traces ls --json` shows all"
