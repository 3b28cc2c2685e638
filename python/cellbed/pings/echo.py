"""ICMP echo messages (RFC 792; RFC 4443, §4)."""

from __future__ import annotations

import struct

_HEADER = struct.Struct("!BBHHH")
_PAYLOAD = struct.Struct("!8sQ")
_MARK = b"cellbed\x00"
_REQUEST = {4: 8, 6: 128}
_REPLY = {4: 0, 6: 129}

SIZE = _HEADER.size + _PAYLOAD.size
"""Bytes of a message."""


def request(family: int, identifier: int, number: int) -> bytes:
    """Return an echo request. family: 4 or 6. identifier: 16 bits of the sender's. number: of the probe, 64 bits.

    The checksum of ICMPv6 is the kernel's to fill in, since it covers addresses (RFC 3542, §3.1).
    """
    payload = _PAYLOAD.pack(_MARK, number)
    header = _HEADER.pack(_REQUEST[family], 0, 0, identifier, number & 0xFFFF)
    if family == 4:
        header = _HEADER.pack(_REQUEST[family], 0, checksum(header + payload), identifier, number & 0xFFFF)
    return header + payload


def answered(family: int, message: bytes, identifier: int | None) -> int | None:
    """Return the number of the probe that a message answers; None if it is something else.

    message: from its ICMP header on, or, of a raw IPv4 socket, from its IP header on. identifier: that of the requests;
    None if the kernel has set and checked it.
    """
    if family == 4 and message[:1] and message[0] >> 4 == 4:
        message = message[4 * (message[0] & 0xF) :]
    if len(message) != SIZE:
        return None
    kind, _, _, found, sequence = _HEADER.unpack_from(message)
    mark = message[_HEADER.size : _HEADER.size + len(_MARK)]
    number = int.from_bytes(message[-8:])
    if kind != _REPLY[family] or mark != _MARK or number & 0xFFFF != sequence:
        return None
    return number if identifier is None or found == identifier else None


def checksum(message: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of a message whose length is even."""
    total: int = sum(struct.unpack(f"!{len(message) // 2}H", message))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
