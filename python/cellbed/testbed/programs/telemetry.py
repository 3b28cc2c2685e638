"""The receiver of OpenTelemetry's spans: OTLP over HTTP with protobuf, on the loopback of nodes.

One process of cellbed, in no control group of a node, serves the sockets of all nodes of this machine. It only stores
what it gets; :mod:`cellbed.measure.telemetry` reads it after the run. Run as ``python -m
cellbed.testbed.programs.telemetry`` with its control socket as standard input, from which it takes the sockets until
the end of that. A node that is another machine has a receiver of its own there (:func:`main`).
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import h11

from cellbed.runformat.telemetry import APPLICATION, HEADER, LARGEST_BODY, LARGEST_RECORD, SUFFIX
from cellbed.support import inputs
from cellbed.support.errors import printable
from cellbed.testbed.machine.process import Place, Process, ProgramError, kill, sockets_at
from cellbed.testbed.programs.pressure import clock_ahead

ADDRESS = ("127.0.0.1", 4318)
FLUSH_MS = 500
"""Interval of exports. Spans that a program has not exported when it is ended are lost."""
MOST_CONNECTIONS = 64
"""Of a node at the same time."""
READ_BYTES = 1 << 16
PATIENCE_S = 10.0
"""Time limit for storing the last exports at the end."""
_LARGEST_MESSAGE = 1 << 16
_FILES = {"record": SUFFIX, "lost": ".otlp-lost.json"}
"""Endings of the files of a receiver on another machine."""


class Telemetry:
    """The receiver of a run; it starts with the first node. raw: folder for what it stores."""

    def __init__(self, raw: Path, environment: Mapping[str, str]) -> None:
        """environment: of the process, beside this one's."""
        self._raw, self._environment = raw, environment
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._nodes: set[str] = set()

    @property
    def pids(self) -> list[int]:
        """The process on this machine, if there is one."""
        return [self._process.pid] if self._process is not None else []

    @property
    def used(self) -> bool:
        """Return whether there is a receiver."""
        return bool(self._nodes)

    def receiver_on(self, node: str) -> Process | None:
        """Return the program that receives on a node that is another machine; ``None`` if there is one already."""
        if node in self._nodes:
            return None
        self._nodes.add(node)
        files = {name: str((self._raw / f"{node}{suffix}").absolute()) for name, suffix in _FILES.items()}
        config = self._raw / f"{node}.otlp-receiver.json"
        config.write_text(json.dumps({"node": node, **files}), encoding="utf-8")
        return Process(f"otlp.{node}.receiver", node, "cellbed.testbed.programs.telemetry", config.absolute(), stage=-1)

    def listen(self, node: str, place: Place) -> None:
        """Receive what programs of a node send. place: its namespaces. Errors: :class:`ProgramError`."""
        if node in self._nodes:
            return
        self._nodes.add(node)
        if self._control is None:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "cellbed.testbed.programs.telemetry"],
                    stdin=theirs.fileno(),
                    env={**os.environ, **self._environment},
                    start_new_session=True,
                )
        with _listener(node, place) as listener:
            message = json.dumps({"node": node, "file": str(self._raw / f"{node}{SUFFIX}")}).encode()
            try:
                socket.send_fds(self._control, [message], [listener.fileno()])
            except OSError as error:
                raise ProgramError(f"the receiver of OpenTelemetry has ended: {error.strerror}") from error

    def close(self) -> list[str]:
        """End the receiver when it has stored all that has arrived; returns sentences about what is lost."""
        control, self._control = self._control, None
        refused: dict[str, dict[str, int]] = {}
        failed = []
        for path in self._raw.glob(f"*{_FILES['lost']}"):
            # Another machine has written it.
            with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
                for counts in inputs.json_value(path).values():
                    its = {printable(str(reason), kept="")[:100]: int(count) for reason, count in counts.items()}
                    refused[path.name.removesuffix(_FILES["lost"])] = its
        if control is not None and self._process is not None:
            with control:
                control.settimeout(PATIENCE_S)
                try:
                    control.shutdown(socket.SHUT_WR)
                    refused |= json.loads(control.recv(1 << 20))
                except (OSError, ValueError):
                    failed.append("the receiver of OpenTelemetry failed: its last spans may be missing")
                finally:
                    kill(self._process)
        return failed + [
            f"{node}: {count} exports of OpenTelemetry were lost: {reason}"
            for node, counts in sorted(refused.items())
            for reason, count in sorted(counts.items())
        ]


def environment(app: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program of an application whose own variables are `given`."""
    host, port = ADDRESS
    own = given.get("OTEL_RESOURCE_ATTRIBUTES", "")
    service = {} if "service.name=" in own else {"OTEL_SERVICE_NAME": app}
    attributes = ",".join(filter(None, [f"{APPLICATION}={app}", own]))
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{host}:{port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_BSP_SCHEDULE_DELAY": str(FLUSH_MS),
        **service,
        **given,
        "OTEL_RESOURCE_ATTRIBUTES": attributes,
    }


def _listener(node: str, place: Place) -> socket.socket:
    """Return a socket that listens in the namespaces of `place`. Errors: :class:`ProgramError`."""
    try:
        return sockets_at(place, lambda: [socket.create_server(ADDRESS, backlog=MOST_CONNECTIONS)])[0]
    except OSError as error:
        raise ProgramError(f"cannot receive OpenTelemetry at port {ADDRESS[1]} of {node}: {error}") from error


@dataclass(slots=True, eq=False)
class _Node:
    """A node. record: file for bodies; written: its bytes. lost: exports that were not stored, by the reason."""

    name: str
    record: IO[bytes]
    written: int = 0
    connections: int = 0
    lost: Counter[str] = field(default_factory=Counter)

    def store(self, body: bytes) -> int:
        """Store the body of an export; returns the status of the reply."""
        if self.written + HEADER.size + len(body) > LARGEST_RECORD:
            self.lost[f"of a node only the first {LARGEST_RECORD >> 20} MiB are kept"] += 1
            return 413
        try:
            self.record.write(HEADER.pack(len(body), time.monotonic_ns(), clock_ahead(time.CLOCK_REALTIME)) + body)
            self.record.flush()
        except OSError as error:
            self.lost[f"they cannot be written: {error.strerror}"] += 1
            return 500
        self.written += HEADER.size + len(body)
        return 200


class _Exporter:
    """A connection of a program that exports."""

    def __init__(self, connection: socket.socket, node: _Node) -> None:
        self.socket, self.node = connection, node
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 14)
        self._request: h11.Request | None = None
        self._body = bytearray()

    def read(self) -> bool:
        """Take what has arrived; returns whether the connection stays."""
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        try:
            self._protocol.receive_data(data)
            return self._process()
        except (h11.RemoteProtocolError, h11.LocalProtocolError, OSError):
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
                        self.node.lost[f"a body is larger than {LARGEST_BODY >> 20} MiB"] += 1
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
        """Take the whole request; returns the status of the reply."""
        assert self._request is not None
        headers = dict(self._request.headers)
        if self._request.method != b"POST" or not self._request.target.startswith(b"/v1/"):
            return 404
        if self._request.target != b"/v1/traces":
            return 200  # metrics and logs are not kept
        if headers.get(b"content-type", b"").split(b";")[0].strip() != b"application/x-protobuf":
            self.node.lost["they are not in protobuf (OTEL_EXPORTER_OTLP_PROTOCOL)"] += 1
            return 415
        body, coding = bytes(self._body), headers.get(b"content-encoding", b"identity")
        if coding == b"gzip":
            inflater = zlib.decompressobj(wbits=31)
            try:
                body = inflater.decompress(body, LARGEST_BODY)
            except zlib.error:
                body = b""
            if not inflater.eof:
                self.node.lost[f"a body is damaged, or larger than {LARGEST_BODY >> 20} MiB"] += 1
                return 400
        elif coding != b"identity":
            self.node.lost["they are compressed by another method than gzip"] += 1
            return 415
        return self.node.store(body)

    def _reply(self, status: int) -> None:
        headers = [("Content-Type", "application/x-protobuf"), ("Content-Length", "0")]
        self._send(h11.Response(status_code=status, headers=headers))
        self._send(h11.EndOfMessage())

    def _send(self, event: Any) -> None:
        # The buffer of a connection without other replies has room for it.
        self.socket.send(self._protocol.send(event) or b"", socket.MSG_NOSIGNAL)


def serve(control: socket.socket) -> dict[str, dict[str, int]]:
    """Serve until the end of the control socket, and take what has arrived by then; returns what each node has lost."""
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
            node.lost[f"more than {MOST_CONNECTIONS} connections at a time"] += 1
            connection.close()
            return
        connection.setblocking(False)
        node.connections += 1
        selector.register(connection, selectors.EVENT_READ, _Exporter(connection, node))


def main(config: dict[str, str]) -> None:
    """Receive on this machine alone, until the end of standard input. config: the node; ``record``: the file of bodies;
    ``lost``: that of what it has lost."""
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
    with socket.socket(fileno=os.dup(0)) as at:
        at.send(json.dumps(serve(at)).encode())
