"""Requests: the stamps of programs and packets joined, one row per request with the parts of its latency."""

import contextlib
import ctypes
import itertools
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed.measure.connections import read_connections, read_groups
from cellbed.measure.packets import Crossings, Integers, places
from cellbed.measure.pages import add_paths
from cellbed.measure.relayed import add_relayed
from cellbed.measure.reported import attach
from cellbed.measure.run_folder import MeasureError, applications_of, clocks, read_records
from cellbed.measure.services import attach_services, divide_waits
from cellbed.measure.streams import ENDS, NEVER, Streams
from cellbed.measure.telemetry import Traced, add_times, read_traces
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
_UNKNOWN = np.iinfo(np.int64).min


def read_requests(run: Path, description: dict[str, Any]) -> tuple[dict[str, pl.DataFrame], list[str]]:
    """Return the tables ``requests``, ``messages``, ``traces`` (see :meth:`Records.read`) and ``connections``
    (:func:`~cellbed.measure.connections.read_connections`) of a run, and warnings. Memory holds only a group of the
    connections' packets. description: the content of ``run.json``."""
    records, traced = Records(run, description), read_traces(run, description)

    def groups() -> Iterator[Crossings]:
        with ThreadPoolExecutor(1) as adder:  # on a second processor
            for packets in read_groups(run, description, undivided=records.undivided):
                added = adder.submit(records.add, packets)
                yield packets
                added.result()
                del packets, added
                release_memory()

    release_memory()
    connections = read_connections(run, description, groups=groups())
    requests, messages, traces = records.read(connections, traced)
    return {
        "requests": requests,
        "connections": connections,
        "messages": messages,
        "traces": traces,
    }, traced.warnings


def release_memory() -> None:
    """Have the C library return freed memory to the system: it else keeps the arrays of a large run's packets."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


class Records:
    """The records of all applications of a run, and the packets of their requests (:meth:`add`)."""

    def __init__(self, run: Path, description: dict[str, Any]) -> None:
        """run: its folder; description: the content of ``run.json``."""
        self._run, self._description = run, description
        self._ahead = {node: offset for node, (offset, _) in clocks(description).items()}
        applications, raw = applications_of(description) or [_NONE], run / "raw"
        schema = schema_for(MESSAGE)
        self.requests = [_Carriage(_read_records(raw, each, self._ahead), each, _WAYS) for each in applications]
        self.messages = [
            _Carriage(read_records(raw, each.name, MESSAGES, schema, self._ahead), each, {"downlink": "received_ns"})
            for each in applications
        ]
        known = [each.table["remote_port"].drop_nulls().unique() for each in (*self.requests, *self.messages)]
        self._ports = pl.concat(known).unique().to_numpy()
        self.undivided = any(isinstance(each, Timed) and each.relayed for each in applications)
        """True if all connections must be in one group: a relay passes datagrams from one to another."""

    def add(self, passed: Crossings) -> None:
        """Process the packets of a group of connections, by entry."""
        own = np.isin(passed.source_port, self._ports) | np.isin(passed.destination_port, self._ports)
        if own.any():
            streams = Streams(passed if own.all() else passed.take(np.flatnonzero(own)), places(self._description))
            for each in (*self.requests, *self.messages):
                if not (each.application.reported or each.table.is_empty()):
                    each.add(streams)

    def read(self, connections: pl.DataFrame, traced: Traced) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Return the requests of all applications, the messages of streamed replies, and the table of traces
        (:data:`~cellbed.measure.telemetry.TRACES`). All packets have been processed.

        connections: the table of :func:`~cellbed.measure.connections.read_connections`; traced: spans of OpenTelemetry.

        Requests: one row each, by intended time. Columns: ``app``, the stamps (``*_ns``, this machine's
        CLOCK_MONOTONIC), columns that the applications declare, ``intended_s`` (since the start of the schedule),
        ``latency_s`` (reply − intended; null without a good reply), ``part_<name>`` in seconds, ``residual_s`` =
        latency − Σ parts. Missing values are null, as are columns that only another application declares. Messages:
        see :func:`_messages`.
        """
        description, raw, ahead = self._description, self._run / "raw", self._ahead
        t0 = description.get("t0_ns")
        inside = traced.tree.filter(hop=1).select("app", "endpoint", "request", "begin_ns", "end_ns", span="part")
        tables, timings = [], []
        measured: dict[str, pl.DataFrame] = {}
        whole: list[tuple[Composed, pl.DataFrame]] = []
        for carriage in self.requests:
            application = carriage.application
            if application.reported:
                continue
            attached = _attach_packets(carriage)
            own = inside.filter(app=application.name).drop("app")
            attached = attach_services(attached, raw, application, ahead, own)
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
        messages = pl.concat([_messages(each, t0) for each in self.messages])
        recorded = [(each.application, each.table) for each in self.requests]
        if any(application.reported or application.traced for application, _ in recorded):
            reported, calls = _join_packets(recorded, connections, traced, raw, ahead)
            for application, table in reported:
                tables.append(_measure(application, _assign_servers(application, table, description), t0))
            timings.append(add_times(calls))
        traces = traced.table(*timings)
        requests = pl.concat(tables, how="diagonal_relaxed")
        if len(recorded) > 1 or recorded[0][0].reported:  # else sorted
            tables.clear()
            measured.clear()
            requests = sort_table(requests, "intended_ns", "app", "endpoint", "request")
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
    joined = read_records(raw, application.name, REQUESTS, schema_for(REQUEST | own), ahead).unnest("tcp")
    if server:
        service = read_records(raw, application.name, SERVICES, schema_for(SERVED | server), ahead)
        # A request may be served twice if the transport retransmits it; the first service produced the reply.
        first = next(iter(server))
        service = service.sort(first).unique(["endpoint", "request"], keep="first")
        joined = joined.join(service, on=["endpoint", "request"], how="left")
    joined = sort_table(joined, "intended_ns", "endpoint", "request")
    # A column of a literal takes no memory.
    empty = [name for name in joined.columns if 0 < len(joined) == joined[name].null_count()]
    joined = joined.with_columns(pl.lit(None, joined.schema[name]).alias(name) for name in empty)
    return joined.select(pl.lit(application.name).alias("app"), pl.all())


def sort_table(table: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Sort a table, which loses its columns, without a second copy of all columns."""
    order = table.select(pl.arg_sort_by(*columns, maintain_order=True)).to_series()
    return pl.DataFrame([table.drop_in_place(name).gather(order) for name in table.columns])


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
    clock_us, ends = pl.col("receive_window_limited_us"), ["endpoint", "local_port"]
    known = requests.select(*ends, "sent_ns", "uplink_entered_ns", clock_us).with_row_index("row").drop_nulls()
    grown = known.filter((clock_us.max() > clock_us.min()).over(ends))
    for _, group in grown.sort("sent_ns").group_by(ends, maintain_order=True):
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


class _Carriage:
    """The packets that carried the requests of an application, or the messages of its streamed replies.

    values: by name, a figure per row of `table`: a time, ns, a vertex, or _UNKNOWN. The packet log is read by groups of
    connections (:meth:`add`), so that memory holds only one group. moments: by way, a stamp at which the row's
    connection was open.
    """

    def __init__(self, table: pl.DataFrame, application: Description, moments: Mapping[str, str]) -> None:
        self.table, self.application, self._moments = table, application, moments
        self.values: dict[str, NDArray[np.int64]] = {}
        self.vertices: dict[int, str] = {}
        self._ends = {way: self._group(way) for way in moments}

    def _columns(self, way: str) -> list[str]:
        to_another = way == "downlink" and "receiver_port" in self.table.columns
        return [*(("receiver", "receiver_port") if to_another else ("endpoint", "local_port")), "remote_port"]

    def _group(self, way: str) -> pl.DataFrame:
        """Return the rows that may be found one way, by the ends of their connection."""
        columns = self._columns(way)
        known = self.table.lazy().select(*columns, f"{way}_start", f"{way}_end", self._moments[way])
        known = known.with_row_index("row").drop_nulls()
        return known.select("row", **dict(zip(ENDS, columns, strict=True))).group_by(ENDS).agg("row").collect()

    def take(self, name: str) -> pl.Series | pl.Expr:
        """Remove a figure, and return it as a column, null if unknown."""
        values = pl.Series(self.values.pop(name, np.empty(0, np.int64)))
        unknown = values == _UNKNOWN
        return pl.lit(None, pl.Int64) if unknown.all() else values.set(unknown, None)

    def add(self, streams: Streams) -> None:
        """Process a group of connections."""
        self.vertices |= streams.crossings.vertices
        if isinstance(self.application, Timed) and self.application.relayed:  # then there is one group
            self.table = add_relayed(self.table, self.application, streams)
            self._ends = {way: self._group(way) for way in self._moments}
        clients = self.application.clients
        peers = {client: self.application.servers_of(index) for index, client in enumerate(clients)}
        for way, moment in self._moments.items():
            towards = way == "downlink"
            wanted = self._ends[way].join(streams.ends(towards=towards), on=ENDS, how="semi").explode("row")
            rows = wanted["row"].to_numpy()
            columns = [moment, f"{way}_start", f"{way}_end", f"tls_{way}_end"]
            its = self.table.select(each for each in columns if each in self.table.columns)[rows]
            stream = streams.find(wanted.select(*ENDS, moment=its[moment]), peers, towards=towards)
            # Another group may have a connection between the same ports that was opened later.
            latest = self.values.setdefault(f"{way}_since", np.full(len(self.table), _UNKNOWN))
            kept = (stream != NEVER) & (np.r_[streams.opened, NEVER][stream] >= latest[rows])
            rows, stream, its = rows[kept], stream[kept], its.filter(pl.Series(kept, dtype=pl.Boolean))
            latest[rows] = streams.opened[stream]
            for name, values in _figures(streams, stream, way, its).items():
                self.values.setdefault(f"{way}_{name}", np.full(len(self.table), _UNKNOWN))[rows] = values


def _figures(streams: Streams, stream: Integers, way: str, its: pl.DataFrame) -> dict[str, Integers]:
    """Return figures of messages by name. its: numbers of their first and last byte, and end of the TLS handshake."""
    passed = streams.crossings
    start, end = (its[f"{way}_{name}"].to_numpy() for name in ("start", "end"))
    first, completing = streams.entry(stream, start), streams.completion(stream, end)
    original, zero = streams.original_of(stream, end), np.zeros_like(start)
    found = {
        "entered": _pick(passed.entered, first),
        "completed": _pick(passed.entered, completing),
        "queued": _pick(passed.queued, completing),
        "delayed": _pick(passed.delayed, completing),
        "proxied": _pick(passed.proxied, completing),
        "left": _pick(passed.left, completing),
        "lost": _pick(passed.entered, original),
        "server": _pick((passed.destination if way == "uplink" else passed.source).astype(np.int64), first),
        "opened": np.where(streams.opened[stream] == NEVER, _UNKNOWN, streams.opened[stream]),
        "accepted": np.where(streams.accepted[stream] == NEVER, _UNKNOWN, streams.accepted[stream]),
    }
    if way == "downlink":
        found |= {
            "busy": streams.busy_since(stream, start),
            "before": _pick(passed.left, streams.completion(stream, start)),
            "pauses": streams.pauses(stream, start, end),
            "paused": streams.pauses(stream, zero, start + 1),
        }
    if f"tls_{way}_end" in its.columns:
        shaken = its[f"tls_{way}_end"].fill_null(0).to_numpy()
        found["tls_entered"] = _pick(passed.entered, streams.entry(stream, np.minimum(shaken - 1, 0)))
        found["tls_left"] = _pick(passed.left, streams.completion(stream, shaken))
    return found


def _pick(values: Integers, index: Integers) -> Integers:
    """Return ``values[index]``, _UNKNOWN for the index NEVER."""
    return np.where(index == NEVER, _UNKNOWN, values[index]) if len(values) else np.full(len(index), _UNKNOWN)


def _attach_packets(carriage: _Carriage) -> pl.DataFrame:
    """Add the server's node, the handshake's time, and for each way: when the request or reply entered its link and was
    completed; the queueing, delay and proxy time of the completing packet, and when it left; the times of sending and
    of retransmission until completion; of sending, the time the server had nothing to send (``downlink_paused_ns``)
    and the rest; and since when the reply waited behind other bytes (``downlink_ready_ns``).

    A reply waits while the server's TCP sends earlier bytes, unless these had arrived when the request was sent: then
    the connection was idle."""
    requests = carriage.table
    for way in _WAYS:
        # If the service moved meanwhile, the node that replied served the request.
        vertices = carriage.take(f"{way}_server")
        names = vertices.replace_strict(carriage.vertices, default=None, return_dtype=pl.String)
        requests = requests.with_columns(server=pl.coalesce(names, *(["server"] if way == "downlink" else [])))
        columns = ["entered", "completed", "queued", "delayed", "proxied", "left", "opened", "accepted"]
        columns += ["tls_entered", "tls_left"] if f"tls_{way}_end" in requests.columns else []
        requests = requests.with_columns(carriage.take(f"{way}_{name}").alias(_stamp(way, name)) for name in columns)
        entered, completed = pl.col(f"{way}_entered_ns"), pl.col(f"{way}_completed_ns")
        lost = pl.max_horizontal(carriage.take(f"{way}_lost"), entered)
        resent = pl.when(completed.is_not_null()).then(completed - lost)
        requests = requests.with_columns(resent.alias(f"{way}_resent_ns")).with_columns(
            (completed - entered - pl.col(f"{way}_resent_ns")).alias(f"{way}_sending_ns")
        )
    sending, entered = pl.col("downlink_sending_ns"), pl.col("downlink_entered_ns")
    pauses, busy = carriage.take("downlink_pauses").fill_null(0), carriage.take("downlink_busy").fill_null(NEVER)
    paused = pl.when(sending.is_not_null()).then(pl.min_horizontal(pauses, sending))
    requests = requests.with_columns(
        downlink_paused_ns=paused,
        downlink_flowing_ns=sending - paused,
        downlink_ready_ns=pl.when(carriage.take("downlink_before") <= pl.col("sent_ns"))
        .then(entered)
        .otherwise(pl.min_horizontal(entered, pl.max_horizontal("uplink_left_ns", busy))),
    )
    carriage.values.clear()
    return _handshake(requests) if "opening_ns" in requests.columns else requests


def _stamp(way: str, name: str) -> str:
    """Return the column of a stamp, such as ``tls_uplink_left_ns``."""
    return f"tls_{way}_{name.removeprefix('tls_')}_ns" if name.startswith("tls_") else f"{way}_{name}_ns"


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


def _messages(carriage: _Carriage, t0_ns: int | None) -> pl.DataFrame:
    """Return the messages of streamed replies, one row each, by arrival.

    ``between_messages_s``: time since the previous message of the reply; ``server_s``: part of this time in which the
    server had nothing to send; ``downlink_s``: from the entry of the message's first byte into the downlink until the
    complete message left; ``receive_s``: until the client received the message. Null if unknown.
    """
    reply = ("endpoint", "local_port", "request")
    return (
        carriage.table.with_columns(
            app=pl.lit(carriage.application.name),
            entered_ns=carriage.take("downlink_entered"),
            left_ns=carriage.take("downlink_left"),
            paused=carriage.take("downlink_paused").fill_null(0),
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
