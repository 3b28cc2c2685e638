"""A migrating service of cellbed that consists of several programs, such as a broker and its workers."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cellbed.testbed.machine.process import Process, ProgramError
from cellbed.testbed.nodes.backend import Backend
from cellbed.testbed.programs.supervise import Program, Supervisor
from cellbed.testbed.programs.unmodified import Command
from cellbed_node.processes import Running, kill

GRACE_NS = 2_000_000_000
"""Maximum time for each program to end."""


class OwnService:
    """The programs of cellbed that serve an application on a node. Each starts when the previous one is ready. They end
    in the same order, because clients of a broker reconnect as soon as it ends.

    It has the members of :class:`~cellbed.testbed.programs.unmodified.UnmodifiedProgram` that a migration needs.
    """

    def __init__(
        self,
        app: str,
        node: Backend,
        supervisor: Supervisor,
        *,
        running: Sequence[Program] = (),
        waiting: Sequence[Process] = (),
    ) -> None:
        """running: programs that have started. waiting: programs that :meth:`start` starts."""
        self.name, self.node = f"{app}.{node.name}", node.name
        self._backend, self._supervisor = node, supervisor
        self._running, self._waiting = list(running), sorted(waiting, key=lambda each: each.stage)
        self._kill_ns: int | None = None
        self._continued: list[tuple[Program, tuple[Process | Command, Backend]]] = []

    @property
    def processes(self) -> list[Running]:
        """Return the processes of the programs."""
        return [each.process for each in self._running]

    @property
    def process(self) -> Running | None:
        """Return the process of the first program, until all programs have ended."""
        return self._running[0].process if self._running else None

    @property
    def is_ready(self) -> bool:
        """Return whether all programs have become ready."""
        return not self._waiting and all(each.is_ready for each in self._running)

    @property
    def ended(self) -> bool:
        """Return whether one of the programs has ended."""
        return any(each.ended for each in self._running)

    @property
    def is_serving(self) -> bool:
        """Return whether the programs run and have become ready."""
        return bool(self._running) and self.is_ready and not self.ended

    def start(self) -> None:
        """Start the first program. Errors: :class:`ProgramError`."""
        self.step(time.monotonic_ns())

    def step(self, now_ns: int) -> None:
        """Start or end the next program when due. Errors: :class:`ProgramError`."""
        if self._kill_ns is not None:
            if self._running and (self._running[0].process.poll() is not None or now_ns >= self._kill_ns):
                kill(self._running.pop(0).process)
                self._stop_first(now_ns)
        elif self._waiting and all(each.is_ready for each in self._running):
            started = self._supervisor.start(self._waiting.pop(0), self._backend)
            assert isinstance(started, Program)
            self._running.append(started)

    def adopt(self, source: OwnService, processes: Sequence[Running]) -> None:
        """Continue the programs of another service in its restored processes, which have the same pipes."""
        waiting = {each.name.rpartition(".")[2]: each for each in self._waiting}
        for program, process in zip(source._running, processes, strict=True):
            known = waiting[program.name.rpartition(".")[2]], self._backend
            there = program.continued(known[0].name, self._backend, process)
            self._continued.append((program, self._supervisor.exchange(program, there, known)))
            self._running.append(there)
        self._waiting.clear()

    def failure(self) -> ProgramError:
        """Return why a program has ended."""
        return next(each for each in self._running if each.ended).failure()

    def request_stop(self) -> None:
        """Ask the first program to end; :meth:`step` continues with the others."""
        for each in self._running:
            self._supervisor.dismiss(each)
        self._stop_first(time.monotonic_ns())

    def _stop_first(self, now_ns: int) -> None:
        self._kill_ns = now_ns + GRACE_NS
        if self._running:
            self._running[0].request_stop()

    def crash(self, by: str = "") -> None:
        """Kill the programs. Programs that they continued are supervised again. by: unused."""
        for each, (before, known) in zip(self._running, self._continued, strict=False):
            self._supervisor.exchange(each, before, known)
        for each in reversed(self._running):
            self._supervisor.dismiss(each)
            kill(each.process)
        self._running.clear()
        self._waiting.clear()
