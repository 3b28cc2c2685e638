"""The programs of the applications of a run, and the registry of server programs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cellbed.experiments.description import RunState, deployments
from cellbed.laws.kernel import ProgramTcp, apply_tcp
from cellbed.laws.law import Law, name_of
from cellbed.scenario.nodes import CLASSES
from cellbed.scenario.templates import CERTIFICATE
from cellbed.support.errors import CellbedError
from cellbed.support.user_folders import cache_folder
from cellbed.testbed.machine import certificates, cgroups
from cellbed.testbed.machine.peers import Admission
from cellbed.testbed.machine.process import Place, Process
from cellbed.testbed.machine.state import RUN_VARIABLE, Record
from cellbed.testbed.migration.state_sockets import VARIABLE, StateSockets
from cellbed.testbed.plan import Node, Plan
from cellbed.testbed.programs.reports import REQUESTS, SPANS, ReportSockets
from cellbed.testbed.programs.telemetry import Telemetry, overrides
from cellbed.testbed.programs.telemetry import environment as telemetry_environment
from cellbed.testbed.programs.unmodified import Command
from cellbed.testbed.testbed import Testbed
from cellbed.workloads.kind import Deployment
from cellbed.workloads.program.kind import commands as server_commands
from cellbed.workloads.registry import workload

STAGES = 8
"""Upper limit of the stages of an application's programs."""


@dataclass
class Servers:
    """The programs of applications, with sockets, certificates and TCP settings; servers have some on target nodes.

    raw: folder of raw records. names: names of laws in the kernel. is_standing: whether services may move by command.
    settings: contexts that end the TCP settings.
    """

    plan: Plan
    bed: Testbed
    record: Record
    raw: Path
    names: Mapping[Law | str, str]
    state: RunState
    is_standing: bool
    settings: contextlib.ExitStack = field(init=False, default_factory=contextlib.ExitStack)
    deployed: list[Deployment] = field(init=False)
    _servers: dict[tuple[str, str], list[Process | Command]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        bed, plan = self.bed, self.plan
        self.deployed = _add_certificates([replace(each, scratch=bed.sockets) for each in deployments(plan)], bed, plan)
        nodes = {str(ip): node.name for node in plan.nodes for ip in (node.ipv4, node.ipv6)}
        self.sockets = ReportSockets(bed.sockets, nodes)
        self.telemetry = Telemetry(self.raw, {RUN_VARIABLE: self.record.identifier})
        self.states = StateSockets(bed.sockets)
        # CRIU does not move the connection of a service that can pass its state on.
        self._by_memory = {each.app for each in plan.scenario.migrations if each.traits.moves_memory}

    def processes(self, each: Deployment, *, loads: bool) -> tuple[list[Process | Command], list[Process]]:
        """Return the programs of an application, and the OpenTelemetry receivers on other machines that they need.

        loads: include its load generators.
        """
        own = workload(each.table.kind).processes(each, self.raw, cache=cache_folder(), seed=self.plan.scenario.seed)
        own = [process for process in own if loads or not process.load]
        receivers = list(self._receivers(own, each))
        own = [self._prepare(process, each) for process in own]
        first = STAGES * self.plan.scenario.stages()[each.name]
        return [replace(process, stage=process.stage + first) for process in own], receivers

    def programs_on(self, app: str, node: str) -> tuple[list[Process | Command], list[Process]]:
        """Return the programs of an application's server on a node, which may be new to it; and receivers that must
        start then."""
        if (app, node) in self._servers:
            return self._servers[app, node], []
        each = next(each for each in self.deployed if each.name == app)
        there = replace(each, servers=[self.plan.node(node)])
        programs = _server_programs(there, self.raw, self.plan.scenario.seed)
        prepared = [self._prepare(process, each) for process in programs]
        return self._servers[app, node], list(self._receivers(prepared, each))

    def take_reports(self) -> bool:
        """Copy the reports of programs to the state; return whether the description changes."""
        before = self.state.services, self.state.requesting
        self.state.services, self.state.requesting = dict(self.sockets.names), self.sockets.requesting
        return (self.state.services, self.state.requesting) != before

    def take_last_reports(self) -> None:
        """Copy the last reports to the state, with warnings of losses, and end the receiver."""
        self.take_reports()
        self.state.warnings += [*self.sockets.warnings(), *self.telemetry.close()]
        if self.telemetry.has_receivers and self.state.t0_ns is not None:
            from cellbed.measure.telemetry import span_names

            for name, names in span_names(self.raw.parent).items():
                self.state.services[name] = tuple(sorted({*self.state.services.get(name, ()), *names}))

    def _prepare(self, process: Process | Command, each: Deployment) -> Process | Command:
        """Return a program with its sockets and TCP settings; register the program of a server."""
        warnings = self.state.warnings
        if isinstance(process, Command) and getattr(each.table, "telemetry", False):
            program = f"the {'client' if process.load else 'server'} of {each.name}"
            warnings += [text for text in overrides(program, process.environment) if text not in warnings]
        movable = each.name in self._by_memory or self.is_standing
        places = _places(each, self.plan) if movable and not process.load else []
        process = self._set_tcp(self._add_reports(process, each, places), each)
        if not process.load:
            is_single = len(self.plan.servers[each.name]) == 1
            if isinstance(process, Command) and is_single and each.name not in self._by_memory:
                process = self._add_state(process)
            self._servers.setdefault((each.name, process.node), []).append(process)
        return process

    def _add_state(self, command: Command) -> Command:
        """Return a server with a socket through which it can pass its state on."""
        node = self.bed.nodes[command.node]
        path = node.show_socket(str(self.states.listen(command.name, node.admission)))
        return replace(command, environment={VARIABLE: path, **command.environment})

    def _add_reports(
        self, process: Process | Command, deployment: Deployment, places: Sequence[Node]
    ) -> Process | Command:
        """Return a program with a socket for its reports (spans of a service, requests of a client). If available, add
        the address of the OpenTelemetry receiver and the certificate of the run's authority.

        places: nodes to which CRIU may move the program; a moved program keeps its socket.
        """
        if not isinstance(process, Command):
            return process
        protocol, kind = (REQUESTS, "requests") if process.load else (SPANS, "service")
        record = self.raw / f"{deployment.name}.{process.node}.{kind}.jsonl"
        node = self.bed.nodes[process.node]

        def clock() -> int:
            return time.monotonic_ns() + node.clock.offset_ns

        admission = node.admission
        if places and node.place is not None:
            there = filter(None, (self.bed.nodes[each.name].place for each in places))
            admission = Admission(each.network_namespace for each in there)
        made = self.sockets.listen(protocol, deployment.name, record, admission, node=process.node, clock=clock)
        found = {name: node.show_socket(path) for name, path in made.items()}
        if deployment.authorities is not None:
            found |= dict.fromkeys(certificates.VARIABLES, node.show_file(deployment.authorities))
        given = {**found, **process.environment}
        if getattr(deployment.table, "telemetry", False):
            given = telemetry_environment(deployment.name, given)
        return replace(process, environment=given)

    def _set_tcp(self, process: Process | Command, deployment: Deployment) -> Process | Command:
        """Return a program in a separate control group with its TCP settings, if it has any.

        Errors: :class:`CellbedError`.
        """
        role = deployment.table.client if process.load else deployment.table.server
        if role is None or not (tcp := self.plan.scenario.tcp_of(role)):
            return process
        parent = cgroups.program_parent(self.bed.nodes[process.node].setup.group, self.record.identifier)
        assert parent is not None  # ensured by `testbed.check`
        group = parent / process.name
        try:
            if not parent.exists():
                self.record.note_cgroup(parent)
                self.settings.callback(cgroups.remove, parent)
            group.mkdir(parents=True)
        except OSError as error:
            raise CellbedError(f"{group}: cannot create a control group for TCP: {error.strerror}") from error
        control = role.congestion_control
        name = None if control is None else self.names.get(control, name_of(control))
        settings = ProgramTcp(name, role.receive_buffer, role.send_buffer, bool(tcp.get("pacing")))
        self.settings.enter_context(apply_tcp(settings, group))
        return replace(process, cgroups=(*process.cgroups, str(group / "cgroup.procs")))

    def _receivers(self, processes: Sequence[Process | Command], deployment: Deployment) -> Iterator[Process]:
        """Receive OpenTelemetry spans on the nodes of programs, if their application requests this; yield the receivers
        on other machines."""
        if not getattr(deployment.table, "telemetry", False):
            return
        emulator = self.bed.emulator
        for name in dict.fromkeys(process.node for process in processes if isinstance(process, Command)):
            if self.bed.nodes[name].place is not None:
                self.telemetry.listen(name, Place(emulator.namespace(name), emulator.user_namespace))
            elif (receiver := self.telemetry.receiver_on(name)) is not None:
                yield receiver


def _server_programs(deployment: Deployment, raw: Path, seed: int) -> Sequence[Process | Command]:
    """Return only the programs of an application's servers."""
    if deployment.table.server.command is not None:
        return list(server_commands(deployment, "server", raw, seed))
    alone = replace(deployment, clients=[])
    return workload(alone.table.kind).processes(alone, raw, cache=cache_folder(), seed=seed)


def _add_certificates(deployed: list[Deployment], bed: Testbed, plan: Plan) -> list[Deployment]:
    """Return the applications with an authority's files, if any needs certificates. A server's certificate contains all
    names of its addresses."""
    if not any(each.table.has_certificate for each in deployed):
        return deployed
    lines = [line.split() for line in plan.hosts.splitlines()]
    names: dict[str, list[str]] = {}
    for each in deployed:
        if each.table.has_certificate and (nodes := plan.servers[each.name]):
            ips = {each.address(nodes[0]), *(str(ip) for node in nodes for ip in (node.ipv4, node.ipv6))}
            names[each.name] = sorted({*ips, *(name for ip, name in lines if ip in ips), *each.table.host_names})
    certificates.issue(bed.sockets, names)
    for key in bed.sockets.glob(f"*/{certificates.KEY}"):
        key.chmod(0o644)  # a container's program may run as another user; no other user of this machine has access

    def show_files(node: str, app: str) -> dict[str, str]:
        files = zip(CERTIFICATE, certificates.FILES, strict=True)
        return {name: bed.nodes[node].show_file(str(bed.sockets / app / file)) for name, file in files}

    return [
        replace(
            each,
            authorities=str(bed.sockets / certificates.AUTHORITY),
            certificates={
                node.name: show_files(node.name, each.name) for node in _places(each, plan) if each.name in names
            },
        )
        for each in deployed
    ]


def _places(deployment: Deployment, plan: Plan) -> list[Node]:
    """Return the present and possible nodes of an application's servers."""
    servers = plan.servers[deployment.name]
    return [
        node for node in plan.nodes if node in servers or (node.node_class in CLASSES[1:] and not node.backend.routed)
    ]
