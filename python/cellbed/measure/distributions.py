"""Distribution functions for intervals: the binomial distribution, and Student's t of a whole number of degrees."""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

_NODES, _DEVIATIONS, _HALVINGS = 64, 9, 60
"""Points of an integral, its length in standard deviations, and halvings of an interval: to the precision of floats."""


@lru_cache(64)
def binomial_cdf(n: int, p: float) -> NDArray[np.float64]:
    """Return P(B ≤ k) for k = 0 … n of a binomial distribution with 0 < p < 1."""
    k = np.arange(n)
    steps = np.log((n - k) / (k + 1) * (p / (1 - p)))  # from the logarithm of P(B = k) to the next
    mode = min(int((n + 1) * p), n)
    # Sums from the mode outward: their terms are small where the probabilities are not.
    logs = np.concatenate([-np.cumsum(steps[:mode][::-1])[::-1], [0.0], np.cumsum(steps[mode:])])
    cumulative = np.cumsum(np.exp(logs))
    cumulative /= cumulative[-1]
    cumulative.setflags(write=False)
    return cumulative


@cache
def _nodes() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nodes from 0 to 1 and weights of Gauss-Legendre quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return (1 + nodes) / 2, weights / 2


def student_cdf(degrees: int, t: float) -> float:
    """Return P(T ≤ t) of Student's t: with T = -√degrees / tan(angle), the density is a power of the sine."""
    if t > 0:
        return 1 - student_cdf(degrees, -t)
    angle = math.atan2(math.sqrt(degrees), -t)
    width = min(angle, _DEVIATIONS / math.sqrt(degrees))
    nodes, weights = _nodes()
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(math.pi)
    return float(scale * width * (weights @ np.sin(angle - width * nodes) ** (degrees - 1)))


@cache
def student_quantile(degrees: int, probability: float) -> float:
    """Return t with P(T ≤ t) = `probability`, which is between 0 and 1."""
    if probability < 0.5:
        return -student_quantile(degrees, 1 - probability)
    low, high = 0.0, 1.0
    while student_cdf(degrees, -high) > 1 - probability:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(degrees, -middle) > 1 - probability else (low, middle)
    return high
