"""Tables of a recording and their rules: packets of one workload in one direction, with counts; downloads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
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

DOWNLOADS: dict[str, pl.DataType] = {"bytes": pl.UInt64(), "started_ns": pl.Int64(), "taken_ns": pl.Int64()}
"""Columns of the table of downloads by TCP and their types; rows in order of started_ns.

bytes: size of the file. started_ns: first SYN, ns since the recording's time zero on the client's clock. taken_ns: time
from it to the file's last byte, ns; null if the download was not completed.
"""

_MAY_BE_NULL = frozenset({"sent_ns", "arrived_ns", "taken_ns"})
_Rule = tuple[pl.Expr, str]


def empty() -> pl.DataFrame:
    """Return an empty table."""
    return pl.DataFrame(schema=COLUMNS)


def check_packets(table: pl.DataFrame, where: Path | str) -> pl.DataFrame:
    """Return the table if it has the columns and types of :data:`COLUMNS`, and valid rows.

    Errors: :class:`RecordingError` with `where` and the missing or mistyped column, or the first row (from 1) that
    breaks a rule.
    """
    return _check(table, COLUMNS, _packet_rules(), where)


def check_downloads(table: pl.DataFrame, where: Path | str) -> pl.DataFrame:
    """Return the table if it has the columns and types of :data:`DOWNLOADS`, and valid rows.

    Errors: as for :func:`check_packets`.
    """
    return _check(table, DOWNLOADS, _download_rules(), where)


def _check(
    table: pl.DataFrame, columns: dict[str, pl.DataType], rules: Iterator[_Rule], where: Path | str
) -> pl.DataFrame:
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise RecordingError(f"{where}: no column '{missing[0]}': it has {', '.join(table.columns) or 'none'}")
    table = pl.DataFrame([_cast(table[name], kind, where) for name, kind in columns.items()])
    for broken, reason in chain(_present(columns), rules):
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


def _present(columns: dict[str, pl.DataType]) -> Iterator[_Rule]:
    """Yield the conditions of rows that lack a value, with messages."""
    for name in columns:
        if name not in _MAY_BE_NULL:
            yield pl.col(name).is_null(), f"{name} is missing"


def _download_rules() -> Iterator[_Rule]:
    """Yield conditions of invalid downloads with messages, in order."""
    yield pl.col("bytes") == 0, "a file has at least one byte"
    yield pl.col("started_ns") < 0, "started_ns is before the recording's time zero"
    yield pl.col("taken_ns") <= 0, "taken_ns must be above 0"
    yield pl.col("started_ns") < pl.col("started_ns").shift(1), "rows must be in order of started_ns"


def _packet_rules() -> Iterator[_Rule]:
    """Yield conditions of invalid packets with messages, in order."""
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
