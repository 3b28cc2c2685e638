"""The sockets at which services report spans of requests; the protocol is in docs/reference/spans.md."""

from __future__ import annotations

import json
import re
import select
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

VARIABLE = "CELLBED_SPANS"
"""Environment variable of a service with the path of its socket."""
LONGEST_LINE = 512
_LINE = re.compile(
    rb"(?:(?P<endpoint>[A-Za-z0-9][A-Za-z0-9_-]{0,40})|(?P<address>[0-9A-Fa-f.:]{2,45}):(?P<port>[0-9]{1,5}))"
    rb"/(?P<number>[0-9]{1,12}) (?P<span>[A-Za-z0-9_.-]{1,40}) (?P<begin>[0-9]{1,19}) (?P<end>[0-9]{1,19})"
)
_DROPPED = re.compile(rb"!dropped ([0-9]{1,9})")


@dataclass(slots=True)
class _Service:
    """A socket of one service. names: of the spans that it has reported. malformed, dropped: counts of its lines."""

    name: str
    listener: socket.socket
    record: IO[str]
    names: dict[str, None] = field(default_factory=dict)
    malformed: int = 0
    dropped: int = 0


class SpanSockets:
    """A socket for each service of a run. What arrives is written into the service's record, one line per span.

    folder: for the sockets, not made yet; removing it is left to the caller. nodes: names by address.
    """

    def __init__(self, folder: Path, nodes: Mapping[str, str]) -> None:
        self._folder, self._nodes = folder, nodes
        self._services: list[_Service] = []
        self._connections: dict[socket.socket, tuple[_Service, bytearray]] = {}

    def listen(self, name: str, record: Path) -> str:
        """Make the socket of a service; its path. record: file for its spans. Errors: ``OSError``."""
        self._folder.mkdir(mode=0o755, exist_ok=True)
        path = self._folder / str(len(self._services))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        listener.bind(str(path))
        path.chmod(0o666)  # in a container a service may be another user
        listener.listen(128)
        self._services.append(_Service(name, listener, record.open("a", encoding="utf-8")))
        return str(path)

    @property
    def connected(self) -> bool:
        """Whether a service is connected: then :meth:`serve` must be called every 10 ms, or its spans are dropped."""
        return bool(self._connections)

    def names(self) -> dict[str, tuple[str, ...]]:
        """The names of the spans so far, by service."""
        found: dict[str, dict[str, None]] = {}
        for service in self._services:
            found.setdefault(service.name, {}).update(service.names)
        return {name: tuple(spans) for name, spans in found.items()}

    def warnings(self) -> list[str]:
        """What was lost, in sentences."""
        found = []
        for service in self._services:
            if service.dropped:
                found.append(f"{service.name}: its service dropped {service.dropped} spans that were not read in time")
            if service.malformed:
                found.append(f"{service.name}: its service sent {service.malformed} malformed lines to {VARIABLE}")
        return found

    def serve(self) -> None:
        """Take what has arrived, without waiting."""
        listeners = {service.listener: service for service in self._services}
        if not listeners:
            return
        poll = select.poll()
        by_number: dict[int, socket.socket] = {}
        for each in (*listeners, *self._connections):
            by_number[each.fileno()] = each
            poll.register(each, select.POLLIN)
        written = set()
        for number, _ in poll.poll(0):
            ready = by_number[number]
            if ready in listeners:
                connection, _ = ready.accept()
                connection.setblocking(False)
                self._connections[connection] = (listeners[ready], bytearray())
                ready = connection
            if self._read(ready):
                written.add(self._connections[ready][0].name)
        for service in self._services:
            if service.name in written:
                service.record.flush()

    def close(self) -> None:
        """Take what is left, and close everything."""
        for _ in range(100):  # for one that does not stop sending
            self.serve()
            if not self._connections:
                break
        for service in self._services:
            service.listener.close()
            service.record.close()
        for connection in self._connections:
            connection.close()
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
        service.names[span] = None
        if found["endpoint"] is not None:
            request: dict[str, object] = {"endpoint": found["endpoint"].decode(), "request": number}
        else:
            address = found["address"].decode().removeprefix("::ffff:")
            request = {"endpoint": self._nodes.get(address, address), "port": int(found["port"]), "order": number}
        fields = {**request, "span": span, "begin_ns": int(found["begin"]), "end_ns": int(found["end"])}
        service.record.write(json.dumps(fields, separators=(",", ":")) + "\n")
