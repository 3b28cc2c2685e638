"""The load generator of a WebSocket server: one endpoint that sends messages over a few connections.

Run as ``python -m cellbed_node.websocket.load --config FILE.json``; :class:`Settings` describes the file.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, RejectConnection, TextMessage
from wsproto.events import Request as Handshake
from wsproto.utilities import ProtocolError

from cellbed_node import generator, lifecycle, machine
from cellbed_node.generator import SECOND
from cellbed_node.http import load as http
from cellbed_node.http.connection import Connection, Exchange, Message, Streams
from cellbed_node.http.load import HttpLoad
from cellbed_node.ledger import Ledger
from cellbed_node.templates import fill
from cellbed_node.tls import Clear

_MOST_OPEN = 10_000
"""Maximum messages without a reply on a connection."""
_LARGEST = 64 << 20
"""Maximum bytes of a message."""
_FRAME_HEADER = 2
_LENGTHS = {126: 2, 127: 8}
"""Bytes of an extended length, by the value that announces it (RFC 6455, §5.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(http.Settings):
    """The configuration of a WebSocket load. content: text of a message; size: minimum length; reply: ``echo`` or
    ``next``."""

    version: str = "1.1"
    method: str = "GET"
    content: str
    size: int
    reply: str


class WebSocket(Connection):
    """A WebSocket (RFC 6455). A message ranges from its first frame to the end of its last frame."""

    protocol = "http/1.1"

    def __init__(
        self,
        address: tuple[str, int],
        layer: Clear,
        ledger: Ledger,
        streams: Streams | None,
        handshake: Handshake,
        echo: re.Pattern[str] | None,
    ) -> None:
        """Begin to open the WebSocket. echo: finds the request's number in a reply; ``None`` if the next message is the
        reply."""
        super().__init__(address, layer, ledger, streams)
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._handshake, self._echo = handshake, echo
        self._accepted = False
        self._unanswered: dict[int, Exchange] = {}
        self._in = bytearray()
        self._parts: list[str | bytes] = []
        self._begin = self._pushed = 0

    @property
    def open(self) -> bool:
        return super().open and self._accepted

    @property
    def room(self) -> int:
        return _MOST_OPEN - len(self._unanswered) if self.open and not self.ending else 0

    @property
    def idle(self) -> bool:
        return not self._unanswered

    def under_way(self) -> list[Exchange]:
        return list(self._unanswered.values())

    def send_first(self) -> None:
        self.append(self._protocol.send(self._handshake))

    def send(self, request: Exchange) -> None:
        request.uplink_start = self.queued
        self.append(self._protocol.send(TextMessage(data=request.message.body.decode())))
        request.uplink_end = self.queued
        self._unanswered[request.request] = request

    def receive(self, data: bytes) -> None:
        if not data:
            self.fail("the server closed the connection before the reply")
            return
        self._in += data
        position = self.position - len(self._in)
        while not self.closed and (size := self._unit()) is not None:
            unit = bytes(self._in[:size])
            del self._in[:size]
            try:
                self._protocol.receive_data(unit)
                self._process(self._protocol.events(), position, position + size)
            except ProtocolError as error:
                self.fail(f"malformed message: {str(error)[:100] or type(error).__name__}")
            position += size

    def _unit(self) -> int | None:
        """Return the length of the next unit, the handshake's reply or a frame, once it is complete."""
        found = self._in
        if not self._accepted:
            size = found.find(b"\r\n\r\n") + 4 if b"\r\n\r\n" in found else len(found) + 1
        elif len(found) < _FRAME_HEADER:
            return None
        else:
            length = found[1] & 0x7F
            more = _LENGTHS.get(length, 0)
            if more:
                length = int.from_bytes(found[_FRAME_HEADER : _FRAME_HEADER + more])
            size = _FRAME_HEADER + more + length if len(found) >= _FRAME_HEADER + more else len(found) + 1
        if size > _LARGEST:
            self.fail(f"the server sends a message of more than {_LARGEST >> 20} MiB")
        return size if len(found) >= size and not self.closed else None

    def _process(self, events: Iterable[Event], begin: int, end: int) -> None:
        for event in events:
            match event:
                case AcceptConnection():
                    self._accepted = self.fresh = True
                case RejectConnection():
                    self.fail(f"the server refuses WebSockets: HTTP status {event.status_code}")
                    return
                case Ping():
                    self.append(self._protocol.send(event.response()))
                case CloseConnection():
                    self.append(self._protocol.send(event.response()))
                    self.flush()
                    self.fail(f"the server closed the WebSocket with code {int(event.code)}")
                    return
                case TextMessage() | BytesMessage():
                    self._begin = self._begin if self._parts else begin
                    self._parts.append(bytes(event.data) if isinstance(event, BytesMessage) else event.data)
                    if sum(map(len, self._parts)) > _LARGEST:
                        self.fail(f"the server sends a message of more than {_LARGEST >> 20} MiB")
                    elif event.message_finished:
                        content = b"".join(each.encode() if isinstance(each, str) else each for each in self._parts)
                        self._parts.clear()
                        self._message(content, self.layer.start(self._begin), self.layer.end(end))

    def _message(self, content: bytes, start: int, end: int) -> None:
        """Process a message with its range in the downlink's stream: a reply, or an unsolicited message of the
        server."""
        now, number = machine.now_ns(), next(iter(self._unanswered), None)
        if self._echo is not None:
            found = self._echo.search(content.decode(errors="replace"))
            number = int(found[1]) if found is not None else None
        request = self._unanswered.pop(number, None) if number is not None else None
        if request is not None:
            request.first_byte_ns = now
            self.ledger.reply(request.request, now, error=None, start=start, end=end, payload=len(content))
        elif self.streams is not None:
            connected = self._connected
            ports = {"local_port": connected.local_port, "remote_port": connected.remote_port}
            place = {"downlink_start": start, "downlink_end": end}
            message = {"request": None, "message": self._pushed, "received_ns": now, "bytes": len(content)}
            self.streams.note({**message, **ports, **place})
            self._pushed += 1


class WebSocketLoad(HttpLoad):
    """One endpoint with its WebSockets, which are open before the load starts."""

    patience_ns = 10 * SECOND

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._own = settings
        self._kind = WebSocket
        headers = [(name.encode(), value.encode()) for name, value in settings.headers.items()]
        self._handshake = Handshake(host=settings.authority, target=settings.target, extra_headers=headers)
        number = re.compile(rf"(?<![A-Za-z0-9_-]){re.escape(settings.endpoint)}/([0-9]{{1,12}})(?![0-9])")
        self._echo = number if settings.reply == "echo" else None

    def connect(self, server: int = 0) -> Connection:
        layer = self.layer(server)
        return WebSocket(self._addresses[server], layer, self.ledger, self._streams, self._handshake, self._echo)

    def prepare(self) -> None:
        super().prepare()
        try:
            self._pools[0].connections += [self.connect() for _ in range(self._own.connections)]
        except OSError as error:
            raise lifecycle.WorkloadError(f"{self._endpoint}: cannot connect: {error.strerror}") from error

    @property
    def ready(self) -> bool:
        return len(self._connections) == self._own.connections and all(each.open for each in self._connections)

    @property
    def trouble(self) -> str:
        where = f"{self._own.hosts[0]} port {self._own.port}"
        return f"{self._endpoint}: no WebSocket at {where}: {self.last_trouble or 'no answer to the handshake'}"

    def create(self, number: int, intended_ns: int) -> Exchange:
        text = fill(self._own.content, {**self._own.values, "request": f"{self._endpoint}/{number}"})
        body = text.encode().ljust(self._own.size, b".")
        message = Message("ws", "GET", self._own.authority, self._own.target, (), body)
        return Exchange(number, self._endpoint, intended_ns, bytes_up=len(body), message=message)


main = generator.program(WebSocketLoad, Settings)


if __name__ == "__main__":
    lifecycle.run(main)
