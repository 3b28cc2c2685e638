"""The emulator's packet log: reading it, and one row per packet out of one record per packet and direction."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellbed.measure.run_folder import MeasureError
from cellbed_node import inputs

MAGIC = b"cellbed packets1"
TCP, UDP = 6, 17
MADE = 1 << 63
"""First number of packets that a proxy has made, which enter the network there."""
LARGEST = 8 << 30
"""Bytes of a file of records that the emulator writes at most (``LARGEST_FILE`` in its ``writer.rs``)."""
PART = 1 << 17
"""Records of a packet log that are read at a time (8 MiB)."""

RECORD = np.dtype(
    [
        ("packet", "<u8"),
        ("arrived", "<i8"),
        ("released", "<i8"),
        ("departed", "<i8"),
        ("observed", "<i8"),
        ("direction", "<u2"),
        ("drop", "u1"),
        ("protocol", "u1"),
        ("bytes", "<u4"),
        ("source_port", "<u2"),
        ("destination_port", "<u2"),
        ("tcp_sequence", "<u4"),
        ("payload", "<u4"),
        ("source_vertex", "<u2"),
        ("destination_vertex", "<u2"),
    ]
)
assert RECORD.itemsize == 64

Integers = NDArray[np.int64]


def read_records(path: Path, magic: bytes, record: np.dtype[Any]) -> NDArray[Any]:
    """Return the whole records of a binary log, mapped rather than loaded.

    A file that ends inside a record or before its first (a killed run) gives what is whole. Raises
    MeasureError when the file begins with something else than `magic`.
    """
    count = _whole_records(path, magic, record)
    if count <= 0:
        return np.empty(0, record)
    return np.memmap(path, dtype=record, mode="r", offset=len(magic), shape=(count,))


def _whole_records(path: Path, magic: bytes, record: np.dtype[Any]) -> int:
    try:
        with inputs.open_file(path) as file:
            begin, size = file.read(len(magic)), os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return 0
    if begin != magic[: len(begin)]:
        raise MeasureError(f"{path}: begins with {begin!r} where a log of this version begins with {magic!r}")
    if size > LARGEST:
        raise MeasureError(f"{path}: has {size} bytes, and cellbed writes {LARGEST} at most; the file is damaged")
    return max(0, size - len(magic)) // record.itemsize


def read_packets(path: Path) -> NDArray[Any]:
    """Return a packet log that is one file, an array of `RECORD`."""
    return read_records(path, MAGIC, RECORD)


def log_files(path: Path) -> list[tuple[int, Path]]:
    """Return the files of a packet log in their order, each with the number of its first record.

    There is one, unless the log keeps only its latest records: then the first number counts the removed records.
    """
    older = [(int(it.suffix[1:]), it) for it in path.parent.glob(f"{path.name}.*") if it.suffix[1:].isdecimal()]
    begin = 0
    if older:
        older.sort()
        begin, last = older[-1]
        begin += _whole_records(last, MAGIC, RECORD)
    return [*older, (begin, path)]


def removal_warning(path: Path) -> str | None:
    """Return the line of reports about a packet log without its oldest records; None if it has all."""
    removed = log_files(path)[0][0]
    if not removed:
        return None
    return (
        f"the packet log has only its latest records: {removed} older ones were removed to keep it within its size; "
        "requests and connections of that time lack packets"
    )


def packet_parts(path: Path) -> Iterator[NDArray[Any]]:
    """Return the packet log in its order, at most `PART` records at a time."""
    for _, each in log_files(path):
        count = _whole_records(each, MAGIC, RECORD)
        if count <= 0:
            continue
        with inputs.open_file(each) as file:
            file.seek(len(MAGIC))
            for begin in range(0, count, PART):
                yield np.fromfile(file, RECORD, min(PART, count - begin))


def read_service_packets(path: Path, service_ports: Collection[int]) -> NDArray[Any]:
    """Return the records of TCP and UDP packets to or from one of `service_ports`; of all others there is only a part
    in memory at a time."""
    kept = [part[_is_of_service(part, service_ports)] for part in packet_parts(path)]
    return np.concatenate([np.empty(0, RECORD), *kept])


def _is_of_service(log: NDArray[Any], service_ports: Collection[int]) -> NDArray[np.bool_]:
    ports = np.array(sorted(port for port in service_ports if 0 <= port < 1 << 16), np.uint16)
    found: NDArray[np.bool_] = np.isin(log["protocol"], (TCP, UDP))
    return found & (np.isin(log["source_port"], ports) | np.isin(log["destination_port"], ports))


@dataclass(frozen=True, slots=True)
class Crossings:
    """Packets that crossed the network, one entry each, in order of entry. Times in ns.

    entered: reached the first direction of its path; queued: in the bottlenecks of all its directions,
    service included; delayed: in the delay stages of all its directions; proxied: between its directions, in a proxy;
    left: when the emulator really handed it over at the end of its path; delivered: it came to that end; dropped: it
    did not, by the path model's decision. source, destination: vertex numbers. sequence: of TCP, else 0. doubled: the
    network made a copy of it. size: of the IP packet, bytes.
    """

    entered: Integers
    queued: Integers
    delayed: Integers
    proxied: Integers
    left: Integers
    delivered: NDArray[np.bool_]
    dropped: NDArray[np.bool_]
    source: NDArray[np.uint16]
    destination: NDArray[np.uint16]
    source_port: NDArray[np.uint16]
    destination_port: NDArray[np.uint16]
    sequence: NDArray[np.uint32]
    payload: Integers
    protocol: NDArray[np.uint8]
    doubled: NDArray[np.bool_]
    size: Integers
    vertices: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.entered)


Places = NDArray[np.uint32]
"""The ends (vertex << 16 | port) of services whose connections have moved, each with its first one."""


def places(description: dict[str, Any]) -> Places:
    """Return the ends of the services of a run that have moved. description: the content of ``run.json``."""
    number = {str(node["name"]): vertex for vertex, node in enumerate(description.get("nodes") or [])}
    homes: dict[int, int] = {}
    for move in description.get("migrations") or []:
        if move["source"] in number and move["target"] in number:
            for port in move.get("ports") or []:
                source, target = (number[move[end]] << 16 | port for end in ("source", "target"))
                homes[target] = homes.get(source, source)
    return np.array(sorted(homes.items()), np.uint32).reshape(-1, 2)


def home(moved: Places, vertex: NDArray[np.uint16], port: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Return the vertices of ends, of a service that has moved the first one: so its connections are one each."""
    if not len(moved):
        return vertex
    end = vertex.astype(np.uint32) << np.uint32(16) | port
    place = np.minimum(np.searchsorted(moved[:, 0], end), len(moved) - 1)
    return np.where(moved[place, 0] == end, moved[place, 1] >> 16, vertex).astype(np.uint16)


def _first_copies(hops: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return one record per packet and direction, in the order of the log, and the packets that were doubled: of these
    the copy that got on.

    That is the first that was not dropped, for the receiver has done with the packet when the first copy is there.
    """
    order = np.lexsort((hops["drop"] != 0, hops["direction"], hops["packet"]))
    packet, direction = hops["packet"][order], hops["direction"][order]
    again = (packet[1:] == packet[:-1]) & (direction[1:] == direction[:-1])
    if not again.any():
        return hops, packet[:0]
    return hops[np.sort(order[np.r_[True, ~again]])], packet[1:][again]


def crossings(
    log: NDArray[Any],
    directions: list[dict[str, Any]],
    service_ports: Collection[int] | None = None,
    nodes: Sequence[str] = (),
) -> Crossings:
    """One row per packet of `log`; with `service_ports` only of the TCP and UDP packets to or from one of them.

    directions: as in ``run.json`` (``index``, ``from``, ``to``). nodes: names of the vertices, in their order; a node
    that is not among them is known only if it sends packets.
    """
    copies = np.asarray(log if service_ports is None else log[_is_of_service(log, service_ports)])
    hops, doubled = _first_copies(copies)
    # A packet's records come in the order of its hops, because each is written when the packet leaves that
    # hop: a stable sort by packet keeps it.
    hops = hops[np.argsort(hops["packet"], kind="stable")]
    packet = hops["packet"]
    first = np.flatnonzero(np.r_[True, packet[1:] != packet[:-1]]) if len(hops) else np.empty(0, np.int64)
    begins = {int(d["index"]): str(d["from"]) for d in directions}
    ends = {int(d["index"]): str(d["to"]) for d in directions}
    if nodes:
        # The log's oldest records may have been removed, and with them the first hops of a packet.
        at = {name: vertex for vertex, name in enumerate(nodes)}
        entry_of = np.array([at.get(begins.get(each, ""), -1) for each in range(1 + max(begins, default=0))])
        entered = np.isin(packet, packet[first][entry_of[hops[first]["direction"]] == hops[first]["source_vertex"]])
        entered |= packet >= MADE
        hops, packet = hops[entered], packet[entered]
        first = np.flatnonzero(np.r_[True, packet[1:] != packet[:-1]]) if len(hops) else np.empty(0, np.int64)
    last = np.r_[first[1:], len(hops)][: len(first)] - 1
    head, tail = hops[first], hops[last]
    # Vertices are numbers in the log and names in run.json; a packet's first direction begins at its source.
    own = head[head["packet"] < MADE]
    pairs = np.unique(own["source_vertex"].astype(np.int64) << 16 | own["direction"])
    vertices = {int(pair >> 16): begins[int(pair & 0xFFFF)] for pair in pairs if int(pair & 0xFFFF) in begins}
    vertices |= dict(enumerate(nodes))
    number = {name: vertex for vertex, name in vertices.items()}
    end_of = np.full(1 + max(ends, default=0), -1, np.int64)
    for direction, name in ends.items():
        end_of[direction] = number.get(name, -1)
    delivered = (tail["drop"] == 0) & (end_of[tail["direction"]] == tail["destination_vertex"])

    def total(later: str, earlier: str) -> Integers:
        spent = hops[later] - hops[earlier]
        return np.add.reduceat(spent, first) if len(first) else np.empty(0, np.int64)

    queued, delayed = total("released", "arrived"), total("departed", "released")
    order = np.argsort(head["arrived"], kind="stable")
    return Crossings(
        entered=head["arrived"][order].astype(np.int64),
        queued=queued[order],
        delayed=delayed[order],
        proxied=(tail["departed"] - head["arrived"] - queued - delayed)[order],
        left=tail["observed"][order].astype(np.int64),
        delivered=delivered[order],
        dropped=(tail["drop"] != 0)[order],
        source=head["source_vertex"][order],
        destination=head["destination_vertex"][order],
        source_port=head["source_port"][order],
        destination_port=head["destination_port"][order],
        sequence=head["tcp_sequence"][order],
        payload=head["payload"][order].astype(np.int64),
        protocol=head["protocol"][order],
        doubled=np.isin(head["packet"], doubled)[order],
        size=head["bytes"][order].astype(np.int64),
        vertices=vertices,
    )
