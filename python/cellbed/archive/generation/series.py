"""Generated series: capacity over time, its delivery opportunities in exact integer arithmetic, and Parquet files.

Files are written chunk by chunk, at any length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from cellbed.archive.errors import TraceError
from cellbed.archive.randomness import Stream
from cellbed.archive.series import OPPORTUNITY_BYTES, Content, Part, Series
from cellbed.support.parquet_stream import write_frames

if TYPE_CHECKING:
    from cellbed.archive.randomness import Int64

OPPORTUNITY_BITS = 8 * OPPORTUNITY_BYTES

FINEST_NS = 20_000_000
"""Maximum spell of one rate, ns. Longer spells are cut: products of bits and nanoseconds must fit in 63 bits."""

CHUNK = 1 << 20
"""Approximate number of opportunities made at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Capacity:
    """A rate that holds from each time until the next.

    at_ns: increasing times, the first 0. bit_s: rates, at most 100 Gbit/s; 0 is an outage. end_ns: end of the last.
    """

    at_ns: Int64
    bit_s: Int64
    end_ns: int

    def opportunities(self) -> float:
        """Return the approximate number of opportunities."""
        lengths = np.append(self.at_ns[1:], np.int64(self.end_ns)) - self.at_ns
        return float((lengths * 1e-9 * self.bit_s).sum()) / OPPORTUNITY_BITS


@dataclass(frozen=True, slots=True)
class Grain:
    """The pattern of a scheduler's grants at a rate.

    slot_ns: length of a slot, whose data arrive at its end; 1 for no slots. quarters: four times the mean number of
    opportunities in a batch: 6 for alternately one and two. scattered: whether a batch comes at a random time between
    the previous batch's time and its own time, or at its own time.
    """

    slot_ns: int = 1
    quarters: int = 4
    scattered: bool = True


def opportunities(capacity: Capacity, grain: Grain, stream: Stream) -> Iterator[Int64]:
    """Yield the sorted times of all opportunities, ns, above 0 and at most the end, in arrays of about :data:`CHUNK`.

    Bits that do not fill an opportunity are carried over, so no bits are lost at any rate.
    """
    start, length, bits = _pieces(capacity)
    ends = np.cumsum(bits)
    total, step = int(ends[-1]) // OPPORTUNITY_BITS, CHUNK // grain.quarters * grain.quarters
    before = 0
    for first in range(0, total, step):
        number = np.arange(first + 1, min(first + step, total) + 1, dtype=np.int64)
        batch = (4 * number - 1) // grain.quarters
        last = (batch + 1) * grain.quarters // 4
        mark = np.minimum(last, total) * OPPORTUNITY_BITS
        piece = np.searchsorted(ends, mark, side="left")
        into = mark - (ends[piece] - bits[piece])
        at = start[piece] + -(-into * length[piece] // bits[piece])
        if grain.scattered:
            at = _scatter(at, start[piece], before, stream, batch)
        before = int(at[-1])
        yield np.minimum(-(-at // grain.slot_ns) * grain.slot_ns, capacity.end_ns)


def _pieces(capacity: Capacity) -> tuple[Int64, Int64, Int64]:
    """Return start (ns), length (ns) and bits of spells of constant rate, each of at most :data:`FINEST_NS`."""
    length = np.append(capacity.at_ns[1:], np.int64(capacity.end_ns)) - capacity.at_ns
    count = -(-length // FINEST_NS)
    row = np.repeat(np.arange(len(length)), count)
    part = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    start = capacity.at_ns[row] + part * FINEST_NS
    short = np.minimum(length[row] - part * FINEST_NS, FINEST_NS)
    return start, short, capacity.bit_s[row] // 1000 * short // 1_000_000


def _scatter(at: Int64, floor: Int64, before: int, stream: Stream, batch: Int64) -> Int64:
    """Move each batch to a random earlier time, not before the previous batch or the start of the batch's spell."""
    begins = np.append(0, np.nonzero(np.diff(batch))[0] + 1)
    own = at[begins]
    low = np.maximum(np.append(before, own[:-1]), floor[begins])
    share = (stream.uniforms(len(own)) * 65536.0).astype(np.int64)
    moved = own - ((own - low) * share >> 16)
    scattered: Int64 = moved[batch - batch[0]]
    return scattered


Chunks = Callable[[], Iterator["pl.DataFrame"]]
Progress = Callable[[Part, float], None]
"""Called with the current part, and the completed share of the part's duration."""


@dataclass(frozen=True, slots=True)
class Generated:
    """A series that is generated while it is written.

    duration_ns: period of the series. chunks: yields the rows in order, with the content's columns; each call yields
    the same.
    """

    content: Content
    duration_ns: int
    chunks: Chunks


@dataclass(frozen=True, slots=True)
class Written:
    """A series on disk.

    values_sha256: digest of the columns one after the other, chunks joined, as little-endian numbers of 8 bytes. Unlike
    the bytes of a Parquet file, the digest does not depend on the version of the library that writes the file.
    """

    series: Series
    rows: int
    values_sha256: str


def draw_series(capacity: Capacity, content: Content, grain: Grain, seed: int, purpose: str) -> Generated:
    """Return a capacity as a series.

    Args:
        capacity: The capacity over time.
        content: Rates or opportunities.
        grain: The pattern of grants.
        seed: Seed of the order.
        purpose: Separates the random stream from others with the same seed.

    Returns:
        The series.

    Raises:
        ValueError: There are more than :data:`MOST` opportunities.
    """
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
"""Maximum number of opportunities in a generated series."""


def bin_rates(generated: Generated) -> Generated:
    """Return opportunities as a series of rates, one for each 10 ms."""

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

    # Light compression: at 10 Gbit/s, compression is most of the work.
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
