"""An addon of mitmproxy that writes each exchange as a line of JSON into the file that :data:`FILE` names.

mitmproxy runs it with its own Python, which does not have cellbed.
"""

import base64
import json
import os
from typing import Any

FILE = "CELLBED_TAP"
"""Environment variable."""


class Tap:
    """The addon: mitmproxy calls its methods, by their names, with a flow."""

    def __init__(self) -> None:
        to = os.open(os.environ[FILE], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = os.fdopen(to, "a", encoding="ascii", buffering=1)

    def response(self, flow: Any) -> None:
        """Write an exchange that is complete, with the body as it was transferred."""
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
        """Write a request that had no reply."""
        self._write({"url": flow.request.pretty_url, "error": flow.error.msg})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")


def _headers(message: Any) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message.headers.fields]


if FILE in os.environ:
    addons = [Tap()]
