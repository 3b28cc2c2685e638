"""Dependence over time: stationarity and autocorrelation of a series' means over a second each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cellbed.archive.statistics.distribution import dot
from cellbed.archive.statistics.spool import Spool, pieces

FEWEST: Final = 30
"""Minimum seconds."""

KPSS_5_PERCENT: Final = 0.463
"""Critical value of the statistic at 5 % for a constant level (Kwiatkowski et al., 1992, table 1)."""

LAGS_S: Final = (1, 10, 60)

_FIRST_LAGS: Final = 1 << 12
"""More than an hour, beyond the correlation time of most recordings."""

_MOST_LAGS: Final = 1 << 15
"""Lags looked at together, which takes some MB."""

Floats = NDArray[np.float64]
Values = Floats | Spool


def kpss(values: Values) -> float:
    """The statistic η_μ of Kwiatkowski, Phillips, Schmidt and Shin, Journal of Econometrics 54 (1992), eq. 13.

    Its null hypothesis is a constant level. The long-run variance is Newey and West's with the Bartlett window of
    l12 = 12 (T/100)^¼ lags, which, by the paper (§4), keeps the size under autocorrelation. Of a constant
    it is 0.
    """
    count, level = len(values), _Level.of(values)
    lags = min(int(12 * (count / 100) ** 0.25), count - 1)
    products, before = np.zeros(lags + 1), np.empty(0)
    reached = squares = 0.0
    for piece in pieces(values):
        deviations = piece - level.mean
        both = np.concatenate((before, deviations))
        for lag in range(min(lags, len(both) - 1) + 1):
            first = max(len(before), lag)
            products[lag] += dot(both[first:], both[first - lag : len(both) - lag])
        before = both[max(0, len(both) - lags) :]
        sums = reached + np.cumsum(deviations)
        squares += dot(sums, sums)
        reached = float(sums[-1])
    weights = 2 * (1 - np.arange(lags + 1) / (lags + 1))
    weights[0] = 1
    variance = dot(weights, products) / count
    return 0.0 if level.constant or variance <= 0 else squares / (count**2 * variance)


def autocorrelation(values: Values, most: int) -> Iterator[tuple[NDArray[np.int64], Floats]]:
    """Lags up to `most` and Σ (x_t − m)(x_{t+k} − m) / Σ (x_t − m)² (Box and Jenkins) at each; ones for a constant.

    In pieces, each twice as far as all before it: a caller can stop early. From 2 _MOST_LAGS on
    the values are means of two neighbours each, then of four and so on, and the lags so far apart: a piece takes no
    more memory and time than those before it (a multiple-tau correlator; Magatti and Ferri, Applied Optics 40, 2001).
    """
    level, most = _Level.of(values), min(most, len(values) - 1)
    first, size, apart = 0, _FIRST_LAGS, 1
    while first * apart <= most:
        if size > _MOST_LAGS:
            values, first, size, apart = _halved(values), first // 2, size // 2, apart * 2
        lags = np.arange(first, min(first + size, most // apart + 1)) * apart
        found = np.ones(size) if level.constant else _products(values, level.mean, first, size) * apart / level.square
        yield lags, found[: len(lags)]
        first, size = first + size, first + size


@dataclass(frozen=True, slots=True)
class _Level:
    """Mean of values, the sum of the squares of their deviations from it, and whether they are all the same."""

    mean: float
    square: float
    constant: bool

    @classmethod
    def of(cls, values: Values) -> _Level:
        total, lowest, highest = 0.0, np.inf, -np.inf
        for piece in pieces(values):
            total += float(piece.sum())
            lowest, highest = min(lowest, float(piece.min())), max(highest, float(piece.max()))
        mean, square = total / len(values), 0.0
        for piece in pieces(values):
            deviations = piece - mean
            square += dot(deviations, deviations)
        return cls(mean, square, square == 0 or lowest == highest)


def _products(values: Values, mean: float, first: int, count: int) -> Floats:
    """Σ (x_t − m)(x_{t+k} − m) for so many lags k from the first on, in memory for as many: by parts, which overlap."""
    spectrum = np.zeros(count + 1, np.complex128)
    for begin in range(0, len(values) - first, count):
        part = np.fft.rfft(values[begin : begin + count] - mean, 2 * count)
        later = np.fft.rfft(values[begin + first : begin + first + 2 * count] - mean, 2 * count)
        spectrum += part.conj() * later
    products: Floats = np.fft.irfft(spectrum, 2 * count)[:count]
    return products


def _halved(values: Values) -> Spool:
    """Means of two neighbours each; a last one without another is left out."""
    halves = Spool()
    for piece in pieces(values):
        halves.append(piece[: len(piece) // 2 * 2].reshape(-1, 2).mean(axis=1))
    return halves


def figures(seconds: Values, spacing_s: float = 1.0) -> dict[str, float | bool]:
    """Statistics of means over a second each; none of too few. spacing_s: between one and the next, 1 at least."""
    count = len(seconds)
    if count < FEWEST or _Level.of(seconds).constant:
        return {}
    statistic = kpss(seconds)
    found: dict[str, float | bool] = {"kpss": statistic, "stationary": statistic <= KPSS_5_PERCENT}
    # An estimate from fewer than four stretches of a lag is unreliable.
    for lags, correlations in autocorrelation(seconds, count // 4):
        if not lags[0]:
            wanted = [(lag_s, round(lag_s / spacing_s)) for lag_s in LAGS_S]
            found |= {
                f"autocorrelation_{lag_s}s": float(correlations[lag])
                for lag_s, lag in wanted
                if 1 <= lag < len(correlations)
            }
        below = np.flatnonzero(correlations < 1 / np.e)
        if len(below):
            found["correlation_time_s"] = float(lags[below[0]]) * spacing_s
            break
    return found
