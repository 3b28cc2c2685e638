"""Percentiles with intervals, or the words why there is none. Pure: samples in, numbers out.

A request that never got a reply counts as longer than every reply (+inf). Leaving such requests out would
make a run look better the more of them it lost.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
Samples = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Percentile:
    """A percentile with its 95 % confidence interval.

    quantile: 0 to 1. requests: size of the sample. value, low, high: seconds, `low` and `high` from the order
    statistics of `low_rank` and `high_rank` (1-based; Hahn & Meeker, 1991, §5.2). All are ``None`` where the
    sample cannot support the interval; `value` or `high` alone is ``None`` where it falls among requests that
    got no reply. `note` says so in words.
    """

    quantile: float
    requests: int
    value: float | None
    low: float | None
    high: float | None
    low_rank: int | None
    high_rank: int | None
    note: str | None

    @property
    def label(self) -> str:
        return label(self.quantile)

    @property
    def supported(self) -> bool:
        return self.low_rank is not None


def label(quantile: float) -> str:
    """``"median"``, ``"P90"``, ``"P99.9"``."""
    return "median" if quantile == 0.5 else f"P{quantile * 100:g}"


def percentile(samples: Samples, quantile: float) -> Percentile:
    """The percentile of `samples` (seconds, in any order, +inf for requests without a reply).

    The value is the order statistic of rank ceil(n · quantile), the inverse of the empirical distribution
    function, so that it is always the latency of a request and nothing is interpolated towards infinity.
    """
    n = len(samples)
    ranks = interval_ranks(n, quantile)
    if ranks is None:
        return Percentile(quantile, n, None, None, None, None, None, _refusal(n, quantile))
    ordered = np.sort(samples)
    value = float(ordered[math.ceil(n * quantile - 1e-9) - 1])
    low, high = float(ordered[ranks[0] - 1]), float(ordered[ranks[1] - 1])
    missing = int(np.isinf(ordered).sum())
    note = None
    if math.isinf(value):
        note = f"not finite: {missing} of {n} requests got no reply"
    elif math.isinf(high):
        note = f"no upper bound: {missing} of {n} requests got no reply"
    return Percentile(quantile, n, _finite(value), _finite(low), _finite(high), *ranks, note)


@cache
def interval_ranks(n: int, quantile: float, confidence: float = CONFIDENCE) -> tuple[int, int] | None:
    """Ranks (1-based) of the order statistics that bound a distribution-free interval for a percentile, or
    None.

    Equal tails: the largest l and the smallest u with P(B < l) ≤ α/2 and P(B ≥ u) ≤ α/2, B binomial(n,
    quantile), α = 1 − confidence (Hahn & Meeker, Statistical Intervals, 1991, §5.2). None where l would be 0
    or u beyond n. It assumes independent samples; requests of one run are not, so an interval describes its
    run and repetitions compare runs.
    """
    tail = (1 - confidence) / 2
    if n < needed(quantile, confidence):
        return None
    cumulative = np.cumsum(_binomial(n, quantile))  # P(B ≤ k)
    low = int(np.searchsorted(cumulative, tail, side="right"))  # number of k with P(B ≤ k) ≤ α/2
    high = int(np.searchsorted(cumulative, 1 - tail, side="left")) + 1  # the first k with P(B ≤ k) ≥ 1 − α/2, plus one
    return low, high


@cache
def needed(quantile: float, confidence: float = CONFIDENCE) -> int:
    """The smallest sample that supports an interval for this percentile: 6 for the median, 36 for P90, 368
    for P99.

    The interval exists when the extreme order statistics bound it: quantile^n ≤ α/2 and (1 − quantile)^n ≤
    α/2.
    """
    tail = (1 - confidence) / 2
    return math.ceil(math.log(tail) / math.log(max(quantile, 1 - quantile)) - 1e-9)


def _binomial(n: int, p: float) -> Samples:
    """P(B = k) for k = 0 … n, by logarithms so that large n neither overflow nor vanish."""
    k = np.arange(n + 1)
    log_factorial = np.r_[0.0, np.cumsum(np.log(np.arange(1, n + 1)))]
    logarithm = log_factorial[n] - log_factorial[k] - log_factorial[n - k] + k * math.log(p) + (n - k) * math.log1p(-p)
    return np.asarray(np.exp(logarithm), np.float64)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _refusal(n: int, quantile: float) -> str:
    verb = "is" if n == 1 else "are"
    return (
        f"refused: {label(quantile)} needs at least {needed(quantile)} requests for a 95 % interval; there {verb} {n}"
    )
