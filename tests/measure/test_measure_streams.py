"""Packets joined to the bytes of their streams: retransmission, wrap-around, reconnection, loss."""

from typing import Any

import numpy as np
import pytest

from cellbed.measure.streams import NEVER, Streams
from packet_logs import MS, Log, streams, streams_between


def entered(streams: Streams, rows: np.ndarray[Any, Any]) -> list[int | None]:
    """Entry times of crossings in ms."""
    return [None if row == NEVER else int(streams.crossings.entered[row]) // MS for row in rows]


def look(log: Log, starts: list[int], ends: list[int], connection: int = 0) -> tuple[list[Any], list[Any]]:
    """Return when each start byte first entered, and when the packet completing each prefix entered."""
    found = streams(log)
    its = streams_between(found, "phone-0", 40_000, 80)[connection]
    return entered(found, its.entry(np.array(starts))), entered(found, its.completion(np.array(ends)))


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
    found = streams(log).crossings
    rows = np.flatnonzero(found.payload)
    assert (found.queued[rows] // MS).tolist() == [7, 1]
    assert (found.delayed[rows] // MS).tolist() == [10, 10]
    assert found.left[rows[0]] == 27 * MS
    assert found.delivered[rows].all()


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


@pytest.mark.parametrize(
    ("packets", "count"),
    [
        # Acknowledgements, a keep-alive and the end open no connection.
        ([(1, 1000, 0), (2, 1001, 0), (3, 1001, 100), (4, 1101, 0), (5, 1100, 0), (6, 1101, 9), (7, 1110, 0)], 1),
        ([(1, 1000, 0, 1), (3, 1000, 0), (10, 1001, 100)], 1),  # the SYN is lost, and sent again
        ([(10, 1001, 100), (11, 1101, 100)], 0),  # without its beginning
    ],
)
def test_a_connection_begins_with_its_syn(packets: list[tuple[int, ...]], count: int) -> None:
    log = Log()
    for at, sequence, payload, *drop in packets:
        log.up(at, sequence, payload, drop=sum(drop))
    assert len(streams_between(streams(log), "phone-0", 40_000, 80)) == count


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


def test_a_byte_waits_while_its_sender_has_unsent_bytes() -> None:
    log = Log()
    log.up(0, 77, 0)
    log.down(1, 1000, 0)
    sent = [(10, 1448), (10, 500), (20, 1448), (50, 1448), (80, 1436), (90, 100), (200, 300), (300, 1448), (310, 52)]
    at = 1001
    for time, payload in sent:
        log.down(time, at, payload)
        at += payload
    log.up(289.8, 77, 0)  # an acknowledgement that arrives at 299.8 ms, and lets the sender go on
    (connection,) = streams_between(streams(log), "phone-0", 40_000, 80, towards=True)
    starts = np.cumsum([0, *(payload for _, payload in sent[:-1])])
    since = [int(time) // MS for time in connection.busy_since(starts + 10)]
    # The packets of 500, 100 and 300 bytes leave no unsent bytes.
    assert since == [10, 10, 20, 20, 20, 20, 200, 200, 200]


def test_a_byte_waits_during_a_recovery_whose_packets_are_not_full() -> None:
    log = Log()
    log.up(0, 77, 0)
    log.down(1, 1000, 0)
    sent = [(10, 1448), (60, 1448), (60, 248), (70, 1448), (70, 248), (80, 1448), (120, 300)]
    at = 1001
    for time, payload in sent:
        log.down(time, at, payload)
        at += payload
    for arrival in (60, 70, 80):
        log.up(arrival - 10.2, 77, 0)
    (connection,) = streams_between(streams(log), "phone-0", 40_000, 80, towards=True)
    starts = np.cumsum([0, *(payload for _, payload in sent[:-1])])
    assert [int(time) // MS for time in connection.busy_since(starts + 10)] == [10] * 7


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
    (connection,) = streams_between(streams(log), "phone-0", 40_000, 80, towards=True)
    first, second, third = (0, 1948), (1948, 4396), (4396, 4696)

    def pauses(begin: int, end: int) -> float:
        return float(connection.pauses(np.array([begin]), np.array([end]))[0] / MS)

    assert [pauses(*each) for each in (first, second, third)] == [0, 0, 0]
    assert pauses(0, second[1]) == 49
    # The retransmission completes the third message: the wait for it begins at the loss.
    assert pauses(0, third[1]) == 49
    assert pauses(0, 10_000) == 0  # never sent


def test_datagrams_are_found_by_the_numbers_of_their_sender_and_of_their_receiver() -> None:
    log, same_ports = Log(protocol=17), Log()
    for at, drop, queue in ((1, 0, 0), (2, 1, 0), (3, 0, 9), (4, 0, 0)):  # the third arrives after the fourth
        log.up(at, 0, 100, drop=drop, queue=queue)
    same_ports.up(5, 1000, 0)
    both, number = streams(log, same_ports), np.arange(5)
    sent, connection = streams_between(both, "phone-0", 40_000, 80)
    assert entered(both, sent.entry(number)) == [1, 2, 3, 4, None]
    assert entered(both, sent.completion(number + 1)) == [1, None, 3, 4, None]
    assert connection.opened == 5 * MS
    arrived, _ = streams_between(both, "edge-0", 80, 40_000, towards=True)
    assert entered(both, arrived.completion(number + 1)) == [1, 4, 3, None, None]
