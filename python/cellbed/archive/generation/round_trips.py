"""Round-trip times of an idle link, after a published mean and standard deviation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellbed.archive.generation.series import Generated
from cellbed.archive.randomness import Stream
from cellbed.archive.series import Content

if TYPE_CHECKING:
    import polars as pl

INTERVAL_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Probes at fixed intervals, each independent of the others: a floor and the sum of two exponential waits above it.

    mean_ns, deviation_ns: of the round-trip times. The shape, with a long right tail, is ours; publications that give
    a mean and a deviation do not give it.
    """

    mean_ns: int
    deviation_ns: int

    def series(self, duration_ns: int, seed: int, purpose: str) -> Generated:
        """A course of it, a probe every 100 ms."""
        import polars as pl

        def rows() -> Iterator[pl.DataFrame]:
            stream = Stream(seed, f"{purpose} round trips")
            scale = self.deviation_ns / math.sqrt(2.0)
            floor = self.mean_ns - 2.0 * scale
            times = range(0, duration_ns, INTERVAL_NS)
            taken = [int(floor + scale * (stream.exponential() + stream.exponential())) for _ in times]
            yield pl.DataFrame(
                {"at_ns": times, "round_trip_ns": taken}, schema=[("at_ns", pl.Int64), ("round_trip_ns", pl.Int64)]
            )

        if self.mean_ns < self.deviation_ns * math.sqrt(2.0):
            raise ValueError("the deviation of the round-trip times is too large for their mean")
        return Generated(Content.ROUND_TRIP, duration_ns, rows)
