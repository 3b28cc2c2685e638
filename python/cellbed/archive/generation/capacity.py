"""Capacity over time, and its delivery opportunities, in exact integer arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellbed.archive.randomness import Stream
from cellbed.archive.series import OPPORTUNITY_BYTES

if TYPE_CHECKING:
    from cellbed.archive.randomness import Int64

OPPORTUNITY_BITS = 8 * OPPORTUNITY_BYTES

FINEST_NS = 20_000_000
"""Longer spells of one rate are cut, so that products of bits and nanoseconds stay within 63 bits."""

CHUNK = 1 << 20
"""Opportunities that are made at once, about."""


@dataclass(frozen=True, slots=True, eq=False)
class Capacity:
    """A rate that holds from each time until the next.

    at_ns: times from 0, rising. bit_s: the rates, at most 100 Gbit/s; 0 is an outage. end_ns: where the last one ends.
    """

    at_ns: Int64
    bit_s: Int64
    end_ns: int

    def opportunities(self) -> float:
        """Return the approximate number of opportunities."""
        import numpy as np

        lengths = np.append(self.at_ns[1:], np.int64(self.end_ns)) - self.at_ns
        return float((lengths * 1e-9 * self.bit_s).sum()) / OPPORTUNITY_BITS


@dataclass(frozen=True, slots=True)
class Grain:
    """The pattern of a scheduler's grants at a rate.

    slot_ns: what a slot carries is there at its end; 1 for no slots. quarters: four times how many opportunities come
    together, on the average: 6 for one and two by turns. scattered: whether each batch comes at a random place between
    the one before and its own time, or at its time.
    """

    slot_ns: int = 1
    quarters: int = 4
    scattered: bool = True


def opportunities(capacity: Capacity, grain: Grain, stream: Stream) -> Iterator[Int64]:
    """Return the times of all opportunities, ns, sorted, above 0 and at most the end; in arrays of about :data:`CHUNK`.

    Bits that do not fill an opportunity are carried over, so none is lost at any rate.
    """
    import numpy as np

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
    """Start, length (ns) and bits of spells of one rate of at most :data:`FINEST_NS`."""
    import numpy as np

    length = np.append(capacity.at_ns[1:], np.int64(capacity.end_ns)) - capacity.at_ns
    count = -(-length // FINEST_NS)
    row = np.repeat(np.arange(len(length)), count)
    part = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    start = capacity.at_ns[row] + part * FINEST_NS
    short = np.minimum(length[row] - part * FINEST_NS, FINEST_NS)
    return start, short, capacity.bit_s[row] // 1000 * short // 1_000_000


def _scatter(at: Int64, floor: Int64, before: int, stream: Stream, batch: Int64) -> Int64:
    """Return each batch anywhere between the one before, or the start of its spell, and its own time."""
    import numpy as np

    begins = np.append(0, np.nonzero(np.diff(batch))[0] + 1)
    own = at[begins]
    low = np.maximum(np.append(before, own[:-1]), floor[begins])
    share = (stream.uniforms(len(own)) * 65536.0).astype(np.int64)
    moved = own - ((own - low) * share >> 16)
    scattered: Int64 = moved[batch - batch[0]]
    return scattered
