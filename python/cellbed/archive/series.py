"""Series over time: Parquet files of one of three contents.

| content | columns | a row is |
|---|---|---|
| ``opportunities`` | ``at_ns`` int64 | a packet delivery opportunity of at most 1500 bytes of IP |
| ``rate`` | ``at_ns`` int64, ``bit_s`` float64 | the rate from this time until the next row's, or the end |
| ``round-trip`` | ``at_ns`` int64, ``round_trip_ns`` int64 or null | a probe sent then; null if no answer came |

Times count from the recording's start, are never negative and never run backwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cellbed import inputs
from cellbed.archive.errors import TraceError

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

Part = Literal["uplink", "downlink", "round-trip"]
"""The subject of a series."""
PARTS: tuple[Part, ...] = ("uplink", "downlink", "round-trip")
ENDINGS: dict[str, Part] = {"up": "uplink", "down": "downlink"}
"""The suffix of the name of an entry's direction, after the dot."""

OPPORTUNITY_BYTES = 1500
"""Bytes of IP that one opportunity carries."""


class Content(StrEnum):
    """The content of a series' rows."""

    OPPORTUNITIES = "opportunities"
    RATE = "rate"
    ROUND_TRIP = "round-trip"


@dataclass(frozen=True, slots=True)
class Series:
    """One part of a recording.

    path: its Parquet file. duration_ns: from time zero to its end, which may be later than its last row; the period
    of a looped replay.
    """

    content: Content
    path: Path
    duration_ns: int

    def scan(self) -> pl.LazyFrame:
        """Its rows, read lazily."""
        import polars as pl

        return pl.scan_parquet(inputs.checked(self.path))

    def rows(self, threads: int = 1) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Its rows in batches of some 65,000: times, and values in bit/s or ns, NaN for a lost probe.

        Opportunities have no values. Pages of the file are decoded one by one, in a few MiB of memory at any file size;
        importing Polars alone takes 80 MiB. threads: decode so many row groups at once, in as much more.

        Raises TraceError, which names the file, for one that is missing, damaged, or lacks a column or a time. There
        are no other checks.
        """
        from cellbed._core import SeriesRows, TraceFormatError

        try:
            yield from SeriesRows(inputs.checked(self.path), self.content, threads)
        except TraceFormatError as error:
            raise TraceError(str(error)) from None
        except FileNotFoundError:
            raise TraceError(f"{self.path}: missing") from None
        except OSError as error:
            raise TraceError(f"{self.path}: cannot be read: {error.strerror or error}") from None
