"""Sockets at which services report spans of requests, and clients report requests. Protocols:
docs/reference/spans.md and requests.md."""

from __future__ import annotations

import json
import re
import select
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cellbed.testbed.machine.peers import Admission, accept_some

LONGEST_LINE = 512
SERVE_S = 0.01
"""Read interval of a connection: its buffer holds some hundred lines."""
TURN_BYTES = 1 << 15
"""Maximum bytes read per turn from all connections: a program that floods them must not delay faults of the run."""
MOST_CONNECTIONS = 256
"""Maximum connections of a program at the same time."""
MOST_MALFORMED = 100
"""Number of malformed lines at which a connection is closed."""
LARGEST_RECORD = 64 << 20
"""Maximum size of a program's record, bytes; at this size its socket is closed."""
QUIET_S, CLOSING_S = 1.0, 5.0
"""Maximum wait at the end for lines from another machine: since the last line, and in total, seconds."""
MOST_NAMES = 16
"""Maximum number of span names per application in reports."""
MARGIN_NS = 1_000_000_000
"""Tolerance for requests that begin before their program or end in the future: remote clocks are estimates."""
_SPAN = re.compile(
    rb"(?:(?P<endpoint>[A-Za-z0-9][A-Za-z0-9_-]{0,40})|(?P<address>[0-9A-Fa-f.:]{2,45}):(?P<port>[0-9]{1,5}))"
    rb"/(?P<number>[0-9]{1,12}) (?P<span>[A-Za-z0-9_.-]{1,40}) (?P<begin>[0-9]{1,19}) (?P<end>[0-9]{1,19})"
)
_REQUEST = re.compile(
    rb"(?P<name>[!-~]{1,100}) (?P<begin>[0-9]{1,19}) (?P<end>[0-9]{1,19}) (?P<outcome>ok|failed|timed-out|lost)"
    rb"(?: (?P<intended>[0-9]{1,19}))?"
)
_DROPPED = re.compile(rb"!dropped ([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class Protocol:
    """A line protocol. variable: environment variable with the socket's path. what: noun for the reported items.
    by: kind of program that reports. hint: suffix of the warning about malformed lines."""

    variable: str
    what: str
    by: str
    hint: str = ""


SPANS = Protocol("CELLBED_SPANS", "spans", "service")
REQUESTS = Protocol(
    "CELLBED_REQUESTS", "requests", "client", ": times are nanoseconds of CLOCK_MONOTONIC, since the program began"
)


@dataclass(slots=True, eq=False)
class _Program:
    """A program that reports. clock: clock of its node; earliest_ns: minimum begin of a request, by `clock`. written:
    bytes in its record. lines: number accepted; malformed, dropped: numbers of others. connections: number open;
    refused: number refused by `admission`."""

    protocol: Protocol
    app: str
    node: str
    record: IO[str]
    clock: Callable[[], int]
    earliest_ns: int
    admission: Admission
    refused: int = 0
    written: int = 0
    lines: int = 0
    malformed: int = 0
    dropped: int = 0
    connections: int = 0


@dataclass(slots=True)
class _Connection:
    """A connection of a program. rest: incomplete line. malformed: number of such lines."""

    program: _Program
    rest: bytes = b""
    malformed: int = 0


class ReportSockets:
    """A socket for each program of a run that may report. Reports are written into the program's record.

    folder: place of the sockets. nodes: names by address. names: span names by application, at most MOST_NAMES.
    requesting: applications whose clients have reported a request.
    """

    def __init__(self, folder: Path, nodes: Mapping[str, str]) -> None:
        self._folder, self._nodes = folder, nodes
        self._programs: list[_Program] = []
        self.names: dict[str, tuple[str, ...]] = {}
        self.requesting: frozenset[str] = frozenset()
        self._listeners: dict[socket.socket, _Program] = {}
        self._problems: list[str] = []
        self._connections: dict[socket.socket, _Connection] = {}

    def listen(
        self,
        protocol: Protocol,
        app: str,
        record: Path,
        admission: Admission,
        *,
        node: str = "",
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> dict[str, str]:
        """Make the socket of a program; return its environment variables. record: file for its reports.
        admission: check of processes that connect. node, clock: node and clock (ns) of the program.

        On failure, the program runs without a socket.
        """
        path = self._folder / str(len(self._programs))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listener.bind(str(path))
            path.chmod(0o666)  # in a container a program may be another user
        except OSError as error:
            listener.close()
            reason = error.strerror or error
            self._problems.append(f"{app}: its {protocol.by} cannot report {protocol.what} at {path}: {reason}")
            return {}
        listener.listen(128)
        opened = record.open("a", encoding="utf-8")
        program = _Program(protocol, app, node, opened, clock, clock() - MARGIN_NS, admission)
        self._programs.append(program)
        self._listeners[listener] = program
        return {protocol.variable: str(path)}

    @property
    def is_connected(self) -> bool:
        """Return whether a program is connected: then :meth:`serve` must be called every SERVE_S, or lines are
        dropped."""
        return bool(self._connections)

    def warnings(self) -> list[str]:
        """Return sentences about lost lines."""
        found = list(self._problems)
        for program in self._programs:
            app, by, what = program.app, program.protocol.by, program.protocol.what
            if program.dropped:
                dropped = f"dropped {program.dropped} {what} that were not read in time"
                found.append(f"{app}: its {by} reports that it {dropped}")
            if program.written > LARGEST_RECORD:
                found.append(f"{app}: of its {what} only the first {LARGEST_RECORD >> 20} MiB are kept")
            if program.refused:
                count = f"{program.refused} connection{'s' * (program.refused > 1)}"
                refused = f"refused {count} from outside of {program.node}"
                found.append(f"{app}: the socket for {what} of its {by} {refused}")
            if program.malformed:
                lines = f"{program.malformed} malformed lines to {program.protocol.variable}{program.protocol.hint}"
                found.append(f"{app}: its {by} sent {lines}")
        return found

    def serve(self) -> bool:
        """Read at most TURN_BYTES, without waiting; return whether there was anything."""
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
                program = self._connections[connection].program
                if count := self._read(connection, left):
                    left -= count
                    read_from.add(program)
        for program in read_from:
            program.record.flush()
            if program.written > LARGEST_RECORD:
                self._refuse(program)
        return left < TURN_BYTES

    def close(self) -> None:
        """Read what is left, and close everything.

        Lines from another machine may still be in transit: their connection ends after the last one.
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
        for program in self._programs:
            self._refuse(program)
            program.record.close()

    def _accept(self, listener: socket.socket) -> list[socket.socket]:
        program = self._listeners[listener]
        accepted: list[socket.socket] = []
        for connection in accept_some(listener) if program.connections < MOST_CONNECTIONS else ():
            if not program.admission.admits(connection):
                program.refused += 1
                connection.close()
                continue
            connection.setblocking(False)
            program.connections += 1
            self._connections[connection] = _Connection(program)
            accepted.append(connection)
            if program.connections == MOST_CONNECTIONS:
                break
        return accepted

    def _refuse(self, program: _Program) -> None:
        """Close the socket of a program, and all connections to it."""
        for listener in [each for each, its in self._listeners.items() if its is program]:
            del self._listeners[listener]
            listener.close()
        for connection in [each for each, its in self._connections.items() if its.program is program]:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._connections.pop(connection).program.connections -= 1
        connection.close()

    def _read(self, connection: socket.socket, most: int) -> int:
        """Read at most `most` bytes from a connection; return the number, 1 at the connection's end."""
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
            if not self._take(state.program, line):
                state.program.malformed += 1
                state.malformed += 1
                if state.malformed >= MOST_MALFORMED:
                    break
        if not chunk or state.malformed >= MOST_MALFORMED:
            self._drop(connection)
        return max(1, len(chunk))

    def _take(self, program: _Program, line: bytes) -> bool:
        """Take a line; return whether it is well-formed."""
        if dropped := _DROPPED.fullmatch(line):
            program.dropped += int(dropped[1])
            return True
        fields = self._span(program, line) if program.protocol is SPANS else self._request(program, line)
        if fields is None:
            return False
        program.lines += 1
        program.written += program.record.write(json.dumps(fields, separators=(",", ":")) + "\n")
        return True

    def _span(self, program: _Program, line: bytes) -> dict[str, object] | None:
        """Return the fields of a span for the record; None where it is malformed."""
        found = _SPAN.fullmatch(line)
        if found is None or int(found["begin"]) > int(found["end"]) or int(found["end"]) >= 1 << 63:
            return None
        number, span = int(found["number"]), found["span"].decode()
        names = self.names.get(program.app, ())
        if span not in names and len(names) < MOST_NAMES:
            self.names[program.app] = tuple(sorted((*names, span)))  # so that runs can be compared
        if found["endpoint"] is not None:
            request: dict[str, object] = {"endpoint": found["endpoint"].decode(), "request": number}
        else:
            address = found["address"].decode().removeprefix("::ffff:")
            request = {"endpoint": self._nodes.get(address, address), "port": int(found["port"]), "order": number}
        return {**request, "span": span, "begin_ns": int(found["begin"]), "end_ns": int(found["end"])}

    def _request(self, program: _Program, line: bytes) -> dict[str, object] | None:
        """Return the fields of a request for the record; None where it is malformed or has an impossible time."""
        found = _REQUEST.fullmatch(line)
        if found is None:
            return None
        begin, end = int(found["begin"]), int(found["end"])
        intended, outcome = min(int(found["intended"] or begin), begin), found["outcome"].decode()
        if not program.earliest_ns <= intended <= begin <= end <= program.clock() + MARGIN_NS:
            return None
        self.requesting |= {program.app}
        return {
            "request": program.lines,
            "endpoint": program.node,
            "step": found["name"].decode(),
            "status": outcome,
            "intended_ns": intended,
            "begin_ns": begin,
            "reply_ns": end if outcome in ("ok", "failed") else None,
            "error": None if outcome == "ok" else f"the client reports: {outcome}",
        }
