"""Repetitions of an experiment: intervals, paired comparisons, how many more are needed. Pure.

The unit is the repetition, with one value each, such as the P99 of its latency. The requests of a run share its trace
offset and seed, so they are a single draw of everything that is random between runs. For intervals within a run see
:mod:`cellbed.measure.statistics`. SciPy is imported inside functions because its import takes long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellbed.measure.distributions import binomial_cdf, student_cdf, student_quantile
from cellbed.measure.statistics import CONFIDENCE, finite, smallest_sample

Values = NDArray[np.float64]

_LEAST_CONFIDENCE = 0.93
"""Minimum confidence of the whole range as an interval of the median, if no interval with equal tails has the wanted
confidence: the range of five values contains the median with 93.75 %."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A value over repetitions with its interval, in the unit of the values.

    value, low, high: ``None`` if the repetitions do not support them; `note` is the reason. repetitions: number of
    repetitions.
    """

    value: float | None
    low: float | None
    high: float | None
    repetitions: int
    note: str | None = None

    @property
    def half_width(self) -> float | None:
        """Return half the width of the interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


_LEAST = 3
"""Minimum number of repetitions for an interval of a mean: Student's t is 12.7 for two, 4.3 for three."""


def mean_interval(values: ArrayLike, least: float = -math.inf, most: float = math.inf) -> Interval:
    """Return the mean over repetitions with its 95 % interval (:func:`mean_bounds`).

    Args:
        values: At least three, all finite.
        least: Lower limit of the quantity, such as 0 for a share.
        most: Upper limit of the quantity, such as 1 for a share.

    Returns:
        The interval. For other values the bounds are missing, and a note states why.
    """
    sample, n = _sample(values)
    if (wrong := _unusable(sample)) is not None:
        return Interval(None, None, None, n, note=wrong)
    mean = float(sample.mean())
    if n < _LEAST:
        note = f"refused: an interval needs {_LEAST} repetitions; there {'is' if n == 1 else 'are'} {n}"
        return Interval(mean, None, None, n, note=note)
    low, high = mean_bounds(sample, least, most)
    return Interval(mean, float(low), float(high), n)


def mean_bounds(samples: Values, least: float = -math.inf, most: float = math.inf) -> tuple[Values, Values]:
    """Return the bounds of the 95 % interval of the mean for samples along the last axis, at least two values each.

    The interval is Student's. If the quantity cannot be below 0 and no value is 0, it is Student's of the logarithm of
    the mean (whose error is the relative error of the mean), which fits skewed values better. No bound is below
    `least` or above `most`.
    """
    n = samples.shape[-1]
    mean, half = samples.mean(-1), _t(n) * samples.std(-1, ddof=1) / math.sqrt(n)
    low, high = mean - half, mean + half
    if least >= 0:
        positive = (samples > 0).all(-1)
        factor = np.exp(np.minimum(half / np.where(positive, mean, 1), 700))
        low, high = np.where(positive, mean / factor, low), np.where(positive, mean * factor, high)
    return np.clip(low, least, most), np.clip(high, least, most)


def median_interval(values: ArrayLike) -> Interval:
    """Return the median over repetitions with a 95 % interval that assumes no distribution (:func:`median_bounds`).

    Values may be +inf (no finite percentile in a repetition). With too few values for the interval, the result is the
    whole range if its confidence is at least 93 %, as for five values; else the interval is refused.
    """
    sample, n = _sample(values)
    if (wrong := _unusable(sample, infinite=True)) is not None:
        return Interval(None, None, None, n, note=wrong)
    value = finite(float(np.median(sample)))
    if 2 * 0.5**n > 1 - _LEAST_CONFIDENCE:  # probability that the median lies outside of the range
        least, verb = smallest_sample(0.5), "is" if n == 1 else "are"
        note = f"refused: an interval of the median needs at least {least} repetitions; there {verb} {n}"
        return Interval(value, None, None, n, note=note)
    low, high = median_bounds(sample)
    return Interval(value, finite(float(low)), finite(float(high)), n)


def median_bounds(samples: Values) -> tuple[Values, Values]:
    """Return the bounds of the 95 % interval of the median for samples along the last axis, by interpolated order
    statistics; the whole range for too few samples.

    Hettmansperger & Sheather, "Confidence intervals based on interpolated order statistics", Statistics & Probability
    Letters 4, 1986. Plain order statistics are conservative: 97.9 % for the median of ten values.
    """
    ordered = np.sort(samples, -1)
    if ordered.shape[-1] < smallest_sample(0.5):
        return ordered[..., 0], ordered[..., -1]
    return _lower_end(ordered), -_lower_end(-ordered[..., ::-1])


def _lower_end(ordered: Values) -> Values:
    n, tail = ordered.shape[-1], (1 - CONFIDENCE) / 2
    above = binomial_cdf(n, 0.5)[:-1]  # at index r − 1: the probability that order statistic r is above
    rank = int(np.searchsorted(above, tail, side="right"))
    under, over = tail - above[rank - 1], above[rank] - tail
    share = 1 / (1 + rank * over / ((n - rank) * under)) if under > 0 else 0.0
    lower, upper = ordered[..., rank - 1], ordered[..., rank]
    with np.errstate(invalid="ignore"):
        # Bounds may be infinite.
        return np.where((lower == upper) | (share == 0), lower, (1 - share) * lower + share * upper)


def difference_of_pairs(differences: ArrayLike) -> Interval:
    """Return the mean of paired differences with its 95 % interval by Student's t (Box, Hunter & Hunter, Statistics for
    Experimenters, 2005, §3.2). At least three pairs, all finite."""
    found = mean_interval(differences)
    return replace(found, note=found.note and found.note.replace("repetitions; there", "pairs; there"))


def ratio_of_pairs(first: ArrayLike, second: ArrayLike) -> Interval | None:
    """Return the geometric mean of the ratios second / first with its 95 % interval, by Student's t of the logarithms.

    A factor that works proportionally changes large values more than small ones: the differences are skewed, but the
    logarithms of the ratios are not. ``None`` unless all values are positive and finite, and there are three pairs.
    """
    pairs = np.array([_values(first), _values(second)])
    if pairs.shape[1] < _LEAST or not (np.isfinite(pairs) & (pairs > 0)).all():
        return None
    found = mean_interval(np.diff(np.log(pairs), axis=0))
    value, low, high = (math.exp(min(each or 0.0, 700.0)) for each in (found.value, found.low, found.high))
    return replace(found, value=value, low=low, high=high)


def p_of_pairs(differences: ArrayLike) -> float:
    """Return the p-value of Student's t for a mean difference of zero. Needs at least two pairs, all finite."""
    sample, n = _sample(differences)
    deviation, mean = float(sample.std(ddof=1)), float(sample.mean())
    if deviation == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * student_cdf(n - 1, -abs(mean) / (deviation / math.sqrt(n))))


def holm(ps: Sequence[float]) -> list[float]:
    """Return adjusted p-values of simultaneous comparisons: the chance of any false one stays below the level (Holm,
    "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6, 1979).
    """
    order = np.argsort(ps, kind="stable")
    factors = np.arange(len(ps), 0, -1)
    adjusted = np.empty(len(ps))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(np.asarray(ps, np.float64)[order] * factors))
    return [float(p) for p in adjusted]


def repetitions_needed(pilot: ArrayLike, half_width: float) -> int | None:
    """Return the number of further repetitions, besides `pilot`, for a 95 % interval of the mean of this half-width.

    Stein's two-stage procedure (Annals of Mathematical Statistics 16, 1945, pp. 243–258): (t·s / half_width)² in total,
    with t and s of the pilot, so a small pilot gives a cautious number. None for a pilot with fewer than three values
    or with values that are not finite. Raises ValueError unless half_width is above 0.
    """
    if not half_width > 0:
        raise ValueError(f"a half-width must be above 0, not {half_width}")
    sample, n = _sample(pilot)
    if n < _LEAST or not np.isfinite(sample).all():
        return None
    wanted = (_t(n) * float(sample.std(ddof=1)) / half_width) ** 2
    return max(0, math.ceil(wanted - 1e-9) - n)


def _t(n: int) -> float:
    return student_quantile(n - 1, (1 + CONFIDENCE) / 2)


def _values(values: ArrayLike) -> Values:
    return np.asarray(values, np.float64).ravel()


def _sample(values: ArrayLike) -> tuple[Values, int]:
    sample = _values(values)
    return sample, len(sample)


def _unusable(sample: Values, *, infinite: bool = False) -> str | None:
    """Return the reason why a sample has no value. Omitting repetitions would favour those that lose most."""
    if not len(sample):
        return "refused: there are no repetitions"
    bad = int((np.isnan(sample) if infinite else ~np.isfinite(sample)).sum())
    return f"refused: {bad} of {len(sample)} repetitions have no {'' if infinite else 'finite '}value" if bad else None
