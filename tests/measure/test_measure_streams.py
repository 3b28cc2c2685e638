"""Packets joined to the bytes of their streams: retransmission, wrap-around, reconnection, loss."""

from typing import Any

import numpy as np
import pytest

from cellbed.measure.packets import RECORD, crossings
from cellbed.measure.streams import NEVER, Connection, Streams

DIRECTIONS = [
    {"index": 0, "name": "mobile-0.uplink", "from": "endpoint-0", "to": "tower"},
    {"index": 1, "name": "mobile-0.downlink", "from": "tower", "to": "endpoint-0"},
    {"index": 2, "name": "core-edge-0.uplink", "from": "tower", "to": "edge-0"},
    {"index": 3, "name": "core-edge-0.downlink", "from": "edge-0", "to": "tower"},
]
MS = 1_000_000


class Log:
    """A packet log written by hand: endpoint-0 is vertex 0, edge-0 vertex 1."""

    def __init__(self) -> None:
        self.records: list[tuple[int, ...]] = []
        self.packets = 0

    def up(self, at: float, sequence: int, payload: int, *, port: int = 40_000, drop: int = 0, queue: int = 2) -> None:
        """A packet of the uplink's stream that enters at `at` ms, queues for `queue` ms, is delayed for 10 + 1 ms."""
        self._two_hops((0, 2), (0, 1), (port, 1883), at, sequence, payload, drop, queue)

    def down(self, at: float, sequence: int, payload: int, *, port: int = 40_000, drop: int = 0) -> None:
        self._two_hops((3, 1), (1, 0), (1883, port), at, sequence, payload, drop, 0)

    def datagram(self, at: float, *, drop: int = 0, queue: int = 0) -> None:
        """A datagram of the uplink between the same ports."""
        self._two_hops((0, 2), (0, 1), (40_000, 1883), at, 0, 100, drop, queue, 17)

    def _two_hops(
        self, path: Any, ends: Any, ports: Any, at: float, sequence: int, payload: int, drop: int, queue: int,
        protocol: int = 6,
    ) -> None:  # fmt: skip
        packet, now = self.packets, round(at * MS)
        self.packets += 1
        for hop, (direction, delay) in enumerate(zip(path, (10 * MS, 1 * MS), strict=True)):
            released = now + (queue * MS if hop == 0 else 0)
            departed = released if drop else released + delay
            times = (now, released, departed, departed + 1000)
            tcp = (*ports, sequence % 2**32, payload, *ends)
            self.records.append((packet, *times, direction, drop, protocol, payload + 52, *tcp))
            if drop:
                return
            now = departed

    def streams(self) -> Streams:
        log = np.array(self.records, RECORD)
        return Streams(crossings(log[np.argsort(log["departed"], kind="stable")], DIRECTIONS, [1883]))

    def uplink(self, port: int = 40_000) -> list[Connection]:
        self.down(0, 77, 0)  # the far end is known by name as soon as it sends
        return self.streams().connections("endpoint-0", port, 1883)


def entered(streams: Streams, rows: np.ndarray[Any, Any]) -> list[int | None]:
    """Entry times of crossings in ms."""
    return [None if row == NEVER else int(streams.crossings.entered[row]) // MS for row in rows]


def look(log: Log, starts: list[int], ends: list[int], connection: int = 0) -> tuple[list[Any], list[Any]]:
    """Return when each start byte first entered, and when the packet completing each prefix entered."""
    log.down(0, 77, 0)
    streams = log.streams()
    found = streams.connections("endpoint-0", 40_000, 1883)[connection]
    first, completing = found.entry(np.array(starts)), found.completion(np.array(ends))
    return entered(streams, first), entered(streams, completing)


def test_a_request_enters_with_its_first_byte_and_completes_with_its_last() -> None:
    log = Log()
    log.up(1, 1000, 0)
    for index in range(4):
        log.up(10 + index, 1001 + 100 * index, 100)
    assert look(log, [0, 150, 300], [100, 250, 400]) == ([10, 11, 13], [10, 12, 13])


def test_queue_and_delay_are_summed_over_the_hops() -> None:
    log = Log()
    log.up(1, 1000, 0)
    log.up(10, 1001, 100, queue=7)
    log.down(0, 77, 0)
    found = log.streams().crossings
    row = int(np.flatnonzero(found.payload)[0])
    assert found.queued[row] == 7 * MS
    assert found.delayed[row] == 11 * MS
    assert found.left[row] == 28 * MS + 1000
    assert found.delivered[row]


def test_a_duplicated_packet_counts_once_by_its_delivered_copy() -> None:
    log = Log()
    log.up(1, 1000, 0)
    log.up(10, 1001, 100, queue=7)
    doubled = [list(record) for record in log.records[-2:]]
    for record in doubled:  # a second copy, 3 ms behind
        record[1:5] = [time + 3 * MS for time in record[1:5]]
    log.records += [tuple(record) for record in doubled]
    log.up(30, 1101, 100, queue=1)
    lost = list(log.records[-2])
    lost[3:7] = [lost[2], lost[2], 0, 2]
    log.records.append(tuple(lost))  # a copy of this one is lost
    log.down(0, 77, 0)
    found = log.streams().crossings
    rows = np.flatnonzero(found.payload)
    assert (found.queued[rows] // MS).tolist() == [7, 1]
    assert (found.delayed[rows] // MS).tolist() == [11, 11]
    assert found.left[rows[0]] == 28 * MS + 1000
    assert found.delivered[rows].all()


def test_a_retransmission_completes_the_stream_after_a_loss() -> None:
    log = Log()
    log.up(1, 1000, 0)
    log.up(10, 1001, 100)
    log.up(11, 1101, 100, drop=1)
    log.up(12, 1201, 100)
    log.up(50, 1101, 100)  # again
    # Bytes 200 to 300 came early, but bytes before them were missing until the retransmission.
    assert look(log, [100, 200], [100, 200, 300]) == ([11, 12], [10, 50, 50])


def test_lost_bytes_have_no_completing_packet() -> None:
    log = Log()
    log.up(1, 1000, 0)
    log.up(10, 1001, 100)
    log.up(11, 1101, 100, drop=1)
    assert look(log, [100, 500], [100, 200, 500]) == ([11, None], [10, None, None])


@pytest.mark.parametrize("first", [2**32 - 1, 2**32 - 2, 2**32 - 150, 2**31 - 50, 0])
def test_sequence_numbers_wrap_around(first: int) -> None:
    log = Log()
    log.up(1, first, 0)
    for index in range(6):
        log.up(10 + index, first + 1 + 100 * index, 100, drop=1 if index == 2 else 0)
    log.up(40, first + 201, 100)
    assert look(log, [0, 200, 500], [200, 300, 600]) == ([10, 12, 15], [11, 40, 40])


def test_pure_acknowledgements_keep_alives_and_the_end_do_not_open_a_connection() -> None:
    log = Log()
    log.up(1, 1000, 0)
    log.up(2, 1001, 0)
    log.up(10, 1001, 100)
    log.up(11, 1101, 0)
    log.up(12, 1100, 0)  # keep-alive
    log.up(13, 1101, 100)
    log.up(14, 1201, 0)  # FIN
    log.up(15, 1202, 0)
    assert len(log.uplink()) == 1


def test_a_lost_syn_that_is_sent_again_opens_one_connection() -> None:
    log = Log()
    log.up(1, 1000, 0, drop=1)
    log.up(3, 1000, 0)
    log.up(10, 1001, 100)
    assert len(log.uplink()) == 1
    assert look(log, [0], [100]) == ([10], [10])


@pytest.mark.parametrize("again", [50_000_000, 2**32 - 20_000_000])
def test_a_new_connection_from_the_same_port_counts_from_zero(again: int) -> None:
    log = Log()
    log.up(1, 1000, 0)
    log.up(10, 1001, 100)
    log.up(11, 1101, 100)
    log.up(100, again, 0)
    log.up(101, again + 1, 0)
    log.up(102, again + 1, 100)
    log.up(103, again + 101, 100)
    assert look(log, [0, 100], [200], connection=0) == ([10, 11], [11])
    assert look(log, [0, 100], [200], connection=1) == ([102, 103], [103])


def test_a_connection_without_its_beginning_is_left_out() -> None:
    log = Log()
    log.up(10, 1001, 100)
    log.up(11, 1101, 100)
    assert log.uplink() == []


def test_connections_differ_by_port_and_node() -> None:
    log = Log()
    for port in (40_000, 40_001):
        log.up(1, 1000, 0, port=port)
        log.up(port - 39_990, 1001, 100, port=port)
    streams = log.streams()
    times = []
    for port in (40_000, 40_001):
        (connection,) = streams.connections("endpoint-0", port, 1883)
        times += entered(streams, connection.entry(np.array([0])))
    assert times == [10, 11]
    assert streams.connections("endpoint-1", 40_000, 1883) == []


def test_a_byte_waits_while_its_sender_has_unsent_bytes() -> None:
    log = Log()
    log.up(0, 77, 0)
    log.down(1, 1000, 0)
    sent = [(10, 1448), (10, 500), (20, 1448), (50, 1448), (80, 1436), (90, 100), (200, 300), (300, 1448), (310, 52)]
    at = 1001
    for time, payload in sent:
        log.down(time, at, payload)
        at += payload
    log.up(286.8, 77, 0)  # an acknowledgement that arrives at 299.8 ms, and lets the sender go on
    (connection,) = log.streams().connections("endpoint-0", 40_000, 1883, arriving=True)
    starts = np.cumsum([0, *(payload for _, payload in sent[:-1])])
    since = [int(time) // MS for time in connection.busy_since(starts + 10)]
    # The packets of 500, 100 and 300 bytes leave no unsent bytes.
    assert since == [10, 10, 20, 20, 20, 20, 200, 200, 200]


def test_a_sender_that_has_sent_its_last_packet_pauses_until_it_sends_the_next() -> None:
    log = Log()
    log.up(0, 77, 0)
    log.down(1, 1000, 0)
    at = 1001
    # The 1000-byte packet of the second message is lost, and retransmitted after the third message.
    for time, payload, drop in ((10, 1448, 0), (11, 500, 0), (60, 1448, 0), (62, 1000, 1), (90, 300, 0)):
        log.down(time, at, payload, drop=drop)
        at += payload
    log.down(120, 1001 + 1448 + 500 + 1448, 1000)
    (connection,) = log.streams().connections("endpoint-0", 40_000, 1883, arriving=True)
    first, second, third = (0, 1948), (1948, 4396), (4396, 4696)

    def pauses(begin: int, end: int) -> float:
        return float(connection.pauses(np.array([begin]), np.array([end]))[0] / MS)

    assert [pauses(*each) for each in (first, second, third)] == [0, 0, 0]
    assert pauses(0, second[1]) == 49
    # The retransmission completes the third message: the wait for it begins at the loss.
    assert pauses(0, third[1]) == 49
    assert pauses(0, 10_000) == 0  # never sent


def test_datagrams_are_found_by_the_numbers_of_their_sender_and_of_their_receiver() -> None:
    log = Log()
    log.datagram(1)
    log.datagram(2, drop=1)
    log.datagram(3, queue=9)  # arrives after the next one
    log.datagram(4)
    log.up(5, 1000, 0)  # a connection between the same ports
    log.down(0, 77, 0)
    streams, number = log.streams(), np.arange(5)
    sent, connection = streams.connections("endpoint-0", 40_000, 1883)
    assert entered(streams, sent.entry(number)) == [1, 2, 3, 4, None]
    assert entered(streams, sent.completion(number + 1)) == [1, None, 3, 4, None]
    assert connection.opened == 5 * MS
    arrived, _ = streams.connections("edge-0", 1883, 40_000, arriving=True)
    assert entered(streams, arrived.completion(number + 1)) == [1, 4, 3, None, None]
