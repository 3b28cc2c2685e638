"""Dependence over time: stationarity and autocorrelation of the means over each second."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

FEWEST: Final = 30
"""Minimum number of means."""

KPSS_5_PERCENT: Final = 0.463
"""Critical value of the statistic at 5 % for a constant level (Kwiatkowski et al., 1992, table 1)."""

LAGS_S: Final = (1, 10, 60)

Floats = NDArray[np.float64]


def kpss(values: Floats) -> float:
    """Return the statistic η_μ of Kwiatkowski, Phillips, Schmidt and Shin, Journal of Econometrics 54 (1992), eq. 13.

    The statistic tests for a constant level. The long-run variance is Newey and West's with the Bartlett window of
    l12 = 12 (T/100)^¼ lags, which, by the paper (§4), keeps the size under autocorrelation. For constant values the
    statistic is 0.
    """
    count = len(values)
    deviations = values - values.mean()
    lags = min(int(12 * (count / 100) ** 0.25), count - 1)
    products = [_dot(deviations[lag:], deviations[: count - lag]) for lag in range(lags + 1)]
    variance = (products[0] + sum(2 * (1 - lag / (lags + 1)) * products[lag] for lag in range(1, lags + 1))) / count
    sums = np.cumsum(deviations)
    return 0.0 if _constant(values) or variance <= 0 else _dot(sums, sums) / (count**2 * variance)


def autocorrelation(values: Floats, most: int) -> Floats:
    """Return Σ (x_t − m)(x_{t+k} − m) / Σ (x_t − m)² (Box and Jenkins) at each lag k up to `most`.

    Constant values give ones.
    """
    deviations, lags = values - values.mean(), min(most, len(values) - 1) + 1
    if _constant(values):
        return np.ones(lags)
    # Pad to a power of two, at least twice as long: then the circular correlation equals the linear one.
    length = 1 << (2 * len(values) - 1).bit_length()
    products = np.fft.irfft(np.abs(np.fft.rfft(deviations, length)) ** 2, length)[:lags]
    correlations: Floats = products / _dot(deviations, deviations)
    return correlations


def figures(seconds: Floats, spacing_s: float = 1.0) -> dict[str, float | bool]:
    """Return the statistics of means over each second; empty if there are too few means.

    spacing_s: mean time from one mean to the next, at least 1.
    """
    count = len(seconds)
    if count < FEWEST or _constant(seconds):
        return {}
    statistic = kpss(seconds)
    found: dict[str, float | bool] = {"kpss": statistic, "stationary": statistic <= KPSS_5_PERCENT}
    # An estimate from fewer than four stretches of a lag is unreliable.
    correlations = autocorrelation(seconds, count // 4)
    for lag_s in LAGS_S:
        lag = round(lag_s / spacing_s)
        if 1 <= lag < len(correlations):
            found[f"autocorrelation_{lag_s}s"] = float(correlations[lag])
    below = np.flatnonzero(correlations < 1 / np.e)
    if len(below):
        found["correlation_time_s"] = float(below[0]) * spacing_s
    return found


def _constant(values: Floats) -> bool:
    """Return whether the values differ by no more than rounding."""
    return bool(np.ptp(values) <= 1e-12 * np.abs(values).max())


def _dot(first: Floats, second: Floats) -> float:
    """Return Σ a b in one thread: the library of the operator `@` wakes threads that then wait in a busy loop."""
    return float(np.einsum("i,i->", first, second))
