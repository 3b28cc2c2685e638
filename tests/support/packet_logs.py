"""Packet logs written by hand, and their connections; lateness in the logs of runs."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cellbed.measure.connections import read_connections
from cellbed.measure.packets import MAGIC, RECORD, crossings, read_packets
from cellbed.measure.streams import NEVER, Streams
from cellbed.runformat.description import Description

MS = 1_000_000
DIRECTIONS = [
    {"index": 0, "from": "phone-0", "to": "tower"},
    {"index": 1, "from": "tower", "to": "phone-0"},
    {"index": 2, "from": "tower", "to": "edge-0"},
    {"index": 3, "from": "edge-0", "to": "tower"},
]
NODES = [{"name": "phone-0"}, {"name": "edge-0"}]


def lateness_s(run: Path) -> float:
    """Return by how much packets of a run left the emulator late, 99th percentile, seconds: much on a busy machine."""
    log = read_packets(run / "raw" / "packets.bin")
    log = log[log["drop"] == 0]
    return float(np.percentile(log["observed"].astype("i8") - log["departed"].astype("i8"), 99)) / 1e9


class Log:
    """A packet log written by hand, times in ms: phone-0 is vertex 0, edge-0 vertex 1; each way delays for 10 ms."""

    def __init__(self, port: int = 40_000, protocol: int = 6) -> None:
        self.ports, self.protocol = (port, 80), protocol
        self.records: list[tuple[int, ...]] = []

    def up(self, at: float, sequence: int, payload: int, *, queue: float = 0, drop: int = 0) -> None:
        self._pass((0, 2), (0, 1), self.ports, at, sequence, payload, queue, drop)

    def down(self, at: float, sequence: int, payload: int, *, queue: float = 0, drop: int = 0) -> None:
        self._pass((3, 1), (1, 0), self.ports[::-1], at, sequence, payload, queue, drop)

    def _pass(self, path: Any, ends: Any, ports: Any, at: float, sequence: int, payload: int, *rest: Any) -> None:
        (queue, drop), now = rest, round(at * MS)
        packet = len(self.records)
        for direction, wait, delay in zip(path, (queue, 0), (4, 6), strict=True):
            released = now + round(wait * MS)
            departed = released if drop else released + delay * MS
            tcp = (*ports, sequence % 2**32, payload, *ends)
            times = (now, released, departed, departed)
            self.records.append((packet, *times, direction, drop, self.protocol, payload + 52, *tcp))
            if drop:
                return
            now = departed


def as_array(*logs: Log) -> np.ndarray[Any, Any]:
    """Return the packets of all logs as one log."""
    records = [(record[0] + 100_000 * number, *record[1:]) for number, log in enumerate(logs) for record in log.records]
    whole = np.array(records, RECORD) if records else np.empty(0, RECORD)
    return whole[np.argsort(whole["departed"], kind="stable")]


class Stream:
    """A stream of `streams` by its number: `entry`, `completion`, `busy_since` and `pauses` of its bytes."""

    def __init__(self, streams: Streams, number: int) -> None:
        self._streams, self._number, self.opened = streams, number, int(streams.opened[number])

    def __getattr__(self, name: str) -> Callable[..., np.ndarray[Any, Any]]:
        look = getattr(self._streams, name)
        return lambda *offsets: look(np.full(len(offsets[0]), self._number), *offsets)


def streams_between(streams: Streams, node: str, port: int, other_port: int, *, towards: bool = False) -> list[Stream]:
    """Return the streams from a port of a node, or to it (`towards`), in order of opening."""
    latest, found = 1 << 62, list[Stream]()
    while latest:
        ends = {"node": [node], "port": [port], "other_port": [other_port], "moment": [latest]}
        (number,) = streams.find(pl.DataFrame(ends), {}, towards=towards).tolist()
        if number == NEVER:
            break
        found.insert(0, Stream(streams, number))
        latest = max(-1, found[0].opened - 1) if found[0].opened != NEVER else 0
    return found


def streams(*logs: Log) -> Streams:
    return Streams(crossings(as_array(*logs), {"directions": DIRECTIONS, "nodes": NODES}))


def read(folder: Path, *logs: Log, t0: int = 0, **description: Any) -> pl.DataFrame:
    (folder / "raw").mkdir(exist_ok=True)
    (folder / "raw" / "packets.bin").write_bytes(MAGIC + as_array(*logs).tobytes())
    run = {"t0_ns": t0, "directions": DIRECTIONS, "nodes": NODES, "applications": [application("web", ["phone-0"], [])]}
    return read_connections(folder, run | description)


def fetch(log: Log | None = None, at: float = 0) -> Log:
    """A handshake, a request of 100 bytes, 5 ms of thought, a reply of two segments, the second queues for 3 ms."""
    log = log or Log()
    log.up(at, 1000, 0)
    log.down(at + 10, 500, 0, queue=1)
    log.up(at + 21, 1001, 0)
    log.up(at + 23, 1001, 100, queue=2)
    log.down(at + 35, 501, 0)
    log.down(at + 40, 501, 1000)
    log.down(at + 41, 1501, 1000, queue=3)
    log.up(at + 54, 1101, 0)
    return log


def application(name: str, clients: Sequence[str], servers: Sequence[str], ports: Sequence[int] = ()) -> dict[str, Any]:
    described = Description("program", name, (), {}, {}, (), (), (), name, tuple(clients), tuple(servers))
    return asdict(described) | {"ports": list(ports)}
