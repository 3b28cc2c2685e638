"""Spans of OpenTelemetry: the requests of clients, and the work of the services that handled them.

A *call* is a client span without a client span around it on its node; its connection is found in the packet log
(:mod:`cellbed.measure.reported`). Calls of an application's clients are its requests. The spans below a request, by
their parents, are its trace.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl

from cellbed.measure.run_folder import MeasureError, applications_of, clocks, read_records, read_run
from cellbed.runformat.description import Description
from cellbed.runformat.records import REQUESTS
from cellbed.runformat.spans import HANDSHAKE, Place
from cellbed.support.protobuf import fields
from cellbed_node import inputs
from cellbed_node.exports import APPLICATION, HEADER, LARGEST_BODY, LARGEST_RECORD, SUFFIX, identifiers

MOST_STEPS = 1 << 24
"""Maximum number of steps for reading the spans of a run: about 20 per span."""
LARGEST_SPAN = 1 << 16
"""Maximum bytes of a span, and of the description of a resource."""
MOST_NAMES = 16
"""Maximum number of span names of an application's services that are parts of requests: those with most time."""
DEEPEST = 64
"""Maximum depth of nested spans."""
STEP_NS = 1_000_000
"""Minimum change of the wall clock against the monotonic clock that exceeds the error of reading them, ns."""
_ROWS = 10_000
"""Number of spans converted to a table at a time."""
_LATEST_NS = 1 << 62
OLDEST_NS, NEWEST_NS = 86_400_000_000_000, 1_000_000_000
"""Maximum time from a span's begin to its arrival, and from its arrival to its end, ns."""
KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
_SPANS: dict[str, Any] = {
    **dict.fromkeys(("node", "app", "service", "trace", "span", "parent", "kind", "name"), pl.String),
    **dict.fromkeys(("begin_ns", "end_ns"), pl.Int64),
    **{"status": pl.String, "error": pl.String, "address": pl.String, "peer_port": pl.Int64},
    **{"early": pl.Boolean, "secure": pl.Boolean},
}
_TIMED: dict[str, Any] = {
    **dict.fromkeys(("trace", "span"), pl.String),
    **dict.fromkeys(("before_s", "connect_s", "uplink_s", "server_s", "downlink_s", "after_s"), pl.Float64),
}
_ROOT: dict[str, Any] = {
    **{"app": pl.String, "endpoint": pl.String, "request": pl.Int64, "trace": pl.String, "span": pl.String},
    **{"begin_ns": pl.Int64, "end_ns": pl.Int64},
}
TRACES: dict[str, Any] = {
    **{"app": pl.String, "endpoint": pl.String, "request": pl.Int64, "depth": pl.Int64, "hop": pl.Int64},
    **{name: _SPANS[name] for name in ("trace", "span", "parent", "node", "service", "kind", "name")},
    **dict.fromkeys(("begin_s", "duration_s"), pl.Float64),
    **{name: _TIMED[name] for name in _TIMED if name.endswith("_s")},
}
"""Columns of ``traces.parquet``, a row for each span of a request's trace, parents first. depth: number of spans above
it; hop: number of nodes between it and the client; begin_s: since the request's begin. The last six divide the time of
a call with a known connection: client before sending, handshake, way to the server, server, way back, client
afterwards."""
_CALLS = (
    *("app", "endpoint", "request", "step", "status", "error", "intended_ns", "begin_ns", "reply_ns", "trace", "span"),
    *("peer", "peer_port", "certain", "early", "secure"),
)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ADDRESSES, _PORTS = ("server.address", "net.peer.name"), ("server.port", "net.peer.port")
_METHODS, _URLS = ("http.request.method", "http.method"), ("url.full", "http.url")
_STATUSES, _UPGRADED = ("http.response.status_code", "http.status_code"), 101
"""Attributes of client spans; the second name is from before version 1.20 of the semantic conventions."""
_WAYS = {
    way: [f"{way}_{name}_ns" for name in ("sending", "resent", "queued", "delayed")] for way in ("uplink", "downlink")
}


@dataclass(frozen=True, slots=True)
class Traced:
    """The spans of a run.

    calls: calls of all nodes, in the columns of requests, and if known `peer`, `peer_port` (the other end), `certain`
    (it used a connection that the packet log has), `early` (it may end with the headers of its reply: HTTP spans) and
    `secure` (it used TLS); request: request number, null for a call that is no request. tree: the spans of requests,
    with the request's app, endpoint and number; part: the span's name as a part. services: by application, the span
    names of its services that are parts of requests. warnings: about lost or unusable spans.
    """

    calls: pl.DataFrame
    tree: pl.DataFrame
    services: dict[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def table(self, *timed: pl.DataFrame) -> pl.DataFrame:
        """Return the table of traces. timed: calls with the last columns of :data:`TRACES`."""
        keys = ["trace", "span"]
        found = pl.concat([pl.DataFrame(schema=_TIMED), *(each.select(*_TIMED) for each in timed)]).unique(keys)
        joined = self.tree.join(found, on=keys, how="left", maintain_order="left")
        return joined.with_columns(
            begin_s=(pl.col("begin_ns") - pl.col("request_ns")) / 1e9,
            duration_s=(pl.col("end_ns") - pl.col("begin_ns")) / 1e9,
        ).select(*TRACES)

    def sent(self, application: Description, requests: pl.DataFrame) -> pl.DataFrame:
        """Return requests of a load with the times of calls, by part. requests: measured requests of `application`."""
        roots = self.tree.filter(depth=0, app=application.name).select("endpoint", "request", "trace", "span")
        parts = [span for span in application.spans if span.column in requests.columns]

        def total(*places: Place, connect: bool = False) -> pl.Expr:
            handshake = [span for span in HANDSHAKE if span.place != "endpoint"]
            chosen = (span for span in parts if span.place in places and (span in handshake) == connect)
            return pl.sum_horizontal(pl.lit(0.0), *(span.column for span in chosen))

        return (
            requests.drop_nulls("residual_s")
            .join(roots, on=["endpoint", "request"])
            .with_columns(
                before_s=total("endpoint") - pl.col("part_endpoint_receive"),
                connect_s=total("uplink", "remote", "downlink", connect=True),
                uplink_s=total("uplink"),
                server_s=total("remote"),
                downlink_s=total("downlink"),
                after_s="part_endpoint_receive",
            )
        )


def add_times(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the calls with a known connection, with their times."""
    return calls.drop_nulls(["trace", "served_ns"]).with_columns(
        before_s=_seconds("before_ns", "between_ns"),
        connect_s=_seconds("connect_up_ns", "connect_remote_ns", "connect_down_ns"),
        uplink_s=_seconds(*_WAYS["uplink"]),
        server_s=_seconds("served_ns"),
        downlink_s=_seconds(*_WAYS["downlink"]),
        after_s=_seconds("after_ns"),
    )


def _seconds(*columns: str) -> pl.Expr:
    return pl.sum_horizontal(columns) / 1e9


def read_traces(run: Path, description: dict[str, Any]) -> Traced:
    """Return the spans of a run; description: the content of ``run.json``. Raises MeasureError."""
    ahead = {node: offset for node, (offset, _) in clocks(description).items()}
    spans, warnings = _read(run / "raw", ahead)
    # If clients report their requests to cellbed, their spans are not additional requests.
    described = applications_of(description)
    applications = [
        replace(each, clients=()) if any(map(_size, (run / "raw").glob(f"{each.name}.*.{REQUESTS}"))) else each
        for each in described
        if each.reported or each.traced
    ]
    roots = [_roots(run / "raw", each, ahead) for each in described if each.traced and len(spans)]
    addresses = {
        name: str(node["name"])
        for node in description.get("nodes") or []
        for name in (str(node["name"]), *(node.get("addresses") or ()))
    }
    sent = pl.concat([pl.DataFrame(schema=_ROOT), *roots])
    found = arrange(spans, applications, addresses, sent) if len(spans) else _arrange_nothing()
    return Traced(found.calls, found.tree, found.services, [*warnings, *found.warnings])


def span_names(run: Path) -> dict[str, tuple[str, ...]]:
    """Return the names of spans of OpenTelemetry that are parts of requests, by application."""
    return read_traces(run, read_run(run)).services


def _size(path: Path) -> int:
    return path.stat().st_size


def _read(raw: Path, monotonic_ahead: Mapping[str, int]) -> tuple[pl.DataFrame, list[str]]:
    """Return the stored spans with monotonic times of this machine, and sentences about unusable spans.

    monotonic_ahead: lead of a node's clock over this machine's, ns, for nodes with another clock."""
    kept, reader = [pl.DataFrame(schema=_SPANS)], _Reader()
    for path in sorted(raw.glob(f"*{SUFFIX}")):
        node = path.name.removesuffix(SUFFIX)
        tables, rows, ahead = [pl.DataFrame(schema=_SPANS)], list[tuple[Any, ...]](), []
        for arrived, offset, body in _bodies(path):
            if max(abs(arrived), abs(offset)) >= _LATEST_NS:
                reader.lost["an export with an impossible time"] += 1
                continue
            ahead.append(offset)
            limits = arrived + offset - OLDEST_NS, arrived + offset + NEWEST_NS
            rows += reader.spans(body, node, limits)
            if len(rows) > _ROWS:
                tables.append(pl.DataFrame(rows, schema=_SPANS, orient="row"))
                rows = []
            if reader.room <= 0:
                break
        tables.append(pl.DataFrame(rows, schema=_SPANS, orient="row"))
        if ahead and (step := max(ahead) - min(ahead)) > STEP_NS:
            why = f"the clock of {node} was set during the run, by {step / 1e6:.0f} ms"
            warnings = [f"OpenTelemetry: no span is used, since {why}: run it again"]
            return kept[0], warnings
        middle = (sorted(ahead)[len(ahead) // 2] if ahead else 0) + monotonic_ahead.get(node, 0)
        kept.append(pl.concat(tables).with_columns(pl.col("begin_ns", "end_ns") - middle))
    warnings = [f"OpenTelemetry: {number} × {why}" for why, number in sorted(reader.lost.items())]
    if reader.room <= 0:
        warnings.append("OpenTelemetry: there are more spans than cellbed reads of a run: the last are left out")
    # A program that retries an export sends the same span twice.
    return pl.concat(kept).unique(["trace", "span"], keep="first", maintain_order=True), warnings


def _bodies(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield the stored bodies: arrival time, lead of the wall clock, bytes."""
    try:
        with inputs.open_file(path) as file:
            while len(header := file.read(HEADER.size)) == HEADER.size and file.tell() <= LARGEST_RECORD:
                length, arrived, ahead = HEADER.unpack(header)
                if length > LARGEST_BODY:
                    raise MeasureError(f"{path}: not stored exports of OpenTelemetry; the file was damaged or edited")
                body = file.read(length)
                if len(body) == length:  # else the receiver was killed
                    yield arrived, ahead, body
    except OSError as error:
        raise MeasureError(f"{path}: cannot be read: {error.strerror}") from None


class _Reader:
    """Reads the spans of a run. room: steps left (:data:`MOST_STEPS`); lost: number of unused spans, by reason."""

    def __init__(self) -> None:
        from opentelemetry.proto.resource.v1.resource_pb2 import Resource
        from opentelemetry.proto.trace.v1.trace_pb2 import Span

        self._resource, self._span = Resource, Span
        self.room = MOST_STEPS
        self.lost = Counter[str]()

    def spans(self, body: bytes, node: str, limits: tuple[int, int]) -> Iterator[tuple[Any, ...]]:
        """Yield the spans of an export in the columns of :data:`_SPANS`, with times as stored. limits: valid times."""
        self.room -= 4
        try:
            for _, group in self._fields(body, 1):
                parts = list(self._fields(group, 1, 2))
                resource = self._attributes(self._resource, b"".join(each for number, each in parts if number == 1))[1]
                app, service = (resource.get(key) for key in (APPLICATION, "service.name"))
                about = (node, str(app) if app else None, _readable(str(service or "")))
                for scope in (each for number, each in parts if number == 2):
                    for _, content in self._fields(scope, 2):
                        if (row := self._row(content, limits)) is not None:
                            yield (*about, *row)
        except ValueError:
            self.lost["an export that is malformed"] += 1

    def _fields(self, message: bytes, *numbers: int) -> Iterator[tuple[int, bytes]]:
        """Yield the fields with these numbers, and their content. Raises ValueError."""
        for number, content in fields(message):
            self.room -= 4
            if self.room <= 0:
                return
            if number in numbers and isinstance(content, bytes):
                yield number, content

    def _attributes(self, kind: Any, content: bytes) -> tuple[Any, dict[str, str | int]]:
        """Return a message, empty if it is malformed or too large, and its attributes."""
        from google.protobuf.message import DecodeError

        try:
            message = kind.FromString(content if len(content) <= LARGEST_SPAN else b"")
        except DecodeError:
            message = kind()
        self.room -= 8 + len(message.attributes) + (len(content) >> 8)
        return message, {each.key: each.value.string_value or each.value.int_value for each in message.attributes}

    def _row(self, content: bytes, limits: tuple[int, int]) -> tuple[Any, ...] | None:
        """Return the values of a span for the columns from `trace` on; ``None`` for an unusable span."""
        span, its = self._attributes(self._span, content)
        if len(span.trace_id) != 16 or len(span.span_id) != 8:
            self.lost["a span that is malformed"] += 1
            return None
        if not limits[0] <= span.start_time_unix_nano <= span.end_time_unix_nano <= limits[1]:
            self.lost["spans with an impossible time"] += 1
            return None

        def value(kind: type, *keys: str) -> Any:
            return next((its[key] for key in keys if isinstance(its.get(key), kind)), None)

        kind = KINDS[span.kind] if 0 <= span.kind < len(KINDS) else KINDS[0]
        status, error = "ok", None
        if span.status.code == span.status.STATUS_CODE_ERROR:
            what = value(str, "error.type") or span.status.message
            status = "timed-out" if re.search("timeout|timed out|deadline", what, re.IGNORECASE) else "failed"
            error = f"the client reports: {_readable(what) or 'an error'}"
        url = value(str, *_URLS) or ""
        host, port = _peer(url)
        early = value(str, *_METHODS) is not None and value(int, *_STATUSES) != _UPGRADED
        return (
            *(span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex() or None, kind, _readable(span.name)),
            *(span.start_time_unix_nano, span.end_time_unix_nano, status, error),
            *(value(str, *_ADDRESSES) or host, value(int, *_PORTS) or port, early, url.startswith("https:")),
        )


def _peer(url: str) -> tuple[str | None, int | None]:
    """Return the host of a URL, if it is the span's own node, and the port. Other addresses may move between nodes."""
    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.hostname in _LOOPBACK else None
        return host, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None, None


def _readable(text: str) -> str:
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text[:100])


def _roots(raw: Path, application: Description, ahead: dict[str, int]) -> pl.DataFrame:
    """Return the requests of a load in the columns of :data:`_ROOT`."""
    sent = {"endpoint": pl.String, "request": pl.Int64, "started_ns": pl.Int64, "reply_ns": pl.Int64}
    requests = read_records(raw, application.name, REQUESTS, sent, ahead).drop_nulls()
    names = [identifiers(application.name, *row) for row in requests.select("endpoint", "request").iter_rows()]
    traces, spans = zip(*names, strict=True) if names else ((), ())
    return requests.select(
        "endpoint",
        "request",
        app=pl.lit(application.name),
        trace=pl.Series(traces, dtype=pl.String),
        span=pl.Series(spans, dtype=pl.String),
        begin_ns="started_ns",
        end_ns="reply_ns",
    ).select(*_ROOT)


def arrange(
    spans: pl.DataFrame, applications: Sequence[Description], addresses: dict[str, str], roots: pl.DataFrame
) -> Traced:
    """Return the calls and requests among spans, and the traces of requests. Pure.

    spans: with the columns of :data:`_SPANS`. applications: applications whose programs report requests. addresses:
    nodes by name and address. roots: requests that loads sent with identifiers, in the columns of :data:`_ROOT`.
    """
    of_node: dict[str, set[str]] = {}
    for each in applications:
        for node in (*each.clients, *each.servers):
            of_node.setdefault(node, set()).add(each.name)
    alone = {node: next(iter(names)) for node, names in of_node.items() if len(names) == 1}
    default = pl.col("node").replace_strict(alone, default=None, return_dtype=pl.String)
    spans = spans.with_columns(pl.coalesce("app", default)).filter(pl.col("span") != pl.col("parent").fill_null(""))
    above = spans.select("trace", parent="span", node_above="node", kind_above="kind")
    spans = spans.join(above, on=["trace", "parent"], how="left", maintain_order="left")
    calls = _calls(spans)
    named = pl.col("address").replace_strict(addresses, default=None, return_dtype=pl.String)
    own = pl.when(pl.col("address").is_in(_LOOPBACK)).then("node")
    calls = calls.with_columns(
        peer=pl.coalesce("peer", own, named),
        endpoint="node",
        step="name",
        intended_ns="begin_ns",
        reply_ns=pl.when(pl.col("status") != "timed-out").then("end_ns"),
    ).with_columns(certain=(pl.col("status") == "ok") & (pl.col("peer") != pl.col("node")).fill_null(False))
    clients = pl.DataFrame(
        [(each.name, node) for each in applications if each.reported for node in each.clients],
        schema={"app": pl.String, "endpoint": pl.String},
        orient="row",
    )
    requests = calls.join(clients, on=["app", "endpoint"], how="semi", maintain_order="left").sort("begin_ns")
    requests = requests.with_columns(request=pl.int_range(pl.len()).over("app", "endpoint"))
    numbers = requests.select("trace", "span", "request")
    calls = calls.join(numbers, on=["trace", "span"], how="left", maintain_order="left").select(_CALLS)
    served = roots.join(spans.select("trace", span="parent"), on=["trace", "span"], how="semi", maintain_order="left")
    sent = served.with_columns(node="endpoint", kind=pl.lit("client"), name=pl.lit("request"))
    tree, deeper = _tree(spans, pl.concat([requests, sent], how="diagonal_relaxed"))
    spent = pl.col("end_ns") - pl.col("begin_ns")
    most = (
        tree.filter(hop=1)
        .with_columns(spent=spent)
        .group_by("app", "part")
        .agg(pl.col("spent").sum())
        .sort("spent", "part", descending=[True, False])
    )
    services = {
        str(app): tuple(sorted(group["part"].head(MOST_NAMES).to_list()))
        for (app,), group in most.group_by("app", maintain_order=True)
    }
    known = spans.join(roots.select("trace", parent="span"), on=["trace", "parent"], how="anti")
    lost = known.filter(pl.col("parent").is_not_null() & pl.col("node_above").is_null() & (pl.col("kind") != "client"))
    warnings = []
    if len(lost):
        warnings.append(
            f"OpenTelemetry: {len(lost)} spans belong to spans that did not arrive: their program ended before it had "
            "exported them, or is not one of an application with telemetry"
        )
    if deeper:
        warnings.append(f"OpenTelemetry: spans more than {DEEPEST} below their request are left out")
    return Traced(calls, tree, services, warnings)


@cache
def _arrange_nothing() -> Traced:
    return arrange(pl.DataFrame(schema=_SPANS), (), {}, pl.DataFrame(schema=_ROOT))


def _part() -> pl.Expr:
    """Return span names as names of parts: ``GET /items/{id}`` becomes ``GET-items-id``."""
    return pl.col("name").str.replace_all(r"[^A-Za-z0-9_.]+", "-").str.strip_chars("-").str.head(40).replace("", "span")


def _calls(spans: pl.DataFrame) -> pl.DataFrame:
    """Return the client spans that no client span of their node contains; peer: node of the server that answered."""
    below = (pl.col("node_above") == pl.col("node")).fill_null(False)
    covered = spans.select("trace", "span", "parent", below=below, covered=below & (pl.col("kind_above") == "client"))
    for _ in range(DEEPEST):
        above = covered.select("trace", parent="span", up="covered")
        more = covered.join(above, on=["trace", "parent"], how="left", maintain_order="left").select(
            pl.col("covered") | (pl.col("below") & pl.col("up").fill_null(False))
        )["covered"]
        if more.equals(covered["covered"]):
            break
        covered = covered.with_columns(more)
    clients = spans.with_columns(covered["covered"]).filter(kind="client")
    answered = spans.filter((pl.col("kind") == "server") & (pl.col("node") != pl.col("node_above")))
    peers = answered.group_by("trace", span="parent").agg(peer=pl.col("node").first())
    clients = clients.join(peers, on=["trace", "span"], how="left", maintain_order="left")
    # For a client span around another one: the peer of the inner span.
    inner = clients.filter("covered").group_by("trace", span="parent").agg(peer_below=pl.col("peer").first())
    clients = clients.join(inner, on=["trace", "span"], how="left", maintain_order="left")
    return clients.with_columns(pl.coalesce("peer", "peer_below")).filter(~pl.col("covered"))


def _tree(spans: pl.DataFrame, requests: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """Return the spans of the traces of requests, parents first, and whether deeper spans were left out."""
    kept = ["trace", "span", "parent", "node", "service", "kind", "name", "begin_ns", "end_ns"]
    place = pl.concat_str(pl.col("begin_ns").cast(pl.String).str.zfill(20), "span")
    root = requests.select(
        "app", "endpoint", "request", *kept, depth=pl.lit(0, pl.Int64), hop=pl.lit(0, pl.Int64), request_ns="begin_ns",
        path=place,
    )  # fmt: skip
    levels = [root]
    for depth in range(1, DEEPEST + 1):
        above = levels[-1].select(
            "app", "endpoint", "request", "trace", "hop", "request_ns", "path", parent="span", from_node="node"
        )
        below = spans.select(kept).join(above, on=["trace", "parent"])
        if below.is_empty():
            break
        levels.append(
            below.with_columns(
                hop=pl.col("hop") + (pl.col("node") != pl.col("from_node")),
                depth=pl.lit(depth, pl.Int64),
                path=pl.concat_str("path", place),
            ).select(root.columns)
        )
    tree = pl.concat(levels).sort("app", "endpoint", "request", "path").drop("path")
    return tree.with_columns(part=_part()), len(levels) > DEEPEST
