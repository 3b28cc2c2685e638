"""Search of the table of entries: `technology = 5g`, a mean above 20 Mbit/s, sorted."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from cellbed.archive.errors import TraceError
from cellbed.support.ways import WAYS

OTHER_NAMES: Final = {"lte": "4g", "nr": "5g", "umts": "3g", "hspa": "3g", "wlan": "wifi"}
"""Other names of technologies."""
_CONDITION: Final = re.compile(r"\s*(?P<column>.+?)\s*(?P<sign><=|>=|!=|=|<|>|~)\s*(?P<value>.*?)\s*", re.DOTALL)
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

    name: part of the name. technology, mobility: the value, in any case. minimum_mean: bit/s of any direction. where:
    conditions ``COLUMN OP VALUE``, which must all hold. sort: a column. descending: the largest first.
    """

    name: str | None = None
    technology: str | None = None
    mobility: str | None = None
    minimum_mean: float | None = None
    where: tuple[str, ...] = ()
    sort: str = "name"
    descending: bool = False


def as_text(name: str) -> str:
    """Return a folder name or argument, which may contain bytes that are not text, as text."""
    return name.encode(errors="backslashreplace").decode()


def search(table: pl.DataFrame, query: Query) -> pl.DataFrame:
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
    if query.name is not None:
        yield _fold("name").str.contains(as_text(query.name).casefold(), literal=True)
    if query.technology is not None:
        wanted = as_text(query.technology).casefold().strip()
        yield _fold("technology") == OTHER_NAMES.get(wanted, wanted)
    if query.mobility is not None:
        yield _fold("mobility") == as_text(query.mobility).casefold().strip()
    if query.minimum_mean is not None:
        yield pl.any_horizontal(pl.col(f"{way}_mean_bit_s") >= query.minimum_mean for way in WAYS)


def _fold(column: str) -> pl.Expr:
    return pl.col(column).map_elements(str.casefold, return_dtype=pl.String)


def _condition(text: str, schema: pl.Schema) -> pl.Expr:
    """Return a condition such as ``uplink_mean_bit_s > 20e6`` as an expression. Raises TraceError."""
    parsed = _CONDITION.fullmatch(text)
    if parsed is None:
        raise TraceError(f"--where: {text!r:.60} is not a condition: write COLUMN OP VALUE, with = != < <= > >= or ~")
    column, sign, value = parsed["column"], parsed["sign"], as_text(parsed["value"])
    if column not in schema:
        raise TraceError(f"--where: {_no_column(column, list(schema))}")
    if sign == "~":
        if schema[column] != pl.String:
            raise TraceError(f"--where: ~ needs a column of text, and '{column}' is none")
        return _fold(column).str.contains(value.casefold(), literal=True)
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
