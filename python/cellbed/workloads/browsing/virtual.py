"""A browser and its servers in virtual time: HTTP/1.1 and HTTP/2 over TLS 1.3, with the right lengths only.

The servers reply like nginx with Chromium's priorities: over HTTP/2, the most important requested files come first.
Constant lengths and times come from packets between Chromium 156 and nginx 1.22.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from cellbed.workloads.virtual.tls import LARGEST, OVERHEAD
from cellbed.workloads.virtual.world import Program, Socket, World
from cellbed_node import machine
from cellbed_node.browsing.objects import Object

MOST_CONNECTIONS = 6
"""Maximum connections of a browser to an origin over HTTP/1.1."""
MOST_DELAYABLE, DELAYABLE = 10, 2
"""HTTP/1.1: maximum number of pending requests of rank ``DELAYABLE`` or higher, and this rank (Chromium:
``kMaxNumDelayableRequestsPerClient``)."""
_HELLO, _FLIGHT, _FINISHED, _TICKETS = 1990, 913, 80, 574
"""Bytes of a handshake: Chromium's hello, the server's flight with one certificate, the browser's end, two tickets."""
_HANDSHAKE_NS, _REPLY_NS = 800_000, 150_000
"""Processor time of nginx for a handshake, and for a request of a file."""
_PREFACE = 76
"""Bytes that a browser sends before its first request over HTTP/2 (RFC 9113, §3.4)."""
_FIRST_REQUEST, _REQUEST, _HEAD = {"1.1": 560, "2": 413}, {"1.1": 560, "2": 65}, {"1.1": 320, "2": 95}
"""Bytes by version of HTTP: first request of a connection, later requests, and head of a reply. HTTP/2 compresses
headers (RFC 7541)."""
_FRAME, _FRAME_HEADER = 8 << 10, 9
"""Bytes of a DATA frame of nginx (``http2_chunk_size``) and of its header."""
_LEAST_BUFFERED = 16 << 10
"""Minimum capacity of a send buffer, bytes (``tcp_wmem``)."""


class _Way:
    """One direction of a connection: calls that are due when a number of its bytes have arrived."""

    def __init__(self, sender: Socket) -> None:
        self._sender = sender
        self.sent = self._arrived = 0
        self._due: deque[tuple[int, Callable[[], None]]] = deque()

    def write(self, size: int, arrived: Callable[[], None] = lambda: None) -> None:
        self.sent += size
        self._due.append((self.sent, arrived))
        self._sender.send(bytes(size))

    def take(self, size: int) -> None:
        self._arrived += size
        while self._due and self._due[0][0] <= self._arrived:
            self._due.popleft()[1]()


@dataclass(slots=True)
class Fetch:
    """A request of a file. made: its record. size: bytes of the file; rank: lower ranks are served first. arrived:
    called with the connection and the arrived bytes after each TLS record. left: bytes still to be sent."""

    made: Object
    size: int
    rank: int
    arrived: Callable[[Wire, int], None]
    left: int = 0


class Wire:
    """A connection of a browser to a server of files."""

    def __init__(self, files: Files, client: Socket, server: Socket) -> None:
        self.client, self.begun_ns, self.first = client, machine.now_ns(), True
        self.up, self.down = _Way(client), _Way(server)
        self._files, self._server = files, server
        self._replies: list[tuple[int, int, Fetch]] = []
        server.on_room = self._reply

    def open(self, ready: Callable[[], None]) -> None:
        """Begin with a handshake. ready: called when the handshake is complete at the browser."""
        flight = lambda: self.down.write(_FLIGHT, ready)  # noqa: E731
        self.up.write(_HELLO, lambda: self._later(_HANDSHAKE_NS, flight))

    def ask(self, fetch: Fetch) -> None:
        """Request a file."""
        made, version = fetch.made, self._files.version
        made.local_port, made.remote_port = self.client.getsockname()[1], self.client.getpeername()[1]
        made.sent_ns = made.opening_ns = made.accepted_ns = machine.now_ns()
        made.buffer_full_ns = 0
        size = (_FIRST_REQUEST if self.first else _REQUEST)[version]
        if self.first:
            self.first = False
            made.opening_ns = max(self.begun_ns, made.started_ns or 0)
            made.tls_uplink_end, made.tls_downlink_end = _HELLO, _FLIGHT
            self.up.write(_FINISHED + (_PREFACE if version == "2" else 0), lambda: self.down.write(_TICKETS))
        made.uplink_start = self.up.sent
        self.up.write(size, lambda: self._later(_REPLY_NS, lambda: self._begin(fetch)))
        made.uplink_end = self.up.sent

    def _later(self, work_ns: int, call: Callable[[], None]) -> None:
        world = self._files.world
        world.at(self._server.host.processors.run(world.now_ns, work_ns), call)

    def _begin(self, fetch: Fetch) -> None:
        fetch.left = _HEAD[self._files.version] + fetch.size
        fetch.made.bytes_down = fetch.left
        order = fetch.rank if self._files.version == "2" else 0
        heapq.heappush(self._replies, (order, next(self._files.numbers), fetch))
        self._reply()

    def _reply(self) -> None:
        """Write records of replies while the send buffer has room, the most important first."""
        while self._replies:
            if self._server.room(_LEAST_BUFFERED) <= 0:
                self._server.want_room()
                return
            fetch = self._replies[0][-1]
            content = min(fetch.left, LARGEST)
            fetch.left -= content
            if not fetch.left:
                heapq.heappop(self._replies)
            made, frames = fetch.made, -(-content // _FRAME) if self._files.version == "2" else 0
            if made.downlink_start is None:
                made.downlink_start = self.down.sent
            arrived = partial(self._arrived, fetch, made.bytes_down - fetch.left)
            self.down.write(content + frames * _FRAME_HEADER + OVERHEAD, arrived)
            made.downlink_end = self.down.sent

    def _arrived(self, fetch: Fetch, size: int) -> None:
        made, now_ns = fetch.made, self._files.world.now_ns
        made.first_byte_ns = made.first_byte_ns or now_ns
        if size == made.bytes_down:
            made.reply_ns, made.status, made.code = now_ns, "ok", 200
        fetch.arrived(self, size)


class Files:
    """The servers of files of an application. version: HTTP version."""

    def __init__(self, world: World, version: str) -> None:
        self.world, self.version = world, version
        self.numbers = itertools.count()
        self._wires: dict[Socket, Wire] = {}

    def accepted(self, connection: Socket) -> Callable[[bytes], None]:
        assert connection.peer is not None
        wire = self._wires[connection.peer] = Wire(self, connection.peer, connection)
        return lambda data: wire.up.take(len(data))

    def connect(self, address: str, port: int) -> Wire:
        """Open a connection for the current program."""
        return self._wires.pop(self.world.connect(address, port))


@dataclass(slots=True)
class _Pool:
    """The connections to an origin, and the waiting requests. opening: number of connections that are opening."""

    wires: list[Wire] = field(default_factory=list)
    idle: list[Wire] = field(default_factory=list)
    opening: int = 0
    waiting: list[tuple[int, int, Fetch]] = field(default_factory=list)


class Browser:
    """A browser with an empty cache and without connections. It requests files.

    A program processes the contents, one after the other.
    """

    def __init__(self, files: Files, program: Program) -> None:
        self._files, self.program = files, program
        self._multiplexes = files.version == "2"
        self._pools: dict[tuple[str, int, bool], _Pool] = {}
        self._delayed: list[tuple[int, int, Callable[[], None]]] = []
        self._delayable = 0
        self._closed = False

    def fetch(
        self, made: Object, size: int, rank: int, server: tuple[str, int], arrived: Callable[[bool, int], None], *,
        anonymous: bool = False,
    ) -> None:  # fmt: skip
        """Request a file, in the program. made: its record, which is filled in. size, rank: see :class:`Fetch`.
        arrived: called in the program with whether the file is complete, and its arrived bytes. anonymous: use
        connections without credentials, as browsers do for fonts of other origins."""
        head, delayable = _HEAD[self._files.version], rank >= DELAYABLE and not self._multiplexes
        pool = self._pools.setdefault((*server, anonymous), _Pool())
        made.protocol = "h2" if self._multiplexes else "http/1.1"

        def come(wire: Wire, so_far: int) -> None:
            whole = so_far == size + head
            if whole and not self._multiplexes:
                self._files.world.current = None
                self._delayable -= delayable
                self._ask(pool, wire)
            self.program.call(lambda: arrived(whole, so_far - head))
            if whole and not self._multiplexes:
                self.program.call(self._release)

        def begin() -> None:
            if self._closed:
                return
            self._delayable += delayable
            made.started_ns = machine.now_ns()
            heapq.heappush(pool.waiting, (rank, next(self._files.numbers), Fetch(made, size, rank, come)))
            self._assign(pool, server)

        if delayable:
            heapq.heappush(self._delayed, (rank, next(self._files.numbers), begin))
            self._release()
        else:
            begin()

    def _release(self) -> None:
        while self._delayed and self._delayable < MOST_DELAYABLE:
            heapq.heappop(self._delayed)[-1]()

    def _assign(self, pool: _Pool, server: tuple[str, int]) -> None:
        """Send waiting requests over free connections, and open missing connections."""
        while pool.waiting and pool.idle:
            self._ask(pool, pool.idle.pop())
        most = 1 if self._multiplexes else MOST_CONNECTIONS
        while pool.opening < len(pool.waiting) and len(pool.wires) < most:
            wire = self._files.connect(*server)
            pool.wires.append(wire)
            pool.opening += 1
            wire.client.on_event = partial(self._handle_event, pool, wire)

    def _handle_event(self, pool: _Pool, wire: Wire) -> None:
        def ready() -> None:
            pool.opening -= 1
            self._ask(pool, wire)

        if not wire.up.sent:
            wire.open(ready)
        elif size := len(wire.client.buffer):
            wire.client.buffer.clear()
            wire.down.take(size)

    def _ask(self, pool: _Pool, wire: Wire) -> None:
        """Request the next file over a connection; over HTTP/2, all waiting files."""
        while pool.waiting:
            wire.ask(heapq.heappop(pool.waiting)[-1])
            if not self._multiplexes:
                return
        pool.idle.append(wire)

    def close(self) -> None:
        """Close all connections at once, and open no more."""
        self._closed = True
        for wire in [wire for pool in self._pools.values() for wire in pool.wires]:
            wire.client.on_event = lambda: None
            if wire.client.number is not None:
                wire.client.abort()
