"""Times without capacity, or without an answer: those long enough to be outages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellbed.archive.statistics.definition import Definition
from cellbed.archive.statistics.ranks import at_shares

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Outages:
    """Outages in order of time: when each begins, and its length, ns."""

    begins: Times
    lengths: Times

    @classmethod
    def among(cls, begins: Times, lengths: Times, definition: Definition) -> Outages:
        """Return the silences that last long enough."""
        long = lengths >= definition.outage_ns
        return cls(begins[long], lengths[long])

    @classmethod
    def of_intervals(cls, at: Times, silent: NDArray[np.bool_], end_ns: int, definition: Definition) -> Outages:
        """Return the outages among intervals between successive times; the last ends at `end_ns`.

        A silence at the end continues in one at the beginning, as in a looped replay.
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
        median, high = at_shares(self.lengths, (0.5, 0.95))
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
