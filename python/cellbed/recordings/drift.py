"""The drift of a path's delay, separated from random waits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MS = 1_000_000
_STEP = 250 * _MS
_FEWEST = 8
"""Minimum number of delays in a window, which widens accordingly."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A delay over time, linear between points. times, delays: ns, of one length."""

    times: Int64
    delays: Floats

    def at(self, times: Int64) -> Floats:
        """Return the delay at some instants, constant beyond the ends."""
        found: Floats = np.interp(times, self.times, self.delays)
        return found


@dataclass(frozen=True, slots=True)
class Drift:
    """A running low quantile of the delays.

    quantile: waits only add to the path's delay, so the delays have a sharp lower edge, which needs fewer packets than
    the middle. widths: ns; of windows, of which the best is chosen.
    """

    quantile: float = 0.1
    widths: tuple[int, ...] = (500 * _MS, 1000 * _MS, 2000 * _MS, 4000 * _MS, 8000 * _MS, 16_000 * _MS)

    def edge(self, delays: Floats) -> float:
        """Return the quantile of some delays."""
        return float(np.quantile(delays, self.quantile))

    def trend(self, sent: Int64, delay: Floats) -> Trend:
        """Return the quantile over time. sent, delay: ns, of packets in order of sending.

        The window is the one with which half of the packets best predict the quantile of the other half. A wide one
        cannot follow the drift, a narrow one mistakes chance for drift, above all with long waits, as for a grant.
        """
        return self._running(sent, delay, min(self.widths, key=lambda width: self._surprise(sent, delay, width)))

    def _surprise(self, sent: Int64, delay: Floats, width: int) -> float:
        """Return the error with which half of the packets predict the other (Koenker and Bassett, "Regression
        quantiles", Econometrica 46, 1978)."""
        wrong = 0.0
        for half in (np.arange(len(sent)) % 2 == odd for odd in (0, 1)):
            over = delay[~half] - self._running(sent[half], delay[half], width).at(sent[~half])
            wrong += float(np.where(over >= 0, self.quantile * over, (self.quantile - 1) * over).sum())
        return wrong

    def _running(self, sent: Int64, delay: Floats, width: int) -> Trend:
        grid = np.arange(0, sent[-1] + _STEP, _STEP)
        found = []
        for middle in grid:
            begin, end = np.searchsorted(sent, [middle - width // 2, middle + width // 2])
            if end - begin < _FEWEST:
                near = int(np.searchsorted(sent, middle))
                begin, end = max(0, near - _FEWEST // 2), min(len(sent), near + _FEWEST // 2)
                begin = min(begin, max(0, end - _FEWEST))
            found.append(self.edge(delay[begin:end]))
        return Trend(grid.astype(np.int64), np.maximum(np.array(found), 0))
