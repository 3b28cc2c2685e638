"""The modes of a distribution of times: a path that changes its route shows two."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

FEWEST: Final = 50
"""With fewer values there is only one mode, the median."""

LEAST_SHARE: Final = 0.05
"""Of the values that a mode gathers between the valleys at its sides."""

DEEPEST_VALLEY: Final = 0.5
"""Of the lower of two neighbouring peaks: where the density between them stays above that, they are one mode."""

COARSEST_CLOCK_NS: Final = 1e6
"""Some programs give round-trip times in steps of a millisecond; what lies further apart is not so by rounding."""

Floats = NDArray[np.float64]


def modes(values: Floats, counts: NDArray[np.int64]) -> tuple[list[float], list[float]]:
    """Places of the modes, rising, and the share of all values about each; the shares add up to one.

    values: different ones, rising, in ns. A kernel density estimate of their logarithms, because a network's delays
    scatter in proportion to their size and have a long tail; Gaussian kernel with the bandwidth
    0.9 min(σ, IQR/1.34) n^(-1/5) (Silverman, Density Estimation, 1986, eq. 3.31), no smaller than the step in which the
    values are given. Peaks that no valley of DEEPEST_VALLEY parts, or with less than LEAST_SHARE, are not
    distinguished.
    """
    values, counts = values[values > 0], counts[values > 0]
    total = int(counts.sum())
    if not total:
        return [], []
    upper = np.cumsum(counts)
    median = float(values[np.searchsorted(upper, total / 2)])
    if total < FEWEST or len(values) < 2:
        return [median], [1.0]
    places = np.log(values)
    low, first, third, high = places[np.searchsorted(upper, np.array([0.005, 0.25, 0.75, 0.995]) * total)]
    mean = float(places @ counts) / total
    deviation = float(np.sqrt(((places - mean) ** 2) @ counts / total))
    spread = min(deviation, (third - first) / 1.34) or deviation
    step = min(float(np.diff(values).min()), COARSEST_CLOCK_NS) / median
    width = max(0.9 * spread * total**-0.2, step, 1e-4)
    grid = np.linspace(
        low - 4 * width, high + 4 * width, int(np.clip((high - low + 8 * width) / width * 8, 256, 16384))
    )
    density = _smoothed(places, counts, grid, width)
    return _told_apart(grid, density, places, counts)


def _smoothed(places: Floats, counts: NDArray[np.int64], grid: Floats, width: float) -> Floats:
    spacing = grid[1] - grid[0]
    inside = (places >= grid[0]) & (places <= grid[-1])
    histogram = np.bincount(
        np.round((places[inside] - grid[0]) / spacing).astype(np.int64), counts[inside], minlength=len(grid)
    )
    reach = int(np.ceil(4 * width / spacing))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * spacing / width) ** 2)
    return np.convolve(histogram, kernel, mode="full")[reach : reach + len(grid)]


def _told_apart(
    grid: Floats, density: Floats, places: Floats, counts: NDArray[np.int64]
) -> tuple[list[float], list[float]]:
    rising = np.diff(density) > 0
    peaks = (np.flatnonzero(rising[:-1] & ~rising[1:]) + 1).tolist() or [int(np.argmax(density))]
    total = counts.sum()
    while True:
        valleys = [a + int(np.argmin(density[a:b])) for a, b in pairwise(peaks)]
        bounds = [-np.inf, *grid[valleys], np.inf]
        shares = [float(counts[(places > low) & (places <= high)].sum() / total) for low, high in pairwise(bounds)]
        if len(peaks) == 1:
            break
        depths = [
            density[valley] / min(density[a], density[b])
            for valley, a, b in zip(valleys, peaks, peaks[1:], strict=False)
        ]
        shallow, smallest = int(np.argmax(depths)), int(np.argmin(shares))
        if depths[shallow] > DEEPEST_VALLEY:
            # Of the two about the shallowest valley the lower one goes.
            del peaks[shallow + int(density[peaks[shallow + 1]] < density[peaks[shallow]])]
        elif shares[smallest] < LEAST_SHARE:
            del peaks[smallest]
        else:
            break
    return [float(np.exp(grid[peak])) for peak in peaks], shares
