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

if TYPE_CHECKING:  # no import cycle: a scenario's model imports the kinds' tables
    from cellbed.testbed.plan import Node


@dataclass(frozen=True, slots=True)
class Deployment:
    """An application on the nodes of a run.

    name: name of the application; table: table of the scenario; number: index among the applications of the run, from
    0. clients, servers: nodes of its programs. start_ns, stop_ns: begin and end of its load, since the start of the
    workload. addresses: addresses of the first server of each application with servers. shared: common address of all
    servers, if there is one. authorities: file on this machine with the certificate of the run's authority;
    certificates: by node, values of the names in texts for the servers' certificate. scratch: folder that is removed
    with the run, also after a ``kill -9``; a virtual run has none.
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
        """Return the address at which a server listens: the shared address for servers at the sites of cells, else its
        own."""
        return str(self.shared if self.shared and self.table.edge_policy == "nearest" else server.ipv4)

    def file(self, raw: Path, node: "Node", name: str) -> Path:
        """Return the path of a file of this application and a node."""
        return (raw / f"{self.name}.{node.name}.{name}").absolute()

    def program(
        self, name: str, module: str, node: "Node", raw: Path, settings: Mapping[str, Any], reads: Sequence[str] = ()
    ) -> Process:
        """Return a cellbed program on a node. settings: its configuration, which is written into ``raw``, as are files
        of the program. reads: paths in the configuration that the program reads."""
        file = self.file(raw, node, f"{name}.json")
        file.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        return Process(f"{self.name}.{node.name}.{name}", node.name, module, file, tuple(reads))

    def load_generators(
        self, name: str, module: str, raw: Path, seed: int, configure: "Configure", reads: Sequence[str] = ()
    ) -> Iterator[Process]:
        """Yield the load generator of each client. reads: configuration keys with paths of files that it reads."""
        for index, node in enumerate(self.clients):
            settings = configure(self, raw, index, seed)
            paths = [settings[key] for key in reads if settings.get(key)]
            made = self.program(name, module, node, raw, settings, paths)
            yield replace(made, stage=1, load=True, forked=True)  # forked, because there are many

    def load(self, raw: Path, index: int, seed: int) -> dict[str, Any]:
        """Return the common part of the load generator configuration of client `index`
        (:class:`cellbed_node.generator.Settings`)."""
        node, arrivals = self.clients[index], self.table.arrivals
        return {
            "endpoint": node.name,
            "record": str(self.file(raw, node, REQUESTS)),
            "arrivals": arrivals if isinstance(arrivals, str) else arrivals.stage(),
            "rate": self.table.rate,
            # Periodic endpoints take turns instead of all sending at the same instant.
            "phase": index / len(self.clients),
            "duration_ns": self.stop_ns - self.start_ns,
            "timeout_ns": self.table.timeout,
            "seed": seed,
            "policy": self.table.policy and self.table.policy.stage(),
        }

    def values(self, node: "Node", client: "Node | None", server: "Node | None", seed: int) -> dict[str, str]:
        """Return the values of names in a text of the scenario (:mod:`cellbed.scenario.templates`) on `node`, which is
        the client or the server of the pair."""
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
"""Returns the configuration of a client. Arguments: deployment, folder of the programs' files, client index, seed."""


class Workload(Protocol):
    """A kind of workload: any object, such as a module, with these functions."""

    def processes(self, deployment: Deployment, raw: Path, *, cache: Path, seed: int) -> Sequence[Process | Command]:
        """Return the programs of one run; their configurations are written into ``raw``. Call ``prepare`` before.

        The user's programs are commands, which run unmodified.
        """

    def describe(self, table: Mapping[str, Any]) -> Description:
        """Return the description for measuring and reporting. table: from ``scenario.resolved.json``, possibly of an
        earlier version."""


@runtime_checkable
class Prepared(Protocol):
    """A kind whose programs need files that are made beforehand."""

    def prepare(self, table: Any, cache: Path, note: Note = silent) -> None:
        """Build the files that the workload needs, once, and check the user's files. Raises CellbedError."""


@runtime_checkable
class WithObjects(Protocol):
    """A kind whose requests consist of further requests, such as page loads. These requests have a separate record and
    section."""

    def describe_objects(self, application: Description, table: Mapping[str, Any]) -> Description:
        """Return the description of the objects. application: application of the requests; table: see
        :meth:`Workload.describe`."""
