"""The packet log as pcapng (draft-ietf-opsawg-pcapng), for Wireshark and its relatives.

One interface for each direction and end: ``NAME in`` where packets enter, ``NAME out`` where they leave.

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
from collections import namedtuple
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from cellbed.measure.packetlog.log import ENTERS, PacketLog, Records, in_order, reason
from cellbed.measure.packets import RECORD

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


_Record = namedtuple("_Record", RECORD.names or ())  # type: ignore[misc]
_HOPS = 64
_NO_OPERATION = b"\x01"
_FIXED = {4: 20, 6: 40}
_MADE_UP: dict[int, IPv4Address | IPv6Address] = {4: IPv4Address("198.18.0.0"), 6: IPv6Address("2001:db8::")}


class _Addresses(dict[tuple[int, int], bytes]):
    """Addresses of IP versions and vertices: those of a run's nodes, else of 198.18.0.0/15 and 2001:db8::/32."""

    def __init__(self, log: PacketLog) -> None:
        super().__init__()
        for number, node in enumerate((log.run or {}).get("nodes") or []):
            for text in node.get("addresses") or []:
                address = ip_address(text)
                self[address.version, number] = address.packed

    def __missing__(self, key: tuple[int, int]) -> bytes:
        version, vertex = key
        self[key] = (_MADE_UP[version] + vertex).packed
        return self[key]


def _headers(record: Any, version: int, addresses: _Addresses) -> bytes:
    """Return the headers of a packet.

    A packet ends, as captured, behind the fixed IP header where it has no ports, and so is no first fragment, or other
    lengths: then there are IP options or extension headers in between, of which nothing is known.
    """
    ends = addresses[version, record.source_vertex], addresses[version, record.destination_vertex]
    if version == 4:
        total, number = min(record.bytes, 0xFFFF), record.packet & 0xFFFF
        fields = (0x45, 0, total, number, 0, _HOPS, record.protocol)
        without = struct.pack("!BBHHHBBH4s4s", *fields, 0, *ends)
        summed = sum(struct.unpack("!10H", without))
        summed = (summed & 0xFFFF) + (summed >> 16)
        headers = struct.pack("!BBHHHBBH4s4s", *fields, ~((summed & 0xFFFF) + (summed >> 16)) & 0xFFFF, *ends)
    else:
        length = min(max(record.bytes - 40, 0), 0xFFFF)
        headers = struct.pack("!IHBB16s16s", 6 << 28, length, record.protocol, _HOPS, *ends)
    ports, transport = (record.source_port, record.destination_port), record.bytes - record.payload - _FIXED[version]
    if any(ports) and record.protocol == UDP and transport == 8:
        headers += struct.pack("!HHHH", *ports, min(record.payload + 8, 0xFFFF), 0)
    elif any(ports) and record.protocol == TCP and transport in range(20, 61, 4):
        headers += struct.pack("!HHIIBBHI", *ports, record.tcp_sequence, 0, transport // 4 << 4, 0, 0xFFFF, 0)
        headers += _NO_OPERATION * (transport - 20)
    # Of a packet that was cut only that much can be given.
    return headers[: record.bytes]


_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_RAW_IP = 101  # LINKTYPE_RAW
_COMMENT, _SHB_APPLICATION, _IF_NAME, _IF_DESCRIPTION, _IF_RESOLUTION, _EPB_IDENTIFIER = 1, 4, 2, 3, 9, 5
_NANOSECONDS = 9  # 10^-9 s


def write_pcapng(log: PacketLog, file: IO[bytes], direction: int | None = None) -> None:
    """Write the log, packets in the order of time."""
    families = Families()
    used: set[int] = set()
    for records in log.chunks(direction):
        families.learn(records)
        used.update(np.unique(records["direction"]).tolist())
    addresses = _Addresses(log)
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
        records = events.records[shown]
        interfaces = numbers[records["direction"]] + events.point[shown]
        columns = (events.time[shown], interfaces, families.versions(records))
        for fields, time, number, version in zip(records.tolist(), *(each.tolist() for each in columns), strict=True):
            record: Any = _Record(*fields)
            # The same packet is seen at several interfaces; its identifier says so.
            options = struct.pack("<HHQI", _EPB_IDENTIFIER, 8, record.packet, 0)
            if record.drop:
                options = _option(_COMMENT, f"dropped: {reason(record.drop)}".encode()) + options
            file.write(packet(number, time, _headers(record, version, addresses), record.bytes, options))


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


def packet(number: int, time_ns: int, captured: bytes, length: int, options: bytes = b"") -> bytes:
    """Return the block of one packet at the interface of this number. captured: its first bytes; length: its own."""
    head = struct.pack("<IIIII", number, time_ns >> 32, time_ns & 0xFFFFFFFF, len(captured), length)
    return _block(_PACKET, head + captured + bytes(-len(captured) % 4) + options)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length
