"""Times without capacity, or without an answer: those long enough to be outages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cellbed.archive.statistics.distribution import Distribution

MOST_HELD = 4096
"""Outages whose place is held, the longest ones; the figures are of all."""

Times = NDArray[np.int64]


class Silences:
    """Outages in order of time. least_ns: their least length."""

    def __init__(self, least_ns: int) -> None:
        self.least_ns = least_ns
        self.lengths = Distribution()
        self._begins = np.empty(0, np.int64)
        self._lengths = np.empty(0, np.int64)
        self._since: int | None = None
        self._head_ns = 0

    def follow(self, at: Times, silent: NDArray[np.bool_]) -> None:
        """Take whether there is silence from each time until the next; times continue those of the last call."""
        times = at[np.flatnonzero(np.diff(silent, prepend=self._since is not None))]
        if self._since is not None:
            times = np.concatenate(([self._since], times))
        self._since = int(times[-1]) if len(times) % 2 else None
        begins, ends = times[: len(times) // 2 * 2 : 2], times[1::2]
        if len(begins) and begins[0] == 0:
            # It continues from the end of the loop: `close` joins them.
            self._head_ns = int(ends[0])
            begins, ends = begins[1:], ends[1:]
        self.add(begins, ends - begins)

    def close(self, end_ns: int) -> None:
        """Nothing more follows: what is silent at the end, where a replay begins again, lasts into the beginning."""
        tail_ns = 0 if self._since is None else end_ns - self._since
        begin = 0 if self._since is None else self._since
        self.add(np.array([begin]), np.array([self._head_ns + tail_ns]))

    def add(self, begins: Times, lengths: Times) -> None:
        """Take silences; those that are shorter than an outage do not count."""
        long = lengths >= self.least_ns
        if not long.any():
            return
        self.lengths.add(lengths[long])
        self._begins = np.concatenate((self._begins, begins[long]))
        self._lengths = np.concatenate((self._lengths, lengths[long]))
        if len(self._begins) > 2 * MOST_HELD:
            self._begins, self._lengths = self.longest(MOST_HELD)

    def longest(self, most: int) -> tuple[Times, Times]:
        """Beginnings and lengths in ns of the `most` longest outages, in order of time."""
        kept = np.sort(np.argsort(-self._lengths, kind="stable")[:most])
        return self._begins[kept], self._lengths[kept]

    def figures(self, duration_ns: int) -> dict[str, float | int | list[float]]:
        """The statistics of the outages of a series of this duration."""
        found: dict[str, float | int | list[float]] = {"outage_from_ms": self.least_ns / 1e6}
        found["outages"] = self.lengths.count
        if not self.lengths.count:
            return found | {"outage_share": 0.0}
        begins, lengths = self.longest(64)
        most = int(np.argmax(lengths))
        median, high = self.lengths.quantiles(np.array([0.5, 0.95])) / 1e6
        return found | {
            "outage_share": self.lengths.mean * self.lengths.count / duration_ns,
            "outage_mean_ms": self.lengths.mean / 1e6,
            "outage_p50_ms": median,
            "outage_p95_ms": high,
            "outage_longest_ms": lengths[most] / 1e6,
            "outage_longest_at_s": begins[most] / 1e9,
            "outage_begins_s": (begins / 1e9).tolist(),
            "outage_lengths_s": (lengths / 1e9).tolist(),
        }
