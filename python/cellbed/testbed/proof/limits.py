"""Measure each limit and compare it with the scenario, before the workload starts.

If a shaping or limit silently fails, a testbed gives wrong results that look right. Therefore, datagrams are sent
between the nodes' real sockets, and their arrivals are compared with the schedule (`prove_links`). Under each node's
limits, processes run that demand more than the node's share.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cellbed.support.errors import CellbedError
from cellbed.support.readable import alike
from cellbed.testbed.nodes.backend import Backend, Strain
from cellbed.testbed.plan import Node
from cellbed_node.processes import Running, kill

if TYPE_CHECKING:
    from cellbed.testbed.machine.cgroups import Group
    from cellbed.testbed.nodes.remote import RemoteGroup

MILLISECOND = 1_000_000
CPU_TOLERANCE = 0.10
CPU_PROOF_NS = 200 * MILLISECOND
CPU_LOOK_NS = 40 * MILLISECOND
CPU_START_NS = 10 * MILLISECOND
MEBIBYTE = 1 << 20
PROOF_MEMORY = 4 * MEBIBYTE
"""Margin of a temporary limit over a node's present usage: a process is killed at this limit as the proof."""
MEMORY_BATCH = 16
"""Maximum number of memory limits proved at the same time."""
MEASURED = 8
"""Number of nodes measured in a group of equal nodes. Of the others, the kernel's settings are read."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A measured property: the expected value, the measured value, their unit, and whether they agree.

    asked: for a link, the prediction of its schedule for the datagrams that were sent.
    reached: false for a limit that is not exceeded, but that the machine, busy or too small, could not reach either.
    proved: false if the property cannot be predicted or measured; the note has the reason.
    """

    what: str
    asked: float | None
    measured: float | None
    unit: str
    ok: bool
    note: str = ""
    reached: bool = True
    proved: bool = True

    @property
    def state(self) -> str:
        """``holds``, ``not reached``, ``not proved`` or ``off``."""
        if not self.proved:
            return "not proved"
        return "off" if not self.ok else "holds" if self.reached else "not reached"

    @property
    def is_settled(self) -> bool:
        """Return whether the property holds, or whether another measurement cannot prove it."""
        return self.ok and self.reached

    def as_dict(self) -> dict[str, Any]:
        """Return the proof in the format of ``run.json``."""
        return {**asdict(self), "state": self.state}

    def __str__(self) -> str:
        if not self.proved:
            return f"{self.what} not proved: {self.note}"
        asked = "no limit" if self.asked is None else f"{self.asked:.4g} {self.unit}"
        measured = "nothing measured" if self.measured is None else f"{self.measured:.4g} {self.unit}"
        return f"{self.what}: expected {asked}, measured {measured}" + (f" ({self.note})" if self.note else "")


class ProofError(CellbedError):
    """A link or limit deviates from the scenario; the workload was not started."""

    exit_code = 3

    def __init__(self, failed: list[Proof], cause: str = "") -> None:
        """cause: sentence on a disturbance of measurements by this machine."""
        lines = "\n".join(f"  {line}" for line in [*alike(map(str, failed)), *([cause] if cause else [])])
        what = "could not be measured" if cause else "does not match the scenario"
        super().__init__(f"the testbed {what}, so the workload was not started:\n{lines}")


@dataclass(frozen=True, slots=True)
class Limited:
    """A node with limits: its plan and its back end."""

    node: Node
    group: Group | RemoteGroup
    backend: Backend


def prove_limits(
    limited: Sequence[Limited], machine_cpus: int, progress: Callable[[str], object] = lambda _: None
) -> list[Proof]:
    """Demand more than each node's share under its limits, and check that the node gets no more. progress: called with
    the next measurement.

    Nodes are measured at the same time if the machine can supply the shares of all of them. Settings are read back from
    the kernel for all nodes; of many equal nodes, :data:`MEASURED` are measured, and the others are *not proved*.
    """
    # Nodes with another kernel are measured each.
    keys = {
        each.node.name: (each.node.group, each.group.limits()) if each.backend.place else each.node.name
        for each in limited
    }
    unmeasured = leave_out(keys, MEASURED, "nodes, settings read back on all")
    cpu: dict[str, Proof] = {}
    spinning: list[_Spinning] = []
    try:
        for each in limited:
            note = unmeasured.get(each.node.name, "")
            proof = _find_wrong_cpu(each, machine_cpus)
            if proof is None and note:
                proof = Proof(f"{each.node.name} CPU limit", each.node.cpus, None, "CPUs", True, note, proved=False)
            if proof is None:
                spinning.append(_Spinning(each, machine_cpus))
            else:
                cpu[each.node.name] = proof
        enough = {"holds"}
        for batch in _batches(spinning, machine_cpus):
            progress(f"CPU limits, {len(cpu)} of {len(limited)} done")
            proofs = _prove_cpu(batch, enough)
            cpu |= {spinner.node.name: proof for spinner, proof in zip(batch, proofs, strict=True)}
            # While other programs use the processors, longer batches would not reach the limits either.
            enough = {"holds"} | {proof.state for proof in proofs if proof.ok}
    finally:
        for spinner in spinning:
            kill(spinner.process)
    names = [each.node.name for each in limited]
    memory = {name: _memory_proof(each, unmeasured.get(name, "")) for name, each in zip(names, limited, strict=True)}
    chosen = [each for each in limited if each.node.name not in unmeasured]
    for begin in range(0, len(chosen), MEMORY_BATCH):
        progress(f"memory limits, {begin} of {len(chosen)} done")
        some = chosen[begin : begin + MEMORY_BATCH]
        memory |= {each.node.name: proof for each, proof in zip(some, _prove_memory(some), strict=True)}
    return [proof for name in names for proof in (cpu[name], memory[name])]


def leave_out(keys: Mapping[str, object], most: int, what: str) -> dict[str, str]:
    """Return the names that need no measurement, with the reason: of those with equal keys, `most` are measured. what:
    description of equal ones."""
    equal: list[tuple[object, list[str]]] = []  # parameters of links cannot all be hashed
    for name, key in keys.items():
        names = next((names for other, names in equal if other == key), None)
        if names is None:
            equal.append((key, names := []))
        names.append(name)
    notes: dict[str, str] = {}
    for _, names in equal:
        measured = {names[index * len(names) // most] for index in range(most)}
        note = f"measured on {len(measured)} of {len(names)} equal {what}"
        notes |= {name: note for name in names if name not in measured}
    return notes


def _find_wrong_cpu(limited: Limited, machine_cpus: int) -> Proof | None:
    """Return a proof of a CPU limit that is wrong, or that no program on the machine can exceed; else ``None``."""
    node = limited.node
    what = f"{node.name} CPU limit"
    stated, _ = limited.group.limits()
    if stated is None or abs(stated - node.cpus) > 0.01:
        return Proof(what, node.cpus, stated, "CPUs", ok=False, note="the kernel reports another limit")
    machine_cpus = limited.backend.facts.get("cpus", machine_cpus)  # for another machine
    if node.cpus >= machine_cpus:
        note = f"the machine has {machine_cpus} CPUs, so nothing can exceed it"
        return Proof(what, node.cpus, None, "CPUs", True, note, reached=node.cpus == machine_cpus, proved=False)
    return None


class _Spinning:
    """Processes that demand more CPU time than their node's share, and their usage since :meth:`begin`.

    They wait for :meth:`spin`, so that no process starts during the measurement of others.
    """

    def __init__(self, limited: Limited, machine_cpus: int) -> None:
        self.node = limited.node
        self._group = limited.group
        self.process = _start_strain(limited, "cpu", min(machine_cpus, int(limited.node.cpus) + 1))
        self._began: tuple[int, int] | None = None

    def spin(self) -> None:
        """Let the processes begin."""
        _begin(self.process)

    def begin(self) -> None:
        """Begin the measurement."""
        self._began = self._now()

    def proof(self) -> Proof:
        """Return the proof from the measurements so far."""
        node = self.node
        what = f"{node.name} CPU limit"
        began, now = self._began, self._now()
        if began is None or now is None:
            return Proof(what, node.cpus, None, "CPUs", ok=False, note="the kernel does not account CPU time")
        used = (now[0] - began[0]) / (now[1] - began[1])
        too_much = used > node.cpus * (1 + CPU_TOLERANCE) + 0.02
        short = used < node.cpus * (1 - 2 * CPU_TOLERANCE)
        absent = not self._group.contains(self.process.pid)
        if too_much:
            note = "exceeds its limit"
        elif absent:
            note = "the node's programs do not join its control group"
        else:
            note = "not exceeded, but the machine is too busy to supply that much now" if short else ""
        return Proof(what, node.cpus, used, "CPUs", ok=not (too_much or absent), note=note, reached=not short)

    def _now(self) -> tuple[int, int] | None:
        """Return the CPU time of the group, and the time, ns."""
        used = self._group.sample().cpu_ns
        return None if used is None else (used, time.monotonic_ns())


def _start_strain(limited: Limited, what: Strain, amount: int) -> Running:
    pipe = subprocess.PIPE
    backend = limited.backend
    return backend.spawn(backend.proof_command(what, amount), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)


def _memory_use(limited: Limited) -> int:
    return limited.group.sample().memory_bytes or 0


def _await_ready(process: Running) -> None:
    assert process.stdout is not None
    with process.stdout as stdout:
        stdout.readline()


def _begin(process: Running) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(b"\n")


def _batches(spinning: Sequence[_Spinning], machine_cpus: int) -> list[list[_Spinning]]:
    """Group nodes whose shares the machine can supply at the same time, in order: first fit."""
    batches: list[tuple[float, list[_Spinning]]] = []
    for each in spinning:
        for index, (cpus, batch) in enumerate(batches):
            if cpus + each.node.cpus <= machine_cpus:
                batches[index] = (cpus + each.node.cpus, [*batch, each])
                break
        else:
            batches.append((each.node.cpus, [each]))
    return [batch for _, batch in batches]


def _prove_cpu(batch: Sequence[_Spinning], enough: Container[str]) -> list[Proof]:
    """Measure the CPU limits of nodes at the same time.

    A measurement ends after :data:`CPU_LOOK_NS` if its state is in `enough`. Otherwise, it continues up to
    :data:`CPU_PROOF_NS`, because the kernel's accounting by ticks is coarse over the shorter time.
    """
    for each in batch:
        _await_ready(each.process)
    for each in batch:
        each.spin()
    # Exclude the first period, during which the processes start.
    time.sleep(CPU_START_NS / 1e9)
    for each in batch:
        each.begin()
    proofs: list[Proof] = []
    for _ in range(CPU_PROOF_NS // CPU_LOOK_NS):
        time.sleep(CPU_LOOK_NS / 1e9)
        proofs = [each.proof() for each in batch]
        if all(proof.state in enough for proof in proofs):
            break
    for each in batch:
        kill(each.process)
    return proofs


def _prove_memory(batch: Sequence[Limited]) -> list[Proof]:
    """Check that a process is killed at a small limit in each node's group; then set the real limit and read it
    back."""
    # More than the kernel could reclaim from the node's memory.
    started = [_start_strain(each, "memory", _memory_use(each) + 8 * PROOF_MEMORY) for each in batch]
    for each, process in zip(batch, started, strict=True):
        _await_ready(process)
        # The limit must exceed the node's present usage.
        each.group.limit(each.node.cpus, _memory_use(each) + PROOF_MEMORY)
        _begin(process)
    deadline = time.monotonic() + 10
    proofs = []
    for each, process in zip(batch, started, strict=True):
        try:
            status = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            kill(process)
            status = -9
        each.group.limit(each.node.cpus, each.node.memory_bytes)
        problem = "a process in the group exceeded the limit and was not killed" if status == 0 else ""
        proofs.append(_memory_proof(each, problem=problem))
    return proofs


def _memory_proof(limited: Limited, note: str = "", problem: str = "") -> Proof:
    """Return the proof of a memory limit by the kernel's setting. note: why the limit is not measured; problem: result
    of the measurement."""
    asked, page = limited.node.memory_bytes, 4096
    _, stated = limited.group.limits()
    if not problem and (stated is None or abs(stated - asked) >= page):
        problem = "the kernel reports another limit"
    measured = stated / MEBIBYTE if stated is not None else None
    what, is_proved = f"{limited.node.name} memory limit", bool(problem) or not note
    return Proof(what, asked / MEBIBYTE, measured, "MiB", not problem, problem or note, proved=is_proved)
