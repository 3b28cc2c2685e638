"""The packets of one workload in one direction: a table, its rules, and its counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from cellbed.recordings.description import Counts
from cellbed.recordings.errors import RecordingError

COLUMNS: dict[str, pl.DataType] = {
    "train": pl.UInt32(),
    "index": pl.UInt32(),
    "bytes": pl.UInt16(),
    "sent_ns": pl.Int64(),
    "arrived_ns": pl.Int64(),
    "copies": pl.UInt8(),
}
"""Columns and their types; rows in order of (train, index).

train: number of the packet train, 0 for saturation. index: position in the train, or in the saturation. bytes: IP
length. sent_ns, arrived_ns: ns since the recording's time zero on the client's clock; null if unknown or lost.
arrived_ns: first copy. copies: number that arrived.
"""

_MAY_BE_NULL = frozenset({"sent_ns", "arrived_ns"})
_Rule = tuple[pl.Expr, str]


def empty() -> pl.DataFrame:
    """Return an empty table."""
    return pl.DataFrame(schema=COLUMNS)


def check_packets(table: pl.DataFrame, where: Path | str) -> pl.DataFrame:
    """Return the table if it has the columns and types of :data:`COLUMNS`, and valid rows.

    Errors: :class:`RecordingError` with `where` and the missing or mistyped column, or the first row (from 1) that
    breaks a rule.
    """
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise RecordingError(f"{where}: no column '{missing[0]}': it has {', '.join(table.columns) or 'none'}")
    table = pl.DataFrame([_cast(table[name], kind, where) for name, kind in COLUMNS.items()])
    for broken, reason in _rules():
        rows = table.select(broken.fill_null(False).arg_true().head(1)).to_series()
        if len(rows):
            row = int(rows[0])
            found = ", ".join(f"{name} {value}" for name, value in table.row(row, named=True).items())
            raise RecordingError(f"{where}: row {row + 1}: {reason} ({found})")
    return table


def count(table: pl.DataFrame) -> Counts:
    """Return the packet counts of a table."""
    arrived = table.filter(pl.col("arrived_ns").is_not_null()).sort("arrived_ns", maintain_order=True)
    late = pl.col("index") < pl.col("index").cum_max().over("train")
    return Counts(
        sent=table.height,
        lost=table.height - arrived.height,
        duplicated=table.filter(pl.col("copies") > 1).height,
        reordered=arrived.filter(late).height,
    )


def _cast(column: pl.Series, kind: pl.DataType, where: Path | str) -> pl.Series:
    place = f"{where}: column '{column.name}'"
    if not (column.dtype.is_integer() or column.dtype == pl.Null):
        raise RecordingError(f"{place} is of type {column.dtype}: it must be {kind}")
    typed = column.cast(kind, strict=False)
    lost = (typed.is_null() & column.is_not_null()).arg_true()
    if len(lost):
        row = int(lost[0])
        raise RecordingError(f"{where}: row {row + 1}: {column.name} is {column[row]}: it must fit {kind}")
    return typed


def _rules() -> Iterator[_Rule]:
    """Yield conditions of invalid rows with messages, in order."""
    for name in COLUMNS:
        if name not in _MAY_BE_NULL:
            yield pl.col(name).is_null(), f"{name} is missing"
    for name in ("sent_ns", "arrived_ns"):
        yield pl.col(name) < 0, f"{name} is before the recording's time zero"
    yield pl.col("bytes") == 0, "a packet has at least one byte"
    yield pl.col("arrived_ns").is_null() & (pl.col("copies") > 0), "copies arrived, but there is no time of arrival"
    yield pl.col("arrived_ns").is_not_null() & (pl.col("copies") == 0), "it arrived, but no copy of it did"
    train, index = pl.col("train"), pl.col("index")
    before, position = train.shift(1), index.shift(1)
    yield (
        (train < before) | ((train == before) & (index <= position)),
        "rows must be in order of train and index, each packet once",
    )
