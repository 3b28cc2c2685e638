"""Pages of a restored program that are sent before CRIU requests them.

CRIU requests a page when the program uses the page, and otherwise one range at a time: each request costs a round trip.
A relay between CRIU and its page server at the source requests all pages in advance, and answers CRIU with pages that
have arrived. The messages are CRIU's (``page_server_iov`` of criu/page-xfer.c): an answer may have fewer pages than the
request.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable
from mmap import PAGESIZE

_MESSAGE = struct.Struct("@IQQQ")
_GET, _ADD, _COMMAND = 7, 6 | 4 << 16, 0xFFFF
_CHUNK = 64
"""Number of pages in a request in advance."""
_FIRST = 1 << 10
"""Initial number of pages under way."""
_MOST, _AROUND = 1 << 13, 1 << 10
"""Maximum number of arrived pages that CRIU has not requested, and of further ones after a request for a missing
page."""

Range = tuple[int, int, int]
"""Process, address of the first page, and number of pages."""


class Relay:
    """The state of a relay. Its methods return the bytes to send.

    At most three times the pages that arrive in a round trip are under way. So a requested page waits only
    for these, and TCP always has data to send. After a requested page, the pages that follow it come first (cf. the
    pivot of Hines and Gopalan, Post-copy based live virtual machine migration, VEE 2009).
    """

    def __init__(self, ranges: Iterable[Range]) -> None:
        """ranges: pages to request, in CRIU's order."""
        self._left = deque(
            (process, address + at * PAGESIZE, min(_CHUNK, pages - at))
            for process, address, pages in ranges
            for at in range(0, pages, _CHUNK)
        )
        self._asked: deque[tuple[Range, int, int]] = deque()
        self._under_way: set[tuple[int, int]] = set()
        self._arrived: dict[tuple[int, int], bytes] = {}
        self._wanted: deque[Range] = deque()
        self._window, self._most, self._least_ns, self._received = _FIRST, _MOST, 1 << 62, 0

    @property
    def awaits(self) -> bool:
        """Return whether the source has not answered all requests."""
        return bool(self._asked)

    def requests(self, now_ns: int) -> bytes:
        """Return the due requests in advance."""
        found = b""
        while self._left and len(self._under_way) < self._window and len(self._arrived) < self._most:
            found += self._ask(self._left.popleft(), now_ns)
        return found

    def on_request(self, wanted: Range, now_ns: int) -> bytes:
        """Handle a request of CRIU; return a request to the source, unless the first page has arrived or is under
        way."""
        self._wanted.append(wanted)
        process, address, _ = wanted
        if (process, address) in self._arrived or (process, address) in self._under_way:
            return b""
        at = (
            i
            for i, (its, start, count) in enumerate(self._left)
            if its == process and 0 <= address - start < count * PAGESIZE
        )
        self._left.rotate(-next(at, 0))
        self._most = max(_MOST, len(self._arrived) + _AROUND)
        return self._ask(wanted, now_ns)

    def on_pages(self, data: bytes, now_ns: int) -> None:
        """Handle the source's next answer."""
        (process, address, asked), since_ns, before = self._asked.popleft()
        count, took_ns = len(data) // PAGESIZE, now_ns - since_ns
        self._least_ns = min(self._least_ns, took_ns)
        self._received += count
        in_round_trip = (self._received - before) * self._least_ns // took_ns
        self._window = max(_CHUNK, 3 * in_round_trip, self._window - self._window // 32)
        for at in range(asked):
            self._under_way.discard((process, address + at * PAGESIZE))
        for at in range(count):
            self._arrived[process, address + at * PAGESIZE] = data[at * PAGESIZE : (at + 1) * PAGESIZE]
        if count < asked:
            self._left.appendleft((process, address + count * PAGESIZE, asked - count))

    def answers(self) -> bytes:
        """Return answers to CRIU, in order, from the pages that have arrived."""
        found = []
        while self._wanted and self._wanted[0][:2] in self._arrived:
            process, address, wanted = self._wanted.popleft()
            pages: list[bytes] = []
            while len(pages) < wanted and (process, key := address + len(pages) * PAGESIZE) in self._arrived:
                pages.append(self._arrived.pop((process, key)))
            found += [_MESSAGE.pack(_ADD, len(pages), address, process), *pages]
        return b"".join(found)

    def _ask(self, wanted: Range, now_ns: int) -> bytes:
        process, address, pages = wanted
        self._asked.append((wanted, now_ns, self._received))
        self._under_way.update((process, address + at * PAGESIZE) for at in range(pages))
        return _MESSAGE.pack(_GET, pages, address, process)


def relay(source: socket.socket, criu: socket.socket, ranges: Iterable[Range]) -> None:
    """Relay pages until CRIU needs no more, or until either end closes."""
    pages, is_over = Relay(ranges), False
    while not is_over or pages.awaits:
        if not is_over:
            source.sendall(pages.requests(time.monotonic_ns()))
        for each in select.select([source, criu], [], [])[0]:
            message = each.recv(_MESSAGE.size, socket.MSG_WAITALL)
            if len(message) < _MESSAGE.size:
                return
            command, count, address, process = _MESSAGE.unpack(message)
            if each is source:
                pages.on_pages(source.recv(count * PAGESIZE, socket.MSG_WAITALL), time.monotonic_ns())
            elif command & _COMMAND == _GET:
                source.sendall(pages.on_request((process, address, count), time.monotonic_ns()))
            else:  # the end, which the source acknowledges by four bytes
                is_over = True
                source.sendall(message)
            criu.sendall(pages.answers())
    criu.sendall(source.recv(4, socket.MSG_WAITALL))
