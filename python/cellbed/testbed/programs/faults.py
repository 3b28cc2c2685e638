"""Faults of a scenario: crashed or paused nodes, full disks, failed links and programs. Records handovers, too."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from cellbed.runformat.events import Journal
from cellbed.scenario.faults import Fault, Lasting, LinkFault, NodeFault, ProgramFault
from cellbed.testbed.plan import Move
from cellbed.testbed.programs.supervise import Supervisor
from cellbed.testbed.programs.unmodified import FOREVER_NS
from cellbed.testbed.testbed import Testbed


@dataclass(order=True)
class _Due:
    at_ns: int
    number: int
    fault: Fault | Move = field(compare=False)
    begins: bool = field(compare=False)


class Faults:
    """The faults of a run. Create before programs start; then :meth:`schedule`, and call :meth:`step` during the run.

    Faults of links and handovers are part of the plan, which the emulator follows on time; here they are only recorded.
    """

    def __init__(self, faults: Sequence[Fault | Move], bed: Testbed, supervisor: Supervisor, journal: Journal) -> None:
        self._faults, self._supervisor, self._journal = faults, supervisor, journal
        self._due: list[_Due] = []
        self._nodes = bed.nodes
        self._down: set[str] = set()

    def schedule(self, t0_ns: int) -> None:
        """Plan the faults of a schedule that starts at monotonic time `t0_ns`."""
        for number, fault in enumerate(self._faults):
            self._due.append(_Due(t0_ns + fault.at, number, fault, True))
            if isinstance(fault, Lasting | Move):
                self._due.append(_Due(t0_ns + fault.at + fault.length, number, fault, False))
        self._due.sort()
        self._supervisor.alarms["faults"] = self._next_ns

    def pause(self, content: Mapping[str, str]) -> dict[str, str]:
        """Begin a pause of a node by command. content: node, for. Errors: ``ValueError``."""
        fault = NodeFault.model_validate({**content, "kind": "pause", "at": "0 s"})
        if fault.node not in self._nodes or any(fault.node == getattr(due.fault, "node", None) for due in self._due):
            raise ValueError(f"{fault.node} is not a node, or another fault of it lasts or follows")
        self._faults = [*self._faults, fault]
        number, now_ns = len(self._faults) - 1, time.monotonic_ns()
        ends = _Due(now_ns + fault.length, number, fault, False)
        self._due = sorted([*self._due, _Due(now_ns, number, fault, True), ends])
        self.step()
        return {"began": str(fault)}

    def is_down(self, node: str) -> bool:
        """Return whether a node has crashed and is not back."""
        return node in self._down

    @property
    def _next_ns(self) -> int:
        return self._due[0].at_ns if self._due else FOREVER_NS

    def step(self) -> None:
        """Begin and end due faults. Errors: :class:`ProgramError` for a program that does not start."""
        while self._due and self._due[0].at_ns <= time.monotonic_ns():
            due = self._due.pop(0)
            self._do(due)
            self._supervisor.alarms["faults"] = self._next_ns

    def _do(self, due: _Due) -> None:
        if due.begins:
            self._note("began", due)
        match due.fault:
            case ProgramFault(program=program):
                names = self._supervisor.names_of(program)
                self._supervisor.crash(names)
                self._supervisor.recover(names)
            case NodeFault() as fault:
                self._do_to_node(fault, due.begins)
            case LinkFault() | Move():
                pass
            case _:
                assert_never(due.fault)
        if not due.begins or not isinstance(due.fault, Lasting | Move):
            self._note("ended", due)

    def _do_to_node(self, fault: NodeFault, begins: bool) -> None:
        node = self._nodes[fault.node]
        match fault.kind:
            case "full-disk":
                node.fill_disk(begins)
            case "pause":
                node.signal(signal.SIGSTOP if begins else signal.SIGCONT)
            case "crash" if begins:
                self._down.add(fault.node)
                self._supervisor.crash(self._supervisor.names_on(fault.node))
                node.signal(signal.SIGKILL)
            case "crash":
                self._down.remove(fault.node)
                self._supervisor.recover(self._supervisor.names_on(fault.node))
            case _:
                assert_never(fault.kind)

    def _note(self, event: str, due: _Due) -> None:
        now = due.at_ns if isinstance(due.fault, LinkFault | Move) else time.monotonic_ns()
        note(self._journal, event, due.number, due.fault, now, late_s=(now - due.at_ns) / 1e9)


def note(journal: Journal, event: str, number: int, fault: Fault | Move, time_ns: int, *, late_s: float = 0.0) -> None:
    """Record that a fault or handover "began" or "ended". number: number in the run; late_s: delay, seconds."""
    what = fault.kind if isinstance(fault, Move) else "fault"
    journal.note(f"{what} {event}", str(fault), time_ns, fault=number, kind=fault.kind, late_s=late_s)
