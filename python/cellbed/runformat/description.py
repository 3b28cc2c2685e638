"""The description of an application in ``run.json``: measuring and reporting need nothing else of its kind."""

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
"""Columns of requests that programs report: name, begin, and identifiers in OpenTelemetry."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of requests that is summarised: its median and range are reported. unit: empty for a number; share for
    one that is 0 or 1, whose mean is reported instead."""

    column: str
    label: str
    unit: Literal["B", "s", "Mbit/s", "share", ""]


REPORTED_MEASURE = Measure("span_s", "own time of spans that end before the last byte of their reply", "s")
"""Measure of requests whose span ends before the reply. Their latency ends with the reply."""


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


D = TypeVar("D", bound="Description")


@dataclass(frozen=True, slots=True)
class Description:
    """An application for measuring and reporting, stored in ``run.json``; its connections are reported.

    Applications with requests are variants: :class:`Timed`, :class:`Traced`, :class:`Composed`, :class:`Reported`.

    title: of the application in reports. spans: the parts of a request's time in order, from its intended time to its
    reply; none for an application without requests. client_columns, server_columns: columns of the records of client
    (``<name>.<node>.requests.jsonl``) and server (``<name>.<node>.service.jsonl``) beyond the columns of every kind
    (:mod:`cellbed.runformat.records`), with their types; columns in ``_ns`` are stamps of that node's clock, and the
    first of the server is when the request reached it. same: columns with equal values in paired runs.
    name: of the application in its scenario. clients, servers: names of its nodes; client i belongs to server i mod the
    number of servers, or with the policy nearest to its cell's, or with another balance than "client" to all.
    start_ns, stop_ns: when its load starts and ends, since the start of the schedule (stop ``None``: with the
    schedule). skip_ns: what is left out of all measures, since then. deadline_ns: within which a good reply is on time,
    ``None`` without one. expectations: limits of its measures. ports: at which its servers listen, where known.
    services: names of the spans that its services have reported (:mod:`cellbed.testbed.programs.reports`). own:
    measures that its programs write. bearable: limits of these, each with a name in words; beyond one the machine
    disturbed the run.
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
        """Return the description as ``run.json`` has it."""
        return {"variant": self.variant, **asdict(self)}

    def become(self, variant: type[D], **more: Any) -> D:
        """Return the same application as another variant. more: its own fields, or other values."""
        return variant(**{each.name: getattr(self, each.name) for each in fields(self)} | more)

    def load_s(self, measured_s: float) -> float:
        """Return the duration of its load in seconds, without the part that is left out. measured_s: how much of the
        schedule was measured."""
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

    own_connections: each request has a connection or flow of its own, whose packets are its. relayed: a server passes
    the datagrams of a request on to the client in its column ``receiver`` (:mod:`cellbed.measure.relayed`).
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
    """An application whose requests consist of another one's, such as the objects of a page; its parts are the parts on
    the critical path. consists_of: name of that application."""

    variant = "composed"

    consists_of: str = ""


@dataclass(frozen=True, slots=True)
class Reported(Description):
    """An application whose programs report its requests, whose connections are found in the packet log."""

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
