"""One run of a scenario in virtual time: the same clients, the same files, and a folder that is marked as predicted."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import IO, Any

from cellbed.errors import CellbedError, OperatingSystemError
from cellbed.experiments.description import RunState, cautions, deployments, describe, notes
from cellbed.experiments.run import EARLY_NS, Listener, Outcome, ended_early
from cellbed.experiments.virtual import profile as profiles
from cellbed.experiments.virtual import programs
from cellbed.experiments.virtual.profile import Draw, Profile
from cellbed.experiments.virtual.servers import Broker, Http, Offloaded
from cellbed.experiments.virtual.world import SECOND, Host, Program, Socket, World, names
from cellbed.scenario import Scenario
from cellbed.scenario.faults import LinkFault
from cellbed.simulation.path import CONTROLS
from cellbed.testbed import faults, folder
from cellbed.testbed.journal import Journal
from cellbed.testbed.plan import Move, Plan
from cellbed.testbed.supervise import CONNECT_EVERY_NS, start_after
from cellbed.user_folders import cache_folder
from cellbed.workloads import lifecycle
from cellbed.workloads.generator import Generator
from cellbed.workloads.http import kind as http_kind
from cellbed.workloads.http.load import HttpLoad
from cellbed.workloads.http.load import Settings as HttpSettings
from cellbed.workloads.kind import Deployment
from cellbed.workloads.offloading import kind as offloading
from cellbed.workloads.offloading.endpoint import Endpoint, Inputs
from cellbed.workloads.offloading.endpoint import Settings as EndpointSettings
from cellbed.workloads.registry import workload

_CONTROLS = {"reno" if name == "newreno" else name: name for name in CONTROLS}
"""The congestion controls of the simulated TCP, by the kernel's names."""
_RECEIVE_WINDOW = 6 << 20
_PROGRESS = 0.02
"""Share of the schedule between two reports of progress."""


class NoModelError(CellbedError):
    """A part of a scenario that cannot be simulated."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to run. out: parent of the run's folder. limits: apply the CPU limits of nodes. profile: where the profile
    comes from, ``None`` for the user's cache, or for measuring it. folder: to which paths in the scenario are
    relative."""

    out: Path
    folder: Path
    limits: bool = True
    profile: Path | None = None


def check(plan: Plan) -> None:
    """Check that everything in a plan has a model. Raises NoModelError with all that has none."""
    scenario, found = plan.scenario, list[str]()
    if not scenario.applications:
        raise CellbedError(f"{scenario.name}: the scenario has no application: add [workload] or [apps.NAME]")
    programs.planned(plan, Path(), found)
    found += _strangers(plan)
    for fault in scenario.faults:
        if not isinstance(fault, LinkFault):
            found.append(f"fault '{fault.kind}'")
    if scenario.transport.congestion_control not in (None, *_CONTROLS):
        found.append(f"congestion control '{scenario.transport.congestion_control}'")
    if found:
        kinds = ", ".join(profiles.KINDS)
        raise NoModelError(
            "\n  ".join([f"{scenario.name}: no model in virtual time for", *found])
            + f"\nmodels exist for the applications {kinds}, and for the programs {programs.MODELLED}; run it without "
            "--virtual, or change these"
        )


def _strangers(plan: Plan) -> Iterator[str]:
    """URLs that are not those of a node."""
    addresses = {name: address for name, address in names(plan).items() if not address.startswith("127.")}
    for each in deployments(plan):
        if each.table.kind == "http":
            clients = range(len(each.clients))
            hosts = {str(http_kind.settings(each, Path(), index, 0)["host"]) for index in clients}
            strange = hosts - addresses.keys() - set(addresses.values())
            yield from (f"application '{each.name}': the URL of {host}, which is no node" for host in sorted(strange))


def run(text: str, scenario: Scenario, plan: Plan, options: Options, listener: Listener) -> Outcome:
    """Simulate a planned scenario, whose file contains `text`.

    Errors: :class:`CellbedError` for what keeps the run from starting; a run that fails later returns its outcome.
    """
    check(plan)
    path: Path | None = None
    state = RunState(clock="virtual")
    started = datetime.now(UTC)  # noqa: TID251 - the date of the run
    error: CellbedError | None = None
    try:
        listener.phase("preparing the workload")
        state.notes += notes(plan)
        for caution in cautions(plan):
            listener.note(caution)
        for application in scenario.applications.values():
            workload(application.kind).prepare(application, cache_folder(), listener.note)
        if options.profile is not None:
            profile = profiles.checked(profiles.read(options.profile), scenario)
        else:
            profile = profiles.measured(text, scenario, options.folder, listener, limits=options.limits)
        path = folder.create(options.out, scenario.name, started.astimezone())
        (path / "scenario.toml").write_text(text, encoding="utf-8")
        folder.write_json(path / "scenario.resolved.json", scenario.resolved())
        folder.write_json(path / "environment.json", folder.environment(plan) | {"nodes": []})
        if profile.applications:
            profile.write(path / profiles.FILE)
            state.notes.append(profile.quality)
        _drive(path, scenario, plan, profile, options, listener, state)
        state.status = "complete"
    except KeyboardInterrupt:
        state.status = "interrupted"
    except CellbedError as problem:
        state.status, error = "failed", problem
    except OSError as problem:
        state.status, error = "failed", OperatingSystemError(problem, path or options.out)
    if path is None:
        return Outcome(None, state.status, error)
    if state.t0_ns is None:
        shutil.rmtree(path)
        return Outcome(None, state.status, error)
    if error is not None:
        state.warnings.append(f"the run failed: {error}")
    folder.release_reserve(path)
    describe(path, scenario, plan, state, started, limits=options.limits)
    return Outcome(path, state.status, error)


def _drive(
    path: Path,
    scenario: Scenario,
    plan: Plan,
    profile: Profile,
    options: Options,
    listener: Listener,
    state: RunState,
) -> None:
    raw, journal = path / "raw", Journal(path)
    control = scenario.transport.congestion_control or folder.host_congestion_control()
    if control not in _CONTROLS:
        state.warnings.append(f"TCP {control} has no model here: CUBIC was simulated in its place")
    idle = scenario.transport.slow_start_after_idle is not False
    tcp = (_CONTROLS.get(control, "cubic"), True, idle, 10, _RECEIVE_WINDOW, 1448)
    try:
        world = World(plan, tcp, raw, limits=options.limits and not profile.limited)
    except ValueError as problem:
        raise NoModelError(f"{scenario.name}: cannot be simulated: {problem}") from None
    state.services = profile.services
    with contextlib.ExitStack() as stack:
        stack.callback(world.network.finish)
        stack.enter_context(world.entered())
        clients = [
            client
            for each in deployments(plan)
            if each.table.kind in profiles.KINDS
            for client in _clients(each, world, profile, raw, scenario.seed, stack)
        ]
        planned = programs.planned(plan, raw, [])
        for close in programs.serve(world, planned, raw):
            stack.callback(close)
        loads = [programs.Load(world, each, raw, journal, scenario.seed) for each in planned if each.command.load]
        for load in loads:
            stack.callback(load.finish)
        for number, client in enumerate(clients):
            world.at(number * CONNECT_EVERY_NS, client.prepare)
        patience_ns = max((client.generator.patience_ns for client in clients), default=0) + SECOND
        world.run(patience_ns, lambda: all(client.is_ready for client in clients))
        if late := next((client for client in clients if not client.is_ready), None):
            raise CellbedError(late.generator.trouble)
        t0_ns = start_after(world.now_ns)
        world.run(t0_ns)
        world.restart(t0_ns)
        for group in scenario.nodes:
            moving = [world.hosts[node.name] for node in plan.of_group(group)]
            for handover in scenario.nodes[group].route:
                world.at(t0_ns + handover.enters, lambda moving=moving: world.moved(moving))  # type: ignore[misc]
        before = world.network.counted()
        state.t0_ns = journal.t0_ns = t0_ns
        journal.note("schedule started", scenario.name, t0_ns)
        noted: list[LinkFault | Move] = [fault for fault in scenario.faults if isinstance(fault, LinkFault)]
        noted += plan.moves
        for number, fault in enumerate(noted):
            for event, at_ns in (("began", fault.at), ("ended", fault.at + fault.length)):
                faults.note(journal, event, number, fault, t0_ns + at_ns)
        for client in clients:
            client.start(t0_ns)
        for load in loads:
            load.start(t0_ns)
        end_ns = t0_ns + scenario.duration

        def over() -> bool:
            return all(client.over for client in clients) and all(load.over for load in loads)

        listener.phase(f"simulating {scenario.duration / SECOND:g} s")
        step = max(1, round(scenario.duration * _PROGRESS))
        try:
            for until in itertools.count(t0_ns + step, step):
                world.run(until, over)
                if failed := next((load.failure for load in loads if load.failure is not None), None):
                    raise failed
                total = _total([client.generator.counts() for client in clients])
                listener.progress((until - t0_ns) / SECOND, scenario.duration / SECOND, total)
                if (until >= end_ns or not clients) and over():
                    break
            if loads and not clients and world.now_ns < end_ns - EARLY_NS:
                state.duration_ns = world.now_ns - t0_ns
                state.notes.append(ended_early(state.duration_ns, scenario.duration))
                listener.note(state.notes[-1])
            else:
                journal.note("drain", "no more requests are sent", end_ns)
        finally:
            for client in clients:
                client.finish()
            state.emulator = _account(plan, world, before)
            state.warnings += [load.restarted for load in loads if load.restarts]


def _total(counts: list[dict[str, int]]) -> dict[str, int]:
    return {name: sum(each[name] for each in counts) for name in (counts[0] if counts else {})}


def _account(plan: Plan, world: World, before: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """What a real run's emulator reports at its end."""
    directions = {}
    for direction, first, last in zip(plan.directions, before, world.network.counted(), strict=True):
        full, congestion, loss, handover, marked, doubled, corrupted = (b - a for a, b in zip(first, last, strict=True))
        directions[direction.name] = {
            "dropped": {"queue-full": full, "congestion": congestion, "loss": loss, "handover": handover},
            "marked": marked,
            "duplicated": doubled,
            "corrupted": corrupted,
        }
    cells = []
    for number, cell in enumerate(plan.cells):
        visitors = [user["direction"] for user in cell.config["users"]]
        served = zip(visitors, world.network.served(number), strict=True)
        cells.append({"name": cell.name, "users": [{"direction": user, "served_ns": ns} for user, ns in served]})
    return {"directions": directions, "cells": cells}


class Client:
    """A load generator on its node in a world."""

    def __init__(
        self, world: World, program: Program, generator: Generator, deployment: Deployment, draw: Draw
    ) -> None:
        self._world, self.program, self.generator, self._draw = world, program, generator, draw
        self._deployment = deployment
        self._prepared = False
        self._started = False
        self._wake_ns: int | None = None
        self._events = itertools.count()
        self.over = False

    @property
    def is_ready(self) -> bool:
        """Whether it waits for its start."""
        return self._prepared and self.generator.ready

    def prepare(self) -> None:
        """Begin to connect."""

        def work() -> None:
            self.generator.prepare()
            self._prepared = True
            self._drive()

        self.program.call(work)

    def start(self, t0_ns: int) -> None:
        """Set its load."""
        each = self._deployment
        self.generator.start(t0_ns + each.start_ns, t0_ns + each.stop_ns, each.table.drain)
        self._started = True
        self._world.at(t0_ns + each.start_ns, self._wake)

    def finish(self) -> None:
        """Close it."""
        self.program.now_ns = max(self.program.now_ns, self._world.now_ns)
        self._world.current = self.program
        self.generator.finish()

    def watch(self, connection: Socket) -> None:
        """Let it know what happens at one of its sockets."""

        def happened() -> None:
            # By the time at which the program notices, other connections may have something, too.
            self._world.at(self._world.now_ns + self._taken("receive"), lambda: self.program.call(self._drive))

        connection.on_event = happened

    def _wake(self) -> None:
        def work() -> None:
            self.program.now_ns += self._taken("generator")
            self._drive()

        self.program.call(work)

    def _drive(self) -> None:
        """Read and write what there is, and do what is due."""
        generator = self.generator
        left = dict[int, int]()
        while True:
            connections = {each.fileno(): each for each in generator.readers}
            waiting = {number: size for number in connections if (size := self._world.waiting(number)) is not None}
            writers = [each for each in generator.writers if self._world.is_connected(each.fileno())]
            asked = generator.wake_ns is not None and generator.wake_ns <= self.program.now_ns
            if waiting == left and not writers and not asked:
                break
            generator.drive([connections[number] for number in waiting], writers)
            left = waiting
        times = [generator.wake_ns] if generator.wake_ns is not None else []
        if self._started and not self.over:
            # One request is taken up at a time; the next may be due already.
            while (wake := generator.turn()) is not None and wake <= self.program.now_ns:
                pass
            self.over = wake is None
            times += [wake] if wake is not None else []
        if times and (self._wake_ns is None or min(times) != self._wake_ns or self._wake_ns <= self._world.now_ns):
            self._wake_ns = at_ns = min(times)

            def due() -> None:
                if self._wake_ns == at_ns:
                    self._wake()

            self._world.at(at_ns, due)

    def _taken(self, part: str) -> int:
        """What the program takes until it has noticed something, ns."""
        request = f"{self._deployment.name}/{self.program.host.name}/{part}/{next(self._events)}"
        taken: int = self._draw.sample(request).get(part, 0)
        return taken


class _Timed:
    """Inputs whose pre-processing takes time on a program; see :class:`cellbed.workloads.offloading.endpoint.Inputs`.

    known: gets the name of the input of each payload.
    """

    def __init__(
        self,
        names: Sequence[str],
        payload_of: Callable[[str, float], bytes],
        draw: Draw,
        known: dict[int, str],
        endpoint: str,
    ) -> None:
        self.names, self._payload_of = names, payload_of
        self._draw, self._known, self._endpoint = draw, known, endpoint
        self._numbers = itertools.count()
        self.program: Program | None = None

    def payload(self, name: str, scale: float = 1.0) -> bytes:
        """As of the inputs."""
        content = self._payload_of(name, scale)
        self._known[hash(content)] = name
        if self.program is not None:
            request = f"{self._endpoint}/{next(self._numbers)}/preprocessing"
            self.program.spend(self._draw.sample(request, name, len(content))["preprocessing"])
        return content


def _clients(
    each: Deployment, world: World, profile: Profile, raw: Path, seed: int, stack: contextlib.ExitStack
) -> Iterator[Client]:
    """The clients of an application, whose servers listen afterwards."""
    draw = Draw(profile.applications[each.name], seed)
    if each.table.kind in profiles.OFFLOADING:
        yield from _offloading(each, world, draw, raw, seed, stack)
    else:
        yield from _http(each, world, draw, raw, seed, stack)


def _offloading(
    each: Deployment, world: World, draw: Draw, raw: Path, seed: int, stack: contextlib.ExitStack
) -> Iterator[Client]:
    programs: offloading.Programs = workload(each.table.kind).programs(each.table, cache_folder())  # type: ignore[attr-defined]
    port, known = offloading.PORT + each.number, dict[int, str]()
    for node in each.servers:
        record: IO[str] = stack.enter_context(lifecycle.open_record(each.file(raw, node, "service.jsonl")))
        host = world.hosts[node.name]
        workers = each.table.workers or max(1, math.ceil(node.cpus))
        world.listen(host, port, Broker(Offloaded(world, host, workers, draw, known, record)))
    inputs: Inputs = importlib.import_module(programs.client).open_inputs(programs.inputs)
    payload_of = cache(inputs.payload)
    for index, node in enumerate(each.clients):
        timed = _Timed(inputs.names, payload_of, draw, known, node.name)
        settings = offloading.endpoint_settings(each, raw, programs, index, seed, port)
        generator = Endpoint(EndpointSettings(**settings), timed)
        client = _client(world, world.hosts[node.name], generator, each, draw)
        timed.program = client.program
        yield client


def _http(
    each: Deployment, world: World, draw: Draw, raw: Path, seed: int, stack: contextlib.ExitStack
) -> Iterator[Client]:
    records: dict[str, IO[str]] = {}
    for index, node in enumerate(each.clients):
        settings = HttpSettings(**http_kind.settings(each, raw, index, seed))
        servers = world.hosts_of(settings.host)
        for server in servers:
            if server.name not in records:
                file = raw / f"{each.name}.{server.name}.service.jsonl"
                records[server.name] = stack.enter_context(lifecycle.open_record(file))
            world.listen(server, settings.port, Http(world, server, settings.version, draw, records[server.name]))
        yield _client(world, world.hosts[node.name], HttpLoad(settings), each, draw)


def _client(world: World, host: Host, generator: Generator, each: Deployment, draw: Draw) -> Client:
    program = Program(world, host)
    client = Client(world, program, generator, each, draw)
    program.on_socket = client.watch
    return client
