"""The description of an application in ``run.json``: all that measuring and reporting need to know about its kind."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import Discriminator, Tag

from cellbed.runformat.records import ColumnType
from cellbed.runformat.spans import Span
from cellbed.support.limits import Limit
from cellbed_node.ledger import Status

ANSWERED: tuple[Status, ...] = ("ok", "late")
"""Outcomes with a good reply; only these requests have a latency."""
REPORTED_COLUMNS: dict[str, ColumnType] = {"step": "text", "begin_ns": "integer", "trace": "text", "span": "text"}
"""Columns of requests that programs report: name, beginning, and identifiers in OpenTelemetry."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of requests to summarise by median and range. unit: empty for a number; "share" for a value of 0 or 1,
    summarised by its mean instead."""

    column: str
    label: str
    unit: Literal["B", "s", "Mbit/s", "share", ""]


REPORTED_MEASURE = Measure("span_s", "own time of spans that end before the last byte of their reply", "s")
"""Measure of reported requests whose span ends before the reply. The latency then ends with the reply."""


@dataclass(frozen=True, slots=True)
class ProgramMeasures:
    """The measures of a role's program: a file, or matches of a regular expression in the program's output.

    units: units by group of the expression.
    """

    role: Literal["client", "server"]
    file: str | None = None
    line: str | None = None
    units: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Caution:
    """A sentence that a report must contain. detail: more text, for the page, which then emphasises the sentence."""

    text: str
    detail: str = ""


D = TypeVar("D", bound="Description")


@dataclass(frozen=True, slots=True)
class Description:
    """An application for measuring and reporting, stored in ``run.json``; its connections are reported.

    Applications with requests are variants: :class:`Timed`, :class:`Traced`, :class:`Composed`, :class:`Reported`.

    title: title of the application in reports. spans: parts of a request's time in order, from the intended time to the
    reply; none for an application without requests. client_columns, server_columns: columns of the records of client
    (``<name>.<node>.requests.jsonl``) and server (``<name>.<node>.service.jsonl``) beyond the columns of every kind
    (:mod:`cellbed.runformat.records`), with their types; columns in ``_ns`` are stamps of that node's clock, and the
    server's first stamp is the arrival of the request. same: columns with equal values in paired runs.
    name: name of the application in the scenario. clients, servers: names of nodes; client i belongs to server i mod
    the number of servers; with the policy "nearest", to the server of the client's cell; with another balance than
    "client", to all servers. start_ns, stop_ns: beginning and end of the load since the start of the schedule
    (stop ``None``: end of the schedule). skip_ns: time since the start of the schedule that all measures leave out.
    deadline_ns: maximum latency of a reply that is on time, ``None`` for no deadline. expectations: limits of
    measures. ports: known ports of the servers. services: names of the spans that services have reported
    (:mod:`cellbed.testbed.programs.reports`). own: measures that the programs write. bearable: limits of these
    measures, each with a name in words; if a limit is exceeded, the machine disturbed the run.
    """

    variant: ClassVar[str] = "connections"
    reported: ClassVar[bool] = False
    traced: ClassVar[bool] = False

    kind: str
    title: str
    spans: tuple[Span, ...] = ()
    client_columns: dict[str, ColumnType] = field(default_factory=dict)
    server_columns: dict[str, ColumnType] = field(default_factory=dict)
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
    bearable: tuple[Limit, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the description in the format of ``run.json``."""
        return {"variant": self.variant, **asdict(self)}

    def become(self, variant: type[D], **more: Any) -> D:
        """Return the same application as another variant. more: fields of that variant, or changed values."""
        return variant(**{each.name: getattr(self, each.name) for each in fields(self)} | more)

    def load_s(self, measured_s: float) -> float:
        """Return the duration of the load in seconds, without the skipped part. measured_s: measured time of the
        schedule."""
        stop_s = measured_s if self.stop_ns is None else min(measured_s, self.stop_ns / 1e9)
        return stop_s - max(self.start_ns, self.skip_ns) / 1e9

    def servers_of(self, client: int) -> tuple[str, ...]:
        """Return the names of the servers of a client, by its number."""
        return (
            self.servers
            if self.edge_policy == "nearest" or self.balance != "client" or not self.servers
            else (self.servers[client % len(self.servers)],)
        )


@dataclass(frozen=True, slots=True)
class Timed(Description):
    """An application whose requests are stamped by a program of cellbed.

    own_connections: whether each request has a separate connection or flow, whose packets belong to the request.
    relayed: whether a server passes the datagrams of a request on to the client in the request's column ``receiver``
    (:mod:`cellbed.measure.relayed`).
    """

    variant = "timed"

    own_connections: bool = False
    relayed: bool = False


@dataclass(frozen=True, slots=True)
class Traced(Timed):
    """An application whose requests also have identifiers of OpenTelemetry (`cellbed_node.exports.identifiers`)."""

    variant, traced = "traced", True


@dataclass(frozen=True, slots=True)
class Composed(Timed):
    """An application whose requests consist of another application's requests, such as the objects of a page. The parts
    are those on the critical path. consists_of: name of the other application."""

    variant = "composed"

    consists_of: str = ""


@dataclass(frozen=True, slots=True)
class Reported(Description):
    """An application whose programs report the requests. Their connections are found in the packet log."""

    variant, reported = "reported", True


def _variant(value: Any) -> str:
    return str(value.get("variant", "connections") if isinstance(value, Mapping) else value.variant)


AnyDescription = Annotated[
    Annotated[Description, Tag("connections")]
    | Annotated[Timed, Tag("timed")]
    | Annotated[Traced, Tag("traced")]
    | Annotated[Composed, Tag("composed")]
    | Annotated[Reported, Tag("reported")],
    Discriminator(_variant),
]
