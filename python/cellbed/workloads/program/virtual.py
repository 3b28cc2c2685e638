"""Programs in virtual time: ping, and iperf3 client and server, recognised by their command lines."""

from __future__ import annotations

import argparse
import re
import shlex
import statistics
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from random import Random
from typing import NoReturn

from cellbed.testbed.machine.process import ProgramError
from cellbed.testbed.plan import Node, Plan
from cellbed.testbed.programs.unmodified import Command
from cellbed.workloads.kind import Deployment
from cellbed.workloads.program.kind import commands
from cellbed.workloads.virtual.model import Model, Setting
from cellbed.workloads.virtual.world import SECOND, Datagrams, Host, Program, Socket, names

_START_NS = 10_000_000
"""Time from the start of a program to its first packet: between this and twice this."""
_UNIT = {"": 0, "k": 1, "m": 2, "g": 3}
_HEADERS, _ICMP = 28, 8
"""Bytes of the headers of IPv4 and ICMP, and of ICMP alone."""
_LATE_NS = 500_000, 1_500_000
"""Minimum and maximum delay of a request of ping, which counts in whole milliseconds."""
_STATE, _COOKIE, _PARAMETERS = 1, 37, 140
"""Lengths of iperf3 3.12 messages: state, cookie of a test, and its parameters."""
_RESULTS, _RESULTS_OF_STREAM = 178, 106
"""Length of the results of one side of iperf3 without streams, and additional length per stream."""
_TICK_NS = 1_000_000
"""Interval at which iperf3 checks the downloaded bytes."""
_UNLIMITED = 1 << 62


class UnmodelledError(Exception):
    """A part of a command line without model; the message describes it."""


@dataclass(frozen=True, slots=True)
class Echoes:
    """The command line of ping. count: number of requests, None for no end. size: bytes of data. deadline_ns, wait_ns:
    maximum time of all replies, and of replies after the last request."""

    target: str
    count: int | None
    interval_ns: int
    size: int
    deadline_ns: int | None
    wait_ns: int
    quiet: bool
    numeric: bool


@dataclass(frozen=True, slots=True)
class Transfer:
    """The command line of an iperf3 client. size: bytes to send, in place of a duration. block: bytes per write."""

    target: str
    port: int
    time_ns: int
    size: int | None
    reverse: bool
    streams: int
    block: int


@dataclass(frozen=True, slots=True)
class Listening:
    """The command line of an iperf3 server. The client's model contains both sides of a test."""

    port: int

    def accepted(self, connection: Socket) -> Callable[[bytes], None]:
        return lambda _: None


Client = Echoes | Transfer


class _Parser(argparse.ArgumentParser):
    """A parser of the modelled options of a program."""

    def __init__(self, name: str, *ignored: str) -> None:
        """ignored: flags without effect in the model."""
        super().__init__(prog=name, add_help=False)
        for flag in ignored:
            self.add_argument(flag, action="store_true")

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the options. Raises UnmodelledError with the options that have no model."""
        found, more = self.parse_known_args(list(words))
        if more:
            unknown = [word for word in more if word.startswith("-")] or more
            modelled = ", ".join(each.option_strings[0] for each in self._actions if each.option_strings)
            raise UnmodelledError(f"{shlex.join(unknown)} of {self.prog} (modelled: {modelled})")
        return found

    def error(self, message: str) -> NoReturn:
        raise UnmodelledError(f"{self.prog}: {message}")


def _number(least: float, most: float, unit: int | None = None) -> Callable[[str], int]:
    """Return an argument type: a whole number, or, with `unit`, a number in multiples of `unit`."""

    def number(text: str) -> int:
        value = int(text) if unit is None else float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not modelled: from {least:g} to {most:g}")
        return round(value * (unit or 1))

    return number


def _size(text: str) -> int:
    """Return the bytes of a number with a unit k, M or G."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)([kmg]?)", text.lower())
    if found is None or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text} is not modelled: a number above 0, with k, M or G or without")
    return int(float(found[1]) * 1024 ** _UNIT[found[2]])


def _ping(words: Sequence[str]) -> Echoes:
    parser = _Parser("ping", "-4")
    parser.add_argument("-c", dest="count", type=_number(1, float("inf")))
    # Smaller or larger data means fragments on the links, or no round-trip times in the output.
    parser.add_argument("-s", dest="size", type=_number(16, 1472), default=56)
    parser.add_argument("-i", dest="interval_ns", type=_number(0.002, float("inf"), SECOND), default=SECOND)
    parser.add_argument("-w", dest="deadline_ns", type=_number(1, float("inf"), SECOND))
    parser.add_argument("-W", dest="wait_ns", type=_number(0.001, float("inf"), SECOND), default=10 * SECOND)
    parser.add_argument("-q", dest="quiet", action="store_true")
    parser.add_argument("-n", dest="numeric", action="store_true")
    parser.add_argument("target")
    found = vars(parser.parse(words))
    return Echoes(**{name: found[name] for name in Echoes.__slots__})


def _iperf3(words: Sequence[str]) -> Transfer | Listening:
    parser = _Parser("iperf3", "-4", "--version4", "--forceflush")
    side = parser.add_mutually_exclusive_group(required=True)
    side.add_argument("-c", "--client", dest="target")
    side.add_argument("-s", "--server", action="store_true")
    parser.add_argument("-p", "--port", type=_number(1, 65535), default=5201)
    parser.add_argument("-i", "--interval", type=_number(0.1, 60, SECOND))
    parser.add_argument("-t", "--time", dest="time_ns", type=_number(1, 86400, SECOND))
    parser.add_argument("-n", "--bytes", dest="size", type=_size)
    parser.add_argument("-l", "--length", dest="block", type=_size, default=128 << 10)
    parser.add_argument("-P", "--parallel", dest="streams", type=_number(1, 128), default=1)
    parser.add_argument("-R", "--reverse", action="store_true")
    found = parser.parse(words)
    if found.server:
        return Listening(found.port)
    if found.time_ns is not None and found.size is not None:
        raise UnmodelledError("-n of iperf3 with -t")
    time_ns = found.time_ns or 10 * SECOND
    return Transfer(found.target, found.port, time_ns, found.size, found.reverse, found.streams, found.block)


_PROGRAMS: dict[str, Callable[[Sequence[str]], Client | Listening]] = {"ping": _ping, "iperf3": _iperf3}


@dataclass(frozen=True, slots=True)
class Planned:
    """A program of a plan with its model; None for a server that only listens."""

    deployment: Deployment
    command: Command
    model: Client | Listening | None


def planned(each: Deployment, raw: Path, seed: int, problems: dict[str, None] | None = None) -> list[Planned]:
    """Return the programs of an application. raw: folder of their files. problems: receives parts without model."""
    found: list[Planned] = []
    for role in ("server", "client"):
        if getattr(each.table, role) is None:
            continue
        for command in commands(each, role, raw, seed):
            program = PurePosixPath(command.command[0]).name if command.command else ""
            try:
                model = _PROGRAMS[program](command.command[1:]) if program in _PROGRAMS else None
                if role == "server" and isinstance(model, Client):
                    raise UnmodelledError(f"{program} as a server")
                if role == "client" and not isinstance(model, Client):
                    raise UnmodelledError(f"the client '{shlex.join(command.command[:1]) or 'of an image'}'")
                if role == "client" and command.restart != "never":
                    raise UnmodelledError("restart of its client")
            except UnmodelledError as problem:
                if problems is not None:
                    problems[str(problem)] = None
            else:
                found.append(Planned(each, command, model))
    return found


class _Programs(Model):
    """Echoes of ping, and transfers of iperf3 over TCP."""

    covers = tuple(_PROGRAMS)

    def problems(self, each: Deployment, deployments: Sequence[Deployment], plan: Plan) -> Iterator[str]:
        found: dict[str, None] = {}
        seed = plan.scenario.seed
        others = [
            program
            for other in deployments
            if other.table.kind == "program"
            for program in planned(other, Path(), seed)
        ]
        listening = {(other.command.node, other.model.port) for other in others if isinstance(other.model, Listening)}
        nodes = {node.name: node for node in plan.nodes}
        own = planned(each, Path(), seed, found)
        for client in own:
            if isinstance(client.model, Client):
                why = _unreachable(plan, listening, nodes[client.command.node], client.model)
                found |= {why: None} if why is not None else {}
        if each.table.server is not None and each.table.server.tcp and any(program.model is None for program in own):
            found[f"{next(iter(each.table.server.tcp))} of its server"] = None
        yield from found

    def loads(self, each: Deployment, setting: Setting) -> Iterator[_Load]:
        for program in planned(each, setting.raw, setting.seed):
            if isinstance(program.model, Client):
                yield _Load(setting, each, program.command, program.model)
            elif isinstance(program.model, Listening):
                host = setting.world.hosts[program.command.node]
                setting.world.listen(host, program.model.port, program.model, each.name)


def _unreachable(plan: Plan, listening: set[tuple[str, int]], client: Node, model: Client) -> str | None:
    """Return why a client cannot reach its target; None if reachable. listening: nodes and ports of servers."""
    address = names(plan).get(model.target, model.target)
    is_shared = address in {str(service.address) for service in plan.services.values()}
    node = next((each.name for each in plan.nodes if str(each.ipv4) == address), None)
    is_own = node == client.name or address.startswith("127.")
    if isinstance(model, Echoes):
        return None if node is not None or is_shared or is_own else f"'{model.target}', which is no node"
    if is_shared:
        return "iperf3 to the address of several servers"
    if is_own:
        return "iperf3 within a node"
    if node is None or (node, model.port) not in listening:
        return f"'{model.target}' port {model.port}, where no iperf3 server listens"
    return None


class _Ping:
    """A ping client: the addressed node answers its echo requests. random: source of the delay of each request. output:
    called with the lines that iputils' ping prints. ended: called with the exit status."""

    def __init__(
        self,
        program: Program,
        options: Echoes,
        random: Random,
        output: Callable[[str], object],
        ended: Callable[[int], None],
    ) -> None:
        self._world, self._host, self._options, self._output = program.world, program.host, options, output
        self._random, self._ended = random, ended
        self._over = False
        self._sent: list[int] = []
        self._targets: list[Host | None] = []
        self._taken: dict[int, int] = {}
        self._requests = Datagrams(self._world, self._answer, icmp=True)
        self._answers = Datagrams(self._world, self._receive, icmp=True)

    def begin(self) -> None:
        """Send the first request."""
        options, address = self._options, self._world.address_of(self._options.target)
        size = f"{options.size}({options.size + _HEADERS})"
        self._output(f"PING {options.target} ({address}) {size} bytes of data.")
        is_named = options.target != address and not options.numeric
        self._sender = f"{self._world.name_of(address)} ({address})" if is_named else address
        if options.deadline_ns is not None:
            self._world.at(self._world.now_ns + options.deadline_ns, self._finish)
        self._send()

    def terminate(self) -> int:
        """End the program by SIGTERM, which it does not handle; return its exit status."""
        self._over = True
        return -15

    def _send(self) -> None:
        options, now_ns, number = self._options, self._world.now_ns, len(self._sent)
        if self._over:
            return
        self._sent.append(now_ns)
        address = self._world.address_of(options.target)
        stays = address in self._world.spread and self._targets
        target = self._targets[0] if stays else self._world.host_of(address, self._host)
        self._targets.append(target)
        if target is not None:
            self._requests.send((self._host, 0), (target, 0), options.size + _HEADERS, number)
        if options.count is None or options.deadline_ns is not None or number + 1 < options.count:
            self._world.at(now_ns + options.interval_ns + self._random.randrange(*_LATE_NS), self._send)
        else:
            known_ns = max(2 * max(self._taken.values()), options.interval_ns) if self._taken else options.wait_ns
            self._world.at(now_ns + known_ns, self._finish)

    def _answer(self, number: int) -> None:
        """Send the reply of the target's kernel to a request."""
        target = self._targets[number]
        assert target is not None
        self._answers.send((target, 0), (self._host, 0), self._options.size + _HEADERS, number)

    def _receive(self, number: int) -> None:
        if self._over:
            return
        taken_ns, again = self._world.now_ns - self._sent[number], " (DUP!)" if number in self._taken else ""
        self._taken.setdefault(number, taken_ns)
        if not self._options.quiet:
            text = f"{self._options.size + _ICMP} bytes from {self._sender}: icmp_seq={number + 1} ttl=64"
            span = taken_ns / 1e6
            digits = 0 if span >= 99.95 else 1 if span >= 9.995 else 2 if span >= 1 else 3
            self._output(f"{text} time={span:.{digits}f} ms{again}")
        if self._options.count is not None and len(self._taken) >= self._options.count:
            self._finish()

    def _finish(self) -> None:
        if self._over:
            return
        self._over = True
        options, sent, received = self._options, len(self._sent), len(self._taken)
        lost = f"{(sent - received) * 100 / sent:g}% packet loss"
        took = (self._sent[-1] - self._sent[0]) // 1_000_000
        self._output(f"\n--- {options.target} ping statistics ---")
        self._output(f"{sent} packets transmitted, {received} received, {lost}, time {took}ms")
        spans = [taken_ns / 1e6 for taken_ns in self._taken.values()]
        if spans:
            figures = min(spans), statistics.fmean(spans), max(spans), statistics.pstdev(spans)
            self._output(f"rtt min/avg/max/mdev = {'/'.join(f'{each:.3f}' for each in figures)} ms")
        else:
            self._output("")
        missing = options.deadline_ns is not None and options.count is not None and received < options.count
        self._ended(1 if not received or missing else 0)


class _Iperf3:
    """An iperf3 client with its server's side: a control connection and streams over TCP. Control messages have the
    right lengths only. ended: called with the exit status. left: bytes that may still be sent."""

    def __init__(self, program: Program, options: Transfer, ended: Callable[[int], None]) -> None:
        self._program, self._options, self._ended = program, options, ended
        self._steps = self._run()
        self._until: Callable[[], bool] | None = lambda: True
        self._is_busy = False
        self._streams: list[Socket] = []
        """The client's ends."""
        self._left = _UNLIMITED if options.size is None or options.reverse else options.size

    def begin(self) -> None:
        """Connect to the server, or continue with the next steps."""
        self._program.call(self._advance)

    def terminate(self) -> int:
        """End the program by SIGTERM; return its exit status."""
        self._until, self._left = None, 0
        for each in self._streams:
            each.abort()
        return 1

    def _advance(self) -> None:
        """Run all steps whose condition is true."""
        if self._is_busy:
            return  # called within a step: the loop checks conditions after the step
        self._is_busy = True
        while self._until is not None and self._until():
            try:
                self._until = next(self._steps)
            except StopIteration:
                self._until = None
                self._ended(0)
        self._is_busy = False

    def _connect(self) -> Generator[Callable[[], bool], None, Socket]:
        world = self._program.world
        socket = world.connect(world.address_of(self._options.target), self._options.port)
        assert socket.peer is not None
        socket.on_event = socket.peer.on_event = self.begin
        yield lambda: socket.connected
        return socket

    def _exchange(self, sender: Socket, size: int) -> Iterator[Callable[[], bool]]:
        """Send a message from one end of a connection; wait for its arrival at the other."""
        sender.send(bytes(size))
        yield from self._take(sender, size)

    def _take(self, sender: Socket, size: int) -> Iterator[Callable[[], bool]]:
        """Wait for the arrival of a message at the other end, and remove it there."""
        receiver = sender.peer
        assert receiver is not None
        yield lambda: len(receiver.buffer) >= size
        del receiver.buffer[:size]

    def _run(self) -> Generator[Callable[[], bool], None, None]:
        """Run a test."""
        options = self._options
        control = yield from self._connect()
        far = control.peer
        assert far is not None
        for sender, size in ((control, _COOKIE), (far, _STATE), (control, _PARAMETERS), (far, _STATE)):
            yield from self._exchange(sender, size)
        for _ in range(options.streams):
            self._streams.append((yield from self._connect()))
            self._streams[-1].send(bytes(_COOKIE))
        for each in self._streams:
            yield from self._take(each, _COOKIE)
        for _ in range(2):  # "start" and "running", in separate packets before the data
            far.send(bytes(_STATE))
        if options.reverse:
            self._start()
        yield from self._take(far, 2 * _STATE)
        if not options.reverse:
            self._start()
        yield from self._wait_for_end()
        if not options.reverse:
            self._left = 0
        yield from self._exchange(control, _STATE)
        self._left = 0
        for each in self._streams:
            if each.peer is not None and not options.reverse:
                each.peer.abort()  # packets in transit are answered with resets
        results = _RESULTS + options.streams * _RESULTS_OF_STREAM
        for sender, size in ((far, _STATE), (control, results), (far, results + _STATE)):
            yield from self._exchange(sender, size)
        for each in self._streams:
            each.abort()
        control.send(bytes(_STATE))

    def _wait_for_end(self) -> Iterator[Callable[[], bool]]:
        """Wait until the time of the test is over, or its bytes have been sent."""
        world, options = self._program.world, self._options
        end_ns = world.now_ns + options.time_ns
        if options.size is None:
            world.at(end_ns, self.begin)
            yield lambda: world.now_ns >= end_ns
        elif not options.reverse:
            yield lambda: self._left <= 0
        else:
            while sum(each.transferred()[1] for each in self._streams) < options.size:
                due_ns = world.now_ns + _TICK_NS
                world.at(due_ns, self.begin)
                yield lambda: world.now_ns >= due_ns  # noqa: B023

    def _start(self) -> None:
        """Make the senders of all streams write."""
        for each in self._streams:
            sender = each.peer if self._options.reverse else each
            assert sender is not None
            self._write(sender)

    def _write(self, sender: Socket) -> None:
        """Write until the send buffer is full; continue when it has room."""
        sender.on_room, block = partial(self._write, sender), self._options.block
        room = sender.room(block) if self._left > 0 else 0
        while room > 0 and self._left > 0:
            sender.pump(block)
            room, self._left = room - block, self._left - block
        if self._left > 0:
            sender.want_room()
        else:
            self.begin()


class _Load:
    """A client's program from the start of its load to its end, like
    :class:`~cellbed.testbed.programs.unmodified.UnmodifiedProgram` in a real run."""

    def __init__(self, setting: Setting, deployment: Deployment, command: Command, model: Client) -> None:
        self._world, self._journal, self._command = setting.world, setting.journal, command
        self._deployment, self._file = deployment, setting.raw / f"{command.name}.out"
        self._printed: list[str] = []
        program = Program(setting.world, setting.world.hosts[command.node], deployment.name)
        random = Random(f"{setting.seed}/{command.name}")
        self._process = (
            _Ping(program, model, random, self._printed.append, self._ended)
            if isinstance(model, Echoes)
            else _Iperf3(program, model, self._ended)
        )
        self._start_ns = _START_NS + random.randrange(_START_NS)
        self.over = False

    def start(self, t0_ns: int) -> None:
        self._world.at(t0_ns + self._deployment.start_ns, self._start)
        self._world.at(t0_ns + self._deployment.stop_ns, self._stop)

    def finish(self) -> None:
        self._file.write_text("".join(f"{line}\n" for line in self._printed), encoding="utf-8")

    def _note(self, event: str, **more: object) -> None:
        self._journal.note(event, self._command.name, self._world.now_ns, node=self._command.node, **more)

    def _start(self) -> None:
        self._note("program started", log=self._file.name)
        self._world.at(self._world.now_ns + self._start_ns, lambda: None if self.over else self._process.begin())

    def _stop(self) -> None:
        if not self.over:
            self._done(self._process.terminate())

    def _done(self, status: int) -> None:
        self._note("program ended", status=status)
        self._note("program done")
        self.over = True

    def _ended(self, status: int) -> None:
        self._done(status)
        if status not in self._command.status:
            last = next((line for line in reversed(self._printed) if line), "")
            raise ProgramError(f"{self._command.name} on {self._command.node} ended with status {status}: {last}")


VIRTUAL = _Programs()
