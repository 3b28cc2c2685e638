"""A run of a scenario in virtual time: same clients, same files, and a folder that is marked as predicted."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed.experiments.description import cautions, deployments, notes, replay_warnings
from cellbed.experiments.listener import Listener
from cellbed.experiments.run import EARLY_NS, Outcome, Run
from cellbed.experiments.virtual import migrations
from cellbed.experiments.virtual import profile as profiles
from cellbed.experiments.virtual.profile import Profile
from cellbed.laws.law import KERNEL_CONTROLS, Law, load_shipped
from cellbed.path import Tcp
from cellbed.runformat import folder
from cellbed.runformat.events import Journal
from cellbed.runformat.flows import sample_name
from cellbed.scenario.faults import LinkFault
from cellbed.scenario.migrations import MigrationModel
from cellbed.support.errors import CellbedError
from cellbed.support.extensions import entries
from cellbed.support.near_names import did_you_mean
from cellbed.support.user_folders import cache_folder
from cellbed.testbed.plan import EMULATOR_FILES, Move, Plan
from cellbed.testbed.programs import faults
from cellbed.testbed.programs.environment import environment, host_congestion_control
from cellbed.testbed.programs.supervise import CONNECT_EVERY_NS, start_after
from cellbed.workloads.registry import prepare, samplings, virtual_model
from cellbed.workloads.virtual.client import Client
from cellbed.workloads.virtual.model import Load, Setting
from cellbed.workloads.virtual.world import SECOND, World, window_in

_RECEIVE_BUFFER = 6 << 20
"""Maximum receive buffer, bytes, as in ``tcp_rmem``."""
_PROGRESS = 0.02
"""Share of the schedule between two reports of progress."""


class NoModelError(CellbedError):
    """A part of a scenario that cannot be simulated."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a prediction. out: parent of the run's folder. limits: apply the CPU limits of nodes. profile:
    path of the profile; ``None``: use the user's cache, or measure one. folder: base of paths in the scenario."""

    out: Path
    folder: Path
    limits: bool = True
    profile: Path | None = None


def check(plan: Plan) -> None:
    """Check that all parts of a plan have a model. Raises NoModelError with all parts without one."""
    scenario, found = plan.scenario, list[str]()
    if not scenario.applications:
        raise CellbedError(f"{scenario.name}: the scenario has no application: add [workload] or [apps.NAME]")
    everything = deployments(plan)
    for each in everything:
        model = virtual_model(each.table.kind)
        problems = [each.table.kind] if model is None else model.problems(each, everything, plan)
        files = [
            f"measures = '{role.measured_file}' of the {key}" for key, role in each.table.roles() if role.measured_file
        ]
        found += [f"application '{each.name}': {problem}" for problem in (*problems, *files)]
    found += migrations.problems(scenario)
    if scenario.live is not None:
        found.append("the live network of [links.mobile]: record it, and replay the recording")
    found += [f"node '{name}': class tower" for name in plan.towers]
    for fault in scenario.faults:
        if not isinstance(fault, LinkFault):
            found.append(f"fault '{fault.kind}'")
    for control in scenario.controls:
        if isinstance(control, str) and control not in KERNEL_CONTROLS:
            hint = did_you_mean(control, load_shipped()) or "see `cellbed cc ls`"
            found.append(f"congestion control '{control}': {hint}".rstrip())
    if scenario.transport.ecn:
        found.append("ecn of [transport]")
    if found:
        models = {kind: model for kind in entries("applications") if (model := virtual_model(kind)) is not None}
        kinds = [f"{kind} ({', '.join(model.covers)})" if model.covers else kind for kind, model in models.items()]
        raise NoModelError(
            "\n  ".join([f"{scenario.name}: no model in virtual time for", *found])
            + f"\nmodels exist for the kinds {', '.join(kinds)}; run it without --virtual, or change these"
        )


def run(text: str, plan: Plan, options: Options, listener: Listener) -> Outcome:
    """Simulate a planned scenario, whose file contains `text`.

    Errors: :class:`CellbedError` if the run cannot start; a run that fails later returns its outcome.
    """
    check(plan)
    if options.profile is None:
        migrations.models(plan.scenario, {})
    return VirtualRun(text, plan, options, listener).execute()


class VirtualRun(Run):
    """A run in virtual time. Each phase sets attributes that later phases use."""

    journal: Journal
    profile: Profile
    models: Sequence[MigrationModel]
    names: dict[Law | str, Any]
    world: World
    moves: migrations.Migrations

    def __init__(self, text: str, plan: Plan, options: Options, listener: Listener) -> None:
        super().__init__(text, plan, listener, limits=options.limits)
        self.options, self.out, self.state.clock = options, options.out, "virtual"
        self._loads: list[Load] = []
        self._clients: list[Client] = []
        self._counted: list[Sequence[tuple[int, ...]]] = []

    def prepare(self) -> None:
        plan, scenario, options, state = self.plan, self.plan.scenario, self.options, self.state
        state.notes += notes(plan)
        state.warnings += replay_warnings(plan)
        for caution in cautions(plan):
            self.listener.note(caution)
        measured = samplings()
        for application in scenario.applications.values():
            if application.kind in measured:
                prepare(application, self.listener.note)
        if options.profile is not None:
            profile = profiles.check_profile(profiles.read(options.profile), scenario)
        else:
            profile = profiles.measure_profile(self.text, scenario, options.folder, self.listener, limits=self.limits)
        self.profile = profile
        self.models = migrations.models(scenario, profile.migrations, profile.source)
        path = self.create_folder(options.out)
        self.write_scenario()
        folder.write_json(path / "environment.json", environment(plan) | {"nodes": []})
        if profile.applications or profile.migrations:
            profile.write(path / profiles.FILE)
            state.notes.append(profile.quality)

    def bring_up(self) -> None:
        plan, scenario, transport, state = self.plan, self.plan.scenario, self.plan.scenario.transport, self.state
        self.journal = Journal(self.folder)
        control = host_congestion_control()
        if control not in KERNEL_CONTROLS and not all(scenario.control_of(group) for group in scenario.nodes):
            state.warnings.append(f"TCP {control} has no model here: CUBIC was simulated in its place")
        usual = Tcp()
        tcp = Tcp(
            control=KERNEL_CONTROLS.get(control, "cubic"),
            idle_restart=transport.slow_start_after_idle is not False,
            initial_window=transport.initial_window or usual.initial_window,
            receive_window=window_in(transport.receive_buffer or _RECEIVE_BUFFER),
            send_buffer=transport.send_buffer or usual.send_buffer,
            pacing=transport.pacing,
        )
        self.names = names = {law: law.load() for law in scenario.laws} | KERNEL_CONTROLS
        state.laws = {sample_name(name): law for law, name in names.items() if law != name}
        try:
            limits = self.limits and not self.profile.limited
            self.world = World.of_plan(plan, tcp, names, self.raw, limits=limits)
        except ValueError as problem:
            raise NoModelError(f"{scenario.name}: cannot be simulated: {problem}") from None
        state.services = self.profile.services
        if scenario.packet_log is not None:
            self.held.callback(self._shorten_log, scenario.packet_log)
        self.held.callback(self.world.network.finish)
        self.held.enter_context(self.world.entered())

    def start(self) -> None:
        world, scenario, journal = self.world, self.plan.scenario, self.journal
        self._connect()
        t0_ns = start_after(world.now_ns)
        world.run(t0_ns)
        world.restart(t0_ns)
        for group in scenario.nodes:
            moving = [world.hosts[node.name] for node in self.plan.nodes_of_group(group)]
            for handover in scenario.nodes[group].route:
                world.at(t0_ns + handover.enters, lambda moving=moving: world.moved(moving))  # type: ignore[misc]
        self._counted = [world.network.counted()]
        if scenario.skip:
            world.at(t0_ns + scenario.skip, lambda: self._counted.append(world.network.counted()))
        self.state.t0_ns = journal.t0_ns = t0_ns
        journal.note("schedule started", scenario.name, t0_ns)
        noted: list[LinkFault | Move] = [fault for fault in scenario.faults if isinstance(fault, LinkFault)]
        noted += self.plan.moves
        for number, fault in enumerate(noted):
            for event, at_ns in (("began", fault.at), ("ended", fault.at + fault.length)):
                faults.note(journal, event, number, fault, t0_ns + at_ns)
        self.moves = migrations.Migrations(world, self.plan, journal, self.models, self.names)
        self.moves.schedule(t0_ns)
        self.state.migrations = self.moves.accounts
        for load in self._loads:
            load.start(t0_ns)

    def _shorten_log(self, most: int) -> None:
        # Only the emulator can remove records while it runs.
        from cellbed.measure.packets import shorten_log

        shorten_log(self.raw / EMULATOR_FILES["packet_log"], most)

    def _connect(self) -> None:
        """Make the loads, and connect the load generators."""
        world = self.world
        setting = Setting(
            world, self.raw, self.plan.scenario.seed, self.profile.applications, self.journal, self.held, cache_folder()
        )
        loads: list[Load] = []
        for each in deployments(self.plan):
            model = virtual_model(each.table.kind)
            assert model is not None  # ensured by `check`
            loads += model.loads(each, setting)
        # Generators first: their requests continue until the end of the schedule.
        self._clients = clients = [load for load in loads if isinstance(load, Client)]
        self._loads = [*clients, *(load for load in loads if not isinstance(load, Client))]
        for number, client in enumerate(clients):
            world.at(number * CONNECT_EVERY_NS, client.prepare)
        patience_ns = max((client.generator.patience_ns for client in clients), default=0) + SECOND
        world.run(patience_ns, lambda: all(client.is_ready for client in clients))
        if late := next((client for client in clients if not client.is_ready), None):
            raise CellbedError(late.generator.trouble)

    def watch(self) -> None:
        self.listener.phase(f"simulating {self.plan.scenario.duration / SECOND:g} s")
        try:
            self._simulate()
        finally:
            self.moves.close()
            for load in self._loads:
                load.finish()
            self.state.emulator = _account(self.plan, self.world, self._counted[-1])

    def _simulate(self) -> None:
        duration, loads, clients, t0_ns = self.plan.scenario.duration, self._loads, self._clients, self.state.t0_ns
        assert t0_ns is not None
        end_ns = t0_ns + duration

        def over() -> bool:
            for load in loads:  # noqa: SIM110 - called for each event
                if not load.over:
                    return False
            return True

        step = max(1, round(duration * _PROGRESS))
        for until in itertools.count(t0_ns + step, step):
            self.world.run(until, over)
            total = _total([client.generator.counts() for client in clients])
            self.listener.progress((until - t0_ns) / SECOND, duration / SECOND, total)
            if (until >= end_ns or not clients) and over():
                break
        if loads and not clients and self.world.now_ns < end_ns - EARLY_NS:
            self.note_early_end(self.world.now_ns - t0_ns)
        else:
            self.journal.note("drain", "no more requests are sent", end_ns)


def _total(counts: list[dict[str, int]]) -> dict[str, int]:
    return {name: sum(each[name] for each in counts) for name in (counts[0] if counts else {})}


def _account(plan: Plan, world: World, before: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """Return the final report of the emulator, as in a real run."""
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
