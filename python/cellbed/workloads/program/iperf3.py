"""``iperf3`` in virtual time: its control connection and its streams over TCP, as of version 3.12.

The client opens the control connection and sends a cookie; both sides exchange states of one byte, parameters and
results. Each stream is a connection that begins with the cookie. When the client ends the test, the server closes its
streams at once, and what was on the way to them is answered with resets. Only the lengths of these messages have a
model.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from cellbed.workloads.virtual.world import Program, SendBuffer, Socket, World

PORT = 5201
_STATE, _COOKIE, _PARAMETERS = 1, 37, 140
"""Lengths of messages: states, the cookie, and the parameters of a test."""
_RESULTS, _RESULTS_OF_STREAM = 178, 106
"""Lengths of the results of a side, without and for each stream."""
_TICK_NS = 1_000_000
"""Between two looks at what has been downloaded."""
_UNLIMITED = 1 << 62

Steps = Generator[Callable[[], bool], None, int]
"""A program that waits for conditions and returns its exit status."""


@dataclass(frozen=True, slots=True)
class Options:
    """Of the client's command line. size: bytes to send, instead of for a time. block: bytes of a write."""

    target: str
    port: int
    time_ns: int
    size: int | None
    reverse: bool
    streams: int
    block: int


@dataclass(slots=True)
class _Budget:
    """Bytes that the streams of a test may still send. spent: called when none are left."""

    left: int
    spent: Callable[[], None]


class _Stream:
    """A connection with data of the test."""

    def __init__(self, socket: Socket, options: Options, budget: _Budget) -> None:
        assert socket.peer is not None
        self.client, self.server = socket, socket.peer
        self._sender = self.server if options.reverse else self.client
        self._block, self._budget = options.block, budget
        self._buffer = SendBuffer(self._sender, self._block)
        self._stopped = False
        self._sender.on_room = self.start

    @property
    def downloaded(self) -> int:
        """Bytes that have arrived at the client."""
        return self.client.transferred()[1]

    def start(self) -> None:
        """Write until the send buffer is full, and again when it has room."""
        if self._stopped:
            return
        room = self._buffer.room()
        while room > 0 and self._budget.left > 0:
            self._sender.pump(self._block)
            room -= self._block
            self._budget.left -= self._block
        if self._budget.left > 0:
            self._buffer.want_room()
        else:
            self._budget.spent()

    def stop(self) -> None:
        """Send no more."""
        self._stopped = True

    def close(self, *, at_client: bool) -> None:
        """Close one end."""
        (self.client if at_client else self.server).abort()


class Server:
    """A server: one test at a time. Its clients run both sides of a test."""

    busy = False

    def accepted(self, connection: Socket) -> Callable[[bytes], None]:
        """See :class:`~cellbed.workloads.virtual.world.Server`; the client takes over what arrives."""
        return lambda _: None


class Client:
    """One start of a client, with what its server does for it. output: gets the reason of a failure. ended: gets its
    exit status."""

    def __init__(
        self,
        world: World,
        program: Program,
        options: Options,
        output: Callable[[str], object],
        ended: Callable[[int], None],
    ) -> None:
        self._world, self._program, self._options = world, program, options
        self._output, self._ended = output, ended
        self._steps = self._run()
        self._until: Callable[[], bool] | None = lambda: True
        self._is_busy = False
        self._server: Server | None = None
        self._control: Socket | None = None
        self._streams: list[_Stream] = []
        most = _UNLIMITED if options.size is None or options.reverse else options.size
        self._budget = _Budget(most, self._happened)

    def begin(self) -> None:
        """Connect to the server."""
        self._happened()

    def terminate(self) -> int:
        """End it by SIGTERM: its exit status."""
        self._until = None
        if self._control is not None and self._control.peer is not None:
            self._control.peer.on_event = self._end_at_server
            self._control.send(bytes(_STATE))
        for stream in self._streams:
            if not self._options.reverse:
                stream.stop()
            stream.close(at_client=True)
        return 1

    def _end_at_server(self) -> None:
        """The server has got the end of the test."""
        for stream in self._streams:
            stream.stop()
            if not self._options.reverse:
                stream.close(at_client=False)
        self._free_server()

    def _free_server(self) -> None:
        if self._server is not None:
            self._server.busy = False

    def _happened(self) -> None:
        self._program.call(self._go_on)

    def _go_on(self) -> None:
        """Take all steps whose condition holds."""
        if self._is_busy:
            return  # called by a step, after which conditions are checked
        self._is_busy = True
        while self._until is not None and self._until():
            try:
                self._until = next(self._steps)
            except StopIteration as end:
                self._until = None
                self._ended(end.value)
        self._is_busy = False

    def _connect(self) -> Generator[Callable[[], bool], None, Socket]:
        socket = self._world.connect(self._world.address_of(self._options.target), self._options.port)
        assert socket.peer is not None
        socket.on_event = socket.peer.on_event = self._happened
        yield lambda: socket.connected
        return socket

    def _arrival(self, receiver: Socket, size: int) -> Generator[Callable[[], bool], None, None]:
        yield lambda: len(receiver.buffer) >= size
        del receiver.buffer[:size]

    def _exchange(self, sender: Socket, size: int) -> Generator[Callable[[], bool], None, None]:
        """Send a message from one end of the control connection; wait until it is at the other."""
        assert sender.peer is not None
        sender.send(bytes(size))
        yield from self._arrival(sender.peer, size)

    def _run(self) -> Steps:
        world, options = self._world, self._options
        client = self._control = yield from self._connect()
        assert client.peer is not None
        at_server = client.peer
        yield from self._exchange(client, _COOKIE)
        server = world.server_at(client.peer_host, options.port)
        assert isinstance(server, Server)
        if server.busy:
            yield from self._exchange(at_server, _STATE)
            self._output("iperf3: error - the server is busy running a test. try again later")
            return 1
        self._server, server.busy = server, True
        yield from self._exchange(at_server, _STATE)
        yield from self._exchange(client, _PARAMETERS)
        yield from self._exchange(at_server, _STATE)
        yield from self._open()
        yield from self._arrival(client, 2 * _STATE)
        end_ns = world.now_ns + options.time_ns
        if not options.reverse:
            self._start()
        if options.size is None:
            world.at(end_ns, self._happened)
            yield lambda: world.now_ns >= end_ns
        elif not options.reverse:
            yield lambda: self._budget.left <= 0
        else:
            while sum(stream.downloaded for stream in self._streams) < options.size:
                due_ns = world.now_ns + _TICK_NS
                world.at(due_ns, self._happened)
                yield lambda: world.now_ns >= due_ns  # noqa: B023
        if not options.reverse:
            for stream in self._streams:
                stream.stop()
        yield from self._exchange(client, _STATE)
        results = _RESULTS + options.streams * _RESULTS_OF_STREAM
        for stream in self._streams:
            stream.stop()
            if not options.reverse:
                stream.close(at_client=False)
        yield from self._exchange(at_server, _STATE)
        yield from self._exchange(client, results)
        yield from self._exchange(at_server, results + _STATE)
        for stream in self._streams:
            stream.close(at_client=True)
        at_server.on_event = self._free_server
        client.send(bytes(_STATE))
        return 0

    def _start(self) -> None:
        for stream in self._streams:
            stream.start()

    def _start_at_server(self) -> None:
        assert self._control is not None
        assert self._control.peer is not None
        for _ in range(2):
            self._control.peer.send(bytes(_STATE))
        if self._options.reverse:
            self._start()

    def _open(self) -> Generator[Callable[[], bool], None, None]:
        for _ in range(self._options.streams):
            socket = yield from self._connect()
            socket.send(bytes(_COOKIE))
            self._streams.append(_Stream(socket, self._options, self._budget))
        for stream in self._streams:
            yield from self._arrival(stream.server, _COOKIE)
        self._start_at_server()
