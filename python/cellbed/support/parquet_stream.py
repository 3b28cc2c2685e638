"""Write tables of any length to Parquet; Ctrl-C ends writing at once and leaves no thread that continues writing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import polars as pl

Compression = Literal["lz4", "zstd"]


def write_rows(rows: pl.LazyFrame, target: Path | IO[bytes], compression: Compression) -> None:
    """Write the rows of a query while the query produces them.

    Args:
        rows: The query.
        target: The Parquet file.
        compression: The method of compression.

    Raises:
        OSError: The file cannot be written.
        polars.exceptions.PolarsError: The query fails.
        polars.exceptions.PanicException: Polars fails.
    """
    failed: list[BaseException] = []

    def write() -> None:
        try:
            rows.sink_parquet(target, compression=compression, maintain_order=True)
        except BaseException as error:
            failed.append(error)

    # A thread that waits for Polars would receive Ctrl-C only after the query.
    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    while writing.is_alive():
        writing.join(0.1)
    if failed:
        raise failed[0]


def write_frames(
    frames: Iterator[pl.DataFrame],
    schema: Mapping[str, pl.DataType | type[pl.DataType]],
    target: Path | IO[bytes],
    compression: Compression,
) -> None:
    """Write frames of a schema as they are produced, in another thread. Raises the errors of :func:`write_rows`."""
    from polars.io.plugins import register_io_source

    interrupted = threading.Event()
    ended = threading.Event()

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, batch: int | None
    ) -> Iterator[pl.DataFrame]:
        try:
            for frame in frames:
                if interrupted.is_set():
                    return
                chosen = frame if predicate is None else frame.filter(predicate)
                yield chosen if columns is None else chosen.select(columns)
        finally:
            ended.set()

    try:
        write_rows(register_io_source(source, schema=schema), target, compression)
    except KeyboardInterrupt:
        interrupted.set()
        ended.wait()
        raise
