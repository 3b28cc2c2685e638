"""The 5G study of edge and transport protocols: its measurements of congestion control laws, as data."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from cellbed_papers.drawings import Course, bars, courses, distributions, flow_boxes, tabled
from cellbed_papers.publication import (
    CAPACITY,
    LARGER,
    NEAR,
    SMALLER,
    Answer,
    Claim,
    Data,
    Draw,
    Finding,
    Input,
    Measure,
    Range,
    Role,
    Swept,
    SweptPublication,
    Values,
    pair_repetitions,
    relative,
    untried_claims,
    values_above,
    values_below,
)
from cellbed_papers.publications import fiveg_applications

Measured = Callable[[Data], Values]
_CLIENT = "iperf3 --client {server.address} --reverse"
LAWS = {"CUBIC": "cubic-off", "Reno": "reno", "BBR": "bbr", "ExLL": "exll", "C2TCP": "c2tcp", "Vegas": "vegas"}
"""Laws; HyStart of CUBIC is disabled (section III-A)."""
HYSTART = {"off": "cubic-off", "delay": "cubic-delay", "train": "cubic-train", "both": "cubic-both"}
NETWORKS = {
    # Capacity of downlink and uplink, Mbit/s (section IV-A; V for LTE, whose uplink is ours); round-trip time, ms
    # (Table II; V); maximum receive buffer of the phone (V-B).
    "5G edge": (1800, 69.2, 6.1, "8 MB"),
    "LTE edge": (276, 30, 17.2, "4 MB"),
    "5G cloud": (2000, 63.8, 31.6, "8 MB"),
    "LTE cloud": (189, 30, 42.3, "4 MB"),
    "sub-6 cloud": (1600, 171, 22.3, "8 MB"),
    "LTE sub-6": (314, 30, 24.3, "4 MB"),
}
_WHERE = {
    "5G edge": "Fig. 5(a)",
    "5G cloud": "Fig. 5(b)",
    "sub-6 cloud": "Fig. 5(c)",
    "LTE edge": "Fig. 5(d)",
    "LTE cloud": "Fig. 5(e)",
    "LTE sub-6": "Fig. 5(f)",
}
OTHERS = {"CUBIC": "cubic-off", "BBR": "bbr", "Copa": "copa", "Vivace": "vivace", "Sprout": "sprout", "Verus": "verus"}
VERUS = (90.2, 0.0352)
"""Throughput, Mbit/s, and round-trip time, s, of Verus at the 5G edge."""
OBSTACLES = {"none": 2000, "human body": 1000, "vehicle": 350}
"""Capacity behind an obstacle, Mbit/s (section VI-A, Fig. 8)."""
SWOLLEN = {"CUBIC": 5.0, "BBR": 2.0, "ExLL": 1.3}
"""Factor of the round trip by an obstacle."""
_SCENARIO: dict[str, Any] = {
    "name": "5g-study",
    "duration": "17 s",
    "nodes": {"endpoint": {"cpus": 1.0, "memory": "1 GB"}, "cloud": {"cpus": 1.0, "memory": "1 GB"}},
    # A queue that the phone's receive buffer cannot fill: the study saw almost no losses.
    "links": {"mobile": {"queue": {"kind": "droptail", "limit": "16 MB"}}, "core": {"cloud": "0 ms"}},
    # The study states no send buffer; the receive buffer was the limit (V-B).
    "transport": {"congestion_control": "cubic", "send_buffer": "64 MB", "metrics_cache": False},
    "apps": {
        "transfer": {
            "kind": "program",
            "server": {"on": "cloud", "command": "iperf3 --server", "ready": {"port": 5201}},
            "client": {"on": "endpoint", "command": f"{_CLIENT} --time 15"},
        }
    },
}
_THROUGHPUT = "throughput_down_mbit_s"
_ROUND_TRIP = "round_trip_mean_s"
SIZES_MB = (1, 10, 100)
TABLE_4 = {"ExLL": 3.1, "BBR": 5.4, "CUBIC": 30.6, "Reno": 184.0}
"""Recovery time after a blockage of 10 s, s."""
_BLOCKED_S, _SILENT_S = 10.0, 0.5
_RATE = Course("throughput, Mbit/s", "flows", "throughput_mbit_s")
_TRIP = Course("round trip, ms", "flows", "rtt_s", 1e3)
_CONGESTION_WINDOW = Course("window, MB", "flows", "window_bytes", 1e-6)
_SERIES = {"transport.series": True}


def _network(name: str) -> list[str]:
    """Return the values of `_NETWORK_KEYS` for a network."""
    _, _, round_trip, buffer = NETWORKS[name]
    return [*_capacity(name.lower().replace(" ", "-")), f"{round_trip / 2:g} ms", buffer]


def _capacity(role: str) -> list[str]:
    return [f"{{trace:{role}.down}}", f"{{trace:{role}.up}}"]


def _constant(name: str, down: float, up: float, **more: Any) -> Role:
    """Return the role of a network with a constant link as stand-in, Mbit/s."""
    return Role(name, (), "", {"down": f"{down} Mbit/s", "up": f"{up} Mbit/s"}, **more)


_WINDOW = ("receive buffer",)
"""The input that implies claims about the 5G cloud, and about the queue of CUBIC, which grows to the window."""
_BLOCKAGE_NOTE = (
    "The form of the blockage was chosen after a result with total loss was seen, where all laws recover alike."
)
_NETWORK_KEYS = ["links.mobile.down", "links.mobile.up", "links.mobile.base_delay", "transport.receive_buffer"]
_LAW = {"key": "transport.congestion_control", "levels": LAWS}
_EDGE_AND_CLOUD = {"keys": _NETWORK_KEYS, "levels": {name: _network(name) for name in ("5G edge", "5G cloud")}}

_MOVING = {**_LAW, "levels": {law: LAWS[law] for law in ("CUBIC", "BBR", "ExLL")}}
_TENTH: dict[str, Any] = {
    # A tenth of the capacity and buffers, so that minutes can be simulated.
    "links.mobile.queue": {"kind": "droptail", "limit": "1.6 MB"},
    "transport.receive_buffer": "800 kB",
}


_MOVES: dict[str, Any] = {
    # A recording has its own handovers, and the full rate.
    "links.mobile.fallback": None,
    "links.mobile.queue": None,
    "transport.receive_buffer": "8 MB",
}
ROLES = (
    *(_constant(name.lower().replace(" ", "-"), *capacity[:2]) for name, capacity in NETWORKS.items()),
    *(
        _constant(
            name, down, up, recorded=_MOVES, stand_in=f"a tenth of the capacity, packets are {words}, as explained"
        )
        for name, down, up, words in (
            ("driving", 200, 20, "dropped at handovers"),
            ("subway", 160, 17.1, "forwarded at handovers"),
        )
    ),
)


def _handovers(role: str, radio: str, lte: str, every: str, packets: str) -> dict[str, Any]:
    """Return changes for minutes with handovers through LTE. radio, lte: networks with the tenfold capacity. packets:
    on the old radio: `drop` or `forward`."""
    down, up, *_ = NETWORKS[lte]
    return {
        **_TENTH,
        **dict(zip(_NETWORK_KEYS, _capacity(role), strict=False)),
        "links.mobile.base_delay": f"{NETWORKS[radio][2] / 2:g} ms",
        "links.mobile.fallback": {
            "up": f"{up / 10:g} Mbit/s",
            "down": f"{down / 10:g} Mbit/s",
            "when": {"kind": "handovers", "every": every},
            "packets": packets,
        },
        **_SERIES,
        "duration": "125 s",
        "apps.transfer.client.command": f"{_CLIENT} --time 120",
    }


_SHORTLY: dict[str, Any] = {
    "repetitions": 1,
    "levels": {"law": ["CUBIC", "BBR"]},
    "changes": {"duration": "21 s", "apps.transfer.client.command": f"{_CLIENT} --time 20"},
}


def _blockage_changes(seconds: int) -> dict[str, Any]:
    """Return changes for a transfer of `seconds`, which is blocked from 7 to 17 s."""
    return {
        **_TENTH,
        "links.mobile.down": "200 Mbit/s",
        "links.mobile.up": "20 Mbit/s",
        "links.mobile.base_delay": "10.5 ms",
        # `recovery_s` counts from the end of this outage.
        "links.mobile.outage": [["7 s", f"{_SILENT_S} s"]],
        "links.mobile.loss": {"kind": "series", "steps": [["0 s", 0], ["7 s", "50 %"], ["17 s", 0]]},
        **_SERIES,
        "duration": f"{seconds + 1} s",
        "apps.transfer.client.command": f"{_CLIENT} --time {seconds}",
    }


def _draw_motion(figure: str) -> tuple[tuple[str, Draw], ...]:
    """Return distributions over 0.2 s by law."""
    return tuple(
        (
            f"{figure}({part}): {what}",
            distributions(f"{what}, {unit}", tabled("flows", column, factor), "law", of="bins"),
        )
        for part, what, unit, column, factor in (
            ("a", "throughput", "Mbit/s", "throughput_mbit_s", 1.0),
            ("b", "round trip", "ms", "rtt_s", 1e3),
        )
    )


EXPERIMENTS = (
    Swept(
        "laws",
        "Throughput and round trips",
        "Fig. 5",
        {"network": {"keys": _NETWORK_KEYS, "levels": {name: _network(name) for name in NETWORKS}}, "law": _LAW},
        changes=_SERIES,
        repetitions=3,
        varies=False,
        short={"repetitions": 2, "levels": {"network": ["5G edge"], "law": ["CUBIC", "BBR", "ExLL"]}},
        drawings=(
            ("Fig. 5: throughput by round trip", flow_boxes("network", "law")),
            *(
                (
                    f"Fig. 6({part}): laws over time, {network}",
                    courses((_CONGESTION_WINDOW, _TRIP, _RATE), "law", {"network": network}),
                )
                for part, network in (("a", "5G edge"), ("b", "5G cloud"))
            ),
        ),
    ),
    Swept(
        "buffer",
        "Receive buffers",
        "V-B",
        {
            "law": {**_LAW, "levels": {law: LAWS[law] for law in ("CUBIC", "BBR", "ExLL")}},
            "buffer": {"key": "transport.receive_buffer", "levels": {"8 MB": "8 MB", "32 MB": "32 MB"}},
        },
        changes=dict(zip(_NETWORK_KEYS[:3], _network("5G cloud"), strict=False)),
        repetitions=3,
        varies=False,
        short={"repetitions": 1, "levels": {"law": ["CUBIC"]}},
        drawings=(("§V-B: throughput by receive buffer", bars("throughput, Mbit/s", _THROUGHPUT, "law", "buffer")),),
    ),
    Swept(
        "hystart",
        "Slow start",
        "Fig. 7",
        {
            "network": _EDGE_AND_CLOUD,
            "hystart": {"key": "transport.congestion_control", "levels": HYSTART},
            "size": {"key": "apps.transfer.download", "levels": {f"{size} MB": [f"{size} MB"] for size in SIZES_MB}},
        },
        changes={
            # One file after another during the first second.
            "apps.transfer": {"kind": "transfers", "server": "cloud", "arrivals": "closed", "stop": "1 s"},
            "duration": "5 s",
        },
        repetitions=3,
        varies=False,
        short={"repetitions": 1, "levels": {"network": ["5G edge"], "hystart": ["off", "both"], "size": ["10 MB"]}},
        drawings=(
            (
                "Fig. 7: download time by mode of HyStart",
                bars("download time, s", "latency_mean_s", "size", "hystart", "network", log=True),
            ),
        ),
    ),
    Swept(
        "others",
        "Laws that the study leaves out",
        "V-A",
        {"network": _EDGE_AND_CLOUD, "law": {**_LAW, "levels": OTHERS}},
        changes=_SERIES,
        repetitions=3,
        varies=False,
        short={"repetitions": 1, "levels": {"network": ["5G edge"], "law": ["Verus"]}},
        drawings=(("Fig. 5: throughput by round trip, other laws", flow_boxes("network", "law")),),
    ),
    Swept(
        "obstacles",
        "Obstacles",
        "Fig. 8(a), (b)",
        {
            "law": {**_LAW, "levels": {**{law: LAWS[law] for law in SWOLLEN}, "Verus": "verus"}},
            "obstacle": {
                "key": "links.mobile.down",
                "levels": {name: f"{capacity} Mbit/s" for name, capacity in OBSTACLES.items()},
            },
        },
        changes={
            **_SERIES,
            "links.mobile.up": "63.8 Mbit/s",
            "links.mobile.base_delay": "10.5 ms",
            "transport.receive_buffer": "8 MB",
        },
        repetitions=3,
        varies=False,
        short={"repetitions": 1, "levels": {"law": ["ExLL"], "obstacle": ["none", "human body"]}},
        drawings=(
            ("Fig. 8(a),(b): throughput by obstacle", bars("throughput, Mbit/s", _THROUGHPUT, "law", "obstacle")),
            (
                "§VI-A: round trip by obstacle",
                bars("mean round trip, ms", _ROUND_TRIP, "law", "obstacle", factor=1e3),
            ),
        ),
    ),
    Swept(
        "blockage",
        "Recovery from a blockage",
        "Table IV",
        {"law": {**_LAW, "levels": {law: LAWS[law] for law in TABLE_4}}},
        changes=_blockage_changes(47),
        repetitions=10,
        short={"repetitions": 1, "levels": {"law": ["ExLL", "BBR"]}, "changes": _blockage_changes(31)},
        drawings=(("Fig. 8(c): throughput around a blockage from 7 to 17 s", courses((_RATE,), "law")),),
    ),
    Swept(
        "driving",
        "Handovers in a car",
        "Fig. 9",
        {"law": _MOVING},
        changes=_handovers("driving", "5G cloud", "LTE cloud", "33.3 s", "drop"),
        repetitions=5,
        short=_SHORTLY,
        drawings=_draw_motion("Fig. 9"),
    ),
    Swept(
        "subway",
        "Handovers in a subway",
        "Fig. 10",
        {"law": _MOVING},
        changes=_handovers("subway", "sub-6 cloud", "LTE sub-6", "14 s", "forward"),
        repetitions=5,
        short=_SHORTLY,
        drawings=_draw_motion("Fig. 10"),
    ),
    *fiveg_applications.EXPERIMENTS,
)


_SECTIONS = {each.name: each.section for each in EXPERIMENTS}


def _scale(experiment: str, column: str, at: Mapping[str, str], how: Callable[[float], float]) -> Measured:
    """Return a measure: a function of a column at a point."""
    return lambda data: pair_repetitions(how, data[experiment].values(column, **at))


def _claim(key: str, experiment: str, statement: str, published: str, measure: Measured, **more: Any) -> Claim:
    return Claim(key.lower(), experiment, _SECTIONS[experiment], statement, published, measure, **more)


def _law_claim(network: str, law: str, statement: str, published: str, measure: Measured, **more: Any) -> Claim:
    key = "-".join((statement.split()[0].rstrip(","), law, network.replace(" ", "-"))).lower()
    return Claim(key, "laws", _WHERE[network], f"{statement} of {law}, {network}", published, measure, **more)


def _law_claims() -> Iterator[Claim]:
    """Return the claims of Fig. 5."""

    def trip_claim(network: str, law: str, published: str, **more: Any) -> Claim:
        at, shortest = {"network": network, "law": law}, NETWORKS[network][2]
        measure = _scale("laws", _ROUND_TRIP, at, lambda seconds: seconds * 1000 / shortest)
        return _law_claim(network, law, "Round trip over the shortest", published, measure, **more)

    def capacity_claim(
        network: str, law: str, published: str, share: float, direction: str, agrees: Range, made: tuple[str, ...] = ()
    ) -> Claim:
        at = {"network": network, "law": law}
        measure = Measure("laws", _THROUGHPUT, at, at, CAPACITY)
        more: dict[str, Any] = {"direction": direction, "agrees": agrees, "figure": (share, share), "made": made}
        return _law_claim(network, law, "Throughput, over the capacity,", published, measure, **more)

    def cubic_claim(network: str, law: str, column: str, statement: str, published: str, **more: Any) -> Claim:
        at, other = ({"network": network, "law": each} for each in (law, "CUBIC"))
        how = relative if more.get("unit") == "reduction" else operator.truediv
        measure = Measure("laws", column, at, other, how=how)
        return _law_claim(network, law, statement, published, measure, **more)

    for network, factor in (("5G edge", 6.0), ("LTE edge", 6.92), ("sub-6 cloud", 2.1)):
        more: dict[str, Any] = {"direction": "longer", "agrees": LARGER, "figure": (factor, factor), "made": _WINDOW}
        yield trip_claim(network, "CUBIC", f"{factor:g} times", **more)
    for network, law, limit in (
        *(("5G edge", law, 2.0) for law in ("BBR", "ExLL")),
        ("5G edge", "C2TCP", 1.7),
        *(("5G cloud", law, 1.5) for law in _MOVING["levels"]),
    ):
        more = {"direction": f"below {limit:g}", "agrees": values_below(limit)}
        more["made"] = _WINDOW if network == "5G cloud" else ()
        yield trip_claim(network, law, f"within {limit:g} times", **more)
    for network, law, loss in (
        ("5G edge", "BBR", 0.085),
        ("5G edge", "C2TCP", 0.105),
        ("5G edge", "Vegas", 0.22),
        ("LTE edge", "Vegas", 0.33),
    ):
        more = {"unit": "reduction", "direction": "lower", "agrees": values_below(-0.005), "figure": (-loss, -loss)}
        yield cubic_claim(network, law, _THROUGHPUT, "Throughput, change from CUBIC's,", f"−{loss:.1%}", **more)
    for law in _MOVING["levels"]:
        yield capacity_claim("5G cloud", law, "0.75 times", 0.75, "the link is not filled", values_below(0.9), _WINDOW)
    yield capacity_claim("5G cloud", "Vegas", "about 10 Mbit/s", 0.005, "most is unused", values_below(0.5))
    for network in ("sub-6 cloud", "LTE sub-6"):
        for law in ("BBR", "ExLL", "C2TCP", "Vegas"):
            more = {"direction": "lower", "agrees": SMALLER, "group": f"CUBIC has the highest throughput, {network}"}
            yield cubic_claim(network, law, _THROUGHPUT, "Throughput, over CUBIC's,", "–", **more)
    for law in ("BBR", "ExLL"):
        more = {"unit": "time", "direction": "below 10 ms", "agrees": values_below(0.010)}
        measure = Measure("laws", _ROUND_TRIP, {"network": "5G edge", "law": law})
        yield _law_claim("5G edge", law, "Mean round trip", "below 10 ms", measure, **more)
    for law in ("BBR", "ExLL"):
        more = {"direction": "shorter", "agrees": SMALLER}
        yield cubic_claim("LTE cloud", law, _ROUND_TRIP, "Round trip, over CUBIC's,", "–", **more)


def _other_claims() -> Iterator[Claim]:
    """Return the claims about laws that the study leaves out, and about obstacles."""
    edge = {"network": "5G edge"}

    def underperformance(law: str) -> Measured:
        """Return the throughput over the lower one of CUBIC and BBR."""

        def measure(data: Data) -> Values:
            of = (data["others"].values(_THROUGHPUT, **edge, law=each) for each in (law, "CUBIC", "BBR"))
            return pair_repetitions(lambda own, *rest: own / min(rest), *of)

        return measure

    for law in ("Copa", "Vivace", "Sprout"):
        more: dict[str, Any] = {"direction": "lower", "agrees": SMALLER}
        statement = f"Throughput of {law}, over the lower one of CUBIC and BBR, 5G edge"
        yield _claim(f"other-{law}", "others", statement, "underperforms", underperformance(law), **more)
    rate, seconds = VERUS
    verus = {**edge, "law": "Verus"}
    what, published, more = "Throughput of Verus, 5G edge, Mbit/s", f"{rate:g}", {"figure": (rate, rate)}
    yield _claim("verus-rate", "others", what, published, Measure("others", _THROUGHPUT, verus), unit="number", **more)
    what, published, more = "Round trip of Verus, 5G edge", f"{seconds * 1000:g} ms", {"figure": (seconds, seconds)}
    yield _claim("verus-trip", "others", what, published, Measure("others", _ROUND_TRIP, verus), unit="time", **more)
    what, measure = (
        "Throughput of Verus, 5G cloud, Mbit/s",
        Measure("others", _THROUGHPUT, {**verus, "network": "5G cloud"}),
    )
    more = {"direction": "below 200", "agrees": values_below(200)}
    yield _claim("verus-cloud", "others", what, "less than 200", measure, unit="number", **more)
    for obstacle in list(OBSTACLES)[1:]:
        for law, factor in SWOLLEN.items():
            at, other = ({"law": law, "obstacle": each} for each in (obstacle, "none"))
            key, of = f"{law}-{obstacle.replace(' ', '-')}", f"of {law}, {obstacle} over none"
            more = {"direction": "longer", "agrees": LARGER, "figure": (factor, factor)}
            more["made"] = _WINDOW if law == "CUBIC" else ()
            trip = Measure("obstacles", _ROUND_TRIP, at, other)
            yield _claim(f"obstacle-trip-{key}", "obstacles", f"Round trip {of}", f"{factor:g} times", trip, **more)
            share = OBSTACLES[obstacle] / OBSTACLES["none"]
            more = {"direction": "lower", "agrees": SMALLER, "figure": (share, share), "made": ("obstacles",)}
            through = Measure("obstacles", _THROUGHPUT, at, other)
            yield _claim(f"obstacle-rate-{key}", "obstacles", f"Throughput {of}", f"{share:g} times", through, **more)
        at, other = ({"law": "Verus", "obstacle": each} for each in (obstacle, "none"))
        more = {"direction": "from 0.8 to 1.25 times", "agrees": (1 / NEAR, NEAR)}
        key, statement = (
            f"obstacle-rate-verus-{obstacle.replace(' ', '-')}",
            f"Throughput of Verus, {obstacle} over none",
        )
        measure = Measure("obstacles", _THROUGHPUT, at, other)
        yield _claim(key, "obstacles", statement, "no degradation", measure, **more)


_UNTRIED = untried_claims(
    ("rsrp", "Fig. 4", "Distributions of throughputs, and throughput by RSRP", "–", "They need a radio network."),
    ("peaks", "Fig. 6(a)", "Peaks of BBR's round trip", "each 10 s", "No measure counts peaks."),
    ("windows", "VI-A", "Window during a total loss", "140 times smaller", "No measure of the smallest window."),
    ("small", "Fig. 7", "Files from 1 KB, and their loss rates", "–", "The study prints no figure."),
    ("flow", "V-B", "Rate of a flow in AT&T's 5G", "1 Gbit/s", "Links here have no limit for each flow."),
)


def _slow_start_claims() -> Iterator[Claim]:
    """Return the claims about receive buffers and HyStart."""
    for law in _MOVING["levels"]:
        statement = f"Throughput of {law} with a receive buffer of 32 MB over 8 MB"
        measure = Measure("buffer", _THROUGHPUT, {"law": law, "buffer": "32 MB"}, {"law": law, "buffer": "8 MB"})
        more: dict[str, Any] = {"direction": "higher", "agrees": values_above(1.1), "made": _WINDOW}
        yield _claim(f"buffer-{law}", "buffer", statement, "the buffer is the limit", measure, **more)
    for network, mode, other, words in (
        ("5G edge", "both", "off", "off is the fastest"),
        ("5G cloud", "off", "train", "train is faster than off"),
        ("5G cloud", "off", "delay", "delay is faster than off"),
        ("5G cloud", "both", "train", "both is the slowest"),
        ("5G cloud", "both", "delay", "both is the slowest"),
    ):
        for size in SIZES_MB:
            key = f"hystart-{network.split()[1]}-{mode}-{other}-{size}"
            statement = f"Time of {size} MB with HyStart {mode} over {other}, {network}"
            at = {"network": network, "size": f"{size} MB"}
            measure = Measure("hystart", "latency_mean_s", {**at, "hystart": mode}, {**at, "hystart": other})
            more = {"direction": "longer", "agrees": LARGER, "group": f"{network}: {words}"}
            yield _claim(key, "hystart", statement, words, measure, **more)


def _mobile_claims() -> Iterator[Claim]:
    for name, column, law, other, agrees in (
        ("driving", _THROUGHPUT, "BBR", "CUBIC", LARGER),
        ("driving", _THROUGHPUT, "ExLL", "CUBIC", LARGER),
        ("driving", _ROUND_TRIP, "ExLL", "CUBIC", SMALLER),
        ("driving", _ROUND_TRIP, "ExLL", "BBR", SMALLER),
        ("subway", _THROUGHPUT, "BBR", "CUBIC", SMALLER),
        ("subway", _THROUGHPUT, "ExLL", "CUBIC", SMALLER),
        ("subway", _ROUND_TRIP, "ExLL", "CUBIC", SMALLER),
    ):
        what, more, less = ("Throughput", "higher", "lower")
        if column == _ROUND_TRIP:
            what, more, less = ("Round trip", "longer", "shorter")
        key, statement = f"{name}-{what.split()[0]}-{law}-{other}", f"{what} of {law} over {other}, {name}"
        direction = more if agrees == LARGER else less
        measure = Measure(name, column, {"law": law}, {"law": other})
        yield _claim(key, name, statement, "–", measure, direction=direction, agrees=agrees, made=(f"{name}.down",))


def _note(data: Data) -> str:
    return _BLOCKAGE_NOTE


def _blockage_claims() -> Iterator[Claim]:
    for law, seconds in TABLE_4.items():
        # Count from the end of the blockage, not of the outage.
        measure = _scale("blockage", "recovery_s", {"law": law}, lambda value: value - _BLOCKED_S + _SILENT_S)
        statement = f"Recovery of {law} after a blockage of {_BLOCKED_S:g} s"
        more: dict[str, Any] = {"unit": "time", "figure": (seconds, seconds), "explain": _note}
        yield _claim(f"recovery-{law}", "blockage", statement, f"{seconds:g} s", measure, **more)
    for (law, seconds), (other, longer) in pairwise(TABLE_4.items()):
        # No ratio, because a recovery may take no time.
        difference = Measure("blockage", "recovery_s", {"law": law}, {"law": other}, how=operator.sub)
        more = {"unit": "change", "direction": "shorter", "agrees": values_below(0), "explain": _note}
        key, statement = f"recovery-{law}-{other}", f"Recovery of {law} less {other}'s, s"
        yield _claim(key, "blockage", statement, f"−{longer - seconds:.3g}", difference, **more)


def _answer_laws(findings: Mapping[str, Finding], data: Data) -> str:
    cubic, bbr, exll = (findings[f"round-{law}-5g-edge"].ours for law in ("cubic", "bbr", "exll"))
    return f"At the edge, the round trip is {cubic} the shortest with CUBIC, {bbr} with BBR and {exll} with ExLL."


def _answer_buffers(findings: Mapping[str, Finding], data: Data) -> str:
    found = {law: findings[f"buffer-{law.lower()}"] for law in ("CUBIC", "BBR", "ExLL")}
    words = [f"{each.ours} with {law}" for law, each in found.items() if each.same != "not measured"]
    return f"A receive buffer of 32 MB in place of 8 MB changes the throughput to {', '.join(words)}."


def _answer_recovery(findings: Mapping[str, Finding], data: Data) -> str:
    found = {law: findings[f"recovery-{law.lower()}"] for law in TABLE_4}
    times = [f"{each.ours} with {law}" for law, each in found.items() if each.same != "not measured"]
    return f"After a blockage of {_BLOCKED_S:g} s the throughput is back after {', '.join(times)}."


PUBLICATION = SweptPublication(
    name="5g-study",
    title="The 5G study: congestion control at edge and cloud",
    citation="Lim et al., An Empirical Study of 5G: Effect of Edge on Transport Protocol and Application Performance, "
    "IEEE Transactions on Mobile Computing, 2024",
    scenario=_SCENARIO,
    short={"duration": "10 s", "apps.transfer.client.command": f"{_CLIENT} --time 8"},
    short_note="A short reproduction: transfers of 8 instead of 15 s, with a larger share of slow start, and of 20 "
    "instead of 120 s in motion; some laws, networks, pages and pictures (HD of videos, 360p of calls); one or two "
    "repetitions.",
    roles=ROLES,
    inputs=(
        Input("receive buffer", "V-B: 8 MB (window: 0.66 of it with Linux 6.18), on a constant link", True),
        Input("obstacles", "the study's capacities of Fig. 8, during a whole transfer", True),
        Input("blockage", "10 s: no packet for 0.5 s, then half of the packets lost", True),
        Input("round trips", "Table II: the ends of a call are behind two such links", True),
    ),
    experiments=EXPERIMENTS,
    claims=(
        *_law_claims(),
        *_other_claims(),
        *_slow_start_claims(),
        *_mobile_claims(),
        *_blockage_claims(),
        *fiveg_applications.claims(),
        *_UNTRIED,
    ),
    answers=(
        Answer("Edge", "With an edge server, the choice of a law decides throughput and latency.", _answer_laws),
        Answer(
            "Buffers", "The phone's receive buffer limits what a law reaches behind a cloud's delay.", _answer_buffers
        ),
        Answer(
            "Blockage",
            "After a blockage ExLL is the first to recover: others take 1.7 times or longer.",
            _answer_recovery,
        ),
        Answer(
            "Applications",
            "The edge saves 18 to 71 % of a page load, 72 to 80 % of a chunk's response, 34 % of a call's delay and "
            "18.5 % of a segmentation: less than of the round trip where processing or the uplink takes long.",
            fiveg_applications.gains,
        ),
    ),
    differences=(
        "Links have the round trips that the study states, and without recordings its capacities, without the "
        "variation of a radio, other users and losses. The uplinks of LTE (30 Mbit/s) are ours, and so are the queues: "
        "16 MB.",
        "The study leaves out the first 10 s; here are means from the first byte to the last.",
        "Throughputs and ping times of the networks (Fig. 4, Table II) are inputs here.",
        "Driving and blockage have a tenth of the capacity and buffers of Verizon's 5G, the subway of SKT's; or "
        "driving and subway a recording's rate and handovers. So directions alone are compared. Without a recording, "
        "handovers come at the study's mean intervals, with 2 s on LTE each. Packets of the lost radio are lost "
        "while driving and forwarded in the subway, as the study explains its figures.",
        "Of the blockage (Table IV) the study states 10 s, the round trip of 21 ms before it, heavy losses and a "
        "throughput near zero. Ours: nothing leaves the link for 0.5 s, and half of the packets are lost, both ways, "
        "until 10 s are over. Where all are lost, every law waits for the same timer of TCP and resumes at once, as "
        "CUBIC and Reno do in most of our trials.",
        "Fig. 11: pages have the bytes of the sites, but objects of ours; the video is a test picture; both are over "
        "HTTP/2 from nginx. Photographs are sent over MQTT, one each second. The study names laws for pages alone: "
        "elsewhere ours is CUBIC, whose window shrinks in pauses. Parsing, decoding and display take this machine's "
        "time in place of a phone's. To decode 4K and encode 1080p takes several processors, without which these "
        "trials are disturbed; HD, FHD and 360p are for small machines.",
        "The round trips of calls (Fig. 11(c)) have no verdict: they follow from the link's, an input. Of the delays, "
        "233 and 354.6 ms, the study names a benefit of 51.9 %; the edge takes 34.3 % less.",
        "Verus was a program in user space; here it is a law of TCP, as are Copa, Vivace and Sprout.",
    ),
)
