"""Percentiles with intervals, or the reason for a refusal; differences between runs. Pure, seeded.

A request without a good reply counts as longer than every reply (+inf). If such requests were left out, a run that
lost or refused more requests would look better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from cellbed.measure.distributions import binomial_cdf

CONFIDENCE = 0.95
PRACTICAL = 0.01
"""Minimum difference of practical size, as a share of the reference value."""
Samples = NDArray[np.float64]
_ORDINATES = np.arange(1, 97)
"""Ordinates of a spectrum, the lowest, that estimate a correlation time."""
_EXPONENTS = np.linspace(0, 0.45, 10)[:, None]
"""Exponents d of spectra that grow as frequency^(−2 d) towards 0: 0 is independence; the Hurst exponent is d + 0.5."""
_CORNERS = 1.5 * 2.0 ** np.arange(6)[:, None]
"""Ordinates below which the spectrum of a process with short memory is flat."""
_DECAYS = 1 / (1 + (_ORDINATES / _CORNERS) ** 2)
_FLOOR = 0.3
"""Independent part of a process with short memory, as a share of the other part at frequency 0."""
_SHAPES = np.vstack([_ORDINATES ** (-2 * _EXPONENTS), _DECAYS, _DECAYS + _FLOOR])
_AT_ZERO = np.append(
    [math.pi ** (2 * d) * np.sinc(d) * math.gamma(1 - 2 * d) / (1 + 2 * d) for d in _EXPONENTS.flat],
    np.repeat([1, 1 + _FLOOR], len(_CORNERS)),
)
"""Variance of the mean of n values, times n, for each shape of their spectrum (after Beran, Statistics for Long-Memory
Processes, 1994, ch. 2). ``benches/interval_coverage.py`` checks the shapes."""


@dataclass(frozen=True, slots=True)
class Percentile:
    """A percentile with its 95 % confidence interval.

    quantile: 0 to 1. requests: size of the sample. value, low, high: seconds; `low` and `high` are the order statistics
    of `low_rank` and `high_rank` (1-based). All are ``None`` if the sample is too small. `low` and `high` are ``None``
    if the sample counts as too few independent requests; `value` or `high` alone if it falls among requests without a
    reply. `note` is the reason. independent: number of independent requests that the sample counts as
    (:func:`percentiles`); ``None`` if the sample is too small.
    """

    quantile: float
    requests: int
    value: float | None
    low: float | None
    high: float | None
    low_rank: int | None
    high_rank: int | None
    note: str | None
    independent: int | None

    @property
    def label(self) -> str:
        return label(self.quantile)

    @property
    def supported(self) -> bool:
        """Return whether the sample is large enough for the value."""
        return self.requests >= smallest_sample(self.quantile)

    @property
    def has_interval(self) -> bool:
        """Return whether the requests are independent enough for an interval, perhaps an open one."""
        return self.low_rank is not None


def label(quantile: float) -> str:
    """Return the label of a percentile: ``"median"``, ``"P90"``, ``"P99.9"``."""
    return "median" if quantile == 0.5 else f"P{quantile * 100:g}"


def percentiles(samples: Samples, quantiles: Sequence[float]) -> list[Percentile]:
    """Return percentiles of `samples`: seconds in order of time, +inf for requests without a good reply.

    The interval is distribution-free (:func:`interval_ranks`). The number of independent requests that the sample
    counts as gives its ranks, which are scaled to the sample.
    """
    n, ordered = len(samples), np.sort(samples)
    found, shares = [], _shares(samples) if any(n >= smallest_sample(each) for each in quantiles) else None
    for quantile in quantiles:
        if n < smallest_sample(quantile):
            found.append(Percentile(quantile, n, None, None, None, None, None, _refusal(n, quantile), None))
            continue
        found.append(_with_interval(ordered, quantile, int(_independent(samples, quantile, shares))))
    return found


def _with_interval(ordered: Samples, quantile: float, independent: int) -> Percentile:
    """Return a percentile of sorted samples that count as `independent` samples."""
    n, ranks = len(ordered), interval_ranks(independent, quantile)
    value, low, high = float(ordered[rank(n, quantile) - 1]), math.inf, math.inf
    if ranks is None:
        note: str | None = (
            f"no interval: {label(quantile)} needs {smallest_sample(quantile)} independent requests; these {n} count "
            f"as {independent}"
        )
    else:
        scale = (n + 1) / (independent + 1)
        ranks = max(1, math.floor(ranks[0] * scale + 1e-9)), min(n, math.ceil(ranks[1] * scale - 1e-9))
        low, high = (float(ordered[at - 1]) for at in ranks)
        note = "no upper bound" if math.isinf(high) else None
    if math.isinf(value):
        note = "not finite"
    if math.isinf(value) or (ranks and math.isinf(high)):
        note = f"{note}: {int(np.isinf(ordered).sum())} of {n} requests got no good reply"
    low_rank, high_rank = ranks or (None, None)
    return Percentile(quantile, n, finite(value), finite(low), finite(high), low_rank, high_rank, note, independent)


def percentile(samples: Samples, quantile: float) -> Percentile:
    """Return one of the :func:`percentiles`."""
    return percentiles(samples, (quantile,))[0]


def percentile_value(samples: Samples, quantile: float) -> float:
    """Return the order statistic of :func:`rank`; +inf if it is a request without a good reply."""
    place = rank(len(samples), quantile) - 1
    return float(np.partition(samples, place)[place])


def rank(n: int, quantile: float) -> int:
    """Return the rank (1-based) of a percentile's value among `n` samples.

    The rank is ceil(n · quantile), the inverse of the empirical distribution function. So the value is always the
    latency of a request, and is never interpolated towards infinity.
    """
    return math.ceil(n * quantile - 1e-9)


def _independent(samples: Samples, quantile: float, shares: Samples | None = None) -> float:
    """Return the number of independent requests that give a percentile as precisely as `samples`. shares: of
    :func:`_shares`.

    The share of requests below the percentile has the variance of n / τ independent requests, where τ is the sum of the
    autocorrelations of "below or not". A short series that visits a tail once shows too little autocorrelation. So τ is
    at least the τ of scores from all requests: their ranks r, above the median −log(1 − r / n).
    """
    shares, value = _shares(samples) if shares is None else shares, percentile_value(samples, quantile)
    of_scores, below = _correlation_time(shares if quantile <= 0.5 else -np.log(1 - shares)), samples <= value
    time = _correlation_time((samples < value if below.all() else below).astype(np.float64))
    return len(samples) / max(of_scores, time)


def _correlation_time(series: Samples) -> float:
    """Return the sum of the autocorrelations of a series at all lags, positive and negative, at least 1.

    The sum is the spectrum at frequency 0. A spectrum that still grows towards 0 counts as growing on: the lowest
    ordinates of the cosine transform are squared normal values around `_SHAPES`, times a level. The result is the root
    mean square over the shapes, weighted by their likelihoods (after Müller & Watson, "Measuring Uncertainty about
    Long-Run Predictions", Review of Economic Studies 83, 2016): an uncertain shape counts as strong dependence.
    """
    if series.min() == series.max():
        return 1.0
    mirrored = np.concatenate([series, series[::-1]]) - series.mean()  # its Fourier transform is the cosine transform
    lowest = np.fft.rfft(mirrored)[1 : len(series)][: len(_ORDINATES)]
    spectrum, shapes = np.abs(lowest) ** 2 / len(mirrored) / series.var(), _SHAPES[:, : len(lowest)]
    levels = (spectrum / shapes).mean(axis=1) + np.finfo(float).tiny
    logs = -np.log(shapes).sum(axis=1) / 2 - len(lowest) / 2 * np.log(levels)
    return max(1.0, math.sqrt(np.average((levels * _AT_ZERO) ** 2, weights=np.exp(logs - logs.max()))))


def _shares(samples: Samples) -> Samples:
    """Return the share of smaller samples, and half of itself, for each sample; equal samples, such as requests without
    a good reply, share the mean."""
    _, place, count = np.unique(samples, return_inverse=True, return_counts=True)
    ranks: Samples = (np.cumsum(count) - (count - 1) / 2)[place]
    return (ranks - 0.5) / len(samples)


@cache
def interval_ranks(n: int, quantile: float) -> tuple[int, int] | None:
    """Return the ranks (1-based) of the order statistics that bound a distribution-free interval for a percentile, or
    None.

    Equal tails: the largest l and the smallest u with P(B < l) ≤ α/2 and P(B ≥ u) ≤ α/2, B binomial(n, quantile),
    α = 5 % (Hahn & Meeker, Statistical Intervals, 1991, §5.2). None if l would be 0 or u would exceed n.
    Assumes independent samples.
    """
    tail = (1 - CONFIDENCE) / 2
    if n < smallest_sample(quantile):
        return None
    cumulative = binomial_cdf(n, quantile)
    low = int(np.searchsorted(cumulative, tail, side="right"))  # number of k with P(B ≤ k) ≤ α/2
    high = int(np.searchsorted(cumulative, 1 - tail, side="left")) + 1  # the first k with P(B ≤ k) ≥ 1 − α/2, plus one
    return low, high


@cache
def smallest_sample(quantile: float) -> int:
    """Return the smallest sample that supports an interval for this percentile: 6 for the median, 36 for P90, 368
    for P99.

    The interval exists when the extreme order statistics bound it: quantile^n ≤ α/2 and (1 − quantile)^n ≤
    α/2.
    """
    tail = (1 - CONFIDENCE) / 2
    return math.ceil(math.log(tail) / math.log(max(quantile, 1 - quantile)) - 1e-9)


def finite(value: float) -> float | None:
    """Return the value, ``None`` if it is infinite or NaN."""
    return value if math.isfinite(value) else None


def _refusal(n: int, quantile: float) -> str:
    least, verb = smallest_sample(quantile), "is" if n == 1 else "are"
    return f"refused: {label(quantile)} needs at least {least} requests for a 95 % interval; there {verb} {n}"


def refusals(n: int, quantiles: Iterable[float]) -> str | None:
    """Return the percentiles that `n` requests do not support, with the required numbers; None if there are none."""
    least = [f"{label(each)} at least {smallest_sample(each)}" for each in quantiles if n < smallest_sample(each)]
    return f"there {'is 1 request' if n == 1 else f'are {n} requests'}: {', '.join(least)}" if least else None


_DRAWS = 10_000


def percentile_difference(
    first: Samples, second: Samples, quantile: float, *, paired: bool
) -> tuple[float, float, float]:
    """Return the difference second − first of a percentile of two runs and its 95 % interval (value, low, high).

    first, second: latencies in order of time, seconds, +inf without a good reply; paired: whether both have the same
    requests. A bound is infinite if the runs do not support it, or if it falls among requests without a good reply.

    The share of requests below a percentile has a normal error, with the variance of the number of independent requests
    that the run counts as. The empirical quantile function turns this error into an error of the latency (Woodruff,
    "Confidence Intervals for Medians and Other Position Measures", Journal of the American Statistical Association 47,
    1952; for dependent sequences Sen, "On the Bahadur Representation of Sample Quantiles for Sequences of φ-Mixing
    Random Variables", Journal of Multivariate Analysis 2, 1972). Errors of pairs are correlated: the variance of their
    difference follows from the series "below the percentile in one run but not in the other". Both cases need as many
    independent requests as a percentile (:func:`percentiles`).
    """
    runs = first, second
    values = [percentile_value(run, quantile) for run in runs]
    value = 0.0 if values[0] == values[1] else values[1] - values[0]
    counts = [_independent(run, quantile) for run in runs]
    apart = (second <= values[1]).astype(np.float64) - (first <= values[0]) if paired else None
    certain = min(counts) if apart is None else len(apart) / _correlation_time(apart)
    if certain < smallest_sample(quantile) or not np.isfinite(values).all():
        return value, -math.inf, math.inf
    if apart is None:
        deviations, correlation = [math.sqrt(quantile * (1 - quantile) / each) for each in counts], 0.0
    else:
        differ = np.count_nonzero(apart)
        variance = (differ + 4 * (differ > 0)) / len(apart) / certain  # four more, after Agresti & Coull, 1998
        deviations = [max(math.sqrt(quantile * (1 - quantile) / each), math.sqrt(variance) / 2) for each in counts]
        covariance = (deviations[0] ** 2 + deviations[1] ** 2 - variance) / 2
        correlation = float(np.clip(covariance / (deviations[0] * deviations[1]), -1, 1))
    error, rest = np.random.default_rng(1).standard_normal((2, _DRAWS))
    errors = deviations[0] * error, deviations[1] * (correlation * error + math.sqrt(1 - correlation**2) * rest)
    drawn = []
    for run, each in zip(runs, errors, strict=True):
        ranks = np.clip(np.ceil(len(run) * (quantile + each)), 1, len(run) + 1).astype(int)
        drawn.append(np.append(np.sort(run), np.inf)[ranks - 1])
    with np.errstate(invalid="ignore"):  # ∞ − ∞ is undefined
        return value, *_bounds(drawn[1] - drawn[0])


def median_of_pairs(first: Samples, second: Samples) -> tuple[float, float, float]:
    """Return the median over requests of second − first and its 95 % interval (value, low, high), by the rule of
    :func:`percentiles`; −inf and +inf without an interval.

    first, second: latencies of the same requests in order of time, seconds, +inf without a good reply. A request
    without a good reply in both is left out; at least one request must remain.
    """
    answered = np.isfinite(first) | np.isfinite(second)
    differences = second[answered] - first[answered]
    ordered = np.sort(differences)
    at = _with_interval(ordered, 0.5, int(_independent(differences, 0.5)))
    low = -math.inf if at.low_rank is None else float(ordered[at.low_rank - 1])
    high = math.inf if at.high_rank is None else float(ordered[at.high_rank - 1])
    return float(ordered[rank(len(ordered), 0.5) - 1]), low, high


def _bounds(drawn: Samples) -> tuple[float, float]:
    """Return the 95 % interval of resampled values; NaN stands for any number."""
    tail = (1 - CONFIDENCE) / 2
    low, high = (np.where(np.isnan(drawn), unknown, drawn) for unknown in (-math.inf, math.inf))
    return float(np.quantile(low, tail, method="lower")), float(np.quantile(high, 1 - tail, method="higher"))


def as_number(value: object) -> float | None:
    """Return an aggregate of a series as a number, ``None`` if there is none."""
    return float(value) if isinstance(value, int | float) else None
