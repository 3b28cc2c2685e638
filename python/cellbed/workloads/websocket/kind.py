"""Messages to an unmodified WebSocket server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cellbed.runformat.description import Description, Measure, Timed
from cellbed.runformat.records import MESSAGES
from cellbed.testbed.machine.process import Process
from cellbed.testbed.programs.unmodified import Command
from cellbed.workloads.http import kind as http
from cellbed.workloads.kind import Deployment
from cellbed.workloads.program.kind import port_of
from cellbed.workloads.websocket.table import Websocket


def processes(deployment: Deployment, raw: Path, *, cache: Path, seed: int) -> list[Process | Command]:
    """Return the user's servers, if any, and the load generators of the clients."""
    return http.loaded(deployment, raw, seed, "cellbed_node.websocket.load", settings)


def settings(deployment: Deployment, raw: Path, index: int, seed: int) -> dict[str, Any]:
    """Return the configuration of client `index` (:class:`cellbed_node.websocket.load.Settings`)."""
    table: Websocket = deployment.table
    return {
        **http.connecting(deployment, raw, index, seed),
        "stream": "chunks",
        "messages": str(deployment.file(raw, deployment.clients[index], MESSAGES)),
        "content": table.message,
        "size": table.size,
        "reply": table.reply,
    }


def describe(table: Mapping[str, Any]) -> Description:
    """Return the description: messages go to the server, and replies return."""
    url = str(table.get("url", ""))
    described = http.describe({"url": url.replace("ws", "http", 1), "stream": "chunks", "version": "2"})
    return Timed(
        kind="websocket",
        title=f"WebSocket{' over TLS' * url.startswith('wss:')} {urlsplit(url).path or '/'}",
        spans=described.spans,
        client_columns={name: kind for name, kind in described.client_columns.items() if name != "code"},
        measures=(
            Measure("bytes_up", "message sent", "B"),
            Measure("bytes_down", "reply received", "B"),
            Measure("between_messages_s", "between messages other than replies", "s"),
        ),
        ports=(port,) if (port := port_of(url)) is not None else (),
    )
