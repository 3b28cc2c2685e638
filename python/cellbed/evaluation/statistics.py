"""How far two samples of one measure differ, with intervals by resampling trials. Pure and seeded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float64]

RESAMPLES = 1000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval. low, high: ``None`` where there are fewer than two trials."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """How a replay differs from the reference in one measure: what was observed first, then each resample's value.

    mean, median, p95: error of the replay's relative to the reference's, with its sign; 0.1 is 10 % too much.
    wasserstein: distance of the distributions, in the measure's unit. relative_wasserstein: over the reference's mean.
    trials: how many there were.
    """

    mean: Samples
    median: Samples
    p95: Samples
    wasserstein: Samples
    relative_wasserstein: Samples
    trials: int


def wasserstein(first: Samples, second: Samples) -> float:
    """The first Wasserstein distance of two samples: the area between their distribution functions (Vallender, Theory
    of Probability and its Applications, 1974).

    Errors: :class:`ValueError` for an empty sample.
    """
    if not len(first) or not len(second):
        raise ValueError("an empty sample has no distribution")
    values = np.sort(np.concatenate([first, second]))
    below = [np.searchsorted(np.sort(each), values[:-1], side="right") / len(each) for each in (first, second)]
    return float(np.abs(below[0] - below[1]) @ np.diff(values))


def difference(reference: Sequence[Samples], replay: Sequence[Samples], seed: int = 1) -> Difference:
    """The difference of `replay` from `reference`, with intervals.

    reference, replay: the samples of each trial, in the order of the trials; both met the same stretch of the network
    in the same trial, so whole trials are drawn, and in pairs (Davison & Hinkley, "Bootstrap Methods and their
    Application", 1997, §3.8). A trial without a sample on either side is left out.

    Errors: :class:`ValueError` if no trial has samples on both sides, or the reference's mean is zero.
    """
    pairs = [(a, b) for a, b in zip(reference, replay, strict=True) if len(a) and len(b)]
    if not pairs:
        raise ValueError("no trial has samples of both")
    trials = len(pairs)
    draws = np.random.default_rng(seed).multinomial(trials, np.full(trials, 1 / trials), RESAMPLES)
    # The first row is what was observed: every trial once.
    times = np.vstack([np.ones(trials), draws]).astype(np.float64)
    of_reference = _Weighted([a for a, _ in pairs], times)
    of_replay = _Weighted([b for _, b in pairs], times)
    if not (of_reference.mean > 0).all():
        raise ValueError("the reference's mean is zero: there is nothing to relate an error to")
    distance = _distances(of_reference, of_replay)
    return Difference(
        mean=of_replay.mean / of_reference.mean - 1,
        median=_relative(of_replay.quantile(0.5), of_reference.quantile(0.5)),
        p95=_relative(of_replay.quantile(0.95), of_reference.quantile(0.95)),
        wasserstein=distance,
        relative_wasserstein=distance / of_reference.mean,
        trials=trials,
    )


def estimate(resampled: Samples, trials: int) -> Estimate:
    """A value of a :class:`Difference`, or of what is computed of several, with the interval of its resamples.

    Sizes of errors are larger in resamples than observed when they are small; the interval is then widened to the
    observed value.
    """
    observed, others = float(resampled[0]), resampled[1:]
    if trials < 2:
        return Estimate(observed, None, None)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(others, [tail, 1 - tail])
    return Estimate(observed, min(float(low), observed), max(float(high), observed))


class _Weighted:
    """The samples of all trials in order of size, once for each resample with the weights of that resample."""

    def __init__(self, trials: Sequence[Samples], times: Samples) -> None:
        values = np.concatenate(trials)
        owner = np.repeat(np.arange(len(trials)), [len(each) for each in trials])
        order = np.argsort(values, kind="stable")
        self.values = values[order]
        weights = times[:, owner[order]]
        self.below = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
        self.mean = (weights @ self.values) / weights.sum(axis=1)

    def quantile(self, share: float) -> Samples:
        """The smallest value at or below which `share` of each resample lies."""
        reached: Samples = self.values[np.argmax(self.below >= share - 1e-9, axis=1)]
        return reached


def _distances(first: _Weighted, second: _Weighted) -> Samples:
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
