"""From a scenario to a plan: which nodes with which addresses and limits, joined by which links.

The topology is that of a cellular network: every endpoint has a last-mile link of its own to the tower, and core
links lead from the tower to each edge and cloud node. A recorded trace is what *one* device got from the network,
so each endpoint replays its own copy of it.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, Literal

from cellbed.scenario.fields import Capacity, ConstantRate, QueueLimit, Unlimited
from cellbed.scenario.model import CoDel, DropHead, DropTail, Infinite, MobileLink, Pie, Queue, Scenario
from cellbed.scenario.units import BIT_RATE, DURATION, SIZE
from cellbed.traces import TraceSource

TOWER = "tower"
CLASSES = ("endpoint", "edge", "cloud")
"""Node classes in the order of the SPEC-RG reference architecture (Jansen et al., CCGRID 2023, §3)."""

Way = Literal["uplink", "downlink"]


@dataclass(frozen=True, slots=True)
class Node:
    """One node. cpus: share of one CPU's time; memory_bytes: limit; ipv4, ipv6: its addresses."""

    name: str
    node_class: str
    index: int
    cpus: float
    memory_bytes: int
    ipv4: IPv4Address
    ipv6: IPv6Address


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction of a link: what carries packets from one vertex to the next.

    link: name of the link; way: direction seen from the endpoint; source, target: vertices.
    capacity: what limits the rate; delay_ns: fixed one-way delay; loss: probability of losing a packet.
    queue: bottleneck queue as the emulator takes it, ``None`` where nothing queues.
    offset_ns: where in the trace the run starts; looped: whether the trace begins anew at its end.
    """

    name: str
    link: str
    way: Way
    source: str
    target: str
    capacity: Capacity
    delay_ns: int
    loss: float
    loss_seed: int
    queue: dict[str, Any] | None
    offset_ns: int
    looped: bool

    @property
    def config(self) -> dict[str, Any]:
        """The direction as the emulator takes it."""
        return {"name": self.name, "from": self.source, "to": self.target, "stages": self.stages}

    @property
    def stages(self) -> list[dict[str, Any]]:
        """The stages in the emulator's terms, in the order in which a packet meets them."""
        stages: list[dict[str, Any]] = []
        if self.loss > 0:
            stages.append({"kind": "loss", "probability": self.loss, "seed": self.loss_seed})
        match self.capacity:
            case TraceSource() as trace:
                schedule: dict[str, Any] | None = {
                    "kind": "trace",
                    "path": str(trace.path),
                    "looped": self.looped,
                    "offset_ns": self.offset_ns,
                }
            case ConstantRate(bit_rate=bit_rate):
                schedule = {"kind": "constant", "bit_rate": bit_rate}
            case Unlimited():
                schedule = None
        if schedule is not None:
            stages.append({"kind": "bottleneck", "schedule": schedule, "queue": self.queue})
        if self.delay_ns > 0:
            stages.append({"kind": "delay", "fixed_ns": self.delay_ns})
        return stages

    @property
    def description(self) -> str:
        """What the direction does to packets, in one line."""
        words = []
        match self.capacity:
            case TraceSource(name=name):
                words.append(f"{name}{' (synthetic)' if self.capacity.synthetic else ''}")
                if self.offset_ns:
                    words.append(f"from {DURATION.format(self.offset_ns)}")
                words.append("looped" if self.looped else "once")
            case ConstantRate(bit_rate=bit_rate):
                words.append(BIT_RATE.format(bit_rate))
        if self.queue is not None and words:
            words.append(_queue_words(self.queue))
        words.append(f"{DURATION.format(self.delay_ns)} one way")
        if self.loss > 0:
            words.append(f"loss {self.loss:g}")
        return ", ".join(words)


@dataclass(frozen=True)
class Plan:
    """Everything that a run brings up. nodes and directions are in a fixed order; indices refer to it."""

    scenario: Scenario
    nodes: tuple[Node, ...]
    directions: tuple[Direction, ...]

    def emulator_config(
        self, series: Path | None, packet_log: Path | None, congestion_control: str | None = None
    ) -> dict[str, Any]:
        """The configuration line for the emulator."""
        sysctls = {"net.ipv4.tcp_congestion_control": congestion_control} if congestion_control else {}
        vertices: list[dict[str, Any]] = [
            {
                "name": node.name,
                "namespace": "new",
                "addresses": [f"{node.ipv4}/32", f"{node.ipv6}/128"],
                "routes": ["0.0.0.0/0", "::/0"],
                "sysctls": sysctls,
            }
            for node in self.nodes
        ]
        vertices.append({"name": TOWER, "namespace": None})
        return {
            "namespaces": "auto",
            "vertices": vertices,
            "default_vertex": None,
            "directions": [direction.config for direction in self.directions],
            "series": str(series) if series else None,
            "packet_log": str(packet_log) if packet_log else None,
        }

    def node(self, name: str) -> Node:
        """The node called `name`."""
        return next(node for node in self.nodes if node.name == name)

    def of_class(self, node_class: str) -> list[Node]:
        """The nodes of one class."""
        return [node for node in self.nodes if node.node_class == node_class]

    def hosts_file(self) -> str:
        """``/etc/hosts`` as the nodes see it: every node by name."""
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        for node in self.nodes:
            lines += [f"{node.ipv4} {node.name}", f"{node.ipv6} {node.name}"]
        return "\n".join(lines) + "\n"

    def path(self, source: str, target: str) -> list[Direction]:
        """The directions that a packet crosses from one node to another, by the fewest hops."""
        reached: dict[str, list[Direction]] = {source: []}
        waiting = deque([source])
        while waiting:
            vertex = waiting.popleft()
            if vertex == target:
                return reached[vertex]
            for direction in self._leaving.get(vertex, ()):
                if direction.target not in reached:
                    reached[direction.target] = [*reached[vertex], direction]
                    waiting.append(direction.target)
        raise ValueError(f"no path from {source} to {target}")

    @cached_property
    def _leaving(self) -> dict[str, list[Direction]]:
        leaving: dict[str, list[Direction]] = {}
        for direction in self.directions:
            leaving.setdefault(direction.source, []).append(direction)
        return leaving


def make_plan(scenario: Scenario) -> Plan:
    """Plan a scenario.

    Errors: :class:`cellbed.traces.TraceError` for a trace that is malformed.
    """
    nodes = tuple(
        Node(
            name=f"{node_class}-{index}",
            node_class=node_class,
            index=index,
            cpus=description.cpus,
            memory_bytes=description.memory,
            ipv4=IPv4Address("100.64.0.0") + (number << 14) + index + 2,
            ipv6=IPv6Address("fd63:656c:6c62::") + (number << 64) + index + 2,
        )
        for number, node_class in enumerate(CLASSES)
        if (description := getattr(scenario.nodes, node_class)) is not None
        for index in range(description.count)
    )
    directions: list[Direction] = []
    mobile = scenario.links.mobile
    for node in nodes:
        if node.node_class == "endpoint":
            directions += _mobile_link(scenario, mobile, node)
        else:
            directions += _core_link(getattr(scenario.links.core, node.node_class).one_way, node)
    return Plan(scenario, nodes, tuple(directions))


def _mobile_link(scenario: Scenario, mobile: MobileLink, node: Node) -> list[Direction]:
    link = f"mobile-{node.index}"
    ways: list[tuple[Way, str, str, Capacity, float]] = [
        ("uplink", node.name, TOWER, mobile.up, mobile.loss.uplink),
        ("downlink", TOWER, node.name, mobile.down, mobile.loss.downlink),
    ]
    return [
        Direction(
            name=f"{link}.{way}",
            link=link,
            way=way,
            source=source,
            target=target,
            capacity=capacity,
            delay_ns=mobile.base_delay,
            loss=loss,
            loss_seed=_derived_seed(scenario.seed, f"{link}.{way}.loss"),
            queue=_queue(mobile.queue, _derived_seed(scenario.seed, f"{link}.{way}.queue")),
            offset_ns=mobile.start,
            looped=mobile.loop,
        )
        for way, source, target, capacity, loss in ways
    ]


def _core_link(delay_ns: int, node: Node) -> list[Direction]:
    link = f"core-{node.name}"
    ways: list[tuple[Way, str, str]] = [("uplink", TOWER, node.name), ("downlink", node.name, TOWER)]
    return [
        Direction(
            name=f"{link}.{way}",
            link=link,
            way=way,
            source=source,
            target=target,
            capacity=Unlimited(),
            delay_ns=delay_ns,
            loss=0.0,
            loss_seed=0,
            queue=None,
            offset_ns=0,
            looped=True,
        )
        for way, source, target in ways
    ]


def queue_config(limit: QueueLimit | None) -> dict[str, Any]:
    """A queue as the emulator takes it: drop-tail with a limit, infinite without."""
    if limit is None:
        return {"kind": "infinite"}
    return {"kind": "droptail", **_limit(limit)}


def _queue(queue: Queue, seed: int) -> dict[str, Any]:
    match queue:
        case DropTail():
            return queue_config(queue.limit)
        case DropHead():
            return {"kind": "drophead", **_limit(queue.limit)}
        case CoDel():
            return {"kind": "codel", "target_ns": queue.target, "interval_ns": queue.interval, **_limit(queue.limit)}
        case Pie():
            return {
                "kind": "pie",
                "target_ns": queue.target,
                "burst_ns": queue.burst,
                "seed": seed,
                **_limit(queue.limit),
            }
        case Infinite():
            return queue_config(None)


def _limit(limit: QueueLimit) -> dict[str, int | None]:
    return {"packets": limit.packets, "bytes": limit.bytes}


_QUEUE_NAMES = {"droptail": "drop-tail", "drophead": "drop-head", "codel": "CoDel", "pie": "PIE"}


def _queue_words(queue: dict[str, Any]) -> str:
    if queue["kind"] == "infinite":
        return "infinite queue"
    limit = SIZE.format(queue["bytes"]) if queue["bytes"] is not None else f"{queue['packets']} packets"
    return f"{_QUEUE_NAMES[queue['kind']]} queue of {limit}"


def _derived_seed(seed: int, purpose: str) -> int:
    """A seed of its own for each random stage, so that adding one does not change the others."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "little")
