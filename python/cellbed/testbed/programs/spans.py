"""The sockets at which services report spans of requests; the protocol is in docs/reference/spans.md."""

from __future__ import annotations

import json
import re
import select
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

VARIABLE = "CELLBED_SPANS"
"""Environment variable of a service with the path of its socket."""
LONGEST_LINE = 512
SERVE_S = 0.01
"""How often a connection is read: its buffer holds some hundred lines."""
TURN_BYTES = 1 << 15
"""Bytes read in a turn from all connections together: no fault of the run waits for a service that floods them."""
ACCEPTED_AT_ONCE = 16
MOST_CONNECTIONS = 256
"""Of a service at the same time."""
MOST_MALFORMED = 100
"""Malformed lines after which a connection is closed."""
LARGEST_RECORD = 64 << 20
"""Bytes of the spans of a service, after which its socket is closed."""
QUIET_S, CLOSING_S = 1.0, 5.0
"""Seconds of waiting at the end for spans that another machine still forwards: without any, and altogether."""
MOST_NAMES = 16
"""Names of spans that reports show, of each application."""
_LINE = re.compile(
    rb"(?:(?P<endpoint>[A-Za-z0-9][A-Za-z0-9_-]{0,40})|(?P<address>[0-9A-Fa-f.:]{2,45}):(?P<port>[0-9]{1,5}))"
    rb"/(?P<number>[0-9]{1,12}) (?P<span>[A-Za-z0-9_.-]{1,40}) (?P<begin>[0-9]{1,19}) (?P<end>[0-9]{1,19})"
)
_DROPPED = re.compile(rb"!dropped ([0-9]{1,9})")


@dataclass(slots=True, eq=False)
class _Service:
    """A service. app: its application. written: bytes of its record. malformed, dropped: counts of its lines.
    connections: that are open."""

    app: str
    record: IO[str]
    written: int = 0
    malformed: int = 0
    dropped: int = 0
    connections: int = 0


@dataclass(slots=True)
class _Connection:
    """A connection of a service. rest: the begin of a line. malformed: count of its lines."""

    service: _Service
    rest: bytes = b""
    malformed: int = 0


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
        self._connections: dict[socket.socket, _Connection] = {}

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
        """Return whether a service is connected: then :meth:`serve` must be called every SERVE_S, or spans are
        dropped."""
        return bool(self._connections)

    def warnings(self) -> list[str]:
        """Return sentences about lost spans."""
        found = list(self._problems)
        for service in self._services:
            if service.dropped:
                dropped = f"dropped {service.dropped} spans that were not read in time"
                found.append(f"{service.app}: its service reports that it {dropped}")
            if service.written > LARGEST_RECORD:
                found.append(f"{service.app}: of its spans only the first {LARGEST_RECORD >> 20} MiB are kept")
            if service.malformed:
                found.append(f"{service.app}: its service sent {service.malformed} malformed lines to {VARIABLE}")
        return found

    def serve(self) -> bool:
        """Take what has arrived, TURN_BYTES at most, without waiting; whether there was anything."""
        if not self._listeners:
            return False
        poll = select.poll()
        by_number = {each.fileno(): each for each in (*self._listeners, *self._connections)}
        for number in by_number:
            poll.register(number, select.POLLIN)
        ready = [by_number[number] for number, _ in poll.poll(0)]
        for listener in self._listeners.keys() & ready:
            ready += self._accept(listener)
        left = TURN_BYTES
        read_from = set()
        for connection in ready:
            if connection in self._connections and left > 0:
                service = self._connections[connection].service
                if count := self._read(connection, left):
                    left -= count
                    read_from.add(service)
        for service in read_from:
            service.record.flush()
            if service.written > LARGEST_RECORD:
                self._refuse(service)
        return left < TURN_BYTES

    def close(self) -> None:
        """Take what is left, and close everything.

        What a program sent on another machine may still be on its way: its connection ends after that.
        """
        last = time.monotonic() + CLOSING_S
        quiet = time.monotonic() + QUIET_S
        while (arrived := self.serve()) or self._connections:
            now = time.monotonic()
            if arrived:
                quiet = now + QUIET_S
            if now >= min(quiet, last):
                break
            if not arrived:
                time.sleep(SERVE_S)
        for service in self._services:
            self._refuse(service)
            service.record.close()

    def _accept(self, listener: socket.socket) -> list[socket.socket]:
        service = self._listeners[listener]
        accepted: list[socket.socket] = []
        while len(accepted) < ACCEPTED_AT_ONCE and service.connections < MOST_CONNECTIONS:
            try:
                connection, _ = listener.accept()
            except OSError:
                break
            connection.setblocking(False)
            service.connections += 1
            self._connections[connection] = _Connection(service)
            accepted.append(connection)
        return accepted

    def _refuse(self, service: _Service) -> None:
        """Close the socket of a service, and all connections to it."""
        for listener in [each for each, its in self._listeners.items() if its is service]:
            del self._listeners[listener]
            listener.close()
        for connection in [each for each, its in self._connections.items() if its.service is service]:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._connections.pop(connection).service.connections -= 1
        connection.close()

    def _read(self, connection: socket.socket, most: int) -> int:
        """Take at most so many bytes from a connection; returns how many, with its end as one."""
        state = self._connections.pop(connection)
        self._connections[connection] = state  # the last one in the next turn
        try:
            chunk = connection.recv(most)
        except BlockingIOError:
            return 0
        except OSError:
            chunk = b""
        *lines, state.rest = (state.rest + chunk).split(b"\n")
        if len(state.rest) > LONGEST_LINE:
            state.rest = b""
            lines.append(b"")
        for line in lines:
            if not self._take(state.service, line):
                state.service.malformed += 1
                state.malformed += 1
                if state.malformed >= MOST_MALFORMED:
                    break
        if not chunk or state.malformed >= MOST_MALFORMED:
            self._drop(connection)
        return max(1, len(chunk))

    def _take(self, service: _Service, line: bytes) -> bool:
        """Take a line; whether it is well-formed."""
        if dropped := _DROPPED.fullmatch(line):
            service.dropped += int(dropped[1])
            return True
        found = _LINE.fullmatch(line)
        if found is None or int(found["begin"]) > int(found["end"]) or int(found["end"]) >= 1 << 63:
            return False
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
        service.written += service.record.write(json.dumps(fields, separators=(",", ":")) + "\n")
        return True
