"""Packets of MQTT 5, and a small broker for machines without Mosquitto: QoS 0, topics without wildcards."""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict

from cellbed_node import lifecycle

CONNECT, CONNACK, PUBLISH, SUBSCRIBE, SUBACK, DISCONNECT = 1, 0x20, 3, 8, 0x90, 14
CONNACK_BODY = bytes((0, 0, 6, 0x22, 0, 10, 0x21, 0xFF, 0xFF))
"""CONNACK of Mosquitto 2 with our configuration: accepted, maximum topic alias, maximum messages in flight."""
_KINDS = {CONNECT, PUBLISH, SUBSCRIBE, DISCONNECT}
_MOST_HEADER = 5


def packet(first: int, body: bytes) -> bytes:
    """Return a packet with this first byte (MQTT 5.0, §2.1)."""
    return bytes((first,)) + length(len(body)) + body


def length(value: int) -> bytes:
    """Return a variable byte integer (MQTT 5.0, §1.5.5)."""
    found = bytearray()
    while True:
        value, digit = divmod(value, 128)
        found.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(found)


def read_length(data: bytes | bytearray, at: int) -> tuple[int, int] | None:
    """Return the integer at a position and the next position; None if the integer is incomplete."""
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at
    return None


def take_packet(stream: bytearray) -> tuple[int, bytes] | None:
    """Remove the first packet of a stream; return its first byte and its body, or None if incomplete."""
    found = read_length(stream, 1)
    if found is None or len(stream) < sum(found):
        return None
    size, begin = found
    first, body = stream[0], bytes(stream[begin : begin + size])
    del stream[: begin + size]
    return first, body


class _Peer(asyncio.Protocol):
    """A connection. topics: the connections that receive each topic."""

    transport: asyncio.Transport

    def __init__(self, topics: defaultdict[bytes, set[_Peer]]) -> None:
        self._topics = topics
        self._stream = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        # As in Mosquitto's configuration: Nagle's algorithm would delay messages.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, _error: Exception | None) -> None:
        for receivers in self._topics.values():
            receivers.discard(self)

    def data_received(self, data: bytes) -> None:
        self._stream += data
        while (found := take_packet(self._stream)) is not None:
            if not self._process(*found):
                self.transport.close()
                return
        begin = self._stream[:_MOST_HEADER]
        if (begin and begin[0] >> 4 not in _KINDS) or (len(begin) == _MOST_HEADER and read_length(begin, 1) is None):
            self.transport.close()

    def _process(self, first: int, body: bytes) -> bool:
        """Answer a packet. Return False at the end of the connection, or if the packet is not supported."""
        kind, topic = first >> 4, body[2 : 2 + int.from_bytes(body[:2], "big")]
        if kind == CONNECT:
            self.transport.write(packet(CONNACK, CONNACK_BODY))
        elif kind == SUBSCRIBE and (properties := read_length(body, 2)) is not None:
            at = sum(properties)
            self._topics[body[at + 2 : at + 2 + int.from_bytes(body[at : at + 2], "big")]].add(self)
            self.transport.write(packet(SUBACK, body[:2] + bytes((0, 0))))
        elif first == PUBLISH << 4:
            for receiver in self._topics.get(topic, ()):
                receiver.transport.write(packet(first, body))
        else:
            return False
        return True


async def serve(addresses: list[str], port: int) -> None:
    """Serve until standard input ends; announce when the broker listens. Errors: OSError."""
    topics: defaultdict[bytes, set[_Peer]] = defaultdict(set)
    await asyncio.get_running_loop().create_server(lambda: _Peer(topics), addresses, port)
    lifecycle.announce("ready")
    await lifecycle.wait_for_stop()
