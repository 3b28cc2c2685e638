"""The base class of all kinds of nodes. A node runs programs under limits; the emulator shapes traffic outside it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from cellbed.testbed.machine.cgroups import Group, Sample
from cellbed.testbed.machine.interface import Interface
from cellbed.testbed.machine.peers import Admission
from cellbed.testbed.machine.process import Place, Streams, run
from cellbed.testbed.machine.state import RUN_VARIABLE, Record
from cellbed_node.processes import Running

if TYPE_CHECKING:
    from cellbed.testbed.nodes.remote import RemoteGroup

Strain = Literal["cpu", "memory"]
TCP_SETTINGS = "net.ipv4.tcp_"
"""Prefix of the kernel settings that belong to the kernel under a node's programs."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a node. cpus: CPU time in CPUs, 1.5 = one and a half. ``None`` for no limit."""

    cpus: float | None
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Clock:
    """A node's monotonic clock: offset from this machine's clock, positive if ahead, and its uncertainty."""

    offset_ns: int = 0
    uncertainty_ns: int = 0


@dataclass(frozen=True, slots=True)
class Setup:
    """The parts of a node that the testbed makes before the node starts.

    place: the node's namespaces, which the emulator has made, the control group with its limits, and files such as
    ``/etc/hosts`` that programs see instead of the machine's. view: further files, seen by programs of this machine,
    for `folder`. interface: network interface in the node's namespace; addresses: its addresses with their prefix
    lengths. behind: addresses of a machine behind the namespace; they are then the node's, and `addresses` are the
    router's. sysctls: kernel settings of the namespace. group: the control group of `place`, if limits are enforced;
    the testbed has set `limits` on it. run: identifier of the run, in the environment (``state.RUN_VARIABLE``) of each
    of its processes. record: notes resources that outlive the run's processes, *before* they are made. folder: folder
    for the node's files, not made yet; already noted, and removed after the run. disk_bytes: size of the file system to
    which the node's programs write, if it is limited. underlay: interface by which packets to a machine over SSH leave.
    environment: variables of the node's programs. Without `record`, a namespace node has no folder; other kinds need
    both.
    """

    name: str
    place: Place
    interface: str = ""
    addresses: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    group: Group | None = None
    limits: Limits | None = None
    view: tuple[tuple[str, str], ...] = ()
    run: str = ""
    record: Record | None = None
    folder: Path = field(default_factory=Path)
    disk_bytes: int | None = None
    underlay: Interface | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """The variables of each program of the node."""
        return {**self.environment, RUN_VARIABLE: self.run}


class Backend(ABC):
    """A node of some kind, made from a :class:`Setup` and its kind's table in the scenario.

    The defaults suit a node on this machine that is ready at once and shares this machine's files. A kind overrides the
    rest.

    group: the control group with the limits, if enforced. place: where cellbed's own programs (load generators, broker,
    …) run for this node, with the files of this machine; ``None`` if they cannot run.
    own_files: whether the node's files differ from this machine's, so that only :meth:`spawn` starts programs with the
    node's files.
    first_process: first process of the node's own process namespace, by its id on this machine; ``None`` without one.
    facts: recorded in ``run.json`` beyond the scenario, such as the digest of the node's image.
    """

    group: Group | RemoteGroup | None
    place: Place | None
    own_files: bool
    first_process: int | None = None

    def __init__(self, setup: Setup, table: Any = None) -> None:
        self.setup, self.table = setup, table
        self.name, self.group = setup.name, setup.group
        self.own_files = table is not None and not table.shares_files
        self.place = replace(setup.place, binds=(*setup.place.binds, *setup.view))
        self.clock = Clock()
        self.facts: dict[str, Any] = {}

    @staticmethod
    def obstacles(table: Any, *, running: bool) -> Iterable[tuple[str, str]]:
        """Return the reasons that prevent a node with this table from starting.

        Called before anything is started; changes nothing.

        Args:
            table: The node's table in the scenario.
            running: Whether nodes are about to be started; otherwise, neither other machines nor the rights of this
            user are checked.

        Returns:
            Keys of the table, each with an error that names the remedy.
        """
        return ()

    @staticmethod
    def missing(table: Any, command: Sequence[str], environment: Mapping[str, str], folder: str | None) -> str | None:
        """Return why :meth:`spawn` cannot start a program.

        Called for nodes without obstacles; texts may contain names in braces that are filled in later.

        Args:
            table: The node's table in the scenario.
            command: As in :meth:`spawn`, like `environment` and `folder`.
            environment: Variables added to the node's.
            folder: Working directory on the node.

        Returns:
            The reason with the remedy; ``None`` if it can, or if this is unknown before the node has started.
        """
        return None

    def start(self) -> None:  # noqa: B027
        """Begin to make the node ready for programs, without waiting.

        Raises:
            CellbedError: The node cannot start here.
        """

    def wait_ready(self) -> None:  # noqa: B027
        """Wait until programs can be started.

        Raises:
            CellbedError: The node does not become ready.
        """

    @abstractmethod
    def spawn(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        cgroups: Sequence[str] = (),
        **streams: Unpack[Streams],
    ) -> Running:
        """Start a program with the files of the node; it ends with the calling process.

        Args:
            command: Empty for the node's own command, if its kind has one.
            environment: Variables added to the node's.
            folder: Working directory on the node.
            cgroups: As in :class:`Place`, in addition to the node's; none if the node has its own kernel.
            streams: Standard streams.

        Returns:
            The program, or the process that represents it on this machine.

        Raises:
            OSError: The program cannot be started; also ``subprocess.SubprocessError``.
        """

    def sample(self) -> Sample | None:
        """Return the node's usage since its start; ``None`` if not counted.

        Called ten times a second: must not wait.
        """
        return self.group.sample() if self.group is not None else None

    def memory_kills(self) -> int:
        """Return the number of processes killed at the node's memory limit so far."""
        sample = self.sample()
        return (sample.oom_kills or 0) if sample is not None else 0

    def describe_end(self, status: int | None, memory_kills: int) -> str:
        """Return how a program of the node ended, as a clause.

        Args:
            status: The program's exit status.
            memory_kills: The value of :meth:`memory_kills` when the program started.
        """
        how = f"was killed by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
        return f"{how} ({self.name} ran out of memory)" if status and self.memory_kills() > memory_kills else how

    def use(self, process: int) -> tuple[int, int]:
        """Return the usage of a program of the node and of all processes that it has started.

        Called once a second: must not wait.

        Args:
            process: The id of the program's :class:`Running`.

        Returns:
            Processor time, ns, and bytes in memory.
        """
        from cellbed_node.agent import use_of  # not needed by shells

        return use_of(process)

    def served(self, process: int) -> tuple[list[int], list[int], int]:
        """Return the ports that a program of the node and its processes serve; waits for the answer of another machine.

        Args:
            process: The id of the program's :class:`Running`.

        Returns:
            The TCP ports, the UDP ports, and the number of connections to the TCP ports.

        Raises:
            CellbedError: Another machine does not answer.
        """
        from cellbed_node.agent import find_served

        return find_served(process)

    def proof_command(self, what: Strain, amount: int) -> list[str]:
        """Return a command for :meth:`spawn` that loads the node beyond a limit, to prove the limit.

        The program prints ``ready``, waits for a line, and then begins. The default needs a shell and `dd` on the node.

        Args:
            what: The limit to prove.
            amount: Processors to occupy, or bytes of memory to touch.
        """
        if what == "cpu":
            # The first shell starts the others: forking this process would cost more.
            strain = "while :; do :; done & " * (amount - 1) + "while :; do :; done"
        else:
            # `dd` fills a buffer of its block size.
            strain = f"exec dd if=/dev/zero of=/dev/null bs={amount} count=1"
        return ["/bin/sh", "-c", f"echo ready; read line || exit; {strain}"]

    @abstractmethod
    def copy_in(self, source: Path, target: str) -> None:
        """Copy a file or folder to the node.

        Args:
            source: Path of this machine.
            target: Path of the node.

        Raises:
            OSError: It cannot be copied whole.
        """

    @abstractmethod
    def copy_out(self, source: str, target: Path) -> None:
        """Copy a file or folder of the node.

        Args:
            source: Path of the node.
            target: Path of this machine.

        Raises:
            OSError: It cannot be copied whole.
        """

    @abstractmethod
    def read(self, source: str, most: int) -> bytes:
        """Return the content of a regular file of the node, up to `most` bytes.

        Raises:
            OSError: It cannot be read.
        """

    def output(self, command: Sequence[str]) -> bytes:
        """Return the output of a short command that needs no file of the node.

        Raises:
            OSError: It cannot be run; also :class:`CellbedError`.
        """
        return run(command, place=self.place).encode()

    def open_folder(self, path: str, *, make: bool = False) -> int:
        """Return a descriptor of a folder, as the node's programs see it.

        Args:
            path: Path on the node.
            make: Whether to make a missing folder and its missing parents.

        Raises:
            OSError: It cannot be opened; always if the node is another machine.
        """
        raise OSError(f"{self.name} is another machine")

    def open_store(self) -> int:
        """Return a descriptor of a folder of this machine for files that move to the node.

        It is on the node's disk if that is limited. Programs of nodes with separate files cannot reach it.

        Raises:
            OSError: It cannot be made or opened.
        """
        self.setup.folder.mkdir(mode=0o700, exist_ok=True)
        return os.open(self.setup.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)

    def inside(self, path: str) -> str:
        """Return a path of the node from the root of its files, as its programs see them; relative paths begin in their
        working folder."""
        return path

    @abstractmethod
    def signal(self, number: int) -> None:
        """Send a signal to all programs of the node, and to all processes that they have started.

        Raises:
            CellbedError: The node does not answer.
        """

    def show_socket(self, path: str) -> str:
        """Return the path at which programs of the node reach a Unix socket of this machine.

        Args:
            path: Path in the testbed's folder for sockets.

        Raises:
            CellbedError: The node does not answer.
        """
        return path

    @property
    def admission(self) -> Admission:
        """The processes that may connect to sockets of the node's programs: the programs, or the node's hub."""
        return Admission([self.place.network_namespace] if self.place is not None else [])

    def show_file(self, path: str) -> str:
        """Return the path at which programs of the node find a file of this machine.

        Args:
            path: Path in the testbed's folder for sockets.

        Raises:
            OSError: It cannot be copied there; also :class:`CellbedError`.
        """
        return path

    @abstractmethod
    def fill_disk(self, full: bool) -> None:
        """Occupy all free space of the node's file system of limited size, or release it.

        Raises:
            OSError: The space cannot be occupied or released; also :class:`CellbedError`.
        """

    def stop(self) -> None:
        """End the remaining programs and remove the node. Called once, even if the node did not become ready."""
        if self.setup.group is not None:
            self.setup.group.remove()
