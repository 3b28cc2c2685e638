"""Atomic conversion of a packet log to a file of another format; CSV and Parquet."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Literal

import numpy as np
import polars as pl

from cellbed.measure.packetlog.log import LogError, PacketLog, Records, reason
from cellbed.support.parquet_stream import write_frames
from cellbed.support.whole_files import write_whole

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
"""Columns and their types. `drop` is null for a packet that was not dropped; times are by CLOCK_MONOTONIC."""


def table(log: PacketLog, records: Records) -> pl.DataFrame:
    """Return records of a log as a table with the columns of :data:`COLUMNS`."""

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
    """Write the log as CSV with a header line (RFC 4180); `drop` is empty for a packet that was not dropped."""
    # Written as a string, so that a closed pipe (`| head`) raises Python's BrokenPipeError rather than a Polars error.
    file.write(pl.DataFrame(schema=COLUMNS).write_csv().encode())
    for records in log.chunks(direction):
        file.write(table(log, records).write_csv(include_header=False).encode())


def write_parquet(log: PacketLog, file: IO[bytes], direction: int | None = None) -> None:
    """Write the log as Parquet, chunk by chunk."""
    write_frames((table(log, records) for records in log.chunks(direction)), COLUMNS, file, "zstd")


Format = Literal["mahimahi", "csv", "parquet"]
ENDINGS: dict[Format, str] = {"mahimahi": "log", "csv": "csv", "parquet": "parquet"}


def convert(
    log: PacketLog, to: Format, output: Path | None, direction: str | None, note: Callable[[str], None]
) -> Path | None:
    """Convert a log; return the path of the written file.

    output: path; `None`: next to the log's run or file; ``-``: standard output. direction: the only direction to
    convert; required for Mahimahi's format if the log has several. note: called with a sentence for each omission.
    Errors: :class:`LogError`; an incomplete file is removed.
    """
    if log.rest:
        note(f"{log.path} ends inside a record, as after a killed run: its last {log.rest} bytes are left out")
    if log.warning:
        note(f"{log.path}: {log.warning}")
    chosen = log.direction_index(direction) if direction is not None else None
    if to == "mahimahi" and chosen is None:
        chosen = _only_direction(log)
    write = _writer(log, to, chosen, note)
    if output == Path("-"):
        if to == "parquet":
            raise LogError("parquet cannot be written to a stream; write to a file with -o FILE")
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return None
    stem = log.path.stem if chosen is None else log.direction_name(chosen).replace("/", "-")
    path = output or (log.folder or log.path.parent) / f"{stem}.{ENDINGS[to]}"

    def fill(place: Path) -> None:
        with place.open("wb") as file:
            write(file)

    try:
        write_whole(path, fill)
    except OSError as error:
        raise LogError(f"{path}: cannot be written: {error.strerror or error}; choose another place with -o") from None
    return path


def _writer(
    log: PacketLog, to: Format, direction: int | None, note: Callable[[str], None]
) -> Callable[[IO[bytes]], None]:
    if to == "mahimahi":
        from cellbed.measure.packetlog.mahimahi import opportunities, write_mahimahi

        assert direction is not None
        try:
            schedule = opportunities(log, direction, Path.cwd())
        except LogError as error:
            note(f"{error}; opportunities are left out")
            schedule = None
        return lambda file: write_mahimahi(log, file, direction, schedule)
    write = write_csv if to == "csv" else write_parquet
    return lambda file: write(log, file, direction)


def _only_direction(log: PacketLog) -> int:
    present = log.directions_seen()
    if len(present) == 1:
        return present[0]
    names = ", ".join(log.direction_name(index) for index in present) or "none"
    raise LogError(f"Mahimahi's log is of one direction; choose one with --direction; {log.path} has {names}")
