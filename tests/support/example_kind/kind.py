"""The kind: its table, its programs, and the spans of its requests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cellbed.runformat.description import Description
from cellbed.runformat.spans import DATAGRAM_DOWNLINK, DATAGRAM_UPLINK, SERVER, Span
from cellbed.scenario.applications import Load
from cellbed.testbed.machine.process import Process
from cellbed.workloads.kind import Deployment

PORT = 7


class Echo(Load):
    """Datagrams that a server sends back."""

    kind: Literal["echo"]
    size: int = Field(200, ge=8, le=1400, description="Length of a datagram, bytes.")


def settings(deployment: Deployment, raw: Path, index: int, seed: int) -> dict[str, Any]:
    """Return the configuration of client `index` (:class:`example_kind.load.Settings`)."""
    host = deployment.address(deployment.servers[index % len(deployment.servers)])
    return deployment.load(raw, index, seed) | {"host": host, "port": PORT, "size": deployment.table.size}


def processes(deployment: Deployment, raw: Path, *, cache: Path, seed: int) -> list[Process]:
    """A server on each server's node and a load generator on each client's."""
    started = [
        deployment.program(
            "server", "example_kind.server", node, raw, {"address": deployment.listening(node), "port": PORT}
        )
        for node in deployment.servers
    ]
    return [*started, *deployment.load_generators("load", "example_kind.load", raw, seed, settings)]


def describe(table: Mapping[str, Any]) -> Description:
    """A datagram up, the server, a datagram down."""
    spans = (
        Span("generator", "endpoint", "Generator", "generator", "intended time → send called", "intended", "sent"),
        *DATAGRAM_UPLINK,
        SERVER,
        *DATAGRAM_DOWNLINK,
        Span("receive", "endpoint", "Receive", "receive", "reply left the network → read", "downlink_left", "reply"),
    )
    return Description("echo", f"echo of {table['size']} bytes", spans, {}, {}, ports=(PORT,))
