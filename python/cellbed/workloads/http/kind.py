"""Requests to an unmodified HTTP server: open loop, over HTTP/1.1 or HTTP/2."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cellbed.runformat.description import Description, Measure, Timed, Traced
from cellbed.runformat.records import MESSAGES, ColumnType
from cellbed.runformat.spans import DOWNLINK, HANDSHAKE, SERVER, UPLINK, Span
from cellbed.testbed.machine.process import Process
from cellbed.testbed.programs.unmodified import Command
from cellbed.workloads.http.table import Http
from cellbed.workloads.kind import Configure, Deployment
from cellbed.workloads.program.kind import port_of, server_commands
from cellbed_node.templates import fill


def processes(deployment: Deployment, raw: Path, *, cache: Path, seed: int) -> list[Process | Command]:
    """Return the user's servers, if any, and the load generators of the clients."""
    return loaded(deployment, raw, seed, "cellbed_node.http.load", settings)


def loaded(deployment: Deployment, raw: Path, seed: int, module: str, configure: Configure) -> list[Process | Command]:
    """Return the user's servers, if any, and a load generator for each client. module: module of the load generator."""
    loads = deployment.load_generators("http-load", module, raw, seed, configure, ("authorities", "body_file"))
    return [*server_commands(deployment, raw, seed), *loads]


def settings(deployment: Deployment, raw: Path, index: int, seed: int) -> dict[str, Any]:
    """Return the configuration of client `index` (:class:`cellbed_node.http.load.Settings`)."""
    table: Http = deployment.table
    node, found = deployment.clients[index], connecting(deployment, raw, index, seed)
    values = found["values"]
    per_request = {}
    if table.chooses_server:
        per_request = {"hosts": [str(each.ipv4) for each in deployment.servers], "balance": table.balance}
    return {
        **found,
        **per_request,
        "version": table.version,
        "method": table.method if table.grpc is None else "POST",
        "target": found["target"] if table.grpc is None else f"/{table.grpc}",
        "body": fill(table.body, values),
        "body_file": str(table.body_file.absolute()) if table.body_file is not None else None,
        "body_size": table.body_size,
        "body_hex": table.body_hex,
        "grpc": table.messages if table.grpc is not None else 0,
        "stream": table.stream if table.grpc is None else "grpc",
        "messages": str(deployment.file(raw, node, MESSAGES)),
        "journeys": [journey.configuration() for journey in table.all_journeys()],
        "values": values if table.all_journeys() else {},
        "traced": deployment.name if table.telemetry else "",
    }


def connecting(deployment: Deployment, raw: Path, index: int, seed: int) -> dict[str, Any]:
    """Return the part of client `index`'s configuration that concerns connections, with the values of names in
    texts."""
    table, node, servers = deployment.table, deployment.clients[index], deployment.servers
    server = servers[index % len(servers)] if servers else None
    values = deployment.values(node, node, server, seed)
    url = urlsplit(fill(table.url, values))
    headers = {name: fill(value, values) for name, value in table.headers.items()}
    named = {name: value for name, value in headers.items() if name.lower() == "host"}
    return {
        **deployment.load(raw, index, seed),
        "hosts": [url.hostname],
        "port": port_of(url.geturl()),
        "authorities": deployment.authorities if url.scheme in ("https", "wss") else None,
        "authority": next(iter(named.values()), url.netloc),
        "target": (url.path or "/") + (f"?{url.query}" if url.query else ""),
        "headers": {name: value for name, value in headers.items() if name not in named},
        "connections": table.connections,
        "values": values,
    }


# fmt: off
_BEHIND = Span("downlink_wait", "downlink", "Waiting behind other replies", "waiting",
               "of streams on one connection: the server's TCP is busy with the bytes before → first byte of the reply "
               "enters the downlink", "downlink_ready", "downlink_entered")
_PAUSES = Span("server_pauses", "remote", "Server, pauses in the reply", "pauses",
               "the reply has begun, and the server's TCP has nothing to send", "downlink_paused")
_TRANSPORT = Span("downlink_transport", "downlink", "Transport", "transport",
                  "first byte → completing packet of the reply, without its retransmission and pauses of the server",
                  "downlink_flowing")
SPANS = (
    Span("generator", "endpoint", "Generator", "generator", "intended time → the generator takes up the request",
         "intended", "started"),
    Span("connection_wait", "endpoint", "Waiting for a connection", "connection",
         "all connections are busy: taken up → a connection is free, or begins to open for it", "started", "opening"),
    *HANDSHAKE,
    *UPLINK,
    SERVER,
    _BEHIND,
    _PAUSES,
    *(_TRANSPORT if span.name == _TRANSPORT.name else span for span in DOWNLINK),
    Span("endpoint_receive", "endpoint", "Endpoint receive", "receive", "reply left the network → complete at the "
         "client", "downlink_left", "reply"),
)
# fmt: on


def describe(table: Mapping[str, Any]) -> Description:
    """Return the description: requests wait for a connection and go to the server, and replies return."""
    url = urlsplit(str(table.get("url", "")))
    ends = ["tls_uplink_end", "tls_downlink_end"] if url.scheme == "https" else []
    names = ["opening_ns", "first_byte_ns", "order", "code", *ends]
    if str(table.get("version")) == "2":
        names += ["turn", "last", "stream_window", "connection_window", "most_streams"]
    columns: dict[str, ColumnType] = dict.fromkeys(names, "integer")
    what = f"{table.get('method', 'GET')} {url.path or '/'}"
    if journeys := [table["journey"]] if table.get("journey") else list((table.get("journeys") or {}).values()):
        columns |= {"step": "text", "journey": "integer", "taken": "text"}
        what = "a journey" if len(journeys) == 1 else f"{len(journeys)} journeys"
    measures = [Measure("bytes_up", "body sent", "B"), Measure("bytes_down", "body received", "B")]
    if table.get("stream") or table.get("grpc"):
        measures += [
            Measure("first_byte_s", "time to first byte", "s"),
            Measure("between_messages_s", "between messages", "s"),
        ]
    if table.get("grpc") is not None:
        what = f"gRPC {table['grpc']}"
    protocol = f"HTTP/{table.get('version', '1.1')}" + " over TLS" * bool(ends)
    return (Traced if table.get("telemetry") else Timed)(
        kind="http",
        title=f"{protocol}, {what}",
        spans=tuple(span for span in SPANS if span is not _BEHIND or str(table.get("version")) == "2"),
        client_columns=columns,
        measures=tuple(measures),
        ports=(port,) if (port := port_of(str(table.get("url", "")))) is not None else (),
    )
