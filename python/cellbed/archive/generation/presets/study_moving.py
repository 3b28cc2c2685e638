"""mmWave behind obstacles and in a car, sub-6 GHz in a subway (Lim et al., §VI), by the radio model."""

from __future__ import annotations

from cellbed.archive.generation.making import saturating
from cellbed.archive.generation.measures import handover_every, mean_within, round_trip_outside
from cellbed.archive.generation.model import MBIT, MS, SECONDS, Figure, Model, about
from cellbed.archive.generation.presets.study import CITATION, KOREA, US, up_to
from cellbed.archive.generation.radio import Handover, Obstacle, RadioLink, Side

_SLOT_NS = 125_000
_BLOCKS, _UPLINK_BLOCKS = 264, 66
"""400 MHz down and 100 MHz up (§IV-A) at 120 kHz spacing (TS 38.101-2, table 5.3.2-1)."""
_DOWN, _UP = [14] * 10 + [0], [0] * 10 + [14]
"""Ten slots down for one up (§IV-A)."""
_OVERHEAD_DOWN, _OVERHEAD_UP = 0.18, 0.10
"""TS 38.306, §4.1.2, for frequency range 2."""

DOWNLINK = {"blocks": _BLOCKS, "layers": 2, "overhead": _OVERHEAD_DOWN, "slot_ns": _SLOT_NS, "symbols": _DOWN}
UPLINK = {"blocks": _UPLINK_BLOCKS, "layers": 2, "overhead": _OVERHEAD_UP, "slot_ns": _SLOT_NS, "symbols": _UP}

LINE_OF_SIGHT = RadioLink(
    "midband-good",
    uplink=Side(30.0, 0.7, 0.02, UPLINK),
    downlink=Side(41.0, 0.57, 0.01, DOWNLINK),
    fading_db=1.0,
    delay_ns=3_300_000,
)
"""50 m from the tower (§VI-A).

Signal and share are ours: 2 Gbit/s with all the efficiency that there is, and the half of it with 26 dB less.
"""

HUMAN_DB, VEHICLE_DB = 26.0, 29.0
"""§VI-A."""
COMPLETE_DB = 60.0
"""Ours: more than the link bears."""
VEHICLE_SHARE = 0.47
"""Ours. 3 dB more than a human body explain less of the published drop from 1 Gbit/s to 350 Mbit/s than half."""
COMPLETE_SHARE = 0.02

_TIMES = (20_000_000_000, 40_000_000_000)
_LASTS = 10_000_000_000

DRIVING_NS, SUBWAY_NS = 33_300_000_000, 14_000_000_000
"""Mean time between handovers (§VI-B)."""

_CITED = (
    "Published: what is lost in decibels, when and how long, and the mean rates. Ours: signal and fading of the link "
    "in line of sight, half a second in which an obstacle comes and goes, and what the scheduler leaves behind it. The "
    "radio model is that of docs/reference/radio.md; its base delay is set to the published round trip."
)
_MOVING = (
    "Published: the mean time between handovers. Ours: the length of their gaps (80 to 300 ms), signal, fading and "
    "share. That the connection falls back to LTE between two 5G cells is published too, but not for how long: it is "
    "left out."
)


def _still() -> tuple[tuple[int, int], ...]:
    """The whole seconds (from, to) in which an obstacle stands still."""
    return tuple((at // 10**9 + 1, (at + _LASTS) // 10**9 - 1) for at in _TIMES)


def _around() -> tuple[tuple[int, int], ...]:
    return tuple((at // 10**9, (at + _LASTS) // 10**9 + 2) for at in _TIMES)


def _behind(loss_db: float, share: float) -> Obstacle:
    return Obstacle(loss_db, share, _TIMES, _LASTS)


def _blocked(name: str, what: str, obstacle: str, behind: Obstacle, published: str, low: float, high: float) -> Model:
    clear, around = about(2e9, 0.1), mean_within(_around(), inside=False)
    trip = about(0.021, 0.15)
    return Model(
        name=name,
        summary=f"mmWave 5G, {what} twice for 10 s in line of sight: 2 Gbit/s, behind it {published}.",
        about=US | {"technology": "5g", "band": "mmwave", "operator": "after Verizon", "mobility": "stationary"}
        | {"obstacle": obstacle},
        citation=f"{CITATION}, §VI-A and figure 8",
        cited=_CITED,
        duration="70 s",
        make=saturating(
            RadioLink(
                LINE_OF_SIGHT.profile, LINE_OF_SIGHT.uplink, LINE_OF_SIGHT.downlink,
                obstacle=behind, fading_db=LINE_OF_SIGHT.fading_db, delay_ns=LINE_OF_SIGHT.delay_ns,
            )
        ),
        figures=(
            Figure("downlink", "mean without it", "2 Gbit/s", *clear, MBIT, "§VI-A", around),
            Figure("downlink", "mean behind it", published, low, high, MBIT, "§VI-A", mean_within(_still())),
            Figure("round-trip", "mean without it", "21 ms", *trip, MS, "§VI-A", round_trip_outside(_around())),
        ),
    )  # fmt: skip


def _every(seconds: float) -> Figure:
    low, high = about(seconds, 0.1)
    return Figure("downlink", "time between handovers", f"{seconds:g} s", low, high, SECONDS, "§VI-B", handover_every)


MODELS = (
    _blocked("mmwave-human-us", "a human body", "body", _behind(HUMAN_DB, 1.0), "1 Gbit/s", *about(1e9, 0.1)),
    _blocked(
        "mmwave-vehicle-us",
        "a vehicle",
        "vehicle",
        _behind(VEHICLE_DB, VEHICLE_SHARE),
        "350 Mbit/s",
        *about(0.35e9, 0.1),
    ),
    _blocked(
        "mmwave-blocked-us",
        "something",
        "complete",
        _behind(COMPLETE_DB, COMPLETE_SHARE),
        "near zero",
        0.0,
        20e6,
    ),
    Model(
        name="mmwave-driving-us",
        summary="mmWave 5G in a car, small cells 250 to 300 m apart: a handover every 33.3 s.",
        about=US | {"technology": "5g", "band": "mmwave", "operator": "after Verizon", "mobility": "driving"},
        citation=f"{CITATION}, §VI-B and figure 9",
        cited=_MOVING,
        duration="360 s",
        make=saturating(
            RadioLink(
                "midband-good",
                uplink=Side(12.0, 0.7, 0.02, UPLINK),
                downlink=Side(20.0, 0.57, 0.02, DOWNLINK),
                handover=Handover(DRIVING_NS, spread_db=6.0),
                fading_db=6.0,
                memory_ns=2_000_000_000,
                delay_ns=4_000_000,
            )
        ),
        figures=(_every(33.3),),
    ),
    Model(
        name="sub6-subway-korea",
        summary="5G at 3.6 GHz in a subway: a handover every 14 s.",
        about=KOREA | {"technology": "5g", "band": "mid", "operator": "after SKT", "mobility": "subway"},
        citation=f"{CITATION}, §VI-B and figure 10",
        cited=_MOVING,
        duration="300 s",
        make=saturating(
            RadioLink(
                "midband-driving",
                uplink=Side(12.0, 0.8),
                downlink=Side(20.0, 0.9),
                handover=Handover(SUBWAY_NS, spread_db=4.0),
                fading_db=5.0,
                memory_ns=1_000_000_000,
            )
        ),
        figures=(_every(14.0), up_to("downlink", 1600, "§IV-A, at rest", 0.2)),
    ),
)
