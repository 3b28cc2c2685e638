"""Migrations in virtual time: the phases of each strategy, with transfers over the simulated links.

Values independent of links, such as the time to write a snapshot, are measured once: in a real run, or by the user.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cellbed.laws.law import Law
from cellbed.runformat.events import Journal
from cellbed.scenario import Scenario
from cellbed.scenario.migrations import Migration, MigrationModel, load_strategy
from cellbed.support.errors import CellbedError
from cellbed.support.extensions import entries
from cellbed.testbed.migration.account import Account
from cellbed.testbed.migration.strategy import MigrationError, PredictedSteps, Strategy
from cellbed.testbed.migration.transfer import EMPTY_BYTES, STALL_S
from cellbed.testbed.plan import Plan
from cellbed.workloads.registry import virtual_model
from cellbed.workloads.virtual.world import SECOND, Host, Program, Service, Socket, World

_STEP_NS = 2_000_000
"""Interval at which a migration checks its conditions, as in a real run."""
_PIECE, _PACED = 1 << 16, 1 << 14
"""Bytes per write of a sender, without and with a limited rate."""

Measured = dict[str, int]
"""Values of a :class:`MigrationModel`, by key."""


# ---- parameters


def read_parameters(account: Mapping[str, Any]) -> Measured:
    """Return the parameters of a real migration. account: account of a migration without failure, from a run."""
    phases = {phase["name"]: phase for phase in account["phases"]}
    lasted = {name: round((each["end_s"] - each["begin_s"]) * SECOND) for name, each in phases.items()}
    local = {
        name: max(0, lasted[name] - round(each["on_link_s"] * SECOND))
        for name, each in phases.items()
        if each.get("on_link_s")
    }
    sent = {name: each["bytes"] for name, each in phases.items() if each.get("bytes")}
    overhead = local.get("round 2", 0)
    first, later = "round 1", next((name for name in ("round 2", "last round", "transfer") if name in phases), "")
    found = {
        "overhead": overhead,
        "finish": local.get("last round", local.get("transfer", 0)),
        "start": lasted.get("start", lasted.get("prepare", 0)),
    }
    found["switch"] = switch = lasted.get("switch", 0)
    if first in sent:
        changed = max(0, sent.get(later, 0) - EMPTY_BYTES)
        found |= {"size": sent[first], "save": local.get(first, overhead) - overhead}
        found |= {"dirty_rate": round(8 * changed * SECOND / lasted[first]), "restore": lasted.get("restore", 0)}
    elif "transfer" in sent:
        found |= {"size": sent["transfer"], "save": lasted.get("snapshot", 0)}
    if "transfer" in sent:
        found["restore"] = max(0, lasted.get("restore", 0) - switch)
    if first in sent and "transfer" in sent:  # pre-copy: only the last changes are saved while the program stands still
        found["finish"] += lasted.get("snapshot", 0)
    drain = lasted.get("drain", 0)
    found["stop"] = max(0, drain - round(load_strategy(account["strategy"]).drain_s * SECOND))
    return found


def problems(scenario: Scenario) -> Iterator[str]:
    """Yield the migrations of a scenario that have no model."""
    for each in scenario.migrations:
        model = virtual_model(kind := scenario.applications[each.app].kind)
        if not _is_predicted(each.strategy):
            only = ", ".join(filter(_is_predicted, entries("strategies")))
            yield f"migration '{each}': strategy '{each.strategy}' (only {only})"
        if each.policy is not None:
            yield f"migration '{each}': policy '{each.policy.kind}' (only 'at')"
        if model is not None and not model.moves:
            kinds = [name for name in entries("applications") if (it := virtual_model(name)) is not None and it.moves]
            yield f"migration '{each}': kind {kind} (only {', '.join(kinds)} move)"


def _is_predicted(strategy: str) -> bool:
    return load_strategy(strategy).predict is not Strategy.predict


def models(scenario: Scenario, profile: Mapping[str, Mapping[str, Any]], source: str = "") -> list[MigrationModel]:
    """Return each migration's parameters: stated ones first, then measured ones. profile: measured parameters and
    ``compression``, by application and strategy; source: its name. Errors: :class:`CellbedError` with the remedy."""
    found = []
    for number, each in enumerate(scenario.migrations):
        given = {key: getattr(each.model, key) for key in each.model.model_fields_set} if each.model else {}
        known = dict(profile.get(f"{each.app} {each.strategy}", {}))
        if (level := known.pop("compression", each.compression)) != each.compression and "size" not in given:
            raise CellbedError(
                f"{scenario.name}: migrations[{number}].compression: {source} has level {level}, and what another "
                "one sends is not known: write the same, or size in its [migrations.model]"
            )
        values = known | given
        needed: str = load_strategy(each.strategy).needs
        if needed not in values:
            measured_in = f" ({source} does not have it)" if source else ""
            raise CellbedError(
                f"{scenario.name}: migrations[{number}]: a prediction of '{each}' needs its {needed}: "
                f"write [migrations.model], or take --profile RUN of a real run with this migration{measured_in}"
            )
        found.append(MigrationModel.model_construct(None, **dict.fromkeys(MigrationModel.model_fields, 0) | values))
    return found


# ---- a migration


class _Transfers:
    """Transfers between two hosts under the settings of a migration."""

    def __init__(self, world: World, table: Migration, ends: tuple[Host, Host], control: str | None):
        self.sent_bytes = self.on_link_ns = 0
        self._world, self._table, self._control = world, table, control
        self._source, self._target = ends
        self._open: list[Socket] = []

    def accepted(self, connection: Socket) -> Callable[[bytes], None]:
        return lambda _: None

    def _connect(self) -> None:
        world, port = self._world, next(self._target.ports)
        world.listen(self._target, port, self, "")
        tcp = replace(world.tcp, control=self._control) if self._control is not None else None

        def connect() -> None:
            self._open = [world.connect(self._target.address, port, tcp) for _ in range(self._table.connections)]

        Program(world, self._source).call(connect)

    def prepare(self, beside_ns: int | None) -> PredictedSteps:
        """Open the connections of the next transfer. beside_ns: additional time, apart from the links. Errors:
        :class:`MigrationError`."""
        yield beside_ns or 0
        self._connect()
        began_ns = self._world.now_ns
        while not all(each.connected for each in self._open):
            self._check(began_ns)
            yield _STEP_NS

    def _check(self, since_ns: int) -> None:
        if self._world.now_ns > since_ns + STALL_S * SECOND:
            raise MigrationError(f"nothing has reached {self._target.name} for {STALL_S:g} s")

    def send(self, size: int, beside_ns: int | None) -> PredictedSteps:
        """Send `size` bytes. Errors: :class:`MigrationError` if nothing arrives for ``STALL_S``."""
        yield beside_ns or 0
        world, count = self._world, self._table.connections
        began_ns, before, left = world.now_ns, self.sent_bytes, size
        if not self._open:
            self._connect()
        connections, self._open = self._open, []

        def write(connection: Socket) -> None:
            nonlocal left
            room = 0 if connection.closed else connection.room(_PIECE)
            while room > 0 and left:
                piece = min(_PACED if self._table.rate else _PIECE, left)
                connection.pump(piece)
                left, room = left - piece, room - piece
                if self._table.rate:
                    pause_ns = 8 * piece * count * SECOND // self._table.rate
                    world.at(world.now_ns + pause_ns, lambda: write(connection))
                    return
            if left and not connection.closed:
                connection.want_room()

        for each in connections:
            each.on_event = each.on_room = partial(write, each)
            if each.connected:
                each.on_room()
        arrived, since_ns = 0, world.now_ns
        try:
            while arrived < size:
                yield _STEP_NS
                now = sum(each.peer.transferred()[1] for each in connections if each.peer is not None)
                if now != arrived:
                    arrived, since_ns = now, world.now_ns
                    self.sent_bytes = before + arrived
                self._check(since_ns)
        except BaseException:
            for each in connections:
                each.abort()
            raise
        self.on_link_ns += world.now_ns - began_ns


@dataclass
class _Move:
    """See :class:`~cellbed.testbed.migration.strategy.Predicted`. services: the moving services."""

    world: World
    table: Migration
    model: MigrationModel
    source: Host
    target: Host
    services: Collection[Service]
    channel: _Transfers
    account: Account
    facts: dict[str, Any] = field(default_factory=dict)
    is_stopped: bool = False

    @property
    def now_ns(self) -> int:
        return self.world.now_ns

    def phase(self, name: str) -> AbstractContextManager[dict[str, Any]]:
        return self.account.phase(name, self.channel)

    def prepare(self, beside_ns: int | None) -> PredictedSteps:
        return self.channel.prepare(beside_ns)

    def send(self, size: int, beside_ns: int | None) -> PredictedSteps:
        return self.channel.send(size, beside_ns)

    def pause(self) -> None:
        self.is_stopped = True
        for each in self.services:
            self.world.stop(each, drops=self.table.traits.moves_memory)

    def resume(self, *, undone: bool = False) -> None:
        """Resume the service. undone: resume at the source."""
        self.is_stopped = False
        for each in self.services:
            self.world.resume(each, self.target if self.table.traits.moves_memory and not undone else None)

    def switch(self) -> PredictedSteps:
        with self.phase("switch"):
            yield self.model.switch or 0
        for each in self.services:
            self.world.places[each] = self.target

    def drain(self, patience_s: float = 0.0) -> PredictedSteps:
        world = self.world
        with self.phase("drain"):
            deadline_ns = world.now_ns + round(patience_s * SECOND)
            while world.now_ns < deadline_ns and any(
                world.has_connections(each, self.source) for each in self.services
            ):
                yield _STEP_NS
            end_ns = world.now_ns + (self.model.stop or 0)
            while True:
                for each in self.services:
                    world.end_connections(each, self.source, idle=world.now_ns < end_ns)
                if world.now_ns >= end_ns:
                    break
                yield min(_STEP_NS, end_ns - world.now_ns)
        if self.is_stopped:
            self.resume()


class Migrations:
    """The migrations of a predicted run. accounts: accounts of all migrations so far, for ``run.json``."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        journal: Journal,
        models: Collection[MigrationModel],
        controls: Mapping[Law | str, str],
    ) -> None:
        """models: models of each migration of the scenario. controls: names of congestion controls in virtual time."""
        self._world, self._plan, self._journal, self._controls = world, plan, journal, controls
        self._models = models
        self._places: dict[str, str] = {}
        self._active: dict[str, tuple[_Move, PredictedSteps]] = {}
        self.accounts: list[dict[str, Any]] = []

    def schedule(self, t0_ns: int) -> None:
        """Schedule the migrations. t0_ns: start of the schedule."""
        for table, model in zip(self._plan.scenario.migrations, self._models, strict=True):
            assert table.at is not None  # problems() refuses policies
            self._world.at(t0_ns + table.at, lambda of=(table, model): self._begin(*of))  # type: ignore[misc]

    def close(self) -> None:
        """Undo unfinished migrations."""
        for app in list(self._active):
            self._end(app, MigrationError("cancelled"))

    def _begin(self, table: Migration, model: MigrationModel) -> None:
        world, app = self._world, table.app
        if app in self._active:  # wait for its end
            world.at(world.now_ns + _STEP_NS, lambda: self._begin(table, model))
            return
        home = self._plan.servers[app][0].name
        source = self._places.get(app, home)
        account = Account(table, len(self.accounts), source, self._journal, clock=lambda: world.now_ns)
        self.accounts.append(account.content)
        if source == table.to:
            account.end(MigrationError(f"'{app}' is on {source} already"))
            return
        ends = world.hosts[source], world.hosts[table.to]
        control = self._controls[table.congestion_control] if table.congestion_control is not None else None
        channel = _Transfers(world, table, ends, control)
        services = world.services(app, world.hosts[home])
        account.content["ports"] = sorted(port for _, port in services)
        move = _Move(world, table, model, *ends, services, channel, account)
        self._active[app] = move, load_strategy(table.strategy)().predict(move)
        self._continue(app)

    def _continue(self, app: str) -> None:
        if app not in self._active:
            return
        try:
            pause_ns = next(self._active[app][1])
        except StopIteration:
            self._end(app, None)
        except MigrationError as error:
            self._end(app, error)
        else:
            self._world.at(self._world.now_ns + pause_ns, lambda: self._continue(app))

    def _end(self, app: str, error: MigrationError | None) -> None:
        move, steps = self._active.pop(app)
        steps.close()
        if error is None:
            self._places[app] = move.target.name
        elif move.is_stopped:
            move.resume(undone=True)
        else:
            self._world.places |= dict.fromkeys(move.services, move.source)
        content = move.account.content
        content |= {"bytes": move.channel.sent_bytes, **({"facts": move.facts} if move.facts else {})}
        move.account.end(error)
