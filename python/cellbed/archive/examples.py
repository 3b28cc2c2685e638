"""The synthetic traces that every archive has, generated from published statistics of cellular links on first use.

The model is the doubly stochastic one of Sprout (Winstein, Sivaraman, Balakrishnan, NSDI 2013, §3.1). Deliveries are
a Poisson process whose rate wanders as Brownian motion. Outages begin at random, and end at a constant escape rate.
Two things are added. First, the rate is pulled back to a mean and reflected at two bounds (an Ornstein-Uhlenbeck
process between walls): a motion without a pull keeps neither the mean nor the range that a publication gives. Second,
an outage may be placed at a given time, so that an example is certain to have one.

The opportunities must be the same on every machine and with every version of Python. Hence only `random.Random` is
used, whose ``random()`` is guaranteed to stay the same, and operations that IEEE 754 rounds exactly. Logarithms are
not used: their last bit depends on the C library. Normal variates are sums of uniforms, exponential variates result
from comparisons of uniforms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from cellbed.archive.randomness import exponential, reflect
from cellbed.archive.series import ENDINGS, OPPORTUNITY_BYTES, Content, Part, Series

if TYPE_CHECKING:
    from cellbed.archive.entry import About, Draft, Entry

TICK = 0.02
"""Interval between two steps of the rate, s, as in Sprout (§3.2)."""


@dataclass(frozen=True, slots=True)
class Example:
    """One direction of a synthetic link.

    mean, deviation, low, high: of the rate outside outages, bit/s; the rate stays within low and high.
    reversion: time constant of the rate's return to its mean, seconds.
    outage_rate: outages per second. escape_rate: inverse of an outage's mean duration, 1/s.
    placed_outage: (start, duration) of a certain outage, seconds, or None.
    duration: seconds. source: publication of the range; the other figures are chosen to fit the range.
    """

    name: str
    mean: float
    deviation: float
    low: float
    high: float
    reversion: float
    outage_rate: float
    seed: int
    source: str
    escape_rate: float = 8.0
    placed_outage: tuple[float, float] | None = None
    duration: int = 120

    def stamps(self) -> list[int]:
        """Return the opportunities of the trace, milliseconds.

        The last opportunity is at the very end, so that the period of the looped trace is `duration`.
        """
        stamps = [math.ceil(time * 1000) for time in _deliveries(self, Random(self.seed).random)]
        end = self.duration * 1000
        if not stamps or stamps[-1] != end:
            stamps.append(end)
        return stamps


_MISHCHENKO = (
    "Mishchenko, Network Simulation for AI in the Digital Continuum, Vrije Universiteit Amsterdam, 2025, section 5.3: "
)

MODELS: dict[str, Example] = {
    model.name: model
    for model in (
        Example(
            name="lte-suburban.up",
            mean=15e6,
            deviation=3e6,
            low=6e6,
            high=21e6,
            reversion=2.0,
            outage_rate=0.04,
            placed_outage=(30.0, 1.2),
            seed=1,
            source=_MISHCHENKO + "LTE uplink largely 10 Mbit/s to 20 Mbit/s",
        ),
        Example(
            name="lte-suburban.down",
            mean=45e6,
            deviation=14e6,
            low=8e6,
            high=80e6,
            reversion=2.0,
            outage_rate=0.03,
            seed=2,
            source=_MISHCHENKO + "LTE downlink up to 80 Mbit/s",
        ),
        Example(
            name="5g-midband.up",
            mean=44e6,
            deviation=16e6,
            low=8e6,
            high=75e6,
            reversion=2.5,
            outage_rate=0.03,
            seed=5,
            source=_MISHCHENKO + "5G uplink up to 75 Mbit/s",
        ),
        Example(
            name="5g-midband.down",
            mean=120e6,
            deviation=42e6,
            low=20e6,
            high=200e6,
            reversion=2.5,
            outage_rate=0.02,
            escape_rate=10.0,
            seed=4,
            source=_MISHCHENKO + "5G downlink up to 200 Mbit/s",
        ),
    )
}


def _deliveries(model: Example, uniform: Callable[[], float]) -> Iterator[float]:
    """Return the times of the delivery opportunities in seconds, above 0 and at most the duration."""
    # The stationary deviation of an Ornstein-Uhlenbeck process is volatility * sqrt(reversion / 2).
    volatility = model.deviation / math.sqrt(model.reversion / 2)
    rate = model.mean
    outage_ends = 0.0
    for tick in range(round(model.duration / TICK)):
        start, end = tick * TICK, (tick + 1) * TICK
        if uniform() < model.outage_rate * TICK:
            outage_ends = max(outage_ends, start + exponential(uniform) / model.escape_rate)
        if model.placed_outage is not None and start >= model.placed_outage[0] > start - TICK:
            outage_ends = max(outage_ends, sum(model.placed_outage))
        # An exponential process has no memory: opportunities do not depend on the previous tick.
        opportunities_per_second = rate / (8 * OPPORTUNITY_BYTES)
        time = max(start, outage_ends)
        while (time := time + exponential(uniform) / opportunities_per_second) <= end:
            yield time
        step = (model.mean - rate) * TICK / model.reversion + volatility * math.sqrt(TICK) * _normal(uniform)
        rate = reflect(rate + step, model.low, model.high)


def _normal(uniform: Callable[[], float]) -> float:
    """Return an approximately standard normal variate, as accurate as needed: twelve uniforms less six (Irwin-Hall)."""
    return sum(uniform() for _ in range(12)) - 6.0


_TECHNOLOGY: Final = {"lte-suburban": ("4g", None), "5g-midband": ("5g", "mid")}

_HOW: Final = {"model": "example", "revision": 2}
"""History of an example. Increase the revision when a model's opportunities change."""

EXAMPLES: Final = tuple(dict.fromkeys(name.partition(".")[0] for name in MODELS))
"""Names of the example entries."""


def about(name: str) -> About:
    """Return the metadata of an example."""
    from cellbed.archive.entry import About

    technology, band = _TECHNOLOGY[name]
    return About(
        origin="synthetic",
        technology=technology,
        band=band,
        method="Poisson deliveries, rate an Ornstein-Uhlenbeck process reflected at two bounds, outages; seeds "
        + " and ".join(str(model.seed) for model in _models(name).values()),
        licence="Apache-2.0",
        citation="; ".join(model.source for model in _models(name).values()),
        note="Made by cellbed, not recorded on any network; only the range of the rates is published.",
    )


def fill(draft: Draft, name: str) -> None:
    """Write the series of an example into a draft."""
    import polars as pl

    from cellbed.archive.entry import Step

    for part, model in _models(name).items():
        path = draft.folder / f"{part}.parquet"
        stamps = pl.DataFrame({"at_ns": model.stamps()}, schema={"at_ns": pl.Int64})
        stamps.select(pl.col("at_ns") * 1_000_000).write_parquet(path)
        draft.parts[part] = Series(Content.OPPORTUNITIES, path, model.duration * 10**9)
    draft.history.append(Step(what="generated", how=_HOW))


def is_current(entry: Entry) -> bool:
    """Return whether this version's models made an example."""
    return any(step.how == _HOW for step in entry.history)


def _models(name: str) -> dict[Part, Example]:
    return {part: MODELS[f"{name}.{ending}"] for ending, part in ENDINGS.items()}
