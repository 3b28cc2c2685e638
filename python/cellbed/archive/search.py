"""Search of the table of entries: `technology = 5g`, a mean above 20 Mbit/s, sorted."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cellbed.archive.errors import TraceError
from cellbed.ways import WAYS, Way

if TYPE_CHECKING:
    import polars as pl

OTHER_NAMES: Final = {"lte": "4g", "nr": "5g", "umts": "3g", "hspa": "3g", "wlan": "wifi"}
"""Other names of technologies."""
_LONGEST_NS: Final = 2**63 - 1
_TOKEN: Final = re.compile(
    r"""\s+ | '(?:[^'\\]|'')*' | "(?:[^"\\]|"")*" | `[^`\\]*`
    | (?P<word>[^\W\d]\w*+)(?!['"`])(?P<call>\s*\()? | (?:\d[\w.]*+|\.\d\w*+)(?!['"`])
    | -(?!-) | /(?!\*) | [+*%(),.<>=!|]""",
    re.VERBOSE,
)
"""The tokens of a condition. Comments, escapes and other forms of text would hide words from this expression."""
_QUERIES: Final = frozenset(("SELECT", "FROM", "TABLE", "VALUES", "WITH"))
"""Polars would read files for these."""
_CALLED: Final = frozenset(
    (
        *("AND", "OR", "NOT", "IN", "CASE", "WHEN", "THEN", "ELSE", "BETWEEN", "LIKE", "ILIKE", "CAST"),
        *("ABS", "CEIL", "FLOOR", "ROUND", "SIGN", "SQRT", "EXP", "LN", "LOG", "LOG2", "LOG10", "POW", "POWER", "MOD"),
        *("COALESCE", "NULLIF", "IFNULL", "GREATEST", "LEAST", "IF", "LENGTH", "CHAR_LENGTH", "LOWER", "UPPER"),
        *("TRIM", "LTRIM", "RTRIM", "LEFT", "RIGHT", "SUBSTR", "STRPOS", "STARTS_WITH", "ENDS_WITH", "CONCAT"),
    )
)
"""Words that may precede a bracket: no function that takes long, needs much memory or combines rows."""
_LONGEST: Final = 2000
"""Letters of a condition; Polars fails where it nests much deeper."""
_LISTED: Final = 12
"""Columns named in the error about an unknown one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query; ``None`` means any.

    technology, band, mobility, obstacle, origin: the value, in any case. operator, place, source, licence: part of it.
    name: part of the name. date: how it begins, "2021" or "2021-04". minimum_mean, maximum_mean: bit/s of a direction:
    of the one that `way` names, else of any. way: which direction it must have. minimum_duration: ns. where: a
    condition in Polars' SQL over the table's columns. sort: a column. descending: the largest first.
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


def as_text(name: str) -> str:
    """A folder name or argument, which may contain bytes that are not text, as text."""
    return name.encode(errors="backslashreplace").decode()


def found(table: pl.DataFrame, query: Query) -> pl.DataFrame:
    """The entries that match `query`, in its order; unknown values of the sort column come last.

    table: as of :mod:`cellbed.archive.index`. Raises TraceError for an unknown column and an invalid condition.
    """
    if query.sort not in table.columns:
        raise TraceError(f"--sort: {_no_column(query.sort, table.columns)}")
    rows = table.filter(*_conditions(query))
    if query.where is not None:
        rows = _where(query.where, rows)
    if query.sort == "name":
        return rows.sort("name", descending=query.descending)
    return rows.sort(query.sort, "name", descending=[query.descending, False], nulls_last=True)


def _conditions(query: Query) -> Iterator[pl.Expr]:
    import polars as pl

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


def _where(text: str, table: pl.DataFrame) -> pl.DataFrame:
    """The rows that fulfil a user's condition in SQL. Raises TraceError."""
    import polars as pl

    if len(text) > _LONGEST:
        raise TraceError(f"--where: the condition is longer than {_LONGEST} characters")
    place = 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            raise _invalid(text, f"unexpected {text[place]!r}")
        word = (token["word"] or "").upper()
        if word in _QUERIES:
            raise _invalid(text, f"a query, {word}, is not allowed")
        if token["call"] and word not in _CALLED:
            raise _invalid(text, f"unknown function {token['word']!r}")
        place = token.end()
    try:
        condition = pl.sql_expr(text)
        if list(table.lazy().select(condition).collect_schema().values()) != [pl.Boolean]:
            raise TraceError(f"--where: {text!r:.60} is not a condition: write for example 'uplink_mean_bit_s > 20e6'")
        return table.filter(condition)
    except pl.exceptions.ColumnNotFoundError as error:
        name = re.match('unable to find column "(.*?)"; valid', str(error), re.DOTALL)
        quoted = " Write text in single quotes." if name and f'"{name[1]}"' in text else ""
        why = _no_column(name[1], table.columns) if name else "unknown column"
        raise TraceError(f"--where: {why}{quoted}") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OverflowError, ValueError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise _invalid(text, "".join(letter if letter.isprintable() else "?" for letter in why)) from None


def _no_column(name: str, columns: Sequence[str]) -> str:
    from cellbed.near_names import near_names, question

    near = question(near_names(name, sorted(columns))) or f"write one of {', '.join(columns[:_LISTED])}, …"
    return f"unknown column {name!r:.60}: {near} `cellbed traces ls --json` lists all"


def _invalid(text: str, reason: str) -> TraceError:
    return TraceError(
        f"--where: {text!r:.60} cannot be read ({reason}): "
        "write a condition in SQL, such as \"uplink_mean_bit_s > 20e6 AND mobility = 'driving'\""
    )
