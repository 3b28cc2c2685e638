"""The interface of a migration strategy, and the parts of the run that it may use."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from cellbed.scenario.migrations import Migration, MigrationModel, StrategyTraits
from cellbed.support.errors import CellbedError
from cellbed.testbed.migration.account import Account
from cellbed.testbed.migration.own_service import OwnService
from cellbed.testbed.migration.state_sockets import StateSockets
from cellbed.testbed.nodes.backend import Backend
from cellbed.testbed.programs.unmodified import UnmodifiedProgram
from cellbed_node.processes import Running

if TYPE_CHECKING:
    from cellbed.testbed.migration.channel import TcpChannel

Steps = Iterator[None]
"""Work in steps: a generator that yields whenever it waits, and after at most 10 ms of work. Between two steps, the run
does other work for at most 10 ms. Compose steps by ``yield from``."""


PredictedSteps = Generator[int]


class MigrationError(CellbedError):
    """A migration that failed: the service remains at its source."""

    exit_code = 1


@dataclass
class Move:
    """An active migration.

    app: name of the application. table: table of the scenario, with the settings. program: the program at the source.
    source, target: nodes.
    source_addresses, target_addresses: IPv4 and IPv6. ports, udp_ports: TCP and UDP ports that the program serves.
    folder: folder on this machine for files; target_folder: descriptor of a folder in the target's store
    (:meth:`Backend.open_store`). Both folders are removed afterwards.
    channel: channel to the target. states: sockets for the transfer of state. account: record of the phases.
    neighbours: other user programs on either node.
    make_program: creates the program at the target without starting it. redirect: like :meth:`switch`, but the run also
    supervises the new program.
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
    channel: TcpChannel
    states: StateSockets
    account: Account
    neighbours: Sequence[UnmodifiedProgram]
    make_program: Callable[[], UnmodifiedProgram | OwnService]
    redirect: Callable[[bool], None]
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts for the report besides the phases, such as the dirty rate: numbers and texts by name."""
    started: UnmodifiedProgram | OwnService | None = None
    """The program at the target, once it exists."""
    has_left: bool = False
    """True if the source has been asked to end. Later failures are failures of the program at the target."""

    def phase(self, name: str) -> AbstractContextManager[dict[str, Any]]:
        """Stamp a phase, such as ``snapshot``, ``round 2``, ``transfer`` or ``restore``, for the report.

        Entries that the body adds to the mapping, such as ``bytes``, are recorded when the phase ends.
        """
        return self.account.phase(name, self.channel)

    def start(self) -> Steps:
        """Start the program at the target and wait until it is ready, as defined in the scenario. Errors:
        :class:`ProgramError`."""
        started = self.started = self.make_program()
        started.start()
        while not started.is_ready:
            started.step(time.monotonic_ns())
            if started.ended:
                raise started.failure()
            yield

    def adopt(self, processes: Sequence[Running]) -> None:
        """Make processes that already run at the target, such as restored ones, the program there: they are then
        supervised, and ended with the run. A service of cellbed has several, in the order of its programs."""
        started = self.started = self.make_program()
        if isinstance(started, OwnService):
            assert isinstance(self.program, OwnService)
            started.adopt(self.program, processes)
        else:
            started.adopt(processes[0])

    def switch(self, *, established: bool) -> None:
        """Redirect connections to the service's address to the target, by translation in the clients' kernels.

        established: redirect established connections too; otherwise only new ones, so that the source can be drained. A
        program at the target sees the target's own address as the local address: restored sockets are bound to this
        address.
        """
        self.redirect(established)

    def leave(self, *, grace: bool = True) -> Steps:
        """End the program at the source, after :meth:`switch`. grace: by its stop signal, with its grace time; else at
        once.

        The program cannot serve again: later failures are failures of the program at the target.
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
    """A migration in virtual time. Its steps yield the time until the next step, ns.

    model: parameters independent of links. facts: as in :class:`Move`.
    """

    model: MigrationModel
    facts: dict[str, Any]

    @property
    def now_ns(self) -> int:
        """Return the virtual time."""

    def phase(self, name: str) -> AbstractContextManager[dict[str, Any]]:
        """Stamp a phase, as in :class:`Move`."""

    def prepare(self, beside_ns: int | None) -> PredictedSteps:
        """Open the connections of the next transfer. beside_ns: additional time independent of the links."""

    def send(self, size: int, beside_ns: int | None) -> PredictedSteps:
        """Send `size` bytes over the links. Errors: :class:`MigrationError`."""

    def pause(self) -> None:
        """Pause the service. Connections follow if the strategy moves the service's memory; otherwise they wait."""

    def resume(self) -> None:
        """Resume the service at the node of its connections."""

    def switch(self) -> PredictedSteps:
        """Redirect new connections to the target."""

    def drain(self, patience_s: float = 0.0) -> PredictedSteps:
        """Wait until the source has no connections, at most `patience_s`, and end the program there."""


class Strategy(StrategyTraits, ABC):
    """A way to move a program. A subclass has a file, and a line in ``[project.entry-points."cellbed.strategies"]``."""

    needs: ClassVar[str] = "size"
    """The key of :class:`~cellbed.scenario.migrations.MigrationModel` that predictions of this strategy need."""
    drain_s: ClassVar[float] = 0.0
    """Maximum time that connections to the source continue after new ones go to the target, seconds."""

    def predict(self, move: Predicted) -> PredictedSteps:
        """Move a service in virtual time. A strategy without this method cannot be predicted."""
        raise NotImplementedError

    @abstractmethod
    def move(self, move: Move) -> Steps:
        """Move the program; it serves at the target when the steps end.

        An error of any kind, raised by a step or thrown into it, means that the migration has failed; :meth:`undo`
        follows.
        """

    def undo(self, move: Move) -> Steps:
        """After a failure, let the program at the source serve again, if the strategy has stopped it.

        The caller undoes the program at the target, the redirection and the files of the move.
        """
        yield from ()
