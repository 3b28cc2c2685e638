"""``iperf3`` in virtual time: its control connection and its streams over TCP or UDP, as of version 3.12.

The client opens the control connection and sends a cookie; both sides exchange states of one byte and parameters in
JSON. Each stream is a connection that begins with the cookie, or for UDP a datagram of 4 bytes with its answer. When
the client ends the test, the server closes its streams at once, and what was on the way to them is answered with
resets.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cellbed.workloads.virtual.world import SECOND, Datagrams, Host, Program, SendBuffer, Socket, World

PORT = 5201
_START, _RUNNING, _END, _PARAMETERS, _STREAMS = 1, 2, 4, 9, 10
_TERMINATED, _RESULTS, _DISPLAY, _DONE, _DENIED = 12, 13, 14, 16, 255
_COOKIE = 37
LONGEST = _SEGMENT = 1448
_UDP_HEADERS = 28
_TICK_NS = 1_000_000
"""Between two decisions of a UDP sender whether to send."""
_UNLIMITED = 1 << 62

Steps = Generator[Callable[[], bool], None, int]
"""A program that waits for conditions and returns its exit status."""


@dataclass(frozen=True, slots=True)
class Options:
    """Of the client's command line. size: bytes to send, instead of for a time. block: bytes of a write or datagram.
    rate: of UDP, bit/s; ``None``: TCP."""

    target: str
    port: int
    time_ns: int
    size: int | None
    reverse: bool
    streams: int
    block: int
    rate: float | None

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that the client sends to the server."""
        found: dict[str, Any] = {"udp" if self.rate is not None else "tcp": True, "omit": 0}
        found |= {"time": 0 if self.size else self.time_ns // SECOND, "num": self.size or 0, "blockcount": 0}
        found |= {"parallel": self.streams} | ({"reverse": True} if self.reverse else {}) | {"len": self.block}
        found |= {"bandwidth": round(self.rate)} if self.rate is not None else {}
        return found | {"pacing_timer": 1000, "client_version": "3.12"}


class _Stream(Protocol):
    """One side's end of a stream. moved: bytes that the test has carried here."""

    @property
    def moved(self) -> int: ...
    def start(self) -> None:
        """Begin to send, at a sender."""

    def stop(self) -> None:
        """Send no more."""

    def close(self) -> None: ...


@dataclass(slots=True)
class _Budget:
    """Bytes that the streams of a test may still send."""

    left: int


class _Tcp:
    """See :class:`_Stream`. sending: whether this end sends. budget: how much the streams of the test may send."""

    def __init__(self, socket: Socket, *, sending: bool, block: int, budget: _Budget) -> None:
        self.socket, self.is_sender = socket, sending
        self._block, self._budget = block, budget
        self._written, self._buffer = 0, SendBuffer(socket, block)
        self._stopped = False
        self._first = 0 if socket.at_client else _COOKIE
        self.on_written: Callable[[], None] = lambda: None
        socket.on_room = self._fill

    @property
    def moved(self) -> int:
        return self._written if self.is_sender else max(0, self.socket.transferred()[1] - self._first)

    def start(self) -> None:
        if self.is_sender:
            self._fill()

    def stop(self) -> None:
        self._stopped = True

    def close(self) -> None:
        self.stop()
        self.socket.abort()

    def _fill(self) -> None:
        """Write until the send buffer is full."""
        if self._stopped:
            return
        room = self._buffer.room()
        while room > 0 and self._budget.left > 0:
            self.socket.pump(self._block)
            self._written, room = self._written + self._block, room - self._block
            self._budget.left -= self._block
        if self._budget.left > 0:
            self._buffer.want_room()
        else:
            self.on_written()


class _Udp:
    """See :class:`_Stream`. Datagrams from one host to another, of which each side has its counters."""

    def __init__(
        self,
        world: World,
        ends: tuple[tuple[Host, int], tuple[Host, int]],
        *,
        sending: bool,
        options: Options,
        budget: _Budget,
    ) -> None:
        self._world, self.ends, self.is_sender = world, ends, sending
        self._options, self._budget = options, budget
        self.sent = self.received = 0
        self._begun_ns = 0
        self._stopped = False
        self.peer: _Udp | None = None
        self._datagrams = Datagrams(world, icmp=False, arrived=self._arrived)
        self.on_written: Callable[[], None] = lambda: None

    @property
    def moved(self) -> int:
        return (self.sent if self.is_sender else self.received) * self._options.block

    def start(self) -> None:
        self._begun_ns = self._world.now_ns
        if self.is_sender:
            self._send()

    def stop(self) -> None:
        self._stopped = True

    close = stop

    def _send(self) -> None:
        assert self._options.rate is not None
        elapsed_ns = self._world.now_ns - self._begun_ns
        size = self._options.block
        due = self._options.rate * elapsed_ns
        while not self._stopped and self._budget.left > 0 and self.sent * size * 8 * SECOND <= due:
            self.sent += 1
            self._budget.left -= size
            self._datagrams.send(*self.ends, size + _UDP_HEADERS, self.sent)
        if self._budget.left <= 0:
            self.on_written()
        elif not self._stopped:
            due_ns = math.ceil(self.sent * size * 8 * SECOND / self._options.rate)
            due_ns = max(1, math.ceil(due_ns / _TICK_NS)) * _TICK_NS
            self._world.at(self._begun_ns + max(due_ns, elapsed_ns + _TICK_NS), self._send)

    def _arrived(self, _: int) -> None:
        if self.peer is not None and not self.peer._stopped:
            self.peer.received += 1


def _framed(content: object) -> bytes:
    text = json.dumps(content, separators=(",", ":")).encode()
    return len(text).to_bytes(4, "big") + text


def _results(streams: Sequence[_Stream], took_ns: int, *, sending: bool) -> dict[str, Any]:
    """Return what a side sends of its results; of counters that have no model, as many digits as the real ones have."""
    usage = {f"cpu_util_{which}": 0.1234567890123456 for which in ("total", "user", "system")}
    is_tcp = isinstance(streams[0], _Tcp)
    counters = {"jitter": 0, "errors": 0, "packets": 0} if is_tcp else {"jitter": 1e-4 / 3, "errors": 0, "packets": 100}
    rows = [
        {"id": 1 + number + bool(number), "bytes": stream.moved, "retransmits": 0 if is_tcp and sending else -1}
        | counters
        | {"start_time": 0, "end_time": round(took_ns / 1e9, 6)}
        for number, stream in enumerate(streams)
    ]
    more = {"congestion_used": "cubic"} if is_tcp else {}
    return usage | {"sender_has_retransmits": int(sending and is_tcp) or -1} | more | {"streams": rows}


class _Steps:
    """Runs a program's steps: again whenever something has happened."""

    def __init__(self, steps: Steps, ended: Callable[[int], None]) -> None:
        self._steps, self._ended = steps, ended
        self._until: Callable[[], bool] | None = lambda: True
        self._busy = False

    def go_on(self) -> None:
        """Take all steps whose condition holds."""
        if self._busy:
            return  # called by a step, after which conditions are checked
        self._busy = True
        while self._until is not None and self._until():
            try:
                self._until = next(self._steps)
            except StopIteration as end:
                self._until = None
                self._ended(end.value)
        self._busy = False

    def cancel(self) -> None:
        self._until = None


class Client:
    """One start of a client. output: gets the reason of a failure. ended: gets its exit status."""

    def __init__(
        self,
        world: World,
        program: Program,
        options: Options,
        output: Callable[[str], object],
        ended: Callable[[int], None],
    ) -> None:
        self._world, self._program, self._options, self._output = world, program, options, output
        self._steps = _Steps(self._life(), ended)
        self._inbox = bytearray()
        self._control: Socket | None = None
        self._streams: list[_Tcp | _Udp] = []
        self._budget = _Budget(_UNLIMITED if options.size is None or options.reverse else options.size)

    def begin(self) -> None:
        """Connect to the server."""
        self._happened()

    def terminate(self) -> int:
        """End it by SIGTERM: its exit status."""
        self._steps.cancel()
        if self._control is not None:
            self._control.send(bytes((_TERMINATED,)))
        for stream in self._streams:
            stream.close()
        return 1

    def _happened(self) -> None:
        self._program.call(self._steps.go_on)

    def _heard(self) -> None:
        assert self._control is not None
        self._inbox += self._control.buffer
        self._control.buffer.clear()
        self._happened()

    def _read(self, size: int) -> Generator[Callable[[], bool], None, bytes]:
        yield lambda: len(self._inbox) >= size
        data = bytes(self._inbox[:size])
        del self._inbox[:size]
        return data

    def _state(self) -> Generator[Callable[[], bool], None, int]:
        return (yield from self._read(1))[0]

    def _connected(self) -> Generator[Callable[[], bool], None, Socket]:
        socket = self._world.connect(self._world.address_of(self._options.target), self._options.port)
        socket.on_event = self._happened
        yield lambda: socket.connected
        return socket

    def _life(self) -> Steps:
        options = self._options
        control = self._control = yield from self._connected()
        control.on_event = self._heard
        key = f"{self._program.host.name}/{control.getsockname()[1]}"
        cookie = f"{random.Random(key).getrandbits(144):036x}".encode() + b"\0"
        control.send(cookie)
        if (yield from self._state()) == _DENIED:
            self._output("iperf3: error - the server is busy running a test. try again later")
            return 1
        control.send(_framed(options.parameters))
        yield from self._state()
        for _ in range(options.streams):
            yield from self._open_stream(cookie)
        yield from self._state()
        sending = not options.reverse
        begun_ns = self._world.now_ns
        yield from self._state()
        end_ns = self._world.now_ns + options.time_ns
        for stream in self._streams:
            stream.on_written = self._happened
            stream.start()
        if options.size is None:
            self._world.at(end_ns, self._happened)
            yield lambda: self._world.now_ns >= end_ns
        elif sending:
            yield lambda: self._budget.left <= 0
        else:
            while sum(stream.moved for stream in self._streams) < options.size:
                due_ns = self._world.now_ns + _TICK_NS
                self._world.at(due_ns, self._happened)
                yield lambda: self._world.now_ns >= due_ns  # noqa: B023
        took_ns = self._world.now_ns - begun_ns
        for stream in self._streams:
            stream.stop()
        control.send(bytes((_END,)))
        yield from self._state()
        control.send(_framed(_results(self._streams, took_ns, sending=sending)))
        length = int.from_bytes((yield from self._read(4)), "big")
        yield from self._read(length)
        yield from self._state()
        for stream in self._streams:
            stream.close()
        control.send(bytes((_DONE,)))
        return 0

    def _open_stream(self, cookie: bytes) -> Generator[Callable[[], bool], None, None]:
        options, sending = self._options, not self._options.reverse
        if options.rate is None:
            socket = yield from self._connected()
            socket.send(cookie)
            self._streams.append(_Tcp(socket, sending=sending, block=options.block, budget=self._budget))
            return
        here = (self._program.host, next(self._program.host.ports))
        server = self._control.peer_host if self._control is not None else here[0]
        stream = _Udp(
            self._world,
            (here, (server, options.port)),
            sending=sending,
            options=options,
            budget=self._budget,
        )
        self._streams.append(stream)
        answered: list[int] = []

        def answer(_: int) -> None:
            answered.append(1)
            self._happened()

        back = Datagrams(self._world, icmp=False, arrived=answer)

        def arrived(_: int) -> None:
            test = self._world.server_at(server, options.port)
            assert isinstance(test, Server)
            test.take(stream)
            back.send((server, options.port), here, 4 + _UDP_HEADERS, 0)

        hello = Datagrams(self._world, icmp=False, arrived=arrived)
        hello.send(here, (server, options.port), 4 + _UDP_HEADERS, 0)
        yield lambda: bool(answered)


class Server:
    """A server: one test at a time, each as its client asks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._test: _Test | None = None

    def _listen(self) -> None:
        self._test = None

    def take(self, theirs: _Udp) -> None:
        """The stream of a client has begun."""
        if self._test is not None:
            self._test.take_udp(theirs)

    def accepted(self, connection: Socket) -> Callable[[bytes], None]:
        """See :class:`~cellbed.workloads.virtual.world.Server`."""
        rest = bytearray()
        test: _Test | None = None
        is_known = False

        def received(data: bytes) -> None:
            nonlocal test, is_known
            rest.extend(data)
            if not is_known and len(rest) >= _COOKIE:
                is_known = True
                cookie = bytes(rest[:_COOKIE])
                del rest[:_COOKIE]
                if self._test is None:
                    test = self._test = _Test(self._world, connection, cookie, rest, self._listen)
                elif cookie == self._test.cookie:
                    self._test.take_tcp(connection)
                else:
                    connection.send(bytes((_DENIED,)))
            if test is not None:
                test.go_on()

        return received


class _Test:
    """A test at a server. inbox: what the client has sent on the control connection. over: called at its end."""

    def __init__(
        self, world: World, control: Socket, cookie: bytes, inbox: bytearray, over: Callable[[], None]
    ) -> None:
        self._world, self._control, self.cookie, self._inbox = world, control, cookie, inbox
        self._streams: list[_Tcp | _Udp] = []
        self._options: Options | None = None
        self._steps = _Steps(self._life(), lambda _: over())

    def go_on(self) -> None:
        """Something has happened."""
        self._steps.go_on()

    def take_tcp(self, connection: Socket) -> None:
        """A stream of the client has connected."""
        options = self._options
        assert options is not None
        budget = _Budget(_UNLIMITED)
        self._streams.append(_Tcp(connection, sending=options.reverse, block=options.block, budget=budget))
        self.go_on()

    def take_udp(self, theirs: _Udp) -> None:
        """A stream of the client has begun."""
        options = self._options
        assert options is not None
        mine = _Udp(
            self._world, theirs.ends[::-1],
            sending=options.reverse, options=options, budget=_Budget(_UNLIMITED),
        )  # fmt: skip
        mine.peer, theirs.peer = theirs, mine
        self._streams.append(mine)
        self.go_on()

    def _life(self) -> Steps:
        world, control = self._world, self._control
        control.send(bytes((_PARAMETERS,)))
        yield lambda: len(self._inbox) >= 4
        length = 4 + int.from_bytes(self._inbox[:4], "big")
        yield lambda: len(self._inbox) >= length
        asked = json.loads(self._inbox[4:length])
        del self._inbox[:length]
        options = self._options = _of_parameters(asked)
        control.send(bytes((_STREAMS,)))
        yield lambda: len(self._streams) == options.streams
        control.send(bytes((_START,)))
        begun_ns = world.now_ns
        control.send(bytes((_RUNNING,)))
        for stream in self._streams:
            stream.start()
        yield lambda: bool(self._inbox)
        state = self._inbox.pop(0)
        results = _results(self._streams, world.now_ns - begun_ns, sending=options.reverse)
        for stream in self._streams:
            stream.stop()
            if not options.reverse:
                stream.close()
        if state == _TERMINATED:
            return 0
        control.send(bytes((_RESULTS,)))
        yield lambda: len(self._inbox) >= 4
        length = 4 + int.from_bytes(self._inbox[:4], "big")
        yield lambda: len(self._inbox) >= length
        del self._inbox[:length]
        control.send(_framed(results))
        control.send(bytes((_DISPLAY,)))
        yield lambda: bool(self._inbox)
        return 0


def _of_parameters(asked: dict[str, Any]) -> Options:
    return Options(
        target="", port=PORT, time_ns=asked["time"] * SECOND, size=asked["num"] or None,
        reverse=bool(asked.get("reverse")), streams=asked["parallel"], block=asked["len"],
        rate=asked.get("bandwidth"),
    )  # fmt: skip
