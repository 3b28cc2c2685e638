"""Series as text for the engine: each line is an opportunity of 1500 bytes, at a whole number of milliseconds.

Times are rounded up, so that no opportunity is early. A rate becomes evenly spaced opportunities: each comes when the
rate has supplied its bytes. The last line of a text is the period of the loop. So a series that lasts longer than its
last opportunity gets one more at its end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellbed.archive.errors import TraceError
from cellbed.archive.series import OPPORTUNITY_BYTES, Content, Series
from cellbed.archive.soundness import sha256
from cellbed.support import user_folders
from cellbed.support.whole_files import write_whole

if TYPE_CHECKING:  # a run of cached traces needs no tables
    import polars as pl

_REVISION: Final = 1
"""Revision of the conversion: increase it when the text of a series changes."""
_MS: Final = 1_000_000
_BITS: Final = 8 * OPPORTUNITY_BYTES
_MOST: Final = 500_000_000
"""Maximum number of opportunities in a text: 5 GB."""
_BLOCK: Final = 1_000_000


def replayable(series: Series, digest: str) -> Path:
    """Return the text file of a series of opportunities or rates. It is made at first use, and kept in the cache.

    Args:
        series: A series of an entry.
        digest: The expected SHA-256 of the series' file.

    Returns:
        The file in the cache.

    Raises:
        TraceError: The digest differs, the series cannot be replayed, or the cache cannot be written.
    """
    made_of = repr((_REVISION, digest, str(series.content), series.duration_ns))
    folder = user_folders.cache_folder() / "traces"
    path = folder / f"{hashlib.sha256(made_of.encode()).hexdigest()}.trace"
    if path.exists():
        return path
    if sha256(series.path) != digest:
        raise TraceError(
            f"{series.path}: not the file that was added: damaged or just replaced: check with `cellbed traces verify`"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda file: write_text(series, file))
    except OSError as error:
        raise TraceError(
            f"{folder}: cannot write the trace there: {error.strerror}; "
            "free some space, or set XDG_CACHE_HOME to another folder"
        ) from error
    return path


def write_text(series: Series, path: Path) -> None:
    """Write a series as text. Raises TraceError, OSError."""
    import polars as pl

    if series.content is Content.ROUND_TRIP:
        raise TraceError(
            f"{series.path}: contains round-trip times, not delivery opportunities: no rate can be replayed from it"
        )
    end = -(-series.duration_ns // _MS)
    try:
        last = (
            _write_opportunities(series, path) if series.content is Content.OPPORTUNITIES else _write_rate(series, path)
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise TraceError(f"{series.path}: not a readable Parquet file: {str(error).splitlines()[0]}") from None
    if last < end:
        with path.open("ab") as file:
            file.write(f"{end}\n".encode())


def _write_opportunities(series: Series, path: Path) -> int:
    """Write a series' opportunities, and return the last, ms."""
    import polars as pl

    stamps = series.scan().select((pl.col("at_ns") + (_MS - 1)) // _MS)
    stamps.sink_csv(path, include_header=False)
    return int(stamps.max().collect(engine="streaming").item())


def _write_rate(series: Series, path: Path) -> int:
    """Write the opportunities of a rate, a block at a time, and return the last, ms."""
    last = -1
    with path.open("wb") as file:
        for stamps in _space_rates(series):
            stamps.write_csv(file, include_header=False)
            last = stamps.item(-1, 0)
    return last


def _space_rates(series: Series) -> Iterator[pl.DataFrame]:
    """Yield the opportunities of a rate, a block at a time."""
    import numpy as np
    import polars as pl

    table = series.scan().select("at_ns", "bit_s").collect()
    begins = np.append(table["at_ns"].to_numpy(), series.duration_ns).astype(np.float64)
    rates = table["bit_s"].to_numpy()
    # The capacity supplied before the beginning of each step, and before the end.
    offered = np.concatenate(([0.0], np.cumsum(rates * np.diff(begins) / 1e9)))
    count = int(offered[-1] // _BITS)
    if count > _MOST:
        raise TraceError(f"{series.path}: makes {count} opportunities, more than {_MOST}: cut a shorter piece of it")
    for first in range(1, count + 1, _BLOCK):
        bits = np.arange(first, min(first + _BLOCK, count + 1), dtype=np.float64) * _BITS
        # If the link pauses when it has supplied the bits, the beginning of the pause counts.
        step = np.searchsorted(offered, bits, side="left") - 1
        at = begins[step] + (bits - offered[step]) * 1e9 / rates[step]
        # The tolerance of 1 ns keeps an error in the last bit of a quotient from rounding a whole millisecond up.
        yield pl.DataFrame({"at": np.ceil(at / _MS - 1e-6).astype(np.int64)})
