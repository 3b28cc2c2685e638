"""Outages: their definition, and long times without capacity or without an answer.

Percentiles are values of the sample, never interpolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

VERSION: Final = 1
"""Increases when a figure changes its meaning; statistics of other versions are computed again."""

LONGEST_NS: Final = 400 * 86_400 * 10**9
"""Maximum length of a series with statistics: they need a number for each second of it."""


@dataclass(frozen=True, slots=True)
class Definition:
    """Definition of an outage. outage_ns: minimum time without capacity, or without an answer.

    The default is 300 ms, as in the report of a run. A rate counts as no capacity if it does not fill an opportunity of
    1500 bytes within this time: its replay then has a silence as long.
    """

    outage_ns: int = 300_000_000

    @property
    def outage_bit_s(self) -> float:
        """Minimum rate that counts as capacity, bit/s."""
        return 1500 * 8 / (self.outage_ns / 1e9)

    def matches(self, statistics: dict[str, Any] | None) -> bool:
        """Return whether `statistics` follow this definition and this version."""
        return statistics is not None and (statistics.get("definition"), statistics.get("outage_from_ms")) == (
            VERSION,
            self.outage_ns / 1e6,
        )


DEFAULT = Definition()


def quantiles(values: NDArray[Any], shares: Sequence[float]) -> list[float]:
    """Return the values of rank ceil(n · share), the inverse of the empirical distribution function.

    Raises IndexError without a value.
    """
    ranks = np.clip(np.ceil(np.asarray(shares) * len(values) - 1e-9), 1, len(values)).astype(np.int64)
    found: list[float] = np.sort(values)[ranks - 1].astype(np.float64).tolist()
    return found


def shares_below(values: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the distinct values in increasing order, and for each the share of values up to it."""
    places, counts = np.unique(values, return_counts=True)
    return places.astype(np.float64), np.cumsum(counts) / len(values)


Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Outages:
    """Outages in order of time. begins, lengths: beginning and length of each outage, ns."""

    begins: Times
    lengths: Times

    @classmethod
    def among(cls, begins: Times, lengths: Times, definition: Definition) -> Outages:
        """Return the silences that are long enough for an outage."""
        long = lengths >= definition.outage_ns
        return cls(begins[long], lengths[long])

    @classmethod
    def from_intervals(cls, at: Times, silent: NDArray[np.bool_], end_ns: int, definition: Definition) -> Outages:
        """Return the outages among the intervals between successive times. The last interval ends at `end_ns`.

        A silence at the end and a silence at the beginning form one, as in a looped replay.
        """
        edges = np.flatnonzero(np.diff(silent, prepend=False, append=False))
        times = np.append(at, end_ns)[edges]
        begins, lengths = times[::2], times[1::2] - times[::2]
        if len(begins) > 1 and begins[0] == 0 and times[-1] == end_ns:
            lengths[-1] += lengths[0]
            begins, lengths = begins[1:], lengths[1:]
        return cls.among(begins, lengths, definition)

    def longest(self, most: int) -> tuple[Times, Times]:
        """Return beginnings and lengths of the `most` longest outages, in order of time."""
        kept = np.sort(np.argsort(-self.lengths, kind="stable")[:most])
        return self.begins[kept], self.lengths[kept]

    def figures(self, duration_ns: int, definition: Definition) -> dict[str, Any]:
        """Return the statistics of the outages of a series of this duration."""
        found: dict[str, Any] = {"outage_from_ms": definition.outage_ns / 1e6, "outages": len(self.lengths)}
        if not len(self.lengths):
            return found | {"outage_share": 0.0}
        begins, lengths = self.longest(64)
        median, high = quantiles(self.lengths, (0.5, 0.95))
        most = int(np.argmax(lengths))
        return found | {
            "outage_share": self.lengths.sum() / duration_ns,
            "outage_mean_ms": self.lengths.mean() / 1e6,
            "outage_p50_ms": median / 1e6,
            "outage_p95_ms": high / 1e6,
            "outage_longest_ms": lengths[most] / 1e6,
            "outage_longest_at_s": begins[most] / 1e9,
            "outage_begins_s": (begins / 1e9).tolist(),
            "outage_lengths_s": (lengths / 1e9).tolist(),
        }
