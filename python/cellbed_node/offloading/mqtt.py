"""An MQTT 5 client for a single-threaded event loop that knows the bytes of each message in its TCP connection.

The protocol is paho's; the socket below is ours. The socket counts bytes, so that messages can be found in a packet
log. It connects without blocking, so that an unreachable broker never stops a load generator's clock.
"""

import os
import socket
from collections.abc import Callable, Container
from dataclasses import dataclass

from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from cellbed_node import machine
from cellbed_node.tcp import CountingSocket

SECOND = 1_000_000_000

REPLY_ERROR = "error: "
"""Prefix of a reply that reports a failure instead of a result."""

_CONNECT_PATIENCE = 5 * SECOND
_FIRST_BACK_OFF, _LONGEST_BACK_OFF = SECOND // 10, 2 * SECOND


@dataclass(slots=True)
class PacketOffsets:
    """The positions of MQTT packets in one direction of a byte stream (MQTT 5.0, §2.1: fixed header, then the rest).

    total: bytes so far. start, end: the half-open byte range of the newest complete packet.
    """

    total: int = 0
    start: int = 0
    end: int = 0
    _begin: int = 0  # start of the packet in progress
    _header: int = 0  # bytes of its fixed header so far; 0 between packets
    _length: int = 0  # its remaining length as far as decoded
    _body: int = -1  # missing bytes of its body; -1 while the length is unknown

    @property
    def between_packets(self) -> bool:
        """Return whether the next byte is the first of a packet."""
        return self._header == 0 and self._body < 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Process the next bytes of the stream."""
        position = 0
        while position < len(data):
            if self._body < 0:
                self._read_header(data[position])
                position += 1
                self.total += 1
            else:
                taken = min(self._body, len(data) - position)
                self._body -= taken
                position += taken
                self.total += taken
            if self._body == 0:
                self.start, self.end = self._begin, self.total
                self._begin, self._header, self._length, self._body = self.total, 0, 0, -1

    def _read_header(self, byte: int) -> None:
        if self._header > 0:  # byte 0: type and flags; then a variable byte integer, lowest seven bits first
            self._length |= (byte & 0x7F) << (7 * (self._header - 1))
            if byte < 0x80:
                self._body = self._length
        self._header += 1


class PacketSocket(CountingSocket):
    """A connected TCP socket with paho's interface, and the offsets of its MQTT packets.

    accepted_ns: when the kernel accepted the first byte of the newest packet. accepted_full_ns: `full_ns` at that time.
    """

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(connected)
        self.uplink = PacketOffsets()
        self.downlink = PacketOffsets()
        self.accepted_ns = self.accepted_full_ns = 0

    def recv(self, buffer_size: int) -> bytes:
        data = super().recv(buffer_size)
        self.downlink.feed(data)
        return data

    def send(self, buffer: bytes | bytearray | memoryview) -> int:
        count = super().send(buffer)
        if self.uplink.between_packets:
            self.accepted_ns, self.accepted_full_ns = machine.now_ns(), self.refused_ns
        self.uplink.feed(memoryview(buffer)[:count])
        return count


class _Client(Client):
    """paho's client on a socket that is already connected."""

    ready_made: PacketSocket | None = None

    def _create_socket_connection(self) -> PacketSocket:  # type: ignore[override]
        assert self.ready_made is not None
        return self.ready_made


class Connection:
    """A connection to a broker that reconnects after a break. The caller drives it through descriptors and times.

    Each round of the event loop: wait for ``readers`` and ``writers`` (until ``wake_ns`` at the latest), then call
    ``drive``. The callbacks run inside ``drive`` and ``publish``:

    on_message(message); on_handed_over(socket): the kernel has the oldest published message, as the newest packet of
    `socket`; on_lost(): the connection broke, and all messages in flight are lost.
    """

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        *,
        topic: str | None = None,
        on_message: Callable[[MQTTMessage], None] | None = None,
        on_handed_over: Callable[[PacketSocket], None] | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        self._address = (host, port)
        self._topic = topic
        self._on_handed_over = on_handed_over
        self._on_lost = on_lost
        self._pending: socket.socket | None = None  # connecting
        self._next_try = 0
        self._back_off = _FIRST_BACK_OFF
        self.socket: PacketSocket | None = None
        self.ready = False
        self.trouble = ""
        """Reason for the latest failed attempt or break; empty before the first."""

        self._client = _Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTv5)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = lambda *_: self._become_ready()
        self._client.on_publish = lambda *_: self._handed_over()
        self._client.on_disconnect = lambda _client, _data, _flags, reason, _properties: self._broken(str(reason))
        if on_message is not None:
            self._client.on_message = lambda _client, _data, message: on_message(message)

    @property
    def readers(self) -> list[PacketSocket]:
        """The sockets to watch for reading."""
        return [self.socket] if self.socket is not None else []

    @property
    def writers(self) -> list[PacketSocket | socket.socket]:
        """The sockets to watch for writing."""
        if self._pending is not None:
            return [self._pending]
        return [self.socket] if self.socket is not None and self._client.want_write() else []

    @property
    def wake_ns(self) -> int | None:
        """Time of the next call of ``drive`` if no descriptor is ready before, or None."""
        return None if self.socket is not None else self._next_try

    def drive(self, readable: Container[object], writable: Container[object]) -> None:
        """Connect, read and write as due. The arguments are the ready objects."""
        if self.socket is None:
            if self._pending is not None and self._pending in writable:
                self._finish_connecting()
            elif machine.now_ns() >= self._next_try:
                self._begin_connecting()
            return
        if self.socket in readable:
            self._client.loop_read()
        if self.socket is not None and self.socket in writable:
            self._client.loop_write()

    def publish(self, topic: str, payload: bytes, properties: Properties | None = None) -> bool:
        """Send a message (QoS 0), and queue the bytes that the socket does not accept. Return False without a
        connection."""
        if not self.ready:
            return False
        self._client.publish(topic, payload, qos=0, properties=properties)
        return True

    def close(self) -> None:
        """Send DISCONNECT as far as possible without waiting, and close."""
        if self._pending is not None:
            self._pending.close()
        if self.socket is not None:
            self._on_lost = None
            tcp = self.socket
            self._client.disconnect()
            tcp.close()

    def _begin_connecting(self) -> None:
        if self._pending is not None:  # attempt timed out
            self._pending.close()
            self._pending = None
            self.trouble = "no answer"
        self._next_try = machine.now_ns() + _CONNECT_PATIENCE
        try:
            self._pending = machine.connect(*self._address)
        except OSError as error:
            self._retry_later(error.strerror or str(error))

    def _retry_later(self, trouble: str) -> None:
        if self._pending is not None:
            self._pending.close()
            self._pending = None
        self.trouble = trouble
        self._next_try = machine.now_ns() + self._back_off
        self._back_off = min(2 * self._back_off, _LONGEST_BACK_OFF)

    def _finish_connecting(self) -> None:
        assert self._pending is not None
        code = self._pending.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code != 0:
            self._retry_later(os.strerror(code))
            return
        self.socket = self._client.ready_made = PacketSocket(self._pending)
        self._pending = None
        # Without keep-alive: its pings would load the measured link, and would break the connection in an outage of
        # more than a minute, which TCP survives.
        self._client.connect(self._address[0], self._address[1], keepalive=0, clean_start=True)

    def _on_connect(self, client: Client, _data: object, _flags: object, reason: object, _properties: object) -> None:
        if getattr(reason, "is_failure", False):
            self.trouble = str(reason)
        elif self._topic is not None:
            client.subscribe(self._topic, qos=0)
        else:
            self._become_ready()

    def _become_ready(self) -> None:
        self.ready = True
        self.trouble = ""
        self._back_off = _FIRST_BACK_OFF

    def _handed_over(self) -> None:
        if self._on_handed_over is not None and self.socket is not None:
            self._on_handed_over(self.socket)

    def _broken(self, reason: str) -> None:
        if self.socket is None:  # paho may report one break twice
            return
        self.socket = None
        self.ready = False
        self._retry_later(self.trouble or reason)
        if self._on_lost is not None:
            self._on_lost()


def request_properties(response_topic: str, correlation: bytes) -> Properties:
    """Return the properties of a request (MQTT 5.0, §4.10): topic and correlation data for the reply."""
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.ResponseTopic = response_topic
    properties.CorrelationData = correlation
    return properties


def reply_properties(correlation: bytes) -> Properties:
    """Return the properties of a reply to a request with this correlation data."""
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.CorrelationData = correlation
    return properties
