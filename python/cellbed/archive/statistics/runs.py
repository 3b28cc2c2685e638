"""Runs of equal values, one behind the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def begins_of_runs(values: NDArray[Any]) -> NDArray[np.int64]:
    """Where each run of equal values begins; of none none."""
    if not len(values):
        return np.empty(0, np.int64)
    return np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
