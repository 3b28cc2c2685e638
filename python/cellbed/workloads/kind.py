"""What a kind of workload declares: its programs, the spans of its requests, its measures, and cautions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Literal, Protocol

from cellbed.testbed.process import Process
from cellbed.testbed.unmodified import Command
from cellbed.workloads.cache import Note, silent

Place = Literal["endpoint", "uplink", "remote", "downlink"]
PLACES: dict[Place, str] = {
    "endpoint": "endpoint",
    "uplink": "uplink",
    "remote": "remote node",
    "downlink": "downlink",
}
"""Where time passes, in order, with its name in reports."""
ColumnType = Literal["integer", "text"]


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a request's latency: the time between two stamps, or a duration that is measured as such.

    name: its column in ``requests.parquet`` is ``part_<name>``, in seconds. place: where the time passes; a client's
    programs stamp at the endpoint, a server's at the remote node, the emulator on the links. label: of reports;
    short: the same where there is little room; meaning: from what to what. begin, end: stamps, which are columns
    without their ``_ns``; with `end` empty, `begin` is a duration.
    """

    name: str
    place: Place
    label: str
    short: str
    meaning: str
    begin: str
    end: str = ""

    @property
    def column(self) -> str:
        """The span's column in ``requests.parquet``."""
        return f"part_{self.name}"


# fmt: off
HANDSHAKE = (
    Span("connect_uplink", "uplink", "Handshake", "handshake", "SYN enters the uplink → leaves it, repeated if lost",
         "connect_up"),
    Span("connect_remote", "remote", "Handshake", "handshake", "SYN left the network → the answer enters the downlink",
         "connect_remote"),
    Span("connect_downlink", "downlink", "Handshake", "handshake", "the answer enters the downlink → leaves it",
         "connect_down"),
    Span("connect", "endpoint", "Opening a connection", "connect",
         "begins to open → request handed to TCP, without the handshake's way", "connect_rest"),
)
"""From the client's stamp ``opening`` to ``sent``: of a request for which a connection is opened; else there is no
handshake."""

UPLINK = (
    Span("endpoint_stack", "endpoint", "Endpoint stack", "stack", "publish called → TCP takes the first byte",
         "handed"),
    Span("uplink_wait", "uplink", "Waiting to send", "waiting",
         "TCP's send buffer or congestion window is full of earlier bytes, which the uplink has not carried", "held"),
    Span("uplink_transport", "uplink", "Transport", "transport",
         "first byte → completing packet enters the uplink, without its retransmission", "uplink_sending"),
    Span("uplink_retransmission", "uplink", "Retransmission", "resent",
         "a packet that was lost enters → the completing packet enters, which repeats it", "uplink_resent"),
    Span("uplink_queue", "uplink", "Queue and service", "queue", "completing packet in the bottleneck queues",
         "uplink_queued"),
    Span("uplink_delay", "uplink", "Base and core delay", "delay", "completing packet in the delay stages",
         "uplink_delayed"),
    Span("receive_window", "remote", "Receive window", "window", "the receiver's window is full: TCP may not send",
         "window"),
)
"""A request over TCP from the stamp ``sent`` of its client to ``uplink_left``."""

DOWNLINK = (
    Span("downlink_transport", "downlink", "Transport", "transport",
         "first byte → completing packet of the reply, without its retransmission", "downlink_sending"),
    Span("downlink_retransmission", "downlink", "Retransmission", "resent",
         "a packet that was lost enters → the completing packet enters, which repeats it", "downlink_resent"),
    Span("downlink_queue", "downlink", "Queue and service", "queue", "completing packet in the bottleneck queues",
         "downlink_queued"),
    Span("downlink_delay", "downlink", "Base and core delay", "delay", "completing packet in the delay stages",
         "downlink_delayed"),
)
"""A reply from ``downlink_entered`` to ``downlink_left``."""

SERVER = Span("server", "remote", "Server", "server",
              "request left the network → first byte of the reply enters the downlink, or waits behind other replies",
              "uplink_left", "downlink_ready")
"""A server of which nothing is known, or what its service reports (docs/reference/spans.md)."""
# fmt: on


SERVICE = "service_"
"""Begins the names of parts that services report."""


def divided(spans: Sequence[Span], services: Sequence[str]) -> tuple[Span, ...]:
    """`spans` with the time of :data:`SERVER` divided among the spans that its service reports, by their names."""
    if not services or SERVER not in spans:
        return tuple(spans)
    at = list(spans).index(SERVER)
    reported = [
        Span(
            f"{SERVICE}{name}",
            "remote",
            f"Server: {name}",
            name,
            f"{name}, as the service reports it",
            f"{SERVICE}{name}",
        )
        for name in services
    ]
    rest = replace(
        SERVER,
        label="Server, rest",
        meaning=f"of this, what no span covers: {SERVER.meaning}",
        begin="service_rest",
        end="",
    )
    return (*spans[:at], *reported, rest, *spans[at + 1 :])


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of requests that is summarised: its median and range are reported. unit: ``"B"`` or ``"s"``."""

    column: str
    label: str
    unit: Literal["B", "s"]


@dataclass(frozen=True, slots=True)
class Caution:
    """A sentence that a report must carry. detail: more of it, for the page; where there is some, it is emphasised."""

    text: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Description:
    """What measuring and reporting know of an application; ``run.json`` has it, so that they need not know the kind.

    title: of the application in reports. spans: in the order in which a request spends its time, from its intended
    time to its reply; none for an application without requests. client_columns, server_columns: what the records of
    client (``<name>.<node>.requests.jsonl``) and server (``<name>.<node>.service.jsonl``) have beyond the columns of
    every kind (:mod:`cellbed.measure.requests`), with their types; columns in ``_ns`` are stamps of that node's clock,
    and the first of the server is when the request reached it. same: columns in which requests of paired runs agree.
    name: of the application in its scenario. clients, servers: names of its nodes; client i belongs to server i mod the
    number of servers, or with the policy nearest to that of its cell. start_ns, stop_ns: when its load starts and ends,
    since the start of the schedule (stop ``None``: with the schedule). ports: at which its servers listen, where known.
    services: names of the spans that its services have reported (:mod:`cellbed.testbed.spans`).
    """

    kind: str
    title: str
    spans: tuple[Span, ...]
    client_columns: dict[str, ColumnType]
    server_columns: dict[str, ColumnType]
    same: tuple[str, ...] = ()
    measures: tuple[Measure, ...] = ()
    cautions: tuple[Caution, ...] = ()
    name: str = "workload"
    clients: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    edge_policy: str = "fixed"
    start_ns: int = 0
    stop_ns: int | None = None
    services: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()

    def servers_of(self, client: int) -> tuple[str, ...]:
        """The names of the servers of a client, by its number."""
        return (
            self.servers
            if self.edge_policy == "nearest" or not self.servers
            else (self.servers[client % len(self.servers)],)
        )


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
class Deployment:
    """An application on the nodes of a run.

    name: of the application; table: of the scenario; number: counts the applications of the run from 0. clients,
    servers: the nodes of its programs. start_ns, stop_ns: of its load, since the start of the workload. addresses: of
    the first server of each application that has one. shared: address of all servers, where they have one.
    """

    name: str
    table: Any
    number: int
    clients: Sequence[Node]
    servers: Sequence[Node]
    start_ns: int
    stop_ns: int
    addresses: Mapping[str, str] = field(default_factory=dict)
    shared: IPv4Address | None = None

    def address(self, server: Node) -> str:
        """The address at which clients reach a server."""
        return str(self.shared or server.ipv4)

    def file(self, raw: Path, node: Node, name: str) -> Path:
        """The path of a file of this application and a node."""
        return (raw / f"{self.name}.{node.name}.{name}").absolute()

    def load(self, raw: Path, index: int, seed: int) -> dict[str, Any]:
        """The configuration of the load generator of client `index`, as far as it is that of every kind
        (:class:`cellbed.workloads.generator.Settings`)."""
        node, arrivals = self.clients[index], self.table.arrivals
        return {
            "endpoint": node.name,
            "record": str(self.file(raw, node, "requests.jsonl")),
            "arrivals": arrivals if isinstance(arrivals, str) else arrivals.stage(),
            "rate": self.table.rate,
            # Endpoints that send periodically take turns instead of all sending at the same instant.
            "phase": index / len(self.clients),
            "duration_ns": self.stop_ns - self.start_ns,
            "timeout_ns": self.table.timeout,
            "seed": seed,
            "policy": self.table.policy and self.table.policy.stage(),
        }

    def values(self, node: Node, client: Node | None, server: Node | None, seed: int) -> dict[str, str]:
        """What the names in a text of the scenario stand for (:mod:`cellbed.scenario.templates`) on `node`, one of the
        pair of client and server."""
        return {
            **{f"{name}.address": address for name, address in self.addresses.items()},
            "server.address": self.address(server) if server is not None else "",
            "client.address": str(client.ipv4) if client is not None else "",
            "node.name": node.name,
            "node.address": str(node.ipv4),
            "seed": str(seed),
            "duration_s": f"{(self.stop_ns - self.start_ns) / 1e9:g}",
        }


class Workload(Protocol):
    """A kind of workload; a module with these functions is one."""

    def prepare(self, table: Any, cache: Path, note: Note = silent) -> None:
        """Build what the workload needs, once, and check what the user gave. Raises CellbedError."""

    def processes(self, deployment: Deployment, raw: Path, *, cache: Path, seed: int) -> Sequence[Process | Command]:
        """The programs of one run; their configurations are written into ``raw``. Call prepare before.

        Those of the user are commands, which run as they are.
        """

    def describe(self, table: Mapping[str, Any]) -> Description:
        """What measuring and reporting need. table: of ``scenario.resolved.json``, also of an earlier version."""
