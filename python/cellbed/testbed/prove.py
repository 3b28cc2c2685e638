"""Measure each limit against what was asked, before the workload starts.

A testbed whose shaping or limit was silently not applied gives wrong results that look right. So datagrams are
sent between the nodes' real sockets and their arrival is held against the schedule (`prove_links`), and processes that
want more than their node's share are run under each node's limits.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from cellbed.errors import CellbedError
from cellbed.testbed.cgroups import Group
from cellbed.testbed.plan import Node
from cellbed.testbed.process import Place, kill, spawn

MILLISECOND = 1_000_000
CPU_TOLERANCE = 0.10
CPU_PROOF_NS = 200 * MILLISECOND
_TICK_NS = 10 * MILLISECOND
"""To which the kernel tells a process's own processor time."""


@dataclass(frozen=True, slots=True)
class Proof:
    """One thing measured: what was asked, what was measured, in which unit, and whether that will do.

    asked: for a link what its schedule predicts for the datagrams that were sent.
    reached: false for a limit that is not exceeded but that the busy machine could not fill either.
    proved: false for what cannot be predicted; the note says why.
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

    def as_dict(self) -> dict[str, Any]:
        """For ``run.json``."""
        return {**asdict(self), "state": self.state}

    def __str__(self) -> str:
        if not self.proved:
            return f"{self.what} not proved: {self.note}"
        asked = "no limit" if self.asked is None else f"{self.asked:.4g} {self.unit}"
        measured = "nothing measured" if self.measured is None else f"{self.measured:.4g} {self.unit}"
        return f"{self.what}: expected {asked}, measured {measured}" + (f" ({self.note})" if self.note else "")


class ProofError(CellbedError):
    """A link or limit is not what was asked; the workload was not started."""

    exit_code = 3

    def __init__(self, failed: list[Proof]) -> None:
        lines = "\n".join(f"  {proof}" for proof in failed)
        super().__init__(f"the testbed is not what the scenario asks for, so the workload was not started:\n{lines}")


def prove_limits(node: Node, group: Group, place: Place, machine_cpus: int) -> Iterator[Proof]:
    """Run more than the node's share under its limits and see that it gets no more."""
    yield _prove_cpu(node, group, place, machine_cpus)
    yield _prove_memory(node, group, place)


def _prove_cpu(node: Node, group: Group, place: Place, machine_cpus: int) -> Proof:
    what = f"{node.name} CPU limit"
    stated, _ = group.limits()
    if stated is None or abs(stated - node.cpus) > 0.01:
        return Proof(what, node.cpus, stated, "CPUs", ok=False, note="the kernel states another limit")
    if node.cpus >= machine_cpus:
        note = f"as the kernel states it; this machine has {machine_cpus} CPUs, so it cannot be exceeded"
        return Proof(what, node.cpus, stated, "CPUs", ok=True, note=note)
    spinners = [
        spawn(["/bin/sh", "-c", "while :; do :; done"], place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(min(machine_cpus, int(node.cpus) + 1))
    ]
    try:
        # The first periods hold the processes' start.
        time.sleep(0.03)
        before, spun_before, began = group.sample().cpu_ns, _processor_seconds(spinners), time.monotonic_ns()
        time.sleep(CPU_PROOF_NS / 1e9)
        after, spun_after, ended = group.sample().cpu_ns, _processor_seconds(spinners), time.monotonic_ns()
    finally:
        for process in spinners:
            kill(process)
    if before is None or after is None:
        return Proof(what, node.cpus, None, "CPUs", ok=False, note="the kernel does not account CPU time")
    used = (after - before) / (ended - began)
    too_much = used > node.cpus * (1 + CPU_TOLERANCE) + 0.02
    short = used < node.cpus * (1 - 2 * CPU_TOLERANCE)
    # However little a busy machine gives them, what they get is the group's.
    spun = (spun_after - spun_before) * 1e9 / (ended - began)
    absent = used < spun / 2 - 2 * _TICK_NS / (ended - began)
    if too_much:
        note = "exceeds its limit"
    elif absent:
        note = f"the node's programs took {spun:.2g} CPUs: they do not come under its control group"
    else:
        note = "not exceeded, but the machine is too busy to give that much now" if short else ""
    return Proof(what, node.cpus, used, "CPUs", ok=not (too_much or absent), note=note, reached=not short)


def _processor_seconds(processes: list[subprocess.Popen[bytes]]) -> float:
    times = [psutil.Process(process.pid).cpu_times() for process in processes]
    return sum(each.user + each.system for each in times)


def _prove_memory(node: Node, group: Group, place: Place) -> Proof:
    """See a process killed at a small limit in the node's group, then set and read back the real one."""
    what = f"{node.name} memory limit"
    mebibyte = 1 << 20
    group.limit(node.cpus, 24 * mebibyte)
    allocate = [sys.executable, "-I", "-S", "-c", f"b = bytearray({64 * mebibyte}); b[::4096] = b'x' * {64 * 256}"]
    process = spawn(allocate, place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        status = process.wait(10)
    except subprocess.TimeoutExpired:
        kill(process)
        status = -9
    group.limit(node.cpus, node.memory_bytes)
    _, stated = group.limits()
    asked = node.memory_bytes / mebibyte
    measured = stated / mebibyte if stated is not None else None
    if status == 0:
        return Proof(what, asked, measured, "MiB", ok=False, note="a process in the group went past a limit unharmed")
    page = 4096
    ok = stated is not None and abs(stated - node.memory_bytes) < page
    return Proof(what, asked, measured, "MiB", ok, note="" if ok else "the kernel states another limit")
