"""The files of CellReplay's public tool (Sentosa et al., NSDI 2025) as text: light rows, heavy traces, offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from cellbed.recordings.cellreplay import LightRow, Offsets

NAMES: dict[str, str] = {
    "light_uplink": "up-delay-light-pdo",
    "light_downlink": "down-delay-light-pdo",
    "heavy_uplink": "up-heavy-pdo",
    "heavy_downlink": "down-heavy-pdo",
    "latency_offset_uplink": "latency-offset-up",
    "latency_offset_downlink": "latency-offset-down",
}
"""Names of the files."""

_MS = 1_000_000
_STEP = 100


def light_text(rows: Iterable[LightRow], *, whole: bool) -> str:
    """Return lines ``TIME BASE_DELAY PDO PDO …`` in ms. whole: whole ms, as the tool requires; else max. 6 decimals."""
    lines = (" ".join(_millis(value, whole) for value in (time, delay, *after)) for time, delay, after in rows)
    return "".join(f"{line}\n" for line in lines)


def heavy_text(times: npt.NDArray[np.int64]) -> str:
    """Return a trace in Mahimahi's format.

    Args:
        times: Opportunities, ns, in order.

    Returns:
        A line for each opportunity, rounded to whole ms.
    """
    millis, counts = np.unique((times + _MS // 2) // _MS, return_counts=True)
    return "".join(f"{ms}\n" * count for ms, count in zip(millis.tolist(), counts.tolist(), strict=True))


def offsets_text(offsets: Offsets, *, stepped: bool) -> str:
    """Return lines ``BYTES OFFSET``, in ms. stepped: at 100, 200, … bytes, as the tool requires, interpolated."""
    if stepped:
        sizes, shifts = zip(*offsets, strict=True)
        steps = np.arange(_STEP, max(_STEP, max(sizes)) + 1, _STEP)
        between = np.rint(np.interp(steps, sizes, shifts)).astype(np.int64)
        offsets = list(zip(steps.tolist(), between.tolist(), strict=True))
    return "".join(f"{size} {'-' if shift < 0 else ''}{_millis(abs(shift), False)}\n" for size, shift in offsets)


def _millis(nanos: int, whole: bool) -> str:
    if whole:
        return str((nanos + _MS // 2) // _MS)
    millis, rest = divmod(nanos, _MS)
    return f"{millis}.{rest:06}".rstrip("0") if rest else str(millis)
