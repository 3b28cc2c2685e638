"""COSM-IC, transatlantic experiments with a next-generation edge: its tables of transport protocols, as data."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cellbed.extension.traces import SLOT_LTE, TICK_NS, Capacity, Model, Stream, Wander, each_way
from cellbed_papers.drawings import Course, bars, boxes, courses, tabled
from cellbed_papers.publication import (
    CAPACITY,
    LARGER,
    SMALLER,
    Answer,
    Claim,
    Data,
    Finding,
    Input,
    Measure,
    Range,
    Role,
    Swept,
    SweptPublication,
    untried_claims,
    values_above,
    values_below,
)

_LAWS = {"New Reno": "reno", "CUBIC": "cubic", "BBR": "bbr"}
_CLIENT = "iperf3 --client {server.address} --reverse"
_SCENARIO: dict[str, Any] = {
    "name": "cosmic",
    "duration": "110 s",
    "nodes": {"endpoint": {"cpus": 1.0, "memory": "1 GB"}, "cloud": {"cpus": 1.0, "memory": "1 GB"}},
    "links": {"mobile": {"up": "unlimited", "down": "unlimited", "base_delay": "0 ms"}, "core": {}},
    # A window must hold 140 MB: 10 Gbit/s for 112 ms.
    "transport": {
        "congestion_control": "cubic",
        "receive_buffer": "512 MB",
        "send_buffer": "512 MB",
        "metrics_cache": False,
    },
    "apps": {
        "transfer": {
            "kind": "program",
            "server": {"on": "cloud", "command": "iperf3 --server", "ready": {"port": 5201}},
            "client": {"on": "endpoint", "command": f"{_CLIENT} --time 100"},
        }
    },
}
_FILE = {
    "kind": "transfers",
    "server": "cloud",
    "arrivals": "closed",
    "stop": "100 ms",
    "timeout": "30 s",
    "drain": "30 s",
}
"""A single transfer: no transfer begins after the first one."""
_SIZES_MB = (125, 175, 200, 225)
_SIZE = {"key": "apps.transfer.download", "levels": {f"{size} MB": [f"{size} MB"] for size in _SIZES_MB}}
_THROUGHPUT = "throughput_down_mbit_s"
_TIME = "latency_mean_s"
_FRAMES = "first_frames_s"
"""Mean of frames 1 to 5, as in Table VII."""
_LOSS = ("0 %", "0.1 %", "0.5 %")
TABLE_4 = {"New Reno": (206, 4.89, 3.98), "CUBIC": (270, 9.42, 2.64), "BBR": (640, 373, 323)}
"""Throughput, Mbit/s, by loss."""
TABLE_2 = {"CUBIC": (4.61, 5.17, 5.51, 6.64), "BBR": (1.37, 1.48, 1.57, 1.80)}
"""Response time, s, by size of the file."""
TIMES_UDP = (0.50, 0.67, 0.74, 0.84)
"""Response time over UDP, s, by size of the file (Table II)."""
TABLE_3 = ((0.068, 8.5), (0.013, 7.5), (0.041, 5.8), (0.041, 7.8))
"""Jitter, ms, and loss, per cent, by size of the file."""
TABLE_7 = {"Open Ireland": (0.307, 0.296, 0.310, 0.305, 0.292), "COSMOS": (0.084, 0.056, 0.090, 0.087, 0.051)}
"""End-to-end delay of frames 1 to 5, s, by place of the server."""
TABLE_6 = {"2.0 GB": (20.75, 8.67), "2.9 GB": (28.65, 11.39), "4.2 GB": (41.55, 13.84)}
"""Transfer and restore time, s, by size of the container."""
TABLE_5 = {"New Reno": 0.514, "CUBIC": 1.67, "BBR": 5.53, "mmCPTP": 9.46, "limit": 9.47}
"""Size of the file that was transferred, GB."""


_MOST_BIT_S = 500e6
"""Maximum throughput of the mmWave link (section III-A)."""


@dataclass(frozen=True, slots=True)
class _MmWave:
    """Rates of a mmWave link that change each second, limited as published; the other values are ours."""

    def capacity(self, duration_ns: int, stream: Stream) -> Capacity:
        course = Wander(300e6, 500e6, 1e6, 2e9, 2_000_000_000).capacity(duration_ns, stream).bit_s
        rates = course[:: 10**9 // TICK_NS].clip(max=int(_MOST_BIT_S))
        return Capacity(np.arange(len(rates), dtype=np.int64) * 10**9, rates, duration_ns)


ROLES = (
    Role(
        "mmwave",
        ("Lumos5G",),
        "5g-in-the-wild-5g-walking-4",
        Model(
            name="mmwave-ours",
            citation="COSM-IC, Table V",
            cited="Published: the maximum of 500 Mbit/s. Ours: everything else.",
            duration_ns=500 * 10**9,
            make=each_way(None, _MmWave(), SLOT_LTE),
        ),
        "1 to 500 Mbit/s, another rate each second",
        most=_MOST_BIT_S,
    ),
)


def _transports(seconds: int) -> dict[str, Any]:
    """Return the factor of Table V. seconds: duration of a transfer."""
    radio = {
        "up": "50 Mbit/s",
        "down": "{trace:mmwave.down}",
        "base_delay": "0 ms",
        "queue": {"kind": "droptail", "limit": "1000 packets"},  # default of tc and Click, which the paper uses
    }
    command = f"{_CLIENT} --time {seconds}"
    return {
        "keys": ["transport.congestion_control", "links.mobile", "apps.transfer.client.command"],
        "levels": {
            **{law: [name, radio, command] for law, name in _LAWS.items()},
            "mmCPTP": ["cubic", radio | {"proxy": {"kind": "mmcptp", "buffer": "16 MiB"}}, command],
        },
    }


_BUFFER = "The proxy's buffer of 16 MiB was chosen after a result with 8 MiB was seen, of 0.93 to 0.95 of the limit."
_SERVICE = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from cellbed.state import State
class Memory(State):
    def save(self, everything):
        for number in pieces if everything else ():
            yield number.to_bytes(8) + pieces[number]
    def load(self, part):
        pieces[int.from_bytes(part[:8])] = part[8:]
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        with memory.lock:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
    def log_message(self, *_):
        pass
memory, pieces = Memory(), dict(enumerate(bytes([i % 251]) * 1000000 for i in range(int(sys.argv[1]))))
memory.announce()
ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"""
"""A service that receives frames and holds a number of MB; CRIU and `state` can move the service."""
_HELD = "0.2 GB"
"""A service size that fits any machine."""
_STRATEGIES = (("stop-and-copy", True), ("state", False), ("post-copy", False))
"""Migration strategies, and whether the paper's restore time is an input. The last one has no prediction."""


def _moves(sizes: Iterable[str], *, real: bool = False, strategies: int = 2) -> dict[str, Any]:
    """Return the factor of Table VI. sizes: memory sizes of the service, used only in real time. strategies:
    number of strategies."""
    levels = {}
    for size in sizes:
        held_mb = f"{float(size.removesuffix(' GB')) * 1000:.0f}" if real else "0"
        command = [sys.executable, "-c", _SERVICE, held_mb]
        restore = f"{TABLE_6[size][1]} s" if size in TABLE_6 else "0 s"
        for strategy, more in _STRATEGIES[:strategies]:
            levels[f"{strategy}, {size}"] = [
                command,
                strategy,
                {"size": size, **({"restore": restore} if more else {})},
            ]
    keys = ["apps.alpr.server.command", "migrations.0.strategy", "migrations.0.model"]
    return {"move": {"keys": keys, "levels": levels}}


_READER = "2.0 GB"
"""Size of the moving plate reader in virtual time; in real time its programs have 0.16 GB."""
_DIRTY = "80 Mbit/s"
"""Rate at which the plate reader changes its memory in virtual time: some 5 MB for each decoded frame."""
_READER_STRATEGIES = ("stop-and-copy", "pre-copy", "post-copy")
"""The paper's is pre-copy. The last one has no prediction."""


def _reader_moves(*, real: bool = False) -> dict[str, Any]:
    """Return the factor of Tables VI and VII from one run."""
    model = {"size": _READER, "dirty_rate": _DIRTY, "restore": f"{TABLE_6[_READER][1]} s"}
    names = _READER_STRATEGIES if real else _READER_STRATEGIES[:2]
    keys = ["migrations.0.strategy", "migrations.0.model"]
    return {"strategy": {"keys": keys, "levels": {name: [name, model] for name in names}}}


def _radio(label: str, column: str) -> Course:
    return Course(label, "links", column, direction="mobile-0.downlink")


def _core(rate: str, loss: str = "0 %", delay: str = "56 ms") -> dict[str, Any]:
    return {"kind": "delay", "delay": delay, "rate": rate, "loss": loss}


EXPERIMENTS = (
    Swept(
        "loss",
        "Throughput under loss",
        "Table IV",
        {
            "law": {"key": "transport.congestion_control", "levels": _LAWS},
            "loss": {"key": "links.core.cloud", "levels": {loss: _core("1 Gbit/s", loss) for loss in _LOSS}},
        },
        short={
            "levels": {"loss": _LOSS[:2]},
            "changes": {"duration": "19 s", "apps.transfer.client.command": f"{_CLIENT} --time 15"},
        },
        packet_logs=False,  # 600 MB a trial
        drawings=(
            ("Table IV: throughput under loss", bars("throughput, Mbit/s", _THROUGHPUT, "loss", "law", log=True)),
        ),
    ),
    Swept(
        "file",
        "Response time of a file",
        "Table II",
        {
            "law": {"key": "transport.congestion_control", "levels": {law: _LAWS[law] for law in TABLE_2}},
            "size": _SIZE,
        },
        changes={"links.core.cloud": _core("10 Gbit/s"), "apps.transfer": _FILE, "duration": "2 s"},
        repetitions=3,
        varies=False,
        short={"levels": {"size": ["125 MB"]}, "changes": {"apps.transfer.drain": "10 s"}},
        drawings=(("Table II: response time of a file", bars("response time, s", _TIME, "size", "law")),),
    ),
    Swept(
        "udp",
        "A file over UDP",
        "Tables II, III",
        {"size": _SIZE},
        changes={
            "links.core.cloud": _core("10 Gbit/s"),
            "apps.transfer": {**_FILE, "protocol": "udp", "bit_rate": "2 Gbit/s"},
            "duration": "5 s",
        },
        repetitions=3,
        varies=False,
        short={"levels": {"size": ["125 MB"]}, "changes": {"apps.transfer.drain": "10 s"}},
        drawings=(
            ("Table III: jitter of a file over UDP", bars("median jitter, ms", "jitter_p50_s", "size", factor=1e3)),
            (
                "Table III: loss of a file over UDP",
                bars("lost datagrams, %", "datagrams_lost_share", "size", factor=100),
            ),
        ),
    ),
    Swept(
        "mmwave",
        "Transfer over a mmWave link",
        "Table V",
        # The limit of 9.47 GB takes at least 151.5 s at 500 Mbit/s.
        {"transport": _transports(152)},
        changes={"links.core.cloud": "56 ms", "duration": "157 s"},
        repetitions=3,
        short={
            "repetitions": 1,
            "factors": {"transport": _transports(15)},
            "levels": {"transport": ["CUBIC", "mmCPTP"]},
            "changes": {"duration": "19 s"},
        },
        packet_logs=False,  # a GB a trial
        drawings=(
            (
                "Fig. 4: rate of the mmWave link",
                courses((_radio("capacity, Mbit/s", "capacity_mbit_s"),), {"mmWave": {"transport": "CUBIC"}}),
            ),
            ("Table V: rate received over time", courses((_radio("received, Mbit/s", "used_mbit_s"),), "transport")),
            ("Table V: bytes received", bars("received, GB", "received_bytes", "transport", factor=1e-9)),
        ),
    ),
    Swept(
        "plates",
        "Licence plates, remote and local",
        "Table VII",
        {
            "server": {
                "key": "links.core.cloud",
                "levels": {
                    "Open Ireland": _core("10 Gbit/s"),
                    # A link delay: the paper states the round-trip time of 112 ms in the same way.
                    "COSMOS": _core("10 Gbit/s", delay="1.5 ms"),
                },
            }
        },
        changes={
            "apps": {"plates": {"kind": "plates", "server": "cloud", "rate": "2 /s", "deadline": "100 ms"}},
            "transport.slow_start_after_idle": True,
            "duration": "30 s",
        },
        repetitions=5,
        short={"changes": {"apps.plates.drain": "1 s", "duration": "6 s"}},
        drawings=(
            (
                "Table VII: response time of a frame",
                boxes("response time, ms", tabled("requests", "latency_s", 1e3), "server"),
            ),
        ),
    ),
    Swept(
        "migration",
        "Migration of a container",
        "Table VI",
        _moves(TABLE_6),
        changes={
            "nodes": {
                "endpoint": {"cpus": 0.5, "memory": "512 MB"},
                **{node: {"cpus": 0.7, "memory": "10 GB"} for node in ("cloud", "edge")},
            },
            # 14 MB are 1 Gbit/s for 112 ms: an overflow in slow start would leave BBR at a fifth of the rate.
            "links.core": {
                "cloud": _core("1 Gbit/s") | {"queue": {"kind": "droptail", "limit": "14 MB"}},
                "edge": _core("10 Gbit/s", delay="1.5 ms"),
            },
            "apps": {
                "alpr": {
                    "kind": "http",
                    "method": "PUT",
                    "url": "http://{server.address}:8080/",
                    "body_size": "176 kB",
                    "client": "endpoint",
                    "rate": "2 /s",
                    "server": {"on": "cloud", "command": [], "ready": {"port": 8080}},
                }
            },
            "migrations": [{"app": "alpr", "to": "edge-0", "at": "5 s", "strategy": "state"}],
            "transport.congestion_control": "bbr",
            "duration": "90 s",
        },
        repetitions=3,
        varies=False,
        real=_moves(TABLE_6, real=True, strategies=3),
        short={
            "factors": _moves([_HELD]),
            "real": _moves([_HELD], real=True, strategies=3),
            "repetitions": 1,
            "changes": {"duration": "26 s"},
        },
        drawings=(
            ("Table VI: transfer time of a container", bars("transfer time, s", "migration_transfer_s", "move")),
            ("Table VI: downtime of a container", bars("downtime, s", "migration_gap_s", "move")),
        ),
    ),
    Swept(
        "reader",
        "A plate reader before, while and after it moves",
        "Tables VI and VII",
        _reader_moves(),
        changes={
            "nodes": {
                "endpoint": {"cpus": 0.5, "memory": "512 MB"},
                **{node: {"cpus": 1.0, "memory": "2 GB"} for node in ("cloud", "edge")},
            },
            "links.core": {
                "cloud": _core("1 Gbit/s") | {"queue": {"kind": "droptail", "limit": "14 MB"}},
                "edge": _core("10 Gbit/s", delay="1.5 ms"),
            },
            "apps": {"alpr": {"kind": "plates", "server": "cloud", "rate": "2 /s", "timeout": "60 s"}},
            "migrations": [{"app": "alpr", "to": "edge-0", "at": "15 s", "strategy": "stop-and-copy"}],
            "transport.congestion_control": "bbr",
            "duration": "90 s",
        },
        repetitions=3,
        real=_reader_moves(real=True),
        short={
            "repetitions": 1,
            "changes": {"migrations.0.at": "4 s", "duration": "16 s"},
            "real": _reader_moves(real=True),
        },
        drawings=(
            (
                "Table VII: response times while the reader moves",
                courses((Course("response time, ms", "requests", "latency_s", 1e3, log=True),), "strategy"),
            ),
            ("Table VI: downtime of the reader", bars("downtime, s", "migration_gap_s", "strategy")),
        ),
    ),
)


_SECTIONS = {each.name: each.section for each in EXPERIMENTS}


def _claim(key: str, experiment: str, statement: str, published: str, measure: Measure, **more: Any) -> Claim:
    key = key.lower().replace(" ", "-")
    return Claim(key, experiment, _SECTIONS[experiment], statement, published, measure, **more)


def _ratio_claim(key: str, statement: str, factor: float, measure: Measure, direction: str, agrees: Range) -> Claim:
    """Return a claim about the ratio of two printed values."""
    more = {"direction": direction, "agrees": agrees, "figure": (factor, factor)}
    return _claim(key, measure.experiment, statement, f"{factor:.3g} times", measure, **more)


def _loss_claims() -> Iterator[Claim]:
    for law, (without, *published) in TABLE_4.items():
        for loss, value in zip(_LOSS[1:], published, strict=True):
            yield _ratio_claim(
                f"kept-{_LAWS[law]}-{loss.removesuffix(' %')}",
                f"Throughput of {law} at a loss of {loss} over none",
                value / without,
                Measure("loss", _THROUGHPUT, {"law": law, "loss": loss}, {"law": law, "loss": _LOSS[0]}),
                "most remains" if law == "BBR" else "most is lost",
                values_above(0.5) if law == "BBR" else values_below(0.5),
            )
        for loss, rate in zip(_LOSS, TABLE_4[law], strict=True):
            key, statement = (
                f"rate-{_LAWS[law]}-{loss.removesuffix(' %')}",
                f"Throughput of {law} at a loss of {loss}, Mbit/s",
            )
            measure = Measure("loss", _THROUGHPUT, {"law": law, "loss": loss})
            yield _claim(key, "loss", statement, f"{rate:g}", measure, unit="number", figure=(rate, rate))
    for law, other in (("BBR", "CUBIC"), ("CUBIC", "New Reno")):
        for at, loss in enumerate(_LOSS):
            factor = TABLE_4[law][at] / TABLE_4[other][at]
            yield _ratio_claim(
                f"{_LAWS[law]}-over-{_LAWS[other]}-{loss.removesuffix(' %')}",
                f"Throughput of {law} over {other} at a loss of {loss}",
                factor,
                Measure("loss", _THROUGHPUT, {"law": law, "loss": loss}, {"law": other, "loss": loss}),
                "higher" if factor > 1 else "lower",
                LARGER if factor > 1 else SMALLER,
            )


def _file_claims() -> Iterator[Claim]:
    for law, times in TABLE_2.items():
        for size, seconds in zip(_SIZES_MB, times, strict=True):
            statement = f"Response time of a file of {size} MB under {law}"
            measure = Measure("file", _TIME, {"law": law, "size": f"{size} MB"})
            more: dict[str, Any] = {"unit": "time", "figure": (seconds, seconds)}
            more |= {"made": ("core queue",)} if law == "CUBIC" else {}
            yield _claim(f"file-{_LAWS[law]}-{size}", "file", statement, f"{seconds:.2f} s", measure, **more)
    for size, cubic, bbr in zip(_SIZES_MB, TABLE_2["CUBIC"], TABLE_2["BBR"], strict=True):
        at, other = ({"law": law, "size": f"{size} MB"} for law in ("CUBIC", "BBR"))
        statement = f"Response time of a file of {size} MB, CUBIC over BBR"
        measure = Measure("file", _TIME, at, other)
        claim = _ratio_claim(f"file-cubic-over-bbr-{size}", statement, cubic / bbr, measure, "longer", LARGER)
        yield replace(claim, made=("core queue",))
    for size, (jitter_ms, lost) in zip(_SIZES_MB, TABLE_3, strict=True):
        at, statement = {"size": f"{size} MB"}, f"of a file of {size} MB over UDP"
        more = {"unit": "time", "direction": "below 0.1 ms", "agrees": values_below(1e-4)}
        more |= {"figure": (jitter_ms / 1000, jitter_ms / 1000), "made": ("core link",)}
        measure = Measure("udp", "jitter_p50_s", at)
        yield _claim(f"udp-jitter-{size}", "udp", f"Jitter {statement}", f"{jitter_ms:g} ms", measure, **more)
        more = {"unit": "share", "direction": "above 1 %", "agrees": values_above(0.01)}
        more["figure"] = (lost / 100, lost / 100)
        measure = Measure("udp", "datagrams_lost_share", at)
        yield _claim(f"udp-loss-{size}", "udp", f"Loss {statement}", f"{lost:g} %", measure, **more)
    for size, seconds in zip(_SIZES_MB, TIMES_UDP, strict=True):
        more = {"unit": "time", "figure": (seconds, seconds), "made": ("UDP rate",)}
        measure = Measure("udp", _TIME, {"size": f"{size} MB"})
        statement = f"Response time of a file of {size} MB over UDP"
        yield _claim(f"udp-time-{size}", "udp", statement, f"{seconds:.2f} s", measure, **more)


def _mmwave_claims() -> Iterator[Claim]:
    yield from untried_claims(
        *(
            (f"mmwave-size-{transport.lower().replace(' ', '-')}", "Table V", f"Bytes of {transport}, GB", f"{size:g}",
             "It depends on the duration of a transfer, which the paper does not state.")
            for transport, size in TABLE_5.items() if transport != "limit"
        )
    )  # fmt: skip
    for law, other, direction, agrees in (
        ("New Reno", "limit", "most is unused", values_below(0.5)),
        ("CUBIC", "limit", "most is unused", values_below(0.5)),
        ("BBR", "limit", "most is used", values_above(0.5)),
        ("mmCPTP", "limit", "within 5 %", values_above(0.95)),
        ("CUBIC", "New Reno", "more", LARGER),
        ("BBR", "CUBIC", "more", LARGER),
        ("mmCPTP", "CUBIC", "more", LARGER),
    ):
        statement = f"Bytes of {law} over {'the limit' if other == 'limit' else other}"
        measure = Measure("mmwave", _THROUGHPUT, {"transport": law}, {"transport": law}, CAPACITY)
        if other != "limit":
            measure = Measure("mmwave", "received_bytes", {"transport": law}, {"transport": other})
        factor = TABLE_5[law] / TABLE_5[other]
        claim = _ratio_claim(f"mmwave-{law}-over-{other}", statement, factor, measure, direction, agrees)
        yield replace(claim, explain=lambda data: _BUFFER) if law == "mmCPTP" else claim


def _frame_claims(prefix: str, statements: Iterable[str], measures: Iterable[Measure]) -> Iterator[Claim]:
    """Yield the claims of Table VII on frames to a far and to a near server. That the far one takes more than 100 ms
    follows from its round trip of 112 ms."""
    directions = (("", None), ("below 100 ms", values_below(0.1)))
    for (place, times), (words, agrees), statement, measure in zip(
        TABLE_7.items(), directions, statements, measures, strict=True
    ):
        least, most = min(times), max(times)
        more: dict[str, Any] = {"direction": words, "agrees": agrees, "figure": (least, most), "unit": "time"}
        published = f"{least * 1000:.0f} to {most * 1000:.0f} ms"
        statement = f"Response time of a frame, {statement}"
        yield _claim(f"{prefix}-{place}", measure.experiment, statement, published, measure, **more)


def _plate_claims() -> Iterator[Claim]:
    remote, local = (sum(times) / len(times) for times in TABLE_7.values())
    at, other = ({"server": place} for place in TABLE_7)
    statements = (f"server at {place}" for place in TABLE_7)
    yield from _frame_claims("plates", statements, (Measure("plates", _FRAMES, each) for each in (at, other)))
    statement, measure = "Response time of a frame, remote", Measure("plates", _FRAMES, at, other)
    factor, gap = remote / local, remote - local
    published, figure = f"{factor:.1f} times; text: threefold", (factor, factor)
    yield _claim("plates-gain", "plates", f"{statement} over local", published, measure, figure=figure)
    measure, figure = Measure("plates", _FRAMES, at, other, how=operator.sub), (gap, gap)
    published = f"{gap * 1000:.0f} ms"
    yield _claim("plates-saved", "plates", f"{statement} less local", published, measure, unit="time", figure=figure)


def _migration_claims() -> Iterator[Claim]:
    more: dict[str, Any]
    for size in (*TABLE_6, _HELD):
        key = size.replace(".", "")
        transfer, restore = TABLE_6.get(size, (0.0, 0.0))
        down = transfer + restore
        if down:
            statement = f"Transfer time of a container of {size}"
            measure = Measure("migration", "migration_transfer_s", {"move": f"stop-and-copy, {size}"})
            more = {"unit": "time", "figure": (transfer, transfer), "made": ("container sizes",)}
            published = f"{transfer:.2f} s"
            yield _claim(f"migration-transfer-{key}", "migration", statement, published, measure, **more)
        for strategy, like_theirs in _STRATEGIES:
            at, more = {"move": f"{strategy}, {size}"}, {"unit": "time"}
            statement, measure = f"Longest gap for {size} by {strategy}", Measure("migration", "migration_gap_s", at)
            yield _claim(f"migration-gap-{strategy}-{key}", "migration", statement, "–", measure, **more)
            if down and like_theirs:
                statement = f"Transfer and restore time for {size} by {strategy}"
                measure = Measure("migration", "migration_transfer_s", at, at, "migration_restore_s", operator.add)
                more |= {"figure": (down, down), "made": ("container sizes", "restore times")}
                yield _claim(f"migration-{key}", "migration", statement, f"{down:.1f} s", measure, **more)


def _reader_claims() -> Iterator[Claim]:
    for strategy in _READER_STRATEGIES:
        at, when = {"strategy": strategy}, ("before", "after")
        statements = (f"{each} the reader has moved by {strategy} (our median)" for each in when)
        measures = (Measure("reader", f"migration_{each}_s", at) for each in when)
        yield from _frame_claims(f"reader-{strategy}", statements, measures)
        statement, measure = f"Longest gap of the reader by {strategy}", Measure("reader", "migration_gap_s", at)
        yield _claim(f"reader-{strategy}-gap", "reader", statement, "–", measure, unit="time")


def _answer_loss(findings: Mapping[str, Finding], data: Data) -> str:
    reno, cubic, bbr = (findings[f"kept-{law}-0.1"].ours for law in _LAWS.values())
    return f"At a loss of 0.1 % New Reno keeps {reno} its throughput, CUBIC {cubic} and BBR {bbr}."


def _answer_files(findings: Mapping[str, Finding], data: Data) -> str:
    found = [findings[f"file-cubic-over-bbr-{size}"] for size in _SIZES_MB]
    factors = [each.ours for each in found if each.same != "not measured"]
    return f"Files take {' and '.join((factors[0], factors[-1]) if len(factors) > 1 else factors)} as long with CUBIC."


def _answer_plates(findings: Mapping[str, Finding], data: Data) -> str:
    remote, local = (findings[f"plates-{place}"].ours for place in ("open-ireland", "cosmos"))
    return f"A frame takes {remote} with the server at Open Ireland, and {local} nearby."


def _answer_moves(findings: Mapping[str, Finding], data: Data) -> str:
    found = {each: findings[f"migration-gap-{each}-20-gb"].ours for each, _ in _STRATEGIES[:2]}
    return f"While 2.0 GB move, users wait {', '.join(f'{value} with {name}' for name, value in found.items())}."


def _answer_mmwave(findings: Mapping[str, Finding], data: Data) -> str:
    limit, cubic = (findings[f"mmwave-mmcptp-over-{other}"].ours for other in ("limit", "cubic"))
    return f"mmCPTP carries {limit} the limit, and {cubic} what CUBIC does."


PUBLICATION = SweptPublication(
    name="cosmic",
    title="COSM-IC: transport protocols over a transatlantic link",
    citation="Choudhury et al., Remote Orchestration of NextG Services Across the Global Internet: An Experimental "
    "Study",
    scenario=_SCENARIO,
    short={},
    short_note="A short reproduction: one or two repetitions, transfers of 15 instead of 100 and 152 s, with a "
    "larger share of slow start, one loss and one file, frames of 6 instead of 30 s, a service of 0.2 GB, moved once.",
    roles=ROLES,
    experiments=tuple(replace(each, short={"repetitions": 2, **each.short}) for each in EXPERIMENTS),
    inputs=(
        Input("UDP rate", "2 Gbit/s, which sizes and times of Table II mean", True),
        Input("core queue", "1 MB before 10 Gbit/s; with 14 MB CUBIC needs no longer than BBR", True),
        Input("core link", "without other traffic: in virtual time there is no jitter", True, virtual=True),
        Input("container sizes", "Table VI, over 1 Gbit/s: the transfer is size over rate", True),
        Input("restore times", "Table VI", True, virtual=True),
        Input("dirty rate", "80 Mbit/s of memory change while pre-copy moves the reader", True, virtual=True),
    ),
    claims=(
        *(*_loss_claims(), *_file_claims(), *_mmwave_claims(), *_plate_claims(), *_migration_claims()),
        *_reader_claims(),
    ),
    answers=(
        Answer("Loss", "With 0.1 % of loss, TCP performs poorly over a high bandwidth-delay product.", _answer_loss),
        Answer("Files", "Slow start compromises the use of the link: responses take seconds.", _answer_files),
        Answer("Plates", "Nearby, the response time falls approximately threefold, below 100 ms.", _answer_plates),
        Answer("Migration", "Moving a container of 2 to 4.2 GB takes 29 to 55 s, once.", _answer_moves),
        Answer("mmWave", "mmCPTP comes close to the limit, with 5.6 times the bytes of CUBIC.", _answer_mmwave),
    ),
    differences=(
        "The paper limits the bandwidth of Table IV by tc without stating the value: 1 Gbit/s is ours, and so is the "
        "queue before it. The 10 Gbit/s of Table II are the paper's.",
        "Losses are independent, in both directions. The paper's link may lose packets without those that tc adds.",
        "Receive and send buffers of 512 MB, which hold the path's 140 MB, are ours; the paper states none.",
        "Response times are from TCP's handshake to a file's last byte; the paper does not define them.",
        "The mmWave link has no losses, and without a recording rates of ours, which change each second. Its queue, "
        "1000 packets, the default of tc and Click, and the 152 s are ours; the paper states none of them. The "
        "proxy holds 16 MiB, more than twice what 500 Mbit/s carry in 112 ms; with 8 MiB the link runs empty at times.",
        "Frames with plates (Table VII) are ours, of the paper's sizes, two each second over MQTT with CUBIC, whose "
        "window shrinks between them; the paper states neither. PP-OCRv4 reads them on one processor of this machine. "
        "The link delay of 3 ms is taken as a round trip, as is the paper's 112 ms.",
        "The round trips of Table I are inputs.",
        "The service that moves (Table VI) is ours: it takes frames of 176 kB, twice a second, and its memory does not "
        "change. In virtual time its size and restore times are the paper's, inputs without a verdict, of stop and "
        "copy alone; other times of programs are zero. The transport is BBR; the paper calls "
        "its own enhanced and states no more.",
        "The reader of Tables VI and VII from one run has BBR and 1 Gbit/s. In virtual time it has the paper's "
        "2.0 GB, restored in 8.67 s, and changes 80 Mbit/s of memory, a rate of ours; in real time it has 0.16 GB.",
    ),
)
