"""The programs of transfers, and the parts of a transfer."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from cellbed.runformat.description import Caution, Description, Measure, Timed
from cellbed.runformat.records import SERVICES, ColumnType
from cellbed.runformat.spans import DATAGRAM_UPLINK, DOWNLINK, SERVER, UPLINK, Span
from cellbed.support.units import SIZE
from cellbed.testbed.machine import certificates
from cellbed.testbed.machine.process import Process
from cellbed.workloads.http import kind as http
from cellbed.workloads.kind import Deployment
from cellbed.workloads.transfers.table import Transfers

PORT = 5301
"""Port of the server of a run's first application; later applications have the next ports."""


def settings(deployment: Deployment, raw: Path, index: int, seed: int) -> dict[str, Any]:
    """Return the configuration of client `index` (:class:`cellbed_node.transfers.flows.Settings`)."""
    table: Transfers = deployment.table
    return deployment.load(raw, index, seed) | {
        "protocol": table.protocol,
        "host": deployment.address(deployment.servers[index % len(deployment.servers)]),
        "port": PORT + deployment.number,
        "client": index,
        "transfers": [
            (way, size, _name(table, way, size))
            for way, size in table.transfers(Random(f"{seed} {deployment.name} {index}"))
        ],
        "bit_rate": table.bit_rate,
        "authorities": deployment.authorities if table.protocol == "quic" else None,
    }


def _name(table: Transfers, way: str, size: int) -> str:
    """Return the name of a transfer in reports: its size, or the next power of ten for a drawn size."""
    return f"{way} to {SIZE.format(10 ** len(str(size - 1)))}" if table.distributions else f"{way} {SIZE.format(size)}"


def processes(deployment: Deployment, raw: Path, *, cache: Path, seed: int) -> list[Process]:
    """Return a server on each server's node and a load generator on each client's."""
    table: Transfers = deployment.table
    started = []
    for node in deployment.servers:
        config = {"protocol": table.protocol, "address": deployment.listening(node), "port": PORT + deployment.number}
        if table.protocol == "quic":
            config["record"] = str(deployment.file(raw, node, SERVICES))
            folder = Path(str(deployment.authorities)).parent / deployment.name
            config |= {Path(file).stem: str(folder / file) for file in certificates.FILES}
        started.append(deployment.program("server", "cellbed_node.transfers.server", node, raw, config))
    return [*started, *deployment.load_generators("load", "cellbed_node.transfers.load", raw, seed, settings)]


# fmt: off
_GENERATOR = Span("generator", "endpoint", "Generator", "generator",
                  "intended time → the generator begins the transfer", "intended", "sent")
_RECEIVE = Span("endpoint_receive", "endpoint", "Endpoint receive", "receive",
                "the last datagram left the network → read by the client", "downlink_left", "reply")
_SENDING = replace(UPLINK[2], meaning="first datagram → the last one, which is answered, enters the uplink")
_UDP = (
    _GENERATOR,
    DATAGRAM_UPLINK[0],
    _SENDING,
    *DATAGRAM_UPLINK[1:],
    SERVER,
    replace(DOWNLINK[0], meaning="first datagram → the last one enters the downlink"),
    *DOWNLINK[2:],
    _RECEIVE,
)
_QUIC = (
    replace(_GENERATOR, end="opening"),
    Span("handshake_uplink", "uplink", "Handshake, first packet", "handshake",
         "the connection begins to open → its first packet is read by the server", "opening", "reached"),
    Span("handshake_downlink", "downlink", "Handshake, rest", "handshake",
         "read by the server → the handshake is complete at the client", "reached", "sent"),
    Span("request", "uplink", "Request and upload", "request",
         "the handshake is complete → all of the request is read by the server", "sent", "asked"),
    Span("reply", "downlink", "Download and reply", "reply",
         "the request is read by the server → all of the reply is read by the client", "asked", "reply"),
)
# fmt: on
_SLOW = Caution("QUIC is a program in Python here: above about 40 Mbit/s it limits the rate, not the network.")
_MEASURES = (
    Measure("effective_throughput_mbit_s", "effective throughput", "Mbit/s"),
    Measure("overhead_bytes", "overhead", "B"),
    Measure("retransmitted", "packets sent again", ""),
)
_OF_DATAGRAMS = (
    Measure("datagrams_lost", "datagrams lost", ""),
    Measure("datagrams_reordered", "datagrams out of order", ""),
    Measure("jitter_s", "jitter", "s"),
)


def describe(table: Mapping[str, Any]) -> Description:
    """Return the description of transfers, each over a new connection."""
    protocol = str(table.get("protocol", "tcp"))
    columns: dict[str, ColumnType] = {"step": "text"}
    server: dict[str, ColumnType] = {}
    measures: tuple[Measure, ...] = _MEASURES
    match protocol:
        case "udp":
            spans = _UDP
            of = ("datagrams", "datagrams_lost", "datagrams_reordered", "jitter_us")
            columns |= dict.fromkeys(of, "integer")
            measures = (*_MEASURES[:2], *_OF_DATAGRAMS)
        case "quic":
            spans = _QUIC
            columns |= {"opening_ns": "integer", "packets_lost": "integer"}
            server = {"reached_ns": "integer", "asked_ns": "integer", "server_packets_lost": "integer"}
        case _:
            spans = tuple(span for span in http.SPANS if span.name != "downlink_wait")
            columns |= dict.fromkeys(("opening_ns", "first_byte_ns"), "integer")
    return Timed(
        kind="transfers",
        title=f"transfers over {protocol.upper()}",
        spans=spans,
        client_columns=columns,
        server_columns=server,
        measures=measures,
        cautions=(_SLOW,) if protocol == "quic" else (),
        own_connections=True,
    )
