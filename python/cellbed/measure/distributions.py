"""Distribution functions for intervals: the binomial distribution, and Student's t of a whole number of degrees."""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

_STEPS = 200
"""Maximum halvings of an interval of floating-point numbers."""


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


def student_cdf(degrees: int, t: float) -> float:
    """Return P(T ≤ t) of Student's t (Abramowitz & Stegun, Handbook of Mathematical Functions, 1964, 26.7.3 and 4)."""
    if t > 0:
        return 1 - student_cdf(degrees, -t)
    if t < -2:
        return _student_tail(degrees, t)
    angle = math.atan2(-t, math.sqrt(degrees))
    square = math.cos(angle) ** 2
    total = term = 1.0 if degrees % 2 == 0 else math.cos(angle)
    for k in range(2 if degrees % 2 == 0 else 3, degrees - 1, 2):
        term *= square * (k - 1) / k
        total += term
    inside = math.sin(angle) * total
    if degrees % 2:
        inside = (angle + (inside if degrees > 1 else 0.0)) * 2 / math.pi
    return (1 - inside) / 2


def _student_tail(degrees: int, t: float) -> float:
    """Return P(T ≤ t) far below zero, by the series of the incomplete beta function (26.5.4) without cancellation."""
    x = degrees / (degrees + t * t)
    a = degrees / 2
    total = term = 1.0
    k = 0
    while term > total * 1e-17:
        term *= x * (a + 0.5 + k) / (a + 1 + k)
        total += term
        k += 1
    scale = math.lgamma(a + 0.5) - math.lgamma(a) - math.lgamma(0.5)
    return 0.5 * math.exp(scale + a * math.log(x) + 0.5 * math.log1p(-x)) / a * total


@cache
def student_quantile(degrees: int, probability: float) -> float:
    """Return t with P(T ≤ t) = `probability`, which is between 0 and 1."""
    if probability < 0.5:
        return -student_quantile(degrees, 1 - probability)
    low, high = 0.0, 1.0
    while student_cdf(degrees, -high) > 1 - probability:
        high *= 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if student_cdf(degrees, -middle) > 1 - probability else (low, middle)
    return high
