"""Kinds of nodes: where programs run and under which limits. The emulator shapes the traffic outside of every node."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from cellbed.testbed.cgroups import Group, Sample
from cellbed.testbed.process import Place, spawn

Stream = int | IO[Any] | None


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


class Backend(Protocol):
    """A node of some kind. group: the control group on this machine that has its limits, if any are enforced."""

    name: str
    group: Group | None
    clock: Clock

    def start(self) -> None:
        """Make the node ready for programs, under its limits. Errors: :class:`CellbedError`."""

    def spawn(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = None,
        stderr: Stream = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program on the node; it ends with the calling process.

        Errors: ``OSError`` or ``subprocess.SubprocessError`` where that is not possible.
        """

    def sample(self) -> Sample | None:
        """The node's usage since its start; ``None`` if not counted."""

    def copy_in(self, source: Path, target: str) -> None:
        """Copy a file of this machine to the path `target` of the node. Errors: ``OSError``."""

    def copy_out(self, source: str, target: Path) -> None:
        """Copy a file of the node to this machine. Errors: ``OSError``."""

    def stop(self) -> None:
        """End what still runs on the node and remove the node."""


class NamespaceNode:
    """A node in namespaces of this machine, which share its file system. The emulator has made the namespaces."""

    def __init__(self, name: str, place: Place, group: Group | None = None, limits: Limits | None = None) -> None:
        self.name = name
        self.place = place
        self.group = group
        self.clock = Clock()  # this machine's
        self._limits = limits

    def start(self) -> None:
        """As of :class:`Backend`."""
        if self.group is not None and self._limits is not None:
            self.group.limit(self._limits.cpus, self._limits.memory_bytes)

    def spawn(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = None,
        stderr: Stream = None,
        keep_capabilities: bool = False,
    ) -> subprocess.Popen[bytes]:
        """As of :class:`Backend`. keep_capabilities: those of the node's user namespace."""
        return spawn(
            command,
            self.place,
            environment=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            keep_capabilities=keep_capabilities,
        )

    def sample(self) -> Sample | None:
        """As of :class:`Backend`."""
        return self.group.sample() if self.group is not None else None

    def copy_in(self, source: Path, target: str) -> None:
        """As of :class:`Backend`."""
        _copy(source, Path(target))

    def copy_out(self, source: str, target: Path) -> None:
        """As of :class:`Backend`."""
        _copy(Path(source), target)

    def stop(self) -> None:
        """As of :class:`Backend`."""
        if self.group is not None:
            self.group.remove()


def _copy(source: Path, target: Path) -> None:
    # The other name of a file that is there already would empty it.
    if not (target.exists() and Path(source).samefile(target)):
        shutil.copy2(source, target)
