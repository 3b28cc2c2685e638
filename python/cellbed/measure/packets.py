"""The emulator's packet log: reads records, one per packet and direction, and joins them to one row per packet."""

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellbed._core import PacketGroups
from cellbed.measure.run_folder import MeasureError
from cellbed_node import inputs

MAGIC = b"cellbed packets1"
TCP, UDP = 6, 17
LARGEST = 8 << 30
"""Maximum bytes of a file of records that the emulator writes (``LARGEST_FILE`` in its ``writer.rs``)."""
PART = 1 << 17
"""Maximum number of records of a packet log read at a time (8 MiB)."""

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
_ALWAYS = -(2**63)


def read_records(path: Path, magic: bytes, record: np.dtype[Any]) -> NDArray[Any]:
    """Return the complete records of a binary log, mapped rather than loaded.

    A file of a killed run may end inside a record; only complete records are returned. Raises MeasureError if the file
    does not begin with `magic`.
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
    """Return a packet log in a single file, an array of `RECORD`."""
    return read_records(path, MAGIC, RECORD)


def log_files(path: Path) -> list[tuple[int, Path]]:
    """Return the files of a packet log in order, each with the number of its first record.

    There is one file, unless the log keeps only its latest records: then the first number counts the removed records,
    and the last file is missing if it has no records.
    """
    older = [(int(it.suffix[1:]), it) for it in path.parent.glob(f"{path.name}.*") if it.suffix[1:].isdecimal()]
    begin = 0
    if older:
        older.sort()
        begin, last = older[-1]
        begin += _whole_records(last, MAGIC, RECORD)
        if not _whole_records(path, MAGIC, RECORD):
            return older  # the emulator was killed before the first record of this file
    return [*older, (begin, path)]


def removal_warning(path: Path) -> str | None:
    """Return the report's line about a packet log without its oldest records; None if all records are there."""
    removed = log_files(path)[0][0]
    if not removed:
        return None
    return (
        f"the packet log has only its latest records: {removed} older ones were removed to keep it within its size; "
        "requests and connections of that time lack packets, and so do later requests on connections opened then"
    )


def shorten_log(path: Path, most: int) -> None:
    """Remove the oldest records of a finished packet log in a single file, which then has at most `most` bytes."""
    count = _whole_records(path, MAGIC, RECORD)
    removed = count - max(0, most - 2 * len(MAGIC)) // RECORD.itemsize
    if removed <= 0:
        return
    with inputs.open_file(path) as file, path.with_name(f"{path.name}.{removed}").open("wb") as kept:
        kept.write(MAGIC)
        file.seek(len(MAGIC) + removed * RECORD.itemsize)
        shutil.copyfileobj(file, kept, PART)
    path.write_bytes(MAGIC)


def packet_parts(path: Path) -> Iterator[NDArray[Any]]:
    """Yield the packet log in order, at most `PART` records at a time."""
    for _, each in log_files(path):
        yield from record_parts(each, MAGIC, RECORD)


def record_parts(path: Path, magic: bytes, record: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    """Yield the records that :func:`read_records` returns, at most `PART` at a time."""
    count = _whole_records(path, magic, record)
    if count <= 0:
        return
    with inputs.open_file(path) as file:
        file.seek(len(magic))
        for begin in range(0, count, PART):
            yield np.fromfile(file, record, min(PART, count - begin))


def read_service_packets(path: Path, service_ports: Collection[int]) -> NDArray[Any]:
    """Return the records of TCP and UDP packets to or from one of `service_ports`. Memory holds only a part of the
    other packets at a time."""
    kept = [part[_is_of_service(part, service_ports)] for part in packet_parts(path)]
    return np.concatenate([np.empty(0, RECORD), *kept])


def _is_of_service(log: NDArray[Any], service_ports: Collection[int]) -> NDArray[np.bool_]:
    ports = np.array(sorted(port for port in service_ports if 0 <= port < 1 << 16), np.uint16)
    found: NDArray[np.bool_] = np.isin(log["protocol"], (TCP, UDP))
    return found & (np.isin(log["source_port"], ports) | np.isin(log["destination_port"], ports))


@dataclass(frozen=True, slots=True)
class Crossings:
    """Packets that crossed the network, one entry each, in order of entry. Times in ns.

    entered: reached the first direction of its path; queued: time in the bottlenecks of all its directions, including
    service; delayed: time in the delay stages of all its directions; proxied: time in a proxy between its directions;
    left: when the emulator really handed the packet over at the end of its path; delivered: whether it reached that
    end; dropped: whether the path model dropped it. source, destination: vertex numbers. sequence: for TCP, else 0.
    doubled: whether the network duplicated it. size: IP length, bytes. key: number of the connection, equal for both
    ways, also after its service has moved.
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
    key: NDArray[np.uint64]
    vertices: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.entered)

    def take(self, rows: Integers) -> "Crossings":
        """Return the packets with these numbers."""
        values = {name: getattr(self, name) for name in Crossings.__slots__}
        return Crossings(**{name: value if name == "vertices" else value[rows] for name, value in values.items()})


Places = NDArray[np.uint32]
"""The ends (vertex << 16 | port) of services whose connections have moved, each with the first end."""


def places(description: dict[str, Any]) -> Places:
    """Return the ends of a run's services that have moved. description: the content of ``run.json``."""
    number = {str(node["name"]): vertex for vertex, node in enumerate(description.get("nodes") or [])}
    homes: dict[int, int] = {}
    for move in description.get("migrations") or []:
        if move["source"] in number and move["target"] in number:
            for port in move.get("ports") or []:
                source, target = (number[move[end]] << 16 | port for end in ("source", "target"))
                homes[target] = homes.get(source, source)
    return np.array(sorted(homes.items()), np.uint32).reshape(-1, 2)


def home(moved: Places, vertex: NDArray[np.uint16], port: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Return the vertices of ends; a moved service keeps its first vertex, so that each connection stays one."""
    if not len(moved):
        return vertex
    end = vertex.astype(np.uint32) << np.uint32(16) | port
    place = np.minimum(np.searchsorted(moved[:, 0], end), len(moved) - 1)
    return np.where(moved[place, 0] == end, moved[place, 1] >> 16, vertex).astype(np.uint16)


def make_groups(description: dict[str, Any], since_ns: int = -1) -> PacketGroups:
    """Return groups without packets for connections with a packet since a time, ns. description: the content of
    ``run.json``."""
    at = {str(node["name"]): vertex for vertex, node in enumerate(description.get("nodes") or [])}
    described = {int(each["index"]): each for each in description.get("directions") or []}
    known = [described.get(index, {}) for index in range(1 + min(max(described, default=0), 0xFFFF))]
    t0 = description.get("t0_ns") or 0
    joined = [[(_ALWAYS, each), *((t0 + it["at_ns"], it) for it in each.get("moves") or [])] for each in known]
    directions = [
        [(since, at.get(str(ends.get("from")), -1), at.get(str(ends.get("to")), -1)) for since, ends in its]
        for its in joined
    ]
    moved = [(end, first >> 16) for end, first in places(description).tolist()]
    towers = [at[str(node["name"])] for node in description.get("nodes") or [] if node.get("class") == "tower"]
    return PacketGroups(moved, directions, towers, since_ns)


def crossings(log: NDArray[Any], description: dict[str, Any]) -> Crossings:
    """Return one row per packet of TCP and UDP in `log`. description: the content of ``run.json``."""
    groups = make_groups(description)
    groups.count(log.view(np.uint8))
    count = groups.divide(1 << 62)
    groups.collect(log.view(np.uint8), 0, count)
    return join_group(groups, 0, description)


def join_group(groups: PacketGroups, number: int, description: dict[str, Any]) -> Crossings:
    """Return the packets of a group, whose records are collected. description: the content of ``run.json``."""
    nodes = description.get("nodes") or []
    return Crossings(**groups.join(number), vertices={vertex: str(each["name"]) for vertex, each in enumerate(nodes)})
