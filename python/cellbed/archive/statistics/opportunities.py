"""Delivery opportunities: bursts, silences, and bits."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cellbed.archive.series import OPPORTUNITY_BYTES
from cellbed.archive.statistics.bins import BLOCK, Bins
from cellbed.archive.statistics.distribution import Distribution
from cellbed.archive.statistics.silences import Silences

_MS: Final = 10**6

LONG_BATCHING_MS: Final = 5
"""Silence from which on a burst after it counts to the share of batched opportunities."""

Times = NDArray[np.int64]


class Opportunities:
    """Takes their times, in order, and adds up; row by row in Rust (`Bursts`), bin by bin here.

    A burst is the opportunities of one millisecond of the clock. The silence before it is the time since the
    opportunity before its first; for a single one it counts as none, because a receiver that aggregates delivers
    several.
    """

    def __init__(self, duration_ns: int, silences: Silences) -> None:
        from cellbed._core import Bursts

        self._duration_ns = duration_ns
        self.bins = Bins(duration_ns, "10ms", OPPORTUNITY_BYTES * 8)
        self.silences = silences
        self._bursts = Bursts(self.bins.finest_ns, duration_ns, silences.least_ns)
        self._sizes = Distribution()
        self._longest_ns = 0
        # The bin that the next times may continue.
        self._bin = 0
        self._in_bin = 0

    def add(self, at: Times) -> None:
        """Take the next times."""
        numbers, counts, begins, lengths = self._bursts.add(at)
        if len(begins):
            self.silences.add(begins, lengths)
        if numbers[0] == self._bin:
            counts[0] += self._in_bin
            self._in_bin = 0
        self._emit_between(numbers, counts)
        self._bin, self._in_bin = int(numbers[-1]), int(counts[-1])

    def finish(self) -> None:
        """End the series: the silence at the seam of the loop, and the bins up to the end."""
        self._sizes.add(*self._bursts.finish())
        first, last = self._bursts.ends or (self._duration_ns, 0)
        seam = first + self._duration_ns - last if self._bursts.ends else self._duration_ns
        self._longest_ns = max(self._bursts.longest_ns, seam)
        self.silences.add(np.array([last]), np.array([seam]))
        self._emit(self._duration_ns // self.bins.finest_ns)
        self.bins.rest(self._in_bin)

    def figures(self) -> dict[str, float]:
        """The statistics of bursts and silences."""
        found = {"longest_silence_ms": self._longest_ns / 1e6}
        if not self._sizes.count:
            return found
        median, high = self._sizes.quantiles(np.array([0.5, 0.99]))
        upper = np.cumsum(self._bursts.batching)
        batching = [float(np.searchsorted(upper, share * upper[-1])) / 10 for share in (0.5, 0.95)]
        return found | {
            "burst_mean": self._sizes.mean,
            "burst_p50": int(median),
            "burst_p99": int(high),
            "burst_max": int(self._sizes.table()[0][-1]),
            "busy_ms_share": min(1.0, self._sizes.count * _MS / self._duration_ns),
            "batching_p50_ms": batching[0],
            "batching_p95_ms": batching[1],
            "batched_share_5ms": float(1 - upper[LONG_BATCHING_MS * 10 - 1] / upper[-1]),
        }

    def _emit_between(self, numbers: Times, counts: Times) -> None:
        """Hand on every bin before the last of `numbers`, which may get more."""
        first, last = int(numbers[0]), int(numbers[-1])
        if first > self._bin:
            self._emit(first)
        for begin in range(first, last, BLOCK):
            end = min(begin + BLOCK, last)
            low, high = np.searchsorted(numbers, (begin, end))
            dense = np.zeros(end - begin)
            dense[numbers[low:high] - begin] = counts[low:high]
            self.bins.add(dense)
        self._bin = last

    def _emit(self, end: int) -> None:
        """Hand on the bin that is open and empty ones behind it, up to the bin `end`, exclusive."""
        while self._bin < end:
            dense = np.zeros(min(end - self._bin, BLOCK))
            dense[0], self._in_bin = self._in_bin, 0
            self.bins.add(dense)
            self._bin += len(dense)
