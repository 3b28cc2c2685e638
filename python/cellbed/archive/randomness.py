"""Random numbers that are the same on every machine and with every version of the libraries.

NumPy guarantees the integers of its bit generators (the compatibility guarantee of ``numpy.random.PCG64``), but not its
distributions. So this module draws only integers. All further operations are exact or have IEEE 754 rounding: no
logarithm, no exponential, no sum whose order depends on the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Float64 = npt.NDArray[np.float64]
    Int64 = npt.NDArray[np.int64]

_UNIT = 2.0**-53
_BLOCK = 4096


class Stream:
    """Random numbers for one purpose. Equal seeds and purposes give equal numbers."""

    def __init__(self, seed: int, purpose: str) -> None:
        import numpy as np

        words = [int.from_bytes(purpose.encode()[at : at + 4], "little") for at in range(0, len(purpose), 4)]
        self._bits = np.random.PCG64(np.random.SeedSequence([seed, *words]))
        self._block: list[float] = []

    def uniforms(self, count: int) -> Float64:
        """Return numbers from 0 up to but excluding 1, multiples of 2⁻⁵³."""
        import numpy as np

        units: Float64 = (self._bits.random_raw(count) >> 11).astype(np.float64) * _UNIT
        return units

    def normals(self, count: int) -> Float64:
        """Return approximately standard normal variates, within ±6: twelve uniforms less six (Irwin–Hall)."""
        import numpy as np

        halves = self._bits.random_raw(6 * count).view(np.uint32).astype(np.int64).reshape(count, 12)
        # Sums of whole numbers are exact in any order.
        sums: Float64 = (halves.sum(axis=1) - (6 << 32)) * 2.0**-32
        return sums

    def uniform(self) -> float:
        """Return the next of the :meth:`uniforms`."""
        if not self._block:
            self._block = self.uniforms(_BLOCK).tolist()[::-1]
        return self._block.pop()

    def below(self, bound: int) -> int:
        """Return a whole number from 0 up to but excluding `bound`, at most 2³²."""
        return (int(self.uniform() * 2.0**53) * bound) >> 53

    def exponential(self) -> float:
        """Return an exponential variate of mean 1."""
        return exponential(self.uniform)


def exponential(uniform: Callable[[], float]) -> float:
    """Return an exponential variate of mean 1 (von Neumann, Various Techniques Used in Connection with Random Digits,
    1951).

    A descending run of uniforms that begins with x has odd length with probability exp(-x). After a run of even length,
    1 is added and the next run is drawn.
    """
    whole = 0.0
    while True:
        first = previous = uniform()
        odd = True
        while (drawn := uniform()) <= previous:
            previous = drawn
            odd = not odd
        if odd:
            return whole + first
        whole += 1.0


def reflect(value: float, low: float, high: float) -> float:
    """Return `value`, reflected at the bounds."""
    if value < low:
        return 2 * low - value
    if value > high:
        return 2 * high - value
    return value


def interpolate(ordered: Sequence[float], rank: float) -> float:
    """Return a sample's quantile at a rank from 0 to 1, linear between order statistics."""
    place = rank * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
