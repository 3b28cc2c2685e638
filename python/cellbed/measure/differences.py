"""Differences of a replay from the reference, with intervals by resampling. Pure, seeded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from cellbed.measure.distributions import student_quantile

CONFIDENCE = 0.95
Samples = NDArray[np.float64]
Seed = int | tuple[int, ...]

RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval. low, high: ``None`` with fewer than two recordings or trials."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """Differences of a replay from the reference in one measure: the observed value first, then a value per resample.

    mean, median, p95: the replay's error relative to the reference, with its sign; 0.1 is 10 % too high.
    wasserstein: distance of the distributions, in the measure's unit. relative_wasserstein: divided by the reference's
    mean. units: number of recordings or trials.
    """

    mean: Samples
    median: Samples
    p95: Samples
    wasserstein: Samples
    relative_wasserstein: Samples
    units: int


def difference(reference: Sequence[Samples], replay: Sequence[Samples], seed: Seed = 1) -> Difference:
    """Return the difference of `replay` from `reference`, with intervals.

    reference, replay: the samples of each unit (a recording or a trial), in the same order. A unit is the same part of
    the network for both, so whole units are drawn in pairs (Davison & Hinkley, "Bootstrap Methods and their
    Application", 1997, §3.8). A unit without a sample on either side is left out. seed: seed of the draws; differences
    with unrelated units need different seeds.

    Errors: :class:`ValueError` if no unit has samples on both sides, or if the reference's mean is zero.
    """
    pairs = [(a, b) for a, b in zip(reference, replay, strict=True) if len(a) and len(b)]
    if not pairs:
        raise ValueError("no recording and no trial has samples of both")
    units = len(pairs)
    draws = np.random.default_rng(seed).multinomial(units, np.full(units, 1 / units), RESAMPLES)
    # The first row is the observation, with every unit once.
    times = np.vstack([np.ones(units), draws]).astype(np.float64)
    original = _Weighted([a for a, _ in pairs], times)
    replayed = _Weighted([b for _, b in pairs], times)
    if not (original.mean > 0).all():
        raise ValueError("the reference's mean is zero: there is nothing to relate an error to")
    distance = _distances(original, replayed)
    return Difference(
        mean=replayed.mean / original.mean - 1,
        median=_relative(replayed.quantile(0.5), original.quantile(0.5)),
        p95=_relative(replayed.quantile(0.95), original.quantile(0.95)),
        wasserstein=distance,
        relative_wasserstein=distance / original.mean,
        units=units,
    )


def estimate(resampled: Samples, units: int, least: float = -1.0) -> Estimate:
    """Return a value of a :class:`Difference`, or a function of several, with the interval from its resamples.

    units: number of recordings or trials. least: minimum of the value: −100 % for an error, 0 for an absolute error.

    Resamples of few units vary less than chance: the interval of three units is their range and misses the true value
    in one of four cases. Deviations from the observed value are widened like the interval of a mean: by √(n/(n − 1)),
    and from the normal to Student's distribution (after Hesterberg, "What Teachers Should Know About the Bootstrap",
    The American Statistician 69, 2015, §4.3).
    Small absolute errors are larger in resamples than observed. Then the interval is widened to the observed value.
    """
    observed, others = float(resampled[0]), resampled[1:]
    if units < 2:
        return Estimate(observed, None, None)
    tail = (1 - CONFIDENCE) / 2
    student = student_quantile(units - 1, 1 - tail)
    widened = math.sqrt(units / (units - 1)) * student / NormalDist().inv_cdf(1 - tail)
    low, high = (observed + widened * (float(bound) - observed) for bound in np.quantile(others, [tail, 1 - tail]))
    return Estimate(observed, max(least, min(low, observed)), max(high, observed))


def share_difference(reference: NDArray[np.int64], replay: NDArray[np.int64], seed: Seed = 1) -> Samples:
    """Return the difference of two shares: the observed value first, then a value per resample of the units.

    reference, replay: a row per unit: number of cases, and number of all.
    """
    units = len(reference)
    draws = np.random.default_rng(seed).multinomial(units, np.full(units, 1 / units), RESAMPLES)
    times = np.vstack([np.ones(units), draws])
    shares = [cases / np.maximum(all_, 1) for cases, all_ in ((times @ each).T for each in (reference, replay))]
    found: Samples = shares[1] - shares[0]
    return found


class _Weighted:
    """The samples of all units in ascending order, with their weights in each resample."""

    def __init__(self, units: Sequence[Samples], times: Samples) -> None:
        values = np.concatenate(units)
        owner = np.repeat(np.arange(len(units)), [len(each) for each in units])
        order = np.argsort(values, kind="stable")
        self.values = values[order]
        weights = times[:, owner[order]]
        self.below = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
        self.mean = (weights @ self.values) / weights.sum(axis=1)

    def quantile(self, share: float) -> Samples:
        """Return the smallest value with at least `share` of the weight at or below it, for each resample."""
        reached: Samples = self.values[np.argmax(self.below >= share - 1e-9, axis=1)]
        return reached


def _distances(first: _Weighted, second: _Weighted) -> Samples:
    """Return the first Wasserstein distance of each resample: the area between the distribution functions (Vallender,
    Theory of Probability and its Applications, 1974).
    """
    grid = np.sort(np.concatenate([first.values, second.values]))
    heights = []
    for each in (first, second):
        index = np.searchsorted(each.values, grid[:-1], side="right")
        padded = np.hstack([np.zeros((len(each.below), 1)), each.below])
        heights.append(padded[:, index])
    areas: Samples = np.abs(heights[0] - heights[1]) @ np.diff(grid)
    return areas


def _relative(replay: Samples, reference: Samples) -> Samples:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(reference > 0, replay / reference - 1, np.nan)
