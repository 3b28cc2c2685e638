"""A table of the archive's entries, and its search. Each use builds the table from the entries' descriptions.

| column | content |
|---|---|
| `name`, and each key of an entry's `about` | as in `entry.toml`; null is unknown |
| `PART_content`, `PART_duration_ns`, `PART_rows`, `PART_sha256` | PART: `uplink`, `downlink` and `round_trip` |
| `PART_KEY` | each statistic that is a number, as a floating-point number: `uplink_mean_bit_s` |
| `recording` | whether the entry has a recording of two workloads |
| `site_origins`, `site_objects`, `site_bytes` | size of a recorded site |
| `duration_ns` | duration of the longest part |
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import polars as pl

from cellbed.archive.entry import About, Entry
from cellbed.archive.entry_file import read_entry
from cellbed.archive.errors import TraceError
from cellbed.archive.series import PARTS
from cellbed.support.ways import WAYS

_STEMS: Final = tuple(part.replace("-", "_") for part in PARTS)
_HELD: Final[dict[str, Any]] = {"content": pl.String, "sha256": pl.String, "duration_ns": pl.Int64, "rows": pl.Int64}
_OF_SITE: Final = ("site_origins", "site_objects", "site_bytes")
_MEASURED: Final = tuple(f"{stem}_" for stem in _STEMS)


@dataclass(frozen=True, slots=True)
class EntryTable:
    """A row for each readable entry, in order of name. problems: reasons why other entries are unreadable, by name."""

    frame: pl.DataFrame
    problems: dict[str, str]


def read_table(archive: Path) -> EntryTable:
    """Return the table of the entries in `archive`. Raises OSError if the archive cannot be read."""
    rows, problems = [], {}
    for folder in sorted(path for path in archive.iterdir() if path.name[0] != "." and path.is_dir()):
        try:
            rows.append(_row(read_entry(folder)))
        except TraceError as error:
            if folder.is_dir():  # else another process removed the entry meanwhile
                problems[as_text(folder.name)] = as_text(str(error))
    return EntryTable(frame_of(rows), problems)


def frame_of(rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Return a table of entries. rows: values of each entry by column."""
    rows = list(rows)
    names = list(dict.fromkeys([*_always(), *(key for row in rows for key in row)]))
    schema = {name: _kind(name) for name in names}
    return pl.DataFrame({name: [row.get(name) for row in rows] for name in names}, schema=schema).sort("name")


@cache
def _always() -> dict[str, Any]:
    """Return the columns that always exist; the columns to suggest in errors come first."""
    return {
        **{"name": pl.String, "duration_ns": pl.Int64},
        **dict.fromkeys(("uplink_mean_bit_s", "downlink_mean_bit_s"), pl.Float64),
        **dict.fromkeys(About.model_fields, pl.String),
        **{f"{stem}_{key}": kind for stem in _STEMS for key, kind in _HELD.items()},
        "recording": pl.Boolean,
        **dict.fromkeys(_OF_SITE, pl.Int64),
    }


def _kind(name: str) -> Any:
    return _always().get(name, pl.Float64 if name.startswith(_MEASURED) else pl.String)


def _row(entry: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {"name": entry.name, "recording": entry.recording is not None}
    for key, value in entry.about:
        # A key cannot replace a measured value.
        ours = key in ("name", "recording", "duration_ns", *_OF_SITE) or key.startswith(_MEASURED)
        if (value is None or isinstance(value, str)) and not ours:
            row[key] = value
    for part, held in entry.parts.items():
        stem = part.replace("-", "_")
        row |= {f"{stem}_content": str(held.content), f"{stem}_sha256": held.sha256}
        row |= {f"{stem}_duration_ns": held.duration_ns, f"{stem}_rows": held.rows}
        for key, value in (held.statistics or {}).items():
            if isinstance(value, int | float) and key not in _HELD:
                row[f"{stem}_{key}"] = float(value)
    if entry.site is not None:
        total = entry.site.total
        row |= dict(zip(_OF_SITE, (len(entry.site.origins), total.objects, total.bytes), strict=True))
    return row | {"duration_ns": max((held.duration_ns for held in entry.parts.values()), default=None)}


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
"""Maximum number of columns named in the error about an unknown column."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query; ``None`` means any.

    name: part of the name. technology, mobility: the value, in any case. minimum_mean: minimum mean rate of any
    direction, bit/s. where: conditions ``COLUMN OP VALUE``, which must all hold. sort: a column. descending: largest
    value first.
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
    """Return the entries that match `query`, sorted by `query.sort`; unknown values come last.

    Raises TraceError for an unknown column and an invalid condition.
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
            raise TraceError(f"--where: ~ needs a column of text, and '{column}' is not")
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
