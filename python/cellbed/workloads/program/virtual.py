"""The model of the kind in virtual time: programs of users that have a model, and how they start and end.

``ping`` and ``iperf3`` with its server have one; they are recognised by their command lines.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from random import Random
from typing import NoReturn, Protocol

from cellbed.testbed.machine.process import ProgramError
from cellbed.testbed.plan import Node, Plan
from cellbed.testbed.programs.unmodified import FIRST_PAUSE_NS, LAST_PAUSE_NS, Command
from cellbed.workloads.kind import Deployment
from cellbed.workloads.program import iperf3, ping
from cellbed.workloads.program.kind import commands
from cellbed.workloads.virtual.model import Setting
from cellbed.workloads.virtual.world import SECOND, Program, names

_START_NS = 10_000_000
"""From the start of a program to its first packet: from once to twice that."""
_UNIT = {"": 0, "k": 1, "m": 2, "g": 3}


class UnmodelledError(Exception):
    """A part of a command line has no model; the message describes it."""


@dataclass(frozen=True, slots=True)
class Listening:
    """An iperf3 server, by its command line."""

    port: int


Model = ping.Options | iperf3.Options | Listening


class _Parser(argparse.ArgumentParser):
    """The options of a program that are modelled."""

    def __init__(self, name: str) -> None:
        super().__init__(prog=name, add_help=False)

    def error(self, message: str) -> NoReturn:
        raise UnmodelledError(f"{self.prog}: {message}")

    def parsed(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the options in `words`. Raises UnmodelledError with the options that are not among them."""
        found, more = self.parse_known_args(list(words))
        if more:
            unknown = [word for word in more if word.startswith("-")] or more
            modelled = ", ".join(each.option_strings[0] for each in self._actions if each.option_strings)
            raise UnmodelledError(f"{shlex.join(unknown)} of {self.prog} (modelled: {modelled})")
        return found


def _number(least: float, most: float = float("inf"), *, kind: type[int] | type[float] = int) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not modelled: from {least:g} to {most:g}")
        return value

    return number


def _size(text: str) -> float:
    """Return a number of bytes with a unit k, M or G."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)([kmg]?)", text.lower())
    if found is None or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text} is not modelled: a number above 0, with k, M or G or without")
    return float(float(found[1]) * 1024 ** _UNIT[found[2]])


def _ping(words: Sequence[str]) -> ping.Options:
    parser = _Parser("ping")
    parser.add_argument("-c", type=_number(1))
    # Less would be fragments on the links, and no round-trip times in the output.
    parser.add_argument("-s", type=_number(16, 1472), default=56)
    parser.add_argument("-i", type=_number(0.002, kind=float), default=1.0)
    parser.add_argument("-w", type=_number(1))
    parser.add_argument("-W", type=_number(0.001, kind=float))
    for flag in ("-q", "-n", "-4"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("target")
    asked = parser.parsed(words)
    return ping.Options(
        asked.target, asked.c, round(asked.i * SECOND), asked.s, asked.w and asked.w * SECOND,
        None if asked.W is None else round(asked.W * SECOND), asked.q, asked.n,
    )  # fmt: skip


def _iperf3(words: Sequence[str]) -> iperf3.Options | Listening:
    parser = _Parser("iperf3")
    side = parser.add_mutually_exclusive_group(required=True)
    side.add_argument("-c", "--client")
    side.add_argument("-s", "--server", action="store_true")
    parser.add_argument("-p", "--port", type=_number(1, 65535), default=iperf3.PORT)
    parser.add_argument("-i", "--interval", type=_number(0.1, 60, kind=float), default=1.0)
    parser.add_argument("-t", "--time", type=_number(1, 86400))
    parser.add_argument("-n", "--bytes", type=_size)
    parser.add_argument("-l", "--length", type=_size)
    parser.add_argument("-P", "--parallel", type=_number(1, 128), default=1)
    for flag in (("-R", "--reverse"), ("-4", "--version4"), ("--forceflush",)):
        parser.add_argument(*flag, action="store_true")
    asked = parser.parsed(words)
    if asked.server:
        return Listening(asked.port)
    if asked.time is not None and asked.bytes is not None:
        raise UnmodelledError("-n of iperf3 with -t")
    return iperf3.Options(
        target=asked.client,
        port=asked.port,
        time_ns=(asked.time or 10) * SECOND,
        size=None if asked.bytes is None else int(asked.bytes),
        reverse=asked.reverse,
        streams=asked.parallel,
        block=int(asked.length) if asked.length else 128 << 10,
    )


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
                if role == "server" and isinstance(model, ping.Options | iperf3.Options):
                    raise UnmodelledError(f"{PurePosixPath(command.command[0]).name} as a server")
                if role == "client" and not isinstance(model, ping.Options | iperf3.Options):
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
            if isinstance(client.model, ping.Options | iperf3.Options):
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
                setting.world.listen(host, program.model.port, iperf3.Server(), each.name)


def _unreachable(
    plan: Plan,
    addresses: dict[str, str],
    listening: set[tuple[str, int]],
    client: Node,
    model: ping.Options | iperf3.Options,
) -> str | None:
    """Why a client cannot reach its target; None if it can."""
    address = addresses.get(model.target, model.target)
    shared = {str(service.address) for service in plan.services.values()}
    node = client.name if address.startswith("127.") else None
    node = next((each.name for each in plan.nodes if str(each.ipv4) == address), node)
    if isinstance(model, ping.Options):
        return None if node is not None or address in shared else f"'{model.target}', which is no node"
    if address in shared:
        return "iperf3 to the address of several servers"
    if node == client.name:
        return "iperf3 within a node"
    if node is None or (node, model.port) not in listening:
        return f"'{model.target}' port {model.port}, where no iperf3 server listens"
    return None


class _Process(Protocol):
    """A program that runs."""

    def begin(self) -> None: ...
    def terminate(self) -> int:
        """End it by SIGTERM; its exit status."""


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
        self._process: _Process | None = None
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
        if isinstance(self._model, iperf3.Options):
            self._process = iperf3.Client(self._world, self._program, self._model, output, self._ended)
        else:
            assert isinstance(self._model, ping.Options)
            self._process = ping.Ping(self._world, self._program, self._model, self._random, output, self._ended)
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
