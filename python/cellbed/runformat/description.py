"""The description of an application in ``run.json``, from which a run is measured and reported without its kind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cellbed.runformat.records import ColumnType
from cellbed.runformat.spans import Span
from cellbed.support.limits import Limit
from cellbed_node.ledger import Status

ANSWERED: tuple[Status, ...] = ("ok", "late")
"""Outcomes with a good reply; only these requests have a latency."""
REPORTED_COLUMNS: dict[str, ColumnType] = {"step": "text", "begin_ns": "integer", "trace": "text", "span": "text"}
"""Columns of requests that programs report: its name, when it began, and its identifiers in OpenTelemetry."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of requests that is summarised: its median and range are reported. unit: empty for a number; share for
    one that is 0 or 1, of which the mean is reported instead."""

    column: str
    label: str
    unit: Literal["B", "s", "Mbit/s", "share", ""]


REPORTED_MEASURE = Measure("span_s", "own time of spans that end before the last byte of their reply", "s")
"""Of requests that programs report, whose latency ends with their reply then."""


@dataclass(frozen=True, slots=True)
class ProgramMeasures:
    """The measures that the program of a role writes: a file, or matches of a regular expression in its output.

    units: of groups of the expression.
    """

    role: Literal["client", "server"]
    file: str | None = None
    line: str | None = None
    units: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Caution:
    """A sentence that a report must carry. detail: more of it, for the page; where there is some, it is emphasised."""

    text: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Description:
    """Properties of an application that measuring and reporting need for any kind; stored in ``run.json``.

    title: of the application in reports. spans: in the order in which a request spends its time, from its intended
    time to its reply; none for an application without requests. client_columns, server_columns: what the records of
    client (``<name>.<node>.requests.jsonl``) and server (``<name>.<node>.service.jsonl``) have beyond the columns of
    every kind (:mod:`cellbed.runformat.records`), with their types; columns in ``_ns`` are stamps of that node's clock,
    and the first of the server is when the request reached it. same: columns in which requests of paired runs agree.
    name: of the application in its scenario. clients, servers: names of its nodes; client i belongs to server i mod the
    number of servers, or with the policy nearest to that of its cell, or with another balance than "client" to all.
    start_ns, stop_ns: when its load starts and ends, since the start of the schedule (stop ``None``: with the
    schedule). skip_ns: what is left out of all measures, since then. deadline_ns: within which a good reply is on time,
    ``None`` without one. expectations: limits of its measures. ports: at which its servers listen, where known.
    services: names of the spans that its services have reported (:mod:`cellbed.testbed.programs.reports`). own:
    measures that its programs write. reported: its programs report its requests, whose connections are found in the
    packet log; else cellbed sends them. traced: they have identifiers of OpenTelemetry
    (:func:`cellbed_node.exports.identifiers`). own_connections: each request has a connection or flow of its
    own, whose packets are its. consists_of: name of the application whose requests are those of which its own
    consist, such as the objects of a page: the parts of its requests are those on the critical path. bearable: limits
    of the measures that its programs write, each with a name in words; beyond one the machine disturbed the run.
    relayed: a server passes the datagrams of a request on to the client in its column ``receiver``
    (:mod:`cellbed.measure.relayed`).
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
    balance: str = "client"
    start_ns: int = 0
    stop_ns: int | None = None
    skip_ns: int = 0
    deadline_ns: int | None = None
    expectations: tuple[Limit, ...] = ()
    services: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    own: tuple[ProgramMeasures, ...] = ()
    reported: bool = False
    traced: bool = False
    own_connections: bool = False
    consists_of: str = ""
    bearable: tuple[Limit, ...] = ()
    relayed: bool = False

    def load_s(self, measured_s: float) -> float:
        """Return the duration of its load, without what is left out, in a run of which so much of the schedule was
        measured, in seconds."""
        stop_s = measured_s if self.stop_ns is None else min(measured_s, self.stop_ns / 1e9)
        return stop_s - max(self.start_ns, self.skip_ns) / 1e9

    def servers_of(self, client: int) -> tuple[str, ...]:
        """Return the names of the servers of a client, by its number."""
        return (
            self.servers
            if self.edge_policy == "nearest" or self.balance != "client" or not self.servers
            else (self.servers[client % len(self.servers)],)
        )
