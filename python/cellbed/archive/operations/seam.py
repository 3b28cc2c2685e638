"""Find the end of a recording at which its loop is least noticeable."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Rates = npt.NDArray[np.float64]


def seam(rates: Sequence[Rates], within: int, window: int) -> tuple[int, float]:
    """The bin at which the loop repeats, and the size of the jump there.

    A loop from bin e back to bin 0 is inconspicuous if the continuation after e resembles that after 0; no data are
    blended or invented (Schödl et al., "Video Textures", SIGGRAPH 2000, §3: frame j may follow frame i if it resembles
    the one that did).

    rates: of each direction, one per bin, of equal length, longer than `window`. within: number of bins at the end that
    may be cut. window: how many bins are compared. The jump is the root mean square of the differences, in standard
    deviations of each direction; two unrelated moments have 1.41 on average.
    """
    count = len(rates[0])
    scaled = [each / (each.std() or 1.0) for each in rates]
    ends = np.arange(max(window, count - within), count - window + 1)
    leaps = np.sqrt(
        np.mean([[np.mean((each[end : end + window] - each[:window]) ** 2) for end in ends] for each in scaled], axis=0)
    )
    best = int(np.argmin(leaps))
    return int(ends[best]), float(leaps[best])
