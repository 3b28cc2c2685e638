"""Packets that pass the node of a tower: both legs joined by the bytes that they carry."""

import random
from typing import Any

import numpy as np
import pytest

from cellbed.measure.packets import RECORD, crossings

DESCRIPTION: dict[str, Any] = {
    "nodes": [{"name": "phone-0"}, {"name": "edge-0"}, {"name": "mast-0", "class": "tower"}],
    "directions": [
        {"index": index, "from": begin, "to": end}
        for index, (begin, end) in enumerate(
            [
                *(("phone-0", "mast-0"), ("mast-0", "edge-0"), ("edge-0", "mast-0"), ("mast-0", "phone-0")),
                *(("edge-0", "tower"), ("tower", "edge-0"), ("phone-0", "tower"), ("tower", "phone-0")),
            ]
        )
    ],
}
UP, DOWN = (0, 1), (2, 3)
MS = 1_000_000


class Log:
    """Records of one connection; each direction queues for 1 ms and delays for 2 ms."""

    def __init__(self, protocol: int = 6) -> None:
        self.records: list[tuple[Any, ...]] = []
        self.packets = 0
        self.handovers: list[tuple[int, str]] = []
        self.protocol = protocol

    def hop(self, at: int, direction: int, sequence: int, payload: int, *, drop: int = 0, again: int = 0) -> int:
        """Add a packet that enters a direction at a time, ms; return when it leaves the direction. again: 1 for the
        previous packet."""
        ends, ports = ((0, 1), (40_000, 80)) if direction in (0, 1, 5, 6) else ((1, 0), (80, 40_000))
        released, departed = at * MS + MS, at * MS + (1 if drop else 3) * MS
        self.packets += 1 - again
        head = (self.packets, at * MS, released, departed, departed, direction, drop, self.protocol)
        self.records.append((*head, payload + 52, *ports, sequence % 2**32, payload, *ends))
        return at + 3

    def joined(self) -> list[dict[str, int]]:
        log = np.array(self.records, RECORD)
        directions = [dict(each) for each in DESCRIPTION["directions"]]
        for end, each in zip(("to", "from"), directions[6:], strict=True):
            each["moves"] = [{**each, end: tower, "at_ns": at * MS} for at, tower in self.handovers]
        description = DESCRIPTION | {"directions": directions}
        found = crossings(log[np.argsort(log["departed"], kind="stable")], description)
        names = ("entered", "queued", "delayed", "proxied", "left", "delivered", "dropped", "sequence", "payload")
        ends = ("source", "destination")
        return [{name: int(getattr(found, name)[row]) for name in (*names, *ends)} for row in range(len(found))]


@pytest.mark.parametrize("seed", range(40))
def test_each_packet_behind_the_node_is_joined_with_the_one_that_brought_its_last_byte(seed: int) -> None:
    draw, log = random.Random(seed), Log()
    near, far, answer = (draw.randrange(2**32) for _ in range(3))
    log.hop(0, 0, near, 0)
    log.hop(3, 3, answer, 0)  # the proxy answers at once
    log.hop(7, 1, far, 0)
    log.hop(10, 2, draw.randrange(2**32), 0)
    at, end, brought = 20, 0, []
    for _ in range(60):
        payload, lost = draw.randrange(1, 1448), draw.random() < 0.1
        if lost:
            log.hop(at, 0, near + 1 + end, payload, drop=2)
            at += 5
        brought.append((end + payload, at, log.hop(at, 0, near + 1 + end, payload)))
        end, at = end + payload, at + draw.randrange(1, 4)
    sent, expected, now = 0, [], at + 10
    while sent < end:
        payload = min(draw.randrange(1, 3000), end - sent)
        _, entered, _ = next(each for each in brought if each[0] >= sent + payload)
        if draw.random() < 0.1:
            log.hop(now, 1, far + 1 + sent, payload, drop=1)
            now += 7
        left = log.hop(now, 1, far + 1 + sent, payload)
        proxied = now - entered - 3
        expected.append(((near + 1 + sent) % 2**32, payload, entered * MS, 2 * MS, 4 * MS, proxied * MS, left * MS))
        sent, now = sent + payload, now + 1
    found = [each for each in log.joined() if (each["source"], each["destination"]) == (0, 1)]
    data = [each for each in found if each["payload"] and each["delivered"]]
    names = ("sequence", "payload", "entered", "queued", "delayed", "proxied", "left")
    assert sorted(tuple(each[name] for name in names) for each in data) == sorted(expected)
    opened = [each for each in found if not each["payload"]]
    assert [(each["sequence"], each["entered"], each["left"], each["delivered"]) for each in opened] == [
        (near, 0, 3 * MS, 1)
    ]
    dropped = [each for each in found if each["dropped"]]
    assert len(dropped) == sum(record[6] > 0 for record in log.records)
    back = [each for each in log.joined() if each["source"] == 1]
    assert [(each["sequence"], each["entered"], each["left"]) for each in back] == [(answer, 3 * MS, 6 * MS)]


def test_forwarded_packets_are_whole_ways_and_a_second_connection_begins_anew() -> None:
    log = Log()
    for begin, first in ((0, 4_000_000_000), (5000, 77)):
        for offset, payload in ((0, 0), (1, 100), (101, 1448), (1549, 0)):
            now = log.hop(begin + offset, 0, first + offset, payload)
            log.hop(now, 1, first + offset, payload)
    found = log.joined()
    ways = [(each["entered"], each["proxied"], each["left"] - each["entered"], each["delivered"]) for each in found]
    data = [way for way, each in zip(ways, found, strict=True) if each["payload"]]
    assert data == [(at * MS, 0, 6 * MS, 1) for at in (1, 101, 5001, 5101)]
    numbers = [first + offset for first in (4_000_000_000, 77) for offset in (1, 101)]
    assert [each["sequence"] for each in found if each["payload"]] == numbers
    assert [each["entered"] for each in found if each["sequence"] in (4_000_000_000, 77)] == [0, 5000 * MS]


@pytest.mark.parametrize("seed", range(40))
def test_a_connection_that_a_handover_leads_to_the_node_keeps_its_numbers(seed: int) -> None:
    draw, log = random.Random(seed), Log()
    number = [draw.randrange(2**32), draw.randrange(2**32)]
    ways = {"tower": ((6, 5), (4, 7)), "mast-0": ((6, 1), (2, 7))}
    at, expected = 0, []

    def send(tower: str, way: int, payload: int, *, lost: bool = False) -> None:
        nonlocal at
        first, second = ways[tower][way]
        if lost:
            log.hop(at, first, number[way], payload, drop=2)
            at += 4
        left = log.hop(at, first, number[way], payload)
        left = log.hop(left, second, number[way], payload, again=int(tower == "tower"))
        if payload:
            expected.append((way == 0, number[way] % 2**32, payload, at * MS, 0, left * MS))
        number[way] += payload
        at += draw.randrange(10, 200)

    for way in (0, 1):
        send("tower", way, 0)
        number[way] += 1
    for tower in ("tower", "mast-0", "tower", "mast-0"):
        log.handovers.append((at, tower))
        for turn in range(20):
            payload = draw.choice([0, draw.randrange(1, 60_000)])
            send(tower, draw.randrange(2), payload, lost=turn == 0 or draw.random() < 0.1)
    whole = [each for each in log.joined() if each["payload"] and each["delivered"]]
    names = ("sequence", "payload", "entered", "proxied", "left")
    assert sorted((each["source"] == 0, *(each[name] for name in names)) for each in whole) == sorted(expected)


def test_datagrams_are_joined_in_order_without_those_that_were_lost() -> None:
    log = Log(protocol=17)
    for number in range(30):
        lost = number % 7 == 3
        now = log.hop(10 * number, 0, 0, 100 + number, drop=2 * lost)
        if not lost and number % 5:  # the node's kernel may drop some
            log.hop(now + 1, 1, 0, 100 + number, drop=number % 6 == 1)
    found = log.joined()
    lost = [each for each in found if each["dropped"] and each["queued"] == MS]
    assert [each["entered"] for each in lost] == [10 * number * MS for number in range(30) if number % 7 == 3]
    whole = [each for each in found if each["delivered"]]
    assert whole
    assert all(each["payload"] == 100 + each["entered"] // (10 * MS) for each in whole)
    assert {each["proxied"] for each in whole} == {MS}


def test_what_a_program_of_the_node_sends_by_itself_begins_at_the_node() -> None:
    log = Log()
    log.hop(0, 1, 500, 0)
    log.hop(10, 1, 501, 20)
    assert [(each["entered"], each["delivered"]) for each in log.joined()] == [(0, 1), (10 * MS, 1)]
