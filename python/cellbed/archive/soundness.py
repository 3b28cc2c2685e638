"""Check a series: columns, times that never run backwards, at least one value to replay."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed import inputs
from cellbed.archive.errors import TraceError
from cellbed.archive.series import Content, Series

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LATEST_NS = 10 * 365 * 24 * 3600 * 10**9
"""No recording is longer than ten years: a larger time is one in another unit."""
_HIGHEST_BIT_S = 1e12


def require_sound(series: Series) -> int:
    """The number of rows of a series, read once as a stream.

    Raises TraceError ``FILE: reason`` for a file that is not Parquet, has other columns, or invalid values.
    """
    path, found = series.path, _Measures()
    for at, values in series.rows():
        found.add(at, values)
    fault = _fault(series, found)
    if fault:
        raise TraceError(f"{path}: {fault}")
    return found.rows


def sha256(path: Path) -> str:
    """Hexadecimal digest of a file's bytes. Raises TraceError."""
    import hashlib

    try:
        with inputs.opened(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TraceError(f"{path}: {'missing' if error.errno == 2 else f'cannot be read: {error.strerror}'}") from None


@dataclass(slots=True)
class _Measures:
    """Figures for the check of a series. unknown: rows whose value is no finite number. highest: of the others."""

    rows: int = 0
    first: int = 0
    last: int = 0
    rising: bool = True
    unknown: int = 0
    lowest: float = math.inf
    highest: float = -math.inf

    def add(self, at: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        import numpy as np

        if not self.rows:
            self.first = self.last = int(at[0])
        self.rows += len(at)
        self.rising &= self.last <= int(at[0]) and bool((at[1:] >= at[:-1]).all())
        self.last = int(at[-1])
        known = values[np.isfinite(values)]
        self.unknown += len(values) - len(known)
        if len(known):
            self.lowest = min(self.lowest, float(known.min()))
            self.highest = max(self.highest, float(known.max()))


def _fault(series: Series, found: _Measures) -> str:
    """The problem of a series with these figures; empty if none."""
    rate = series.content is Content.RATE
    if not found.rows:
        return "no rows: nothing to replay"
    if found.first < 0:
        return "a time is negative: times count from the recording's start"
    if not found.rising:
        return "times run backwards"
    if found.last > LATEST_NS:
        return f"a time is {found.last / 1e9:.3g} s, more than ten years: wrong unit?"
    if not found.last <= series.duration_ns <= LATEST_NS or series.duration_ns < 1:
        return f"a duration of {series.duration_ns} ns does not fit: the last row is at {found.last} ns"
    if rate and found.unknown:
        return f"{found.unknown} rows have no rate"
    if found.lowest < 0:
        return f"a {'rate' if rate else 'round-trip time'} is negative"
    if rate and not found.highest:
        return "all rates are 0: no packet would ever pass"
    if rate and found.highest > _HIGHEST_BIT_S:
        return f"a rate is {found.highest:.3g} bit/s, above 1 Tbit/s: wrong unit?"
    return ""
