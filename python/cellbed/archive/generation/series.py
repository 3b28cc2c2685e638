"""Generated series, written to Parquet files chunk by chunk, at any length."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.archive.errors import TraceError
from cellbed.archive.generation.capacity import OPPORTUNITY_BITS, Capacity, Grain, opportunities
from cellbed.archive.randomness import Stream
from cellbed.archive.series import Content, Part, Series
from cellbed.support.parquet_stream import write_frames

if TYPE_CHECKING:
    import polars as pl

Chunks = Callable[[], Iterator["pl.DataFrame"]]
Progress = Callable[[Part, float], None]
"""Called with the current part, and the share of its duration that is done."""


@dataclass(frozen=True, slots=True)
class Generated:
    """A series that is made while it is written.

    duration_ns: its period. chunks: gives its rows in order, the columns of the content; the same each time.
    """

    content: Content
    duration_ns: int
    chunks: Chunks


@dataclass(frozen=True, slots=True)
class Written:
    """A series on disk.

    values_sha256: of its columns one after the other, chunks joined, numbers of 8 bytes,
    little-endian.

    Parquet files of one content differ with the version of the library that writes them; this does not.
    """

    series: Series
    rows: int
    values_sha256: str


def of_capacity(capacity: Capacity, content: Content, grain: Grain, seed: int, purpose: str) -> Generated:
    """Return the capacity as a series of rates, or of opportunities.

    Errors: :class:`ValueError` for more than :data:`MOST` opportunities.
    """
    import polars as pl

    number = capacity.opportunities()
    if content is not Content.RATE and number > MOST:
        what = purpose.rpartition(" ")[2]
        raise ValueError(
            f"{number:.2g} opportunities of the {what} are more than {MOST:.0g}: write --as rate, or reduce it"
        )

    def rates() -> Iterator[pl.DataFrame]:
        yield pl.DataFrame({"at_ns": capacity.at_ns, "bit_s": capacity.bit_s.astype(float)})

    def times() -> Iterator[pl.DataFrame]:
        for at in opportunities(capacity, grain, Stream(seed, f"{purpose} opportunities")):
            yield pl.DataFrame({"at_ns": at})

    return Generated(content, capacity.end_ns, rates if content is Content.RATE else times)


RATE_BIN_NS = 10_000_000
MOST = 2_000_000_000
"""Opportunities that are written one by one."""


def bin_rates(generated: Generated) -> Generated:
    """Opportunities as a series of rates, one for each 10 ms."""
    import numpy as np
    import polars as pl

    def rates() -> Iterator[pl.DataFrame]:
        counts = np.zeros(-(-generated.duration_ns // RATE_BIN_NS), np.int64)
        for frame in generated.chunks():
            found = np.maximum(frame["at_ns"].to_numpy() - 1, 0) // RATE_BIN_NS
            if len(found):
                counts[found[0] : found[-1] + 1] += np.bincount(found - found[0])
        at = np.arange(len(counts), dtype=np.int64) * RATE_BIN_NS
        lasts = np.minimum(generated.duration_ns - at, RATE_BIN_NS)
        yield pl.DataFrame({"at_ns": at, "bit_s": counts * (OPPORTUNITY_BITS * 10**9) / lasts})

    return Generated(Content.RATE, generated.duration_ns, rates)


def write(generated: Generated, path: Path, part: Part, progress: Progress) -> Written:
    """Write the series to `path`, which must not exist."""
    import numpy as np
    import polars as pl

    columns = COLUMNS[generated.content]
    schema = {name: pl.Float64 if name == "bit_s" else pl.Int64 for name in columns}
    digests = [hashlib.sha256() for _ in columns]
    rows = 0

    def counted() -> Iterator[pl.DataFrame]:
        nonlocal rows
        for frame in generated.chunks():
            for digest, name in zip(digests, columns, strict=True):
                values = frame[name].fill_null(-1).to_numpy()
                digest.update(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).data)
            rows += len(frame)
            if len(frame):
                progress(part, frame["at_ns"][-1] / generated.duration_ns)
            yield frame

    # Compressed lightly: at 10 Gbit/s this is most of the work.
    try:
        write_frames(counted(), schema, path, "lz4")
    except pl.exceptions.PolarsError as error:
        raise TraceError(f"{path.parent}: cannot write the {part} there: {str(error).splitlines()[0]}") from None
    whole = hashlib.sha256(b"".join(digest.digest() for digest in digests))
    return Written(Series(generated.content, path, generated.duration_ns), rows, whole.hexdigest())


COLUMNS: dict[Content, tuple[str, ...]] = {
    Content.OPPORTUNITIES: ("at_ns",),
    Content.RATE: ("at_ns", "bit_s"),
    Content.ROUND_TRIP: ("at_ns", "round_trip_ns"),
}
"""Names of each content's columns."""
