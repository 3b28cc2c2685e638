"""Series that an importer has read, written into a draft with the rules for their rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.archive.draft import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.series import Content, Part, Series

if TYPE_CHECKING:
    import numpy as np

UNANSWERED = -1
"""The round-trip time of a probe without an answer."""


def write_series(
    draft: Draft,
    part: Part,
    at_ns: Sequence[int] | np.ndarray,
    values: Sequence[float] | np.ndarray,
    duration_ns: int,
    source: Path,
    place: Callable[[int], str],
) -> None:
    """Write rates (bit/s) or round-trip times (ns) of a recording into the draft.

    source, place: the file, and the place of a row in it, for messages. Raises TraceError for rows that are not in
    order of time, impossible rates, and a duration that does not fit.
    """
    import numpy as np

    from cellbed import _core

    content = Content.ROUND_TRIP if part == "round-trip" else Content.RATE
    try:
        times = np.ascontiguousarray(at_ns, np.int64)
        if content is Content.RATE:
            _core.write_rates(draft.folder, part, duration_ns, times, np.ascontiguousarray(values, np.float64))
        else:
            _core.write_round_trips(draft.folder, duration_ns, times, np.ascontiguousarray(values, np.int64))
    except OverflowError:
        raise TraceError(f"{source}: its times are beyond the ten years that a series can last") from None
    except ValueError as error:
        row, reason = error.args
        where = source if row is None else f"{source}: {place(row)}"
        raise TraceError(f"{where}: {reason}") from None
    except OSError as error:
        raise TraceError(str(error)) from None
    draft.parts[part] = Series(content, draft.folder / f"{part}.parquet", duration_ns)


def nearest(number: float) -> int:
    """Return the nearest whole number, of two the one farther from zero."""
    below = math.floor(abs(number))
    return int(math.copysign(below + (abs(number) - below >= 0.5), number))
