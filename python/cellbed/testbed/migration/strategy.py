"""The interface of a strategy of migration, and what it may use of the run."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from cellbed.scenario.migrations import Migration, MigrationModel, StrategyTraits
from cellbed.support.errors import CellbedError
from cellbed.testbed.migration.account import Account, Sent
from cellbed.testbed.migration.own_service import OwnService
from cellbed.testbed.migration.state_sockets import StateSockets
from cellbed.testbed.nodes.backend import Backend
from cellbed.testbed.programs.unmodified import UnmodifiedProgram
from cellbed_node.processes import Running

Steps = Iterator[None]
"""Work in steps: a generator that yields whenever it waits, and after at most 10 ms of work. The run goes on between
two steps, and none is later than 10 ms. Compose them by ``yield from``."""


PredictedSteps = Generator[int]


class MigrationError(CellbedError):
    """A migration that failed: the service is still at its source."""

    exit_code = 1


class Channel(Sent, Protocol):
    """A way for bytes from source to target over the emulated links, under the settings of the migration.

    control: name of the congestion control for the kernel, unless it is the source's. rate_bps: maximum rate, if
    there is one.
    """

    control: str | None
    rate_bps: int | None

    def send(self, source: int, target: int, names: Sequence[str] | None = None) -> Steps:
        """Send a file in place of another one, or the files of a folder into another one: open descriptors.

        names: of files and folders in the folder, if not all are sent. Errors: :class:`MigrationError`, also where
        nothing has arrived for 10 s; the caller removes what has arrived.
        """

    def prepare(self, source: int, target: int) -> Steps:
        """Let the next :meth:`send`, of these files, begin without delay. Errors: :class:`MigrationError`."""

    def close(self) -> None:
        """End what still runs."""


@dataclass
class Move:
    """A migration that is under way.

    app: name of the application. table: of the scenario, with its settings. program: that moves, as it runs at the
    source. source, target: nodes.
    source_addresses, target_addresses: IPv4 and IPv6. ports, udp_ports: that the program serves, of
    TCP and UDP. folder: for files of this machine; target_folder: descriptor of one that :meth:`Backend.open_store` of
    the target has. Both are removed afterwards.
    channel: to the target. states: where programs exchange their state. account: of the migration.
    neighbours: other programs of users on either node.
    make_program: makes the program at the target, not started. redirect: as :meth:`switch`, which also lets the run
    supervise that program.
    """

    app: str
    table: Migration
    program: UnmodifiedProgram | OwnService
    source: Backend
    target: Backend
    source_addresses: tuple[str, str]
    target_addresses: tuple[str, str]
    ports: frozenset[int]
    udp_ports: frozenset[int]
    folder: Path
    target_folder: int
    channel: Channel
    states: StateSockets
    account: Account
    neighbours: Sequence[UnmodifiedProgram]
    make_program: Callable[[], UnmodifiedProgram | OwnService]
    redirect: Callable[[bool], None]
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts of the report beside the phases, such as the dirty rate: numbers and texts by name."""
    started: UnmodifiedProgram | OwnService | None = None
    """The program at the target, once there is one."""
    has_left: bool = False
    """Whether the source has been asked to end: a failure is then one of the program at the target."""

    def phase(self, name: str) -> AbstractContextManager[dict[str, Any]]:
        """Stamp a phase, such as ``snapshot``, ``round 2``, ``transfer`` or ``restore``, for the report.

        What the body adds to the mapping, such as ``bytes``, is noted with its end.
        """
        return self.account.phase(name, self.channel)

    def start(self) -> Steps:
        """Start the program at the target and wait until it is ready, as the scenario defines that. Errors:
        :class:`ProgramError`."""
        started = self.started = self.make_program()
        started.start()
        while not started.is_ready:
            started.step(time.monotonic_ns())
            if started.ended:
                raise started.failure()
            yield

    def adopt(self, process: Running) -> None:
        """Let a process that runs at the target already, such as a restored one, be the program there from now on:
        supervised, and ended with the run."""
        started = self.started = self.make_program()
        assert isinstance(started, UnmodifiedProgram)
        started.adopt(process)

    def switch(self, *, established: bool) -> None:
        """Let connections to the service's address go to the target from now on, as the clients' kernels translate it:
        established ones too, or only new ones, so that the source can be drained.

        A program at the target sees its connections at the target's own address: sockets of restored connections
        are bound to that one.
        """
        self.redirect(established)

    def leave(self, *, grace: bool = True) -> Steps:
        """End the program at the source, after :meth:`switch`: by its stop signal, with its grace time, or at once.

        It cannot serve again: a later failure is one of the program at the target.
        """
        self.has_left = True
        if not grace:
            self.program.crash("migration")
            return
        self.program.request_stop()
        while self.program.process is not None:
            self.program.step(time.monotonic_ns())
            yield


class Predicted(Protocol):
    """A migration in virtual time. Its steps yield the time until the next one, ns.

    model: what does not depend on links. facts: as of :class:`Move`.
    """

    model: MigrationModel
    facts: dict[str, Any]

    @property
    def now_ns(self) -> int:
        """Return the virtual time."""

    def phase(self, name: str) -> AbstractContextManager[dict[str, Any]]:
        """Stamp a phase, as of :class:`Move`."""

    def prepare(self, beside_ns: int | None) -> PredictedSteps:
        """Open the connections of the next transfer. beside_ns: time that this takes beside the links."""

    def send(self, size: int, beside_ns: int | None) -> PredictedSteps:
        """Send so many bytes over the links. Errors: :class:`MigrationError`."""

    def pause(self) -> None:
        """Pause the service. If the strategy moves its memory, its connections follow; else they wait."""

    def resume(self) -> None:
        """Resume the service where its connections are."""

    def switch(self) -> PredictedSteps:
        """Let new connections go to the target."""

    def drain(self, patience_s: float = 0.0) -> PredictedSteps:
        """Wait, at most so long, until the source has no connections, and end the program there."""


class Strategy(StrategyTraits, ABC):
    """A way to move a program. A subclass has a file, and a line in ``[project.entry-points."cellbed.strategies"]``."""

    needs: ClassVar[str] = "size"
    """The key of :class:`~cellbed.scenario.migrations.MigrationModel` without which it cannot be predicted."""
    drain_s: ClassVar[float] = 0.0
    """The longest time for which connections to the source go on, once new ones go to the target."""

    def predict(self, move: Predicted) -> PredictedSteps:
        """Move a service in virtual time. A strategy without this method is not predicted."""
        raise NotImplementedError

    @abstractmethod
    def move(self, move: Move) -> Steps:
        """Move the program; it serves at the target when the steps end.

        An error of any kind, thrown by a step or into it, means that the migration has failed; :meth:`undo` follows.
        """

    def undo(self, move: Move) -> Steps:
        """Let the program at the source serve again after a failure, if the strategy has stopped it.

        What was started at the target, the redirection and the files of the move are undone by the caller.
        """
        yield from ()
