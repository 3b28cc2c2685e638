"""A run of a scenario in real time: plan, bring up, prove, drive, drain, tear down, write the folder."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from cellbed.experiments.description import cautions, notes, replay_warnings
from cellbed.experiments.listener import Listener
from cellbed.experiments.run import EARLY_NS, Outcome, Run
from cellbed.experiments.servers import Servers
from cellbed.laws.kernel import load_law
from cellbed.laws.law import Law, name_of
from cellbed.runformat import folder
from cellbed.runformat.events import Journal
from cellbed.runformat.flows import FILE as FLOWS
from cellbed.support.errors import CellbedError
from cellbed.testbed.clean import clean, close, kill_marked
from cellbed.testbed.links.live import control_path
from cellbed.testbed.machine import cgroups
from cellbed.testbed.machine.contention import contention
from cellbed.testbed.machine.flows import Sampler, sample_flows
from cellbed.testbed.machine.interface import Interface, InterfaceError
from cellbed.testbed.machine.process import Interruption, Process
from cellbed.testbed.machine.state import Record, process_start
from cellbed.testbed.migration.migrations import Migrations
from cellbed.testbed.migration.policies import Policies
from cellbed.testbed.nodes.backend import Limits
from cellbed.testbed.plan import Plan
from cellbed.testbed.programs.balancing import Balancing
from cellbed.testbed.programs.environment import environment
from cellbed.testbed.programs.faults import Faults
from cellbed.testbed.programs.reach import LIVE, Guests, announce_nodes
from cellbed.testbed.programs.supervise import (
    HOST_INTERVAL_NS,
    SAMPLE_INTERVAL_NS,
    AnyProgram,
    Program,
    Supervisor,
    start_after,
)
from cellbed.testbed.programs.unmodified import FOREVER_NS, Command, UnmodifiedProgram
from cellbed.testbed.proof.limits import Limited, ProofError, prove_limits
from cellbed.testbed.proof.links import prove_links
from cellbed.testbed.testbed import Testbed, describe_overcommitment
from cellbed.workloads.kind import Deployment
from cellbed.workloads.registry import prepare

if TYPE_CHECKING:
    from cellbed.measure.meter import Meter

QUIET_S = 10.0
"""Maximum silence during the proof, seconds."""
GRACE_NS = 3_000_000_000
"""Time after the drain for a load generator to write its last records."""
RESTART_NS = 20_000_000
"""Time from a restart of links to the begin of their schedules."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run.

    out: parent of the run's folder. limits: enforce CPU and memory limits. meter: report the activity of the links to
    the listener. standing: name of a testbed that runs until the process is asked to end, whether or not its programs
    end. loads: start the loads of the applications. proof: measure limits and links. packet_log_bytes: maximum size of
    the packet log, which keeps the latest records. on_up: called with the run's folder when the schedule has started.
    """

    out: Path
    limits: bool = True
    meter: bool = False
    standing: str | None = None
    loads: bool = True
    proof: bool = True
    packet_log_bytes: int | None = None
    on_up: Callable[[Path], None] = lambda _: None


def run(text: str, plan: Plan, options: Options, listener: Listener) -> Outcome:
    """Run a planned scenario, whose file contains `text`. Ctrl-C ends the run in order and keeps the measurements.

    Errors: :class:`CellbedError` if the run cannot start; a run that fails later returns its outcome.
    """
    for line in clean():
        listener.note(f"cleaning up after earlier runs: {line}")
    with Interruption() as interruption:
        this = RealRun(text, plan, options, listener, interruption)
        with this.closing:
            return this.execute()


class RealRun(Run):
    """A run in real time. Each phase sets attributes that later phases use.

    t0_ns, end_ns: begin and end of the schedule.
    """

    record: Record
    journal: Journal
    bed: Testbed
    names: dict[Law | str, str]
    servers: Servers
    supervisor: Supervisor
    faults: Faults
    balancing: Balancing
    migrations: Migrations
    policies: Policies
    guests: Guests
    t0_ns: int
    end_ns: int

    def __init__(self, text: str, plan: Plan, options: Options, listener: Listener, interruption: Interruption) -> None:
        super().__init__(text, plan, listener, limits=options.limits)
        self.options, self.interruption = options, interruption
        self._sampler: Sampler | None = None
        self._meter: Meter | None = None
        self._interface: Interface | None = None
        self._carried_before = (0, 0)
        self._kills_before: dict[str, int] = {}
        self._loads: list[AnyProgram] = []
        self._counts: dict[AnyProgram, dict[str, int]] = {}
        self._finished: set[AnyProgram] = set()
        self._is_warm, self._is_draining = not plan.scenario.skip, False

    def prepare(self) -> None:
        plan, scenario, options = self.plan, self.plan.scenario, self.options
        together = describe_overcommitment(scenario) if options.limits else []
        self.state.notes += [*notes(plan), *together]
        self.state.warnings += replay_warnings(plan)
        for caution in [*cautions(plan), *together]:
            self.listener.note(caution)
        if not scenario.applications and options.standing is None:
            raise CellbedError(f"{scenario.name}: the scenario has no application: add [workload] or [apps.NAME]")
        for application in scenario.applications.values():
            prepare(application, self.listener.note)
        path = self.create_folder(options.out)
        self.journal = Journal(path)
        self.record = Record.create("run" if options.standing is None else "testbed", path, options.standing)
        self.log.run = self.record.identifier
        self.closing.callback(close, self.record)
        self.write_scenario()

    def bring_up(self) -> None:
        plan, record, raw, held = self.plan, self.record, self.raw, self.held
        self.listener.phase(f"bringing up {len(plan.nodes)} nodes and {len(plan.directions) // 2} links")
        binds = _name_files(plan, raw)
        if plan.scenario.transport.series:
            self._sampler = held.enter_context(sample_flows(raw / FLOWS))
        flows = self._sampler.flows if self._sampler is not None else None
        names: dict[Law | str, str] = {law: held.enter_context(load_law(law, flows)) for law in plan.scenario.laws}
        self.names = names
        self.state.laws = {names[law]: law for law in plan.scenario.laws}
        # Programs started by `cellbed exec`, and detached programs.
        networks, inodes = held.enter_context(contextlib.ExitStack()), set[int]()
        held.callback(kill_marked, record.identifier, inodes)
        if (live := plan.scenario.live) is not None:
            self._interface = held.enter_context(Interface(live.interface))
        config = plan.emulator_config(
            raw,
            control_path(record),
            self.options.packet_log_bytes,
            lambda control: names.get(control, name_of(control)),
        )
        self.bed = bed = held.enter_context(
            Testbed(
                config,
                record.identifier,
                limits={node.name: Limits(node.cpus, node.memory_bytes) for node in plan.nodes if self.limits},
                backends={node.name: node.backend for node in plan.nodes},
                disks={node.name: node.disk_bytes for node in plan.nodes if node.disk_bytes is not None},
                record=record,
                binds=binds,
                underlay=self._interface,
                intercepts=plan.intercepts,
            )
        )
        for name in bed.nodes:
            network = os.open(bed.emulator.namespace(name), os.O_RDONLY | os.O_CLOEXEC)
            networks.callback(os.close, network)
            inodes.add(os.fstat(network).st_ino)
        announce_nodes(self.folder, bed)
        held.callback((self.folder / LIVE).unlink, missing_ok=True)
        self.journal.note("nodes up", f"{len(bed.nodes)} nodes", nodes=list(bed.nodes))
        held.callback(self._stop_emulator)
        held.enter_context(bed.emulator.require())
        self.state.notes += [
            f"packets of {name} cross {node.facts['tunnel']}"
            for name, node in bed.nodes.items()
            if "tunnel" in node.facts
        ]
        nodes = [{"node": name, **node.facts} for name, node in bed.nodes.items() if node.facts]
        folder.write_json(self.folder / "environment.json", environment(plan) | {"nodes": nodes})

    def prove(self) -> None:
        if not self.options.proof:
            return
        plan, state = self.plan, self.state
        self.listener.phase("measuring limits and links against what was asked")
        nodes = [(node, self.bed.nodes[node.name]) for node in plan.nodes]
        limited = [Limited(node, backend.group, backend) for node, backend in nodes if backend.group is not None]
        shown_s = time.monotonic()

        def progress(text: str) -> None:
            nonlocal shown_s
            if time.monotonic() > shown_s + QUIET_S:
                shown_s = time.monotonic()
                self.listener.note(f"still measuring: {text}")

        state.proof += prove_limits(limited, len(os.sched_getaffinity(0)), progress)
        state.proof += prove_links(plan, self.bed.emulator, progress)
        for proof in state.proof:
            _log.info(f"measured: {proof}")
        failed = [proof for proof in state.proof if not proof.ok]
        if failed:
            raise ProofError(failed, contention())
        state.warnings += [str(proof) for proof in state.proof if not proof.reached]
        self.journal.note("proved", f"{len(state.proof)} limits and links")

    def start(self) -> None:
        bed, plan, record, options = self.bed, self.plan, self.record, self.options
        self._kills_before = {name: node.memory_kills() for name, node in bed.nodes.items()}
        if self._sampler is not None:
            addresses = [(node.name, (str(node.ipv4), str(node.ipv6))) for node in plan.nodes]
            self._sampler.follow([(bed.emulator.namespace(name), ips) for name, ips in addresses])
        is_standing = options.standing is not None
        self.servers = Servers(plan, bed, record, self.raw, self.names, self.state, is_standing)
        if deployed := self.servers.deployed:
            what = ", ".join(str(each.table) for each in deployed)
            self.listener.phase(f"starting {what}" if options.loads else f"starting the services, no loads, of {what}")
        self._supervise()
        spans = self._start_programs()
        self._start_links()
        self._start_schedule(spans)

    def _supervise(self) -> None:
        """Create the parts that start, watch and move programs, and register the orderly end."""
        bed, plan, journal, held = self.bed, self.plan, self.journal, self.held
        held.callback(self.servers.take_last_reports)
        self.supervisor = Supervisor(self.raw, self.record.identifier, self.servers.sockets, journal)
        self.faults = Faults([*plan.scenario.faults, *plan.moves], bed, self.supervisor, journal)
        self.balancing = Balancing(plan, bed, self.supervisor, journal)
        self.migrations = Migrations(
            plan,
            bed,
            self.supervisor,
            self.balancing,
            journal,
            self._programs_on,
            self.names,
            self.faults.is_down,
            self.servers.states,
        )
        self.state.migrations = self.migrations.accounts
        held.enter_context(self.servers.settings)
        held.callback(self._stop_programs)
        counters, alarms = bed.emulator.counters, self.supervisor.alarms
        self.policies = Policies(plan, self.migrations, self.raw, counters, alarms, self.state.warnings)
        held.callback(self.policies.close)
        held.callback(self.migrations.close)
        # From here on, a second Ctrl-C must not break the order of the end.
        held.callback(self.interruption.shield)

    def _programs_on(self, app: str, node: str) -> list[Process | Command]:
        """Return the programs of an application's server on the target node of its move."""
        programs, receivers = self.servers.programs_on(app, node)
        for receiver in receivers:
            self.supervisor.start(receiver, self.bed.nodes[node])
        return programs

    def _start_programs(self) -> dict[str, Deployment]:
        """Start the programs; return the applications of the load generators, by their names."""
        spans: dict[str, Deployment] = {}
        processes: list[Process | Command] = []
        receivers: list[Process] = []
        for each in self.servers.deployed:
            own, needed = self.servers.processes(each, loads=self.options.loads)
            spans |= {process.name: each for process in own if process.load}
            processes += own
            receivers += needed
        self._loads = self.supervisor.start_all([*receivers, *processes], self.bed.nodes)
        self.balancing.step()
        return spans

    def _start_links(self) -> None:
        """Connect the load generators, restart the links, and determine begin and end of the schedule."""
        emulator, supervisor, state = self.bed.emulator, self.supervisor, self.state
        t0_ns = time.monotonic_ns() + RESTART_NS
        if any(isinstance(load, Program) for load in self._loads):
            # Measured handshakes must depend on the links only, not on how fast the programs start.
            connect_ns = t0_ns
            emulator.restart_links(connect_ns)
            supervisor.connect(self._loads, connect_ns)
            t0_ns = connect_ns + start_after(time.monotonic_ns() + RESTART_NS - connect_ns)
            supervisor.wait(lambda: False, t0_ns - RESTART_NS)
        emulator.restart_links(t0_ns)
        state.counted_before = emulator.counters()
        if self._interface is not None:
            self._carried_before = self._interface.counters()
        state.t0_ns = self.journal.t0_ns = self.t0_ns = t0_ns
        self.end_ns = t0_ns + self.plan.scenario.duration
        state.know_nodes(self.bed.nodes)
        state.first_request_s = _since_command(t0_ns)
        self.describe()

    def _start_schedule(self, spans: Mapping[str, Deployment]) -> None:
        """Start samples, loads, faults, migrations and policies. spans: applications of the load generators."""
        bed, journal, t0_ns = self.bed, self.journal, self.t0_ns
        is_standing = self.options.standing is not None
        # A testbed without a load measures nothing: sample it rarely, to save CPU time.
        interval_ns = HOST_INTERVAL_NS if is_standing and not self._loads else SAMPLE_INTERVAL_NS
        own = [os.getpid(), bed.emulator.pid, *self.servers.telemetry.pids]
        self.supervisor.sample_nodes(bed.nodes, own, t0_ns, interval_ns)
        for load in self._loads:
            each = spans[load.name]
            begin, stop = t0_ns + each.start_ns, t0_ns + each.stop_ns
            load.send_command({"t0_ns": begin, "end_ns": stop, "drain_ns": each.table.drain})
        for name, start_ns in {spans[load.name].name: spans[load.name].start_ns for load in self._loads}.items():
            journal.note("load started", name, t0_ns + start_ns)
        # The restart resets links to the scenario: do not announce them as changeable before.
        time.sleep(max(0, t0_ns - time.monotonic_ns()) / 1e9)
        journal.note("schedule started", self.plan.scenario.name, t0_ns)
        self.faults.schedule(t0_ns)
        self.migrations.schedule(t0_ns)
        self.policies.schedule(t0_ns, FOREVER_NS if is_standing else self.end_ns)
        self.guests = Guests(
            bed.nodes, self.record.identifier, {"migrate": self.migrations.asked, "pause": self.faults.pause}
        )
        self.held.callback(self.guests.close)

    def watch(self) -> None:
        self.options.on_up(self.folder)
        if self.options.standing is not None:
            self.listener.phase("the testbed is up")
            self._stand()
        self.listener.phase(f"running for {self.plan.scenario.duration / 1e9:g} s")
        self._follow()
        state = self.state
        if not self.plan.scenario.faults:
            state.deaths += self.migrations.failures
        state.know_nodes(self.bed.nodes)
        for name, node in self.bed.nodes.items():
            if isinstance(node.group, cgroups.Group) and (refused := node.group.refused_processes):
                most = cgroups.MOST_PROCESSES
                text = f"{name} had {most} processes and threads, the most that a node may have"
                state.warnings.append(f"{text}: {refused} more did not start")

    def _step(self) -> None:
        """Process due events; called at least every 100 ms while the schedule runs."""
        if self._interface is not None and (problem := self._interface.problem()) is not None:
            since_s = (time.monotonic_ns() - self.t0_ns) / 1e9
            raise InterfaceError(f"the live link was lost {since_s:.1f} s after the start of the workload: {problem}")
        if self.servers.take_reports() or self.migrations.take_ended():
            self.describe()
        self.journal.note_changes()
        self.faults.step()
        self.policies.step()
        self.migrations.step()
        self.balancing.step()
        self.guests.serve()
        if self._sampler is not None:
            self._sampler.drain()
        if not self.bed.emulator.is_alive():
            raise self.bed.emulator.failure()
        if not self._is_warm and time.monotonic_ns() >= self.t0_ns + self.plan.scenario.skip:
            self._is_warm = True
            self.state.counted_before = self.bed.emulator.counters()

    def _stand(self) -> NoReturn:
        """Serve the programs until a signal asks the process to end (``KeyboardInterrupt``)."""

        def tick() -> None:
            self._step()
            for program in self.supervisor.programs:
                program.events.clear()

        while True:
            self.supervisor.wait(lambda: False, time.monotonic_ns() + 3600 * 10**9, tick)

    def _follow(self) -> None:
        """Wait for the load generators, at most until the end of the drain, and check that all programs are alive."""
        if self.options.meter:
            from cellbed.measure.meter import Meter

            self._meter = Meter(lambda: self.bed.emulator.command({"do": "status"}, "status"), since_now=True)
        drain_ns = max((each.table.drain for each in self.servers.deployed), default=0)
        deadline_ns = self.end_ns + drain_ns + GRACE_NS if self._loads else self.end_ns
        if not self.supervisor.wait(self._loads_are_done, deadline_ns, self._follow_programs):
            if late := ", ".join(load.name for load in self._loads if load not in self._finished):
                self.state.warnings.append(f"{late} did not end within the drain; its last records may be missing")
        elif (now_ns := time.monotonic_ns()) < self.end_ns - EARLY_NS:
            self.note_early_end(now_ns - self.t0_ns)
        self._follow_programs()

    def _loads_are_done(self) -> bool:
        for load in self._loads:
            for event in load.events:
                self._counts[load] = {name: value for name, value in event.items() if isinstance(value, int)}
                if event.get("event") == "done":
                    self._finished.add(load)
            load.events.clear()
        return bool(self._loads) and len(self._finished) == len(self._loads)

    def _follow_programs(self) -> None:
        """Process due events, handle the events of programs, and report progress."""
        now_ns, t0_ns = time.monotonic_ns(), self.t0_ns
        if not self._is_draining and now_ns >= self.end_ns:
            self._is_draining = True
            self.journal.note("drain", "no more requests are sent", self.end_ns)
        self._step()  # first: a migration handles the end of its programs
        for program in self.supervisor.programs:
            if program.ended and program not in self._finished:
                raise program.failure()
            if program not in self._loads:
                for event in program.events:
                    if event.get("event") == "died":
                        self.state.deaths.append(f"at {(event['at_ns'] - t0_ns) / 1e9:.1f} s {event['what']}")
                program.events.clear()
        total: dict[str, int] = {}
        for count in self._counts.values():
            for name, value in count.items():
                total[name] = total.get(name, 0) + value
        self.listener.progress((time.monotonic_ns() - t0_ns) / 1e9, (self.end_ns - t0_ns) / 1e9, total)
        if self._meter is not None and (readings := self._meter.read(time.monotonic_ns())) is not None:
            self.listener.links(readings)

    def status_after_interruption(self) -> str:
        is_complete = self.options.standing is not None and self.state.t0_ns is not None
        return "complete" if is_complete else super().status_after_interruption()

    def conclude(self, error: CellbedError | None) -> Outcome:
        self.interruption.shield()
        if self.path is not None:
            self.journal.note(self.state.status, str(error or self.plan.scenario.name))
        return super().conclude(error)

    def _stop_programs(self) -> None:
        for node in self.bed.nodes.values():
            if isinstance(node.group, cgroups.Group):
                node.group.lift_cpu_limit()
        for name, node in self.bed.nodes.items():
            sample = node.sample()
            _log.info(f"node {name}: {sample}")
            if sample and (kills := (sample.oom_kills or 0) - self._kills_before.get(name, 0)) > 0:
                self.state.warnings.append(f"{name} ran out of its memory: {kills} processes were killed")
        self.state.deaths += self.bed.idle_intercepts()
        self.supervisor.stop()
        self.state.warnings += self.supervisor.problems
        for program in self.supervisor.programs:
            if isinstance(program, UnmodifiedProgram):
                if program.restarts:
                    self.state.warnings.append(f"{program.name} ended and was started again, {program.restarts} ×")
                self.state.warnings += program.notes

    def _stop_emulator(self) -> None:
        emulator, state = self.bed.emulator, self.state
        if self._interface is not None and state.t0_ns is not None:
            counts = zip(self._interface.counters(), self._carried_before, strict=True)
            received, sent = (f"{max(0, now - before) / 1e6:.1f} MB" for now, before in counts)
            text = f"{self._interface.name} received {received} and sent {sent} from the start of the workload on"
            state.notes.append(f"{text}, with headers of the tunnels and traffic of other programs")
        try:
            counted = emulator.counters()
            account = emulator.stop()
        except CellbedError as error:
            state.warnings.append(str(error))
            return
        state.emulator = {
            "lateness_ns": account["lateness_ns"],
            "interfaces": account["interfaces"],
            "directions": state.counts_since(counted),
            "cells": account["cells"],
        }
        state.warnings += emulator.losses(account, state.emulator["directions"])


def _name_files(plan: Plan, raw: Path) -> tuple[tuple[str, str], ...]:
    """Write the files that resolve names on nodes; return them with the files that they replace.

    Nodes cannot reach this machine's name servers: a program that asked them would wait for 10 s. A file that this
    machine lacks cannot be replaced: without /etc/hosts, programs find other nodes by their addresses alone.
    """
    (raw / "hosts").write_text(plan.hosts, encoding="utf-8")
    (raw / "resolv.conf").write_text("# No name server: all names are in /etc/hosts.\n", encoding="utf-8")
    names = ("hosts", "resolv.conf")
    return tuple((str(raw / name), f"/etc/{name}") for name in names if Path(f"/etc/{name}").exists())


def _since_command(moment_ns: int) -> float:
    """Return the seconds from the start of this command to a monotonic time."""
    ticks = process_start(os.getpid()) or 0
    start_s = ticks / os.sysconf("SC_CLK_TCK")
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return now_s - start_s + (moment_ns - time.monotonic_ns()) / 1e9
