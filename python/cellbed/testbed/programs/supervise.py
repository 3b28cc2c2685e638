"""Watch the programs of a run and sample its nodes, in one thread with one selector."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
import selectors
import shlex
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from cellbed.runformat.events import Journal
from cellbed.support.errors import printable
from cellbed.testbed.machine.events import EventProcess
from cellbed.testbed.machine.process import Process, ProgramError, end, spawn
from cellbed.testbed.machine.state import RUN_VARIABLE, status_of
from cellbed.testbed.nodes.backend import Backend
from cellbed.testbed.programs.fork_server import ForkServer
from cellbed.testbed.programs.pressure import Pressure, Usage
from cellbed.testbed.programs.reports import SERVE_S, ReportSockets
from cellbed.testbed.programs.sent import SentPrograms, shift
from cellbed.testbed.programs.unmodified import OUTPUT_LIMIT, Command, UnmodifiedProgram
from cellbed_node.processes import Running, kill

_log = logging.getLogger(__name__)
SAMPLE_INTERVAL_NS = 100_000_000
SAMPLED_AT_ONCE = 100
"""Maximum number of nodes at the usual interval. More nodes lengthen it: each costs 0.2 ms of processor time."""
HOST_INTERVAL_NS = 1_000_000_000
READY_TIMEOUT_S = 30.0
_END_S = 1.0
"""Maximum time from the end of a program's output to its own end, seconds."""
READY_PER_PROGRAM_S = 1.0
"""Time added to the limit per program, seconds: all programs load their libraries at the same time."""
CONNECT_EVERY_NS = 1_000_000
"""Interval between the connections of two loads."""
START_STEP_NS = 250_000_000
"""Step of the time from a schedule's first connection to its begin: connections then have the same age in all runs,
even if connecting takes a few milliseconds more or less."""


def start_after(connected_ns: int) -> int:
    """Return the begin of a schedule, ns after its loads began to connect. connected_ns: time when all had
    connected."""
    return (connected_ns // START_STEP_NS + 1) * START_STEP_NS


class Program(EventProcess):
    """A program of cellbed for a node. Its standard error goes to the file ``log``."""

    def __init__(self, name: str, node: Backend, process: Running, log: Path) -> None:
        super().__init__(process, log)
        self._backend, self._memory_kills = node, node.memory_kills()
        self.name = name
        self.node = node.name
        self.log = log
        self.is_ready = False
        self.notes: list[str] = []
        """Notes of the program for readers of the run, as sentences."""

    def continued(self, name: str, node: Backend, process: Running) -> Program:
        """Return this program at another node, where `process` continues its process and has the same pipes."""
        found = copy(self)
        found.name, found.node, found.process = name, node.name, process
        found._backend, found._memory_kills = node, node.memory_kills()
        return found

    def read(self) -> None:
        """Read events as :class:`EventProcess` does, but keep notes apart."""
        super().read()
        notes = [printable(str(event.get("text"))[:500]) for event in self.events if event.get("event") == "note"]
        self.notes = (self.notes + notes)[:100]  # another machine could send endless notes
        self.events = [event for event in self.events if event.get("event") != "note"]

    @property
    def is_serving(self) -> bool:
        """Return whether the program runs and has become ready."""
        return self.is_ready and not self.ended

    def send_command(self, command: dict[str, Any]) -> None:
        """Write one line to the program's standard input. Errors: :class:`ProgramError`."""
        try:
            self.send(shift(command, self._backend.clock.offset_ns))
        except (BrokenPipeError, ValueError):
            raise self.failure() from None

    def failure(self) -> ProgramError:
        """Return the failure, with the last line of the program's log or the reason why there is none."""
        status = self.process.poll()
        reason = self.last_words() or (os.strerror(errno.ENOSPC) if os.statvfs(self.log).f_bavail == 0 else None)
        detail = f": {reason}" if reason else ""
        how = self._backend.describe_end(status, self._memory_kills)
        return ProgramError(f"{self.name} on {self.node} {how}{detail}\n  its log: {self.log}")


AnyProgram = Program | UnmodifiedProgram


@dataclass(slots=True)
class _Recovery:
    """Programs that restart after a fault. stages: names of programs to start, by stage. before: programs of the last
    started stage."""

    stages: list[list[str]]
    before: list[AnyProgram] = field(default_factory=list)


class Supervisor:
    """The programs and samples of one run.

    raw: folder for logs and samples. run: identifier in each program's environment. reports: sockets for programs'
    reports. journal: record of starts and ends of programs.
    """

    def __init__(
        self, raw: Path, run: str, reports: ReportSockets | None = None, journal: Journal | None = None
    ) -> None:
        self._raw = raw
        self._run = run
        self._reports = reports
        self._journal = journal
        self._selector = selectors.DefaultSelector()
        self.programs: list[AnyProgram] = []
        self.alarms: dict[str, int] = {}
        """Latest monotonic times of the next `tick` of :meth:`wait`, by purpose."""
        self._known: dict[str, tuple[Process | Command, Backend]] = {}
        self._recoveries: list[_Recovery] = []
        self._fork_servers: dict[str, ForkServer] = {}
        self._sent = SentPrograms(raw)
        self.problems: list[str] = []
        """Problems at the end, as sentences."""
        self._nodes: Mapping[str, Backend] = {}
        self._samples: IO[str] | None = None
        self._sampled: dict[str, int | None] = {}
        self._next_sample_ns = 0
        self._sample_interval_ns = SAMPLE_INTERVAL_NS
        self._pressure = Pressure([])
        self._host_samples: IO[str] | None = None
        self._usage = Usage()
        self._program_samples: IO[str] | None = None
        self._next_host_sample_ns = 0

    def start_all(self, processes: Sequence[Process | Command], nodes: Mapping[str, Backend]) -> list[AnyProgram]:
        """Start programs stage by stage, and wait until all are ready; return the programs that wait for a load's
        start.

        nodes: nodes by name. Errors: :class:`ProgramError`.
        """
        loads: list[AnyProgram] = []
        for process in processes:
            if isinstance(process, Process) and process.forked and nodes[process.node].place is not None:
                self._fork_server(process)  # it loads the program while programs of lower stages start
        for stage in sorted({process.stage for process in processes}):
            started = []
            for process in processes:
                if process.stage == stage:
                    started.append(self.start(process, nodes[process.node]))
                    if process.load:
                        loads.append(started[-1])
            self.wait_ready(started)
        return loads

    def connect(self, loads: Sequence[AnyProgram], at_ns: int) -> None:
        """Have cellbed's own loads connect from a monotonic time on, and wait until they have connected.

        Errors: :class:`ProgramError`.
        """
        own = [load for load in loads if isinstance(load, Program)]
        for number, load in enumerate(own):
            load.is_ready = False
            load.send_command({"connect_ns": at_ns + number * CONNECT_EVERY_NS})
        self.wait_ready(own)

    def start(self, process: Process | Command, node: Backend) -> AnyProgram:
        """Start a program. Errors: :class:`ProgramError`."""
        if isinstance(process, Process):
            self._known[process.name] = process, node
            return self.start_own(process, node)
        program = self.make(process, node)
        self.take(program, node)
        program.start()
        return program

    def make(self, command: Command, node: Backend) -> UnmodifiedProgram:
        """Return a program that is neither started nor supervised; :meth:`take` supervises it."""
        _log.info(f"program {command.name} on {command.node}: {shlex.join(command.command) or 'of the image'}")
        program = UnmodifiedProgram(
            command,
            node,
            self._raw,
            lambda event, **more: self._note(event, program, **more),
            lambda pid: self._usage.count(command.name, pid, node.use(pid)[0]),
        )
        return program

    def take(self, program: UnmodifiedProgram, node: Backend) -> None:
        """Begin to supervise a program."""
        self._known[program.name] = program.command, node
        self.programs.append(program)

    def dismiss(self, program: AnyProgram) -> None:
        """Stop supervising a program: its end is then no failure. Copy the files of a user's program, which has
        ended."""
        if program in self.programs:
            self.programs.remove(program)
            del self._known[program.name]
            if isinstance(program, UnmodifiedProgram):
                program.close()
            else:
                with contextlib.suppress(KeyError):  # it has ended
                    self._selector.unregister(program)
            self.problems += program.notes

    def exchange(
        self, program: Program, other: Program, known: tuple[Process | Command, Backend]
    ) -> tuple[Process | Command, Backend]:
        """Supervise `other` in place of a program with the same pipes. known: its table and node; return the
        program's."""
        self._selector.unregister(program)
        self._selector.register(other, selectors.EVENT_READ)
        self.programs[self.programs.index(program)] = other
        before = self._known.pop(program.name)
        self._known[other.name] = known
        self._note("program ended", program, by="migration")
        self._note("program started", other, pid=other.process.pid, log=other.log.name)
        self._note("program ready", other)
        return before

    def start_own(self, process: Process, node: Backend) -> Program:
        """Start a program of cellbed for a node; its standard error goes to ``<name>.log``.

        Forks of one program share the environment of the first fork. Errors: :class:`ProgramError`.
        """
        place = node.place and replace(node.place, cgroups=(*node.place.cgroups, *process.cgroups))
        log = self._raw / f"{process.name}.log"
        _log.info(f"program {process.name} on {process.node}: {shlex.join(process.argv)}")
        started: Running
        with log.open("ab") as errors:
            try:
                if place is None:
                    started = self._sent.start(process, node, errors)
                elif process.forked:
                    started = self._fork_server(process).start(process.arguments, place, errors)
                else:
                    environment, pipe = self._environment(process), subprocess.PIPE
                    started = spawn(
                        process.argv, place, environment=environment, stdin=pipe, stdout=pipe, stderr=errors
                    )
            except (OSError, subprocess.SubprocessError) as error:
                raise ProgramError(f"cannot start {process.name} on {process.node}: {error}") from error
        found = Program(process.name, node, started, log)
        self._selector.register(found, selectors.EVENT_READ)
        self.programs.append(found)
        self._note("program started", found, pid=started.pid, log=log.name)
        return found

    def _environment(self, process: Process) -> dict[str, str]:
        return {**os.environ, **process.env, RUN_VARIABLE: self._run}

    def _fork_server(self, process: Process) -> ForkServer:
        """Return the fork server of a process's program; start it, if it does not run."""
        if (server := self._fork_servers.get(process.module)) is None:
            server = ForkServer(process.module, self._environment(process))
            self._fork_servers[process.module] = server
        return server

    def names_on(self, node: str) -> list[str]:
        """Return the programs of a node."""
        return [name for name, (process, _) in self._known.items() if process.node == node]

    def names_of(self, text: str) -> list[str]:
        """Return the programs whose names begin with `text`; without loads, if `text` is an application."""
        whole = "." in text
        return [
            name
            for name, (process, _) in self._known.items()
            if (name == text or name.startswith(f"{text}.")) and (whole or not process.load)
        ]

    def is_serving(self, application: str, node: str) -> bool:
        """Return whether the programs of an application on a node, except loads, run and are ready."""
        names = [name for name in self.names_of(application) if self._known[name][0].node == node]
        programs = {program.name: program for program in self.programs}
        return all(name in programs and programs[name].is_serving for name in names)

    def crash(self, names: Collection[str]) -> None:
        """Kill programs for a fault, without counting as a failure. A load of cellbed's own is over afterwards."""
        for program in [each for each in self.programs if each.name in names]:
            if isinstance(program, UnmodifiedProgram):
                program.crash()
                continue
            kill(program.process)
            with contextlib.suppress(KeyError):  # the program has ended before
                self._selector.unregister(program)
            self._note("program ended", program, status=program.process.poll(), by="fault")
            if self._known[program.name][0].load:
                program.events.append({"event": "done"})
            else:
                self.programs.remove(program)

    def recover(self, names: Collection[str]) -> None:
        """Restart crashed programs, except loads without a restart policy. Each stage starts when the previous one is
        ready. Errors: :class:`ProgramError`."""
        stages = sorted({self._known[name][0].stage for name in names})
        order = [[name for name in names if self._known[name][0].stage == stage] for stage in stages]
        self._recoveries.append(_Recovery(order))
        self._continue_recoveries()

    def _continue_recoveries(self) -> None:
        for each in self._recoveries:
            while each.stages and all(program.is_ready for program in each.before):
                each.before = [back for name in each.stages.pop(0) if (back := self._start_again(name)) is not None]
        self._recoveries = [each for each in self._recoveries if each.stages]

    def _start_again(self, name: str) -> AnyProgram | None:
        """Start a program again; return it if others wait for it."""
        process, node = self._known[name]
        there = next((each for each in self.programs if each.name == name), None)
        if isinstance(there, UnmodifiedProgram):
            there.recover()
            return None if process.load else there
        return None if process.load else self.start(process, node)

    def _note(self, event: str, program: AnyProgram, **more: Any) -> None:
        if self._journal is not None:
            self._journal.note(event, program.name, node=program.node, **more)

    def sample_nodes(
        self,
        nodes: Mapping[str, Backend],
        own: Sequence[int],
        from_ns: int,
        least_interval_ns: int = SAMPLE_INTERVAL_NS,
    ) -> None:
        """Begin to sample resource use: of nodes into ``nodes.jsonl``, of programs into ``programs.jsonl``, and of the
        machine into ``host.jsonl``.

        own: processes of the run outside all nodes. from_ns: monotonic time of the machine's first sample.
        least_interval_ns: minimum interval between two samples of a node.
        """
        self._nodes = nodes
        interval_ns = SAMPLE_INTERVAL_NS * max(1, math.ceil(len(nodes) / SAMPLED_AT_ONCE))
        self._sample_interval_ns = max(least_interval_ns, interval_ns)
        self._samples = (self._raw / "nodes.jsonl").open("w", encoding="utf-8")
        self._next_sample_ns = time.monotonic_ns()
        self._pressure = Pressure(own)
        self._host_samples = (self._raw / "host.jsonl").open("w")
        self._program_samples = (self._raw / "programs.jsonl").open("w", encoding="utf-8")
        self._next_host_sample_ns = from_ns

    def wait(self, until: Callable[[], bool], deadline_ns: int, tick: Callable[[], None] | None = None) -> bool:
        """Serve programs and samples until `until` returns true, or until the monotonic deadline; return whether it
        did.

        tick: called at least every 100 ms.
        """
        while not until():
            now = time.monotonic_ns()
            if now >= deadline_ns:
                return False
            self._sample(now)
            if tick is not None:
                tick()
            self._continue_recoveries()
            due_ns = min([deadline_ns, *self.alarms.values()])
            for each in self.programs:
                if isinstance(each, UnmodifiedProgram):
                    due_ns = min(due_ns, each.step(now))
            pause_s = min(self._pause_ns(now), due_ns - now, SAMPLE_INTERVAL_NS) / 1e9
            if self._reports is not None:
                self._reports.serve()
                pause_s = min(pause_s, SERVE_S) if self._reports.is_connected else pause_s
            for key, _ in self._selector.select(max(0.0, pause_s)):
                program = key.fileobj
                assert isinstance(program, Program)
                known = len(program.events)
                program.read()
                for event in program.events[known:]:
                    if event.get("event") in ("ready", "connected", "done"):
                        program.is_ready = True
                        self._note(f"program {event['event']}", program)
                if program.ended:
                    self._selector.unregister(program)
                    self._note("program ended", program, status=_await_end(program.process))
        return True

    def wait_ready(self, programs: Sequence[AnyProgram]) -> None:
        """Wait until each of `programs` has announced that it is ready; unmodified programs have their own limits.

        Errors: :class:`ProgramError` for a program of `programs` that is not ready in time, and for any program that
        ends meanwhile: others may wait for it, as for a broker.
        """

        def ready() -> bool:
            for program in self.programs:
                if program.ended and not (program in programs and program.is_ready):
                    raise program.failure()
                if isinstance(program, UnmodifiedProgram) and program.has_died():
                    raise program.failure()
            return all(program.is_ready for program in programs)

        own_limits = (each.command.ready.timeout_ns / 1e9 for each in programs if isinstance(each, UnmodifiedProgram))
        timeout_s = READY_TIMEOUT_S + max([READY_PER_PROGRAM_S * len(programs), *own_limits])
        if not self.wait(ready, time.monotonic_ns() + round(timeout_s * 1e9)):
            late = next(program for program in programs if not program.is_ready)
            raise ProgramError(f"{late.name} on {late.node} was not ready within {timeout_s:g} s; its log: {late.log}")

    def next_event(self, program: AnyProgram, silence_s: float) -> dict[str, Any]:
        """Take the next event of a program while all programs run. Errors: :class:`ProgramError`."""

        def received() -> bool:
            for each in self.programs:
                if each.ended and (each is not program or not each.events):
                    raise each.failure()
            return bool(program.events)

        if not self.wait(received, time.monotonic_ns() + round(silence_s * 1e9)):
            raise ProgramError(f"{program.name} on {program.node} sent no output for {silence_s:g} s")
        return program.events.pop(0)

    def stop(self) -> None:
        """End all programs, the last started first, and finish the samples."""
        self._sample_programs()
        for program in reversed(self.programs):
            program.request_stop()
        deadline = time.monotonic() + 1.0
        for program in reversed(self.programs):
            if isinstance(program, UnmodifiedProgram):
                program.close()
                continue
            try:
                program.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                if status_of(program.process.pid)[0] == "T":
                    self.problems.append(f"{program.name} stood still (SIGSTOP) and was killed")
                end(program.process)
            else:
                kill(program.process)
            while not program.ended and program.is_readable():
                program.read()
            self.problems += [f"{program.name}: {note}" for note in program.notes]
        for program in self.programs:
            how = "ended before" if program.process is None else f"status {program.process.poll()}"
            _log.info(f"program {program.name}: {how}, {self._usage.cpu_ns(program.name) / 1e9:.3f} s of CPU")
        self.problems += self._sent.collect()
        for server in self._fork_servers.values():
            server.close()
        if self._reports is not None:
            self._reports.close()
        if self._samples is not None:
            self._sample(self._next_sample_ns)
            self._samples.close()
            self._samples = None
        for file in (self._host_samples, self._program_samples):
            if file is not None:
                file.close()
        self._selector.close()

    def _pause_ns(self, now_ns: int) -> int:
        return max(0, self._next_sample_ns - now_ns) if self._samples is not None else SAMPLE_INTERVAL_NS

    def _sample_host(self) -> None:
        assert self._host_samples is not None
        nodes: dict[str, list[int]] = {}
        for program in self.programs:
            if program.process is not None:
                nodes.setdefault(program.node, []).append(program.process.pid)
        samples = {name: node.sample() for name, node in self._nodes.items()}
        throttled = {name: sample.throttled_ns if sample else None for name, sample in samples.items()}
        self._host_samples.write(json.dumps(self._pressure.sample(nodes, throttled)) + "\n")
        self._host_samples.flush()

    def _sample_programs(self) -> None:
        if self._program_samples is None:
            return
        for program in self.programs:
            if isinstance(program, Program) and program.log.stat().st_size > OUTPUT_LIMIT:
                os.truncate(program.log, OUTPUT_LIMIT)  # the program appends
            memory = None
            if program.process is not None:
                cpu_ns, memory = self._nodes[program.node].use(program.process.pid)
                self._usage.count(program.name, program.process.pid, cpu_ns)
            sample = {
                "time_ns": time.monotonic_ns(),
                "program": program.name,
                "node": program.node,
                "cpu_ns": self._usage.cpu_ns(program.name),
                "memory_bytes": memory,
            }
            self._program_samples.write(json.dumps(sample) + "\n")
        self._program_samples.flush()

    def _sample(self, now_ns: int) -> None:
        if self._samples is None or now_ns < self._next_sample_ns:
            return
        if now_ns >= self._next_host_sample_ns:
            self._sample_host()
            self._sample_programs()
            while self._next_host_sample_ns <= now_ns:
                self._next_host_sample_ns += HOST_INTERVAL_NS
        for name, node in self._nodes.items():
            sample = node.sample()
            if sample is None or (sample.time_ns is not None and sample.time_ns == self._sampled.get(name)):
                continue
            self._sampled[name] = sample.time_ns
            record = {**asdict(sample), "time_ns": sample.time_ns or time.monotonic_ns(), "node": name}
            self._samples.write(json.dumps(record) + "\n")
        self._samples.flush()
        while self._next_sample_ns <= now_ns:
            self._next_sample_ns += self._sample_interval_ns


def _await_end(process: Running) -> int | None:
    """Return the exit status of a program that has closed its standard output."""
    try:
        return process.wait(_END_S)
    except subprocess.TimeoutExpired:
        kill(process)  # else the program would run on
        return process.poll()
