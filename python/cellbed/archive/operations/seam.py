"""Where a recording is to end so that its loop goes on as it began."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Rates = npt.NDArray[np.float64]


def seam(rates: Sequence[Rates], within: int, window: int) -> tuple[int, float]:
    """The bin at which the loop is to begin again, and how large the leap there is.

    A loop from bin e back to bin 0 is not noticed if what came after e resembles what comes after 0; nothing is blended
    and no data are made up (Schödl et al., "Video Textures", SIGGRAPH 2000, §3: frame j may follow frame i if it
    resembles the one that did).

    rates: of each direction, one per bin, of equal length, longer than `window`. within: how many bins at the end may
    be given away. window: how many bins are compared. The leap is the root of the mean square of the differences, each
    direction in its own standard deviations; 1.41 is what two unrelated moments have on average.
    """
    count = len(rates[0])
    scaled = [each / (each.std() or 1.0) for each in rates]
    ends = np.arange(max(window, count - within), count - window + 1)
    leaps = np.sqrt(
        np.mean([[np.mean((each[end : end + window] - each[:window]) ** 2) for end in ends] for each in scaled], axis=0)
    )
    best = int(np.argmin(leaps))
    return int(ends[best]), float(leaps[best])
