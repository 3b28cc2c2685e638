"""HTTP servers in virtual time: their replies have the measured lengths and times."""

from __future__ import annotations

import itertools
import json
import re
import statistics
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import h2.config
import h2.connection
import h2.events
import h2.settings
from hpack import NeverIndexedHeaderTuple

from cellbed.runformat.records import SERVICES
from cellbed.runformat.spans import SERVICE
from cellbed.workloads.http import kind
from cellbed.workloads.kind import Deployment
from cellbed.workloads.virtual import tls
from cellbed.workloads.virtual.client import Client
from cellbed.workloads.virtual.model import (
    FEWEST,
    Draw,
    Model,
    Packets,
    Sample,
    Sampling,
    Setting,
    answered,
    nanoseconds,
)
from cellbed.workloads.virtual.tls import Handshake
from cellbed.workloads.virtual.world import SECOND, TURNAROUND_NS, Host, Socket, World, names
from cellbed_node import lifecycle
from cellbed_node.arrivals import schedule
from cellbed_node.http.connection import REQUEST_HEADER, Exchange, Http1, Message, Reply, Streams
from cellbed_node.http.load import HttpLoad, Settings
from cellbed_node.http.messages import PREFIX
from cellbed_node.ledger import Ledger
from cellbed_node.tls import Clear

if TYPE_CHECKING:
    import polars as pl

    from cellbed.testbed.plan import Plan

_RATE, _SECONDS, _TOGETHER = 5, 20, 6
"""Profile: requests per second, duration in seconds, and number of simultaneous requests."""
_SEGMENT = 1448
"""Payload bytes of a full packet."""
_TURN = 16 << 10
"""Bytes of an HTTP/2 reply that a server sends before it turns to another reply, if the profile has no such replies
(Node 20, Go 1.26, hypercorn 0.18; Caddy 2.6: 32 KiB, nginx 1.22: 64 KiB; ``benches/http2_turns.py``)."""
_LEAST_BUFFERED = 16 << 10
"""Minimum capacity of a send buffer, bytes (``tcp_wmem``)."""
_WINDOW, _MOST_STREAMS = (1 << 16) - 1, (1 << 32) - 1
"""HTTP/2: initial window, bytes, and maximum number of streams (RFC 9113, §6.5.2)."""
_GRANTED = _WINDOW, _WINDOW, 100
"""Windows and number of streams if the profile has none."""
_HEAD_END, _LAST_CHUNK = b"\r\n\r\n", b"0\r\n\r\n"
_LENGTH, _CLOSE = re.compile(rb"\r\nContent-Length: ([0-9]+)"), re.compile(rb"\r\nconnection: [^\r]*\bclose\b")
_NAMED = re.compile(rb"\r\n%b: ([^\r]*)" % REQUEST_HEADER.encode())
_WITHOUT_BODY = 204, 304
"""Codes of replies without a body (RFC 9112, §6.3)."""
_WRITING_NS = 20_000
"""Time between two writes of a server."""
_FRAME, _LEAST_HEADERS = 9, 15
"""HTTP/2: bytes of an empty frame, and of a frame with one header as its content."""
_MAGIC = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""Beginning of a client's stream (RFC 9113, §3.4)."""
_DATA, _SETTINGS, _UNKNOWN, _END_STREAM = b"\0", b"\4", b"\xff", 0x1
"""HTTP/2: types of frames, and a flag."""
_AT_ONCE_NS = 1_000_000
"""Maximum time at a server from an acknowledgement to the packet that it permits."""
_KEYS = [
    "generator",
    "receive",
    "server",
    "services",
    "code",
    "bytes_up",
    "bytes_down",
    "wire_down",
    "head",
    "kept",
    "input",
]
_WORK = ("uplink_left_ns", "downlink_ready_ns", "server"), ("downlink_left_ns", "reply_ns", "endpoint")
"""Per node: column of the arrival of a request or reply, column of the end of its processing, and the node."""
_FILLED: dict[str, Callable[[int], bytes]] = {
    "chunks": bytes,
    "sse": lambda size: b"data".ljust(max(4, size - 2), b".") + b"\n\n",
    "grpc": lambda size: b"\0" + max(0, size - PREFIX).to_bytes(PREFIX - 1) + bytes(max(0, size - PREFIX)),
}
"""Functions that make a message of a streamed reply, of a given size."""


def _arrivals(table: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arrivals of a profile over HTTP/2: simultaneous requests, whose replies show the turns of the server,
    and single requests."""
    if str(table.get("version")) != "2" and "grpc" not in table:
        return None
    alone = schedule("poisson", rate=_RATE, duration_ns=_SECONDS * SECOND, seed=1, endpoint="profile")
    times = sorted([*alone, *(number * SECOND for number in range(0, _SECONDS, 4) for _ in range(_TOGETHER))])
    return {"kind": "recorded", "times": [f"{time / SECOND} s" for time in times]}


def _frame(kind: bytes, content: bytes) -> bytes:
    """Return a frame of HTTP/2 of a connection."""
    return len(content).to_bytes(3) + kind + bytes(5) + content


def strangers(settings: Callable[..., dict[str, Any]], each: Deployment, plan: Plan) -> Iterator[str]:
    """Yield the hosts of an application's URLs that are no nodes, as problems. settings: settings of a client."""
    addresses = {name: address for name, address in names(plan).items() if not address.startswith("127.")}
    hosts = {host for index in range(len(each.clients)) for host in settings(each, Path(), index, 0)["hosts"]}
    for host in sorted(hosts - addresses.keys() - set(addresses.values())):
        yield f"the URL of {host}, which is no node"


def listening(
    all_settings: Sequence[Settings], each: Deployment, setting: Setting
) -> Iterator[tuple[Host, int, IO[str]]]:
    """Yield the servers that clients with these settings use: host, port, and the file for the spans that the service
    reports."""
    records: dict[str, IO[str]] = {}
    for settings in all_settings:
        for host in [host for name in settings.hosts for host in setting.world.hosts_of(name)]:
            if host.name not in records:
                file = setting.raw / f"{each.name}.{host.name}.{SERVICES}"
                records[host.name] = setting.stack.enter_context(lifecycle.open_record(file))
            yield host, settings.port, records[host.name]


class _Sound(Http1):
    """A client's connection of HTTP/1.1 for replies of :class:`_Http1` with a length. It counts bytes, without the
    checks that messages of a foreign server need."""

    _left: int | None = None
    """Bytes that the body lacks; ``None`` before its head is complete."""

    def __init__(self, address: tuple[str, int], layer: Clear, ledger: Ledger, streams: Streams | None) -> None:
        super().__init__(address, layer, ledger, streams)
        self._head = b""
        self._message: Message | None = None
        self._before = b""
        """Bytes of a request with this message before its name."""

    def send(self, request: Exchange) -> None:
        message = request.message
        if message is not self._message:
            headers = (("Host", message.authority), *message.headers)
            lines = [f"{message.method} {message.target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
            if message.body or message.method in ("POST", "PUT", "PATCH"):
                lines.append(f"Content-Length: {len(message.body)}")
            self._message, self._before = message, "".join(f"{line}\r\n" for line in lines).encode()
        request.uplink_start = self.queued
        names = "".join(f"{name.title()}: {value}\r\n" for name, value in message.names(request))
        self.append(self._before + names.encode() + b"\r\n")
        self.append(message.body)
        request.uplink_end = self.queued
        self._reply, self._left, self._head = Reply(request, self.position), None, b""

    def receive(self, data: bytes) -> None:
        reply = self._reply
        if reply is None or not data:
            super().receive(data)
            return
        self._begin(reply)
        if self._left is None:
            self._head += data
            if (end := self._head.find(_HEAD_END)) < 0:
                return
            head, data = self._head[:end], self._head[end + len(_HEAD_END) :]
            found = _LENGTH.search(head)
            assert found is not None
            self.head(reply, int(head[9:12]), [])
            reply.payload = self._left = int(found[1])
            self._head = head
        self._left -= len(data)
        if self._left:
            return
        self._reply = None
        self.finish(reply, self.position)
        if self.ending or self._out or _CLOSE.search(self._head.lower()):
            self.close()


class _Load(HttpLoad):
    """The load generator, with TLS messages of the right lengths only."""

    def __init__(self, settings: Settings, handshake: Handshake | None) -> None:
        super().__init__(settings)
        self._handshake = handshake
        if settings.version == "1.1" and settings.stream is None:
            self._kind = _Sound

    def layer(self, server: int = 0) -> Clear:
        return tls.Client(self._handshake) if self._handshake is not None else Clear()


@dataclass(frozen=True)
class Replies:
    """The replies of the servers of an application. version: HTTP version. stream: kind of streamed replies. granted:
    HTTP/2 maximum window of a stream and of a connection, bytes, and number of streams. opening, opening_ns:
    see :func:`_openings`. loads: load generators by endpoint."""

    draw: Draw
    version: str
    stream: str | None
    handshake: Handshake | None
    granted: Sequence[int]
    opening: Sequence[int] = ()
    opening_ns: int = 0
    loads: dict[str, HttpLoad] = field(default_factory=dict)

    def sample(self, request: str, arrived: int) -> Sample:
        """Return the sample for a request (ENDPOINT/NUMBER); in a journey, a sample of the same step. arrived: see
        :meth:`Draw.cold`."""
        endpoint, _, number = request.rpartition("/")
        found = self.loads[endpoint].ledger.find(int(number)) if endpoint in self.loads else None
        if not isinstance(found, Exchange) or found.step is None:
            return self.draw.cold(request, arrived)
        sample = self.draw.sample(request, found.step, found.bytes_up or 0)
        if found.user is not None:
            found.user.known = sample.get("taken") or {}
        return sample

    def pieces(self, sample: Sample) -> list[tuple[int, bytes]]:
        """Return a server's writes for the body of a reply: pause after the previous write, ns, and bytes."""
        if self.stream is None or "messages" not in sample:
            return [(0, bytes(sample["bytes_down"]))] if sample["bytes_down"] else []
        pieces = [(pause_ns, _FILLED[self.stream](size)) for pause_ns, size in sample["messages"]]
        rest = sample["bytes_down"] - sum(len(data) for _, data in pieces)
        if pieces and self.stream == "sse" and rest > len(":\n\n"):
            pieces[-1] = pieces[-1][0], pieces[-1][1] + b":".ljust(rest - 2, b".") + b"\n\n"
        return pieces


class Server:
    """An HTTP server. Requests take their measured time on the processors of its node, and wait for earlier requests as
    measured for simultaneous ones. record: file for the spans that the service reports."""

    def __init__(self, world: World, replies: Replies, record: IO[str]) -> None:
        self.world, self.replies, self._record = world, replies, record
        self._busy_ns, self._arrived = 0, itertools.count()
        self._batch = [0, 0]  # latest requests: arrival time, and end of processing of all
        self._latest = defaultdict[Socket, int](int)  # begin of the latest reply

    def accepted(self, connection: Socket) -> Callable[[bytes], None]:
        layer: Clear = Clear()
        if self.replies.handshake is not None:
            layer = tls.Server(self.replies.handshake, connection, self.world, partial(self._done, connection))
        protocol = (_Http1 if self.replies.version == "1.1" else _Http2)(self, connection, layer)
        if self.replies.handshake is None:
            return protocol.received

        def decode(data: bytes) -> None:
            if content := layer.decode(data):
                protocol.received(content)

        return decode

    def _done(self, connection: Socket, work_ns: int) -> int:
        """Return the end of work for a connection that begins now."""
        return connection.host.processors.run(self.world.now_ns, work_ns)

    def answer_later(self, connection: Socket, request: str, answer: Callable[[Sample], None]) -> None:
        sample = self.replies.sample(request, next(self._arrived))
        work_ns = max(0, sample["server"] - TURNAROUND_NS)
        begin_ns = self.world.now_ns
        each_ns = round(self.replies.draw.each[0] / connection.host.processors.speed)
        self._busy_ns = max(begin_ns, self._busy_ns + each_ns)
        end_ns = max(self._busy_ns, self._done(connection, work_ns))
        if sample.get("ordered"):
            end_ns = self._latest[connection] = max(end_ns, self._latest[connection])
        if begin_ns > self._batch[0]:
            self._batch = [begin_ns, 0]
        (batch := self._batch)[1] = max(self._batch[1], end_ns)
        together, reply = sample.get("together"), partial(answer, sample)
        self.world.at(end_ns, lambda: self.world.at(batch[1] if together else end_ns, reply))
        endpoint, _, number = request.rpartition("/")
        stretched, at_ns = (end_ns - begin_ns) / max(1, work_ns), begin_ns
        for name, own_ns in sample["services"].items():
            line = {"endpoint": endpoint, "request": int(number), "span": name, "begin_ns": at_ns}
            at_ns += round(own_ns * stretched)
            self._record.write(json.dumps(line | {"end_ns": at_ns}, separators=(",", ":")) + "\n")

    def write(self, connection: Socket, pieces: list[tuple[int, bytes]], write: Callable[[bytes, bool], None]) -> None:
        """Write the pieces of a body at their times. write: called with a piece, and whether it is the last one."""
        pause_ns, data = pieces[0]

        def due() -> None:
            write(data, len(pieces) == 1)
            if pieces[1:]:
                self.write(connection, pieces[1:], write)

        if pause_ns:
            self.world.at(self._done(connection, pause_ns), due)
        else:
            due()


class _Http1:
    """A connection of HTTP/1.1 at its server. The requests are sound: they come from our load generator."""

    def __init__(self, server: Server, connection: Socket, layer: Clear) -> None:
        self._server, self._connection, self._layer = server, connection, layer
        self._in = bytearray()
        self._head = b""
        """Head of the current request, in lower case."""

    def received(self, data: bytes) -> None:
        """Process bytes of the client."""
        self._in += data
        if (end := self._in.find(_HEAD_END)) < 0:
            return
        head = bytes(self._in[:end])
        length = _LENGTH.search(head) if b"Content-Length" in head else None
        if len(self._in) >= end + len(_HEAD_END) + (int(length[1]) if length else 0):
            self._in.clear()
            self._head = head.lower()
            found = _NAMED.search(head)
            assert found is not None
            self._server.answer_later(self._connection, found[1].decode(), self._answer)

    def _answer(self, sample: Sample) -> None:
        replies, world = self._server.replies, self._server.world
        pieces, streamed = replies.pieces(sample), replies.stream is not None
        kept = sample["kept"] and not (b"close" in self._head and _CLOSE.search(self._head))
        content = self._reply_head(sample, pieces, kept=kept)
        head = sample["head"]
        if not streamed:
            content += b"".join(data for _, data in pieces)
            if replies.handshake is None and head < min(_SEGMENT, sample["wire_down"]):
                # The server writes its header first; closing the connection sends data held by Nagle's algorithm.
                if sample["kept"] and sample.get("nagle"):
                    self._connection.use_nagle()
                self._connection.send(content[:head])
                world.at(world.now_ns + _WRITING_NS, lambda: self._send(content[head:], last=True, kept=kept))
            else:
                self._send(content, last=True, kept=kept)
            return
        waiting = bytearray(content)
        has_body = not self._head.startswith(b"head ") and sample["code"] not in _WITHOUT_BODY

        def write(data: bytes, last: bool) -> None:
            if data:
                waiting.extend(b"%x\r\n%b\r\n" % (len(data), data))
            if last and has_body:
                waiting.extend(_LAST_CHUNK)
            self._send(bytes(waiting), last=last, kept=kept)
            waiting.clear()

        if pieces and pieces[0][0]:
            self._send(bytes(waiting), last=False, kept=kept)
            waiting.clear()
        self._server.write(self._connection, pieces or [(0, b"")], write)

    def _reply_head(self, sample: Sample, pieces: list[tuple[int, bytes]], *, kept: bool) -> bytes:
        """Return the head of a reply with the measured length."""
        replies = self._server.replies
        streamed, size = replies.stream is not None, sum(len(data) for _, data in pieces)
        head = f"HTTP/1.1 {sample['code']} \r\n"
        head += "Transfer-Encoding: chunked\r\n" if streamed else f"Content-Length: {size}\r\n"
        head += "" if sample["kept"] else "Connection: close\r\n"
        framing = sum(len(f"{len(data):x}\r\n\r\n") for _, data in pieces) + len(_LAST_CHUNK) if streamed else 0
        fill = sample["wire_down"] - size - framing - len(head) - len("\r\nx: \r\n")
        if replies.handshake is not None:
            fill -= tls.OVERHEAD * (1 + max(len(pieces), sample["wire_down"] // tls.LARGEST))
        head += f"x: {'x' * fill}\r\n" if fill > 0 else ""
        return (head + "Connection: close\r\n" * (sample["kept"] and not kept) + "\r\n").encode()

    def _send(self, content: bytes, *, last: bool, kept: bool) -> None:
        connection, world = self._connection, self._server.world
        connection.send(self._layer.encode(content))
        if last and not kept:
            world.end(connection)
        elif last and (idle_ns := self._server.replies.draw.idle_ns) and connection.number is not None:
            world.at(world.now_ns + idle_ns, partial(self._close, connection.transferred()[1]))

    def _close(self, arrived: int) -> None:
        """Close the connection if nothing has arrived since `arrived` was counted."""
        connection = self._connection
        if connection.transferred()[1] == arrived and not connection.closed:
            self._server.world.end(connection)
            connection.closed = True


class _Http2:
    """A connection of HTTP/2 at its server. left: bytes of a reply until another reply's turn."""

    def __init__(self, server: Server, connection: Socket, layer: Clear) -> None:
        self._server, self._connection, self._layer = server, connection, layer
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self._protocol = protocol = h2.connection.H2Connection(config)
        window, connection_window, streams = server.replies.granted
        codes = h2.settings.SettingCodes
        # A client may use the initial window before it receives a smaller one.
        values = {
            codes.INITIAL_WINDOW_SIZE: max(window, _WINDOW),
            codes.MAX_CONCURRENT_STREAMS: min(streams, _MOST_STREAMS),
        }
        protocol.local_settings = h2.settings.Settings(client=False, initial_values=values)
        protocol.initiate_connection()
        protocol.clear_outbound_data_buffer()
        defaults = _WINDOW, _MOST_STREAMS
        changed = {code: value for (code, value), usual in zip(values.items(), defaults, strict=True) if value != usual}
        self._opening = _frame(_SETTINGS, b"".join(struct.pack(">HI", *each) for each in changed.items()))
        if connection_window > _WINDOW:
            protocol.increment_flow_control_window(connection_window - _WINDOW)
        self._before = b""
        """Frames that precede the next ones in their packet."""
        self._in, self._rest, self._flags = bytearray(), 0, b""
        """Received bytes without a complete frame, and of a DATA frame: missing bytes, flags and stream."""
        self._names: dict[int, str] = {}
        self._bodies: dict[int, bytearray] = {}
        self._ends: dict[int, bool] = {}
        """By stream with a complete body: whether the end of the stream is a separate frame."""
        self._left = self._turn = _TURN
        self._is_grpc = server.replies.stream == "grpc"
        self._heads, self._frames = bytearray(), bytearray()
        connection.on_room = self._write

    def received(self, data: bytes) -> None:
        """Process bytes of the client."""
        if data.startswith(_MAGIC):
            world = self._server.world
            world.at(world.now_ns + self._server.replies.opening_ns, self._open)
        for event in self._protocol.receive_data(self._divide(data)):
            match event:
                case h2.events.RequestReceived():
                    self._names[event.stream_id] = str(dict(event.headers)[REQUEST_HEADER.lower()])  # type: ignore[index]
                case h2.events.DataReceived():
                    self._protocol.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case h2.events.StreamEnded():
                    answer = partial(self._answer, event.stream_id)
                    self._server.answer_later(self._connection, self._names.pop(event.stream_id), answer)
        self._write()

    def _open(self) -> None:
        """Write the server's first frames in packets of the sizes in the profile. The rest precedes the next frame."""
        if not self._opening:
            return
        data, sizes = self._opening + self._protocol.data_to_send(), self._server.replies.opening
        missing = sum(sizes) - len(data)
        data += _frame(_UNKNOWN, bytes(missing - _FRAME)) if missing >= _FRAME else b""
        self._opening = b""
        for size in sizes[:-1] if sizes else [len(data)]:
            self._connection.send(self._layer.encode(data[:size]))
            data = data[size:]
        self._before = data
        self._write()

    def _divide(self, data: bytes) -> bytes:
        """Return received frames. A DATA frame that arrives in parts becomes several: servers grant windows for bytes,
        not for frames."""
        self._in += data
        found = bytearray()
        if self._in.startswith(_MAGIC):
            found += self._take(len(_MAGIC))
        while True:
            if not self._rest:
                size, is_data = _FRAME + int.from_bytes(self._in[:3]), self._in[3:4] == _DATA
                if len(self._in) < (_FRAME if is_data else size):
                    break
                if not is_data or size == _FRAME:
                    found += self._take(size)
                    continue
                self._rest, self._flags = size - _FRAME, self._take(_FRAME)[4:]
            if not (part := self._take(self._rest)):
                break
            self._rest -= len(part)
            flags = self._flags[0] & ~_END_STREAM if self._rest else self._flags[0]
            found += len(part).to_bytes(3) + _DATA + bytes([flags]) + self._flags[1:] + part
        return bytes(found)

    def _take(self, size: int) -> bytes:
        """Return and remove the first received bytes."""
        data = bytes(self._in[:size])
        del self._in[:size]
        return data

    def _answer(self, stream: int, sample: Sample) -> None:
        self._open()
        replies = self._server.replies
        self._turn = sample.get("turn") or _TURN
        pieces = replies.pieces(sample)
        headers: list[Any] = [(":status", str(sample["code"]))]
        if self._is_grpc:
            headers.append(("content-type", "application/grpc"))
        elif replies.stream is None:
            headers.append(("content-length", str(sample["bytes_down"])))
            ends_alone = sample.get("tail") == _FRAME
            begins_alone = sample["head"] < min(_SEGMENT, sample["wire_down"] - _FRAME * ends_alone)
            if begins_alone and sample["head"] >= _LEAST_HEADERS:
                headers.append(NeverIndexedHeaderTuple("x", "X" * (sample["head"] - _LEAST_HEADERS)))
            pieces = [(_WRITING_NS * begins_alone, data) for _, data in pieces] + [(_WRITING_NS, b"")] * ends_alone
        self._protocol.send_headers(stream, headers, end_stream=not pieces and not self._is_grpc)
        if pieces or self._is_grpc:
            self._bodies[stream] = bytearray()

            def add(data: bytes, last: bool) -> None:
                self._bodies[stream] += data
                if last:
                    self._ends[stream] = sample.get("last") == 0
                self._write()

            self._server.write(self._connection, pieces or [(0, b"")], add)
        self._write()

    def _write(self) -> None:
        """Write to the socket while it has room: heads before bodies, and bodies in turns."""
        heads, frames, data = self._heads, self._frames, bytearray()
        if self._opening:
            return
        if more := self._protocol.data_to_send():
            heads.extend(self._before + more)
            self._before = b""
        while (room := self._connection.room(_LEAST_BUFFERED) - len(data)) > 0:
            if heads and not frames:
                frames.extend(self._layer.encode(bytes(heads)))
                heads.clear()
            elif not frames:
                self._frame_bodies(room)
            if not frames:  # the client's windows are full, or the server has written no more
                break
            data += frames[:room]
            del frames[:room]
        self._connection.send(data)
        if room <= 0 and (heads or frames or self._bodies):
            self._connection.want_room()

    def _frame_bodies(self, room: int) -> None:
        """Frame bodies into the room, at most to the end of a turn: a client receives a write only when complete."""
        protocol, found = self._protocol, bytearray()
        for stream in list(self._bodies):
            body, begin = self._bodies[stream], len(found)
            ended = self._frame(stream, body, room, found)
            if body and self._left and len(found) >= room:
                break
            sent = len(found) > begin
            if not body and stream in self._ends and not (sent and self._ends[stream]):
                if not ended:
                    self._end(stream)
                    found += protocol.data_to_send()
                del self._bodies[stream]
            elif sent:
                self._bodies[stream] = self._bodies.pop(stream)
            else:  # its window is closed, or the server has written no more
                continue
            self._left = self._turn
            break
        self._frames.extend(self._layer.encode(bytes(found)) if found else b"")

    def _frame(self, stream: int, body: bytearray, room: int, found: bytearray) -> bool:
        """Frame the body of a reply, limited by turn, room and windows; return whether the stream has ended."""
        protocol, ended = self._protocol, False
        while body and self._left and len(found) < room:
            if (window := protocol.local_flow_control_window(stream)) <= 0:
                break
            size = min(window, protocol.max_outbound_frame_size, self._left, len(body))
            ended = size == len(body) and self._ends.get(stream) is False and not self._is_grpc
            protocol.send_data(stream, bytes(body[:size]), end_stream=ended)
            del body[:size]
            self._left -= size
            found += protocol.data_to_send()
        return ended

    def _end(self, stream: int) -> None:
        """End a reply after its body."""
        if self._is_grpc:
            self._protocol.send_headers(stream, [("grpc-status", "0")], end_stream=True)
        else:
            self._protocol.end_stream(stream)


def _samples(
    application: Mapping[str, Any], requests: pl.DataFrame, messages: pl.DataFrame, packets: Packets
) -> list[dict[str, Any]]:
    import polars as pl

    log = packets(requests["remote_port"].drop_nulls().unique().to_list())
    known = _mark_first(answered(requests))
    heads, found = _heads(log), _alone(known)
    kept = "order" in found.columns and bool(found["order"].max())
    services = application.get("services") or ()
    of_reply = messages.group_by("endpoint", "request").agg(
        messages=pl.struct("message", "bytes", "server_s").sort_by("message")
    )
    found = found.join(of_reply, on=["endpoint", "request"], how="left", maintain_order="left")
    nagle = "tls_downlink_end" not in found.columns and _waits(found, heads, log)
    of_server: dict[str, Any] = {"turn": _turn(requests), "nagle": nagle, "kept": kept, "ordered": _is_ordered(known)}
    each = [_each(known, *work) for work in _WORK]
    of_server |= {"each": [taken for taken, _ in each], "together": each[0][1], "idle": _idle(requests, log)}
    openings = dict[tuple[int, int], tuple[int, ...]]()
    if "most_streams" in found.columns:
        of_server["granted"] = found.select(pl.col("stream_window", "connection_window", "most_streams").max()).row(0)
        openings, opening_ns = _openings(requests, log)
        of_server["opening"] = max(counted, key=counted.__getitem__) if (counted := Counter(openings.values())) else ()
        of_server["opening_ns"] = opening_ns
    if nagle:  # apparent pauses of the server are the wait for a probe in place of an acknowledgement
        found = found.with_columns(part_server_pauses=pl.lit(0.0))
    heads |= {key: heads[key] - before for key, (*_, before) in openings.items() if key in heads}
    samples = [_sample(row, heads, services) for row in found.iter_rows(named=True)]
    return [sample | of_server for sample in samples if sample is not None]


def _turn(requests: pl.DataFrame) -> int:
    """Return the bytes of an HTTP/2 reply that a server sends before it turns to another: the median size of partial
    replies; if all replies came whole, at least the largest one."""
    known = requests.drop_nulls("turn").select("turn", "bytes_down").rows() if "turn" in requests.columns else []
    pieces: list[int] = sorted(turn for turn, size in known if turn < size)
    return pieces[len(pieces) // 2] if pieces else max([_TURN, *(turn for turn, _ in known)])


def _is_ordered(requests: pl.DataFrame) -> bool:
    """Return whether replies to simultaneous requests of a connection nearly always begin in the order of requests."""
    import polars as pl

    came, began = pl.col("uplink_left_ns"), pl.col("downlink_entered_ns")
    before = began.shift(1).over("endpoint", "local_port", order_by="uplink_left_ns")
    share: Any = requests.filter(before > came).select((began >= before).mean()).item()
    return share is None or share > 0.9


def _idle(requests: pl.DataFrame, packets: Any) -> int | None:
    """Return the idle time until a server closes a connection, ns. It is the minimum time from the last reply to
    a packet without payload (in a prediction, with one byte) that left before a lost request came."""
    import polars as pl

    closed, found = pl.col("error").str.starts_with("the server closed the connection"), list[int]()
    for port, came_ns in requests.filter(closed).select("local_port", "uplink_left_ns").drop_nulls().rows():
        last_ns: Any = requests.filter(local_port=port)["downlink_completed_ns"].max() or came_ns
        own = packets["arrived"][(packets["destination_port"] == port) & (packets["payload"] <= 1)]
        found += (own[(own > last_ns + SECOND) & (own < came_ns)] - last_ns).tolist()
    return min(found, default=None)


def _waits(requests: pl.DataFrame, heads: Mapping[tuple[int, int], int], packets: Any) -> bool:
    """Return whether the server has left Nagle's algorithm on: for most replies with a header in a separate packet, the
    end followed the acknowledgement of this packet."""
    import numpy as np

    back = packets[(packets["payload"] == 0) & (packets["drop"] == 0)]
    back = back[np.lexsort((back["observed"], back["packet"]))]
    first = np.flatnonzero(np.r_[True, back["packet"][1:] != back["packet"][:-1]])[: len(back)]
    came = back["observed"][np.r_[first, len(back)][1:] - 1]
    order = np.argsort(came)
    came, sent, ports = came[order], back["arrived"][first][order], back["source_port"][first][order]
    found = []
    for row in requests.iter_rows(named=True):
        begin_ns, end_ns = row["downlink_entered_ns"], row["downlink_completed_ns"]
        size = (row["downlink_end"] or 0) - (row["downlink_start"] or 0)
        if heads.get((row["local_port"], begin_ns), size) < min(_SEGMENT, size) and row["downlink_resent_ns"] == 0:
            recent = slice(*np.searchsorted(came, (end_ns - _AT_ONCE_NS, end_ns), side="right"))
            own = (ports[recent] == row["local_port"]) & (sent[recent] >= begin_ns + row["downlink_delayed_ns"])
            found.append(bool(own.any()))
    return 2 * sum(found) > len(found)


def _alone(requests: pl.DataFrame) -> pl.DataFrame:
    """Return the requests without work for others in their times: sent after all earlier replies of the connection, and
    alone at their server; also requests of cold programs. If these are too few, return all."""
    import polars as pl

    before = pl.col("reply_ns").cum_max().shift(1).over("endpoint", "local_port", order_by="sent_ns")
    alone = (before <= pl.col("sent_ns")).fill_null(value=True) & (pl.len().over("server", "batch") == 1)
    found = requests.filter(alone | pl.col("cold").is_not_null() | pl.col("first"))
    return found if len(found) >= FEWEST else requests


def _mark_first(requests: pl.DataFrame) -> pl.DataFrame:
    """Add the columns ``first``: first request of its endpoint; ``batch``; and ``cold``: for requests that reached
    their server before its first reply left, their number."""
    import polars as pl

    arrived = pl.col("uplink_left_ns")
    is_cold = arrived <= pl.col("downlink_entered_ns").min().over("server")
    first = pl.col("request") == pl.col("request").min().over("endpoint")
    cold = pl.when(is_cold).then(arrived.rank("ordinal").over("server") - 1)
    return requests.with_columns(_batch("uplink_left_ns", "server"), first=first, cold=cold)


def _each(requests: pl.DataFrame, begin: str, end: str, node: str) -> tuple[int, bool]:
    """Return the time that a node takes for each further simultaneous request, ns: until the last one ends, beyond the
    median of single requests; 0 if there are few. Also return whether all end together. begin, end: columns of arrival
    and end of processing."""
    import polars as pl

    warm = requests.filter(pl.col("cold").is_null()).drop_nulls([begin, end])
    found = warm.group_by(node, _batch(begin, node)).agg(
        more=pl.len() - 1, first=pl.col(end).min() - pl.col(begin).max(), last=pl.col(end).max() - pl.col(begin).max()
    )
    single = found.filter(more=0)["last"].median() or 0
    several = found.filter(pl.col("more") > 0)
    count, waited, taken = several.select(pl.col("more").sum(), (pl.col("first", "last") - single).sum()).row(0)
    return (round(taken / count), waited > 0.9 * taken) if count >= FEWEST and taken > 0 else (0, False)


def _batch(begin: str, node: str) -> pl.Expr:
    """Return the number of each request's batch, a group of simultaneous requests at a node. begin: arrival column."""
    import polars as pl

    is_new = (pl.col(begin).diff() > TURNAROUND_NS).fill_null(value=True)
    return is_new.cum_sum().over(node, order_by=begin).alias("batch")


def _heads(packets: Any) -> dict[tuple[int, int], int]:
    """Return the payload of packets by destination port and time of entry: the packets that begin replies. Of segments
    that entered together, the first counts."""
    packets = packets[packets["payload"] > 0][::-1]
    keys = zip(packets["destination_port"].tolist(), packets["arrived"].tolist(), strict=True)
    return dict(zip(keys, packets["payload"].tolist(), strict=True))


def _openings(requests: pl.DataFrame, packets: Any) -> tuple[dict[tuple[int, int], tuple[int, ...]], int]:
    """Return what a server sends over a connection before its first reply, and when.

    First: sizes of the packets before the reply, and the bytes before the reply in the packet that begins it, by port
    and time of entry of this packet. Second: the median time from the client's first bytes to the server's, ns.
    """
    import polars as pl

    found, times = dict[tuple[int, int], tuple[int, ...]](), list[int]()
    columns = "local_port", "downlink_entered_ns", "downlink_start"
    packets = packets[(packets["payload"] > 0) & (packets["drop"] == 0)]
    for port, begin_ns, start in requests.filter(pl.col("order") == 0).select(columns).drop_nulls().rows():
        own = packets[(packets["destination_port"] == port) & (packets["arrived"] < begin_ns)]
        sizes = dict(zip(own["tcp_sequence"].tolist(), own["payload"].tolist(), strict=True)).values()
        if not 0 <= (before := start - sum(sizes)) < _SEGMENT:
            continue
        found[port, begin_ns] = *sizes, before
        first = packets[packets["source_port"] == port]
        came_ns = first["observed"][first["packet"] == first["packet"][:1]].max(initial=0)
        times.append(max(0, own["arrived"].min(initial=begin_ns) - came_ns - TURNAROUND_NS))
    return found, int(statistics.median_low(times)) if times else 0


def _sample(
    row: Mapping[str, Any], heads: Mapping[tuple[int, int], int], services: Sequence[str]
) -> dict[str, Any] | None:
    """Return the sample of a request; None if one of its parts is unknown. services: spans of its server."""
    if row.get("part_server") is None or row.get("downlink_end") is None:
        return None
    known = {"generator": row.get("part_generator"), "receive": row.get("part_endpoint_receive")}
    parts: dict[str, Any] = {name: nanoseconds(span) for name, span in known.items() if span is not None}
    # TCP processing beyond the time that the network counts for a packet.
    parts["generator"] += max(0, nanoseconds(row.get("part_endpoint_stack")) - TURNAROUND_NS)
    spans = {part: row.get(f"part_{SERVICE}{part}") for part in services}
    parts["services"] = {name: nanoseconds(span) for name, span in spans.items() if span}
    before, pauses = nanoseconds(row["part_server"]) + sum(parts["services"].values()), row["part_server_pauses"]
    wire = row["downlink_end"] - row["downlink_start"]
    if (messages := row.get("messages")) is None:
        # A reply in pieces is predicted as one, at the time of the last piece.
        parts["server"] = before + nanoseconds(pauses)
    else:
        later = [nanoseconds(each["server_s"]) for each in messages]
        first = max(0, nanoseconds(pauses) - sum(later))
        sizes = [each["bytes"] for each in messages]
        parts |= {"server": before, "messages": list(zip([first, *later[1:]], sizes, strict=True))}
    head = heads.get((row["local_port"], row["downlink_entered_ns"]), wire)
    answer = {"code": row["code"], "bytes_down": row["bytes_down"], "wire_down": wire, "head": head}
    request = {"bytes_up": row["bytes_up"] or 0, "input": row.get("step")}
    parts |= {"cold": row["cold"]} if row["cold"] is not None else {}
    parts |= {"first": row["endpoint"]} if row["first"] else {}
    if row.get("last") is not None:
        answer |= {"last": row["last"], "tail": heads.get((row["local_port"], row["downlink_completed_ns"]))}
    if row.get("taken") is not None:
        request["taken"] = json.loads(row["taken"])
    if row.get("tls_downlink_end") is not None:
        tickets = max(0, row["downlink_start"] - row["tls_downlink_end"])
        work_ns = nanoseconds(row.get("part_connect_remote"))
        request["handshake"] = row["tls_uplink_end"], row["tls_downlink_end"], tickets, work_ns
    return parts | answer | request


class _Http(Model):
    """Servers that answer as measured."""

    moves = True
    sampling = Sampling(
        _samples, frozenset(_KEYS), f"{_RATE} /s", files=("body_file",), load=("connections",), arrivals=_arrivals
    )

    def problems(self, each: Deployment, deployments: Sequence[Deployment], plan: Plan) -> Iterator[str]:
        yield from strangers(kind.settings, each, plan)

    def loads(self, each: Deployment, setting: Setting) -> Iterator[Client]:
        secured = each.table.url.startswith("https:")
        handshake = Handshake.of(setting.samples[each.name]) if secured else None
        stream = each.table.stream if each.table.grpc is None else "grpc"
        known = setting.samples[each.name][0]
        replies = Replies(
            setting.draw(each),
            each.table.version,
            stream,
            handshake,
            known.get("granted", _GRANTED),
            known.get("opening", ()) if not secured else (),
            known.get("opening_ns", 0),
        )
        all_settings = setting.clients(each, kind.settings, Settings)
        for host, port, record in listening(all_settings, each, setting):
            setting.world.listen(host, port, Server(setting.world, replies, record), each.name, alone=False)
        for node, settings in zip(each.clients, all_settings, strict=True):
            load = replies.loads[node.name] = _Load(settings, handshake)
            yield Client(setting.world, setting.world.hosts[node.name], load, each, replies.draw)


VIRTUAL = _Http()
