"""The packet log as pcapng (draft-ietf-opsawg-pcapng), for Wireshark and its relatives.

One interface for each direction and end: ``NAME in`` where packets enter, ``NAME out`` where they leave. The blocks are
laid out by columns, so that a log of millions of packets takes seconds.
"""

from __future__ import annotations

import struct
from typing import IO

import numpy as np
from numpy.typing import NDArray

from cellbed.measure.packetlog.families import Families
from cellbed.measure.packetlog.headers import Addresses, build, shapes
from cellbed.measure.packetlog.log import PacketLog, Records, reason
from cellbed.measure.packetlog.order import ENTERS, in_order

_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_RAW_IP = 101  # LINKTYPE_RAW
_COMMENT, _SHB_APPLICATION, _IF_NAME, _IF_DESCRIPTION, _IF_RESOLUTION, _EPB_IDENTIFIER = 1, 4, 2, 3, 9, 5
_NANOSECONDS = 9  # 10^-9 s
_TOGETHER = 1 << 14
"""Packets that are laid out at a time."""

Octets = NDArray[np.uint8]


def write_pcapng(log: PacketLog, file: IO[bytes], direction: int | None = None) -> None:
    """Write the log, packets in the order of time."""
    families = Families()
    used: set[int] = set()
    for records in log.chunks(direction):
        families.learn(records)
        used.update(np.unique(records["direction"]).tolist())
    addresses = Addresses(log)
    file.write(_section())
    wanted = sorted(used | (set(log.directions) if direction is None else {direction}))
    interface = np.zeros(max(wanted, default=0) + 1, np.int64)
    for number, index in enumerate(wanted):
        interface[index] = 2 * number
        for end in ("in", "out"):
            description = str(log.directions.get(index, {}).get("description", ""))
            file.write(_interface(f"{log.direction_name(index)} {end}", description))
    for events in in_order(log, direction=direction):
        # A drop has no way out: it is told where the packet entered.
        shown = (events.point == ENTERS) | (events.records["drop"] == 0)
        records, times = events.records[shown], events.time[shown]
        interfaces = interface[records["direction"]] + events.point[shown]
        for begin in range(0, len(records), _TOGETHER):
            part = slice(begin, begin + _TOGETHER)
            versions = families.versions(records[part])
            file.write(_packets(records[part], times[part], interfaces[part], versions, addresses))


def _packets(
    records: Records,
    times: NDArray[np.int64],
    interfaces: NDArray[np.int64],
    versions: NDArray[np.uint8],
    addresses: Addresses,
) -> bytes:
    """Enhanced packet blocks one after the other."""
    sizes = np.zeros(len(records), np.int64)
    groups: list[tuple[NDArray[np.int64], Octets]] = []
    for shape, members in shapes(records, versions):
        for drop in np.unique(records["drop"][members]).tolist():
            chosen = members[records["drop"][members] == drop]
            headers = build(shape, records[chosen], addresses)
            blocks = _blocks(records[chosen], times[chosen], interfaces[chosen], headers, drop)
            sizes[chosen] = blocks.shape[1]
            groups.append((chosen, blocks))
    ends = np.cumsum(sizes)
    # Blocks are whole words, which are a quarter as many as octets.
    output = np.empty(int(ends[-1]) // 4 if len(ends) else 0, np.uint32)
    for chosen, blocks in groups:
        words = blocks.view(np.uint32)
        output[((ends[chosen] - sizes[chosen]) // 4)[:, None] + np.arange(words.shape[1])] = words
    return output.tobytes()


def _blocks(
    records: Records, times: NDArray[np.int64], interfaces: NDArray[np.int64], headers: Octets, drop: int
) -> Octets:
    """Blocks of equal length: headers of one shape, and the same comment."""
    captured = headers.shape[1]
    comment = _option(_COMMENT, f"dropped: {reason(drop)}".encode()) if drop else b""
    block = np.dtype(
        [
            ("type", "<u4"),
            ("length", "<u4"),
            ("interface", "<u4"),
            ("time_high", "<u4"),
            ("time_low", "<u4"),
            ("captured", "<u4"),
            ("original", "<u4"),
            ("headers", "u1", (captured,)),
            ("padding", "u1", (-captured % 4,)),
            ("comment", "u1", (len(comment),)),
            ("identifier_option", "<u4"),
            ("identifier", "<u8"),
            ("end_of_options", "<u4"),
            ("length_again", "<u4"),
        ]
    )
    blocks = np.zeros(len(records), block)
    blocks["type"] = _PACKET
    blocks["length"] = blocks["length_again"] = block.itemsize
    blocks["interface"] = interfaces
    blocks["time_high"], blocks["time_low"] = times >> 32, times & 0xFFFFFFFF
    blocks["captured"], blocks["original"] = captured, records["bytes"]
    blocks["headers"] = headers
    blocks["comment"] = np.frombuffer(comment, np.uint8)
    # The same packet is seen at several interfaces; this says so.
    blocks["identifier_option"], blocks["identifier"] = 8 << 16 | _EPB_IDENTIFIER, records["packet"]
    return blocks.view(np.uint8).reshape(len(records), block.itemsize)


def _section() -> bytes:
    body = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
    return _block(_SECTION, body + _option(_SHB_APPLICATION, b"cellbed") + _option(0, b""))


def _interface(name: str, description: str) -> bytes:
    options = _option(_IF_NAME, name.encode()) + _option(_IF_RESOLUTION, bytes([_NANOSECONDS]))
    if description:
        options += _option(_IF_DESCRIPTION, description.encode())
    return _block(_INTERFACE, struct.pack("<HHI", _RAW_IP, 0, 0) + options + _option(0, b""))


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length
