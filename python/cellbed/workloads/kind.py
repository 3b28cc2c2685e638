"""What a kind of workload declares."""

from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Protocol

from cellbed.testbed.process import Process
from cellbed.workloads.cache import Note, silent


class Node(Protocol):
    """What a workload needs to know of a node; cpus: share of one CPU's time."""

    @property
    def name(self) -> str: ...
    @property
    def node_class(self) -> str: ...
    @property
    def cpus(self) -> float: ...
    @property
    def ipv4(self) -> IPv4Address: ...


class Workload(Protocol):
    """A kind of workload; a module with these functions is one."""

    def prepare(self, spec: Any, cache: Path, note: Note = silent) -> None:
        """Build what the workload needs, once, and check what the user gave. Raises CellbedError."""

    def processes(
        self, spec: Any, nodes: Sequence[Node], raw: Path, *, cache: Path, duration_ns: int, seed: int
    ) -> list[Process]:
        """The programs of one run; their configurations are written into ``raw``. Call prepare before."""

    def notes(self, spec: Any) -> list[str]:
        """Sentences that a report of this workload must carry."""
