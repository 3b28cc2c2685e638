"""Places behind the core network: their distance from the tower, as one number and as a distribution.

Published values are round-trip times (G. Mishchenko, "Network Simulation for AI in the Digital Continuum", Vrije
Universiteit Amsterdam, 2025, Table 5.2). Mishchenko takes the core as symmetric and halves them (§5.1). So do we: **a
place's one-way delay is half of its published round-trip time**, so that names have the values of the table ("~1 ms",
"~10 ms", "~20 ms", "~80 ms"). A public configuration of these four locations has other values (0, 3.125, 7.5 and 45 ms
one way). To use them, write the delay itself, as in ``cloud = "3.125 ms"``.

The publication describes the distributions by pictures (Figure 5.5) and words (§5.3): little jitter, a long right
tail, round trips that are slightly slower in peak hours, and for eu-west-3 two modes, attributed to two routes. A
`RoundTrips` has that shape around the published time. **Its widths are chosen by cellbed and published nowhere**: it
is synthetic. Records of a real place can replace it (docs/how-to/recording.md#round-trips).

Further places come from two studies, with the part of their round-trip times behind the tower:

* `att-cloud-5g`, `att-cloud-4g`: H. Lim et al., "An Empirical Study of 5G: Effect of Edge on Transport Protocol and
  Application Performance", IEEE Transactions on Mobile Computing, 2024, Table II: a cloud server from AT&T's phones,
  40.7 ± 7.4 ms over 5G and 47.2 ± 0.6 ms over 4G. Of these, 6.1 and 17.2 ms reach the edge server at the tower, which
  leaves 34.6 and 30 ms. Widths follow the published deviations.
* `open-ireland`, `aws-ireland`: COSM-IC, Table I: from New York to Ireland, 112 ms over research networks and 90 ms
  over the public Internet.
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
"""Factor of queueing in peak hours. Chosen: "a slight difference" (Mishchenko, §5.3)."""
HOLD = 100 * _MS
"""Duration of a round-trip time in runs of up to an hour, ns. Chosen."""
_MOST = 36_000
"""Maximum number of round-trip times in a run; longer runs use longer durations."""
ROUTE = 1800 * 1000 * _MS
"""Mean time between two changes of the route, if there are several, ns. Chosen: changes are rare within a run."""
_HIGHEST = 0.99999
"""Quantile at which the tail is cut: one in a hundred thousand lies beyond."""


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """A distribution of round-trip times: the minimum of a route plus log-normal queueing.

    A shifted log-normal distribution, with a long right tail, is the usual fit of wide-area delays.
    routes: (share of the time, minimum round-trip time in ns) of each. queue: median of the queueing, ns, in off-peak
    hours. sigma: standard deviation of the queueing's logarithm.
    """

    routes: tuple[tuple[float, int], ...]
    queue: int
    sigma: float

    def typical_queue(self, hours: Hours) -> float:
        """Return the median of the queueing, ns."""
        return self.queue * (PEAK if hours == "peak" else 1.0)

    def over(self, duration: int, hours: Hours, random: Random) -> list[tuple[int, int]]:
        """Return round-trip times over `duration` ns: (begin, ns), `HOLD` apart, with the route at that time."""
        normal = NormalDist(math.log(self.typical_queue(hours)), self.sigma)
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

    one_way: delay of the link, nanoseconds. round_trips: distribution whose median in off-peak hours is the published
    time.
    """

    name: str
    one_way: int
    round_trips: RoundTrips


def _place(name: str, one_way: float, routes: tuple[tuple[float, float], ...], queue: float, sigma: float) -> Place:
    """Return a place; times in ms."""
    found = tuple((share, round(least * _MS)) for share, least in routes)
    return Place(name, round(one_way * _MS), RoundTrips(found, round(queue * _MS), sigma))


PLACES: dict[str, Place] = {
    place.name: place
    for place in (
        _place("base-edge", 0.5, ((1.0, 0.9),), 0.1, 0.6),  # edge at the tower, Amsterdam
        _place("eu-central-1", 5, ((1.0, 9.7),), 0.3, 0.8),  # local cloud, Frankfurt
        _place("eu-west-3", 10, ((0.6, 19.22), (0.4, 22.22)), 0.4, 0.8),  # regional cloud, Paris
        _place("us-east-1", 40, ((1.0, 79.2),), 0.8, 0.9),  # transcontinental cloud, Virginia
        _place("att-cloud-5g", 17.3, ((1.0, 31.4),), 3.2, 1.0),
        _place("att-cloud-4g", 15, ((1.0, 29.4),), 0.6, 0.7),
        _place("open-ireland", 56, ((1.0, 111.9),), 0.1, 0.6),
        _place("aws-ireland", 45, ((1.0, 89.5),), 0.5, 0.8),
    )
}
