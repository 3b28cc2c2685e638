"""Delivery opportunities: how many come together, how long none comes, and the bits they carry."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cellbed.traces.series import OPPORTUNITY_BYTES
from cellbed.traces.statistics.bins import BLOCK, Bins
from cellbed.traces.statistics.distribution import Distribution
from cellbed.traces.statistics.silences import Silences

_MS: Final = 10**6
_LONGEST_BATCHING: Final = 20_000
"""Silences before a burst are counted in steps of 0.1 ms up to 2 s; longer ones count as that."""

LONG_BATCHING_MS: Final = 5
"""Silence from which on a burst after it counts to the share of batched opportunities."""

Times = NDArray[np.int64]


class Opportunities:
    """Takes their times, in order, and adds up.

    A burst is the opportunities of one millisecond of the clock. The silence before it is the time since the
    opportunity before its first; for one that comes alone it counts as none, because a receiver that hands over what
    it gathered hands over several.
    """

    def __init__(self, duration_ns: int, silences: Silences) -> None:
        self._duration_ns = duration_ns
        self.bins = Bins(duration_ns, "10ms", OPPORTUNITY_BYTES * 8)
        self.silences = silences
        self._bursts = Distribution()
        self._batching = np.zeros(_LONGEST_BATCHING + 1)
        self._longest_ns = 0
        self._first: int | None = None
        self._last = 0
        # The burst and the bin that the next times may go on with.
        self._burst = (-1, 0, 0)
        self._bin = 0
        self._in_bin = 0

    def add(self, at: Times) -> None:
        """Take the next times."""
        if self._first is None:
            self._first = self._last = int(at[0])
        gaps = np.diff(at, prepend=self._last)
        longest = int(gaps.max())
        self._longest_ns = max(self._longest_ns, longest)
        if longest >= self.silences.least_ns:
            (where,) = np.nonzero(gaps >= self.silences.least_ns)
            self.silences.add(at[where] - gaps[where], gaps[where])
        self._last = int(at[-1])
        ms = at // _MS
        begins = np.flatnonzero(np.concatenate(([True], ms[1:] != ms[:-1])))
        instants = ms[begins]
        sizes = np.diff(np.append(begins, len(at)))
        self._add_bins(instants, sizes)
        self._add_bursts(instants, sizes, gaps[begins])

    def finish(self) -> None:
        """Nothing more comes: the silence at the seam of the loop, and the bins up to the end."""
        self._count_bursts(*(np.array([each]) for each in self._burst[1:]))
        first = self._duration_ns if self._first is None else self._first
        seam = first + self._duration_ns - (self._last if self._first is not None else self._duration_ns)
        self._longest_ns = max(self._longest_ns, seam)
        begin = 0 if self._first is None else self._last
        self.silences.add(np.array([begin]), np.array([seam]))
        self._emit(self._duration_ns // self.bins.finest_ns)
        self.bins.rest(self._in_bin)

    def figures(self) -> dict[str, float]:
        """The statistics of bursts and silences."""
        found = {"longest_silence_ms": self._longest_ns / 1e6}
        if self._first is None:
            return found
        median, high = self._bursts.quantiles(np.array([0.5, 0.99]))
        upper = np.cumsum(self._batching)
        batching = [float(np.searchsorted(upper, share * upper[-1])) / 10 for share in (0.5, 0.95)]
        return found | {
            "burst_mean": self._bursts.mean,
            "burst_p50": int(median),
            "burst_p99": int(high),
            "burst_max": int(self._bursts.table()[0][-1]),
            "busy_ms_share": min(1.0, self._bursts.count * _MS / self._duration_ns),
            "batching_p50_ms": batching[0],
            "batching_p95_ms": batching[1],
            "batched_share_5ms": float(1 - upper[LONG_BATCHING_MS * 10 - 1] / upper[-1]),
        }

    def _add_bursts(self, instants: Times, sizes: Times, silences: Times) -> None:
        instant, size, silence = self._burst
        if instant == instants[0]:
            sizes[0] += size
            silences[0] = silence
        elif size:
            self._count_bursts(np.array([size]), np.array([silence]))
        self._burst = (int(instants[-1]), int(sizes[-1]), int(silences[-1]))
        self._count_bursts(sizes[:-1], silences[:-1])

    def _count_bursts(self, sizes: Times, silences: Times) -> None:
        self._bursts.add_whole(sizes, 1.0)
        several = sizes > 1
        gathered = sizes[several]
        steps = np.minimum(silences[several] // (_MS // 10), _LONGEST_BATCHING)
        self._batching += np.bincount(steps, gathered, _LONGEST_BATCHING + 1)
        self._batching[0] += sizes.sum() - gathered.sum()

    def _add_bins(self, instants: Times, sizes: Times) -> None:
        bins = instants // (self.bins.finest_ns // _MS)
        # The end of the period is its beginning: what lies on it counts to the last bin.
        bins = np.minimum(bins, max(0, -(-self._duration_ns // self.bins.finest_ns) - 1))
        begins = np.flatnonzero(np.concatenate(([True], bins[1:] != bins[:-1])))
        counts = np.add.reduceat(sizes, begins)
        numbers = bins[begins]
        if numbers[0] == self._bin:
            counts[0] += self._in_bin
            self._in_bin = 0
        self._emit_between(numbers, counts)
        self._bin, self._in_bin = int(numbers[-1]), int(counts[-1])

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
