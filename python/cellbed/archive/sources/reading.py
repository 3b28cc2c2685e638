"""What a reader of tables says of a file that is not as documented, as one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cellbed.archive.errors import TraceError


@contextmanager
def reading(of: str) -> Iterator[None]:
    """Have whatever reads ``of`` fail with a TraceError that says so."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, OverflowError) as error:
        why = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise TraceError(f"{of}: this file is not as documented: {why}") from error
