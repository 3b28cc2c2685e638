"""Rebuilt packet headers: what the log knows in the form that packets have (RFC 791, 8200, 768, 9293).

What it does not know is left at a value that claims nothing: no TCP flags, acknowledgement number 0, the largest
window, checksums of UDP and TCP 0; TCP options are there with their right length, as no-operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

import numpy as np
from numpy.typing import NDArray

from cellbed.measure.packetlog.families import TCP, UDP
from cellbed.measure.packetlog.log import PacketLog, Records

HOPS = 64
NO_OPERATION = 1
_FIXED = {4: 20, 6: 40}

Octets = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Shape:
    """What packets have in common whose headers are built together.

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
    """The shapes of some packets, with the indices of those that have each."""
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
    """The headers of packets of one shape, a row of ``shape.captured`` octets for each."""
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
