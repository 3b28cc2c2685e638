"""Bits per bin of time: a stream of the finest bins, folded into wider ones."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cellbed.archive.statistics.distribution import Distribution, dot
from cellbed.archive.statistics.spool import Spool

SCALES_NS: Final = {"10ms": 10**7, "100ms": 10**8, "1s": 10**9}
"""Over how long rates are taken."""

MOST_STEPS: Final = 4000
"""Bins of the profile, which pictures are drawn from."""

BLOCK: Final = 1 << 14
"""Bins made at once, so that a long silence needs no more memory than a short one."""

Floats = NDArray[np.float64]


class Fold:
    """Sums of a number of neighbours each; a remainder waits for more."""

    def __init__(self, factor: int) -> None:
        self._factor = factor
        self._rest = np.empty(0)

    def __call__(self, bins: Floats) -> Floats:
        """The sums that `bins` complete."""
        if self._factor == 1:
            return bins
        bins = np.concatenate((self._rest, bins))
        whole = len(bins) // self._factor * self._factor
        self._rest = bins[whole:]
        folded: Floats = bins[:whole].reshape(-1, self._factor).sum(axis=1)
        return folded


class Bins:
    """Takes what each finest bin carries, in order of time.

    finest: a key of SCALES_NS. unit: bits of one, where bins carry whole numbers of something; None: they carry bits. A
    last bin that the series does not fill is in none of the rates; a series shorter than a bin has none of that width.
    bits: all of them.

    rates: distribution of the rate in bit/s by scale. seconds: means over a second each. profile: means over
    `profile_ns` each, MOST_STEPS at most.
    """

    def __init__(self, duration_ns: int, finest: str, unit: int | None = None) -> None:
        self._unit = unit
        self.finest_ns = SCALES_NS[finest]
        self.rates = {scale: Distribution() for scale, width in SCALES_NS.items() if width >= self.finest_ns}
        self._folds = {scale: Fold(SCALES_NS[scale] // self.finest_ns) for scale in self.rates}
        self.profile_ns = _round_width(duration_ns / MOST_STEPS, self.finest_ns)
        self._profile_fold = Fold(self.profile_ns // self.finest_ns)
        self._profile: list[Floats] = []
        self.seconds = Spool()
        self._last: dict[str, float] = {}
        self._products = 0.0
        self.bits = 0.0

    def add(self, carried: Floats) -> None:
        """Take the next bins."""
        unit = self._unit or 1
        self.bits += float(carried.sum()) * unit
        for scale, fold in self._folds.items():
            folded = fold(carried)
            if not len(folded):
                continue
            factor = unit * 1e9 / SCALES_NS[scale]
            rates = folded * factor
            if self._unit:
                self.rates[scale].add_whole(folded.astype(np.int64), factor)
            else:
                self.rates[scale].add(rates)
            if scale == "100ms":
                self._products += dot(rates[1:], rates[:-1]) + self._last.get(scale, 0.0) * float(rates[0])
                self._last[scale] = float(rates[-1])
            if scale == "1s":
                self.seconds.append(rates)
        self._profile.append(self._profile_fold(carried) * (unit * 1e9 / self.profile_ns))

    def rest(self, carried: float) -> None:
        """Take the content of an incomplete last bin: it counts in the total and in no rate."""
        self.bits += carried * (self._unit or 1)

    @property
    def profile(self) -> Floats:
        return np.concatenate(self._profile) if self._profile else np.empty(0)

    def next_to_each_other(self) -> float | None:
        """Autocorrelation of the rates over 100 ms at a lag of one; None if undefined."""
        rates = self.rates.get("100ms")
        if rates is None or rates.count < 100 or rates.deviation <= 1e-9 * rates.mean:
            return None
        return float((self._products / (rates.count - 1) - rates.mean**2) / rates.deviation**2)

    def figures(self) -> dict[str, float]:
        """The statistics of the rates over each scale."""
        found: dict[str, float] = {}
        for scale, rates in self.rates.items():
            if not rates.count:
                continue
            quantiles = rates.quantiles(np.array(PERCENTILES) / 100)
            found |= {f"p{at}_bit_s_{scale}": float(rate) for at, rate in zip(PERCENTILES, quantiles, strict=True)}
            if rates.mean > 0:
                found[f"cv_{scale}"] = rates.deviation / rates.mean
        if (next_one := self.next_to_each_other()) is not None:
            found["autocorrelation_100ms"] = next_one
        return found


PERCENTILES: Final = (1, 5, 25, 50, 75, 95, 99)


def _round_width(least_ns: float, finest_ns: int) -> int:
    """A round number of finest bins that is no shorter than `least_ns`."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power * finest_ns >= least_ns:
                return factor * power * finest_ns
        power *= 10
