"""TLS 1.3 in virtual time: records with the right lengths only, and a handshake as measured.

Lengths of real signatures vary by a byte or two; a prediction must be the same each time.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cellbed.support.errors import CellbedError
from cellbed_node.tls import Records

if TYPE_CHECKING:
    from cellbed.workloads.virtual.world import Socket, World

OVERHEAD = 22
"""Bytes of a record in addition to its content: header, type and tag (RFC 8446, §5.2)."""
LARGEST = 1 << 14
"""Maximum bytes of content in a record (RFC 8446, §5.1)."""
_HANDSHAKE, _CONTENT = b"\x16", b"\x17"
_HEADER = 5
_FINISHED = 80
"""Bytes of the client's second flight: change of cipher, and the finished message of a hash of 32 to 48 bytes."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """A handshake. hello, flight: bytes of the client's and the server's first flight; tickets: bytes that the server
    sends later, before its first reply; work_ns: the server's time for its flight."""

    hello: int
    flight: int
    tickets: int
    work_ns: int

    @classmethod
    def of(cls, samples: Sequence[dict[str, Any]]) -> Handshake:
        """Return the medians of the samples of requests that opened a connection, and their fewest tickets. Errors:
        :class:`CellbedError` without a sample."""
        found = [each["handshake"] for each in samples if each.get("handshake") is not None]
        if not found:
            raise CellbedError("the profile has no request that opened a connection with TLS: measure a new profile")
        hello, flight, tickets, work_ns = zip(*found, strict=True)
        middle = statistics.median_high
        # Replies to other requests of a connection can precede the reply to the request that opened it.
        return cls(middle(hello), middle(flight), min(tickets), middle(work_ns))


def _record(kind: bytes, size: int) -> bytes:
    """Return a record with a total of `size` bytes."""
    size = max(size, _HEADER) - _HEADER
    return kind + b"\3\3" + size.to_bytes(2) + bytes(size)


class _Lengths(Records):
    """One end of a connection, with lengths only."""

    def __init__(self, handshake: Handshake) -> None:
        super().__init__()
        self._handshake = handshake
        self._out = bytearray()

    def encode(self, data: bytes) -> bytes:
        records = (data[begin : begin + LARGEST] for begin in range(0, len(data), LARGEST))
        filled = (_CONTENT + b"\3\3" + (len(each) + OVERHEAD - _HEADER).to_bytes(2) + each for each in records)
        return b"".join(each + bytes(OVERHEAD - _HEADER) for each in filled)

    def answer(self) -> bytes:
        found = bytes(self._out)
        self._out.clear()
        return found

    def take(self, record: bytes) -> bytes:
        return record[_HEADER : _HEADER - OVERHEAD] if record[:1] == _CONTENT else b""


class Client(_Lengths):
    """The end of a load generator."""

    def begin(self) -> None:
        self._out += _record(_HANDSHAKE, self._handshake.hello)
        self.hello = self._handshake.hello

    def take(self, record: bytes) -> bytes:
        if record[:1] == _HANDSHAKE and not self.ready:
            self.ready, self.flight = True, self.taken
            self._out += _record(_HANDSHAKE, _FINISHED)
        return super().take(record)


class Server(_Lengths):
    """The end of a server on one of its connections. run: returns the end of work that begins now."""

    def __init__(self, handshake: Handshake, connection: Socket, world: World, run: Callable[[int], int]) -> None:
        super().__init__(handshake)
        self._connection, self._world, self._run = connection, world, run
        self._greeted = False

    def take(self, record: bytes) -> bytes:
        if record[:1] == _HANDSHAKE:
            if self._greeted and self._handshake.tickets:
                self._send(_record(_HANDSHAKE, self._handshake.tickets))
            elif not self._greeted:
                flight = _record(_HANDSHAKE, self._handshake.flight)
                self._world.at(self._run(self._handshake.work_ns), lambda: self._send(flight))
            self._greeted = True
        return super().take(record)

    def _send(self, data: bytes) -> None:
        self._connection.send(data)
