"""The definition of an outage, and the version of the statistics' definitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

VERSION: Final = 1
"""Increases when a figure changes its meaning; statistics of other versions are computed again."""

LONGEST_NS: Final = 400 * 86_400 * 10**9
"""Of a series whose statistics are made: one number is kept aside for each second of it."""


@dataclass(frozen=True, slots=True)
class Definition:
    """outage_ns: the least time without capacity, or without an answer, that counts as an outage.

    300 ms, as in the report of a run. A rate is no capacity where it would not fill one opportunity of 1500 bytes in
    that time, which is when replaying it gives such a silence.
    """

    outage_ns: int = 300_000_000

    @property
    def outage_bit_s(self) -> float:
        """Rates below this one count as none."""
        return 1500 * 8 / (self.outage_ns / 1e9)

    def made(self, statistics: dict[str, Any] | None) -> bool:
        """Return whether `statistics` are by this definition, of this version."""
        return statistics is not None and (statistics.get("definition"), statistics.get("outage_from_ms")) == (
            VERSION,
            self.outage_ns / 1e6,
        )


DEFAULT = Definition()
