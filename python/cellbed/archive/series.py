"""Series over time: Parquet files of one of three contents.

| content | columns | a row is |
|---|---|---|
| ``opportunities`` | ``at_ns`` int64 | a packet delivery opportunity of at most 1500 bytes of IP |
| ``rate`` | ``at_ns`` int64, ``bit_s`` float64 | the rate from this time until the next row's, or the end |
| ``round-trip`` | ``at_ns`` int64, ``round_trip_ns`` int64 or null | a probe sent then; null if no answer came |

Times count from the recording's start, are never negative and never run backwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cellbed_node import inputs

if TYPE_CHECKING:
    import polars as pl

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
        """Return its rows, read lazily."""
        import polars as pl

        return pl.scan_parquet(inputs.check(self.path))
