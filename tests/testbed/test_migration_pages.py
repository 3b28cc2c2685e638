"""Pages of a restored program that are sent before CRIU asks for them, in virtual time."""

import random
import struct
from collections import deque
from mmap import PAGESIZE

from cellbed.testbed.migration.criu import lazy_pages
from cellbed.testbed.migration.pages import Relay

MESSAGE = struct.Struct("@IQQQ")  # page_server_iov of criu/page-xfer.c
ROUND_TRIP_NS = 100_000_000
PROCESS, BASE = 7, 0x7F0000000000


def content(address: int, pages: int) -> bytes:
    return b"".join((address + at * PAGESIZE).to_bytes(8, "big") * (PAGESIZE // 8) for at in range(pages))


class Source:
    """The page server behind a link. most: pages of one answer."""

    def __init__(self, relay: Relay, most: int = 1 << 20) -> None:
        self.relay, self.most, self.now_ns, self.pages = relay, most, 0, 0
        self._answers: deque[tuple[int, int, int]] = deque()

    def take(self, requests: bytes) -> None:
        for _, pages, address, process in MESSAGE.iter_unpack(requests):
            assert process == PROCESS
            self._answers.append((self.now_ns + ROUND_TRIP_NS, address, min(pages, self.most)))

    def ask(self, address: int, pages: int = 1) -> bytes:
        """Let CRIU ask, and return its answer without the header."""
        self.take(self.relay.on_request((PROCESS, address, pages), self.now_ns))
        while not (answer := self.relay.answers()):
            self.take(self.relay.requests(self.now_ns))
            self.now_ns, start, count = self._answers.popleft()
            self.pages += count
            self.relay.on_pages(content(start, count), self.now_ns)
        _, count, start, process = MESSAGE.unpack_from(answer)
        assert (start, process, len(answer)) == (address, PROCESS, MESSAGE.size + count * PAGESIZE)
        return answer[MESSAGE.size :]


def test_two_hundred_faults_take_a_few_round_trips() -> None:
    source = Source(Relay([(PROCESS, BASE, 4000), (PROCESS, BASE << 1, 1000)]))
    used = random.Random(1).sample(range(4000), 200)
    for page in used:
        assert source.ask(BASE + page * PAGESIZE) == content(BASE + page * PAGESIZE, 1)
    assert source.now_ns < 20 * ROUND_TRIP_NS
    assert source.pages < 5000 + 200


def test_pages_near_one_that_was_asked_for_come_before_those_of_large_data() -> None:
    source = Source(Relay([(PROCESS, BASE, 100_000)]))
    end = BASE + 100_000 * PAGESIZE
    for page in random.Random(1).sample(range(1, 2000), 300):
        source.ask(end - page * PAGESIZE)
    assert source.now_ns < 40 * ROUND_TRIP_NS


def test_answers_with_fewer_pages_lose_none() -> None:
    source = Source(Relay([(PROCESS, BASE, 500)]), most=10)
    address, end = BASE, BASE + 500 * PAGESIZE
    while address < end:
        found = source.ask(address, (end - address) // PAGESIZE)
        assert found == content(address, len(found) // PAGESIZE)
        address += len(found)
    assert source.ask(BASE) == content(BASE, 1)  # again, for a child that has been forked since


def test_an_image_lists_the_pages_that_follow() -> None:
    def entry(address: int, pages: int, flags: int) -> bytes:
        # images/pagemap.proto of CRIU: vaddr 1, compat_nr_pages 2, flags 4, nr_pages 5; below 128 a number is a byte
        message = b"\x08" + bytes([address]) + b"\x10\x00\x20" + bytes([flags]) + b"\x28" + bytes([pages])
        return struct.pack("<I", len(message)) + message

    image = b"MAGICNUM" + struct.pack("<I", 2) + b"\x08\x01" + entry(16, 3, 4) + entry(64, 5, 2) + entry(96, 1, 6)
    assert lazy_pages(image) == [(64, 5), (96, 1)]
