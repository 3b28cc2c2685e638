"""Sums of products of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def dot(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Σ a b, by one thread: the operator's library wakes others, which then wait for more in a busy loop."""
    return float(np.einsum("i,i->", first, second))
