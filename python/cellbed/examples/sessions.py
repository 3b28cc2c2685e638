"""A service with state: values by key over HTTP, which move with it to another node (docs/reference/state.md).

PUT /KEY stores the body, GET /KEY returns it. With a number of bytes as the second argument it begins with so much.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from state import State

PIECE = 1 << 20


class Sessions(State):
    """Values by key. changed: keys since the last round."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.values = {f"fill-{i}": bytes([i % 251]) * PIECE for i in range(size // PIECE)}
        self.changed: set[str] = set()

    def save(self, everything: bool):
        with self.lock:
            keys, self.changed = set(self.values) if everything else self.changed, set()
        for key in keys:
            yield key.encode() + b"\0" + self.values[key]

    def load(self, part: bytes) -> None:
        key, _, value = part.partition(b"\0")
        self.values[key.decode()] = value


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        """Store a value."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with sessions.lock:
            sessions.values[self.path[1:]] = body
            sessions.changed.add(self.path[1:])
            self._reply(b"")

    def do_GET(self) -> None:
        """Return a value."""
        with sessions.lock:
            self._reply(sessions.values.get(self.path[1:], b""))

    def _reply(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


sessions = Sessions(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
with ThreadingHTTPServer(("", int(sys.argv[1])), Handler) as server:
    sessions.announce()
    server.serve_forever()
