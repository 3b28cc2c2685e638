"""Measure each link and each limit against what was asked, before the workload starts.

A testbed whose shaping or limit was silently not applied gives wrong results that look right. So datagrams are
sent between the nodes' real sockets and their arrival is held against the schedule, and processes that want more
than their node's share are run under each node's limits.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from cellbed.errors import CellbedError
from cellbed.scenario.fields import ConstantRate
from cellbed.testbed.cgroups import Group
from cellbed.testbed.emulator import Emulator
from cellbed.testbed.plan import Direction, Node, Plan
from cellbed.testbed.process import Place, kill, spawn
from cellbed.traces import TraceSource

MILLISECOND = 1_000_000
DATAGRAM = 1500
"""Size of a capacity probe: one MTU, so that one datagram takes one delivery opportunity."""

DELAY_TOLERANCE_NS = 2 * MILLISECOND
"""A direction is off when its median delay differs from what was asked by more: well above what a busy machine adds
to a timer at the median, well below what a wrong setting would give."""
RATE_TOLERANCE = 0.05
CPU_TOLERANCE = 0.10
CPU_PROOF_NS = 200 * MILLISECOND
IDLE_PROBES = 12
ATTEMPTS = 5
IDLE_SPACING_NS = 8 * MILLISECOND
HIGHEST_PROBE_RATE = 400_000_000


@dataclass(frozen=True, slots=True)
class Proof:
    """One thing measured: what was asked, what was measured, in which unit, and whether that will do.

    asked: for a link what its schedule predicts for the datagrams that were sent.
    reached: false for a limit that is not exceeded but that the busy machine could not fill either.
    """

    what: str
    asked: float | None
    measured: float | None
    unit: str
    ok: bool
    note: str = ""
    reached: bool = True

    @property
    def state(self) -> str:
        """``holds``, ``not reached`` or ``off``."""
        return "off" if not self.ok else "holds" if self.reached else "not reached"

    def as_dict(self) -> dict[str, Any]:
        """For ``run.json``."""
        return {**asdict(self), "state": self.state}

    def __str__(self) -> str:
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
        before, began = group.sample().cpu_ns, time.monotonic_ns()
        time.sleep(CPU_PROOF_NS / 1e9)
        after, ended = group.sample().cpu_ns, time.monotonic_ns()
    finally:
        for process in spinners:
            kill(process)
    if before is None or after is None:
        return Proof(what, node.cpus, None, "CPUs", ok=False, note="the kernel does not account CPU time")
    used = (after - before) / (ended - began)
    too_much = used > node.cpus * (1 + CPU_TOLERANCE) + 0.02
    short = used < node.cpus * (1 - 2 * CPU_TOLERANCE)
    absent = used < node.cpus * 0.25
    if too_much:
        note = "exceeds its limit"
    elif absent:
        note = "the node's programs do not come under its control group, or the machine has no time at all"
    else:
        note = "not exceeded, but the machine is too busy to give that much now" if short else ""
    return Proof(what, node.cpus, used, "CPUs", ok=not (too_much or absent), note=note, reached=not short)


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


def prove_links(plan: Plan, emulator: Emulator, notify: Callable[[str], None]) -> Iterator[Proof]:
    """Send datagrams over every link, both ways, and hold delay and rate against the schedule."""
    endpoints = plan.of_class("endpoint")
    remotes = plan.of_class("edge") + plan.of_class("cloud")
    proved: set[str] = set()
    for number in range(max(len(endpoints), len(remotes))):
        endpoint, remote = endpoints[number % len(endpoints)], remotes[number % len(remotes)]
        uplink, downlink = plan.path(endpoint.name, remote.name), plan.path(remote.name, endpoint.name)
        if {direction.name for direction in (*uplink, *downlink)} <= proved:
            continue
        notify(f"measuring the links between {endpoint.name} and {remote.name}")
        for proof in _prove_path_patiently(emulator, uplink, downlink):
            name = proof.what.split(" ")[0]
            if name not in proved:
                yield proof
        proved |= {direction.name for direction in (*uplink, *downlink)}


def _prove_path_patiently(emulator: Emulator, uplink: list[Direction], downlink: list[Direction]) -> list[Proof]:
    """A busy machine can spoil a measurement once; a link that is off is off each time."""
    proofs: dict[str, Proof] = {}
    for _ in range(ATTEMPTS):
        for proof in _prove_path(emulator, uplink, downlink):
            if proof.what not in proofs or not proofs[proof.what].ok:
                proofs[proof.what] = proof
        if all(proof.ok for proof in proofs.values()):
            break
    return list(proofs.values())


def _prove_path(emulator: Emulator, uplink: list[Direction], downlink: list[Direction]) -> Iterator[Proof]:
    window_ns = 250 * MILLISECOND
    begin_ns = _window(uplink + downlink, window_ns + IDLE_PROBES * IDLE_SPACING_NS)
    zero_ns = time.monotonic_ns()
    emulator.restart_links(zero_ns, begin_ns)
    idle_rate = round(100 * 8e9 / IDLE_SPACING_NS)
    idle = _probe(emulator, [(path, 100, idle_rate) for path in (uplink, downlink)], IDLE_PROBES)
    for path, flow in zip((uplink, downlink), idle, strict=True):
        yield from _delay_proofs(path, flow, zero_ns, begin_ns)
    bottlenecks = [(path, direction) for path in (uplink, downlink) for direction in path if _limited(direction)]
    if not bottlenecks:
        return
    zero_ns = time.monotonic_ns()
    emulator.restart_links(zero_ns, begin_ns)
    flows = []
    for path, direction in bottlenecks:
        expected = 8e9 * _capacity(direction, begin_ns, begin_ns + window_ns) / window_ns
        flows.append((path, DATAGRAM, min(HIGHEST_PROBE_RATE, max(200_000, round(1.4 * expected)))))
    busy = _probe(emulator, flows, None, window_ns)
    for (path, direction), flow in zip(bottlenecks, busy, strict=True):
        yield _rate_proof(path, direction, flow, zero_ns, begin_ns)


def _probe(
    emulator: Emulator, flows: list[tuple[list[Direction], int, int]], packets: int | None, duration_ns: int = 0
) -> list[dict[str, Any]]:
    commands = [
        {
            "from": path[0].source,
            "to": path[-1].target,
            "bytes": size,
            "bit_rate": bit_rate,
            "duration_ns": duration_ns if packets is None else round(packets * size * 8e9 / bit_rate),
            "family": 4,
        }
        for path, size, bit_rate in flows
    ]
    return emulator.probe(commands, timeout=20.0)


def _delay_proofs(path: list[Direction], flow: dict[str, Any], zero_ns: int, begin_ns: int) -> Iterator[Proof]:
    asked_ns, errors_ns = [], []
    for sent, received in zip(flow["sent_ns"], flow["received_ns"], strict=True):
        if received is None:
            continue
        due = sent
        for direction in path:
            due = _departure(direction, due, zero_ns, begin_ns)
        asked_ns.append(due - sent)
        errors_ns.append(received - due)
    fixed_ms = sum(direction.delay_ns for direction in path) / 1e6
    for direction in path:
        what = f"{direction.name} delay"
        if not errors_ns:
            yield Proof(what, fixed_ms, None, "ms", ok=False, note="no datagram arrived")
            continue
        error_ns = statistics.median(errors_ns)
        asked = statistics.median(asked_ns)
        early_ns = min(errors_ns)
        ok = abs(error_ns) <= DELAY_TOLERANCE_NS and early_ns >= 0
        note = "early packets" if early_ns < 0 else f"whole path, one way, {len(errors_ns)} datagrams"
        yield Proof(what, asked / 1e6, (asked + error_ns) / 1e6, "ms", ok, note)


def _rate_proof(
    path: list[Direction], direction: Direction, flow: dict[str, Any], zero_ns: int, begin_ns: int
) -> Proof:
    """Bytes between the first and the last arrival against what the schedule offered between their departures."""
    arrivals = sorted(received for received in flow["received_ns"] if received is not None)
    what = f"{direction.name} rate"
    if len(arrivals) < 3:
        return Proof(what, None, None, "Mbit/s", ok=False, note=f"{len(arrivals)} datagrams arrived")
    behind_ns = sum(step.delay_ns for step in path[path.index(direction) :])
    first, last = (arrival - behind_ns - zero_ns + begin_ns for arrival in (arrivals[0], arrivals[-1]))
    offered = _capacity(direction, first + 1, last + 1)
    delivered = (len(arrivals) - 1) * DATAGRAM
    span_s = (last - first) / 1e9
    slack = max(RATE_TOLERANCE * offered, 3 * DATAGRAM) + direction.loss * offered
    highest = min(1.0, HIGHEST_PROBE_RATE * span_s / 8 / max(offered, 1))
    if highest < 1.0:
        note = f"probed up to {HIGHEST_PROBE_RATE / 1e6:g} Mbit/s"
        ok = delivered <= offered + slack and delivered >= highest * offered * (1 - 3 * RATE_TOLERANCE)
    else:
        note = f"{len(arrivals)} datagrams in {span_s * 1e3:.0f} ms"
        ok = abs(delivered - offered) <= slack
    return Proof(what, 8e-6 * offered / span_s, 8e-6 * delivered / span_s, "Mbit/s", ok, note)


def _limited(direction: Direction) -> bool:
    return isinstance(direction.capacity, TraceSource | ConstantRate)


def _departure(direction: Direction, arrival_ns: int, zero_ns: int, begin_ns: int) -> int:
    """When a small packet that meets an empty queue leaves the direction."""
    match direction.capacity:
        case TraceSource() as trace:
            shift = begin_ns + direction.offset_ns - zero_ns
            arrival_ns = trace.trace.next_opportunity(arrival_ns + shift) - shift
        case ConstantRate(bit_rate=bit_rate):
            arrival_ns += round(100 * 8e9 / bit_rate)
    return arrival_ns + direction.delay_ns


def _capacity(direction: Direction, begin_ns: int, end_ns: int) -> int:
    """Bytes that the direction's schedule offers in an interval, counted from the start of the run's trace."""
    match direction.capacity:
        case TraceSource() as trace:
            return trace.trace.capacity(begin_ns + direction.offset_ns, end_ns + direction.offset_ns)
        case ConstantRate(bit_rate=bit_rate):
            return round(bit_rate * (end_ns - begin_ns) / 8e9)
    raise ValueError(f"{direction.name} has no capacity limit")


def _window(directions: list[Direction], width_ns: int) -> int:
    """Where in the traces to measure: where the scarcest direction offers the most, far from outages."""
    traced = [direction for direction in directions if isinstance(direction.capacity, TraceSource)]
    if not traced:
        return 0

    def scarcest(begin_ns: int) -> tuple[bool, float]:
        shares = []
        for direction in traced:
            assert isinstance(direction.capacity, TraceSource)
            mean = direction.capacity.trace.mean_bit_rate * width_ns / 8e9
            # Four looks into the window: a gap in one of them would leave probes without an opportunity.
            quarters = [
                _capacity(direction, begin_ns + part * width_ns // 4, begin_ns + (part + 1) * width_ns // 4)
                for part in range(4)
            ]
            shares.append(4 * min(quarters) / mean if mean else 0.0)
        return (min(shares) > 0, min(shares))

    period_ns = 60_000 * MILLISECOND
    candidates = range(0, period_ns, max(width_ns, period_ns // 200))
    return max(candidates, key=scarcest)
