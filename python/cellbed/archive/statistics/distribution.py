"""Counts of values, in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_VALUES = 100_000
"""Different values kept exactly; beyond them values are rounded to four significant digits, 0.05 % at most."""

_TALLIED = 1 << 20

_LEAST = 1e-300
_SCALES = np.concatenate((10.0 ** (np.arange(310) - 3), 10.0 ** (np.arange(-310, 0) - 3)))
"""The fourth digit of a number by its order of magnitude; negative ones count from the end, as Python's indices do."""


class Distribution:
    """Values with their counts. Mean and deviation are of the values as they came, before any rounding.

    most: different values held exactly, and values that wait to be counted.
    """

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._values = np.empty(0)
        self._counts = np.empty(0, np.int64)
        self._single: list[NDArray[np.float64]] = []
        self._counted: list[tuple[NDArray[np.float64], NDArray[np.int64]]] = []
        self._pending = 0
        self.count = 0
        self._sum = 0.0
        self._squares = 0.0

    def add(self, values: NDArray[Any], counts: NDArray[Any] | None = None) -> None:
        """Add values, each `counts` times, or once."""
        if not len(values):
            return
        values = values.astype(np.float64)
        if counts is None:
            self._combine(len(values), values)
            self._single.append(values)
        else:
            counts = counts.astype(np.int64)
            self._combine(int(counts.sum()), values, counts)
            self._counted.append((values, counts))
        self._pending += len(values)
        if self._pending > self._most:
            self._compact()

    def _combine(self, number: int, values: NDArray[np.float64], counts: NDArray[np.int64] | None = None) -> None:
        # Pairwise, for nothing is lost of a small deviation from a large mean: Chan, Golub, LeVeque, Algorithms for
        # Computing the Sample Variance, The American Statistician 37(3), 1983, equation 1.5.
        if not number:
            return
        total = float(values.sum()) if counts is None else dot(values, counts)
        off = values - total / number
        self._squares += dot(off, off) if counts is None else dot(off * off, counts)
        if self.count:
            apart = total / number - self.mean
            self._squares += apart * apart * self.count * number / (self.count + number)
        self._sum += total
        self.count += number

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
        return self._sum / self.count if self.count else float("nan")

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
        return self._values, self._counts

    def _compact(self) -> None:
        if not self._pending:
            return
        all_values, all_counts = [self._values], [self._counts]
        if self._single:
            # Sorted without their counts, which are ones, they take a fraction of the time.
            values = np.sort(np.concatenate(self._single))
            begins = begins_of_runs(values)
            all_values.append(values[begins])
            all_counts.append(np.diff(begins, append=len(values)))
            self._single.clear()
        for values, counts in self._counted:
            all_values.append(values)
            all_counts.append(counts)
        self._counted.clear()
        # A compaction must not trigger the next at once.
        self._pending = 0
        self._values, self._counts = _joined(np.concatenate(all_values), np.concatenate(all_counts))
        if len(self._values) > self._most:
            self._values, self._counts = _joined(_four_digits(self._values), self._counts)


def _joined(values: NDArray[np.float64], counts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    order = np.argsort(values, kind="stable")
    values, counts = values[order], counts[order]
    begins = begins_of_runs(values)
    return values[begins], np.add.reduceat(counts, begins)


def _four_digits(values: NDArray[np.float64]) -> NDArray[np.float64]:
    magnitude = np.floor(np.log10(np.maximum(np.abs(values), _LEAST)))
    scale = _SCALES[magnitude.astype(np.int64)]
    return np.where(values == 0, 0.0, np.round(values / scale) * scale)


def begins_of_runs(values: NDArray[Any]) -> NDArray[np.int64]:
    """Where each run of equal values begins; of none none."""
    if not len(values):
        return np.empty(0, np.int64)
    return np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))


def dot(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Σ a b, by one thread: the operator's library wakes others, which then wait for more in a busy loop."""
    return float(np.einsum("i,i->", first, second))
