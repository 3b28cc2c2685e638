"""One run of a scenario: plan, bring up, prove, drive, drain, tear down, write the folder."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from cellbed.experiments.description import RunState, cautions, deployments, describe, notes
from cellbed.experiments.listener import Listener
from cellbed.laws.kernel import ProgramTcp, chosen, loaded
from cellbed.laws.law import Law, name_of
from cellbed.runformat import folder
from cellbed.runformat.events import Journal
from cellbed.runformat.flows import FILE as FLOWS
from cellbed.scenario import Scenario
from cellbed.scenario.templates import CERTIFICATE
from cellbed.support.errors import CellbedError, OperatingSystemError
from cellbed.support.user_folders import cache_folder
from cellbed.testbed.clean import clean, close, kill_marked
from cellbed.testbed.links.emulator import Emulator, EmulatorError
from cellbed.testbed.links.live import control_path
from cellbed.testbed.machine import certificates, cgroups
from cellbed.testbed.machine.contention import contention
from cellbed.testbed.machine.flows import sampled
from cellbed.testbed.machine.peers import Admission
from cellbed.testbed.machine.process import Place, Process
from cellbed.testbed.machine.signals import Interruption, hang_ups_ignored
from cellbed.testbed.machine.state import RUN_VARIABLE, Record, process_start
from cellbed.testbed.migration.migrations import Migrations
from cellbed.testbed.migration.policies import Policies
from cellbed.testbed.nodes.backend import Limits
from cellbed.testbed.plan import Node, Plan
from cellbed.testbed.programs.balancing import Balancing
from cellbed.testbed.programs.environment import environment
from cellbed.testbed.programs.faults import Faults
from cellbed.testbed.programs.reach import LIVE, Guests, announce_nodes
from cellbed.testbed.programs.reports import REQUESTS, SPANS, ReportSockets
from cellbed.testbed.programs.supervise import (
    HOST_INTERVAL_NS,
    SAMPLE_INTERVAL_NS,
    AnyProgram,
    Program,
    Supervisor,
    start_after,
)
from cellbed.testbed.programs.telemetry import Telemetry, overrides
from cellbed.testbed.programs.telemetry import environment as telemetry_environment
from cellbed.testbed.programs.unmodified import FOREVER_NS, Command, UnmodifiedProgram
from cellbed.testbed.proof.limits import Limited, ProofError, prove_limits
from cellbed.testbed.proof.links import prove_links
from cellbed.testbed.testbed import Testbed, together_beyond_machine
from cellbed.workloads.kind import Deployment
from cellbed.workloads.program.kind import commands as server_commands
from cellbed.workloads.registry import workload
from cellbed_node.temporary import remove_tree

if TYPE_CHECKING:
    from cellbed.measure.meter import Meter
    from cellbed.measure.verdicts import Verdict

QUIET_S = 10.0
"""Longest silence of the proof."""
DISTURBED = 4
"""Exit status of a run that is complete and disturbed, where that was asked for."""
UNMET = 5
"""The same of a run that does not meet an expectation."""
STAGES = 8
"""More than the stages of the programs of an application."""
GRACE_NS = 3_000_000_000
"""How long after the drain a load generator may take to write its last records."""
RESTART_NS = 20_000_000
"""Time from a restart of links to the begin of their schedules."""
EARLY_NS = 100_000_000
"""How much before the end of the schedule a run has ended early."""
FULL_BYTES = 1 << 16
"""A disk with less than this free is full."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run.

    out: parent of the run's folder. limits: enforce CPU and memory limits. meter: report to the listener what the links
    do. standing: name of a testbed that stands until the process is asked to end, independently of its programs. loads:
    start the loads of the applications. proof: measure limits and links. packet_log_bytes: keep only the latest records
    of the packet log, in so many bytes. on_up: called with the run's folder when the schedule has started.
    """

    out: Path
    limits: bool = True
    meter: bool = False
    standing: str | None = None
    loads: bool = True
    proof: bool = True
    packet_log_bytes: int | None = None
    on_up: Callable[[Path], None] = lambda _: None


@dataclass(slots=True)
class Outcome:
    """A finished run. folder: its folder; status: complete, interrupted or failed; error: why it failed, or why its
    requests did; disturbed: whether its report calls it so; verdicts: on its expectations."""

    folder: Path | None
    status: str
    error: CellbedError | None = None
    disturbed: bool = False
    verdicts: list[Verdict] = field(default_factory=list)


def run(text: str, scenario: Scenario, plan: Plan, options: Options, listener: Listener) -> Outcome:
    """Run a planned scenario, whose file contains `text`. Ctrl-C ends it in order and keeps what was measured.

    Errors: :class:`CellbedError` for what keeps the run from starting; a run that fails later returns its outcome.
    """
    for line in clean():
        listener.note(f"cleaning up after earlier runs: {line}")
    with Interruption() as interruption, contextlib.ExitStack() as stack:
        path: Path | None = None
        state = RunState()
        started = datetime.now(UTC)  # noqa: TID251 - the date of the run
        error: CellbedError | None = None
        try:
            listener.phase("preparing the workload")
            together = together_beyond_machine(scenario) if options.limits else []
            state.notes += [*notes(plan), *together]
            for caution in [*cautions(plan), *together]:
                listener.note(caution)
            if not scenario.applications and options.standing is None:
                raise CellbedError(f"{scenario.name}: the scenario has no application: add [workload] or [apps.NAME]")
            for application in scenario.applications.values():
                workload(application.kind).prepare(application, cache_folder(), listener.note)
            path = folder.create(options.out, scenario.name, started.astimezone())
            journal = Journal(path)
            record = Record.create("run" if options.standing is None else "testbed", path, options.standing)
            stack.callback(close, record)
            (path / "scenario.toml").write_text(text, encoding="utf-8")
            folder.write_json(path / "scenario.resolved.json", scenario.resolved())
            _drive(path, record, scenario, plan, options, listener, state, started, interruption, journal)
            state.status = "complete"
        except KeyboardInterrupt:
            state.status = "complete" if options.standing is not None and state.t0_ns is not None else "interrupted"
        except CellbedError as problem:
            state.status, error = "failed", problem
        except OSError as problem:
            state.status, error = "failed", OperatingSystemError(problem, path)
        interruption.shield()
        if path is None:
            return Outcome(None, state.status, error)
        journal.note(state.status, str(error or scenario.name))
        if state.t0_ns is None and (state.status == "interrupted" or not state.proof):
            # No request was sent and no proof failed: the folder would only be in the way.
            remove_tree(path)
            return Outcome(None, state.status, error)
        if error is not None:
            state.warnings.append(f"the run failed: {error}")
            if shutil.disk_usage(path).free < FULL_BYTES:
                # A program that fails for this reason cannot write it to its log.
                state.warnings.append(f"the disk with {path} was full when the run ended")
                listener.note(state.warnings[-1])
        folder.release_reserve(path)
        try:
            describe(path, scenario, plan, state, started, limits=options.limits)
        except OSError as problem:
            # The record stays: `cellbed clean` closes the folder when that is possible again.
            stack.pop_all()
            error = error or OperatingSystemError(problem, path)
            return Outcome(path, "failed", error)
        return Outcome(path, state.status, error)


def _drive(
    path: Path,
    record: Record,
    scenario: Scenario,
    plan: Plan,
    options: Options,
    listener: Listener,
    state: RunState,
    started: datetime,
    interruption: Interruption,
    journal: Journal,
) -> None:
    raw = path / "raw"
    with contextlib.ExitStack() as stack:
        listener.phase(f"bringing up {len(plan.nodes)} nodes and {len(plan.directions) // 2} links")
        binds = _name_files(plan, raw)
        sampler = stack.enter_context(sampled(raw / FLOWS)) if scenario.transport.series else None
        flows = sampler.flows if sampler is not None else None
        names: dict[Law | str, str] = {law: stack.enter_context(loaded(law, flows)) for law in scenario.laws}
        state.laws = {names[law]: law for law in scenario.laws}
        # What `cellbed exec` has started, and what programs have detached from themselves.
        held, networks = stack.enter_context(contextlib.ExitStack()), set[int]()
        stack.callback(kill_marked, record.identifier, networks)
        config = plan.emulator_config(
            raw, control_path(record), options.packet_log_bytes, lambda control: names.get(control, name_of(control))
        )
        bed = stack.enter_context(
            Testbed(
                config,
                record.identifier,
                limits={node.name: Limits(node.cpus, node.memory_bytes) for node in plan.nodes if options.limits},
                backends={node.name: node.backend for node in plan.nodes},
                disks={node.name: node.disk_bytes for node in plan.nodes if node.disk_bytes is not None},
                record=record,
                binds=binds,
            )
        )
        emulator = bed.emulator
        for name in bed.nodes:
            network = held.enter_context(Path(emulator.namespace(name)).open("rb"))
            networks.add(os.fstat(network.fileno()).st_ino)
        announce_nodes(path, bed)
        stack.callback((path / LIVE).unlink, missing_ok=True)
        journal.note("nodes up", f"{len(bed.nodes)} nodes", nodes=list(bed.nodes))
        stack.callback(_stop_emulator, emulator, state)
        stack.enter_context(emulator.required())
        machine = environment(plan)
        nodes = [{"node": name, **node.facts} for name, node in bed.nodes.items() if node.facts]
        folder.write_json(path / "environment.json", machine | {"nodes": nodes})
        if options.proof:
            _prove(plan, bed, listener, state)
            journal.note("proved", f"{len(state.proof)} limits and links")
        kills_before = _memory_kills(bed)

        if sampler is not None:
            sampler.follow([(emulator.namespace(node.name), (str(node.ipv4), str(node.ipv6))) for node in plan.nodes])
        deployed = [replace(each, scratch=bed.sockets) for each in deployments(plan)]
        deployed = _with_certificates(deployed, bed, plan)
        if deployed:
            what = ", ".join(str(each.table) for each in deployed)
            listener.phase(f"starting {what}" if options.loads else f"starting the services, no loads, of {what}")
        nodes_by_address = {str(ip): node.name for node in plan.nodes for ip in (node.ipv4, node.ipv6)}
        sockets = ReportSockets(bed.sockets, nodes_by_address)
        telemetry = Telemetry(raw, {RUN_VARIABLE: record.identifier})

        def take_reports() -> bool:
            """Take over what programs have reported; returns whether that changes the description."""
            before = state.services, state.requesting
            state.services, state.requesting = dict(sockets.names), sockets.requesting
            return (state.services, state.requesting) != before

        @stack.callback
        def take_last_reports() -> None:
            take_reports()
            state.warnings += [*sockets.warnings(), *telemetry.close()]
            if telemetry.used and state.t0_ns is not None:
                from cellbed.measure.telemetry import traced_services

                for name, names in traced_services(path).items():
                    state.services[name] = tuple(sorted({*state.services.get(name, ()), *names}))

        supervisor = Supervisor(raw, record.identifier, sockets, journal)
        faults = Faults([*scenario.faults, *plan.moves], bed, supervisor, journal)
        balancing = Balancing(plan, bed, supervisor, journal)
        servers: dict[tuple[str, str], list[Process | Command]] = {}

        def prepared(process: Process | Command, each: Deployment) -> Process | Command:
            """Return a program with its sockets and settings of TCP."""
            if isinstance(process, Command) and getattr(each.table, "telemetry", False):
                program = f"the {'client' if process.load else 'server'} of {each.name}"
                found = overrides(program, process.environment)
                state.warnings += [text for text in found if text not in state.warnings]
            movable = each.name in by_memory or options.standing is not None
            places = _places(each, plan) if movable and not process.load else []
            process = _with_reports(process, each, raw, bed, places, sockets)
            process = _with_tcp(process, each, scenario, bed, record, names, chosen_tcp)
            if not process.load:
                is_single = len(plan.servers[each.name]) == 1
                if isinstance(process, Command) and is_single and each.name not in by_memory:
                    process = migrations.with_state(process)
                servers.setdefault((each.name, process.node), []).append(process)
            return process

        def servers_of(app: str, node: str) -> list[Process | Command]:
            """Return the programs of an application's server on a node, where it may never have been."""
            if (app, node) not in servers:
                each = next(each for each in deployed if each.name == app)
                there = replace(each, servers=[plan.node(node)])
                found = [prepared(process, each) for process in _server_programs(there, raw, scenario.seed)]
                for receiver in _receivers(found, each, bed, telemetry):
                    supervisor.start(receiver, bed.nodes[node])
            return servers[app, node]

        # CRIU does not move the connection of a service that can pass its state on.
        by_memory = {each.app for each in scenario.migrations if each.moves_memory}
        migrations = Migrations(plan, bed, supervisor, balancing, journal, servers_of, names, faults.is_down)
        state.migrations = migrations.accounts
        chosen_tcp = stack.enter_context(contextlib.ExitStack())
        stack.callback(_stop_programs, supervisor, bed, state)
        policies = Policies(plan, migrations, raw, emulator.counters, supervisor.alarms, journal, state.warnings)
        stack.callback(policies.close)
        stack.callback(migrations.close)
        # From here on the order of things must not be broken by a second Ctrl-C.
        stack.callback(interruption.shield)
        spans: dict[str, Deployment] = {}
        processes: list[Process | Command] = []
        receivers: list[Process] = []
        order = scenario.stages()
        for each in deployed:
            own = workload(each.table.kind).processes(each, raw, cache=cache_folder(), seed=scenario.seed)
            own = [process for process in own if options.loads or not process.load]
            spans |= {process.name: each for process in own if process.load}
            receivers += _receivers(own, each, bed, telemetry)
            own = [prepared(process, each) for process in own]
            processes += [replace(process, stage=process.stage + STAGES * order[each.name]) for process in own]
        loads = supervisor.start_all([*receivers, *processes], bed.nodes)
        balancing.step()

        t0_ns = time.monotonic_ns() + RESTART_NS
        if any(isinstance(load, Program) for load in loads):
            # What handshakes measure must depend on the links only, not on how fast the programs start.
            connect_ns = t0_ns
            emulator.restart_links(connect_ns)
            supervisor.connect(loads, connect_ns)
            t0_ns = connect_ns + start_after(time.monotonic_ns() + RESTART_NS - connect_ns)
            supervisor.wait(lambda: False, t0_ns - RESTART_NS)
        emulator.restart_links(t0_ns)
        state.counted_before = emulator.counters()
        end_ns = t0_ns + scenario.duration
        drain_ns = max((each.table.drain for each in deployed), default=0)
        state.t0_ns = journal.t0_ns = t0_ns
        state.know_nodes(bed.nodes)
        state.first_request_s = _since_command(t0_ns)
        account = functools.partial(describe, path, scenario, plan, state, started, limits=options.limits)
        account()
        # Nothing is measured in a testbed without a load: it should cost little while it stands.
        interval_ns = HOST_INTERVAL_NS if options.standing is not None and not loads else SAMPLE_INTERVAL_NS
        supervisor.sample_nodes(bed.nodes, [os.getpid(), emulator.pid, *telemetry.pids], t0_ns, interval_ns)
        for load in loads:
            each = spans[load.name]
            begin, stop = t0_ns + each.start_ns, t0_ns + each.stop_ns
            load.send_command({"t0_ns": begin, "end_ns": stop, "drain_ns": each.table.drain})
        for name, start_ns in {spans[load.name].name: spans[load.name].start_ns for load in loads}.items():
            journal.note("load started", name, t0_ns + start_ns)
        # The restart resets links to the scenario: they must not be announced as changeable before.
        time.sleep(max(0, t0_ns - time.monotonic_ns()) / 1e9)
        journal.note("schedule started", scenario.name, t0_ns)
        faults.schedule(t0_ns)
        migrations.schedule(t0_ns)
        policies.schedule(t0_ns, end_ns if options.standing is None else FOREVER_NS)
        guests = Guests(bed.nodes, record.identifier, {"migrate": migrations.asked})
        stack.callback(guests.close)

        def watch() -> None:
            """Called at least every 100 ms while the schedule runs."""
            if take_reports() or migrations.take_ended():
                account()
            journal.note_changes()
            faults.step()
            policies.step()
            migrations.step()
            balancing.step()
            guests.serve()
            if sampler is not None:
                sampler.drain()
            if not emulator.is_alive():
                raise EmulatorError("the emulator ended in the middle of the run")
            if scenario.skip and not warm and time.monotonic_ns() >= t0_ns + scenario.skip:
                warm.append(True)
                state.counted_before = emulator.counters()

        warm: list[bool] = []
        options.on_up(path)
        if options.standing is not None:
            listener.phase("the testbed is up")
            _stand(supervisor, watch)
        listener.phase(f"running for {scenario.duration / 1e9:g} s")
        meter = None
        if options.meter:
            from cellbed.measure.meter import Meter

            meter = Meter(lambda: emulator.command({"do": "status"}, "status"), since_now=True)
        drained_ns = end_ns + drain_ns + GRACE_NS
        _follow(supervisor, loads, t0_ns, end_ns, drained_ns, listener, state, meter, watch, journal)
        if not scenario.faults:
            state.deaths += migrations.failures
        state.know_nodes(bed.nodes)
        for name, node in bed.nodes.items():
            if isinstance(node.group, cgroups.Group) and (refused := node.group.refused_processes):
                most = cgroups.MOST_PROCESSES
                text = f"{name} had {most} processes and threads, the most that a node may have"
                state.warnings.append(f"{text}: {refused} more did not start")
        for name, count in _memory_kills(bed).items():
            if (kills := count - kills_before[name]) > 0:
                state.warnings.append(f"{name} ran out of its memory: {kills} processes were killed")


def _server_programs(deployment: Deployment, raw: Path, seed: int) -> Sequence[Process | Command]:
    """Return the programs of an application's servers alone."""
    if deployment.table.server.command is not None:
        return list(server_commands(deployment, "server", raw, seed))
    alone = replace(deployment, clients=[])
    return workload(alone.table.kind).processes(alone, raw, cache=cache_folder(), seed=seed)


def _with_reports(
    process: Process | Command,
    deployment: Deployment,
    raw: Path,
    bed: Testbed,
    places: Sequence[Node],
    sockets: ReportSockets,
) -> Process | Command:
    """Return a program with a socket at which it can report: a service spans, a client its requests; and with the
    address of the receiver of OpenTelemetry, if its application wants it, and the certificate of the run's authority,
    if there is one. places: to which CRIU may move the program, which keeps its socket."""
    if not isinstance(process, Command):
        return process
    protocol, kind = (REQUESTS, "requests") if process.load else (SPANS, "service")
    record = raw / f"{deployment.name}.{process.node}.{kind}.jsonl"
    node = bed.nodes[process.node]

    def clock() -> int:
        return time.monotonic_ns() + node.clock.offset_ns

    admission = node.admission
    if places and node.place is not None:
        there = filter(None, (bed.nodes[each.name].place for each in places))
        admission = Admission(each.network_namespace for each in there)
    made = sockets.listen(protocol, deployment.name, record, admission, node=process.node, clock=clock)
    found = {name: node.show_socket(path) for name, path in made.items()}
    if deployment.authorities is not None:
        found |= dict.fromkeys(certificates.VARIABLES, node.show_file(deployment.authorities))
    given = {**found, **process.environment}
    if getattr(deployment.table, "telemetry", False):
        given = telemetry_environment(deployment.name, given)
    return replace(process, environment=given)


def _with_tcp(
    process: Process | Command,
    deployment: Deployment,
    scenario: Scenario,
    bed: Testbed,
    record: Record,
    names: Mapping[Law | str, str],
    stack: contextlib.ExitStack,
) -> Process | Command:
    """Return a program in a control group of its own, where it gets settings of TCP. names: of laws in the
    kernel. stack: removes the group. Errors: :class:`CellbedError`."""
    role = deployment.table.client if process.load else deployment.table.server
    if role is None or not (tcp := scenario.tcp_of(role)):
        return process
    parent = cgroups.program_parent(bed.nodes[process.node].setup.group, record.identifier)
    assert parent is not None  # by `testbed.check`
    group = parent / process.name
    try:
        if not parent.exists():
            record.note_cgroup(parent)
            stack.callback(cgroups.remove, parent)
        group.mkdir(parents=True)
    except OSError as error:
        raise CellbedError(f"{group}: a control group for settings of TCP cannot be made: {error.strerror}") from error
    control = role.congestion_control
    name = None if control is None else names.get(control, name_of(control))
    settings = ProgramTcp(name, role.receive_buffer, role.send_buffer, bool(tcp.get("pacing")))
    stack.enter_context(chosen(settings, group))
    return replace(process, cgroups=(*process.cgroups, str(group / "cgroup.procs")))


def _receivers(
    processes: Sequence[Process | Command], deployment: Deployment, bed: Testbed, telemetry: Telemetry
) -> Iterator[Process]:
    """Receive spans of OpenTelemetry on the nodes of programs, if their application wants it; yields the receivers of
    other machines."""
    if not getattr(deployment.table, "telemetry", False):
        return
    for name in dict.fromkeys(process.node for process in processes if isinstance(process, Command)):
        if bed.nodes[name].place is not None:
            telemetry.listen(name, Place(bed.emulator.namespace(name), bed.emulator.user_namespace))
        elif (receiver := telemetry.receiver_on(name)) is not None:
            yield receiver


def _with_certificates(deployed: list[Deployment], bed: Testbed, plan: Plan) -> list[Deployment]:
    """Return the applications with the files of an authority, if one of them needs certificates, and with those of the
    servers that have one: with all names of their addresses."""
    if not any(each.table.certified for each in deployed):
        return deployed
    lines = [line.split() for line in plan.hosts.splitlines()]
    names: dict[str, list[str]] = {}
    for each in deployed:
        if each.table.certified and (nodes := plan.servers[each.name]):
            ips = {each.address(nodes[0]), *(str(ip) for node in nodes for ip in (node.ipv4, node.ipv6))}
            names[each.name] = sorted({*ips, *(name for ip, name in lines if ip in ips), *each.table.host_names})
    certificates.issue(bed.sockets, names)
    for key in bed.sockets.glob(f"*/{certificates.KEY}"):
        key.chmod(0o644)  # in a container a program may be another user; no other user of this machine reaches it

    def shown(node: str, app: str) -> dict[str, str]:
        files = zip(CERTIFICATE, certificates.FILES, strict=True)
        return {name: bed.nodes[node].show_file(str(bed.sockets / app / file)) for name, file in files}

    return [
        replace(
            each,
            authorities=str(bed.sockets / certificates.AUTHORITY),
            certificates={node.name: shown(node.name, each.name) for node in _places(each, plan) if each.name in names},
        )
        for each in deployed
    ]


def _places(deployment: Deployment, plan: Plan) -> list[Node]:
    """Return the nodes on which the servers of an application are, or to which they may move."""
    servers = plan.servers[deployment.name]
    return [
        node for node in plan.nodes if node in servers or (node.node_class != "endpoint" and not node.backend.routed)
    ]


def _memory_kills(bed: Testbed) -> dict[str, int]:
    """Processes of each node that were killed at its memory limit until now."""
    samples = {name: node.sample() for name, node in bed.nodes.items()}
    return {name: sample.oom_kills or 0 if sample is not None else 0 for name, sample in samples.items()}


def _name_files(plan: Plan, raw: Path) -> tuple[tuple[str, str], ...]:
    """Write the files by which nodes resolve names; returns them with the files that they replace.

    This machine's name servers cannot be reached from a node: a program that asked them would wait for 10 s.
    """
    (raw / "hosts").write_text(plan.hosts, encoding="utf-8")
    (raw / "resolv.conf").write_text("# No name server: all names are in /etc/hosts.\n", encoding="utf-8")
    names = ("hosts", "resolv.conf") if Path("/etc/resolv.conf").exists() else ("hosts",)
    return tuple((str(raw / name), f"/etc/{name}") for name in names)


def _prove(plan: Plan, bed: Testbed, listener: Listener, state: RunState) -> None:
    listener.phase("measuring limits and links against what was asked")
    nodes = [(node, bed.nodes[node.name]) for node in plan.nodes]
    limited = [Limited(node, backend.group, backend) for node, backend in nodes if backend.group is not None]
    shown_s = time.monotonic()

    def progress(text: str) -> None:
        nonlocal shown_s
        if time.monotonic() > shown_s + QUIET_S:
            shown_s = time.monotonic()
            listener.note(f"still measuring: {text}")

    state.proof += prove_limits(limited, len(os.sched_getaffinity(0)), progress)
    state.proof += prove_links(plan, bed.emulator, progress)
    failed = [proof for proof in state.proof if not proof.ok]
    if failed:
        raise ProofError(failed, contention())
    state.warnings += [str(proof) for proof in state.proof if not proof.reached]


def _follow(
    supervisor: Supervisor,
    loads: list[AnyProgram],
    t0_ns: int,
    end_ns: int,
    deadline_ns: int,
    listener: Listener,
    state: RunState,
    meter: Meter | None,
    watch: Callable[[], None],
    journal: Journal,
) -> None:
    """Wait for the load generators, at most until the deadline, and watch that everything stays alive."""
    counts: dict[AnyProgram, dict[str, int]] = {}
    finished: set[AnyProgram] = set()

    def done() -> bool:
        for load in loads:
            for event in load.events:
                counts[load] = {name: value for name, value in event.items() if isinstance(value, int)}
                if event.get("event") == "done":
                    finished.add(load)
            load.events.clear()
        return bool(loads) and len(finished) == len(loads)

    draining = False

    def tick() -> None:
        nonlocal draining
        if not draining and time.monotonic_ns() >= end_ns:
            draining = True
            journal.note("drain", "no more requests are sent", end_ns)
        watch()  # first: a migration handles the end of its programs
        for program in supervisor.programs:
            if program.ended and program not in finished:
                raise program.failure()
            if program not in loads:
                for event in program.events:
                    if event.get("event") == "died":
                        state.deaths.append(f"at {(event['at_ns'] - t0_ns) / 1e9:.1f} s {event['what']}")
                program.events.clear()
        total: dict[str, int] = {}
        for count in counts.values():
            for name, value in count.items():
                total[name] = total.get(name, 0) + value
        listener.progress((time.monotonic_ns() - t0_ns) / 1e9, (end_ns - t0_ns) / 1e9, total)
        if meter is not None and (readings := meter.read(time.monotonic_ns())) is not None:
            listener.links(readings)

    if not supervisor.wait(done, deadline_ns if loads else end_ns, tick):
        if late := ", ".join(load.name for load in loads if load not in finished):
            state.warnings.append(f"{late} did not end within the drain; its last records may be missing")
    elif (now_ns := time.monotonic_ns()) < end_ns - EARLY_NS:
        state.duration_ns = now_ns - t0_ns
        state.notes.append(ended_early(state.duration_ns, end_ns - t0_ns))
        listener.note(state.notes[-1])
    tick()


def ended_early(duration_ns: int, planned_ns: int) -> str:
    """Return a note on a run that was over before the end of its schedule."""
    return f"all clients had ended after {duration_ns / 1e9:.1f} of {planned_ns / 1e9:g} s: the run ended then"


def _stand(supervisor: Supervisor, watch: Callable[[], None]) -> NoReturn:
    """Serve the programs until a signal asks the process to end (``KeyboardInterrupt``)."""

    def tick() -> None:
        watch()
        for program in supervisor.programs:
            program.events.clear()

    while True:
        supervisor.wait(lambda: False, time.monotonic_ns() + 3600 * 10**9, tick)


def _stop_programs(supervisor: Supervisor, bed: Testbed, state: RunState) -> None:
    for node in bed.nodes.values():
        if isinstance(node.group, cgroups.Group):
            node.group.lift_cpu_limit()
    supervisor.stop()
    state.warnings += supervisor.problems
    for program in supervisor.programs:
        if isinstance(program, UnmodifiedProgram):
            if program.restarts:
                state.warnings.append(f"{program.name} ended and was started again, {program.restarts} ×")
            state.warnings += program.notes


def _stop_emulator(emulator: Emulator, state: RunState) -> None:
    try:
        counted = emulator.counters()
        account = emulator.stop()
    except CellbedError as error:
        state.warnings.append(str(error))
        return
    state.emulator = {
        "lateness_ns": account["lateness_ns"],
        "interfaces": account["interfaces"],
        "directions": state.counted_since(counted),
        "cells": account["cells"],
    }
    state.warnings += emulator.losses(account, state.emulator["directions"])


def _since_command(moment_ns: int) -> float:
    """Return seconds from the start of this command to a monotonic moment."""
    ticks = process_start(os.getpid()) or 0
    start_s = ticks / os.sysconf("SC_CLK_TCK")
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return now_s - start_s + (moment_ns - time.monotonic_ns()) / 1e9


def finish(outcome: Outcome, listener: Listener) -> bool:
    """Compute the tables and write the report of a run that measured something. Return whether there is a report.

    What prevents it is the outcome's error, unless the run itself failed.
    """
    if outcome.folder is None or not (outcome.folder / "run.json").exists():
        return False
    try:
        # The run is over: when its terminal closes now, the report is written all the same.
        with hang_ups_ignored():
            from cellbed.report import html

            listener.phase("writing the report")
            collect(outcome, outcome.folder)
            html.write(outcome.folder)
    except CellbedError as problem:
        outcome.error = outcome.error or problem
    except OSError as problem:
        outcome.error = outcome.error or OperatingSystemError(problem, outcome.folder)
    else:
        return True
    return False


def collect(outcome: Outcome, folder: Path) -> None:
    """Compute the tables of a run, and note in its outcome whether it was disturbed or has no good reply, and the
    verdicts on its expectations."""
    from cellbed import measure
    from cellbed.library import RunError

    summary = measure.collect(folder)
    outcome.disturbed, outcome.verdicts = bool(summary.disturbances), summary.expectations
    if outcome.error is None and outcome.status == "complete" and summary.failure is not None:
        outcome.error = RunError(summary.failure)


def exit_code(outcome: Outcome, *, strict: bool = False, check: bool = False) -> int:
    """Exit status of the command: 0 complete (strict: 4 if disturbed; check: 5 if it does not meet an expectation), 130
    interrupted, else that of the error."""
    if outcome.status == "interrupted":
        return 130
    if outcome.error is not None:
        return outcome.error.exit_code
    if outcome.status != "complete":
        return 1
    if strict and outcome.disturbed:
        return DISTURBED
    return UNMET if check and not all(each.met for each in outcome.verdicts) else 0
