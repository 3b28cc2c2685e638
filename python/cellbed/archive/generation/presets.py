"""Models after published figures: LTE and mid-band 5G in the Netherlands, and AT&T's LTE-A edge.

Values that a publication does not give are chosen so that its figures result; tests compare the figures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from cellbed.archive.generation.models import SLOT_LTE, SLOT_MIDBAND, Model, each_way
from cellbed.archive.generation.series import Capacity
from cellbed.archive.randomness import Stream, reflect

TICK_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class Wander:
    """A rate that wanders between two bounds, with outages: for publications that give a range.

    The rate is a first-order autoregression around a mean, reflected at the bounds, on ticks of 20 ms. Outages begin at
    random and have exponential lengths. :mod:`cellbed.archive.examples` has the same process; here it uses arrays, for
    any rate.

    mean, deviation, low, high: of the rate outside outages, bit/s; the deviation applies without bounds. memory_ns:
    time constant of the rate's return to its mean. outages: number per second. outage_ns: mean length of an outage.
    """

    mean: float
    deviation: float
    low: float
    high: float
    memory_ns: int
    outages: float = 0.0
    outage_ns: int = 0

    def capacity(self, duration_ns: int, stream: Stream) -> Capacity:
        """Return a sample of the process."""
        count = -(-duration_ns // TICK_NS)
        rates = np.array(self._rates(count, stream)).astype(np.int64)
        chance = self.outages * (TICK_NS * 1e-9)
        for tick in np.nonzero(stream.uniforms(count) < chance)[0].tolist():
            length = round(stream.exponential() * self.outage_ns / TICK_NS)
            rates[tick : tick + max(1, length)] = 0
        return Capacity(np.arange(count, dtype=np.int64) * TICK_NS, rates, duration_ns)

    def _rates(self, count: int, stream: Stream) -> list[float]:
        step = min(1.0, TICK_NS / self.memory_ns)
        kept = 1.0 - step
        noise = math.sqrt(1.0 - kept * kept) * self.deviation
        normals = stream.normals(count + 1).tolist()
        rates = [self._within(self.mean + self.deviation * normals[0])]
        for normal in normals[1:-1]:
            rates.append(self._within(self.mean + kept * (rates[-1] - self.mean) + noise * normal))
        return rates

    def _within(self, rate: float) -> float:
        # The reflection of a value far beyond one bound would cross the other bound.
        return min(max(reflect(rate, self.low, self.high), self.low), self.high)


CITATION: Final = "Mishchenko, Network Simulation for AI in the Digital Continuum, Vrije Universiteit Amsterdam, 2025"
_PLACE = {"place": "the Netherlands, 230 m from the tower", "operator": "after KPN", "mobility": "stationary"}
_CITED = (
    "Published: the ranges. Ours: means, deviations, time constants, outages, and that the directions are independent. "
    "Round-trip times of the mobile network are not published."
)
_LTE_DOWN = Wander(45e6, 20e6, 8e6, 83e6, 2_000_000_000, 0.03, 125_000_000)
_5G_DOWN = Wander(120e6, 45e6, 20e6, 205e6, 2_500_000_000, 0.02, 100_000_000)

PRESETS: Final = (
    Model(
        name="lte-netherlands",
        summary="LTE near a tower: up to 80 Mbit/s down and 20 Mbit/s up.",
        about=_PLACE | {"technology": "4g"},
        citation=f"{CITATION}, §5.3 and figure 5.8",
        cited=_CITED,
        make=each_way(Wander(14e6, 3e6, 6e6, 20.5e6, 2_000_000_000, 0.03, 125_000_000), _LTE_DOWN, SLOT_LTE),
    ),
    Model(
        name="5g-netherlands",
        summary="Mid-band 5G without an obstacle: up to 200 Mbit/s down and 75 Mbit/s up.",
        about=_PLACE | {"technology": "5g", "band": "mid"},
        citation=f"{CITATION}, §5.3 and figure 5.6",
        cited=_CITED,
        make=each_way(Wander(44e6, 17e6, 8e6, 77e6, 2_500_000_000, 0.03, 125_000_000), _5G_DOWN, SLOT_MIDBAND),
    ),
    Model(
        name="5g-window-netherlands",
        summary="Mid-band 5G behind a window: up to 200 Mbit/s down, but 10 to 25 Mbit/s up.",
        about=_PLACE | {"technology": "5g", "band": "mid", "obstacle": "window"},
        citation=f"{CITATION}, §5.3 and figure 5.7",
        cited=_CITED,
        make=each_way(Wander(17e6, 4e6, 9e6, 25e6, 2_500_000_000, 0.02, 125_000_000), _5G_DOWN, SLOT_MIDBAND),
    ),
    Model(
        name="lte-att-edge",
        summary="LTE-A with carrier aggregation, indoors near an edge server: up to 276 Mbit/s down.",
        about={"technology": "4g", "place": "a campus in the United States", "operator": "after AT&T"}
        | {"mobility": "stationary"},
        citation="Lim et al., An Empirical Study of 5G, IEEE Transactions on Mobile Computing, 2024, §V-A and Table II",
        cited="Published: the highest downlink rate; the round-trip time to the edge is 17.2 ± 1.9 ms (base_delay = "
        "'8.6 ms'). Ours: mean, deviation and time constant, and the whole uplink.",
        make=each_way(
            Wander(40e6, 5e6, 20e6, 50e6, 2_000_000_000), Wander(265e6, 8e6, 230e6, 280e6, 2_000_000_000), SLOT_LTE
        ),
    ),
)
