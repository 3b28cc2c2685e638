"""The receiver of OpenTelemetry's spans: OTLP over HTTP with protobuf, on the loopback of nodes.

One process, in no control group of a node, serves the sockets of all nodes of this machine. The process only stores the
exports, which are read after the run. Run as ``python -m cellbed_node.receiver`` with a control socket as standard
input, which passes the sockets until it is closed. A node on another machine has its receiver there (:func:`main`).
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import selectors
import socket
import sys
import threading
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import h11

from cellbed_node import inputs
from cellbed_node.errors import printable
from cellbed_node.exports import HEADER, LARGEST_BODY, LARGEST_RECORD, SUFFIX
from cellbed_node.machine import clock_ahead

ADDRESS = ("127.0.0.1", 4318)
MOST_CONNECTIONS = 64
"""Maximum connections of a node at a time."""
READ_BYTES = 1 << 16
_LARGEST_MESSAGE = 1 << 16
MOST_REASONS = 16
"""Maximum number of different reasons for a node's losses."""
_IGNORED = ("/v1/metrics", "/v1/logs")
"""Paths of exports that are accepted and discarded."""
_FOREIGN = {b"PRI ": "they came by gRPC: use http/protobuf", b"\x16\x03": "they came over TLS: use http://"}
"""Protocols of unreadable exports, by their first bytes."""
FILES = {"record": SUFFIX, "lost": ".otlp-lost.json"}
"""Suffixes of the files of a receiver on another machine."""


@dataclass(slots=True, eq=False)
class _Node:
    """A node. record: file for bodies; written: its size in bytes. lost: number of exports not stored, by reason."""

    name: str
    record: IO[bytes]
    written: int = 0
    connections: int = 0
    lost: Counter[str] = field(default_factory=Counter)

    def lose(self, why: str) -> None:
        """Count an export that is not stored. why: may quote the program."""
        self.lost[why if why in self.lost or len(self.lost) < MOST_REASONS - 1 else "for other reasons"] += 1

    def store(self, body: bytes) -> int:
        """Store the body of an export; return the status of the reply."""
        if self.written + HEADER.size + len(body) > LARGEST_RECORD:
            self.lose(f"the record of the node has its maximum size, {LARGEST_RECORD >> 20} MiB")
            return 413
        try:
            self.record.write(HEADER.pack(len(body), time.monotonic_ns(), clock_ahead(time.CLOCK_REALTIME)) + body)
            self.record.flush()
        except OSError as error:
            self.lose(f"they cannot be written: {error.strerror}")
            return 500
        self.written += HEADER.size + len(body)
        return 200


class _Exporter:
    """A connection of an exporting program."""

    def __init__(self, connection: socket.socket, node: _Node) -> None:
        self.socket, self.node = connection, node
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 14)
        self._request: h11.Request | None = None
        self._body = bytearray()

    def read(self) -> bool:
        """Process received bytes; return whether the connection stays open."""
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        begins = self._protocol.trailing_data[0] == b"" and self._request is None
        try:
            if begins and (why := next((why for first, why in _FOREIGN.items() if data.startswith(first)), None)):
                self.node.lose(why)
                return False
            self._protocol.receive_data(data)
            return self._process()
        except h11.RemoteProtocolError:
            self.node.lose("they are not complete HTTP/1.1 requests")
            return False
        except (h11.LocalProtocolError, OSError):
            return False

    def _process(self) -> bool:
        while True:
            event = self._protocol.next_event()
            match event:
                case h11.Request():
                    self._request, self._body = event, bytearray()
                    if self._protocol.they_are_waiting_for_100_continue:
                        self._send(h11.InformationalResponse(status_code=100, headers=[]))
                case h11.Data():
                    self._body += event.data
                    if len(self._body) > LARGEST_BODY:
                        self.node.lose(f"a body is larger than {LARGEST_BODY >> 20} MiB")
                        self._reply(413)
                        return False
                case h11.EndOfMessage():
                    self._reply(self._take())
                    if self._protocol.our_state is not h11.DONE or self._protocol.their_state is not h11.DONE:
                        return False
                    self._protocol.start_next_cycle()
                case _:
                    return event is h11.NEED_DATA

    def _take(self) -> int:
        """Process the complete request; return the status of the reply."""
        assert self._request is not None
        headers = dict(self._request.headers)
        path = self._request.target.decode(errors="replace").partition("?")[0].rstrip("/") or "/"
        if self._request.method != b"POST":
            return 405
        if path in _IGNORED:
            return 200
        if path != "/v1/traces":
            self.node.lose(f"they came to {printable(path[:60], kept='')}, not to /v1/traces")
            return 404
        if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != b"application/x-protobuf":
            self.node.lose("they are not in protobuf (OTEL_EXPORTER_OTLP_PROTOCOL)")
            return 415
        body, coding = bytes(self._body), headers.get(b"content-encoding", b"identity").lower()
        if coding == b"gzip":
            try:
                body = gzip.GzipFile(fileobj=io.BytesIO(body)).read(LARGEST_BODY + 1)
            except (OSError, EOFError, zlib.error):
                self.node.lose("a body is damaged")
                return 400
            if len(body) > LARGEST_BODY:
                self.node.lose(f"a body is larger than {LARGEST_BODY >> 20} MiB")
                return 413
        elif coding != b"identity":
            self.node.lose("their compression is not gzip")
            return 415
        return self.node.store(body)

    def _reply(self, status: int) -> None:
        headers = [("Content-Type", "application/x-protobuf"), ("Content-Length", "0")]
        self._send(h11.Response(status_code=status, headers=headers))
        self._send(h11.EndOfMessage())

    def _send(self, event: Any) -> None:
        # A connection without other replies has room for this one in its buffer.
        self.socket.send(self._protocol.send(event) or b"", socket.MSG_NOSIGNAL)


def serve(control: socket.socket) -> dict[str, dict[str, int]]:
    """Serve until the control socket ends, and read what has arrived by then; return the losses of each node."""
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    nodes: list[_Node] = []
    ending = False
    while ready := selector.select(0 if ending else None):
        for key, _ in ready:
            what = key.data
            if what is None:
                message, descriptors, _, _ = socket.recv_fds(control, _LARGEST_MESSAGE, 1)
                if not message:
                    ending = True
                    selector.unregister(control)
                    continue
                asked = json.loads(message)
                nodes.append(_Node(asked["node"], Path(asked["file"]).open("ab")))  # noqa: SIM115 - until the end
                listener = socket.socket(fileno=descriptors[0])
                listener.setblocking(False)
                selector.register(listener, selectors.EVENT_READ, nodes[-1])
            elif isinstance(what, _Node):
                assert isinstance(key.fileobj, socket.socket)
                _accept(selector, key.fileobj, what)
            elif not what.read():
                selector.unregister(what.socket)
                what.socket.close()
                what.node.connections -= 1
    return {node.name: dict(node.lost) for node in nodes if node.lost}


def _accept(selector: selectors.BaseSelector, listener: socket.socket, node: _Node) -> None:
    with contextlib.suppress(OSError):
        connection, _ = listener.accept()
        if node.connections >= MOST_CONNECTIONS:
            node.lose(f"more than {MOST_CONNECTIONS} connections at a time")
            connection.close()
            return
        connection.setblocking(False)
        node.connections += 1
        selector.register(connection, selectors.EVENT_READ, _Exporter(connection, node))


def main(config: dict[str, str]) -> None:
    """Receive for one node on this machine, until the end of standard input. config: ``node``: its name; ``record``:
    file for bodies; ``lost``: file for losses."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with socket.create_server(ADDRESS, backlog=MOST_CONNECTIONS) as listener:
        message = json.dumps({"node": config["node"], "file": config["record"]}).encode()
        socket.send_fds(ours, [message], [listener.fileno()])

    def wait() -> None:
        sys.stdin.read()
        ours.shutdown(socket.SHUT_WR)

    threading.Thread(target=wait, daemon=True).start()
    print(json.dumps({"event": "ready"}), flush=True)
    lost = serve(theirs)
    Path(config["lost"]).write_text(json.dumps(lost), encoding="utf-8")


if __name__ == "__main__" and sys.argv[1:]:
    main(inputs.json_value(Path(sys.argv[-1])))
elif __name__ == "__main__":
    with socket.socket(fileno=os.dup(0)) as at, contextlib.suppress(OSError):  # the run was killed
        at.send(json.dumps(serve(at)).encode())
