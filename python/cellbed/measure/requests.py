"""Requests: the stamps of programs and packets joined, one row per request with the parts of its latency."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cellbed.measure.packets import crossings, places, read_service_packets
from cellbed.measure.pages import add_paths
from cellbed.measure.relayed import add_relayed
from cellbed.measure.reported import attach
from cellbed.measure.run_folder import MeasureError, applications_of, clocks, read_records
from cellbed.measure.services import attach_services, divide_waits
from cellbed.measure.streams import NEVER, Connection, Streams
from cellbed.measure.telemetry import Traced, add_times
from cellbed.runformat.description import ANSWERED, Composed, Description, Timed
from cellbed.runformat.records import MESSAGE, MESSAGES, REQUEST, REQUESTS, SERVED, SERVICES, ColumnType
from cellbed.runformat.spans import SERVICE, Span
from cellbed_node.tcp import TCP_INFO

STATUSES = ("ok", "late", "failed", "timed-out", "lost")
"""Statuses of requests that a policy did not skip."""
MOST_STEPS = 50
"""Maximum number of request names reported by an application's programs; all other names are merged into one."""

_CLIENT_STAMPS = ("intended_ns", "started_ns", "sent_ns", "accepted_ns", "reply_ns")
_TCP = pl.Struct(dict.fromkeys(TCP_INFO, pl.Int64))
_TYPES: dict[ColumnType, Any] = {"integer": pl.Int64, "text": pl.String, "number": pl.Float64, "tcp": _TCP}
_SINCE_INTENDED = ("first_byte", "first_paint", "largest_paint")
"""Stamps (``_ns``) that are also measures (``_s``), as time since the intended time."""
_WAYS = {"uplink": "sent_ns", "downlink": "reply_ns"}  # the connection was certainly open at this stamp
_NONE = Description("", "", name="")


def read_requests(
    run: Path, description: dict[str, Any], connections: pl.DataFrame, traced: Traced
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return the requests of all applications, the messages of streamed replies, and the table of traces
    (:data:`~cellbed.measure.telemetry.TRACES`), from the raw files under `run`.

    connections: the table of :func:`~cellbed.measure.connections.read_connections`; traced: spans of OpenTelemetry.

    description: the content of ``run.json``. Requests: one row each, by intended time. Columns: ``app``, the stamps
    (``*_ns``, this machine's CLOCK_MONOTONIC), columns that the applications declare, ``intended_s`` (since the start
    of the schedule), ``latency_s`` (reply − intended; null without a good reply), ``part_<name>`` in seconds,
    ``residual_s`` = latency − Σ parts. Missing values are null, as are columns that only another application declares.
    Messages: see :func:`_messages`.
    """
    ahead = {node: offset for node, (offset, _) in clocks(description).items()}
    recorded = [(each, _read_records(run / "raw", each, ahead)) for each in applications_of(description) or [_NONE]]
    found = [(each, read_records(run / "raw", each.name, MESSAGES, schema_for(MESSAGE), ahead)) for each, _ in recorded]
    ports = sorted({port for _, table in (*recorded, *found) for port in table["remote_port"].drop_nulls()})
    packets = read_service_packets(run / "raw" / "packets.bin", ports)
    nodes = [str(node["name"]) for node in description.get("nodes") or []]
    passed = crossings(packets, description.get("directions") or [], ports, nodes)
    streams = Streams(passed, places(description))
    t0 = description.get("t0_ns")
    inside = traced.tree.filter(hop=1).select("app", "endpoint", "request", "begin_ns", "end_ns", span="part")
    tables, timings = [], []
    measured: dict[str, pl.DataFrame] = {}
    whole: list[tuple[Composed, pl.DataFrame]] = []
    for application, table in recorded:
        if application.reported:
            continue
        if isinstance(application, Timed) and application.relayed:
            table = add_relayed(table, application, streams)
        attached = _attach_packets(table, application, streams)
        own = inside.filter(app=application.name).drop("app")
        attached = attach_services(attached, run / "raw", application, ahead, own)
        if isinstance(application, Composed):
            whole.append((application, attached))
            continue
        tables.append(_measure(application, attached, t0))
        measured[application.name] = tables[-1]
        if application.traced:
            timings.append(traced.sent(application, tables[-1]))
    for application, attached in whole:
        attached = add_paths(attached, measured[application.consists_of], application)
        tables.append(_measure(application, attached, t0))
    messages = pl.concat([_messages(application, table, streams, t0) for application, table in found])
    if any(application.reported or application.traced for application, _ in recorded):
        reported, calls = _join_packets(recorded, connections, traced, run / "raw", ahead)
        for application, table in reported:
            tables.append(_measure(application, _assign_servers(application, table, description), t0))
        timings.append(add_times(calls))
    traces = traced.table(*timings)
    requests = pl.concat(tables, how="diagonal_relaxed").sort("intended_ns", "app", "endpoint", "request")
    return requests, messages, traces


def _join_packets(
    recorded: list[tuple[Description, pl.DataFrame]],
    connections: pl.DataFrame,
    traced: Traced,
    raw: Path,
    ahead: dict[str, int],
) -> tuple[list[tuple[Description, pl.DataFrame]], pl.DataFrame]:
    """Add columns from the packet log to applications whose programs report their requests. Return these, and all
    calls."""
    ends = {"client": "endpoint", "client_port": "local_port", "server_port": "remote_port"}
    others = [table.select(**ends).drop_nulls() for application, table in recorded if not application.reported]
    if others:
        connections = connections.join(pl.concat(others).unique(), on=list(ends), how="anti", maintain_order="left")
    reporting = []
    for application, table in recorded:
        if application.reported:
            calls = traced.calls.filter(pl.col("request").is_not_null(), app=application.name)
            both = pl.concat([table, calls], how="diagonal_relaxed")
            common = both["step"].value_counts(sort=True)["step"].head(MOST_STEPS).implode()
            step = pl.when(pl.col("step").is_in(common)).then("step").otherwise(pl.lit("others"))
            reporting.append((application, both.with_columns(step)))
    # All calls of a node together: each call may be a candidate for another call's connection.
    inner = traced.calls.filter(pl.col("request").is_null())
    attached, waits = attach(
        pl.concat([*(table for _, table in reporting), inner], how="diagonal_relaxed"), connections
    )
    attached = attached.with_row_index("number").with_columns(pl.col("number").cast(pl.Int64))
    keys = ["app", "endpoint", "request"]
    inside = traced.tree.filter(hop=1).join(attached.select("number", *keys), on=keys)
    inside = inside.select("number", "begin_ns", "end_ns", span="part")
    found, begin = [], 0
    for application, table in reporting:
        own = attached[begin : begin + len(table)]
        begin += len(table)
        found.append((application, divide_waits(own, waits, inside, raw, application, ahead).drop("number")))
    return found, attached


def _assign_servers(application: Description, requests: pl.DataFrame, description: dict[str, Any]) -> pl.DataFrame:
    """Add the server to reported requests: after a connection has moved, ``server`` is the new server."""
    for move in description.get("migrations") or []:
        switched = [phase["end_s"] for phase in move["phases"] if phase["name"] == "switch"]
        if switched and move["app"] == application.name and not move["failed"] and move.get("moves_memory"):
            later = pl.col("downlink_left_ns") > (description.get("t0_ns") or 0) + switched[-1] * 1e9
            moved = later & (pl.col("server") == move["source"])
            requests = requests.with_columns(server=pl.when(moved).then(pl.lit(move["target"])).otherwise("server"))
    return requests


def schema_for(columns: Mapping[str, ColumnType]) -> dict[str, Any]:
    """Return the schema of the columns of a record."""
    return {name: _TYPES[kind] for name, kind in columns.items()}


def due(requests: pl.DataFrame) -> pl.DataFrame:
    """Return the requests that no policy skipped: only these can have a latency, or lack one."""
    return requests.filter(pl.col("status") != "skipped")


def _read_records(raw: Path, application: Description, ahead: dict[str, int]) -> pl.DataFrame:
    """Return the records of an application's clients and servers, one row per request. ahead: lead by node, ns."""
    own, server = application.client_columns, application.server_columns
    requests = read_records(raw, application.name, REQUESTS, schema_for(REQUEST | own), ahead).unnest("tcp")
    joined = requests.select(pl.lit(application.name).alias("app"), pl.all())
    if server:
        service = read_records(raw, application.name, SERVICES, schema_for(SERVED | server), ahead)
        # A request may be served twice if the transport retransmits it; the first service produced the reply.
        first = next(iter(server))
        service = service.sort(first).unique(["endpoint", "request"], keep="first")
        joined = joined.join(service, on=["endpoint", "request"], how="left")
    return joined.sort("intended_ns", "endpoint", "request")


def _measure(application: Description, attached: pl.DataFrame, t0_ns: int | None) -> pl.DataFrame:
    """Add latency and parts. attached: requests with their packets; t0_ns: start of the schedule."""
    joined = attached if application.reported else _split_waiting(attached)
    since = [name for name in _SINCE_INTENDED if f"{name}_ns" in joined.columns]
    joined = joined.with_columns(
        _seconds(pl.col(f"{name}_ns") - pl.col("intended_ns")).alias(f"{name}_s") for name in since
    )
    origin = pl.lit(t0_ns, pl.Int64) if t0_ns is not None else pl.col("intended_ns").min()
    # Whole nanoseconds keep the residual exact.
    durations = {span.column: _duration(span, joined.columns) for span in application.spans}
    spent = pl.sum_horizontal(list(durations.values()), ignore_nulls=False) if durations else pl.lit(None, pl.Int64)
    latency = pl.when(pl.col("status").is_in(ANSWERED)).then(pl.col("reply_ns") - pl.col("intended_ns"))
    return joined.with_columns(
        intended_s=_seconds(pl.col("intended_ns") - origin),
        latency_s=_seconds(latency),
        **{column: _seconds(duration) for column, duration in durations.items()},
        residual_s=_seconds(latency - spent),
    )


def _duration(span: Span, columns: list[str]) -> pl.Expr:
    for stamp in (span.begin, span.end) if span.end else (span.begin,):
        if f"{stamp}_ns" not in columns:
            raise MeasureError(
                f"run.json: applications: the span '{span.name}' needs a stamp '{stamp}', which is unknown"
            )
    begin = pl.col(f"{span.begin}_ns")
    return pl.col(f"{span.end}_ns") - begin if span.end else begin


def _split_waiting(requests: pl.DataFrame) -> pl.DataFrame:
    """Divide the time from ``sent_ns`` to ``uplink_entered_ns``: add the shares of the endpoint (``handed_ns``), the
    uplink (``held_ns``) and the receiver's window (``window_ns``).

    The endpoint's share ends when TCP took the first byte, and excludes the time with a full send buffer. The window's
    share is the increase of the kernel's clock of the receive window (``tcpi_rwnd_limited``), which is read at each
    publish and interpolated linearly. In the rest, earlier bytes waited for their acknowledgement.
    """
    waited = pl.col("uplink_entered_ns") - pl.col("sent_ns")
    # The emulator may receive the first segment before the system call that sent the segment returns.
    taken = pl.min_horizontal("accepted_ns", "uplink_entered_ns") - pl.col("sent_ns")
    handed = pl.when(pl.col("accepted_ns").is_not_null()).then((taken - pl.col("buffer_full_ns")).clip(0))
    window = np.zeros(len(requests), np.int64)
    known = requests.with_row_index("row").drop_nulls(
        ["sent_ns", "uplink_entered_ns", "local_port", "receive_window_limited_us"]
    )
    for _, group in known.sort("sent_ns").group_by("endpoint", "local_port", maintain_order=True):
        clock = group["receive_window_limited_us"].to_numpy() * 1000
        sent = group["sent_ns"].to_numpy()
        window[group["row"].to_numpy()] = np.interp(group["uplink_entered_ns"].to_numpy(), sent, clock) - clock
    return (
        requests.with_columns(handed_ns=handed, waited_ns=waited, window_ns=pl.Series(window))
        .with_columns(window_ns=pl.min_horizontal("window_ns", pl.col("waited_ns") - pl.col("handed_ns")).clip(0))
        .with_columns(
            window_ns=pl.when(pl.col("handed_ns").is_not_null()).then("window_ns"),
            held_ns=pl.col("waited_ns") - pl.col("handed_ns") - pl.col("window_ns"),
        )
        .drop("waited_ns")
    )


def _seconds(nanoseconds: pl.Expr) -> pl.Expr:
    return nanoseconds.cast(pl.Float64) / 1e9


def uncertainties(requests: pl.DataFrame, application: Description, description: dict[str, Any]) -> dict[str, float]:
    """Return the maximum error of each span that has its ends stamped by different clocks, seconds.

    requests: requests of this application; description: the content of ``run.json``.
    """
    known, clients = clocks(description), set(requests["endpoint"].unique())
    client, server = (
        max((uncertain for node, (_, uncertain) in known.items() if (node in clients) == of_clients), default=0)
        for of_clients in (True, False)
    )
    by_stamp = dict.fromkeys(_CLIENT_STAMPS, ("client", client))
    by_stamp |= {column: ("client", client) for column in application.client_columns}
    by_stamp |= {column: ("server", server) for column in application.server_columns}
    found = {}
    for span in application.spans:
        if application.reported and span.begin in ("before", "after") and client:  # one end is a stamp of the emulator
            found[span.name] = client / 1e9
        if span.begin.startswith(SERVICE) and server:  # cut to the server's time, by the emulator's clock
            found[span.name] = server / 1e9
        # The time held in the client runs from publishing to the emulator's stamp.
        begin, end = ("sent", "uplink_entered") if span.begin == "held" else (span.begin, span.end or span.begin)
        ends = {by_stamp.get(f"{stamp}_ns", ("emulator", 0)) for stamp in (begin, end)}
        if len(ends) > 1 and (total := sum(uncertain for _, uncertain in ends)):
            found[span.name] = total / 1e9
    return found


def _attach_packets(requests: pl.DataFrame, application: Description, streams: Streams) -> pl.DataFrame:
    """Add the server's node, the handshake's time, and for each way: when the request or reply entered its link and was
    completed; the queueing, delay and proxy time of the completing packet, and when it left; the times of sending and
    of retransmission until completion; of sending, the time the server had nothing to send (``downlink_paused_ns``)
    and the rest; and since when the reply waited behind other bytes (``downlink_ready_ns``).

    A reply waits while the server's TCP sends earlier bytes, unless these had arrived when the request was sent: then
    the connection was idle."""
    for way, moment in _WAYS.items():
        first, completing, original, opened, accepted, busy, before = np.full((7, len(requests)), NEVER, np.int64)
        pauses = np.zeros(len(requests), np.int64)
        tls_first, tls_completing = np.full((2, len(requests)), NEVER, np.int64)
        for connection, part in _on_connections(requests, application, streams, way, moment):
            rows, start, end = (part[name].to_numpy() for name in ("row", f"{way}_start", f"{way}_end"))
            first[rows] = connection.entry(start)
            busy[rows], before[rows] = connection.busy_since(start), connection.completion(start)
            completing[rows], original[rows] = connection.completion(end), connection.original_of(end)
            pauses[rows] = connection.pauses(start, end)
            opened[rows], accepted[rows] = connection.opened, connection.accepted
            if f"tls_{way}_end" in part.columns:
                shaken = part[f"tls_{way}_end"].fill_null(0).to_numpy()
                tls_first[rows] = connection.entry(np.minimum(shaken - 1, 0))
                tls_completing[rows] = connection.completion(shaken)
        # If the service moved meanwhile, the node that replied served the request.
        ends = streams.crossings.destination if way == "uplink" else streams.crossings.source
        names = [streams.crossings.vertices.get(vertex) for vertex in _pick(ends.astype(np.int64), first)]
        destined = ["server"] if way == "downlink" else []
        requests = requests.with_columns(server=pl.coalesce(pl.Series(names, dtype=pl.String), *destined))
        passages, entered, completed = streams.crossings, pl.col(f"{way}_entered_ns"), pl.col(f"{way}_completed_ns")
        lost = pl.max_horizontal(_pick(streams.crossings.entered, original), entered)
        resent = pl.when(completed.is_not_null()).then(completed - lost)
        requests = requests.with_columns(
            _pick(passages.entered, first).alias(f"{way}_entered_ns"),
            _pick(passages.entered, completing).alias(f"{way}_completed_ns"),
            _pick(passages.queued, completing).alias(f"{way}_queued_ns"),
            _pick(passages.delayed, completing).alias(f"{way}_delayed_ns"),
            _pick(passages.proxied, completing).alias(f"{way}_proxied_ns"),
            _pick(passages.left, completing).alias(f"{way}_left_ns"),
            *(
                pl.Series(f"{way}_{name}_ns", values).replace(NEVER, None)
                for name, values in (("opened", opened), ("accepted", accepted))
            ),
        ).with_columns(resent.alias(f"{way}_resent_ns"), (completed - entered - resent).alias(f"{way}_sending_ns"))
        if f"tls_{way}_end" in requests.columns:
            requests = requests.with_columns(
                _pick(passages.entered, tls_first).alias(f"tls_{way}_entered_ns"),
                _pick(passages.left, tls_completing).alias(f"tls_{way}_left_ns"),
            )
    sending = pl.col("downlink_sending_ns")
    paused = pl.when(sending.is_not_null()).then(pl.min_horizontal(pl.Series(pauses), sending))
    requests = requests.with_columns(downlink_paused_ns=paused, downlink_flowing_ns=sending - paused)
    entered, arrived = pl.col("downlink_entered_ns"), _pick(streams.crossings.left, before)
    requests = requests.with_columns(
        downlink_ready_ns=pl.when(pl.Series(arrived) <= pl.col("sent_ns"))
        .then(entered)
        .otherwise(pl.min_horizontal(entered, pl.max_horizontal("uplink_left_ns", pl.Series(busy))))
    )
    return _handshake(requests) if "opening_ns" in requests.columns else requests


def _handshake(requests: pl.DataFrame) -> pl.DataFrame:
    """Divide the time from ``opening_ns`` to ``sent_ns``: add the time of the TCP and TLS handshakes on each way and at
    the remote node, and the rest. The handshake takes 0 if the connection was already open, and only its remaining
    time if an earlier request began to open the connection."""
    tcp = ("uplink_opened_ns", "uplink_accepted_ns", "downlink_opened_ns", "downlink_accepted_ns")
    tls = ("tls_uplink_entered_ns", "tls_uplink_left_ns", "tls_downlink_entered_ns", "tls_downlink_left_ns")
    ways = ("connect_up_ns", "connect_remote_ns", "connect_down_ns")

    def took(stamps: tuple[str, ...]) -> list[pl.Expr]:
        since = [pl.when(pl.col(each).is_not_null()).then(pl.max_horizontal(each, "opening_ns")) for each in stamps]
        return [end - begin for begin, end in itertools.pairwise(since)]

    taken = took(tcp)
    if tls[0] in requests.columns:
        clear = pl.col("tls_uplink_end") == 0
        later = [pl.when(clear).then(0).otherwise(time) for time in took(tls)]
        taken = [first + second for first, second in zip(taken, later, strict=True)]
    was_open = pl.col("opening_ns") == pl.col("sent_ns")
    return requests.with_columns(
        pl.when(was_open).then(0).otherwise(time).alias(name) for name, time in zip(ways, taken, strict=True)
    ).with_columns(
        connect_rest_ns=pl.col("sent_ns") - pl.col("opening_ns") - pl.sum_horizontal(*ways, ignore_nulls=False)
    )


def _messages(application: Description, recorded: pl.DataFrame, streams: Streams, t0_ns: int | None) -> pl.DataFrame:
    """Return the messages of streamed replies, one row each, by arrival.

    ``between_messages_s``: time since the previous message of the reply; ``server_s``: part of this time in which the
    server had nothing to send; ``downlink_s``: from the entry of the message's first byte into the downlink until the
    complete message left; ``receive_s``: until the client received the message. Null if unknown.
    """
    first, completing = np.full((2, len(recorded)), NEVER, np.int64)
    paused = np.zeros(len(recorded), np.int64)
    for connection, part in _on_connections(recorded, application, streams, "downlink", "received_ns"):
        rows, start, end = (part[name].to_numpy() for name in ("row", "downlink_start", "downlink_end"))
        first[rows], completing[rows] = connection.entry(start), connection.completion(end)
        paused[rows] = connection.pauses(np.zeros_like(start), start + 1)
    left = _pick(streams.crossings.left, completing)
    reply = ("endpoint", "local_port", "request")
    return (
        recorded.with_columns(
            app=pl.lit(application.name),
            entered_ns=_pick(streams.crossings.entered, first),
            left_ns=left,
            paused=pl.Series(paused),
        )
        .select(
            *("app", "endpoint", "request", "message", "bytes", "received_ns", "entered_ns", "left_ns"),
            received_s=_seconds(pl.col("received_ns") - (t0_ns or 0)),
            between_messages_s=_seconds(pl.col("received_ns").diff().over(reply, order_by="message")),
            server_s=_seconds(
                pl.when(pl.col("entered_ns").is_not_null()).then(
                    pl.col("paused").diff().over(reply, order_by="message")
                )
            ),
            downlink_s=_seconds(pl.col("left_ns") - pl.col("entered_ns")),
            receive_s=_seconds(pl.col("received_ns") - pl.col("left_ns")),
        )
        .sort("received_ns")
    )


def _on_connections(
    table: pl.DataFrame, application: Description, streams: Streams, way: str, moment: str
) -> Iterator[tuple[Connection, pl.DataFrame]]:
    """Yield each connection of an application with the rows that it carried one way, numbered in ``row``.

    moment: a stamp at which the row's connection was open."""
    servers_of = {client: application.servers_of(index) for index, client in enumerate(application.clients)}
    to_another = way == "downlink" and "receiver_port" in table.columns
    ends = [*(("receiver", "receiver_port") if to_another else ("endpoint", "local_port")), "remote_port"]
    known = table.with_row_index("row").drop_nulls([*ends, f"{way}_start", f"{way}_end", moment])
    for (endpoint, local, remote), group in known.group_by(ends):
        node, peers = str(endpoint), servers_of.get(str(endpoint), ())
        connections = streams.connections(node, _port(local), _port(remote), peers, arriving=way == "downlink")
        yield from _join_connections(group, connections, moment)


def _join_connections(
    group: pl.DataFrame, connections: list[Connection], moment: str
) -> list[tuple[Connection, pl.DataFrame]]:
    """Return each request with the connection open at its `moment`: the last connection opened before."""
    if not connections:
        return []
    opened = np.array([connection.opened for connection in connections])
    index = np.searchsorted(opened, group[moment].to_numpy(), side="right") - 1
    return [(connections[i], group.filter(pl.Series(index == i))) for i in np.unique(index[index >= 0])]


def _pick(values: np.ndarray[Any, np.dtype[np.int64]], index: np.ndarray[Any, np.dtype[np.int64]]) -> pl.Series:
    """Return ``values[index]``, null for the index NEVER."""
    found = index != NEVER
    picked = np.zeros(len(index), np.int64)
    picked[found] = values[index[found]]
    return pl.Series(picked).set(pl.Series(~found), None)


def _port(value: object) -> int:
    return int(str(value))
