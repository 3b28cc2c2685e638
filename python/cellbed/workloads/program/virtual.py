"""The model of the kind in virtual time: programs of users that have a model, and how they start and end.

``ping`` and ``iperf3`` with its server have one; they are recognised by their command lines.
"""

from __future__ import annotations

import argparse
import re
import shlex
import statistics
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any, NoReturn

from cellbed.testbed.machine.process import ProgramError
from cellbed.testbed.plan import Node, Plan
from cellbed.testbed.programs.unmodified import FIRST_PAUSE_NS, LAST_PAUSE_NS, Command
from cellbed.workloads.kind import Deployment
from cellbed.workloads.program.kind import commands
from cellbed.workloads.virtual.model import Setting
from cellbed.workloads.virtual.world import SECOND, Datagrams, Host, Program, SendBuffer, Socket, names

_START_NS = 10_000_000
"""From the start of a program to its first packet: from once to twice that."""
_UNIT = {"": 0, "k": 1, "m": 2, "g": 3}
_HEADERS, _ICMP = 28, 8
"""Of IPv4 and ICMP, and of ICMP alone, bytes."""
_LATE_NS = 500_000, 1_500_000
"""By how much a request of ping leaves late, from and to: it counts in whole milliseconds."""
_STATE, _COOKIE, _PARAMETERS = 1, 37, 140
"""Lengths of messages of iperf3 3.12: states, the cookie of a test, and its parameters."""
_RESULTS, _RESULTS_OF_STREAM = 178, 106
"""Lengths of the results of a side of iperf3, without and for each stream."""
_TICK_NS = 1_000_000
"""Between two looks of iperf3 at what has been downloaded."""
_UNLIMITED = 1 << 62


class UnmodelledError(Exception):
    """A part of a command line has no model; the message describes it."""


@dataclass(frozen=True, slots=True)
class Echoes:
    """The command line of ping. target: name or address. count: of requests, ``None`` for no end. size: of the data,
    bytes. deadline_ns, wait_ns: for replies altogether, and after the last request."""

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
    """The command line of a client of iperf3. size: bytes to send, instead of for a time. block: bytes of a write."""

    target: str
    port: int
    time_ns: int
    size: int | None
    reverse: bool
    streams: int
    block: int


@dataclass(frozen=True, slots=True)
class Listening:
    """The command line of a server of iperf3."""

    port: int

    def accepted(self, connection: Socket) -> Callable[[bytes], None]:
        """See :class:`~cellbed.workloads.virtual.world.Server`. Its clients have both sides of a test."""
        return lambda _: None


Model = Echoes | Transfer | Listening


class _Parser(argparse.ArgumentParser):
    """The options of a program that are modelled."""

    def __init__(self, name: str) -> None:
        super().__init__(prog=name, add_help=False)

    def error(self, message: str) -> NoReturn:
        raise UnmodelledError(f"{self.prog}: {message}")

    def values(self, words: Sequence[str], ignored: Sequence[str]) -> dict[str, Any]:
        """Return the options in `words`. ignored: flags without effect here. Raises UnmodelledError with the options
        that are not modelled."""
        for flag in ignored:
            self.add_argument(flag, action="store_true")
        found, more = self.parse_known_args(list(words))
        if more:
            unknown = [word for word in more if word.startswith("-")] or more
            modelled = ", ".join(each.option_strings[0] for each in self._actions if each.option_strings)
            raise UnmodelledError(f"{shlex.join(unknown)} of {self.prog} (modelled: {modelled})")
        return {name: value for name, value in vars(found).items() if f"--{name}" not in ignored and name != "4"}


def _number(least: float, most: float = float("inf"), unit: int | None = None) -> Callable[[str], int]:
    """Return the type of a whole number, or, with a unit, of one in multiples of it."""

    def number(text: str) -> int:
        value = int(text) if unit is None else float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not modelled: from {least:g} to {most:g}")
        return round(value * (unit or 1))

    return number


def _size(text: str) -> int:
    """Return a number of bytes with a unit k, M or G."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)([kmg]?)", text.lower())
    if found is None or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text} is not modelled: a number above 0, with k, M or G or without")
    return int(float(found[1]) * 1024 ** _UNIT[found[2]])


def _ping(words: Sequence[str]) -> Echoes:
    parser = _Parser("ping")
    parser.add_argument("-c", dest="count", type=_number(1))
    # Less would be fragments on the links, and no round-trip times in the output.
    parser.add_argument("-s", dest="size", type=_number(16, 1472), default=56)
    parser.add_argument("-i", dest="interval_ns", type=_number(0.002, unit=SECOND), default=SECOND)
    parser.add_argument("-w", dest="deadline_ns", type=_number(1, unit=SECOND))
    parser.add_argument("-W", dest="wait_ns", type=_number(0.001, unit=SECOND), default=10 * SECOND)
    parser.add_argument("-q", dest="quiet", action="store_true")
    parser.add_argument("-n", dest="numeric", action="store_true")
    parser.add_argument("target")
    return Echoes(**parser.values(words, ["-4"]))


def _iperf3(words: Sequence[str]) -> Transfer | Listening:
    parser = _Parser("iperf3")
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
    found = parser.values(words, ["-4", "--version4", "--forceflush"])
    del found["interval"]
    if found.pop("server"):
        return Listening(found["port"])
    if found["time_ns"] is not None and found["size"] is not None:
        raise UnmodelledError("-n of iperf3 with -t")
    return Transfer(**found | {"time_ns": found["time_ns"] or 10 * SECOND})


_PROGRAMS: dict[str, Callable[[Sequence[str]], Model]] = {"ping": _ping, "iperf3": _iperf3}


def model_of(command: Sequence[str]) -> Model | None:
    """Return the model of a command line; None of another program. Raises UnmodelledError."""
    name = PurePosixPath(command[0]).name if command else ""
    return _PROGRAMS[name](command[1:]) if name in _PROGRAMS else None


@dataclass(frozen=True, slots=True)
class Planned:
    """A program of a plan with its model; None for a server that only waits."""

    deployment: Deployment
    command: Command
    model: Model | None


def planned(each: Deployment, raw: Path, seed: int, problems: dict[str, None] | None = None) -> list[Planned]:
    """Return the programs of an application. raw: folder of their files. problems: gets what has no model."""
    found: list[Planned] = []
    for role in ("server", "client"):
        if getattr(each.table, role) is None:
            continue
        for command in commands(each, role, raw, seed):
            try:
                model = model_of(command.command)
                if role == "server" and isinstance(model, Echoes | Transfer):
                    raise UnmodelledError(f"{PurePosixPath(command.command[0]).name} as a server")
                if role == "client" and not isinstance(model, Echoes | Transfer):
                    raise UnmodelledError(f"the client '{shlex.join(command.command[:1]) or 'of an image'}'")
            except UnmodelledError as problem:
                if problems is not None:
                    problems[str(problem)] = None
            else:
                found.append(Planned(each, command, model))
    return found


class _Programs:
    """See :class:`~cellbed.workloads.virtual.model.Model`."""

    sampling = None
    covers = tuple(_PROGRAMS)

    def problems(self, each: Deployment, deployments: Sequence[Deployment], plan: Plan) -> Iterator[str]:
        """Command lines without a model, and targets that cannot be reached."""
        found: dict[str, None] = {}
        seed = plan.scenario.seed
        others = [
            program
            for other in deployments
            if other.table.kind == "program"
            for program in planned(other, Path(), seed)
        ]
        listening = {(other.command.node, other.model.port) for other in others if isinstance(other.model, Listening)}
        addresses = names(plan)
        nodes = {node.name: node for node in plan.nodes}
        for client in planned(each, Path(), seed, found):
            if isinstance(client.model, Echoes | Transfer):
                why = _unreachable(plan, addresses, listening, nodes[client.command.node], client.model)
                found |= {why: None} if why is not None else {}
        without = [program for program in planned(each, Path(), seed) if program.model is None]
        if without and each.table.server.tcp:
            found[f"{next(iter(each.table.server.tcp))} of its server"] = None
        yield from found

    def loads(self, each: Deployment, setting: Setting) -> Iterator[_Load]:
        for program in planned(each, setting.raw, setting.seed):
            if program.command.load:
                yield _Load(setting, program)
            elif isinstance(program.model, Listening):
                host = setting.world.hosts[program.command.node]
                setting.world.listen(host, program.model.port, program.model, each.name)


def _unreachable(
    plan: Plan,
    addresses: dict[str, str],
    listening: set[tuple[str, int]],
    client: Node,
    model: Echoes | Transfer,
) -> str | None:
    """Why a client cannot reach its target; None if it can."""
    address = addresses.get(model.target, model.target)
    shared = {str(service.address) for service in plan.services.values()}
    node = client.name if address.startswith("127.") else None
    node = next((each.name for each in plan.nodes if str(each.ipv4) == address), node)
    if isinstance(model, Echoes):
        return None if node is not None or address in shared else f"'{model.target}', which is no node"
    if address in shared:
        return "iperf3 to the address of several servers"
    if node == client.name:
        return "iperf3 within a node"
    if node is None or (node, model.port) not in listening:
        return f"'{model.target}' port {model.port}, where no iperf3 server listens"
    return None


class _Ping:
    """One start of ping: echo requests, which the addressed node answers. random: by how much each request is late.
    output: gets the lines that iputils' ping prints. ended: gets the exit status."""

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
        self._requests = Datagrams(self._world, icmp=True, arrived=self._answer)
        self._answers = Datagrams(self._world, icmp=True, arrived=self._receive)

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
        """End it by SIGTERM, which it does not handle; return its exit status."""
        self._over = True
        return -15

    def _send(self) -> None:
        options, now_ns, number = self._options, self._world.now_ns, len(self._sent)
        if self._over:
            return
        self._sent.append(now_ns)
        address = self._world.address_of(options.target)
        stays = self._world.is_spread(address) and self._targets
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
        """The kernel of the target answers a request."""
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
    """One start of a client of iperf3, with its server's side: a control connection and streams over TCP. Messages of
    the control connection have their lengths alone. ended: gets the exit status. left: bytes that may still be sent."""

    def __init__(self, program: Program, options: Transfer, ended: Callable[[int], None]) -> None:
        self._program, self._options, self._ended = program, options, ended
        self._steps = self._run()
        self._until: Callable[[], bool] | None = lambda: True
        self._is_busy = False
        self._control: Socket | None = None
        self._streams: list[Socket] = []
        """The clients' ends."""
        self._left = _UNLIMITED if options.size is None or options.reverse else options.size

    def begin(self) -> None:
        """Connect to the server."""
        self._go_on()

    def terminate(self) -> int:
        """End it by SIGTERM; return its exit status."""
        self._until, self._left = None, 0
        for each in self._streams:
            each.abort()
        return 1

    def _go_on(self) -> None:
        self._program.call(self._advance)

    def _advance(self) -> None:
        """Take all steps whose condition holds."""
        if self._is_busy:
            return  # called by a step; conditions are checked after it
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
        socket.on_event = socket.peer.on_event = self._go_on
        yield lambda: socket.connected
        return socket

    def _exchange(self, sender: Socket, size: int) -> Iterator[Callable[[], bool]]:
        """Send a message from one end of a connection; wait until it is at the other end."""
        sender.send(bytes(size))
        yield from self._take(sender, size)

    def _take(self, sender: Socket, size: int) -> Iterator[Callable[[], bool]]:
        """Wait until a message is at the other end, and take it there."""
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
        for _ in range(2):  # "start" and "running", in packets of their own before the data
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
                each.peer.abort()  # what is on the way is answered with resets
        results = _RESULTS + options.streams * _RESULTS_OF_STREAM
        for sender, size in ((far, _STATE), (control, results), (far, results + _STATE)):
            yield from self._exchange(sender, size)
        for each in self._streams:
            each.abort()
        control.send(bytes(_STATE))

    def _wait_for_end(self) -> Iterator[Callable[[], bool]]:
        """Wait until the test has taken its time, or its bytes have been sent."""
        world, options = self._program.world, self._options
        end_ns = world.now_ns + options.time_ns
        if options.size is None:
            world.at(end_ns, self._go_on)
            yield lambda: world.now_ns >= end_ns
        elif not options.reverse:
            yield lambda: self._left <= 0
        else:
            while sum(each.transferred()[1] for each in self._streams) < options.size:
                due_ns = world.now_ns + _TICK_NS
                world.at(due_ns, self._go_on)
                yield lambda: world.now_ns >= due_ns  # noqa: B023

    def _start(self) -> None:
        """Let the senders of all streams write."""
        for each in self._streams:
            sender = each.peer if self._options.reverse else each
            assert sender is not None
            self._write(sender, SendBuffer(sender, self._options.block))

    def _write(self, sender: Socket, buffer: SendBuffer) -> None:
        """Write until the send buffer is full, and again when it has room."""
        sender.on_room = lambda: self._write(sender, buffer)
        room = buffer.room() if self._left > 0 else 0
        while room > 0 and self._left > 0:
            sender.pump(self._options.block)
            room -= self._options.block
            self._left -= self._options.block
        if self._left > 0:
            buffer.want_room()
        else:
            self._go_on()


class _Load:
    """See :class:`~cellbed.workloads.virtual.model.Load`. A client's program from the start of its load to the end, as
    :class:`~cellbed.testbed.programs.unmodified.UnmodifiedProgram` in a real run. failure: why it failed."""

    def __init__(self, setting: Setting, planned: Planned) -> None:
        world = setting.world
        self._world, self._command, self._journal = world, planned.command, setting.journal
        self._deployment, self._model = planned.deployment, planned.model
        self._file = setting.raw / f"{planned.command.name}.out"
        self._printed: list[str] = []
        self._program = Program(world, world.hosts[planned.command.node], planned.deployment.name)
        self._process: _Ping | _Iperf3 | None = None
        self._random = Random(f"{setting.seed}/{planned.command.name}")
        self._stopping = False
        self._restarts = 0
        self.over = False
        self.failure: ProgramError | None = None

    def start(self, t0_ns: int) -> None:
        """Set its load."""
        begin_ns, end_ns = t0_ns + self._deployment.start_ns, t0_ns + self._deployment.stop_ns
        self._world.at(begin_ns, self._start)
        self._world.at(end_ns, self._stop)

    @property
    def warnings(self) -> Sequence[str]:
        return [f"{self._command.name} ended and was started again, {self._restarts} ×"] if self._restarts else []

    def finish(self) -> None:
        """Write what it has printed."""
        self._file.write_text("".join(f"{line}\n" for line in self._printed), encoding="utf-8")

    def _note(self, event: str, **more: object) -> None:
        self._journal.note(event, self._command.name, self._world.now_ns, node=self._command.node, **more)

    def _start(self) -> None:
        if self._stopping:
            return
        self._note("program started", log=self._file.name)
        output = self._printed.append
        if isinstance(self._model, Transfer):
            self._process = _Iperf3(self._program, self._model, self._ended)
        else:
            assert isinstance(self._model, Echoes)
            self._process = _Ping(self._program, self._model, self._random, output, self._ended)
        process = self._process
        start_ns = _START_NS + self._random.randrange(_START_NS)
        self._world.at(self._world.now_ns + start_ns, lambda: process.begin() if self._process is process else None)

    def _stop(self) -> None:
        self._stopping = True
        if self._process is not None:
            self._ended(self._process.terminate())
        elif not self.over:
            self._done()

    def _ended(self, status: int) -> None:
        self._process = None
        self._note("program ended", status=status)
        command = self._command
        if self._stopping:
            self._done()
        elif command.restart == "always" or (command.restart == "on-failure" and status not in command.status):
            self._restarts += 1
            pause_ns = min(FIRST_PAUSE_NS << min(self._restarts - 1, 16), LAST_PAUSE_NS)
            self._world.at(self._world.now_ns + pause_ns, self._start)
        elif status in command.status:
            self._done()
        else:
            last = next((line for line in reversed(self._printed) if line), "")
            self.failure = ProgramError(
                f"{command.name} on {command.node} ended with status {status}: {last}\n  its output: {self._file}"
            )
            self.over = True

    def _done(self) -> None:
        self._note("program done")
        self.over = True


VIRTUAL = _Programs()
