"""Programs in virtual time: iperf3 client and server, recognised by their command lines."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from random import Random
from typing import NoReturn

from cellbed.testbed.plan import Node, Plan
from cellbed.testbed.programs.unmodified import Command
from cellbed.workloads.kind import Deployment
from cellbed.workloads.program.kind import commands
from cellbed.workloads.virtual.model import Model, Setting
from cellbed.workloads.virtual.world import SECOND, Program, Socket, names

_PROGRAM = "iperf3"
_START_NS = 10_000_000
"""Time from the start of a program to its first packet: between this and twice this."""
_UNIT = {"": 0, "k": 1, "m": 2, "g": 3}
_IGNORED = ("-4", "--version4", "--forceflush")
"""Flags without effect in this model."""
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
class Transfer:
    """The command line of a client. size: bytes to send, in place of a duration. block: bytes per write."""

    target: str
    port: int
    time_ns: int
    size: int | None
    reverse: bool
    streams: int
    block: int


@dataclass(frozen=True, slots=True)
class Listening:
    """The command line of a server. The client's model contains both sides of a test."""

    port: int

    def accepted(self, connection: Socket) -> Callable[[bytes], None]:
        return lambda _: None


class _Parser(argparse.ArgumentParser):
    """A parser of the modelled options."""

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


def parse(words: Sequence[str]) -> Transfer | Listening:
    """Return the options of iperf3. Raises UnmodelledError for options without model."""
    parser = _Parser(prog=_PROGRAM, add_help=False)
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
    for flag in _IGNORED:
        parser.add_argument(flag, action="store_true")
    found, more = parser.parse_known_args(list(words))
    if more:
        unknown = [word for word in more if word.startswith("-")] or more
        modelled = ", ".join(each.option_strings[0] for each in parser._actions if each.option_strings)
        raise UnmodelledError(f"{shlex.join(unknown)} of {_PROGRAM} (modelled: {modelled})")
    if found.server:
        return Listening(found.port)
    if found.time_ns is not None and found.size is not None:
        raise UnmodelledError("-n of iperf3 with -t")
    time_ns = found.time_ns or 10 * SECOND
    return Transfer(found.target, found.port, time_ns, found.size, found.reverse, found.streams, found.block)


@dataclass(frozen=True, slots=True)
class Planned:
    """A program of a plan with its model; None for a server that only listens."""

    deployment: Deployment
    command: Command
    model: Transfer | Listening | None


def planned(each: Deployment, raw: Path, seed: int, problems: dict[str, None] | None = None) -> list[Planned]:
    """Return the programs of an application. raw: folder of their files. problems: receives parts without model."""
    found: list[Planned] = []
    for role in ("server", "client"):
        if getattr(each.table, role) is None:
            continue
        for command in commands(each, role, raw, seed):
            program = PurePosixPath(command.command[0]).name if command.command else ""
            try:
                model = parse(command.command[1:]) if program == _PROGRAM else None
                if role == "server" and isinstance(model, Transfer):
                    raise UnmodelledError(f"{program} as a server")
                if role == "client" and not isinstance(model, Transfer):
                    raise UnmodelledError(f"the client '{shlex.join(command.command[:1]) or 'of an image'}'")
                if role == "client" and (command.restart != "never" or 0 not in command.status):
                    raise UnmodelledError("restart or status of its client")
            except UnmodelledError as problem:
                if problems is not None:
                    problems[str(problem)] = None
            else:
                found.append(Planned(each, command, model))
    return found


class _Programs(Model):
    """Transfers of iperf3 over TCP."""

    covers = (_PROGRAM,)

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
            if isinstance(client.model, Transfer):
                why = _unreachable(plan, listening, nodes[client.command.node], client.model)
                found |= {why: None} if why is not None else {}
        if each.table.server is not None and each.table.server.tcp and any(program.model is None for program in own):
            found[f"{next(iter(each.table.server.tcp))} of its server"] = None
        yield from found

    def loads(self, each: Deployment, setting: Setting) -> Iterator[_Load]:
        for program in planned(each, setting.raw, setting.seed):
            if isinstance(program.model, Transfer):
                yield _Load(setting, each, program.command, program.model)
            elif isinstance(program.model, Listening):
                host = setting.world.hosts[program.command.node]
                setting.world.listen(host, program.model.port, program.model, each.name)


def _unreachable(plan: Plan, listening: set[tuple[str, int]], client: Node, model: Transfer) -> str | None:
    """Return why a client cannot reach its target; None if reachable. listening: nodes and ports of servers."""
    address = names(plan).get(model.target, model.target)
    if address in {str(service.address) for service in plan.services.values()}:
        return "iperf3 to the address of several servers"
    node = next((each.name for each in plan.nodes if str(each.ipv4) == address), None)
    if node == client.name or address.startswith("127."):
        return "iperf3 within a node"
    if node is None or (node, model.port) not in listening:
        return f"'{model.target}' port {model.port}, where no iperf3 server listens"
    return None


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

    def __init__(self, setting: Setting, deployment: Deployment, command: Command, model: Transfer) -> None:
        self._world, self._journal, self._command = setting.world, setting.journal, command
        self._deployment = deployment
        program = Program(setting.world, setting.world.hosts[command.node], deployment.name)
        self._process = _Iperf3(program, model, self._ended)
        self._start_ns = _START_NS + Random(f"{setting.seed}/{command.name}").randrange(_START_NS)
        self.over = False

    def start(self, t0_ns: int) -> None:
        self._world.at(t0_ns + self._deployment.start_ns, self._start)
        self._world.at(t0_ns + self._deployment.stop_ns, self._stop)

    def finish(self) -> None:
        pass

    def _note(self, event: str, **more: object) -> None:
        self._journal.note(event, self._command.name, self._world.now_ns, node=self._command.node, **more)

    def _start(self) -> None:
        self._note("program started")
        self._world.at(self._world.now_ns + self._start_ns, lambda: None if self.over else self._process.begin())

    def _stop(self) -> None:
        if not self.over:
            self._ended(self._process.terminate())

    def _ended(self, status: int) -> None:
        self._note("program ended", status=status)
        self._note("program done")
        self.over = True


VIRTUAL = _Programs()
