"""mmWave and sub-6 GHz 5G, and LTE-A, of four operators at rest (Lim et al.)."""

from __future__ import annotations

from cellbed.archive.generation.making import each_way
from cellbed.archive.generation.measures import highest, lowest, round_trip_deviation, round_trip_mean
from cellbed.archive.generation.model import MBIT, MS, SLOT_LTE, SLOT_MIDBAND, SLOT_MMWAVE, Figure, Model, about
from cellbed.archive.generation.round_trips import RoundTrips
from cellbed.archive.generation.wander import Places, Wander
from cellbed.archive.series import Part

CITATION = (
    "Lim et al., An Empirical Study of 5G: Effect of Edge on Transport Protocol and Application Performance, IEEE "
    "Transactions on Mobile Computing, 2023"
)
_CITED = (
    "Published: the highest rates and the round-trip times. Ours: everything between, that is means, deviations, time "
    "constants, outages, the shape of the round-trip times' distribution, and that the parts are independent."
)
US, KOREA = {"place": "the United States"}, {"place": "South Korea"}
_MEMORY = 2_000_000_000


def up_to(part: Part, mbit: float, place: str, tolerance: float = 0.1) -> Figure:
    """A highest rate."""
    low, high = about(mbit * 1e6, tolerance)
    return Figure(part, "highest second", f"up to {mbit:g} Mbit/s", low, high, MBIT, place, highest)


def _down_to(part: Part, mbit: float, place: str) -> Figure:
    low, high = about(mbit * 1e6, 0.1)
    return Figure(part, "lowest second", f"down to {mbit:g} Mbit/s", low, high, MBIT, place, lowest)


def _round_trips(mean_ms: float, deviation_ms: float) -> tuple[Figure, Figure]:
    (low, high), (least, most) = about(mean_ms / 1e3, 0.05), about(deviation_ms / 1e3, 0.2)
    return (
        Figure("round-trip", "mean", f"{mean_ms:g} ms", low, high, MS, "table II", round_trip_mean),
        Figure("round-trip", "deviation", f"± {deviation_ms:g} ms", least, most, MS, "table II", round_trip_deviation),
    )


def _ping(mean_ms: float, deviation_ms: float) -> RoundTrips:
    return RoundTrips(round(mean_ms * 1e6), round(deviation_ms * 1e6))


def _lte_a(name: str, who: str, where: dict[str, str], mbit: float, ping: tuple[float, float]) -> Model:
    top = mbit * 1e6
    return Model(
        name=name,
        summary=f"LTE-A, downlink up to {mbit:g} Mbit/s, round trips of {ping[0]:g} ms to a cloud.",
        about=where | {"technology": "4g", "operator": f"after {who}", "mobility": "stationary"},
        citation=f"{CITATION}, §V-B and table II",
        cited=f"{_CITED} The uplink is not published, and is left out.",
        duration="120 s",
        make=each_way(None, Wander(0.6 * top, 0.25 * top, 0.1 * top, 1.02 * top, _MEMORY), SLOT_LTE, _ping(*ping)),
        figures=(up_to("downlink", mbit, "§V-B"), *_round_trips(*ping)),
    )


MODELS = (
    Model(
        name="mmwave-edge-us",
        summary="mmWave 5G indoors with a server beside it: 1.8 Gbit/s down, round trips of 6 ms.",
        about=US | {"technology": "5g", "band": "mmwave", "operator": "after AT&T", "mobility": "stationary"},
        citation=f"{CITATION}, §IV-A, figure 4 and table II",
        cited=_CITED,
        duration="120 s",
        make=each_way(
            Wander(50e6, 14e6, 10e6, 70.5e6, _MEMORY),
            Wander(1.45e9, 0.25e9, 0.7e9, 1.83e9, _MEMORY),
            SLOT_MMWAVE,
            _ping(6.1, 2.5),
        ),
        figures=(up_to("uplink", 69.2, "§IV-A"), up_to("downlink", 1800, "§IV-A"), *_round_trips(6.1, 2.5)),
    ),
    Model(
        name="mmwave-cloud-us",
        summary="mmWave 5G outdoors with a server in a cloud: 2.0 Gbit/s down, round trips of 32 ms.",
        about=US | {"technology": "5g", "band": "mmwave", "operator": "after Verizon", "mobility": "stationary"},
        citation=f"{CITATION}, §IV-A, figure 4 and table II",
        cited=f"{_CITED} It is a place with a good signal; with less than -110 dBm the study had 13.2 Mbit/s.",
        duration="120 s",
        make=each_way(
            Wander(45e6, 13e6, 8e6, 65e6, _MEMORY),
            Wander(1.5e9, 0.35e9, 0.4e9, 2.04e9, _MEMORY),
            SLOT_MMWAVE,
            _ping(31.6, 8.6),
        ),
        figures=(up_to("uplink", 63.8, "§IV-A"), up_to("downlink", 2000, "§IV-A"), *_round_trips(31.6, 8.6)),
    ),
    Model(
        name="sub6-korea",
        summary="5G at 3.6 GHz in South Korea: 369 to 1600 Mbit/s down, 11.5 to 171 Mbit/s up.",
        about=KOREA | {"technology": "5g", "band": "mid", "operator": "after SKT"},
        citation=f"{CITATION}, §IV-A, figure 4(d) and table II",
        cited=f"{_CITED} The published range is that of many places: the series is a tour of 24, evenly.",
        duration="120 s",
        make=each_way(
            Places(11.5e6, 171e6),
            Places(369e6, 1600e6),
            SLOT_MIDBAND,
            _ping(22.3, 2.8),
        ),
        figures=(
            up_to("uplink", 171, "§IV-A"),
            _down_to("uplink", 11.5, "§IV-A"),
            up_to("downlink", 1600, "§IV-A"),
            _down_to("downlink", 369, "§IV-A"),
            *_round_trips(22.3, 2.8),
        ),
    ),
    _lte_a("lte-a-us", "Verizon", US, 189, (42.3, 2.8)),
    _lte_a("lte-a-korea", "SKT", KOREA, 314, (24.3, 1.4)),
)
