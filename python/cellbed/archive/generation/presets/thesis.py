"""LTE and mid-band 5G in the Netherlands, and a projection of 6G."""

from __future__ import annotations

from dataclasses import dataclass

from cellbed.archive.generation.capacity import Capacity
from cellbed.archive.generation.making import each_way
from cellbed.archive.generation.measures import highest, mean, round_trip_deviation, round_trip_mean, share_between
from cellbed.archive.generation.model import MBIT, MS, SHARE, SLOT_LTE, SLOT_MIDBAND, Figure, Model, about
from cellbed.archive.generation.round_trips import RoundTrips
from cellbed.archive.generation.wander import Wander
from cellbed.archive.randomness import Stream
from cellbed.archive.series import Content, Part

CITATION = (
    "Mishchenko, Network Simulation for AI in the Digital Continuum, bachelor thesis, Vrije Universiteit Amsterdam, "
    "2025"
)
_PLACE = {"place": "the Netherlands, 230 m from the tower", "operator": "after KPN", "mobility": "stationary"}
_CITED = (
    "Published: the ranges. Ours: means, deviations, time constants, outages, and that the directions are independent. "
    "Round-trip times of the mobile network are not published."
)


def _up_to(part: Part, mbit: float, tolerance: float = 0.1) -> Figure:
    low, high = about(mbit * 1e6, tolerance)
    return Figure(part, "highest second", f"up to {mbit:g} Mbit/s", low, high, MBIT, "§5.3", highest)


@dataclass(frozen=True, slots=True)
class Constant:
    """A rate (bit/s) that never changes."""

    bit_s: int

    def capacity(self, duration_ns: int, stream: Stream) -> Capacity:
        """It."""
        import numpy as np

        return Capacity(np.zeros(1, np.int64), np.full(1, self.bit_s), duration_ns)


_LTE_DOWN = Wander(45e6, 20e6, 8e6, 83e6, 2_000_000_000, 0.03, 125_000_000)
_5G_DOWN = Wander(120e6, 45e6, 20e6, 205e6, 2_500_000_000, 0.02, 100_000_000)

MODELS = (
    Model(
        name="lte-netherlands",
        summary="LTE near a tower: up to 80 Mbit/s down and 20 Mbit/s up.",
        about=_PLACE | {"technology": "4g"},
        citation=f"{CITATION}, §5.3 and figure 5.8",
        cited=_CITED,
        duration="120 s",
        make=each_way(Wander(14e6, 3e6, 6e6, 20.5e6, 2_000_000_000, 0.03, 125_000_000), _LTE_DOWN, SLOT_LTE),
        figures=(_up_to("uplink", 20), _up_to("downlink", 80)),
    ),
    Model(
        name="5g-netherlands",
        summary="Mid-band 5G without an obstacle: up to 200 Mbit/s down and 75 Mbit/s up.",
        about=_PLACE | {"technology": "5g", "band": "mid"},
        citation=f"{CITATION}, §5.3 and figure 5.6",
        cited=_CITED,
        duration="120 s",
        make=each_way(Wander(44e6, 17e6, 8e6, 77e6, 2_500_000_000, 0.03, 125_000_000), _5G_DOWN, SLOT_MIDBAND),
        figures=(_up_to("uplink", 75), _up_to("downlink", 200)),
    ),
    Model(
        name="5g-window-netherlands",
        summary="Mid-band 5G behind a window: up to 200 Mbit/s down, but 10 to 25 Mbit/s up.",
        about=_PLACE | {"technology": "5g", "band": "mid", "obstacle": "window"},
        citation=f"{CITATION}, §5.3 and figure 5.7",
        cited=_CITED,
        duration="120 s",
        make=each_way(Wander(17e6, 4e6, 9e6, 25e6, 2_500_000_000, 0.02, 125_000_000), _5G_DOWN, SLOT_MIDBAND),
        figures=(
            Figure("uplink", "highest second", "does not exceed 25 Mbit/s", 22e6, 25.2e6, MBIT, "§5.3", highest),
            Figure(
                "uplink", "share of seconds from 10 to 25 Mbit/s", "“largely”", 0.9, 1.0, SHARE, "§5.3",
                share_between(10e6, 25.2e6),
            ),
            _up_to("downlink", 200),
        ),
    ),
)  # fmt: skip

PROJECTED = (
    Model(
        name="6g-projection",
        summary="What 6G is projected to be: 100 Gbit/s and 0.1 ms each way, without jitter.",
        about={"technology": "6g"},
        citation=f"{CITATION}, §6.7, after Anafaa et al., 6G mobile communication technology, Alexandria Engineering "
        "Journal 64, 2023",
        cited="A projection, which nobody has measured: a constant rate and delay, no jitter, no outage, no queue.",
        duration="1 s",
        make=each_way(
            Constant(100_000_000_000), Constant(100_000_000_000), SLOT_MIDBAND, RoundTrips(200_000, 0), Content.RATE
        ),
        figures=(
            Figure("uplink", "mean rate", "100 Gbit/s", 100e9, 100e9, MBIT, "§6.7", mean),
            Figure("downlink", "mean rate", "100 Gbit/s", 100e9, 100e9, MBIT, "§6.7", mean),
            Figure("round-trip", "mean", "0.1 + 0.1 ms", 0.0002, 0.0002, MS, "§6.7", round_trip_mean),
            Figure("round-trip", "deviation", "negligible jitter", 0.0, 0.0, MS, "§6.7", round_trip_deviation),
        ),
    ),
)
