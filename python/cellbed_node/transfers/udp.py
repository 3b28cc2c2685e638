"""Transfers over UDP at a rate: numbered datagrams, and reports of arrivals.

The sender of a transfer sends numbered datagrams (DATA) at a rate. The client asks (ASK) for the server's report
(REPORT): after an upload, before a download, and again after a silence. A server that has sent all datagrams of a
download also answers with a report. A transfer with missing datagrams ends at the first of two reports without an
arrival in between.

The server's part has no socket, so that it also runs in virtual time.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cellbed_node import machine
from cellbed_node.generator import SECOND
from cellbed_node.ledger import Ledger, Request
from cellbed_node.transfers import LARGEST
from cellbed_node.transfers.flows import Flow, FlowLoad, Settings
from cellbed_node.udp import CountingDatagrams

PAYLOAD = 1400
"""Payload bytes of a datagram; the last one of a transfer may have fewer."""
HEADER = struct.Struct("!BxHIIIIQ")
"""Kind; numbers of the client, the transfer, and the datagram in the transfer; number of the transfer's datagrams;
number of the client's question, repeated in its answers; send stamp, ns."""
DATA, ASK, REPORT = range(1, 4)
_ORDER = struct.Struct("!QQ")
"""Fields of a question: bytes of a download, 0 for an upload; bit/s."""
_ASKED = HEADER.size + _ORDER.size
_FOUND = struct.Struct("!QIIQ")
"""Fields of a report: bytes, datagrams, reordered datagrams, jitter in ns."""
MOST_KEPT = 1000
"""Maximum transfers that a server keeps; the oldest are dropped."""
_PAUSE_NS, _LONGEST_PAUSE_NS = SECOND // 5, 2 * SECOND
"""Initial and maximum pause before a client asks again."""
_RETRY_NS = SECOND // 1000
"""Pause before a datagram is sent again when the kernel had no room."""
_FILLER = bytes(PAYLOAD)


class Sender:
    """The datagrams of a transfer, sent at a rate from a start time. sent: number sent so far, of `count`."""

    def __init__(self, size: int, bit_rate: int, begin_ns: int) -> None:
        self._size, self._begin_ns, self.count, self.sent = size, begin_ns, datagrams(size), 0
        self._interval_ns = PAYLOAD * 8 * SECOND / bit_rate

    @property
    def due_ns(self) -> int:
        """The time of the next datagram."""
        return self._begin_ns + round(self.sent * self._interval_ns)

    def next(self, name: Sequence[int], question: int) -> bytes:
        """Return the next datagram. name: numbers of the client and of the transfer."""
        head = HEADER.pack(DATA, *name, self.sent, self.count, question, machine.now_ns())
        self.sent += 1
        return head + _FILLER[: min(PAYLOAD, self._size - (self.sent - 1) * PAYLOAD)]


def datagrams(size: int) -> int:
    """Return the number of datagrams for `size` bytes."""
    return -(-size // PAYLOAD)


class Arrivals:
    """The datagrams of a transfer at their receiver.

    size: received bytes; received: datagrams. reordered: datagrams that arrived after one with a higher number (RFC
    4737, §3.3). jitter_ns: as in RFC 3550, §6.4.1. Duplicates do not count.
    """

    def __init__(self, count: int) -> None:
        self._seen, self._highest, self._transit_ns = bytearray(count), -1, None
        self.size = self.received = self.reordered = 0
        self.jitter_ns = 0.0

    _transit_ns: int | None

    def take(self, number: int, size: int, sent_ns: int) -> None:
        """Process a datagram that arrives now. sent_ns: by the sender's clock."""
        if number >= len(self._seen) or self._seen[number]:
            return
        self._seen[number] = 1
        self.received, self.size = self.received + 1, self.size + size
        self.reordered += number < self._highest
        self._highest = max(self._highest, number)
        before, self._transit_ns = self._transit_ns, machine.now_ns() - sent_ns
        if before is not None:
            self.jitter_ns += (abs(self._transit_ns - before) - self.jitter_ns) / 16

    @property
    def found(self) -> tuple[int, ...]:
        """Return the fields of a report."""
        return self.size, self.received, self.reordered, min(round(self.jitter_ns), (1 << 64) - 1)


class Server:
    """The transfers at a server, which ignores malformed datagrams. at: schedules a call at a time."""

    def __init__(self, at: Callable[[int, Callable[[], None]], object]) -> None:
        self._at = at
        self._known: dict[tuple[int, ...], Arrivals | Sender] = {}

    def receive(self, data: bytes, reply: Callable[[bytes], object]) -> None:
        """Process a datagram. reply: sends a datagram back to the client."""
        if len(data) < HEADER.size:
            return
        kind, *key, number, count, question, sent_ns = HEADER.unpack_from(data)
        size, bit_rate = _ORDER.unpack_from(data, HEADER.size) if len(data) == _ASKED and kind == ASK else (0, 0)
        if kind not in (DATA, ASK) or not 0 < count <= datagrams(LARGEST) or (size and datagrams(size) != count):
            return
        known = self._known.get(name := tuple(key))
        if known is None:
            while len(self._known) >= MOST_KEPT:
                del self._known[next(iter(self._known))]
            known = Sender(size, max(1, bit_rate), machine.now_ns()) if size else Arrivals(count)
            self._known[name] = known
            if isinstance(known, Sender):
                self._send(known, name, question, reply)
        elif kind == ASK and (isinstance(known, Arrivals) or known.sent == count):
            found = known.found if isinstance(known, Arrivals) else (size, count, 0, 0)
            reply(HEADER.pack(REPORT, *key, 0, count, question, machine.now_ns()) + _FOUND.pack(*found))
        if isinstance(known, Arrivals) and kind == DATA:
            known.take(number, len(data) - HEADER.size, sent_ns)

    def _send(self, sender: Sender, name: tuple[int, ...], question: int, reply: Callable[[bytes], object]) -> None:
        while sender.sent < sender.count and sender.due_ns <= machine.now_ns():
            reply(sender.next(name, question))
        if sender.sent < sender.count and self._known.get(name) is sender:
            self._at(sender.due_ns, lambda: self._send(sender, name, question, reply))


@dataclass(slots=True)
class Transfer(Request):
    """A transfer over UDP. datagrams: sent ones; datagrams_lost: missing ones of these; the others as in
    :class:`Arrivals`. The payload is the received part."""

    step: str | None = None
    datagrams: int | None = None
    datagrams_lost: int | None = None
    datagrams_reordered: int | None = None
    jitter_us: int | None = None


class _Flow(Flow):
    """A transfer at the client."""

    due_ns: int

    def __init__(self, transfer: Transfer, ledger: Ledger, socket: CountingDatagrams, settings: Settings) -> None:
        super().__init__(transfer, ledger, socket)
        way, size, _ = settings.transfers[transfer.request % len(settings.transfers)]
        self._transfer, self._up, rate = transfer, way == "upload", settings.bit_rate or 1
        self._name, self._order = (settings.client, transfer.request), _ORDER.pack(0 if self._up else size, rate)
        self._sender, self._arrivals = Sender(size, rate, machine.now_ns()), Arrivals(datagrams(size))
        self._pause_ns, self._asked = _PAUSE_NS, -1
        self._report: tuple[int, ...] = ()
        self._last = 0, 0, 0  # arrival of the last datagram; first number, and the number after the last
        self.due_ns = transfer.sent_ns = machine.now_ns()

    def send(self) -> None:
        sender, now = self._sender, machine.now_ns()
        sends = self._up and sender.sent < sender.count
        question = HEADER.pack(ASK, *self._name, 0, sender.count, self.socket.sent, now) + self._order
        try:
            self.socket.send(sender.next(self._name, 0) if sends else question)
        except BlockingIOError:
            sender.sent -= sends
            self.due_ns = now + _RETRY_NS
            return
        self.due_ns = sender.due_ns if sends else now + self._pause_ns
        self._pause_ns = self._pause_ns if sends else min(2 * self._pause_ns, _LONGEST_PAUSE_NS)

    def receive(self) -> None:
        while (arrived := self.socket.recv()) is not None:
            number, data = arrived
            if len(data) < HEADER.size:
                continue
            kind, client, transfer, which, count, question, sent_ns = HEADER.unpack_from(data)
            if (client, transfer, count) != (*self._name, self._sender.count):
                continue
            if kind == DATA and not self._up:
                self._arrivals.take(which, len(data) - HEADER.size, sent_ns)
                self._note_answer(question, number, first=self._last[1] if self._last[0] else number)
                if self._arrivals.received == count:
                    return self._end(self._arrivals.found)
            elif kind == REPORT and len(data) == HEADER.size + _FOUND.size and question > self._asked:
                self._asked = question
                found = _FOUND.unpack_from(data, HEADER.size) if self._up else self._arrivals.found
                if found[:2] == self._report[:2]:
                    return self._end(found)
                self._report = found
                if self._up or not self._arrivals.received:
                    self._note_answer(question, number, first=number)
                if found[1] == count:
                    return self._end(found)
        return None

    def _note_answer(self, question: int, number: int, *, first: int) -> None:
        """Record the answered question and the number of the answer's datagram; postpone the next question."""
        request, now = self._transfer, machine.now_ns()
        request.uplink_start, request.uplink_end = 0 if self._up else question, question + 1
        self._last = now, first, number + 1
        self.due_ns, self._pause_ns = now + _PAUSE_NS, _PAUSE_NS

    def _end(self, found: tuple[int, ...]) -> None:
        size, received, reordered, jitter_ns = found
        transfer, count = self._transfer, self._sender.count
        transfer.bytes_up = size if self._up else 0
        transfer.datagrams, transfer.datagrams_lost = count, count - received
        transfer.datagrams_reordered, transfer.jitter_us = reordered, jitter_ns // 1000
        error = None if received else "every datagram was lost"
        self.reply(*self._last, payload=0 if self._up else size, error=error)


class UdpTransfers(FlowLoad):
    """The transfers of one endpoint over UDP."""

    def create(self, number: int, intended_ns: int) -> Transfer:
        return Transfer(number, self._endpoint, intended_ns, step=self.name_of(number))

    def begin(self, request: Request, socket: CountingDatagrams) -> Flow:
        assert isinstance(request, Transfer)
        return _Flow(request, self.ledger, socket, self.settings)
