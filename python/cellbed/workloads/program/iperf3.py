"""``iperf3`` in virtual time: its control connection, its streams over TCP or UDP, and the text of version 3.12.

The client opens the control connection and sends a cookie; both sides exchange states of one byte and parameters in
JSON. Each stream is a connection that begins with the cookie, or for UDP a datagram of 4 bytes with its answer. When
the client ends the test, the server closes its streams at once, and what was on the way to them is answered with
resets.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cellbed.workloads.virtual.world import SECOND, Datagrams, Host, Output, Program, SendBuffer, Socket, World

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
    interval_ns: int
    block: int
    rate: float | None

    @property
    def parameters(self) -> dict[str, Any]:
        """What the client sends to the server."""
        found: dict[str, Any] = {"udp" if self.rate is not None else "tcp": True, "omit": 0}
        found |= {"time": 0 if self.size else self.time_ns // SECOND, "num": self.size or 0, "blockcount": 0}
        found |= {"parallel": self.streams} | ({"reverse": True} if self.reverse else {}) | {"len": self.block}
        found |= {"bandwidth": round(self.rate)} if self.rate is not None else {}
        return found | {"pacing_timer": 1000, "client_version": "3.12"}


class _Stream(Protocol):
    """One side's end of a stream. moved: bytes that the test has carried here."""

    identifier: int
    local: tuple[str, int]
    remote: tuple[str, int]

    @property
    def moved(self) -> int: ...
    def figures(self) -> tuple[int, ...]:
        """Counters beside `moved`: of a TCP sender retransmissions; of UDP lost and all datagrams."""

    def words(self, before: tuple[int, ...], *, final: bool) -> str:
        """These in the columns behind the bit rate, since an earlier time."""

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

    def __init__(self, socket: Socket, identifier: int, *, sending: bool, block: int, budget: _Budget) -> None:
        self.socket, self.identifier, self.is_sender = socket, identifier, sending
        self.local, self.remote = socket.getsockname(), socket.getpeername()
        self._block, self._budget = block, budget
        self._written, self._buffer = 0, SendBuffer(socket, block)
        self._stopped = False
        self._first = 0 if socket.at_client else _COOKIE
        self.on_written: Callable[[], None] = lambda: None
        socket.on_room = self._fill

    @property
    def moved(self) -> int:
        return self._written if self.is_sender else max(0, self.socket.transferred()[1] - self._first)

    def figures(self) -> tuple[int, ...]:
        return (self.socket.sending()[2],) if self.is_sender else ()

    def words(self, before: tuple[int, ...], *, final: bool) -> str:
        if not self.is_sender:
            return "                "
        window = "" if final else _amount(self.socket.sending()[0] * _SEGMENT, 1024, "Byte")
        return (
            f"{self.figures()[0] - before[0]:3}   {window}       "
            if not final
            else f"{self.figures()[0]:3}             "
        )

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
        identifier: int,
        *,
        sending: bool,
        options: Options,
        budget: _Budget,
    ) -> None:
        self._world, self.ends, self.identifier, self.is_sender = world, ends, identifier, sending
        self.local, self.remote = ((host.address, port) for host, port in ends)
        self._options, self._budget = options, budget
        self.sent = self.received = self.lost = self.highest = 0
        self.jitter_s = 0.0
        self._transit_s: float | None = None
        self._begun_ns = 0
        self._stopped = False
        self.peer: _Udp | None = None
        self._times: dict[int, int] = {}
        self._datagrams = Datagrams(world, icmp=False, arrived=self._arrived)
        self.on_written: Callable[[], None] = lambda: None

    @property
    def moved(self) -> int:
        return (self.sent if self.is_sender else self.received) * self._options.block

    def figures(self) -> tuple[int, ...]:
        return (0, self.sent) if self.is_sender else (self.lost, self.highest)

    def words(self, before: tuple[int, ...], *, final: bool) -> str:
        lost, total = (after - was for after, was in zip(self.figures(), (0, 0) if final else before, strict=True))
        if self.is_sender and not final:
            return f"{total}  "
        return f"{self.jitter_s * 1e3:5.3f} ms  {lost}/{total} ({100 * lost / total if total else 0:.2g}%)  "

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
            self._times[self.sent] = self._world.now_ns
            self._datagrams.send(*self.ends, size + _UDP_HEADERS, self.sent)
        if self._budget.left <= 0:
            self.on_written()
        elif not self._stopped:
            due_ns = math.ceil(self.sent * size * 8 * SECOND / self._options.rate)
            due_ns = max(1, math.ceil(due_ns / _TICK_NS)) * _TICK_NS
            self._world.at(self._begun_ns + max(due_ns, elapsed_ns + _TICK_NS), self._send)

    def _arrived(self, number: int) -> None:
        if self.peer is not None and not self.peer._stopped:
            self.peer._receive(number, self._times.pop(number, self._world.now_ns))

    def _receive(self, number: int, sent_ns: int) -> None:
        """Count a datagram (RFC 1889, §6.3.1: jitter)."""
        self.received += 1
        if number > self.highest:
            self.lost += number - self.highest - 1
            self.highest = number
        else:
            self.lost = max(0, self.lost - 1)
        transit_s = (self._world.now_ns - sent_ns) / 1e9
        if self._transit_s is not None:
            self.jitter_s += (abs(transit_s - self._transit_s) - self.jitter_s) / 16
        self._transit_s = transit_s


class _Report:
    """What one side prints of a test: a line for each stream and interval, and their sum."""

    def __init__(
        self, world: World, output: Output, streams: Sequence[_Stream], options: Options, *, sending: bool
    ) -> None:
        self._world, self._output, self._streams, self._options = world, output, streams, options
        self._is_sender = sending
        self.begun_ns = self._last_ns = world.now_ns
        self._before = [(0, stream.figures()) for stream in streams]
        self._over = False
        self._due_ns = self.begun_ns
        for stream in streams:
            output.out(f"[{stream.identifier:3}] local {stream.local[0]} port {stream.local[1]} connected to "
                       f"{stream.remote[0]} port {stream.remote[1]}")  # fmt: skip
        output.out(self._heading(final=False))
        self._schedule()

    def _heading(self, *, final: bool) -> str:
        more = ""
        if self._options.rate is not None:
            more = "Total Datagrams" if self._is_sender and not final else "Jitter    Lost/Total Datagrams"
        elif self._is_sender or (final and self._options.reverse):
            more = "Retr" if final else "Retr  Cwnd"
        return "[ ID] Interval           Transfer     Bitrate" + (f"         {more}" if more else "")

    def _schedule(self) -> None:
        self._due_ns += self._options.interval_ns
        self._world.at(self._due_ns, self._interval)

    def _interval(self) -> None:
        if not self._over:
            self._print()
            self._schedule()

    def _print(self) -> None:
        now = self._world.now_ns
        if now == self._last_ns:
            return
        total, lines = 0, []
        span = (self._last_ns - self.begun_ns, now - self.begun_ns)
        sums = [0] * len(self._before[0][1])
        for index, stream in enumerate(self._streams):
            (before, figures), after = self._before[index], stream.moved
            lines.append(_line(f"{stream.identifier:3}", span, after - before, stream.words(figures, final=False)))
            total += after - before
            sums = [value + now_ - was for value, now_, was in zip(sums, stream.figures(), figures, strict=True)]
            self._before[index] = (after, stream.figures())
        if len(lines) > 1:
            if self._last_ns > self.begun_ns:
                lines.insert(0, _RULE)
            more = f"{sums[-1]:3}             " if sums else "                "
            lines.append(_line("SUM", span, total, more))
        self._last_ns = now
        for line in lines:
            self._output.out(line)

    def end(self) -> int:
        """Print the last interval; how long the test was, ns."""
        self._over = True
        now = self._world.now_ns
        moved = any(stream.moved > before for stream, (before, _) in zip(self._streams, self._before, strict=True))
        if moved or (now - self._last_ns) * 10 >= self._options.interval_ns:
            self._print()
        return now - self.begun_ns

    def totals(self, sides: Sequence[tuple[str, int, Sequence[tuple[int, str, int]]]]) -> None:
        """Print the sums of a test. sides: sender and receiver, what is known of them: how long, and of each stream
        its bytes, the columns behind, and a number of the sum."""
        self._output.out(_RULE)
        self._output.out(self._heading(final=True))
        for index, stream in enumerate(self._streams):
            for name, took_ns, streams in sides:
                moved, words, _ = streams[index]
                self._output.out(_line(f"{stream.identifier:3}", (0, took_ns), moved, words + name))
        if len(self._streams) > 1:
            for name, took_ns, streams in sides:
                number = sum(each[2] for each in streams)
                words = f"{number:3}             " if name == "sender" else "                "
                self._output.out(_line("SUM", (0, took_ns), sum(each[0] for each in streams), words + name))


_RULE = "- - - - - - - - - - - - - - - - - - - - - - - - -"


def _line(identifier: str, span_ns: tuple[int, int], size: int, words: str) -> str:
    begin, end = (moment / 1e9 for moment in span_ns)
    rate = size * 8 / (end - begin) if end > begin else 0.0
    amounts = f"{_amount(size, 1024, 'Byte')}  {_amount(rate, 1000, 'bit')}/sec"
    return f"[{identifier}] {begin:6.2f}-{end:<6.2f} sec  {amounts}  {words}"


def _amount(value: float, step: int, unit: str) -> str:
    """``1.91 MBytes``, as ``unit_snprintf`` of iperf."""
    prefix = 0
    while value >= step and prefix < 4:
        value, prefix = value / step, prefix + 1
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:4.{digits}f} {('', 'K', 'M', 'G', 'T')[prefix]}{unit}s"


def _framed(content: object) -> bytes:
    text = json.dumps(content, separators=(",", ":")).encode()
    return len(text).to_bytes(4, "big") + text


def _results(streams: Sequence[_Stream], took_ns: int, *, sending: bool) -> dict[str, Any]:
    """What a side sends of its results, with as many digits as the real ones."""
    usage = {f"cpu_util_{which}": 0.1234567890123456 for which in ("total", "user", "system")}
    rows: list[dict[str, Any]] = []
    for stream in streams:
        figures = stream.figures()
        udp = (
            {"jitter": stream.jitter_s, "errors": figures[0], "packets": figures[1]} if isinstance(stream, _Udp) else {}
        )
        rows.append(
            {"id": 1 + len(rows) + bool(rows), "bytes": stream.moved}
            | {"retransmits": figures[0] if isinstance(stream, _Tcp) and sending else -1}
            | {"jitter": 0, "errors": 0, "packets": 0} | udp
            | {"start_time": 0, "end_time": round(took_ns / 1e9, 6)}
        )  # fmt: skip
    more = {"congestion_used": "cubic"} if isinstance(streams[0], _Tcp) else {}
    return usage | {"sender_has_retransmits": int(sending and bool(more)) or -1} | more | {"streams": rows}


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
    """One start of a client. ended: gets its exit status."""

    def __init__(
        self, world: World, program: Program, options: Options, output: Output, ended: Callable[[int], None]
    ) -> None:
        self._world, self._program, self._options, self._output = world, program, options, output
        self._steps = _Steps(self._life(), ended)
        self._inbox = bytearray()
        self._control: Socket | None = None
        self._streams: list[_Tcp | _Udp] = []
        self._budget = _Budget(_UNLIMITED if options.size is None or options.reverse else options.size)
        self._report: _Report | None = None

    def begin(self) -> None:
        """Connect to the server."""
        self._happened()

    def terminate(self) -> int:
        """End it by SIGTERM: it prints what there is; its exit status."""
        self._steps.cancel()
        if self._report is not None:
            took_ns = self._report.end()
            if self._options.rate is None or not self._options.reverse:
                nothing = [(0, "                ", 0)] * len(self._streams)
                mine = "receiver" if self._options.reverse else "sender"
                sides = {mine: self._figures(), "sender" if self._options.reverse else "receiver": nothing}
                self._report.totals([(name, took_ns, sides[name]) for name in ("sender", "receiver")])
        if self._control is not None:
            self._control.send(bytes((_TERMINATED,)))
        for stream in self._streams:
            stream.close()
        self._output.err("iperf3: interrupt - the client has terminated")
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
        options, output = self._options, self._output
        output.out(f"Connecting to host {options.target}, port {options.port}")
        control = self._control = yield from self._connected()
        control.on_event = self._heard
        key = f"{self._program.host.name}/{control.getsockname()[1]}"
        cookie = f"{random.Random(key).getrandbits(144):036x}".encode() + b"\0"
        control.send(cookie)
        if (yield from self._state()) == _DENIED:
            output.err("iperf3: error - the server is busy running a test. try again later")
            return 1
        control.send(_framed(options.parameters))
        yield from self._state()
        address = self._world.address_of(options.target)
        if options.reverse:
            output.out(f"Reverse mode, remote host {address} is sending")
        for number in range(options.streams):
            yield from self._open_stream(5 + 2 * number, cookie)
        yield from self._state()
        sending = not options.reverse
        report = self._report = _Report(self._world, output, self._streams, options, sending=sending)
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
        took_ns = report.end()
        for stream in self._streams:
            stream.stop()
        mine = self._figures()
        control.send(bytes((_END,)))
        yield from self._state()
        control.send(_framed(_results(self._streams, took_ns, sending=sending)))
        length = int.from_bytes((yield from self._read(4)), "big")
        theirs = json.loads((yield from self._read(length)))
        yield from self._state()
        self._summarise(report, took_ns, mine, theirs)
        for stream in self._streams:
            stream.close()
        control.send(bytes((_DONE,)))
        output.out("\niperf Done.")
        return 0

    def _open_stream(self, identifier: int, cookie: bytes) -> Generator[Callable[[], bool], None, None]:
        options, sending = self._options, not self._options.reverse
        if options.rate is None:
            socket = yield from self._connected()
            socket.send(cookie)
            self._streams.append(_Tcp(socket, identifier, sending=sending, block=options.block, budget=self._budget))
            return
        here = (self._program.host, next(self._program.host.ports))
        server = self._control.peer_host if self._control is not None else here[0]
        stream = _Udp(
            self._world,
            (here, (server, options.port)),
            identifier,
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

    def _figures(self) -> list[tuple[int, str, int]]:
        return [
            (stream.moved, stream.words(stream.figures(), final=True), stream.figures()[0] if stream.is_sender else 0)
            for stream in self._streams
        ]

    def _summarise(
        self, report: _Report, took_ns: int, mine: list[tuple[int, str, int]], theirs: dict[str, Any]
    ) -> None:
        """Print the sums of both sides. theirs: the server's results."""
        rows: list[tuple[int, str, int]] = []
        for row in theirs["streams"]:
            if self._options.rate is not None:
                share = 100 * row["errors"] / row["packets"] if row["packets"] else 0
                words = f"{row['jitter'] * 1e3:5.3f} ms  {row['errors']}/{row['packets']} ({share:.2g}%)  "
            else:
                words = f"{row['retransmits']:3}             " if self._options.reverse else "                "
            rows.append((row["bytes"], words, max(0, row["retransmits"])))
        their_ns = round(theirs["streams"][0]["end_time"] * 1e9)
        sides = [(took_ns, mine), (their_ns, rows)]
        sender, receiver = reversed(sides) if self._options.reverse else sides
        report.totals([("sender", *sender), ("receiver", *receiver)])


class Server:
    """A server: one test at a time, each as its client asks."""

    def __init__(self, world: World, port: int, interval_ns: int, output: Output) -> None:
        self._world, self._port, self._interval_ns, self._output = world, port, interval_ns, output
        self._tests = itertools.count(1)
        self._test: _Test | None = None
        self._listen()

    def _listen(self) -> None:
        rule = "-" * 59
        self._output.out(f"{rule}\nServer listening on {self._port} (test #{next(self._tests)})\n{rule}")
        self._test = None

    def finish(self) -> None:
        """End it by SIGTERM, with the run."""
        self._output.err("iperf3: interrupt - the server has terminated")

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
                    test = self._test = _Test(
                        self._world, connection, cookie, rest, self._interval_ns, self._output, self._listen
                    )
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
        self,
        world: World,
        control: Socket,
        cookie: bytes,
        inbox: bytearray,
        interval_ns: int,
        output: Output,
        over: Callable[[], None],
    ) -> None:
        self._world, self._control, self.cookie, self._inbox, self._output = world, control, cookie, inbox, output
        self._interval_ns = interval_ns
        self._streams: list[_Tcp | _Udp] = []
        self._options: Options | None = None
        self._steps = _Steps(self._life(), lambda _: over())

    def go_on(self) -> None:
        """Something has happened."""
        self._steps.go_on()

    def _identifier(self) -> int:
        count = len(self._streams)
        return 5 if not count else 6 + 2 * count

    def take_tcp(self, connection: Socket) -> None:
        """A stream of the client has connected."""
        options = self._options
        assert options is not None
        end = _Tcp(
            connection, self._identifier(), sending=options.reverse, block=options.block, budget=_Budget(_UNLIMITED)
        )
        self._streams.append(end)
        self.go_on()

    def take_udp(self, theirs: _Udp) -> None:
        """A stream of the client has begun."""
        options = self._options
        assert options is not None
        mine = _Udp(
            self._world, theirs.ends[::-1], self._identifier(),
            sending=options.reverse, options=options, budget=_Budget(_UNLIMITED),
        )  # fmt: skip
        mine.peer, theirs.peer = theirs, mine
        self._streams.append(mine)
        self.go_on()

    def _life(self) -> Steps:
        world, control, output = self._world, self._control, self._output
        address, port = control.getpeername()
        output.out(f"Accepted connection from {address}, port {port}")
        control.send(bytes((_PARAMETERS,)))
        yield lambda: len(self._inbox) >= 4
        length = 4 + int.from_bytes(self._inbox[:4], "big")
        yield lambda: len(self._inbox) >= length
        asked = json.loads(self._inbox[4:length])
        del self._inbox[:length]
        options = self._options = _of_parameters(asked, self._interval_ns)
        control.send(bytes((_STREAMS,)))
        yield lambda: len(self._streams) == options.streams
        control.send(bytes((_START,)))
        report = _Report(world, output, self._streams, options, sending=options.reverse)
        control.send(bytes((_RUNNING,)))
        for stream in self._streams:
            stream.start()
        yield lambda: bool(self._inbox)
        state = self._inbox.pop(0)
        took_ns = report.end()
        figures = [
            (stream.moved, stream.words(stream.figures(), final=True), stream.figures()[0] if options.reverse else 0)
            for stream in self._streams
        ]
        results = _results(self._streams, took_ns, sending=options.reverse)
        for stream in self._streams:
            stream.stop()
            if not options.reverse:
                stream.close()
        report.totals([("sender" if options.reverse else "receiver", took_ns, figures)])
        if state == _TERMINATED:
            output.err("iperf3: the client has terminated")
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


def _of_parameters(asked: dict[str, Any], interval_ns: int) -> Options:
    return Options(
        target="", port=PORT, time_ns=asked["time"] * SECOND, size=asked["num"] or None,
        reverse=bool(asked.get("reverse")), streams=asked["parallel"], interval_ns=interval_ns, block=asked["len"],
        rate=asked.get("bandwidth"),
    )  # fmt: skip
