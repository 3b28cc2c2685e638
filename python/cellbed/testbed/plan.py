"""The plan of a scenario: nodes with addresses and limits, and the links between them.

The topology is a cellular network: every endpoint has a mobile link to the tower, and core links lead from the tower
to each edge and cloud node. A site is a vertex like the tower, a switch: it has a core link to the tower, a port to
each of its nodes, and the mobile links of its cells. A recorded trace is the capacity of *one* device, so each
endpoint replays a separate copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Literal

from cellbed.archive import TraceSource
from cellbed.laws.law import Law, name_of
from cellbed.runformat.changes import CHANGES
from cellbed.scenario import Scenario
from cellbed.scenario.capacities import LinkCapacity
from cellbed.scenario.cells import Cell
from cellbed.scenario.core import CoreDelay, CoreLink, CoreRoundTrips, Source
from cellbed.scenario.fallback import Stays
from cellbed.scenario.faults import Fault, LinkFault, NodeFault, link_name, site_link
from cellbed.scenario.fields import ConstantRate
from cellbed.scenario.impairments import Delay
from cellbed.scenario.live import LiveLink
from cellbed.scenario.load_dependent import Conditional, Radio, Recorded, Replay
from cellbed.scenario.mobile import AnyProxy, Change, Fallback, MobileLink
from cellbed.scenario.nodes import CLASSES, TOWER_CLASS, AnyBackend, AnyMobileLink, Handover, NodeGroup, ShapedLink
from cellbed.scenario.queues import DropTail
from cellbed.scenario.recorded import RecordedLink
from cellbed.scenario.series import Recording
from cellbed.scenario.sites import Migration, cell_visits, instances, migrations, sites_of
from cellbed.support.stages import describe, difference
from cellbed.support.units import DURATION
from cellbed.support.ways import WAYS, Way
from cellbed.testbed.links.stages import SLOTS, Parameters, Playing, Slot, Stage, chance_stage, derived_seed, stages

TOWER = "tower"
"""The central tower, which joins all core links."""
EMULATOR_FILES = {
    "series": "series.bin",
    "packet_log": "packets.bin",
    "lateness": "lateness.bin",
    "change_log": CHANGES,
}
"""Names of the emulator's files in the raw folder of a run, by key of its configuration."""

FORWARDING = {"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1"}
_NO_REDIRECTS = dict.fromkeys(("net.ipv4.conf.all.send_redirects", "net.ipv4.conf.cellbed0.send_redirects"), "0")
"""Settings of a tower's node: packets arrive and leave by one device."""
_LISTED = 8
"""Maximum number of changes in a direction's description."""
_CLASS_NUMBERS = {name: number for number, name in enumerate(CLASSES)} | {TOWER_CLASS: len(CLASSES) + 2}
"""Numbers of classes in addresses. Two more are in use: routers in front of nodes, and services."""
_FIRST_IPV4, _FIRST_IPV6 = IPv4Address("100.64.0.0"), IPv6Address("fd63:656c:6c62::")
NETWORKS = {
    name: (f"{_FIRST_IPV4 + (number << 14)}/18", f"{_FIRST_IPV6 + (number << 64)}/64")
    for name, number in _CLASS_NUMBERS.items()
}
"""Addresses of each class."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node. group: its node group; index: its number in the group; cpus: limit, in processors; memory_bytes: limit;
    disk_bytes: size of its file system, if limited; speed: relative speed of its programs in predictions."""

    name: str
    group: str
    node_class: str
    index: int
    cpus: float
    memory_bytes: int
    ipv4: IPv4Address
    ipv6: IPv6Address
    backend: AnyBackend
    disk_bytes: int | None = None
    speed: float = 1.0

    @property
    def config(self) -> dict[str, Any]:
        """The node in ``run.json`` and in plans for scripts, without addresses."""
        keys = ("name", "group", "cpus", "memory_bytes", "disk_bytes")
        backend = self.backend.model_dump(mode="json")
        return {key: getattr(self, key) for key in keys} | {"class": self.node_class, "backend": backend}


@dataclass(frozen=True, slots=True)
class Played:
    """The trace, recording or model that a direction plays. synthetic: not recorded; sha256: hash of its file."""

    name: str
    synthetic: bool
    sha256: str | None = None


@dataclass(frozen=True)
class Direction:
    """One direction of a link, from one vertex to another.

    link: name of the link; way: uplink or downlink; source, target: vertices. parameters: initial parameters; changes:
    times (ns after the start of the schedule), in order, and the parameters from then on. playing: how recordings are
    played. seed: the scenario's; the seed of each random stage is derived from it. round_trips: source of the delays of
    a core link, if they vary. moves: times (ns after the start), and the source and target from then on. proxy: proxy
    in front of a downlink. interface: the interface of this machine behind which the network is live; nothing is
    shaped then.
    """

    name: str
    link: str
    way: Way
    source: str
    target: str
    parameters: Parameters
    playing: Playing = field(default_factory=Playing)
    seed: int = 1
    changes: tuple[tuple[int, Parameters], ...] = ()
    round_trips: Source | None = None
    moves: tuple[tuple[int, str, str], ...] = ()
    proxy: AnyProxy | None = None
    interface: str | None = None

    @property
    def capacity(self) -> LinkCapacity | Radio | Conditional:
        """The initial capacity."""
        return self.parameters.capacity

    @property
    def played(self) -> Played | None:
        """The trace, recording or model that the direction plays at the start, if any."""
        match self.capacity:
            case TraceSource() as trace:
                return Played(trace.name, trace.synthetic, trace.sha256)
            case Recorded(heavy=heavy) as recording:
                return Played(heavy.name, heavy.synthetic, getattr(recording, "model", heavy).sha256)
            case Radio() as radio:
                return Played(f"radio {radio.profile}", synthetic=True)
        return None

    @property
    def trace(self) -> dict[str, Any] | None:
        """The trace that the direction replays at the start, if any, as an entry of ``run.json``."""
        trace = self.capacity
        if not isinstance(trace, TraceSource):
            return None
        playing = {"offset_ns": self.playing.start_ns, "looped": self.playing.looped}
        return {"name": trace.name, "sha256": trace.sha256, "synthetic": trace.synthetic, **playing}

    @property
    def config(self) -> dict[str, Any]:
        """The direction's table in the emulator's configuration."""
        changes = [{"at_ns": at, "stage": index, "to": to} for at, index, to in self.stage_changes]
        moves = [{"at_ns": at, "from": source, "to": target} for at, source, target in self.moves]
        return {
            **{"name": self.name, "from": self.source, "to": self.target, "stages": self.stages},
            **({"changes": changes} if changes else {}),
            **({"moves": moves} if moves else {}),
        }

    @property
    def stages(self) -> list[Stage]:
        """The direction's stages in the emulator's configuration, in the order of a packet's path."""
        return list(self._states[0].values())

    @cached_property
    def stage_changes(self) -> list[tuple[int, int, Stage]]:
        """Changes of stages: time (ns after the start), number of the stage, and the new stage."""
        slots = list(self._states[0])
        return [(at, slots.index(slot), after) for at, slot, _, after in self._differences]

    @property
    def description(self) -> str:
        """The direction's effect on packets, in one line."""
        if self.interface is not None:
            return f"live over {self.interface}: nothing is shaped"
        changes = [f"from {DURATION.format(at)} on {text}" for at, text in self.described_changes]
        if (more := len(changes) - _LISTED) > 1:
            changes[_LISTED:] = [f"and {more} more changes"]
        moving = 2 if all(source == self.source for _, source, _ in self.moves) else 1
        for at, joined in ((move[0], move[moving]) for move in self.moves):
            changes.append(f"from {DURATION.format(at)} on at {joined}")
        text = describe(self.stages, self._trace_names)
        if (source := self.round_trips) is not None:
            text += f", round trips of {source.name}" + (" (synthetic)" if source.synthetic else "")
        if self.proxy is not None:
            text += f", behind the proxy {self.proxy.kind}"
        return "; ".join([text, *changes])

    @property
    def described_changes(self) -> list[tuple[int, str]]:
        """Times of changes (ns after the start), and descriptions of the new stages."""
        return [
            (at, ", ".join(difference(before, after, self._trace_names)[1] for _, _, before, after in changed))
            for at, changed in groupby(self._differences, key=lambda change: change[0])
        ]

    @cached_property
    def _differences(self) -> list[tuple[int, Slot, Stage, Stage]]:
        """Changes of stages: time (ns after the start), slot, previous stage, new stage."""
        changes = zip(self.changes, pairwise(self._states), strict=True)
        return [
            (at, slot, before[slot], after[slot])
            for (at, _), (before, after) in changes
            for slot in before
            if after[slot] != before[slot]
        ]

    @cached_property
    def _states(self) -> list[dict[Slot, Stage]]:
        """The initial stages and the stages after each change, always in the same slots."""
        if self.interface is not None:
            return [{}]
        found = [stages(parameters, self.playing, self._stage_seed) for parameters in self._all_parameters]
        used = [slot for slot in SLOTS if any(slot in state for state in found)]
        for state in found:
            for slot in ("duplication", "corruption"):
                if slot in used and slot not in state:
                    state[slot] = chance_stage(slot, 0.0, self._stage_seed(slot))
        return [{slot: state[slot] for slot in used} for state in found]

    @property
    def _all_parameters(self) -> list[Parameters]:
        return [self.parameters, *(parameters for _, parameters in self.changes)]

    @cached_property
    def _trace_names(self) -> dict[str, str]:
        """Names of traces by path, for descriptions."""
        found: dict[str, str] = {}
        for parameters in self._all_parameters:
            match parameters.capacity:
                case TraceSource() as trace:
                    path = trace.path
                case Replay(heavy=trace) if trace.name != str(trace.path):
                    path = trace.path
                case Conditional(model=model, heavy=trace):
                    path = model.path
                case _:
                    continue
            found[str(path)] = trace.name + (" (synthetic)" if trace.synthetic else "")
        return found

    def _stage_seed(self, purpose: str) -> int:
        # Both directions of a radio link have the same surroundings, hence one seed.
        owner = self.link if purpose == "radio" else self.name
        return derived_seed(self.seed, f"{owner}.{purpose}")

    def recordings(self) -> dict[str, str]:
        """Return the SHA-256 of every trace and recording that the direction ever plays, by name."""
        found: dict[str, str] = {}
        for parameters in self._all_parameters:
            for value in (parameters.capacity, parameters.delay, parameters.loss):
                source = getattr(value, "file", None) or value
                if isinstance(source, TraceSource | Recording):
                    found[source.name] = source.sha256
                elif isinstance(source, Recorded):
                    found |= {each.name: each.sha256 for _, each in source.files}
        return found


Visit = tuple[int, int | None]
"""Times at which a user enters and leaves a cell, ns; ``None`` if the user does not leave."""


@dataclass(frozen=True)
class SharedCell:
    """A cell in one direction. users: priorities by name of the link direction; visits: visits per user, in order;
    shares: where the shares of a recording come from."""

    name: str
    cell: str
    way: Way
    table: Cell
    users: dict[str, int]
    visits: dict[str, list[Visit]]
    shares: str = ""

    @property
    def config(self) -> dict[str, Any]:
        """The cell's table in the emulator's configuration."""
        users = [
            {"direction": name, "priority": priority}
            | ({"from_ns": begin} if begin else {})
            | ({"until_ns": end} if end is not None else {})
            for name, priority in self.users.items()
            for begin, end in self.visits[name]
        ]
        scheduler = self.table.scheduler.stage()
        return {"name": self.name, "scheduler": scheduler, "slot_ns": self.table.slot, "users": users}

    def __str__(self) -> str:
        """Return a description in one line."""
        count = len(self.users)
        return f"{self.table}, {count} user{'s' if count > 1 else ''}" + (f"; {self.shares}" if self.shares else "")


@dataclass(frozen=True)
class Move:
    """A handover of the endpoints of a group, or the migration of a server that follows endpoints.

    at: ns after the start of the schedule; length: ns; source, target: cells of a handover, sites of a migration;
    queued: treatment of queued packets.
    """

    at: int
    length: int
    group: str
    source: str
    target: str
    queued: Literal["forward", "drop"]
    kind: Literal["handover", "migration"] = "handover"

    def __str__(self) -> str:
        """Return a description in one line."""
        fate = "packets in the queue forwarded" if self.queued == "forward" else "packets in the queue dropped"
        text = f"{self.kind} of {self.group} from {self.source} to {self.target} in {DURATION.format(self.length)}"
        return f"{text}, {fate}" if self.kind == "handover" else text


@dataclass(frozen=True)
class Service:
    """An address that several servers share. Packets go to the server at the site of the cell. With `spread`, each
    connection goes to a random server instead."""

    address: IPv4Address
    nodes: tuple[Node, ...]
    spread: bool = False


@dataclass(frozen=True)
class Plan:
    """The nodes and links of a run. Indices refer to the order of nodes and directions.

    inner: vertices without a node: the central tower and sites. cells: one per direction. moves: handovers and
    migrations, in order of time. serving_cells: cells of each endpoint and sites of each other node, with the times
    (ns) from which they serve; empty if no cell is at a site. servers: nodes of an application's servers at all sites,
    by application. services: address that an application's servers share, by application. hosts: content of the nodes'
    ``/etc/hosts``.
    """

    scenario: Scenario
    nodes: tuple[Node, ...]
    directions: tuple[Direction, ...]
    inner: tuple[str, ...]
    cells: tuple[SharedCell, ...]
    moves: tuple[Move, ...]
    serving_cells: dict[str, list[tuple[int, str | None]]]
    servers: dict[str, list[Node]]
    services: dict[str, Service]
    hosts: str

    def emulator_config(
        self,
        raw: Path | None = None,
        control: Path | None = None,
        packet_log_bytes: int | None = None,
        control_name: Callable[[Law | str], str] = name_of,
    ) -> dict[str, Any]:
        """Return the emulator's configuration.

        raw: folder for the emulator's files; without it, none are written. control: path of the control socket.
        packet_log_bytes: maximum size of the packet log, instead of the scenario's. control_name: returns the name
        that a congestion control has where it runs.
        """
        vertices: list[dict[str, Any]] = []
        window = self.scenario.transport.initial_window
        for number, node in enumerate(self.nodes):
            shared = [
                f"{service.address}/32"
                for service in self.services.values()
                if node in service.nodes and not service.spread
            ]
            asked = self.scenario.control_of(node.group)
            sysctls = self.scenario.transport.sysctls(None if asked is None else control_name(asked))
            vertices.append(
                {
                    "name": node.name,
                    "namespace": "new",
                    "routes": ["0.0.0.0/0", "::/0"],
                    "sysctls": sysctls | self._forwarding(node),
                    **({"initial_window": window} if window is not None else {}),
                    "dscp": self.scenario.nodes[node.group].dscp,
                    **_addresses(node, number),
                    **({"shared": shared} if shared else {}),
                    **({"tower": {"links": self.radio_links}} if node.name in self.towers else {}),
                }
            )
        vertices += [{"name": name, "namespace": None} for name in self.inner]
        return {
            "namespaces": "auto",
            "vertices": vertices,
            "default_vertex": None,
            "directions": [direction.config for direction in self.directions],
            **({"cells": [cell.config for cell in self.cells]} if self.cells else {}),
            **({"proxies": self.proxies} if self.proxies else {}),
            **{what: str(raw / name) if raw else None for what, name in EMULATOR_FILES.items()},
            **({"control": str(control)} if control else {}),
            **(
                {"packet_log_bytes": size} if (size := packet_log_bytes or self.scenario.packet_log) is not None else {}
            ),
        }

    @cached_property
    def proxies(self) -> list[dict[str, Any]]:
        """The tables of the proxies in the emulator's configuration."""
        return [
            {"uplink": f"{each.link}.uplink", "downlink": each.name, **each.proxy.stage()}
            for each in self.directions
            if each.proxy is not None
        ]

    @cached_property
    def towers(self) -> list[str]:
        """The nodes of towers, which are vertices between links."""
        return [node.name for node in self.nodes_of_class(TOWER_CLASS)]

    @property
    def center(self) -> str:
        """The vertex of the central tower."""
        return next((name for name in self.towers if self.scenario.nodes[self.node(name).group].site is None), TOWER)

    @property
    def intercepts(self) -> dict[str, tuple[int, tuple[str, str]]]:
        """The ports of programs that get connections, and the networks of these connections, by node of a tower."""
        ports = {name: self.scenario.nodes[self.node(name).group].intercept for name in self.towers}
        return {name: (port, NETWORKS["endpoint"]) for name, port in ports.items() if port is not None}

    @property
    def radio_links(self) -> list[list[str]]:
        """Uplink and downlink of each mobile link."""
        endpoints = {node.name for node in self.nodes_of_class("endpoint")}
        links = [each.link for each in self.directions if each.source in endpoints]
        return [[f"{link}.{way}" for way in WAYS] for link in links]

    def _forwarding(self, node: Node) -> dict[str, str]:
        """Return kernel settings of a node that forwards packets."""
        is_tower = node.node_class == TOWER_CLASS
        return (FORWARDING if node.backend.routed or is_tower else {}) | (_NO_REDIRECTS if is_tower else {})

    def node(self, name: str) -> Node:
        """Return the node called `name`."""
        return next(node for node in self.nodes if node.name == name)

    def nodes_of_class(self, node_class: str) -> list[Node]:
        """Return the nodes of one class."""
        return [node for node in self.nodes if node.node_class == node_class]

    def nodes_of_group(self, group: str | None) -> list[Node]:
        """Return the nodes of one group."""
        return [node for node in self.nodes if node.group == group]

    def path(self, source: str, target: str) -> list[Direction]:
        """Return the directions on the initial path from one node to another, through their towers or sites."""
        near, far = self.initial_towers[source], self.initial_towers[target]
        center = self.center
        inner = [near] if near == far else [near, center, far] if center not in (near, far) else [near, far]
        # The node of a tower is its vertex.
        return [self._directions_by_ends[ends] for ends in pairwise(dict.fromkeys([source, *inner, target]))]

    @cached_property
    def _directions_by_ends(self) -> dict[tuple[str, str], Direction]:
        return {(direction.source, direction.target): direction for direction in self.directions}

    @cached_property
    def initial_towers(self) -> dict[str, str]:
        """The tower or site to which each node is linked at the start, by node."""
        names = {node.name for node in self.nodes}
        joined = {direction.source: direction.target for direction in self.directions if direction.source in names}
        return joined | {name: name for name in self.towers}


def _plan_cells(scenario: Scenario, nodes: Sequence[Node], directions: Sequence[Direction]) -> tuple[SharedCell, ...]:
    """Return the cells of the scenario, one entry per direction."""
    found = []
    for name, table in scenario.cells.items():
        group_visits = {group: _visits(of, name) for group, of in scenario.nodes.items()}
        members = {node.name: node.group for node in nodes if group_visits[node.group]}
        for way in WAYS:
            users = {
                each.name: members[end]
                for each in directions
                if each.way == way and (end := each.source if way == "uplink" else each.target) in members
            }
            priorities = {user: scenario.nodes[group].priority for user, group in users.items()}
            visits = {user: group_visits[group] for user, group in users.items()}
            links = [scenario.mobile_link(scenario.nodes[group]) for group in dict.fromkeys(users.values())]
            chosen, shares = _share(table, links, way)
            found.append(SharedCell(f"{name}.{way}", name, way, chosen, priorities, visits, shares))
    return tuple(found)


def _share(table: Cell, links: Sequence[AnyMobileLink], way: Way) -> tuple[Cell, str]:
    """Return the cell of these links, with the scheduler of a recording unless another is given, and where the shares
    come from; empty without recordings."""
    recordings = {link.path.path for link in links if isinstance(link, RecordedLink)}
    if not recordings:
        return table, ""
    if "scheduler" in table.model_fields_set:
        return table, "shares by the given scheduler, not from a recording"
    from cellbed.recordings.sharing import Sharing, read_sharing

    sharing = Sharing(reason="the cell has several links")
    if len(recordings) == 1 and all(isinstance(link, RecordedLink) for link in links):
        sharing = read_sharing(*recordings, way)
    chosen = Cell.model_validate({"scheduler": sharing.scheduler}).scheduler
    return table.model_copy(update={"scheduler": chosen}), str(sharing)


def _moves(scenario: Scenario) -> tuple[Move, ...]:
    """Return the handovers and migrations, in order of time."""
    labels = {name: f"{name}-0" if group.count == 1 else name for name, group in scenario.nodes.items()}
    found = []
    for name, group in scenario.nodes.items():
        cells = [str(group.cell), *(handover.cell for handover in group.route)]
        for handover, (source, target) in zip(group.route, pairwise(cells), strict=True):
            length = handover.enters - handover.at
            found.append(Move(handover.at, length, labels[name], source, target, handover.queued))
    found += [
        Move(each.at, each.length, labels[each.group], each.source, each.target, "forward", "migration")
        for each in _migrations(scenario)
    ]
    return tuple(sorted(found, key=lambda move: move.at))


def _serving_cells(scenario: Scenario, nodes: Sequence[Node]) -> dict[str, list[tuple[int, str | None]]]:
    """Return the cells and sites that serve nodes, as in :class:`Plan`."""
    if all(cell.site is None for cell in scenario.cells.values()):
        return {}
    found: dict[str, list[tuple[int, str | None]]] = {
        name: [*cell_visits(group)] if group.node_class == "endpoint" else _group_sites(scenario, name)
        for name, group in scenario.nodes.items()
    }
    return {node.name: found[node.group] for node in nodes if found[node.group]}


def _hosts_file(
    scenario: Scenario, nodes: Sequence[Node], servers: dict[str, list[Node]], services: dict[str, Service]
) -> str:
    """Return the content of ``/etc/hosts``.

    The name and aliases of a group resolve to the address that spreads connections over its nodes, or to its first
    node. The name of an application resolves to the address that its servers share, or to its first server.
    """
    names: dict[str, tuple[IPv4Address | IPv6Address, ...]] = {node.name: (node.ipv4, node.ipv6) for node in nodes}
    spread = {each.nodes[0].group: each.address for each in reversed(services.values()) if each.spread}
    for group, table in scenario.nodes.items():
        own = (spread[group],) if group in spread else names[f"{group}-0"]
        names |= {name: own for name in (group, *table.aliases) if name not in names}
    for name, server_nodes in servers.items():
        if name in services:
            names.setdefault(name, (services[name].address,))
        elif server_nodes:
            names.setdefault(name, names[server_nodes[0].name])
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    lines += [f"{address} {name}" for name, addresses in names.items() for address in addresses]
    return "\n".join(lines) + "\n"


def _rename_vertices(direction: Direction, names: Mapping[str, str]) -> Direction:
    """Return a direction with other names of its vertices."""
    source, target = (names.get(each, each) for each in (direction.source, direction.target))
    moves = tuple((at, names.get(one, one), names.get(other, other)) for at, one, other in direction.moves)
    return replace(direction, source=source, target=target, moves=moves)


def _vertex(site: str | None) -> str:
    """Return the vertex of a site; the tower without a site."""
    return TOWER if site is None else f"site.{site}"


def _is_inner(vertex: str) -> bool:
    """Return whether a vertex is the tower or a site. Names of nodes have no dot."""
    return vertex == TOWER or "." in vertex


def _group_sites(scenario: Scenario, group: str) -> list[tuple[int, str | None]]:
    """Return the sites of the nodes of a group, each with the time (ns) at which its nodes arrive."""
    moves = [(each.at, each.target) for each in _migrations(scenario) if each.group == group]
    return [(0, scenario.nodes[group].site), *moves]


def _migrations(scenario: Scenario) -> list[Migration]:
    where = scenario.sites, scenario.cells, scenario.nodes
    return [each for it in scenario.applications.values() for each in migrations(*where, it)]


def _visits(group: NodeGroup, cell: str) -> list[Visit]:
    """Return the visits of the endpoints of a group to a cell."""
    entered = [(0, group.cell), *((handover.enters, handover.cell) for handover in group.route)]
    left = [*(handover.at for handover in group.route), None]
    return [(begin, end) for (begin, name), end in zip(entered, left, strict=True) if name == cell]


def _addresses(node: Node, number: int) -> dict[str, list[str]]:
    """Return the addresses of a node's device. A routed node has a router there, with its own addresses."""
    own = [f"{node.ipv4}/32", f"{node.ipv6}/128"]
    if not node.backend.routed:
        return {"addresses": own}
    place = len(CLASSES)
    router = [f"{_FIRST_IPV4 + (place << 14) + number + 2}/32", f"{_FIRST_IPV6 + (place << 64) + number + 2}/128"]
    return {"addresses": router, "behind": own}


def make_plan(scenario: Scenario) -> Plan:
    """Plan a scenario.

    Errors: :class:`cellbed.archive.TraceError` for a malformed trace.
    """
    nodes = _nodes(scenario)
    directions: list[Direction] = []
    for node in nodes:
        group = scenario.nodes[node.group]
        if node.node_class == TOWER_CLASS:
            continue
        if node.node_class == "endpoint":
            directions += _mobile_link(scenario, group, node)
        elif group.site is not None:
            directions += _port(scenario, node)
        else:
            link = link_name(node.group, group, node.index)
            if scenario.live is not None:
                directions += _live_directions(scenario.live, link, TOWER, node.name)
                continue
            directions += _core_link(scenario, scenario.core_link(group), link, (TOWER, node.name))
    for name, site in scenario.sites.items():
        ends = TOWER, _vertex(name)
        # The uplink leads away from the endpoints, which are at the site if it has cells.
        has_cell = any(cell.site == name for cell in scenario.cells.values())
        directions += _core_link(scenario, site.core, site_link(name), ends[::-1] if has_cell else ends)
    towers = {_vertex(scenario.nodes[it.group].site): it.name for it in nodes if it.node_class == TOWER_CLASS}
    directions = [_add_faults(_rename_vertices(direction, towers), scenario.faults) for direction in directions]
    servers = {
        name: [
            node for group in instances(scenario.cells, scenario.nodes, each) for node in nodes if node.group == group
        ]
        for name, each in scenario.applications.items()
    }
    services = {
        name: Service(
            _FIRST_IPV4 + ((len(CLASSES) + 1) << 14) + number + 2, tuple(servers[name]), each.balance == "connection"
        )
        for number, (name, each) in enumerate(scenario.applications.items())
        if each.edge_policy == "nearest" or each.balance == "connection"
    }
    return Plan(
        scenario,
        tuple(nodes),
        tuple(directions),
        inner=tuple(name for name in map(_vertex, (None, *scenario.sites)) if name not in towers),
        cells=_plan_cells(scenario, nodes, directions),
        moves=_moves(scenario),
        serving_cells=_serving_cells(scenario, nodes),
        servers=servers,
        services=services,
        hosts=_hosts_file(scenario, nodes, servers, services),
    )


def _nodes(scenario: Scenario) -> list[Node]:
    nodes: list[Node] = []
    for node_class, number in _CLASS_NUMBERS.items():
        groups = [(name, group) for name, group in scenario.nodes.items() if group.node_class == node_class]
        members = [(name, group, index) for name, group in groups for index in range(group.count)]
        nodes += [
            Node(
                name=f"{name}-{index}",
                group=name,
                node_class=node_class,
                index=index,
                cpus=group.cpus,
                memory_bytes=group.memory,
                ipv4=_FIRST_IPV4 + (number << 14) + place + 2,
                ipv6=_FIRST_IPV6 + (number << 64) + place + 2,
                backend=group.backend,
                disk_bytes=group.disk,
                speed=group.speed,
            )
            for place, (name, group, index) in enumerate(members)
        ]
    return nodes


def _add_faults(direction: Direction, faults: Sequence[Fault]) -> Direction:
    """Return a direction with the effects of faults: loss for crashed nodes, outages for links."""
    crashes: list[tuple[int, int]] = []
    closed: list[tuple[int, int]] = []
    for fault in faults:
        match fault:
            case NodeFault(kind="crash", node=node) if node in (direction.source, direction.target):
                crashes.append((fault.at, fault.at + fault.length))
            case LinkFault(link=link) if link in (direction.link, direction.name):
                closed.append((fault.at, fault.at + fault.length))
    if closed:
        closed += [(begin, begin + length) for begin, length in direction.parameters.outages]
        outages = _merge_spans(closed)
        direction = replace(
            direction,
            parameters=replace(direction.parameters, outages=outages),
            changes=tuple((at, replace(parameters, outages=outages)) for at, parameters in direction.changes),
        )
    if not crashes:
        return direction
    found = []
    for at in sorted({at for at, _ in direction.changes} | {end for crash in crashes for end in crash}):
        parameters = next((each for begin, each in reversed(direction.changes) if begin <= at), direction.parameters)
        if any(begin <= at < end for begin, end in crashes):
            parameters = replace(parameters, loss=1.0)
        found.append((at, parameters))
    return replace(direction, changes=tuple(found))


def _merge_spans(spans: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Merge overlapping spans (begin, end), and return them in order as (begin, length)."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return tuple((begin, end - begin) for begin, end in found)


def _mobile_link(scenario: Scenario, group: NodeGroup, node: Node) -> list[Direction]:
    mobile = scenario.mobile_link(group)
    link = link_name(node.group, scenario.nodes[node.group], node.index)
    if isinstance(mobile, LiveLink):
        return _live_directions(mobile, link, node.name, TOWER)
    tower, later_towers = _vertices(sites_of(scenario.cells, group) or [(0, None)])
    playing = Playing(mobile.start + group.stagger * node.index, mobile.loop)
    proxies = {"downlink": getattr(mobile, "proxy", None)}
    directions = [
        replace(
            direction,
            playing=playing,
            seed=scenario.seed,
            changes=_changes(mobile, direction.way, group.route),
            proxy=proxies.get(direction.way),
        )
        for direction in _directions(
            link, node.name, tower, lambda way: _parameters(mobile, way, group.route), later_towers
        )
    ]
    if not isinstance(mobile, MobileLink) or mobile.fallback is None:
        return directions
    seed = f"fallback {scenario.seed} {link}"
    stays = mobile.fallback.stays(mobile.down, scenario.duration, seed, playing.start_ns, playing.looped)
    return [_add_fallback(direction, mobile.fallback, stays) for direction in directions]


def _live_directions(live: LiveLink, link: str, near: str, far: str) -> list[Direction]:
    """Return both directions of a link that shapes nothing."""
    return [replace(each, interface=live.interface) for each in _directions(link, near, far, lambda _: Parameters())]


def _add_fallback(direction: Direction, fallback: Fallback, stays: Stays) -> Direction:
    """Return a direction with a second radio during the stays. Each change of radio begins with an interruption."""
    edges = [at for stay in stays for at in stay]
    closed = [(at, at + length) for at, length in direction.parameters.outages]
    closed += [(at, at + fallback.interruption) for at in edges]
    drops = fallback.packets == "drop" and bool(edges)
    gate: dict[str, Any] = {
        "outages": _merge_spans(closed),
        "flushes": tuple(edges) if drops else (),
        "in_flight": drops,
    }
    states = [(0, direction.parameters), *direction.changes]
    found: list[tuple[int, Parameters]] = []
    for at in sorted({0, *(at for at, _ in states), *(at + fallback.interruption for at in edges)}):
        now = next(parameters for begin, parameters in reversed(states) if begin <= at)
        if any(begin + fallback.interruption <= at < end + fallback.interruption for begin, end in stays):
            now = _change_parameters(now, fallback, direction.way)
        now = replace(now, **gate)
        if not found or found[-1][1] != now:
            found.append((at, now))
    return replace(direction, parameters=found[0][1], changes=tuple(found[1:]))


def _directions(
    link: str,
    near: str,
    far: str,
    parameters: Callable[[Way], Parameters],
    later_towers: Sequence[tuple[int, str]] = (),
) -> list[Direction]:
    """Return both directions of a link. later_towers: times (ns), and the towers and sites to which the link moves."""
    found = []
    for way, source, target in zip(WAYS, (near, far), (far, near), strict=True):
        moves = tuple((at, to, target) if _is_inner(source) else (at, source, to) for at, to in later_towers)
        found.append(Direction(f"{link}.{way}", link, way, source, target, parameters(way), moves=moves))
    return found


def _vertices(sites: Sequence[tuple[int, str | None]]) -> tuple[str, list[tuple[int, str]]]:
    """Return the first vertex of a link, and times (ns) and vertices of its moves. sites: times (ns) and sites."""
    vertices = [(at, _vertex(site)) for at, site in sites]
    return vertices[0][1], [(at, to) for (_, before), (at, to) in pairwise(vertices) if to != before]


def _parameters(mobile: ShapedLink, way: Way, route: Sequence[Handover]) -> Parameters:
    own = [(begin, begin + length) for begin, length in getattr(mobile.outage, way)]
    return Parameters(
        capacity=mobile.up if way == "uplink" else mobile.down,
        queue=getattr(mobile.queue, way, None),
        delay=getattr(mobile.base_delay, way),
        loss=getattr(mobile.loss, way),
        duplication=getattr(mobile.duplication, way),
        corruption=getattr(mobile.corruption, way),
        outages=_merge_spans([*own, *((handover.at, handover.enters) for handover in route)]),
        flushes=tuple(handover.at for handover in route if handover.queued == "drop"),
    )


def _changes(mobile: ShapedLink, way: Way, route: Sequence[Handover]) -> tuple[tuple[int, Parameters], ...]:
    """Return the times of changes of one direction, and the parameters from then on."""
    now = _parameters(mobile, way, route)
    found: list[tuple[int, Parameters]] = []
    at_handovers = [change for handover in route if (change := handover.change) is not None]
    for change in sorted([*mobile.changes, *at_handovers], key=lambda change: change.at):
        after = _change_parameters(now, change, way)
        if after != now:
            found.append((change.at, after))
        now = after
    return tuple(found)


def _change_parameters(now: Parameters, change: Change | Fallback, way: Way) -> Parameters:
    given: dict[str, Any] = {
        "capacity": change.up if way == "uplink" else change.down,
        "delay": getattr(change.base_delay, way, None),
        **{key: getattr(getattr(change, key), way, None) for key in ("queue", "loss", "duplication", "corruption")},
    }
    return replace(now, **{key: value for key, value in given.items() if value is not None})


def _port(scenario: Scenario, node: Node) -> list[Direction]:
    """Return the port of a node at a site. The node may follow endpoints to another site."""
    group_sites = _group_sites(scenario, node.group)
    vertex, later_vertices = _vertices(group_sites)
    closed = _merge_spans([(it.at, it.at + it.length) for it in _migrations(scenario) if it.group == node.group])
    queue = DropTail(kind="droptail")
    sites = [(at, scenario.sites[str(name)]) for at, name in group_sites]
    ports = [(at, Parameters(ConstantRate(site.rate), queue, site.delay, outages=closed)) for at, site in sites]
    changes = tuple((at, after) for (_, before), (at, after) in pairwise(ports) if after != before)
    link = link_name(node.group, scenario.nodes[node.group], node.index)
    directions = _directions(link, vertex, node.name, lambda _: ports[0][1], later_vertices)
    return [replace(each, seed=scenario.seed, changes=changes) for each in directions]


def _core_link(scenario: Scenario, core: CoreLink, link: str, ends: tuple[str, str]) -> list[Direction]:
    delays = core.delays(scenario.seed, scenario.duration)
    directions = _directions(link, *ends, lambda way: _core_parameters(core, way, getattr(delays, way)))
    playing = Playing(core.start) if isinstance(core, CoreRoundTrips) else Playing()
    return [replace(each, seed=scenario.seed, round_trips=core.source, playing=playing) for each in directions]


def _core_parameters(core: CoreLink, way: Way, delay: Delay) -> Parameters:
    if isinstance(core, CoreDelay):
        return Parameters(queue=DropTail(kind="droptail"), delay=delay)
    capacity = getattr(core.capacities, way)
    loss, outages = getattr(core.loss, way), getattr(core.outage, way)
    queue = getattr(core.queue, way)
    return Parameters(capacity, queue, delay, loss, outages=outages, flow_limit=core.flow_limit)
