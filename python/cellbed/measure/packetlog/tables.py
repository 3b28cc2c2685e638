"""The packet log as a table: CSV and Parquet, one row per packet and direction, in the order of the file."""

from __future__ import annotations

from typing import IO

import numpy as np
import polars as pl

from cellbed.measure.packetlog.log import PacketLog, Records, reason
from cellbed.parquet_stream import write_frames

COLUMNS: dict[str, pl.DataType] = {
    "packet": pl.UInt64(),
    "direction": pl.String(),
    "source": pl.String(),
    "destination": pl.String(),
    "protocol": pl.UInt8(),
    "source_port": pl.UInt16(),
    "destination_port": pl.UInt16(),
    "tcp_sequence": pl.UInt32(),
    "bytes": pl.UInt32(),
    "payload_bytes": pl.UInt32(),
    "drop": pl.String(),
    "arrived_ns": pl.Int64(),
    "released_ns": pl.Int64(),
    "departed_ns": pl.Int64(),
    "observed_ns": pl.Int64(),
}
"""Columns and their types. `drop` is null for a packet that was not dropped; times are CLOCK_MONOTONIC."""


def table(log: PacketLog, records: Records) -> pl.DataFrame:
    """Records of a log as a table with the columns of :data:`COLUMNS`."""

    def column(name: str) -> pl.Series:
        return pl.Series(name, np.ascontiguousarray(records[name]))

    def named(name: str, words: dict[int, str]) -> pl.Series:
        numbers = column(name).cast(pl.Int64)
        return numbers.replace_strict(words, default=None, return_dtype=pl.String)

    def vertices(name: str) -> pl.Series:
        return named(name, {number: log.vertex_name(number) for number in np.unique(records[name]).tolist()})

    directions = np.unique(records["direction"]).tolist()
    drops = np.unique(records["drop"]).tolist()
    columns = {
        "direction": named("direction", {number: log.direction_name(number) for number in directions}),
        "source": vertices("source_vertex"),
        "destination": vertices("destination_vertex"),
        "drop": named("drop", {number: reason(number) for number in drops if number}),
        "payload_bytes": column("payload"),
        **{f"{name}_ns": column(name) for name in ("arrived", "released", "departed", "observed")},
    }
    return pl.DataFrame({name: columns[name] if name in columns else column(name) for name in COLUMNS}, schema=COLUMNS)


def write_csv(log: PacketLog, file: IO[bytes], direction: int | None = None) -> None:
    """Write the log as CSV with a line of names (RFC 4180); `drop` is empty for a packet that was not dropped."""
    # By way of a string, so that a reader who leaves (`| head`) is Python's BrokenPipeError and not one of Polars.
    file.write(pl.DataFrame(schema=COLUMNS).write_csv().encode())
    for records in log.chunks(direction):
        file.write(table(log, records).write_csv(include_header=False).encode())


def write_parquet(log: PacketLog, file: IO[bytes], direction: int | None = None) -> None:
    """Write the log as Parquet, chunk by chunk."""
    write_frames((table(log, records) for records in log.chunks(direction)), COLUMNS, file, "zstd")
