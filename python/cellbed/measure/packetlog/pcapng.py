"""The packet log as pcapng (draft-ietf-opsawg-pcapng), for Wireshark and its relatives.

One interface for each direction and end: ``NAME in`` where packets enter, ``NAME out`` where they leave. The blocks are
laid out by columns, so that a log of millions of packets takes seconds.

The log contains no IP versions: the lengths of headers, bytes − payload, give them. Beside the transport's 8 bytes UDP
leaves 20 or 40. TCP has options, so the two versions overlap for single packets (an IPv4 SYN has 60 bytes, an IPv6
segment without options too); but every connection has packets whose options are small, and 60 bytes is the least that
IPv6 and TCP need.

Headers are rebuilt (RFC 791, 8200, 768, 9293). What the log does not contain is left at a value that claims nothing: no
TCP flags, acknowledgement number 0, the largest window, checksums of UDP and TCP 0; TCP options have their right
length, as no-operations.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import IO

import numpy as np
from numpy.typing import NDArray

from cellbed.measure.packetlog.log import ENTERS, PacketLog, Records, in_order, reason

TCP, UDP, ICMPV6 = 6, 17, 58
LEAST_TCP_OVER_IPV6 = 60


class Families:
    """The IP version of every packet of a log. Let it `learn` all chunks, then ask for `versions`."""

    def __init__(self) -> None:
        self._extremes: dict[int, tuple[int, int]] = {}

    def learn(self, records: Records) -> None:
        """Note the shortest and the longest headers of each TCP connection."""
        tcp = records[records["protocol"] == TCP]
        keys, place = np.unique(_connections(tcp), return_inverse=True)
        headers = tcp["bytes"].astype(np.int64) - tcp["payload"]
        least, most = np.full(len(keys), 1 << 32), np.zeros(len(keys), np.int64)
        np.minimum.at(least, place, headers)
        # Any packet with payload shows it: only connections that were never established are guessed.
        np.maximum.at(most, place, np.where(tcp["payload"] > 0, 1 << 32, headers))
        for key, low, high in zip(keys.tolist(), least.tolist(), most.tolist(), strict=True):
            before = self._extremes.get(key, (low, high))
            self._extremes[key] = min(before[0], low), max(before[1], high)

    def versions(self, records: Records) -> NDArray[np.uint8]:
        """4 or 6 for each packet."""
        headers = records["bytes"].astype(np.int64) - records["payload"]
        transport = np.where(np.isin(records["protocol"], (UDP, ICMPV6)), 8, 0)
        six = headers - transport >= 40
        tcp = records["protocol"] == TCP
        keys, place = np.unique(_connections(records[tcp]), return_inverse=True)
        six[tcp] = np.array([self._is_ipv6(key) for key in keys.tolist()], np.bool_)[place]
        six |= records["protocol"] == ICMPV6
        six &= headers >= 40
        return np.where(six, 6, 4).astype(np.uint8)

    def _is_ipv6(self, connection: int) -> bool:
        least, most = self._extremes.get(connection, (0, 0))
        # SYNs of Linux over IPv4 have exactly 60 bytes of headers; if there are only SYNs, there was no answer.
        return least >= LEAST_TCP_OVER_IPV6 and most != LEAST_TCP_OVER_IPV6


def _connections(tcp: Records) -> NDArray[np.uint64]:
    """Return a number for each packet's connection, the same in both of its directions."""
    one = tcp["source_vertex"].astype(np.uint64) << np.uint64(16) | tcp["source_port"]
    other = tcp["destination_vertex"].astype(np.uint64) << np.uint64(16) | tcp["destination_port"]
    connections: NDArray[np.uint64] = np.minimum(one, other) << np.uint64(32) | np.maximum(one, other)
    return connections


HOPS = 64
NO_OPERATION = 1
_FIXED = {4: 20, 6: 40}

Octets = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Shape:
    """A common layout of packets whose headers are built together.

    version: 4 or 6. protocol: IANA number. network, transport: bytes of the two headers that are rebuilt.
    """

    version: int
    protocol: int
    network: int
    transport: int

    @property
    def captured(self) -> int:
        """Bytes of headers."""
        return self.network + self.transport


def shapes(records: Records, versions: NDArray[np.uint8]) -> Iterator[tuple[Shape, NDArray[np.int64]]]:
    """Return the shapes of some packets, with the indices of those that have each."""
    protocol = records["protocol"].astype(np.int64)
    headers = records["bytes"].astype(np.int64) - records["payload"]
    network = np.where(versions == 6, _FIXED[6], _FIXED[4])
    transport = headers - network
    # Without ports it is no first fragment; with other lengths there are IP options or extension headers in between,
    # of which nothing is known. Then the packet ends, as captured, behind the fixed IP header.
    has_ports = (records["source_port"] != 0) | (records["destination_port"] != 0)
    tcp = (protocol == TCP) & (transport >= 20) & (transport <= 60) & (transport % 4 == 0)
    udp = (protocol == UDP) & (transport == 8)
    transport = np.where(has_ports & (tcp | udp), transport, 0)
    network = np.minimum(network, records["bytes"])
    key = (versions.astype(np.int64) << 24) | (protocol << 16) | (network << 8) | transport
    for value in np.unique(key).tolist():
        shape = Shape(value >> 24, value >> 16 & 0xFF, value >> 8 & 0xFF, value & 0xFF)
        yield shape, np.flatnonzero(key == value)


class Addresses:
    """Addresses of the vertices of a log: those of its run, else of 198.18.0.0/15 and 2001:db8::/32."""

    def __init__(self, log: PacketLog) -> None:
        self._known: dict[tuple[int, int], bytes] = {}
        for number, node in enumerate((log.run or {}).get("nodes") or []):
            for text in node.get("addresses") or []:
                address = ip_address(text)
                self._known[address.version, number] = address.packed

    def of(self, version: int, vertices: NDArray[np.uint16]) -> Octets:
        """One row of octets for each vertex."""
        numbers, place = np.unique(vertices, return_inverse=True)
        rows = [self._known.get((version, number)) or _made_up(version, number) for number in numbers.tolist()]
        table = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), _ADDRESS[version])
        return table[place]


_ADDRESS = {4: 4, 6: 16}


def _made_up(version: int, number: int) -> bytes:
    if version == 4:
        return (IPv4Address("198.18.0.0") + number).packed
    return (IPv6Address("2001:db8::") + number).packed


def build(shape: Shape, records: Records, addresses: Addresses) -> Octets:
    """Return the headers of packets of one shape, a row of ``shape.captured`` octets for each."""
    fixed = _FIXED[shape.version]
    rows = np.zeros((len(records), fixed + shape.transport), np.uint8)
    (_ipv4 if shape.version == 4 else _ipv6)(rows, shape, records, addresses)
    if shape.transport:
        _put(rows, fixed, records["source_port"], 2)
        _put(rows, fixed + 2, records["destination_port"], 2)
    if shape.protocol == UDP and shape.transport:
        _put(rows, fixed + 4, np.minimum(records["payload"].astype(np.int64) + 8, 0xFFFF), 2)
    if shape.protocol == TCP and shape.transport:
        _put(rows, fixed + 4, records["tcp_sequence"], 4)
        rows[:, fixed + 12] = shape.transport // 4 << 4
        _put(rows, fixed + 14, np.full(len(records), 0xFFFF), 2)
        rows[:, fixed + 20 :] = NO_OPERATION
    # A packet that is shorter than its header was cut: of it only that much can be given.
    return rows[:, : shape.captured]


def _ipv4(rows: Octets, shape: Shape, records: Records, addresses: Addresses) -> None:
    rows[:, 0] = 4 << 4 | 5
    _put(rows, 2, np.minimum(records["bytes"], 0xFFFF), 2)
    _put(rows, 4, records["packet"] & np.uint64(0xFFFF), 2)
    rows[:, 8] = HOPS
    rows[:, 9] = shape.protocol
    rows[:, 12:16] = addresses.of(4, records["source_vertex"])
    rows[:, 16:20] = addresses.of(4, records["destination_vertex"])
    words = rows[:, :20:2].astype(np.int64) << 8 | rows[:, 1:20:2]
    total = words.sum(axis=1)
    for _ in range(2):
        total = (total & 0xFFFF) + (total >> 16)
    _put(rows, 10, ~total & 0xFFFF, 2)


def _ipv6(rows: Octets, shape: Shape, records: Records, addresses: Addresses) -> None:
    rows[:, 0] = 6 << 4
    _put(rows, 4, np.clip(records["bytes"].astype(np.int64) - 40, 0, 0xFFFF), 2)
    rows[:, 6] = shape.protocol
    rows[:, 7] = HOPS
    rows[:, 8:24] = addresses.of(6, records["source_vertex"])
    rows[:, 24:40] = addresses.of(6, records["destination_vertex"])


def _put(rows: Octets, at: int, values: NDArray[np.integer], width: int) -> None:
    """Write integers in network byte order."""
    wide = values.astype(np.int64)
    for octet in range(width):
        rows[:, at + octet] = wide >> 8 * (width - 1 - octet) & 0xFF


_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_RAW_IP = 101  # LINKTYPE_RAW
_COMMENT, _SHB_APPLICATION, _IF_NAME, _IF_DESCRIPTION, _IF_RESOLUTION, _EPB_IDENTIFIER = 1, 4, 2, 3, 9, 5
_NANOSECONDS = 9  # 10^-9 s
_TOGETHER = 1 << 14
"""Packets that are laid out at a time."""


def write_pcapng(log: PacketLog, file: IO[bytes], direction: int | None = None) -> None:
    """Write the log, packets in the order of time."""
    families = Families()
    used: set[int] = set()
    for records in log.chunks(direction):
        families.learn(records)
        used.update(np.unique(records["direction"]).tolist())
    addresses = Addresses(log)
    file.write(section())
    wanted = sorted(used | (set(log.directions) if direction is None else {direction}))
    numbers = np.zeros(max(wanted, default=0) + 1, np.int64)
    for number, index in enumerate(wanted):
        numbers[index] = 2 * number
        for end in ("in", "out"):
            description = str(log.directions.get(index, {}).get("description", ""))
            file.write(interface(f"{log.direction_name(index)} {end}", description))
    for events in in_order(log, direction=direction):
        # A drop has no departure: it is noted where the packet entered.
        shown = (events.point == ENTERS) | (events.records["drop"] == 0)
        records, times = events.records[shown], events.time[shown]
        interfaces = numbers[records["direction"]] + events.point[shown]
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


def section() -> bytes:
    """Return the block with which a file begins."""
    body = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
    return _block(_SECTION, body + _option(_SHB_APPLICATION, b"cellbed") + _option(0, b""))


def interface(name: str, description: str = "") -> bytes:
    """Return the block that describes the next interface, with raw IP packets and times in ns."""
    options = _option(_IF_NAME, name.encode()) + _option(_IF_RESOLUTION, bytes([_NANOSECONDS]))
    if description:
        options += _option(_IF_DESCRIPTION, description.encode())
    return _block(_INTERFACE, struct.pack("<HHI", _RAW_IP, 0, 0) + options + _option(0, b""))


def packet(number: int, time_ns: int, captured: bytes, length: int) -> bytes:
    """Return the block of one packet at the interface of this number. captured: its first bytes; length: its own."""
    head = struct.pack("<IIIII", number, time_ns >> 32, time_ns & 0xFFFFFFFF, len(captured), length)
    return _block(_PACKET, head + captured + bytes(-len(captured) % 4))


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length
