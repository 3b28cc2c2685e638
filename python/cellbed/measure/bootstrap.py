"""Intervals of differences between two runs, by resampling blocks of neighbouring requests. Pure and seeded."""

import math

import numpy as np

from cellbed.measure.statistics import CONFIDENCE, Samples

MOST_RESAMPLES = 2_000
FEWEST_RESAMPLES = 400
BUDGET = 100_000_000
"""Samples drawn at most in all; large runs get fewer resamples, and need fewer."""


def quantile_differences(
    first: Samples, second: Samples, quantiles: tuple[float, ...], seed: int, *, paired: bool = False
) -> list[tuple[float, float, float]]:
    """Per quantile the difference second − first and its 95 % interval (value, low, high), by the circular block
    bootstrap.

    first, second: latency of each request in order of time, seconds, +inf without a reply. paired: the n-th of both is
    the same request, so that a resample has the same ones of both runs. Requests that follow each
    other wait in the same queues, so whole blocks are drawn (Politis & Romano, 1992), as long as the correlation asks
    for (`block_length`). An interval's end is infinite where a resample's percentile falls among requests without a
    reply.
    """
    random = np.random.default_rng(seed)
    longest = max(len(first), len(second))
    resamples = int(np.clip(BUDGET // longest, FEWEST_RESAMPLES, MOST_RESAMPLES))
    if paired:
        lengths = [max(block_length(first), block_length(second))] * 2
        # One sequence of random numbers for both: the same blocks.
        generators = [np.random.default_rng(seed), np.random.default_rng(seed)]
    else:
        lengths = [block_length(first), block_length(second)]
        generators = [random, random]
    drawn_first, drawn_second = (
        _resampled_quantiles(samples, quantiles, resamples, length, generator)
        for samples, length, generator in zip((first, second), lengths, generators, strict=True)
    )
    observed_first, observed_second = _quantiles(first, quantiles), _quantiles(second, quantiles)
    tail = (1 - CONFIDENCE) / 2
    found = []
    with np.errstate(invalid="ignore"):  # ∞ − ∞ says nothing: it counts as anything
        for index in range(len(quantiles)):
            drawn = drawn_second[:, index] - drawn_first[:, index]
            low = np.quantile(
                np.nan_to_num(drawn, nan=-math.inf, posinf=math.inf, neginf=-math.inf), tail, method="lower"
            )
            high = np.quantile(
                np.nan_to_num(drawn, nan=math.inf, posinf=math.inf, neginf=-math.inf), 1 - tail, method="higher"
            )
            found.append((float(observed_second[index] - observed_first[index]), float(low), float(high)))
    return found


def block_length(samples: Samples) -> int:
    """Length of the blocks that a circular block bootstrap should draw from a series (1 for independent samples).

    The rule of Politis & White (Econometric Reviews, 2004, §3; corrected by Patton, Politis & White, 2009), on the
    ranks of the samples, so that neither a heavy tail nor +inf matters.
    """
    n = len(samples)
    if n < 9:
        return 1
    # Equal samples (all requests without a reply) get the mean of their ranks, or time itself would look like a trend.
    _, place, count = np.unique(samples, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    centred = ranks - ranks.mean()
    longest = min(math.ceil(math.sqrt(n)) + max(5, math.ceil(math.sqrt(math.log10(n)))), n - 1)
    covariance = np.array([centred[: n - lag] @ centred[lag:] for lag in range(longest + 1)]) / n
    if covariance[0] == 0:
        return 1
    correlation = covariance / covariance[0]
    insignificant = np.abs(correlation) < 2 * math.sqrt(math.log10(n) / n)
    quiet = max(5, math.ceil(math.sqrt(math.log10(n))))
    last = next(
        (lag for lag in range(longest - quiet + 1) if insignificant[lag + 1 : lag + 1 + quiet].all()),
        longest - quiet,
    )
    if last == 0:
        return 1
    bandwidth = min(2 * last, longest)
    lags = np.arange(1, bandwidth + 1)
    window = np.clip(2 * (1 - lags / bandwidth), 0, 1)  # flat to one half, then falling to zero
    spectrum = covariance[0] + 2 * float((window * covariance[lags]).sum())
    slope = 2 * float((window * lags * covariance[lags]).sum())
    if spectrum <= 0:
        return 1
    best = (2 * slope**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * n ** (1 / 3)
    return int(np.clip(math.ceil(best), 1, math.ceil(min(3 * math.sqrt(n), n / 3))))


def _resampled_quantiles(
    samples: Samples, quantiles: tuple[float, ...], resamples: int, length: int, random: np.random.Generator
) -> Samples:
    """Quantiles of resamples of blocks of `length`, wrapped around the end (resamples × quantiles)."""
    n = len(samples)
    blocks = -(-n // length)
    drawn = np.empty((resamples, len(quantiles)))
    for row in range(resamples):
        starts = random.integers(0, n, blocks)
        index = (starts[:, None] + np.arange(length)).ravel()[:n] % n
        drawn[row] = _quantiles(samples[index], quantiles)
    return drawn


def _quantiles(samples: Samples, quantiles: tuple[float, ...]) -> Samples:
    ranks = [math.ceil(len(samples) * quantile - 1e-9) - 1 for quantile in quantiles]
    return np.asarray(np.partition(samples, ranks)[ranks], np.float64)
