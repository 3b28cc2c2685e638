"""Models after published figures: LTE and mid-band 5G in the Netherlands, and AT&T's LTE-A edge.

Values that the publication does not give are chosen so that its figures result, which tests compare.
"""

from __future__ import annotations

from typing import Final

from cellbed.archive.generation.model import SLOT_LTE, SLOT_MIDBAND, Model, each_way
from cellbed.archive.generation.wander import Wander

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
        summary="LTE-A with carrier aggregation, indoors beside an edge server: up to 276 Mbit/s down.",
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
