"""Client connections of HTTP/1.1 and HTTP/2 that know the bytes of each message in their TCP connection.

The protocols are implemented by h11 and h2 without I/O; the sockets below are ours and count bytes.
"""

import http
import json
import os
import re
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import h11

from cellbed_node import machine
from cellbed_node.exports import traceparent
from cellbed_node.http.journeys import MOST_KEPT, User
from cellbed_node.http.messages import Chunks
from cellbed_node.ledger import Ledger, Request
from cellbed_node.tcp import CountingSocket, tcp_info
from cellbed_node.tls import Clear, reason

REQUEST_HEADER = "Cellbed-Request"
"""Header with the name of the request, ``endpoint/number``, for spans of services (docs/reference/spans.md)."""

_READ = 1 << 18
_OUT = 1 << 18
"""Maximum bytes of bodies that HTTP/2 frames before the socket takes them."""
_HEADERS, _GOAWAY = 0x1, 0x7  # frame types (RFC 9113, §6)
_FRAME_HEADER = 9
_LARGEST_FRAME = 1 << 14
_FIRST_STREAMS = 100
"""Maximum streams before the server has sent its limit; no limit should be lower (RFC 9113, §6.5.2)."""
_MOST_TRIES = 5
"""Maximum attempts for a request that servers refuse unprocessed."""
_GRPC_STATUSES = (
    "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED "
    "RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS "
    "UNAUTHENTICATED"
)
"""Names in the order of their numbers, from 0."""
MOST_MESSAGES = 1_000_000
"""Maximum number of reply messages that an endpoint records."""
_STREAM_WINDOW, _CONNECTION_WINDOW = 6 << 20, 15 << 20
"""Flow control windows of HTTP/2 for replies, as in Chromium. The defaults of 64 KiB limit the rate to 64 KiB per round
trip."""


@dataclass(frozen=True, slots=True)
class Message:
    """The content of a request, which all requests of a load may share. scheme: scheme of the URL; target: path and
    query; headers: without Host and Content-Length. grpc: whether trailers of the reply have the outcome. traced: the
    application, if requests have OpenTelemetry identifiers."""

    scheme: str
    method: str
    authority: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    grpc: bool = False
    traced: str = ""

    def names(self, request: Request) -> list[tuple[str, str]]:
        """Return the header fields that identify a request."""
        endpoint, number = request.endpoint, request.request
        found = [(REQUEST_HEADER.lower(), f"{endpoint}/{number}")]
        return [*found, ("traceparent", traceparent(self.traced, endpoint, number))] if self.traced else found


@dataclass(slots=True)
class Streams:
    """Records the messages of an endpoint's streamed replies. splitter: returns a new finder of message ends. write:
    takes a line of JSON."""

    endpoint: str
    splitter: Callable[[], Chunks]
    write: Callable[[str], object]
    written: int = 0

    def note(self, message: dict[str, Any]) -> None:
        """Record a message."""
        if self.written < MOST_MESSAGES:
            self.written += 1
            self.write(json.dumps({"endpoint": self.endpoint, **message}, separators=(",", ":")) + "\n")


@dataclass(slots=True)
class Exchange(Request):
    """A request and its reply. opening_ns: when the connection began to open if the request waited for it, else
    sent_ns. tls_uplink_end, tls_downlink_end: ends, in their streams, of the client's first flight and of the server's
    part of the handshake, if a TLS connection opened for the request. first_byte_ns: arrival of the reply's first
    bytes. order: number among the requests of the connection, from 0. code: status of the reply. tries: number of
    attempts; the stamps are of the last one. step: name in a journey; journey: number of the journey at the endpoint;
    taken: values taken from the reply, JSON. turn: over HTTP/2, bytes of the reply's body before another reply's, or
    all if others waited; last: payload of the DATA frame that ended the reply; stream_window, connection_window,
    most_streams: the server's limits when the request was sent. message: content of the request; user: on the journey.
    message and user are not recorded."""

    opening_ns: int | None = None
    tls_uplink_end: int | None = None
    tls_downlink_end: int | None = None
    first_byte_ns: int | None = None
    order: int | None = None
    code: int | None = None
    tries: int = 0
    step: str | None = None
    journey: int | None = None
    taken: str | None = None
    turn: int | None = None
    last: int | None = None
    stream_window: int | None = None
    connection_window: int | None = None
    most_streams: int | None = None
    message: Message = field(kw_only=True)
    user: User | None = None

    unrecorded = frozenset({"message", "user"})


@dataclass(slots=True)
class Reply:
    """The reply to `request` so far. begin: offset of the reply's first byte among the bytes of messages, if known
    before that byte; start: in the downlink's stream. splitter, messages: finder and count of the reply's messages;
    message_start: start of the incomplete message. kept: header fields and body, if values are taken from them.
    outcome: fields of gRPC."""

    request: Exchange
    begin: int = 0
    start: int | None = None
    code: int = 0
    payload: int = 0
    splitter: Chunks | None = None
    messages: int = 0
    message_start: int | None = None
    kept: bytearray | None = None
    outcome: dict[str, str] = field(default_factory=dict)


class Connection:
    """A connection that opens in the background; base class of both versions.

    The event loop calls :meth:`write` when the connection is writable and :meth:`read` when it is readable. Finished
    and failed requests go to the ledger. position: received bytes of messages. ending: whether the connection takes no
    further requests. trouble: why it could not be opened. returned: requests that the server refused unprocessed, to be
    sent over another connection. replied: requests of users on a journey that have a reply. spare: number of
    connections opened in advance while all others are busy. fresh: whether requests sent now have waited for the
    connection to open. protocol: name in TLS (ALPN).
    """

    spare = 0
    protocol = ""

    def __init__(self, address: tuple[str, int], layer: Clear, ledger: Ledger, streams: Streams | None) -> None:
        """Begin to open the connection. layer: with or without TLS. streams: records messages of streamed replies.
        Errors: ``OSError`` on immediate failure."""
        self.begun_ns = self.used_ns = machine.now_ns()
        self._opening: socket.socket | None = machine.connect(*address)
        self._socket: CountingSocket | None = None
        self.fresh = False
        self._out = bytearray()
        self._queued = 0  # offset of the next byte to append
        self._unaccepted: deque[tuple[Exchange, int, int]] = deque()  # offset, and how long TCP's buffer had been full
        self._taken = 0
        self._established = False
        self.layer = layer
        self.streams = streams
        self.position = 0
        self.ledger = ledger
        self.closed = False
        self.ending = False
        self.trouble = ""
        self.returned: list[Exchange] = []
        self.replied: list[Exchange] = []

    @property
    def open(self) -> bool:
        """Return whether the connection is established, including TLS if any."""
        return self._established and not self.closed

    @property
    def readable(self) -> bool:
        """Return whether to watch the connection for reading."""
        return self._socket is not None and not self.closed

    @property
    def room(self) -> int:
        """The number of further requests that the connection takes now."""
        raise NotImplementedError

    @property
    def idle(self) -> bool:
        """Return whether no request is in progress."""
        raise NotImplementedError

    @property
    def wants_write(self) -> bool:
        """Return whether to watch the connection for writing."""
        return self._opening is not None or bool(self._out)

    def fileno(self) -> int:
        return (self._opening or self._connected).fileno()

    @property
    def _connected(self) -> CountingSocket:
        assert self._socket is not None
        return self._socket

    def take(self, request: Exchange) -> None:
        """Send a request; only if there is `room`."""
        connected = self._connected
        request.local_port, request.remote_port = connected.local_port, connected.remote_port
        request.order, self._taken = self._taken, self._taken + 1
        request.tries += 1
        request.tcp = tcp_info(connected.tcp)
        assert request.started_ns is not None
        self.used_ns = request.sent_ns = machine.now_ns()
        request.opening_ns = request.sent_ns
        if self.fresh:
            request.opening_ns = max(request.started_ns, self.begun_ns)
            request.tls_uplink_end, request.tls_downlink_end = self.layer.hello, self.layer.flight
        self._unaccepted.append((request, self._queued, connected.full_ns(request.sent_ns)))
        self.send(request)
        self.flush()

    def write(self) -> None:
        """Finish opening, or send queued bytes."""
        if self._opening is None:
            self.flush()
            return
        code = self._opening.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0:
            try:
                self._socket = CountingSocket(self._opening)
            except OSError as error:  # reset already
                code = error.errno or 0
        if code != 0:
            self.fail(f"cannot connect: {os.strerror(code)}")
            return
        self._opening = None
        self.layer.begin()
        self._queue(self.layer.answer())
        if self.layer.ready:
            self._establish()
        self.flush()

    def _establish(self) -> None:
        if self.layer.protocol not in (None, self.protocol):
            self.fail(f"TLS: the server has chosen {self.layer.protocol}, not {self.protocol}")
            return
        self._established = self.fresh = True
        self.send_first()

    def read(self) -> None:
        """Read the received bytes."""
        try:
            data = self._connected.recv(_READ)
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(f"the connection broke: {error.strerror}")
            return
        try:
            content = self.layer.decode(data)
        except ssl.SSLError as error:
            self.fail(reason(error))
            return
        self._queue(self.layer.answer())
        if self.layer.ready and not self._established:
            self._establish()
        self.position += len(content)
        if not self._established and not data:
            self.fail("the server closed the connection during the handshake of TLS")
        if content and not self.closed:
            self.receive(content)
        if (not data or self.layer.over) and not self.closed:
            self.receive(b"")
        if not self.closed:
            self.flush()

    def append(self, data: bytes) -> None:
        """Queue bytes of messages for the socket."""
        if data:
            self._queue(self.layer.encode(data))

    def _queue(self, data: bytes) -> None:
        self._out += data
        self._queued += len(data)

    @property
    def queued(self) -> int:
        """Offset of the next queued byte in the uplink's stream."""
        return self._queued

    def flush(self) -> None:
        """Pass queued bytes to the kernel, as far as it accepts them."""
        connected = self._connected
        while self._out:
            try:
                count = connected.send(self._out)
            except BlockingIOError:
                return
            except OSError:
                # The server may have replied before closing: `read` gets the reply, then the end.
                self.ending = True
                self._out.clear()
                return
            now = machine.now_ns()
            while self._unaccepted and self._unaccepted[0][1] < connected.sent:
                request, _, full_before = self._unaccepted.popleft()
                request.accepted_ns, request.buffer_full_ns = now, connected.refused_ns - full_before
            complete = count == len(self._out)
            del self._out[:count]
            if not complete:
                return
            self.refill()

    def fail(self, reason: str) -> None:
        """Fail the connection: all requests in progress are lost for this reason."""
        if not self.open:
            self.trouble = reason
        for request in self.under_way():
            self.ledger.lose(request.request, reason)
        self.close()

    def close(self) -> None:
        """Close the connection immediately."""
        if not self.closed:
            self.closed = True
            (self._opening or self._connected).close()

    def begin(self, reply: Reply, offset: int) -> None:
        """Record that a reply begins at this offset among the bytes of messages."""
        reply.start = self.layer.start(offset)
        reply.request.first_byte_ns = machine.now_ns()
        reply.splitter = self.streams.splitter() if self.streams is not None else None

    def head(self, reply: Reply, code: int, headers: Iterable[tuple[str, str]]) -> None:
        """Process the status and the header fields of a reply."""
        reply.code = code
        user = reply.request.user
        if user is not None and user.step.take:
            reply.kept = bytearray("".join(f"{name}: {value}\n" for name, value in headers).encode() + b"\n")

    def content(self, reply: Reply, data: bytes, begin: int, end: int, *, complete: bool) -> None:
        """Process bytes of a reply's body. begin, end: offsets of the chunk or frame; complete: whether it ends with
        these bytes."""
        reply.payload += len(data)
        if reply.kept is not None:
            reply.kept += data[: max(0, MOST_KEPT - len(reply.kept))]
        if reply.splitter is not None and data:
            piece = self.layer.start(begin)
            reply.message_start = piece if reply.message_start is None else reply.message_start
            self._note_messages(reply, reply.splitter.feed(data, complete=complete), end, piece)
            if not reply.splitter.size:
                reply.message_start = None

    def _note_messages(self, reply: Reply, sizes: Iterable[int], end: int, piece: int | None = None) -> None:
        """Record messages that end at this offset. piece: start, in the downlink's stream, of messages after the
        first."""
        for size in sizes:
            assert self.streams is not None
            message = {"request": reply.request.request, "message": reply.messages}
            ports = {"local_port": reply.request.local_port, "remote_port": reply.request.remote_port}
            place = {"downlink_start": reply.message_start, "downlink_end": self.layer.end(end)}
            self.streams.note({**message, "received_ns": machine.now_ns(), "bytes": size, **ports, **place})
            reply.messages += 1
            reply.message_start = piece

    def finish(self, reply: Reply, end: int) -> None:
        """Finish a reply that ends at this offset among the bytes of messages."""
        request = reply.request
        request.code = reply.code
        error = _failure(reply.code) or (_grpc_failure(reply.outcome) if request.message.grpc else None)
        if error is None and reply.kept is not None and request.user is not None:
            error = request.user.take(bytes(reply.kept))
            request.taken = json.dumps({name: request.user.values.get(name) for name in request.user.step.take})
        if request.user is not None:
            self.replied.append(request)
        assert reply.start is not None
        if reply.splitter is not None:
            self._note_messages(reply, reply.splitter.rest(), end)
        self.ledger.reply(
            request.request,
            machine.now_ns(),
            error=error,
            start=reply.start,
            end=self.layer.end(end),
            payload=reply.payload,
        )

    def send_first(self) -> None:
        """Queue the first bytes of a new connection."""

    def send(self, request: Exchange) -> None:
        """Queue a request, and note its range of bytes."""
        raise NotImplementedError

    def refill(self) -> None:
        """Queue more bytes, if any, after the kernel has taken all queued ones."""

    def receive(self, data: bytes) -> None:
        """Process the next bytes of messages; empty at the end of the connection."""
        raise NotImplementedError

    def under_way(self) -> list[Exchange]:
        """Return the requests without a complete reply."""
        raise NotImplementedError


class Http1(Connection):
    """HTTP/1.1 (RFC 9112) with keep-alive: one request at a time, without pipelining.

    A request ranges from its request line to the end of its body, a reply from its status line to the end of its body.
    Interim replies (1xx) precede the reply.
    """

    protocol = "http/1.1"

    def __init__(self, address: tuple[str, int], layer: Clear, ledger: Ledger, streams: Streams | None) -> None:
        super().__init__(address, layer, ledger, streams)
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 16)
        self._reply: Reply | None = None

    @property
    def room(self) -> int:
        return 1 if self.open and not self.ending and self._reply is None else 0

    @property
    def idle(self) -> bool:
        return self._reply is None

    def under_way(self) -> list[Exchange]:
        return [self._reply.request] if self._reply is not None else []

    def send(self, request: Exchange) -> None:
        message = request.message
        common = (("Host", message.authority), *message.headers)
        headers = [(name.encode(), value.encode()) for name, value in common]
        if message.body or message.method in ("POST", "PUT", "PATCH"):
            headers.append((b"Content-Length", b"%d" % len(message.body)))
        headers += [(name.title().encode(), value.encode()) for name, value in message.names(request)]
        request.uplink_start = self.queued
        send = self._protocol.send
        self.append(send(h11.Request(method=message.method, target=message.target, headers=headers)) or b"")
        if message.body:
            self.append(send(h11.Data(data=message.body)) or b"")
        send(h11.EndOfMessage())
        request.uplink_end = self.queued
        self._reply = Reply(request, self.position)

    def receive(self, data: bytes) -> None:
        if self._reply is None:  # end of an idle connection, perhaps announced by the server
            self.close()
            return
        self.ending |= not data  # the end of the connection may end the reply
        self._begin(self._reply)
        begun = self._reply.start is not None
        try:
            self._protocol.receive_data(data)
            while self._reply is not None:
                before = self._position if self._reply.splitter is not None else 0
                event = self._protocol.next_event()
                if event is h11.NEED_DATA:
                    return
                self._process(self._reply, event, before)
        except h11.RemoteProtocolError as error:
            where = "in the middle of" if begun else "before"
            self.fail(f"the server closed the connection {where} the reply" if not data else _describe(error))

    def _process(self, reply: Reply, event: Any, before: int) -> None:
        match event:
            case h11.InformationalResponse():
                reply.begin, reply.start = self._position, None
                self._begin(reply)
            case h11.Response():
                headers = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers)
                self.head(reply, event.status_code, headers)
            case h11.Data():
                end = self._position if reply.splitter is not None else 0
                self.content(reply, bytes(event.data), before, end, complete=event.chunk_end)
            case h11.EndOfMessage():
                end = self._position
                self._reply = None
                self.finish(reply, end)
                reusable = self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE
                if reusable and not self.ending and not self._out and end == self.position:
                    self._protocol.start_next_cycle()
                else:
                    self.close()
            case _:
                raise h11.RemoteProtocolError("the server changed the protocol")

    def _begin(self, reply: Reply) -> None:
        """Record the start of the reply if its first byte has arrived."""
        if reply.start is None and self.position > reply.begin:
            self.begin(reply, reply.begin)

    @property
    def _position(self) -> int:
        """Offset of the first unprocessed byte among the bytes of messages."""
        return self.position - len(self._protocol.trailing_data[0])


class Http2(Connection):
    """HTTP/2 (RFC 9113) over TLS or with prior knowledge: requests share the connection as streams.

    A request ranges from its HEADERS frame to the frame that ends its stream, likewise a reply. Frames of other streams
    may lie between: the range includes the data that the stream waited for. Bodies are sent in the order of requests,
    as far as the server's windows allow.
    """

    spare = 1
    protocol = "h2"

    def __init__(self, address: tuple[str, int], layer: Clear, ledger: Ledger, streams: Streams | None) -> None:
        super().__init__(address, layer, ledger, streams)
        codes = h2.settings.SettingCodes
        self._protocol = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._protocol.local_settings = h2.settings.Settings(
            client=True, initial_values={codes.ENABLE_PUSH: 0, codes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW}
        )
        self._replies: dict[int, Reply] = {}
        self._bodies: dict[int, int] = {}  # sent bytes of incomplete bodies by stream, in order
        self._latest = 0  # stream of the latest DATA frame
        self._pieces: dict[int, int] = {}  # bytes of each reply's latest piece
        self._in = bytearray()
        self._configured = False

    @property
    def room(self) -> int:
        if not self.open or self.ending:
            return 0
        most = self._protocol.remote_settings.max_concurrent_streams if self._configured else _FIRST_STREAMS
        return max(0, most - len(self._replies))

    @property
    def idle(self) -> bool:
        return not self._replies

    def under_way(self) -> list[Exchange]:
        return [reply.request for reply in self._replies.values()]

    def send_first(self) -> None:
        self._protocol.initiate_connection()
        self._protocol.increment_flow_control_window(_CONNECTION_WINDOW - (1 << 16) + 1)
        self._frame_out()

    def send(self, request: Exchange) -> None:
        message = request.message
        headers = [
            (":method", message.method),
            (":scheme", message.scheme),
            (":authority", message.authority),
            (":path", message.target),
            *((name.lower(), value) for name, value in message.headers),
        ]
        if message.body:
            headers.append(("content-length", str(len(message.body))))
        headers += message.names(request)
        stream = self._protocol.get_next_available_stream_id()
        granted = self._protocol.remote_settings
        request.connection_window = self._protocol.outbound_flow_control_window
        request.stream_window, request.most_streams = granted.initial_window_size, granted.max_concurrent_streams
        request.uplink_start = self.queued
        self._protocol.send_headers(stream, headers, end_stream=not message.body)
        self._frame_out()
        self._replies[stream] = Reply(request)
        if message.body:
            self._bodies[stream] = 0
            self.refill()
        else:
            request.uplink_end = self.queued

    def refill(self) -> None:
        for stream in list(self._bodies):
            body = self._replies[stream].request.message.body
            while (begin := self._bodies[stream]) < len(body):
                window = self._protocol.local_flow_control_window(stream)
                count = min(window, self._protocol.max_outbound_frame_size, len(body) - begin)
                if count <= 0 or len(self._out) >= _OUT:
                    break
                self._bodies[stream] = end = begin + count
                self._protocol.send_data(stream, body[begin:end], end_stream=end == len(body))
                self._frame_out()
            else:
                self._replies[stream].request.uplink_end = self.queued
                del self._bodies[stream]

    def receive(self, data: bytes) -> None:
        if not data:
            if self._replies:
                self.fail("the server closed the connection before the reply")
            self.close()
            return
        self._in += data
        position = self.position - len(self._in)
        while len(self._in) >= _FRAME_HEADER and not self.closed:
            length = int.from_bytes(self._in[:3])
            if length > _LARGEST_FRAME:
                how = "without" if self.layer.hello is None else "over"
                self.fail(f"malformed reply: not HTTP/2; does the server speak it {how} TLS?")
                return
            size = _FRAME_HEADER + length
            if len(self._in) < size:
                return
            frame = bytes(self._in[:size])
            del self._in[:size]
            try:
                self._process(frame, position, position + size)
            except h2.exceptions.ProtocolError as error:
                self.fail(_describe(error))
            position += size

    def _process(self, frame: bytes, begin: int, end: int) -> None:
        kind, stream = frame[3], int.from_bytes(frame[5:9]) & 0x7FFFFFFF
        if kind == _GOAWAY and len(frame) >= _FRAME_HEADER + 8:
            # h2 would refuse further frames of streams that the server still answers.
            self._end_after(int.from_bytes(frame[9:13]) & 0x7FFFFFFF, int.from_bytes(frame[13:17]))
            return
        found = self._replies.get(stream)
        if kind == _HEADERS and found is not None and found.start is None:
            self.begin(found, begin)
        for event in self._protocol.receive_data(frame):
            reply = self._replies.get(getattr(event, "stream_id", None) or 0)
            match event:
                case h2.events.RemoteSettingsChanged():
                    self._configured = True
                case h2.events.DataReceived():
                    self._protocol.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
                    if reply is not None:
                        self._note_turn(reply, event.stream_id or 0, len(event.data or b""), event.stream_ended)
                        self.content(reply, event.data or b"", begin, end, complete=True)
                case h2.events.InformationalResponseReceived() if reply is not None:
                    reply.start = None
                case h2.events.ResponseReceived() if reply is not None:
                    headers = [(str(name), str(value)) for name, value in event.headers or ()]
                    self.head(reply, _status(headers), headers)
                    reply.outcome |= headers
                case h2.events.TrailersReceived() if reply is not None:
                    reply.outcome |= ((str(name), str(value)) for name, value in event.headers or ())
                case h2.events.StreamEnded() if reply is not None:
                    self.finish(self._replies.pop(stream), end)
                    if self._bodies.pop(stream, None) is not None:
                        self._protocol.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
                case h2.events.StreamReset() if reply is not None:
                    reason = f"the server reset the stream: {_name(event.error_code)}"
                    refused = event.error_code == h2.errors.ErrorCodes.REFUSED_STREAM
                    (self._return if refused else self._lose)(stream, reason)
        self._frame_out()
        self.refill()
        if self.ending and not self._replies:
            self.close()

    def _note_turn(self, reply: Reply, stream: int, size: int, ended: object) -> None:
        """Record the pieces of replies that the server interleaves. ended: whether the reply ends here."""
        if size:
            piece = self._pieces.pop(stream, 0)
            if stream != self._latest and piece:
                reply.request.turn, piece = piece, 0
            self._latest, self._pieces[stream] = stream, piece + size
        if ended:
            reply.request.last = size
            others = [each for each in self._replies.values() if each is not reply and each.start is not None]
            if others and reply.request.turn is None:
                reply.request.turn = reply.payload + size
            self._pieces.pop(stream, None)

    def _end_after(self, last: int, code: int) -> None:
        """Process GOAWAY: the server answers streams up to `last`, and takes no new ones."""
        self.ending = True
        for stream in [stream for stream in self._replies if stream > last]:
            self._return(stream, f"the server ended the connection: {_name(code)}")
        if not self._replies:
            self.close()

    def _lose(self, stream: int, reason: str) -> None:
        self.ledger.lose(self._replies.pop(stream).request.request, reason)
        self._bodies.pop(stream, None)

    def _return(self, stream: int, reason: str) -> None:
        """Return a request that the server has not processed (RFC 9113, §8.7) for another connection."""
        request = self._replies[stream].request
        if request.tries >= _MOST_TRIES:
            self._lose(stream, reason)
            return
        del self._replies[stream]
        self._bodies.pop(stream, None)
        self._unaccepted = deque(each for each in self._unaccepted if each[0] is not request)
        request.sent_ns = request.accepted_ns = request.buffer_full_ns = None
        request.uplink_start = request.uplink_end = None
        self.returned.append(request)

    def _frame_out(self) -> None:
        self.append(self._protocol.data_to_send())


VERSIONS: dict[str, type[Connection]] = {"1.1": Http1, "2": Http2}


def _status(headers: Iterable[tuple[str, str]]) -> int:
    code = str(dict(headers).get(":status"))
    if not code.isdecimal():
        raise h2.exceptions.ProtocolError(f"status {code}")
    return int(code)


def _failure(code: int) -> str | None:
    if code < 400:
        return None
    try:
        return f"HTTP status {code} {http.HTTPStatus(code).phrase}"
    except ValueError:
        return f"HTTP status {code}"


def _grpc_failure(fields: Mapping[str, str]) -> str | None:
    """Return the failure reported by the header fields and trailers of a reply."""
    status, text = fields.get("grpc-status", ""), unquote(fields.get("grpc-message", ""))[:100]
    if not re.fullmatch("[0-9]{1,3}", status):
        return "the reply has no status of gRPC"
    name = dict(enumerate(_GRPC_STATUSES.split())).get(int(status), "")
    words = " ".join(filter(None, [f"gRPC status {int(status)}", name]))
    return None if not int(status) else f"{words}: {text}" if text.isprintable() and text else words


def _describe(error: Exception) -> str:
    return f"malformed reply: {str(error).splitlines()[0][:100] if str(error) else type(error).__name__}"


def _name(code: Any) -> str:
    try:
        return h2.errors.ErrorCodes(int(code)).name
    except (TypeError, ValueError):
        return f"error {code}"
