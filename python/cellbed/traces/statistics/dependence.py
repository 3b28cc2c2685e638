"""How a series hangs together in time: stationarity and autocorrelation of its means over a second each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cellbed.traces.statistics.products import dot

FEWEST: Final = 30
"""Seconds below which nothing is said."""

KPSS_5_PERCENT: Final = 0.463
"""Critical value of the statistic at 5 % for a constant level (Kwiatkowski et al., 1992, table 1)."""

LAGS_S: Final = (1, 10, 60)

_FIRST_LAGS: Final = 1 << 12
"""More than an hour, which most recordings have forgotten themselves in."""

Floats = NDArray[np.float64]


def kpss(values: Floats) -> float:
    """The statistic η_μ of Kwiatkowski, Phillips, Schmidt and Shin, Journal of Econometrics 54 (1992), eq. 13.

    Its null hypothesis is a constant level. The long-run variance is Newey and West's with the Bartlett window of
    l12 = 12 (T/100)^¼ lags, of which the paper says (§4) that it keeps the size under autocorrelation. Of a constant
    it is 0.
    """
    count = len(values)
    deviations = values - values.mean()
    lags = min(int(12 * (count / 100) ** 0.25), count - 1)
    variance = dot(deviations, deviations) / count
    for lag in range(1, lags + 1):
        variance += 2 * (1 - lag / (lags + 1)) * dot(deviations[lag:], deviations[:-lag]) / count
    if variance <= 0 or np.ptp(values) == 0:
        return 0.0
    sums = np.cumsum(deviations, out=deviations)
    return dot(sums, sums) / (count**2 * variance)


def autocorrelation(values: Floats, most: int) -> Floats:
    """At lags 0 to `most`: Σ (x_t − m)(x_{t+k} − m) / Σ (x_t − m)² (Box and Jenkins); ones for a constant."""
    return np.concatenate(list(_by_lags(values, most)))


def _by_lags(values: Floats, most: int) -> Iterator[Floats]:
    """The same, in pieces of which each has as many lags as all before it: who has found his needs no more."""
    deviations = values - values.mean()
    square = dot(deviations, deviations)
    constant = square == 0 or np.ptp(values) == 0
    most = min(most, len(values) - 1)
    first, size = 0, _FIRST_LAGS
    while first <= most:
        products = np.ones(size) if constant else _products(deviations, first, size) / square
        yield products[: most + 1 - first]
        first, size = first + size, first + size


def _products(values: Floats, first: int, count: int) -> Floats:
    """Σ x_t x_{t+k} for so many lags k from the first on, in memory for as many: by parts, which overlap."""
    spectrum = np.zeros(count + 1, np.complex128)
    for begin in range(0, len(values) - first, count):
        part = np.fft.rfft(values[begin : begin + count], 2 * count)
        later = np.fft.rfft(values[begin + first : begin + first + 2 * count], 2 * count)
        spectrum += part.conj() * later
    products: Floats = np.fft.irfft(spectrum, 2 * count)[:count]
    return products


def figures(seconds: Floats, spacing_s: float = 1.0) -> dict[str, float | bool]:
    """Statistics of means over a second each; none of too few. spacing_s: between one and the next, 1 at least."""
    count = len(seconds)
    if count < FEWEST or np.ptp(seconds) == 0:
        return {}
    statistic = kpss(seconds)
    found: dict[str, float | bool] = {"kpss": statistic, "stationary": statistic <= KPSS_5_PERCENT}
    # An estimate from less than four stretches of a lag says little.
    first, pieces = 0, _by_lags(seconds, count // 4)
    for correlations in pieces:
        if not first:
            lags = [(lag_s, round(lag_s / spacing_s)) for lag_s in LAGS_S]
            found |= {
                f"autocorrelation_{lag_s}s": float(correlations[lag])
                for lag_s, lag in lags
                if 1 <= lag < len(correlations)
            }
        below = np.flatnonzero(correlations < 1 / np.e)
        if len(below):
            found["correlation_time_s"] = float(first + below[0]) * spacing_s
            break
        first += len(correlations)
    return found
