"""Places behind the core network: their distance from the tower, as one number and as a distribution.

The published figures are round-trip times (G. Mishchenko, "Network Simulation for AI in the Digital Continuum",
bachelor thesis, Vrije Universiteit Amsterdam, 2025, Table 5.2). The thesis takes the core as symmetric and halves
them (§5.1), and so do we: **a place's one-way delay is half of its published round-trip time**, so that a name means
the table has ("~1 ms", "~10 ms", "~20 ms", "~80 ms"). A public configuration of these four locations has other values
(0, 3.125, 7.5 and 45 ms one way); they are kept here for the record. To use them, write the delay itself, as in
``cloud = "3.125 ms"``.

Of the distributions around them the thesis has pictures (Figure 5.5) and words (§5.3): little jitter, a long right
tail, round trips that are slightly slower in peak hours, and for eu-west-3 two modes, taken for two routes. A
`RoundTrips` has that shape around the published time. **Its widths are chosen by cellbed and published nowhere**: it is
synthetic. Records of a real place replay in its stead (`cellbed ping-record`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from statistics import NormalDist
from typing import Literal

_MS = 1_000_000

Hours = Literal["off-peak", "peak"]

PEAK = 2.0
"""How much longer queues are in peak hours. Chosen: "a slight difference" (thesis, §5.3)."""
HOLD = 100 * _MS
"""Nanoseconds for which a round-trip time holds, in runs of up to an hour. Chosen."""
_MOST = 36_000
"""Maximum number of round-trip times in a run; in a longer run each holds for longer."""
ROUTE = 1800 * 1000 * _MS
"""Mean nanoseconds between two changes of the route, where there are several. Chosen: they are rare beside a run."""
_HIGHEST = 0.99999
"""The tail is cut at a probability of one in a hundred thousand."""


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """A distribution of round-trip times: the minimum of a route plus log-normal queueing.

    A shifted log-normal distribution, with a long right tail, is the usual fit of wide-area delays.
    routes: (share of the time, least round-trip time in ns) of each. queue: median of the queueing, ns, in off-peak
    hours. sigma: standard deviation of the logarithm of that.
    """

    routes: tuple[tuple[float, int], ...]
    queue: int
    sigma: float

    def percentile(self, share: float, hours: Hours) -> int:
        """Return a quantile of the round-trip times, ns, over many changes of route."""
        low, high = min(least for _, least in self.routes), 10**12
        while high - low > 1000:
            middle = (low + high) // 2
            below = sum(part * self._below(middle - least, hours) for part, least in self.routes)
            low, high = (middle, high) if below < share else (low, middle)
        return high

    def _below(self, queue: int, hours: Hours) -> float:
        if queue <= 0:
            return 0.0
        return NormalDist().cdf(math.log(queue / self._queue(hours)) / self.sigma)

    def _queue(self, hours: Hours) -> float:
        return self.queue * (PEAK if hours == "peak" else 1.0)

    def over(self, duration: int, hours: Hours, random: Random) -> list[tuple[int, int]]:
        """Round-trip times over `duration` ns: (from when, ns), `HOLD` apart, with the route that holds."""
        normal = NormalDist(math.log(self._queue(hours)), self.sigma)
        least, until = self._route(random), random.expovariate(1 / ROUTE)
        found = []
        for at in range(0, duration, max(HOLD, duration // _MOST)):
            while at >= until and len(self.routes) > 1:
                least, until = self._route(random), until + random.expovariate(1 / ROUTE)
            share = min(max(random.random(), 1 - _HIGHEST), _HIGHEST)
            found.append((at, least + round(math.exp(normal.inv_cdf(share)))))
        return found

    def _route(self, random: Random) -> int:
        shares, least = zip(*self.routes, strict=True)
        return int(random.choices(least, shares)[0])


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the core network.

    one_way: nanoseconds, the delay that the link gets. published_rtt: the round-trip time in print, for people.
    measured: nanoseconds one way in the public configuration of the same locations; not used by any link.
    round_trips: the distribution whose median in off-peak hours is the published time.
    """

    name: str
    where: str
    one_way: int
    published_rtt: str
    measured: int
    round_trips: RoundTrips


def _routes(*shares: tuple[float, float]) -> tuple[tuple[float, int], ...]:
    return tuple((share, round(milliseconds * _MS)) for share, milliseconds in shares)


PLACES: dict[str, Place] = {
    place.name: place
    for place in (
        Place(
            "base-edge",
            "edge at the tower, Amsterdam",
            _MS // 2,
            "1 ms",
            0,
            RoundTrips(_routes((1.0, 0.9)), _MS // 10, 0.6),
        ),
        Place(
            "eu-central-1",
            "local cloud, Frankfurt",
            5 * _MS,
            "10 ms",
            3_125_000,
            RoundTrips(_routes((1.0, 9.7)), 3 * _MS // 10, 0.8),
        ),
        Place(
            "eu-west-3",
            "regional cloud, Paris",
            10 * _MS,
            "20 ms",
            7_500_000,
            RoundTrips(_routes((0.6, 19.22), (0.4, 22.22)), 4 * _MS // 10, 0.8),
        ),
        Place(
            "us-east-1",
            "transcontinental cloud, Virginia",
            40 * _MS,
            "80 ms",
            45 * _MS,
            RoundTrips(_routes((1.0, 79.2)), 8 * _MS // 10, 0.9),
        ),
    )
}
