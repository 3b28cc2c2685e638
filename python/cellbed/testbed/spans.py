"""The sockets at which services report spans of requests; the protocol is in docs/reference/spans.md."""

from __future__ import annotations

import json
import re
import select
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

VARIABLE = "CELLBED_SPANS"
"""Environment variable of a service with the path of its socket."""
LONGEST_LINE = 512
SERVE_S = 0.01
"""How often a connection is read: its buffer holds some hundred lines."""
MOST_NAMES = 16
"""Names of spans that reports show, of each application."""
_LINE = re.compile(
    rb"(?:(?P<endpoint>[A-Za-z0-9][A-Za-z0-9_-]{0,40})|(?P<address>[0-9A-Fa-f.:]{2,45}):(?P<port>[0-9]{1,5}))"
    rb"/(?P<number>[0-9]{1,12}) (?P<span>[A-Za-z0-9_.-]{1,40}) (?P<begin>[0-9]{1,19}) (?P<end>[0-9]{1,19})"
)
_DROPPED = re.compile(rb"!dropped ([0-9]{1,9})")


@dataclass(slots=True)
class _Service:
    """A service. app: its application. malformed, dropped: counts of its lines."""

    app: str
    record: IO[str]
    malformed: int = 0
    dropped: int = 0


class SpanSockets:
    """A socket for each service of a run. What arrives is written into the service's record, one line per span.

    folder: for the sockets. nodes: names by address. names: of the spans so far, by application, MOST_NAMES at most.
    """

    def __init__(self, folder: Path, nodes: Mapping[str, str]) -> None:
        self._folder, self._nodes = folder, nodes
        self._services: list[_Service] = []
        self.names: dict[str, tuple[str, ...]] = {}
        self._listeners: dict[socket.socket, _Service] = {}
        self._problems: list[str] = []
        self._connections: dict[socket.socket, tuple[_Service, bytearray]] = {}

    def listen(self, app: str, record: Path) -> dict[str, str]:
        """Make the socket of a service of an application; the service's environment. record: file for its spans.

        Where that is not possible the service runs without.
        """
        path = self._folder / str(len(self._services))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listener.bind(str(path))
            path.chmod(0o666)  # in a container a service may be another user
        except OSError as error:
            listener.close()
            self._problems.append(f"{app}: its service cannot report spans at {path}: {error.strerror or error}")
            return {}
        listener.listen(128)
        service = _Service(app, record.open("a", encoding="utf-8"))
        self._services.append(service)
        self._listeners[listener] = service
        return {VARIABLE: str(path)}

    @property
    def connected(self) -> bool:
        """Whether a service is connected: then :meth:`serve` must be called every SERVE_S, or spans are dropped."""
        return bool(self._connections)

    def warnings(self) -> list[str]:
        """What was lost, in sentences."""
        found = list(self._problems)
        for service in self._services:
            if service.dropped:
                found.append(f"{service.app}: its service dropped {service.dropped} spans that were not read in time")
            if service.malformed:
                found.append(f"{service.app}: its service sent {service.malformed} malformed lines to {VARIABLE}")
        return found

    def serve(self) -> bool:
        """Take what has arrived, without waiting; whether there was anything."""
        if not self._listeners:
            return False
        poll = select.poll()
        by_number = {each.fileno(): each for each in (*self._listeners, *self._connections)}
        for number in by_number:
            poll.register(number, select.POLLIN)
        read_from = set()
        for number, _ in poll.poll(0):
            ready = by_number[number]
            if ready in self._listeners:
                try:
                    connection, _ = ready.accept()
                except OSError:
                    continue
                connection.setblocking(False)
                self._connections[connection] = (self._listeners[ready], bytearray())
                ready = connection
            service, _ = self._connections[ready]
            if self._read(ready):
                read_from.add(service.record)
        for record in read_from:
            record.flush()
        return bool(read_from)

    def close(self) -> None:
        """Take what is left, and close everything."""
        for _ in range(1000):  # for one that does not stop sending
            if not self.serve():
                break
        for listener, service in self._listeners.items():
            listener.close()
            service.record.close()
        for connection in self._connections:
            connection.close()
        self._listeners.clear()
        self._connections.clear()

    def _read(self, connection: socket.socket) -> bool:
        service, rest = self._connections[connection]
        try:
            chunk = connection.recv(1 << 20)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        if not chunk:
            connection.close()
            del self._connections[connection]
            return False
        rest += chunk
        *lines, last = rest.split(b"\n")
        if len(last) > LONGEST_LINE:
            service.malformed += 1
            last = bytearray()
        rest[:] = last
        for line in lines:
            self._take(service, bytes(line))
        return True

    def _take(self, service: _Service, line: bytes) -> None:
        if dropped := _DROPPED.fullmatch(line):
            service.dropped += int(dropped[1])
            return
        found = _LINE.fullmatch(line)
        if found is None or int(found["begin"]) > int(found["end"]) or int(found["end"]) >= 1 << 63:
            service.malformed += 1
            return
        number, span = int(found["number"]), found["span"].decode()
        names = self.names.get(service.app, ())
        if span not in names and len(names) < MOST_NAMES:
            self.names[service.app] = tuple(sorted((*names, span)))  # so that runs can be compared
        if found["endpoint"] is not None:
            request: dict[str, object] = {"endpoint": found["endpoint"].decode(), "request": number}
        else:
            address = found["address"].decode().removeprefix("::ffff:")
            request = {"endpoint": self._nodes.get(address, address), "port": int(found["port"]), "order": number}
        fields = {**request, "span": span, "begin_ns": int(found["begin"]), "end_ns": int(found["end"])}
        service.record.write(json.dumps(fields, separators=(",", ":")) + "\n")
