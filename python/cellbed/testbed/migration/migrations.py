"""The migrations of a run, on schedule or by command, in steps during the run."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cellbed.laws.law import Law, name_of
from cellbed.runformat.events import Journal
from cellbed.scenario.migrations import Migration, load_strategy, movable_misfits
from cellbed.support.errors import CellbedError
from cellbed.support.near_names import did_you_mean
from cellbed.testbed.machine.process import Process
from cellbed.testbed.migration.account import Account
from cellbed.testbed.migration.channel import TcpChannel
from cellbed.testbed.migration.own_service import OwnService
from cellbed.testbed.migration.state_sockets import StateSockets
from cellbed.testbed.migration.strategy import MigrationError, Move, Strategy
from cellbed.testbed.nodes.backend import Backend
from cellbed.testbed.nodes.copies import close_after, new_folder
from cellbed.testbed.plan import Plan
from cellbed.testbed.programs.balancing import Balancing, Redirection
from cellbed.testbed.programs.supervise import Program, Supervisor
from cellbed.testbed.programs.unmodified import FOREVER_NS, Command, UnmodifiedProgram
from cellbed.testbed.testbed import Testbed

STEP_NS = 2_000_000
"""Interval between two steps of an active migration."""


@dataclass
class _Active:
    """An active migration. is_asked: whether a command has begun it, which reports its failure. is_undone: whether it
    has failed and is being undone."""

    number: int
    table: Migration
    is_asked: bool
    account: Account
    steps: Generator[None, None, None] = field(init=False)
    is_undone: bool = False
    has_ended: bool = False


@dataclass
class Asked:
    """A migration by command. See :class:`~cellbed.testbed.programs.reach.Task`."""

    migrations: Migrations
    active: _Active

    def poll(self) -> dict[str, Any] | None:
        """Return the migration's account, once it has ended."""
        return self.active.account.content if self.active.has_ended else None

    def cancel(self) -> None:
        """Undo the migration."""
        self.migrations.cancel(self.active.table.app)


@dataclass(eq=False)
class Migrations:
    """The migrations of a run. Call :meth:`step` while it runs.

    servers: returns the programs of an application's server on a node. names: names of laws in the kernel. is_down:
    returns whether a fault has crashed a node. states: sockets through which programs exchange their state.
    accounts: accounts of all migrations so far, for ``run.json``. places: present nodes of moved applications.
    failures: failures of the scenario's migrations, as sentences.
    """

    plan: Plan
    bed: Testbed
    supervisor: Supervisor
    balancing: Balancing
    journal: Journal
    servers: Callable[[str, str], Sequence[Process | Command]]
    names: Mapping[Law | str, str]
    is_down: Callable[[str], bool]
    states: StateSockets
    accounts: list[dict[str, Any]] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    _due: list[tuple[int, Migration]] = field(default_factory=list)
    _active: dict[str, _Active] = field(default_factory=dict)
    _has_ended: bool = False

    def schedule(self, t0_ns: int) -> None:
        """Plan the migrations of a schedule that starts at monotonic time `t0_ns`."""
        timed = [(t0_ns + each.at, each) for each in self.plan.scenario.migrations if each.at is not None]
        self._due = sorted(timed, key=lambda due: due[0])
        self._set_alarm()

    def place(self, app: str) -> str:
        """Return the present node of an application's server."""
        return self.places.get(app) or self.plan.servers[app][0].name

    def is_moving(self, app: str) -> bool:
        """Return whether a migration of an application is active."""
        return app in self._active

    def begin(self, table: Migration, *, is_asked: bool = False, reason: str | None = None) -> _Active:
        """Begin a migration. is_asked: by a command. reason: the policy's reason for the migration."""
        number = len(self.accounts)
        source = self.place(table.app)
        account = Account(table, number, source, self.journal, reason)
        active = _Active(number, table, is_asked, account)
        self.accounts.append(account.content)
        if table.app in self._active:
            self._end(active, MigrationError(f"'{table.app}' is under way to another node"))
        elif source == table.to:
            self._end(active, MigrationError(f"'{table.app}' is on {source} already"))
        else:
            self._active[table.app] = active
            active.steps = self._steps(active)
        self._set_alarm()
        return active

    def asked(self, content: Mapping[str, str]) -> Asked:
        """Begin a migration for ``cellbed migrate``. content: keys of the table. Errors: :class:`MigrationError`."""
        scenario, app = self.plan.scenario, content["app"]
        if app not in scenario.applications:
            hint = did_you_mean(app, scenario.applications)
            raise MigrationError(f"no application is called '{app}': {hint}have {', '.join(scenario.applications)}")
        if content["to"] not in self.bed.nodes:
            hint = did_you_mean(content["to"], self.bed.nodes)
            raise MigrationError(
                f"no node is called '{content['to']}': {hint}nodes: {', '.join(list(self.bed.nodes)[:10])}"
            )
        usual = next((each.strategy for each in scenario.migrations if each.app == app), "redeploy")
        table = Migration.model_validate({"strategy": usual, **content, "at": "0 s"})
        for _, text in movable_misfits(table, scenario.nodes, scenario.applications[app], self.places.get(app)):
            raise MigrationError(text)
        return Asked(self, self.begin(table, is_asked=True))

    def step(self) -> None:
        """Begin due migrations, and continue active ones."""
        self.states.accept()
        # While a service is moving, its next migration waits.
        due = [each for each in self._due if each[0] <= time.monotonic_ns() and each[1].app not in self._active]
        for each in due:
            self._due.remove(each)
            self.begin(each[1])
        for active in list(self._active.values()):
            self._advance(active, functools.partial(next, active.steps))
        self._set_alarm()

    def take_ended(self) -> bool:
        """Return whether a migration has ended since the last call."""
        ended, self._has_ended = self._has_ended, False
        return ended

    def close(self) -> None:
        """Undo active migrations: their services stay in place."""
        for active in list(self._active.values()):
            self.cancel(active.table.app, "the run ended before")
            while active.table.app in self._active:
                time.sleep(STEP_NS / 1e9)
                self._advance(active, functools.partial(next, active.steps))
        self.states.close()

    def cancel(self, app: str, why: str = "cancelled") -> None:
        """Undo the active migration of an application."""
        if (active := self._active.get(app)) is not None and not active.is_undone:
            self._advance(active, lambda: active.steps.throw(MigrationError(why)))

    def _advance(self, active: _Active, step: Callable[[], None]) -> None:
        try:
            step()
        except StopIteration:  # also if cancelled: the source was already ending
            self._end(active, None)
        except (CellbedError, OSError) as error:
            self._end(active, error)

    def _set_alarm(self) -> None:
        if self._active:
            self.supervisor.alarms["migrations"] = time.monotonic_ns() + STEP_NS
        else:
            self.supervisor.alarms["migrations"] = self._due[0][0] if self._due else FOREVER_NS

    def _steps(self, active: _Active) -> Generator[None, None, None]:
        """Move a program; after a failure, undo all steps."""
        table, account = active.table, active.account.content
        strategy: Strategy = load_strategy(table.strategy)()
        move = self._prepare(active)
        switched: list[UnmodifiedProgram | OwnService] = []
        before = self.balancing.redirected.get(table.app)

        def redirect(established: bool) -> None:
            assert move.started is not None
            home = self.plan.servers[table.app][0]
            to = Redirection(
                source=(str(home.ipv4), str(home.ipv6)),
                target=move.target_addresses,
                tcp=move.ports,
                udp=move.udp_ports,
                established=established,
                is_behind=move.target.place is None,
            )
            with move.phase("switch"):
                self.balancing.redirect(table.app, None if table.to == home.name else to, forget=established)
            if isinstance(move.started, UnmodifiedProgram):
                self.supervisor.take(move.started, move.target)
            switched.append(move.started)

        move.redirect = redirect
        stack = contextlib.ExitStack()
        store = stack.enter_context(close_after(move.target.open_store()))
        try:
            here = stack.enter_context(close_after(os.open(self.bed.sockets.parent, os.O_RDONLY)))
            stack.enter_context(new_folder(here, move.folder.name))
            move.target_folder = stack.enter_context(new_folder(store, f".cellbed-migration-{active.number}"))
            for _ in strategy.move(move):
                self._check(move, bool(switched))
                yield
            if not move.has_left:
                move.program.crash("migration")
        except BaseException as error:
            if move.has_left and switched:
                move.program.crash("migration")
                self._arrive(move)
                return
            if move.started is not None:
                move.started.crash("migration")
                self._dismiss(move.started)
            if switched:
                self.balancing.redirect(table.app, before, forget=True)
            active.is_undone = True
            for _ in strategy.undo(move):
                if isinstance(error, Exception):
                    yield
                else:  # after Ctrl-C: wait for the end
                    time.sleep(STEP_NS / 1e9)
            raise
        finally:
            account |= {"bytes": move.channel.sent_bytes, **({"facts": move.facts} if move.facts else {})}
            move.channel.close()
            stack.close()
        self._arrive(move)

    def _arrive(self, move: Move) -> None:
        """Complete a migration: the program stays at the target."""
        self._dismiss(move.program)
        self.places[move.app] = move.target.name

    def _dismiss(self, program: UnmodifiedProgram | OwnService) -> None:
        if isinstance(program, UnmodifiedProgram):
            self.supervisor.dismiss(program)
            self.states.forget(program.name)

    def _prepare(self, active: _Active) -> Move:
        table, source = active.table, active.account.content["source"]
        target = self.bed.nodes[table.to]
        program = self._program_on(table.app, source)
        if program is None or program.process is None or not program.is_serving:
            raise MigrationError(f"'{table.app}' does not run on {source}")
        tcp, udp, _ = self.bed.nodes[source].served(program.process.pid)
        if not tcp + udp:
            raise MigrationError(f"'{table.app}' serves no port on {source}: clients could not follow it")
        active.account.content["ports"] = sorted({*tcp, *udp})
        here, there = self.plan.node(source), self.plan.node(table.to)
        control = table.congestion_control
        return Move(
            app=table.app,
            table=table,
            program=program,
            source=self.bed.nodes[source],
            target=target,
            source_addresses=(str(here.ipv4), str(here.ipv6)),
            target_addresses=(str(there.ipv4), str(there.ipv6)),
            ports=frozenset(tcp),
            udp_ports=frozenset(udp),
            folder=self.bed.sockets.parent / f"migration-{active.number}",
            target_folder=-1,
            channel=TcpChannel(
                self.bed.nodes[source],
                target,
                connections=table.connections,
                control=None if control is None else self.names.get(control, name_of(control)),
                level=table.compression,
                rate_bps=table.rate,
            ),
            states=self.states,
            account=active.account,
            neighbours=[
                each
                for each in self.supervisor.programs
                if isinstance(each, UnmodifiedProgram) and each is not program and each.node in (source, table.to)
            ],
            make_program=lambda: self._make(table.app, target),
            redirect=lambda _: None,
        )

    def _program_on(self, app: str, node: str) -> UnmodifiedProgram | OwnService | None:
        """Return the program of an application on a node, several own programs as one; ``None`` without any."""
        names = self.supervisor.names_of(app)
        found = [each for each in self.supervisor.programs if each.name in names and each.node == node]
        own = [each for each in found if isinstance(each, Program)]
        if own and len(own) == len(found):
            return OwnService(app, self.bed.nodes[node], self.supervisor, running=own)
        return next((each for each in found if isinstance(each, UnmodifiedProgram)), None)

    def _make(self, app: str, node: Backend) -> UnmodifiedProgram | OwnService:
        programs = self.servers(app, node.name)
        own = [each for each in programs if isinstance(each, Process)]
        if own and len(own) == len(programs):
            return OwnService(app, node, self.supervisor, waiting=own)
        return self.supervisor.make(next(each for each in programs if isinstance(each, Command)), node)

    def _check(self, move: Move, switched: bool) -> None:
        """Check the nodes and the program. Errors: :class:`MigrationError` if a node has crashed or the program has
        ended."""
        if move.has_left:
            return
        for node in (move.source.name, move.target.name):
            if self.is_down(node):
                raise MigrationError(f"{node} has crashed")
        if (serving := move.started if switched else move.program) is not None and not serving.is_serving:
            raise MigrationError(f"{serving.name} has ended")

    def _end(self, active: _Active, error: Exception | None) -> None:
        if self._active.get(active.table.app) is active:
            del self._active[active.table.app]
        active.account.end(error)
        self._has_ended = active.has_ended = True
        if error is not None and not active.is_asked:
            begin_s, table = active.account.content["begin_s"], active.table
            text = f"at {begin_s:.1f} s {table.strategy} of {table.app} to {table.to}"
            self.failures.append(f"{text} failed: {error}")
