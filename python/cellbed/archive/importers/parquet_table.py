"""Parquet tables, with columns of any types read as numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from cellbed.archive.importers.column_names import Column, Mapped
from cellbed.archive.importers.table import Table, moment_ns, whole_ns
from cellbed.archive.soundness import name_file_in_errors
from cellbed_node import inputs

_DAY_NS: Final = 86_400 * 10**9
_UNITS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, None: 10**6}


def kinds(path: Path) -> dict[str, tuple[str, str]]:
    """Return the kind (``number``, ``moment``, ``text`` or ``other``) and the Polars type of each column, by name."""
    return {name: (_kind(dtype), str(dtype)) for name, dtype in _scan(path)[1].items()}


def read(path: Path, mapped: Mapped) -> Table:
    """Return the mapped columns as numbers: times in ns, rates in bit/s. Raises TraceError."""
    frame, schema = _scan(path)
    values = [
        (pl.col(column.name).cast(pl.Float64) * column.unit).fill_nan(None).alias(part)
        for part, column in mapped.values.items()
    ]
    with name_file_in_errors(path):
        rows = frame.select(_stamp(mapped.time, schema[mapped.time.name]).alias("stamp"), *values).collect()

    def cell(row: int, column: Column) -> str:
        return str(frame.select(column.name).slice(row, 1).collect().item())

    return Table(path, rows, lambda row: f"row {row + 1}", cell)


def _stamp(column: Column, dtype: pl.DataType) -> pl.Expr:
    """Return the times of a column in ns; null for times that are missing or beyond 64 bits."""
    time = pl.col(column.name)
    if isinstance(dtype, pl.String | pl.Categorical | pl.Enum):
        return moment_ns(time.cast(pl.String))
    if isinstance(dtype, pl.Date):
        time, unit = time.to_physical(), _DAY_NS
    elif isinstance(dtype, pl.Datetime | pl.Duration):
        time, unit = time.to_physical(), _UNITS[dtype.time_unit]
    else:
        unit = int(column.unit or 1)
    if dtype.is_float() or dtype.is_decimal():
        return whole_ns(time.cast(pl.Float64) * unit)
    whole = time.cast(pl.Int64, strict=False)
    limit = ((1 << 63) - 1) // unit
    return pl.when(whole.is_between(-limit, limit)).then(whole * unit)


def _scan(path: Path) -> tuple[pl.LazyFrame, pl.Schema]:
    """Return a file as a lazy frame, with its columns' types. Raises TraceError."""
    with name_file_in_errors(path):
        frame = pl.scan_parquet(inputs.check(path))
        schema = frame.collect_schema()
    return frame, schema


def _kind(dtype: pl.DataType) -> str:
    if dtype.is_numeric() or isinstance(dtype, pl.Boolean):
        return "number"
    if isinstance(dtype, pl.Datetime | pl.Date | pl.Duration):
        return "moment"
    return "text" if isinstance(dtype, pl.String | pl.Categorical | pl.Enum) else "other"
