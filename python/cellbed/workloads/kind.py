"""The interface of a kind of workload: its programs on the nodes of a run, and their description."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from cellbed.runformat.description import Description
from cellbed.runformat.records import REQUESTS
from cellbed.scenario.templates import CERTIFICATE
from cellbed.testbed.machine.process import Process
from cellbed.testbed.programs.unmodified import Command
from cellbed.workloads.cache import Note, silent

if TYPE_CHECKING:  # a scenario's model imports the kinds' tables, which may be here
    from cellbed.testbed.plan import Node


@dataclass(frozen=True, slots=True)
class Deployment:
    """An application on the nodes of a run.

    name: of the application; table: of the scenario; number: counts the applications of the run from 0. clients,
    servers: the nodes of its programs. start_ns, stop_ns: of its load, since the start of the workload. addresses: of
    the first server of each application that has one. shared: address of all servers, where they have one.
    authorities: file on this machine with the certificate of the run's authority; certificates: by node, the values of
    names in texts that stand for the servers' certificate. scratch: folder that is removed with the run, also after a
    ``kill -9``; a virtual run has none.
    """

    name: str
    table: Any
    number: int
    clients: "Sequence[Node]"
    servers: "Sequence[Node]"
    start_ns: int
    stop_ns: int
    addresses: Mapping[str, str] = field(default_factory=dict)
    shared: IPv4Address | None = None
    authorities: str | None = None
    certificates: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    scratch: Path = Path()

    def address(self, server: "Node") -> str:
        """Return the address at which clients reach a server."""
        return str(self.shared or server.ipv4)

    def listening(self, server: "Node") -> str:
        """Return the address at which a server listens: the one that servers share at the sites of cells, else its
        own."""
        return str(self.shared if self.shared and self.table.edge_policy == "nearest" else server.ipv4)

    def file(self, raw: Path, node: "Node", name: str) -> Path:
        """Return the path of a file of this application and a node."""
        return (raw / f"{self.name}.{node.name}.{name}").absolute()

    def program(
        self, name: str, module: str, node: "Node", raw: Path, settings: Mapping[str, Any], reads: Sequence[str] = ()
    ) -> Process:
        """Return a program of cellbed's own on a node. settings: its configuration, which is written into ``raw``,
        where the program writes files, too. reads: paths in it that the program reads."""
        file = self.file(raw, node, f"{name}.json")
        file.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        return Process(f"{self.name}.{node.name}.{name}", node.name, module, file, tuple(reads))

    def load_generators(
        self, name: str, module: str, raw: Path, seed: int, configure: "Configure", reads: Sequence[str] = ()
    ) -> Iterator[Process]:
        """Yield the load generator of each client. reads: keys of its configuration with paths that it reads."""
        for index, node in enumerate(self.clients):
            settings = configure(self, raw, index, seed)
            paths = [settings[key] for key in reads if settings.get(key)]
            made = self.program(name, module, node, raw, settings, paths)
            yield replace(made, stage=1, load=True, forked=True)  # there are many of them

    def load(self, raw: Path, index: int, seed: int) -> dict[str, Any]:
        """Return the configuration of the load generator of client `index` that all kinds share
        (:class:`cellbed_node.generator.Settings`)."""
        node, arrivals = self.clients[index], self.table.arrivals
        return {
            "endpoint": node.name,
            "record": str(self.file(raw, node, REQUESTS)),
            "arrivals": arrivals if isinstance(arrivals, str) else arrivals.stage(),
            "rate": self.table.rate,
            # Endpoints that send periodically take turns instead of all sending at the same instant.
            "phase": index / len(self.clients),
            "duration_ns": self.stop_ns - self.start_ns,
            "timeout_ns": self.table.timeout,
            "seed": seed,
            "policy": self.table.policy and self.table.policy.stage(),
        }

    def values(self, node: "Node", client: "Node | None", server: "Node | None", seed: int) -> dict[str, str]:
        """Return the values of names in a text of the scenario (:mod:`cellbed.scenario.templates`) on `node`, one of
        the pair of client and server."""
        return {
            **{f"{name}.address": address for name, address in self.addresses.items()},
            "server.address": self.address(server) if server is not None else "",
            "client.address": str(client.ipv4) if client is not None else "",
            "node.name": node.name,
            "node.address": str(node.ipv4),
            "seed": str(seed),
            "duration_s": f"{(self.stop_ns - self.start_ns) / 1e9:g}",
            **dict.fromkeys(CERTIFICATE, ""),
            **self.certificates.get(node.name, {}),
        }


Configure = Callable[[Deployment, Path, int, int], dict[str, Any]]
"""Returns the configuration of a client: of (deployment, folder of the programs' files, its index, seed)."""


class Workload(Protocol):
    """A kind of workload; a module with these functions is one."""

    def processes(self, deployment: Deployment, raw: Path, *, cache: Path, seed: int) -> Sequence[Process | Command]:
        """Return the programs of one run; their configurations are written into ``raw``. Call ``prepare`` before.

        Programs of the user are commands, which run as they are.
        """

    def describe(self, table: Mapping[str, Any]) -> Description:
        """Return the description for measuring and reporting. table: of ``scenario.resolved.json``, also of an earlier
        version."""


@runtime_checkable
class Prepared(Protocol):
    """A kind whose programs need files that are made before."""

    def prepare(self, table: Any, cache: Path, note: Note = silent) -> None:
        """Build what the workload needs, once, and check what the user gave. Raises CellbedError."""


@runtime_checkable
class WithObjects(Protocol):
    """A kind whose requests consist of others, such as loads of pages: they have a record and a section of their
    own."""

    def describe_objects(self, application: Description, table: Mapping[str, Any]) -> Description:
        """Return their description. application: the requests' description; table: as of :meth:`Workload.describe`."""
