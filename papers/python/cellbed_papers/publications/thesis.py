"""The thesis from which cellbed originated: its experiments, claims and main findings, as data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from cellbed import Link
from cellbed.extension.reports import formats
from cellbed.extension.traces import PLACES, PRESETS, SLOT_LTE, TICK_NS, Capacity, Model, Stream, Wander, each_way
from cellbed.path import Path
from cellbed_papers.drawings import ANY, Course, bars, boxes, courses, lines, places, tabled
from cellbed_papers.publication import (
    LARGER,
    MEAN,
    NEAR,
    SMALLER,
    Answer,
    Claim,
    Data,
    Finding,
    Input,
    Measure,
    Range,
    Recorded,
    Role,
    Swept,
    SweptPublication,
    Values,
    describe_parts,
    determination,
    pair_repetitions,
    quantity,
    ratio,
    rounds,
    slope,
    untried_claims,
    values_above,
    values_below,
)

_CITATION = (
    "Mishchenko, Network Simulation for AI in the Digital Continuum, bachelor thesis, Vrije Universiteit Amsterdam, "
    "2025"
)


@dataclass(frozen=True, slots=True)
class _Drop:
    """A rate that drops to a quarter from 40 to 70 s."""

    usual: Wander

    def capacity(self, duration_ns: int, stream: Stream) -> Capacity:
        found = self.usual.capacity(duration_ns, stream)
        begin, end = (second * 10**9 // TICK_NS for second in (40, 70))
        found.bit_s[begin:end] //= 4
        return found


_VERIZON = Model(
    name="lte-with-a-drop",
    citation=f"{_CITATION}, §6.6",
    cited="Published: the drop below 5 Mbit/s for 30 s. Ours: everything else.",
    duration_ns=140 * 10**9,
    make=each_way(
        _Drop(Wander(8e6, 2e6, 3e6, 12e6, 2_000_000_000, 0.01, 200_000_000)),
        Wander(9e6, 3e6, 2e6, 15e6, 2_000_000_000),
        SLOT_LTE,
    ),
)
_GENERATORS = {model.name: model for model in PRESETS}
ROLES = (
    Role("lte", ("KPN-4G", "KPN-LTE"), "kpn-lte", _GENERATORS["lte-netherlands"]),
    Role("5g", ("KPN-5G",), "kpn-5g", _GENERATORS["5g-netherlands"]),
    Role("5g-window", ("KPN-5G-low-band", "KPN-5G-window"), "kpn-5g-window", _GENERATORS["5g-window-netherlands"]),
    Role(
        "lte-2016",
        ("Verizon-LTE-short",),
        "verizon-lte-short",
        _VERIZON,
        "8 Mbit/s with 30 s at a quarter of it, after §6.6",
    ),
)


def _links(role: str) -> list[str]:
    return [f"{{trace:{role}.up}}", f"{{trace:{role}.down}}"]


_LINKS = ["links.mobile.up", "links.mobile.down"]
_FRAMEWORKS = (
    find_spec("tensorflow") is not None,
    find_spec("torch") is not None and find_spec("transformers") is not None,
)
"""Whether this machine has the frameworks of images and of text (table 4.1)."""
_IMAGES, _TEXT = "tensorflow" if _FRAMEWORKS[0] else "onnx", "torch" if _FRAMEWORKS[1] else "ctranslate2"
_SCENARIO: dict[str, Any] = {
    "name": "thesis",
    "duration": "120 s",
    "nodes": {
        "endpoint": {"count": 4, "cpus": 2.0, "memory": "4 GB", "stagger": "31 s"},
        "edge": {"cpus": 4.0, "memory": "16 GB"},
    },
    "links": {
        "mobile": {
            "up": "{trace:5g.up}",
            "down": "{trace:5g.down}",
            "base_delay": "0 ms",
            "queue": {"kind": "infinite"},
        },
        "core": {"edge": "0 ms"},
    },
    "transport": {"congestion_control": "cubic", "slow_start_after_idle": True},
    "workload": {
        "kind": "image-classification",
        "runtime": _IMAGES,
        "server": "edge",
        "rate": "1 /s",
        "timeout": "60 s",
        "drain": "30 s",
    },
}
_PLACES = {"local": "eu-central-1", "regional": "eu-west-3", "transcontinental": "us-east-1"}
ONE_WAY_MS = {"edge": 0.0} | {label: PLACES[place].one_way / 1e6 for label, place in _PLACES.items()}
"""Core delay of the places, ms: half of the round-trip times of table 5.2; edge: "no core network latency" (§6.2)."""
_KBIT_6G = 100e6
"""Bits per millisecond at 100 Gbit/s."""
_NEVER = {"kind": "halve", "above": "1 h"}
"""No policy: its latency limit is never reached. TOML has no null."""
_HIGH = {"rate": "10 /s", "queue": "infinite", "policy": "none"}
_MADE = ("lte-2016.up",)
"""The input whose stand-in was derived from the claims of §6.6."""
_COMPUTE = ("compute",)
"""The input in place of the models and frameworks of the thesis."""
_POLICIES: dict[str, tuple[tuple[str, Range | None], ...]] = {
    "halve": (("9 times", (9, 9)), ("3.5 times", (3.5, 3.5))),
    "reduce-resolution": (("–", None), ("–", None)),
    "aimd": (("–", None), ("–", None)),
}
"""Published ratios, without policy over with policy, of the median and the P99 latency."""


_LATENCY, _REQUESTS = "latency, ms", tabled("requests", "latency_s", 1e3)
_UPLINK = Course("uplink latency, ms", "requests", "uplink_s", 1e3, log=True)
_CAPACITY = Course("uplink capacity, Mbit/s", "links", "capacity_mbit_s", direction="mobile-0.uplink")
_QUEUE = Course("uplink queue, kB", "links", "queue_bytes", 1e-3, "mobile-0.uplink")
_PERCENTILES = {words: {"percentile": each} for words, each in (("Median", "p50"), ("P1", "p01"), ("P99", "p99"))}
_RESTARTS = {
    "slow start after idle": {"restart": "on"},
    "no slow start after idle": {"restart": "off"},
}
_AT_10 = {"10 /s": {"rate": "10 /s"}}
_UNLIMITED = {"queue": "infinite", "policy": "none"}
_AT_HIGH_LOAD = {"rate": "10 /s", "queue": "infinite"}


def _workloads(image: tuple[str, str], text: tuple[str, str]) -> dict[str, Any]:
    """Return the factor of E2. image, text: duration of a trial and of its drain."""
    levels = {}
    for name, kind, runtime, count, (duration, drain) in (
        ("image", "image-classification", _IMAGES, 4, image),
        ("text", "translation", _TEXT, 1, text),
    ):
        levels[name] = [_SCENARIO["workload"] | {"kind": kind, "runtime": runtime, "drain": drain}, count, duration]
    return {"workload": {"keys": ["workload", "nodes.endpoint.count", "duration"], "levels": levels}}


_RATES = {"lte": (20, 80), "5g": (75, 200), "5g-window": (25, 200)}
"""Highest rates of uplink and downlink, Mbit/s, by role (§5.3)."""
_CAPACITIES = (2, 3, 4, 5, 6, 8, 10)
"""Rates of a constant uplink under load, Mbit/s."""


def _name_rate(rate: int) -> str:
    return f"{rate} Mbit/s"


_BY_CAPACITY = ("uplink capacity, Mbit/s", {_name_rate(rate): float(rate) for rate in _CAPACITIES})
_STATISTICS = {
    words: {"rate": column}
    for words, column in (("mean", "mean"), ("P10 of seconds", "p10"), ("P90", "p90"), ("highest second", "most"))
}
_RECORDINGS = Recorded(
    "archive",
    "The recordings",
    "§5.3",
    traces=tuple(f"{{trace:{role}.{way}}}" for role in _RATES for way in ("up", "down")),
    drawings=(("§5.3: rates of the recordings", bars("rate, Mbit/s", "{rate}", "trace", _STATISTICS)),),
)
EXPERIMENTS = (
    Swept(
        "E1",
        "Network technology",
        "§6.3",
        {
            "network": {
                "keys": _LINKS,
                "levels": {"5G": _links("5g"), "5G behind a window": _links("5g-window"), "LTE": _links("lte")},
            }
        },
        drawings=(
            (
                "Fig. 6.1: latency of each request",
                courses((Course(_LATENCY, "requests", "latency_s", 1e3),), "network"),
            ),
            ("Fig. 6.2: median latency by place", places("p50", "network")),
            ("Fig. 6.3: P99 latency by place", places("p99", "network")),
            ("Fig. 6.4: median network latency", places("p50", "network", network=True)),
            ("Fig. 6.5: P99 network latency", places("p99", "network", network=True)),
        ),
    ),
    Swept(
        "E2",
        "Images and text",
        "§6.4",
        _workloads(("120 s", "30 s"), ("400 s", "30 s")),
        short={"factors": _workloads(("8 s", "1 s"), ("8 s", "4 s"))},
        drawings=(
            ("Fig. 6.6: latency by workload", boxes(_LATENCY, _REQUESTS, "workload", log=True)),
            ("Fig. 6.7: median latency by place", places("p50", "workload")),
            ("Fig. 6.8: P99 latency by place", places("p99", "workload")),
            ("Fig. 6.9: size of a request", bars("packets of a request, mean", "packets_mean", "workload")),
        ),
    ),
    Swept(
        "E3",
        "Place of the server",
        "§6.5",
        {
            "place": {"key": "links.core.edge", "levels": {"edge": "0 ms", **_PLACES}},
            "restart": {"key": "transport.slow_start_after_idle", "levels": {"on": True, "off": False}},
        },
        short={"levels": {"place": ["edge", "transcontinental"]}},
        drawings=(
            (
                "Fig. 6.10: latency by place of the server",
                boxes(_LATENCY, _REQUESTS, "place", {"restart": "on"}, log=True),
            ),
            (
                "Fig. 6.11: uplink latency over core delay",
                lines(
                    "uplink latency, ms",
                    "uplink_{percentile}_s",
                    "place",
                    ("core delay one way, ms", ONE_WAY_MS),
                    _RESTARTS,
                    _PERCENTILES,
                    factor=1e3,
                    fit=True,
                ),
            ),
        ),
    ),
    Swept(
        "E4",
        "Load",
        "§6.6",
        {
            "rate": {"key": "workload.rate", "levels": {each: each for each in ("10 /s", "5 /s", "2 /s")}},
            "queue": {
                "key": "links.mobile.queue",
                "levels": {"infinite": {"kind": "infinite"}}
                | {limit: {"kind": "droptail", "limit": limit} for limit in ("1 MB", "100 kB")},
            },
            "policy": {
                "key": "workload.policy",
                "levels": {"none": _NEVER} | {kind: {"kind": kind, "above": "500 ms"} for kind in _POLICIES},
            },
        },
        changes={"nodes.endpoint.count": 1, **dict(zip(_LINKS, _links("lte-2016"), strict=True))},
        design="one-at-a-time",
        short={
            "repetitions": 2,
            "changes": {"duration": "12 s", "workload.drain": "4 s"},
            "levels": {"rate": ["10 /s", "2 /s"], "queue": ["infinite", "100 kB"]},
        },
        worst=True,
        drawings=(
            ("Fig. 6.12: uplink latency over time", courses((_UPLINK,), "rate", _UNLIMITED)),
            ("Fig. 6.13: uplink latency and capacity", courses((_CAPACITY, _UPLINK), _AT_10, _UNLIMITED)),
            ("Fig. 6.14: uplink latency and queue", courses((_QUEUE, _UPLINK), _AT_10, _UNLIMITED)),
            *(
                (
                    f"Fig. {number}: {words} uplink latency by policy",
                    bars(f"{words} uplink latency, s", f"uplink_{at}_s", "policy", at=_AT_HIGH_LOAD),
                )
                for number, words, at in (("6.15", "median", "p50"), ("6.16", "P99", "p99"))
            ),
        ),
    ),
    Swept(
        "threshold",
        "Capacity under load",
        "§6.6",
        {"capacity": {"key": "links.mobile.up", "levels": {rate: rate for rate in map(_name_rate, _CAPACITIES)}}},
        changes={"nodes.endpoint.count": 1, "workload.rate": "10 /s", "duration": "60 s"},
        short={"repetitions": 1, "levels": {"capacity": ["3 Mbit/s", "8 Mbit/s"]}, "changes": {"duration": "8 s"}},
        drawings=(
            (
                "§6.6: uplink latency of requests with a reply, by capacity",
                lines("median uplink latency, s", "uplink_p50_s", "capacity", _BY_CAPACITY, {"10 /s": ANY}),
            ),
        ),
    ),
    Swept(
        "6G",
        "Projection of 6G",
        "§6.7",
        {
            "network": {
                "keys": [*_LINKS, "links.mobile.base_delay", "links.core.edge"],
                "levels": {
                    "5G": [*_links("5g"), "0 ms", "0 ms"],
                    "6G": ["100 Gbit/s", "100 Gbit/s", "0.1 ms", "0 ms"],
                },
            }
        },
        drawings=(
            (
                "Fig. 6.17: median latency by place, with compute 20 times as fast by arithmetic",
                places("p50", "network", faster={"6G, compute 20 times as fast": ("6G", 20)}),
            ),
        ),
    ),
)


# ---- measures


def _share(experiment: str, part: str, whole: str, **at: str) -> Measure:
    return Measure(experiment, part, at, at, whole)


def _spread_ratio(data: Data) -> Values:
    text, image = (_share("E2", "latency_p99_s", "latency_p50_s", workload=each)(data) for each in ("text", "image"))
    return ratio(text, image)


def _columns(data: Data, column: str, restart: str) -> list[tuple[float, Values]]:
    present = set(data["E3"].frame["place"].to_list())
    return [
        (at, data["E3"].values(column, place=place, restart=restart))
        for place, at in ONE_WAY_MS.items()
        if place in present
    ]


def _slope(column: str, restart: str = "on") -> Callable[[Data], Values]:
    """Return the slope of a measure over the core delay, ms per ms."""
    return lambda data: pair_repetitions(lambda value: value * 1e3, slope(_columns(data, column, restart)))


def _slope_drop(data: Data) -> Values:
    return pair_repetitions(lambda on, off: on - off, _slope("uplink_p50_s")(data), _slope("uplink_p50_s", "off")(data))


def _mean(values: Values) -> float:
    return sum(values.values()) / len(values) if values else float("nan")


def _explain_slow_start(data: Data) -> str:
    trials, far = data["E3"], "transcontinental"
    packets = _mean(trials.values("packets_p50", place=far, restart="on"))
    flights = rounds(packets)
    on, off = (_mean(_slope("part_uplink_transport_p50_s", restart)(data)) for restart in ("on", "off"))
    windows = [_mean(trials.values("cwnd_p50", place=far, restart=restart)) for restart in ("on", "off")]
    text = (
        f"The median request has {packets:.0f} segments: {flights} flights of slow start from a window of 10, "
        f"which makes {2 * flights - 1} ms per ms. Of the measured slope, sending (transport) has {on:.2f} with "
        f"the restart after idle periods and {off:.2f} without. tcp_info reports windows of {windows[0]:.0f} and "
        f"{windows[1]:.0f} segments before a request"
    )
    unused = min(windows) >= packets and on > off
    return text + (": enough for the request in both cases, but after a pause TCP begins with 10." if unused else ".")


def _queue_share(data: Data) -> Values:
    """Return the share of the uplink's time spent in the queue of its link."""
    trials = data["E4"]
    names = [name for name in trials.frame.columns if name.startswith(f"{MEAN}uplink_")]
    columns = [trials.values(name, **_HIGH) for name in names]
    if (queue := f"{MEAN}uplink_queue") not in names:
        return {}
    return pair_repetitions(lambda *parts: parts[names.index(queue)] / sum(parts), *columns)


def _describe_uplink(data: Data, experiment: str, labels: Mapping[str, str]) -> str:
    """Return a sentence on the parts of the mean request's uplink."""
    parts = data[experiment].parts(labels, "uplink_")
    if not (total := sum(parts.values())):
        return ""
    listed = ", ".join(f"{name.removeprefix('uplink_')} {value / total:.0%}" for name, value in parts.items())
    return f"Uplink of the mean request at {', '.join(labels.values())}: {listed} of {formats.duration(total)}."


def _explain_skips(policy: str) -> Callable[[Data], str]:
    def text(data: Data) -> str:
        skipped = _mean(data["E4"].values("skipped", **(_HIGH | {"policy": policy})))
        sent = _mean(data["E4"].values("requests", **(_HIGH | {"policy": policy})))
        if not skipped > 0:
            return ""
        return f"It skips {quantity(skipped / (skipped + sent), 'share')} of the requests."

    return text


def _describe_both(one: Mapping[str, str], other: Mapping[str, str]) -> Callable[[Data], str]:
    return lambda data: f"{describe_parts(data['E4'], one)} {describe_parts(data['E4'], other)}"


def _values_6g(data: Data, column: str) -> Values:
    return data["6G"].values(column, network="6G")


def _formula(data: Data) -> Values:
    """Return the result of the thesis's formula for the network, seconds."""
    return pair_repetitions(lambda size: (8 * size / _KBIT_6G + 0.2) / 1e3, _values_6g(data, "bytes_up_p50"))


def _transport_times(data: Data) -> Values:
    """Return the time of TCP on this link in virtual time, seconds: a request and its answer on an open connection,
    after idle time of a second."""

    def network(size: float) -> float:
        path = Path(*(Link(rate="100 Gbit/s", delay="0.1 ms") for _ in range(2)))
        sent = path.downloads(sizes=[1, 1], thinking=[10**9], request=round(size), keep_connection=True)
        return float(sent.taken[1]) / 1e9

    return pair_repetitions(network, _values_6g(data, "bytes_up_p50"))


def _compute_20(data: Data) -> Values:
    places = (_values_6g(data, f"{place}_p50_s") for place in ("endpoint", "remote", "network"))
    return pair_repetitions(lambda endpoint, remote, network: endpoint + remote / 20 + network, *places)


def _explain_compute(data: Data) -> str:
    places = (_values_6g(data, f"{place}_p50_s") for place in ("endpoint", "remote", "network"))
    endpoint, remote, network = (formats.duration(_mean(each)) for each in places)
    return f"Arithmetic on medians: endpoint {endpoint} + compute {remote} ÷ 20 + network {network}."


def _explain_formula(data: Data) -> str:
    times = (_formula(data), _values_6g(data, "network_p50_s"), _transport_times(data))
    formula, link, transported = (formats.duration(_mean(each)) for each in times)
    packets = _mean(_values_6g(data, "packets_p50"))
    return (
        f"The formula gives {formula}, the link with TCP {link}, in virtual time {transported}, for {packets:.0f} "
        f"segments, which slow start sends in {rounds(packets)} flights. {_describe_uplink(data, '6G', _6G)}"
    )


def _find_threshold(data: Data) -> Values:
    """Return the lowest capacity, Mbit/s, with a median uplink latency below a second here and at all higher ones."""
    levels = [
        (each, data["threshold"].values("uplink_p50_s", capacity=_name_rate(each))) for each in reversed(_CAPACITIES)
    ]
    found: Values = {}
    for repetition in levels[0][1]:
        for capacity, latencies in levels:
            if latencies.get(repetition, math.inf) >= 1:
                break
            found[repetition] = capacity
    return found


# ---- claims


def _archive_claims() -> Iterator[Claim]:
    def measure(trace: str, column: str, other: str = "") -> Measure:
        return Measure("archive", column, {"trace": trace}, {"trace": other} if other else None)

    for role, rates in _RATES.items():
        for way, words, rate in zip(("up", "down"), ("Uplink", "Downlink"), rates, strict=True):
            name, statement = f"{role}.{way}", f"{words} of the {role} recording, highest second, Mbit/s"
            yield Claim(
                f"rate-{role}-{way}", "archive", "§5.3", statement, f"up to {rate}", measure(name, "most"), "number",
                figure=(rate, rate), made=(name,),
            )  # fmt: skip
        yield Claim(
            f"asymmetry-{role}", "archive", "§5.3", f"Downlink over uplink of the {role} recording, mean rate",
            "significantly lower uplink", measure(f"{role}.down", "mean", f"{role}.up"), "ratio", f"above {NEAR:g}",
            values_above(NEAR), made=(f"{role}.up", f"{role}.down"),
        )  # fmt: skip
    for column, words, published, agrees in (
        ("p10", "P10", "largely from 10", values_above(10)),
        ("p90", "P90", "largely to 25", values_below(25)),
    ):
        yield Claim(
            f"window-{column}", "archive", "§5.3", f"Uplink of the 5g-window recording, {words} of seconds, Mbit/s",
            published, measure("5g-window.up", column), "number", "in the range", agrees, made=("5g-window.up",),
        )  # fmt: skip


_5G, _LTE, _WINDOW, _6G = ({"network": name} for name in ("5G", "LTE", "5G behind a window", "6G"))


def _network_claims() -> tuple[Claim, ...]:
    return (
        Claim(
            "compute", "E1", "§6.3", "Compute in the median latency (5G)", "up to 80 %",
            _share("E1", "remote_p50_s", "latency_p50_s", **_5G), "share", "most of it", values_above(0.5), (_5G,),
            figure=(0.8, 0.8), made=_COMPUTE,
        ),
        Claim(
            "plateau", "E1", "§6.3", "Median compute over the P1 latency (5G)", "a plateau",
            _share("E1", "remote_p50_s", "latency_p01_s", **_5G), "share", "most of it", values_above(0.5), (_5G,),
            made=_COMPUTE,
        ),
        Claim(
            "network-p99", "E1", "§6.3", "Network in the P99 latency (5G)", "up to 80 %",
            _share("E1", "network_p99_s", "latency_p99_s", **_5G), "share", "most of it", values_above(0.5), (_5G,),
            figure=(0.8, 0.8), made=("5g.up", *_COMPUTE),
        ),
        *(
            Claim(
                f"uplink-{name}-{at}", "E1", section, f"Uplink in the {words} network latency ({label})", published,
                _share("E1", f"uplink_{at}_s", f"network_{at}_s", network=label), "share", "most of it",
                values_above(0.5), ({"network": label},), figure=figure, made=(f"{name}.up",),
            )
            for at, words, published, figure, section in (
                ("p50", "median", "over 90 %", (0.9, 1.0), "§6.1, MF1"),
                ("p99", "P99", "up to 95 %", (0.95, 0.95), "§6.3"),
            )
            for name, label in (("lte", "LTE"), ("5g", "5G"))
        ),
        Claim(
            "window", "E1", "§6.3", "Median network latency, LTE over 5G behind a window", "no improvement to LTE",
            Measure("E1", "network_p50_s", _LTE, _WINDOW), "ratio", "at least 0.8 times: LTE is not better",
            values_above(1 / NEAR), (_LTE, _WINDOW), made=("lte.up", "5g-window.up"),
        ),
        Claim(
            "best", "E1", "§6.3", "Median uplink latency, LTE over 5G", "5G without obstacle is best",
            Measure("E1", "uplink_p50_s", _LTE, _5G), "ratio", "above 1", LARGER, (_LTE, _5G), made=("lte.up", "5g.up"),
        ),
        Claim(
            "standard-p99", "E1", "§6.3", "P99 network latency, LTE over 5G", "no improvement",
            Measure("E1", "network_p99_s", _LTE, _5G), "ratio", "from 0.8 to 1.25 times", (1 / NEAR, NEAR), (_LTE, _5G),
            made=("lte.up", "5g.up"),
        ),
    )  # fmt: skip


def _workload_claims() -> tuple[Claim, ...]:
    image, text = {"workload": "image"}, {"workload": "text"}
    return (
        Claim(
            "text-p99", "E2", "§6.1, MF2", "P99 network latency, image over text", "1.5 times",
            Measure("E2", "network_p99_s", image, text), "ratio", "above 1", LARGER, (image, text),
            figure=(1.5, 1.5),
        ),
        Claim(
            "text-median", "E2", "§6.4", "Median latency, text over image", "higher",
            Measure("E2", "latency_p50_s", text, image), "ratio", "above 1", LARGER, (image, text),
            made=_COMPUTE,
        ),
        Claim(
            "text-compute", "E2", "§6.4", "Compute in the median latency of text", "over 99 %",
            _share("E2", "remote_p50_s", "latency_p50_s", **text), "share", "nearly all", values_above(0.9), (text,),
            figure=(0.99, 1.0), made=_COMPUTE,
        ),
        Claim(
            "text-spread", "E2", "§6.4", "P99 over median latency, text over image", "less variable",
            _spread_ratio, "ratio", "below 1", SMALLER, (image, text), made=_COMPUTE,
        ),
        Claim(
            "slots-image", "E2", "§6.4", "Packets of an image request (mean)", "about 50",
            Measure("E2", "packets_mean", image), "number", "many", values_above(10), figure=(50, 50), made=("images",),
        ),
        Claim(
            "slots-text", "E2", "§6.4", "Packets of a text request (mean)", "1",
            Measure("E2", "packets_mean", text), "number", "one", values_below(1.5), figure=(1, 1),
            made=("images",),
        ),
    )  # fmt: skip


def _place_claims() -> tuple[Claim, ...]:
    edge, far = ({"place": name, "restart": "on"} for name in ("edge", "transcontinental"))
    return (
        Claim(
            "edge", "E3", "§6.5", "Median latency at the edge", "well below 100 ms",
            Measure("E3", "latency_p50_s", edge), "time", "below 100 ms", values_below(0.1), (edge,),
            made=_COMPUTE,
        ),
        Claim(
            "far-p99", "E3", "§6.5", "P99 latency, transcontinental over edge", "minimal improvement at the edge",
            Measure("E3", "latency_p99_s", far, edge), "ratio", "below 1.25", values_below(NEAR), (edge, far),
        ),
        Claim(
            "outliers", "E3", "§6.5", "Maximum latency at the edge", "some above 1 s",
            Measure("E3", "latency_max_s", edge), "time", "above 1 s", values_above(1), (edge,), made=("5g.up",),
        ),
        Claim(
            "slope-p1", "E3", "§6.5", "P1 uplink latency per core one-way delay, ms per ms", "about 1",
            _slope("uplink_p01_s"), "number", "0.7 to 1.5", (0.7, 1.5), (edge, far), figure=(1, 1),
        ),
        Claim(
            "slope-median", "E3", "§6.5", "Median uplink latency per core one-way delay, ms per ms", "about 4",
            _slope("uplink_p50_s"), "number", "above 1.5", values_above(1.5), (edge, far), _explain_slow_start, (4, 4),
        ),
        Claim(
            "slope-p99", "E3", "§6.5", "P99 uplink latency per core one-way delay, ms per ms", "weak",
            _slope("uplink_p99_s"), "number",
        ),
        Claim(
            "weak-p99", "E3", "§6.5", "Variance of the P99 uplink latency that the core delay explains", "weak",
            lambda data: determination(_columns(data, "uplink_p99_s", "on")), "share", "below half",
            values_below(0.5), (edge, far),
        ),
        Claim(
            "slope-off", "E3", "§6.5", "The median's slope without slow start after idle, ms per ms", "–",
            _slope("uplink_p50_s", "off"), "number",
        ),
        Claim(
            "slope-drop", "E3", "§6.5", "The part of the median's slope that slow start after idle causes, ms per ms",
            "supposed: the window", _slope_drop, "change", "above 0", values_above(0), (edge, far),
        ),
    )  # fmt: skip


def _load_claims() -> tuple[Claim, ...]:
    high, low = _HIGH, _HIGH | {"rate": "2 /s"}
    return (
        Claim(
            "threshold", "threshold", "§6.6", "Lowest capacity with a median uplink latency below 1 s at 10 /s, Mbit/s",
            "around 5", _find_threshold, "number", figure=(5, 5), made=("images",),
        ),
        Claim(
            "good", "E4", "§6.6", "Median uplink latency at 2 requests a second", "below 100 ms",
            Measure("E4", "uplink_p50_s", low), "time", "below 100 ms", values_below(0.1), (low,), made=_MADE,
        ),
        Claim(
            "collapse", "E4", "§6.1, MF3", "P99 uplink latency at 10 /s over the median at 2 /s", "200 times",
            Measure("E4", "uplink_p99_s", high, low, "uplink_p50_s"), "ratio", "above 10", values_above(10),
            (high, low), figure=(200, 200), made=_MADE,
        ),
        Claim(
            "worst", "E4", "§6.6", "P99 uplink latency at 10 requests a second", "up to 20 s",
            Measure("E4", "uplink_p99_s", high), "time", "above 1 s", values_above(1), (high,),
            figure=(20, 20), made=_MADE,
        ),
        Claim(
            "queue", "E4", "§6.6", "Queue in the uplink latency at 10 /s", "the cause",
            _queue_share, "share", "most of it", values_above(0.5), (),
            lambda data: _describe_uplink(data, "E4", high), made=_MADE,
        ),
        *(
            Claim(
                f"{policy}-{at}", "E4", "§6.6", f"{words} uplink latency without a policy over '{policy}'", published,
                Measure("E4", f"uplink_{at}_s", high, high | {"policy": policy}), "ratio", "above 1",
                LARGER if figure else None, (high, high | {"policy": policy}),
                _explain_skips(policy) if at == "p50" else None, figure, _MADE,
            )
            for policy, figures in _POLICIES.items()
            for at, words, (published, figure) in zip(("p50", "p99"), ("Median", "P99"), figures, strict=True)
        ),
        *(
            Claim(
                f"policy-{policy}-{at}", "E4", "§6.6", f"{words} uplink latency, policy {policy}", f"{published} s",
                Measure("E4", f"uplink_{at}_s", high | {"policy": policy}), "time", figure=(published, published),
                made=_MADE,
            )
            for policy, at, words, published in (
                ("none", "p50", "Median", 1), ("halve", "p50", "Median", 0.12), ("halve", "p99", "P99", 5.5),
            )
        ),
        *(
            Claim(
                f"limit-{limit}", "E4", "§6.6", f"P99 uplink latency, infinite queue over {limit}", "–",
                Measure("E4", "uplink_p99_s", high, high | {"queue": limit}), "ratio",
                explain=_describe_both(high, high | {"queue": limit}),
            )
            for limit in ("1 MB", "100 kB")
        ),
    )  # fmt: skip


def _projection_claims() -> tuple[Claim, ...]:
    return (
        Claim(
            "6g-latency", "6G", "§6.7", "Median latency, 5G over 6G", "6G is lower",
            Measure("6G", "latency_p50_s", _5G, _6G), "ratio", "above 1", LARGER, (_5G, _6G), made=("6G",),
        ),
        Claim(
            "6g-compute", "6G", "§6.7", "Compute in the median latency with 6G", "the limiting factor",
            _share("6G", "remote_p50_s", "latency_p50_s", **_6G), "share", "most of it", values_above(0.5), (_6G,),
            made=_COMPUTE,
        ),
        Claim(
            "6g-formula", "6G", "§6.7", "Network latency of the link with TCP over the formula", "the formula alone",
            lambda data: ratio(_values_6g(data, "network_p50_s"), _formula(data)), explain=_explain_formula,
        ),
        Claim(
            "6g-virtual", "6G", "§6.7", "The same by TCP in virtual time, without hosts", "the formula alone",
            lambda data: ratio(_transport_times(data), _formula(data)),
        ),
        Claim(
            "6g-20", "6G", "§6.7", "Latency with 6G and compute 20 times as fast", "low enough (10 ms, §1)",
            _compute_20, "time", "below 10 ms", values_below(0.010), explain=_explain_compute,
            made=_COMPUTE,
        ),
    )  # fmt: skip


_UNPUBLISHED = "The recordings of the core's round trips are not published."
_UNTRIED = untried_claims(
    ("core-tail", "§5.3", "Round trips of the core", "a long right tail", _UNPUBLISHED),
    ("core-peak", "§5.3", "Round trips of the core at peak hours", "slightly longer", _UNPUBLISHED),
    ("core-modes", "§5.3", "Round trips to EU-West-3", "two modes", _UNPUBLISHED),
    ("days", "§5.2", "Places, hours and operators", "one place and two hours", "The thesis compares none."),
)


# ---- main findings


def _verdict(findings: Mapping[str, Finding], *keys: str) -> str:
    found = [findings[key].same for key in keys]
    if "not measured" in found:
        return "Not measured in full"
    if "stand-in" in found:
        return "Not judged: it follows from our inputs"
    if set(found) == {"no"}:
        return "Not reproduced"
    if set(found) != {"yes"}:
        return "Direction reproduced in part"
    return "Reproduced" if {findings[key].verdict for key in keys} == {"yes"} else "Direction reproduced"


def _answer_mf1(findings: Mapping[str, Finding], data: Data) -> str:
    keys = ("uplink-lte-p50", "uplink-5g-p50", "uplink-lte-p99", "uplink-5g-p99")
    lte, five, lte_p99, five_p99 = (findings[key].ours for key in keys)
    return (
        f"{_verdict(findings, *keys)}. The uplink has {lte} of the median network latency over LTE and {five} over 5G; "
        f"of the P99 {lte_p99} and {five_p99}. Compute has {findings['compute'].ours} of the median latency over 5G."
    )


def _answer_mf2(findings: Mapping[str, Finding], data: Data) -> str:
    factor, image, text = (findings[key].ours for key in ("text-p99", "slots-image", "slots-text"))
    return (
        f"{_verdict(findings, 'text-p99')}. The P99 network latency of images over text is {factor}, "
        f"where the thesis has 1.5 times. An image request has {image} packets, which follows from the sizes of our "
        f"images; a text request has {text}."
    )


def _answer_mf3(findings: Mapping[str, Finding], data: Data) -> str:
    keys = ("collapse", "queue", "halve-p50", "halve-p99")
    collapse, queue, median, tail = (findings[key].ours for key in keys)
    limits = " and ".join(
        f"{quantity(value, 'time')} with {limit}"
        for limit in ("infinite", "1 MB", "100 kB")
        if (value := _mean(data["E4"].values("uplink_p99_s", **(_HIGH | {"queue": limit})))) == value
    )
    limits = limits or "not measured"
    return (
        f"{_verdict(findings, *keys)}. The P99 uplink latency at 10 requests a second is {collapse} the median at 2; "
        f"the link's queue has {queue} of the uplink's time. Halving the rate lowers the median "
        f"uplink latency {median} and the P99 {tail}. By the queue's limit, the P99 uplink latency is {limits}."
    )


def _answer_mf4(findings: Mapping[str, Finding], data: Data) -> str:
    keys = ("6g-latency", "6g-compute", "6g-20")
    gain, compute, faster = (findings[key].ours for key in keys)
    return (
        f"{_verdict(findings, *keys)}. With the network of 6G the median latency falls {gain}, and "
        f"compute has {compute} of the rest. With compute 20 times as fast, which is arithmetic, "
        f"{faster} would remain. TCP on the link takes {findings['6g-formula'].ours} the formula's time, "
        f"and {findings['6g-virtual'].ours} in virtual time, where hosts take none."
    )


PUBLICATION = SweptPublication(
    name="thesis",
    title="Network Simulation for AI in the Digital Continuum",
    citation=_CITATION,
    scenario=_SCENARIO,
    short={"duration": "8 s", "workload.drain": "1 s"},
    short_note="A short reproduction: few repetitions of seconds instead of minutes, fewer places, rates and queues, "
    "and for the load the trace's poorest seconds only, at 2 requests a second, too. Its intervals are wide, and "
    "percentiles of few requests are refused.",
    roles=ROLES,
    experiments=(_RECORDINGS, *(replace(each, short={"repetitions": 3, **each.short}) for each in EXPERIMENTS)),
    claims=(
        *_archive_claims(),
        *_network_claims(),
        *_workload_claims(),
        *_place_claims(),
        *_load_claims(),
        *_projection_claims(),
        *_UNTRIED,
    ),
    answers=(
        Answer(
            "MF1", "The uplink is the limiting factor: over 90 % of the network latency for LTE and 5G.", _answer_mf1
        ),
        Answer("MF2", "Text instead of images decreases the P99 network latency 1.5 times.", _answer_mf2),
        Answer(
            "MF3",
            "A drop of the network's performance for 30 s increases the uplink latency 200 times, and applications "
            "need congestion control.",
            _answer_mf3,
        ),
        Answer("MF4", "Novel applications need faster compute as well as a faster network.", _answer_mf4),
    ),
    differences=(
        "Each repetition starts at another offset of the traces, except in E4, which needs the whole drop (one of five "
        "offsets missed most of it, and this was changed after that result); the thesis has one run of each kind.",
        "Except in E4, images come from four endpoints at once, each with its own link at another place of the trace, "
        "and text for 400 s: a P99 with an interval needs 368 requests.",
        "The thesis has the processors of a Xeon Silver 4210R.",
        "MobileNetV2 and MarianMT have their architectures with seeded weights: the computation is real, its results "
        "are not.",
        "The mobile link has no delay except its queue and its schedule, as in the thesis (Mahimahi's link shell).",
    ),
    inputs=(
        Input("images", "photographs of ours, with a median of 65 KB, and phrases of ours", True),
        Input("6G", "100 Gbit/s and 0.1 ms, of the thesis's formula", True),
        Input(
            "compute",
            f"seeded weights in {_IMAGES} and {_TEXT}; the thesis: TensorFlow, PyTorch",
            not all(_FRAMEWORKS),
            kinds=("image-classification", "translation"),
        ),
    ),
)
