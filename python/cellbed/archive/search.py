"""Search of the table of entries: `technology = 5g`, a mean above 20 Mbit/s, sorted."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from cellbed.archive.errors import TraceError
from cellbed.support.ways import WAYS, Way

OTHER_NAMES: Final = {"lte": "4g", "nr": "5g", "umts": "3g", "hspa": "3g", "wlan": "wifi"}
"""Other names of technologies."""
_LONGEST_NS: Final = 2**63 - 1
_CONDITION: Final = re.compile(r"\s*(?P<column>.+?)\s*(?P<sign><=|>=|!=|=|<|>)\s*(?P<value>.*?)\s*", re.DOTALL)
_SIGNS: Final[dict[str, Callable[[pl.Expr, Any], pl.Expr]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_LISTED: Final = 12
"""Columns named in the error about an unknown one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query; ``None`` means any.

    technology, band, mobility, obstacle, origin: the value, in any case. operator, place, source, licence: part of it.
    name: part of the name. date: how it begins, "2021" or "2021-04". minimum_mean, maximum_mean: bit/s of a direction:
    of the one that `way` names, else of any. way: which direction it must have. minimum_duration: ns. where:
    conditions ``COLUMN OP VALUE``, all of which must hold. sort: a column. descending: the largest first.
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
    where: tuple[str, ...] = ()
    sort: str = "name"
    descending: bool = False


def as_text(name: str) -> str:
    """Return a folder name or argument, which may contain bytes that are not text, as text."""
    return name.encode(errors="backslashreplace").decode()


def found(table: pl.DataFrame, query: Query) -> pl.DataFrame:
    """Return the entries that match `query`, in its order; unknown values of the sort column come last.

    table: as of :mod:`cellbed.archive.index`. Raises TraceError for an unknown column and an invalid condition.
    """
    if query.sort not in table.columns:
        raise TraceError(f"--sort: {_no_column(query.sort, table.columns)}")
    rows = table.filter(*_conditions(query), *(_condition(text, table.schema) for text in query.where))
    if query.sort == "name":
        return rows.sort("name", descending=query.descending)
    return rows.sort(query.sort, "name", descending=[query.descending, False], nulls_last=True)


def _conditions(query: Query) -> Iterator[pl.Expr]:
    def folded(key: str) -> pl.Expr:
        return pl.col(key).map_elements(str.casefold, return_dtype=pl.String)

    for key in ("technology", "band", "mobility", "obstacle", "origin"):
        wanted = getattr(query, key)
        if wanted is not None:
            wanted = as_text(wanted).casefold().strip()
            yield folded(key) == (OTHER_NAMES.get(wanted, wanted) if key == "technology" else wanted)
    for key in ("name", "operator", "place", "source", "licence"):
        part = getattr(query, key)
        if part is not None:
            yield folded(key).str.contains(as_text(part).casefold(), literal=True)
    if query.date is not None:
        yield pl.col("date").str.starts_with(as_text(query.date))
    if query.way is not None:
        yield pl.col(f"{query.way}_content").is_not_null()
    if query.minimum_mean is not None or query.maximum_mean is not None:
        low = query.minimum_mean or 0.0
        high = math.inf if query.maximum_mean is None else query.maximum_mean
        ways = (query.way,) if query.way else WAYS
        yield pl.any_horizontal(pl.col(f"{way}_mean_bit_s").is_between(low, high) for way in ways)
    if query.minimum_duration is not None:
        possible = query.minimum_duration <= _LONGEST_NS
        yield pl.col("duration_ns") >= query.minimum_duration if possible else pl.lit(value=False)


def _condition(text: str, schema: pl.Schema) -> pl.Expr:
    """Return a condition such as ``uplink_mean_bit_s > 20e6`` as an expression. Raises TraceError."""
    parsed = _CONDITION.fullmatch(text)
    if parsed is None:
        raise TraceError(f"--where: {text!r:.60} is not a condition: write COLUMN OP VALUE, with = != < <= > or >=")
    column, sign, value = parsed["column"], parsed["sign"], as_text(parsed["value"])
    if column not in schema:
        raise TraceError(f"--where: {_no_column(column, list(schema))}")
    wanted: Any = value
    if schema[column].is_numeric():
        try:
            wanted = float(value)
        except ValueError:
            raise TraceError(f"--where: '{column}' is a number, not {value!r:.40}") from None
    elif schema[column] == pl.Boolean:
        if value not in ("true", "false"):
            raise TraceError(f"--where: '{column}' is true or false, not {value!r:.40}")
        wanted = value == "true"
    return _SIGNS[sign](pl.col(column), pl.lit(wanted))


def _no_column(name: str, columns: Sequence[str]) -> str:
    from cellbed.support.near_names import near_names, question

    near = question(near_names(name, sorted(columns))) or f"write one of {', '.join(columns[:_LISTED])}, …"
    return f"unknown column {name!r:.60}: {near} `cellbed traces ls --json` lists all"
