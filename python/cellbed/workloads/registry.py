"""The kinds of workload, and what each offers to whoever runs it."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Protocol

from cellbed.errors import CellbedError
from cellbed.workloads.cache import Note, silent

BROKER, SERVER, LOAD = 0, 1, 2
"""Stages in which processes start. Servers and loads need a broker that is ready; a load begins to send only when it is
told to, when all are ready."""

_MODULES = {"image-classification": "cellbed.workloads.image_classification"}


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


@dataclass(frozen=True, slots=True)
class Process:
    """A program to run on a node.

    It writes JSON lines on standard output, ``{"event": "ready"}`` first, and stops when its standard input ends. One
    of stage LOAD then reads ``{"t0_ns": …, "end_ns": …, "drain_ns": …}`` and ends by itself, with
    ``{"event": "done", …}`` as its last line.
    program: its command up to the arguments of this process. env: variables on top of the environment.
    forked: whether it can be a fork of a process of the same program (:mod:`cellbed.testbed.fork_server`).
    """

    name: str
    node: str
    program: list[str]
    arguments: list[str]
    stage: int
    env: dict[str, str] = field(default_factory=dict)
    forked: bool = False

    @property
    def argv(self) -> list[str]:
        """The whole command."""
        return [*self.program, *self.arguments]


class Workload(Protocol):
    """A kind of workload; a module with these functions is one."""

    def prepare(self, spec: Any, cache: Path, note: Note = silent) -> None:
        """Build what the workload needs, once, and check what the user gave. Raises CellbedError."""

    def processes(
        self, spec: Any, nodes: Sequence[Node], raw: Path, *, cache: Path, duration_ns: int, seed: int
    ) -> list[Process]:
        """The programs of one run, by stage; their configurations are written into ``raw``. Call prepare before."""

    def notes(self, spec: Any) -> list[str]:
        """Sentences that a report of this workload must carry."""


def workload(kind: str) -> Workload:
    """The workload of this kind. Raises CellbedError for an unknown one."""
    module = _MODULES.get(kind)
    if module is None:
        raise CellbedError(f"workload.kind: there is no workload '{kind}'; there are: {', '.join(_MODULES)}")
    loaded: Workload = importlib.import_module(module)
    return loaded
