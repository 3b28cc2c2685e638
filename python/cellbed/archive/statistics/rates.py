"""A rate over time, constant from each row to the next: the bits of each bin, and times without capacity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cellbed.archive.statistics.bins import BLOCK, SCALES_NS, Bins
from cellbed.archive.statistics.silences import Silences

Times = NDArray[np.int64]
Floats = NDArray[np.float64]


class Rates:
    """Takes rows in order of time and adds up. Before the first row there is no capacity.

    spacing_ns: time between rows of the first batch, the median; no rate is taken over less.
    least_bit_s: rates below it are no capacity.
    """

    def __init__(self, duration_ns: int, silences: Silences, least_bit_s: float, spacing_ns: float) -> None:
        self._duration_ns = duration_ns
        self.spacing_ns = spacing_ns
        self.bins = Bins(duration_ns, next((key for key, width in SCALES_NS.items() if spacing_ns <= width), "1s"))
        self.silences = silences
        self._least_bit_s = least_bit_s
        self._at = 0
        self._bit_s = 0.0
        # Whole bins before this one are handed on; the bits of it so far.
        self._bin = 0
        self._in_bin = 0.0
        silences.follow(np.array([0]), np.array([True]))

    def add(self, at: Times, bit_s: Floats) -> None:
        """Take the next rows."""
        self.silences.follow(at, bit_s < self._least_bit_s)
        at = np.concatenate(([self._at], at))
        rates = np.concatenate(([self._bit_s], bit_s))
        self._add_bits(at, rates[:-1])
        self._at, self._bit_s = int(at[-1]), float(rates[-1])

    def finish(self) -> None:
        """End the series: the last row holds to the end of the loop."""
        end = self._duration_ns
        self._add_bits(np.array([self._at, end]), np.array([self._bit_s]))
        self.bins.rest(self._in_bin)
        self.silences.close(end)

    def _add_bits(self, at: Times, bit_s: Floats) -> None:
        """Take constant rates between the times, of which there is one more."""
        width = self.bins.finest_ns
        lengths = np.diff(at)
        sums = np.concatenate(([0.0], np.cumsum(bit_s * (lengths / 1e9))))
        last = int(at[-1]) // width
        before, edge_at = 0.0, self._bin
        while edge_at < last:
            end = min(last, edge_at + BLOCK)
            edges = np.arange(edge_at + 1, end + 1) * width
            # Times count from the first, so that they are exact as floating point.
            reached = np.interp((edges - at[0]).astype(np.float64), (at - at[0]).astype(np.float64), sums)
            bits = np.diff(reached, prepend=before)
            bits[0] += self._in_bin
            self._in_bin = 0.0
            self.bins.add(np.maximum(bits, 0.0))
            before, edge_at = float(reached[-1]), end
        self._bin = max(self._bin, last)
        self._in_bin += float(sums[-1]) - before
