"""Percentiles that are values of the sample, never interpolated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def at_shares(values: NDArray[Any], shares: Sequence[float]) -> list[float]:
    """Return the values of rank ceil(n · share), the inverse of the empirical distribution function.

    Raises IndexError without a value.
    """
    ranks = np.clip(np.ceil(np.asarray(shares) * len(values) - 1e-9), 1, len(values)).astype(np.int64)
    found: list[float] = np.sort(values)[ranks - 1].astype(np.float64).tolist()
    return found


def shares_below(values: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the different values, increasing, and the share of all that are at most each."""
    places, counts = np.unique(values, return_counts=True)
    return places.astype(np.float64), np.cumsum(counts) / len(values)
