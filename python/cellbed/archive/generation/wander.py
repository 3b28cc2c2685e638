"""A rate that wanders between two bounds, with outages: for publications that give a range.

An autoregression of first order around a mean, reflected at the bounds, on ticks of 20 ms; outages begin at random and
last exponentially long. It is the process of the examples (after Winstein, Sivaraman, Balakrishnan, Stochastic
Forecasts Achieve High Throughput and Low Delay over Cellular Networks, NSDI 2013, §3.1), for any rate and as arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cellbed.archive.generation.capacity import Capacity
from cellbed.archive.randomness import Stream, reflect

TICK_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class Wander:
    """One direction.

    mean, deviation, low, high: bit/s, of the rate outside outages; the deviation is that without bounds. memory_ns:
    time constant of the rate's return to its mean. outages: per second. outage_ns: their mean length.
    """

    mean: float
    deviation: float
    low: float
    high: float
    memory_ns: int
    outages: float = 0.0
    outage_ns: int = 0

    def capacity(self, duration_ns: int, stream: Stream) -> Capacity:
        """Return a course of it."""
        import numpy as np

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
        # Far beyond one bound, the reflected value would cross the other.
        return min(max(reflect(rate, self.low, self.high), self.low), self.high)
