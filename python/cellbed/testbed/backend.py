"""What each kind of node does: run programs under its limits. The emulator shapes the traffic outside of every node."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from cellbed.testbed.cgroups import Group, Sample
from cellbed.testbed.process import Place, Running
from cellbed.testbed.state import Record

Stream = int | IO[Any] | None
Strain = Literal["cpu", "memory"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a node may use. cpus: share of one CPU's time, 1.5 = one and a half. ``None`` leaves it open."""

    cpus: float | None
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Clock:
    """A node's monotonic clock: how far it is ahead of this machine's, and by how much that may be wrong."""

    offset_ns: int = 0
    uncertainty_ns: int = 0


@dataclass(frozen=True, slots=True)
class Setup:
    """What the testbed has for a node before it starts.

    place: the node's namespaces, which the emulator has made, the control group with its limits, and files such as
    ``/etc/hosts`` that programs see instead of the machine's. interface, addresses: of the node in its network
    namespace, addresses with their prefix length. behind: addresses of a machine behind the namespace, which are then
    those of the node, while `addresses` are the router's. sysctls: kernel settings of the namespace. group: the control
    group of `place`, if limits are enforced; the testbed has set `limits` on it. run: identifier of the run, in the
    environment (:data:`~cellbed.testbed.state.RUN_VARIABLE`) of each process of it. record: notes what outlives the
    processes of the run *before* it is made. folder: for the node's files, not made yet; it is noted, and removed after
    the run. disk_bytes: size of the file system that the node's programs write to, if it is limited.
    Without `record` a namespace node has no folder; other kinds need both.
    """

    name: str
    place: Place
    interface: str = ""
    addresses: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    group: Group | None = None
    limits: Limits | None = None
    run: str = ""
    record: Record | None = None
    folder: Path = field(default_factory=Path)
    disk_bytes: int | None = None


class LimitedGroup(Protocol):
    """The members of :class:`~cellbed.testbed.cgroups.Group` that are needed to prove limits, wherever they hold."""

    def contains(self, process: int) -> bool:
        """Whether a program that :meth:`Backend.spawn` started comes under the limits."""

    def limit(self, cpus: float | None, memory_bytes: int | None) -> None:
        """Set the limits."""

    def limits(self) -> tuple[float | None, int | None]:
        """The limits as the kernel states them."""

    def sample(self) -> Sample:
        """The usage at this moment."""


class Backend(Protocol):
    """A node of some kind, made from a :class:`Setup` and the table of its kind in the scenario.

    group: what enforces its limits, if they are enforced. place: where cellbed's own programs (load generators, broker,
    …) run for this node, with the files of this machine; ``None`` where they cannot.
    own_files: whether the files of the node are not those of this machine, so that only :meth:`spawn` starts a program
    with them.
    facts: what ``run.json`` records of the node beyond the scenario, such as the digest of its image.
    """

    name: str
    group: LimitedGroup | None
    clock: Clock
    place: Place | None
    facts: dict[str, Any]
    own_files: bool

    @staticmethod
    def obstacles(table: Any, *, running: bool) -> Iterable[tuple[str, str]]:
        """What prevents a node with this table from starting: (key of the table, what is wrong and what to do).

        Called before anything is started; it changes nothing. running: whether nodes are about to be started; else
        neither other machines nor the rights of this user are checked.
        """

    @staticmethod
    def missing(table: Any, command: Sequence[str], environment: Mapping[str, str], folder: str | None) -> str | None:
        """Why :meth:`spawn` cannot start a program: what is wrong and what to do. ``None`` where it can, or where that
        is not known before. Asked of nodes without obstacles; texts may have names in braces still to be filled in."""

    def start(self) -> None:
        """Begin to make the node ready for programs, without waiting. Errors: :class:`CellbedError`."""

    def wait_ready(self) -> None:
        """Wait until programs can be started. Errors: :class:`CellbedError` where the node does not become ready."""

    def spawn(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = None,
        stderr: Stream = None,
    ) -> Running:
        """Start a program with the files of the node; it ends with the calling process.

        command: empty for the node's own, where its kind has one. environment: variables beyond those of the node.
        folder: working directory on the node. Errors: ``OSError`` or ``subprocess.SubprocessError`` where that is not
        possible.
        """

    def sample(self) -> Sample | None:
        """The node's usage since its start; ``None`` if not counted. Called ten times a second: it must not wait."""

    def use(self, process: int) -> tuple[int, int]:
        """Processor time, ns, and bytes in memory of a program of the node and all that it has started
        (:func:`~cellbed.testbed.agent.use_of`). process: id of its :class:`Running`. Called once a second: it must not
        wait.
        """

    def proof_command(self, what: Strain, amount: int) -> list[str]:
        """Command for :meth:`spawn` that prints ``ready``, waits for a line, and then occupies `amount` processors or
        touches `amount` bytes of memory, to prove the limits."""

    def copy_in(self, source: Path, target: str) -> None:
        """Copy a file or folder of this machine to the path `target` of the node. Errors: ``OSError``."""

    def copy_out(self, source: str, target: Path) -> None:
        """Copy a file or folder of the node to the path `target` of this machine. Errors: ``OSError``."""

    def signal(self, number: int) -> None:
        """Send a signal to all programs of the node, and what they have started. Errors: :class:`CellbedError`."""

    def show_socket(self, path: str) -> str:
        """The path at which programs of the node reach the Unix socket at `path` of this machine, where what they write
        arrives. path: in the folder for sockets of the testbed. Errors: :class:`CellbedError`."""

    def fill_disk(self, full: bool) -> None:
        """Take all free space of the node's file system of limited size, or give it back. Errors: ``OSError``,
        :class:`CellbedError`."""

    def stop(self) -> None:
        """End what still runs on the node and remove the node. Called once, also where it did not become ready."""


def shell_strain(what: Strain, amount: int) -> list[str]:
    """:meth:`Backend.proof_command` for nodes with a shell and `dd`."""
    if what == "cpu":
        # The first shell starts the others: a fork of this process costs more.
        strain = "while :; do :; done & " * (amount - 1) + "while :; do :; done"
    else:
        # `dd` fills a buffer of the size of its blocks.
        strain = f"exec dd if=/dev/zero of=/dev/null bs={amount} count=1"
    return ["/bin/sh", "-c", f"echo ready; read line || exit; {strain}"]
