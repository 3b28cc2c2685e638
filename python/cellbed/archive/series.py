"""Series over time: Parquet files with one of three kinds of content.

| content | columns | meaning of a row |
|---|---|---|
| ``opportunities`` | ``at_ns`` int64 | a packet delivery opportunity of at most 1500 bytes of IP |
| ``rate`` | ``at_ns`` int64, ``bit_s`` float64 | the rate from this time to the next row's time, or to the end |
| ``round-trip`` | ``at_ns`` int64, ``round_trip_ns`` int64 or null | a probe sent at this time; null: no answer |

Times count from the start of the recording. They are never negative and never decrease.
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
"""Direction by suffix: ``walk.up`` is the uplink of ``walk``."""

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

    path: the Parquet file. duration_ns: time from zero to the end, which may be later than the last row; the period of
    a looped replay.
    """

    content: Content
    path: Path
    duration_ns: int

    def scan(self) -> pl.LazyFrame:
        """Return the rows, read lazily."""
        import polars as pl

        return pl.scan_parquet(inputs.check(self.path))
