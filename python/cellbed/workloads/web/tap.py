"""An addon of mitmproxy that writes each exchange as a line of JSON into the file in the variable :data:`FILE`.

mitmproxy runs the addon with its own Python, which does not have cellbed.
"""

import asyncio
import base64
import json
import os
import socket
from pathlib import Path
from typing import Any

FILE, LISTENER = "CELLBED_TAP", "CELLBED_TAP_LISTENER"
"""Environment variables: path of the file, and descriptor of the socket at which mitmproxy listens."""
READY = ".ready"
"""Suffix of the file that marks mitmproxy as listening."""


class Tap:
    """The addon: mitmproxy calls its methods by name, with a flow."""

    def __init__(self) -> None:
        to = os.open(os.environ[FILE], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = os.fdopen(to, "a", encoding="ascii", buffering=1)

    def running(self) -> None:
        """Create the file that marks readiness."""
        Path(os.environ[FILE] + READY).touch()

    def response(self, flow: Any) -> None:
        """Write a complete exchange, with the body as transferred."""
        request, reply, server = flow.request, flow.response, flow.server_conn.peername
        self._write(
            {
                "method": request.method,
                "url": request.pretty_url,
                "request": _headers(request),
                "sent": base64.b64encode(request.raw_content or b"").decode(),
                "status": reply.status_code,
                "reason": reply.reason,
                "reply": _headers(reply),
                "body": base64.b64encode(reply.raw_content or b"").decode(),
                "address": server[0] if server else None,
                "port": server[1] if server else None,
                "at_s": request.timestamp_start,
            }
        )

    def error(self, flow: Any) -> None:
        """Write a request without a reply."""
        self._write({"url": flow.request.pretty_url, "error": flow.error.msg})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")


def _headers(message: Any) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message.headers.fields]


def _listen_at(descriptor: int) -> None:
    """Make mitmproxy listen at an inherited socket, as it has no option for that."""
    start = asyncio.start_server

    async def start_server(handle: Any, *_: Any, **options: Any) -> Any:
        return await start(handle, sock=socket.socket(fileno=os.dup(descriptor)), **options)

    asyncio.start_server = start_server  # type: ignore[assignment]


if FILE in os.environ:
    _listen_at(int(os.environ[LISTENER]))
    addons = [Tap()]
