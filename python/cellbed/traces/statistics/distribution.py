"""How often each value occurred, in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_VALUES = 100_000
"""Different values held exactly; beyond them values are rounded to four significant digits, 0.05 % at most."""

_PENDING = 1 << 19
_TALLIED = 1 << 20


class Distribution:
    """Values with their counts. Mean and deviation are of the values as they came, whatever was rounded since."""

    def __init__(self) -> None:
        self._values: list[NDArray[np.float64]] = []
        self._counts: list[NDArray[np.int64]] = []
        self._pending = 0
        self.count = 0
        self._mean = 0.0
        self._squares = 0.0

    def add(self, values: NDArray[Any], counts: NDArray[Any] | None = None) -> None:
        """Take values, each as often as `counts` says, or once."""
        if not len(values):
            return
        values = values.astype(np.float64)
        counts = np.ones(len(values), np.int64) if counts is None else counts.astype(np.int64)
        # Pairwise, for nothing is lost of a small deviation from a large mean: Chan, Golub, LeVeque, Algorithms for
        # Computing the Sample Variance, The American Statistician 37(3), 1983, equation 1.5.
        number = int(counts.sum())
        mean = float(values @ counts) / number if number else 0.0
        off = values - mean
        apart = mean - self._mean
        both = max(self.count + number, 1)
        self._squares += float((off * off) @ counts) + apart * apart * self.count * number / both
        self._mean += apart * number / both
        self.count += number
        self._values.append(values)
        self._counts.append(counts)
        self._pending += len(values)
        if self._pending > _PENDING:
            self._compact()

    def add_whole(self, numbers: NDArray[np.int64], unit: float) -> None:
        """Take whole, non-negative multiples of a unit: faster than `add`, for a value occurs often."""
        if len(numbers) and int(numbers.max()) < _TALLIED:
            tally = np.bincount(numbers)
            found = np.flatnonzero(tally)
            self.add(found * unit, tally[found])
        else:
            self.add(numbers * unit)

    @property
    def mean(self) -> float:
        """NaN without a value."""
        return self._mean if self.count else float("nan")

    @property
    def deviation(self) -> float:
        """Standard deviation of the population; NaN without a value."""
        if not self.count:
            return float("nan")
        return float(np.sqrt(self._squares / self.count))

    def quantiles(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """The values of rank ceil(n · share), the inverse of the empirical distribution function; not for none."""
        values, counts = self.table()
        ranks = np.clip(np.ceil(shares * self.count - 1e-9), 1, self.count)
        return values[np.searchsorted(np.cumsum(counts), ranks)]

    def table(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Different values, rising, and how often each came."""
        self._compact()
        return (self._values[0], self._counts[0]) if self._values else (np.empty(0), np.empty(0, np.int64))

    def _compact(self) -> None:
        if not self._values:
            return
        values, counts = _joined(np.concatenate(self._values), np.concatenate(self._counts))
        if len(values) > MOST_VALUES:
            values, counts = _joined(_four_digits(values), counts)
        self._values, self._counts = [values], [counts]
        # What one compaction leaves must not bring about the next at once.
        self._pending = 0


def _joined(values: NDArray[np.float64], counts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    order = np.argsort(values)
    values, counts = values[order], counts[order]
    begins = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
    return values[begins], np.add.reduceat(counts, begins)


def _four_digits(values: NDArray[np.float64]) -> NDArray[np.float64]:
    magnitude = np.floor(np.log10(np.maximum(np.abs(values), 1e-300)))
    scale = 10.0 ** (magnitude - 3)
    return np.where(values == 0, 0.0, np.round(values / scale) * scale)
