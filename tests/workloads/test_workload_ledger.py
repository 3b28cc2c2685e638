"""What becomes of requests: statuses, counts, and when a record is written."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cellbed_node.ledger import Ledger, Request

TIMEOUT = 100


class Bookkeeping:
    """A ledger and what it has written."""

    def __init__(self, most_open: int = 1000) -> None:
        self.lines: list[str] = []
        self.ledger = Ledger(TIMEOUT, self.lines.append, most_open)

    def publish(self, number: int, intended: int) -> None:
        self.ledger.add(Request(number, "endpoint-0", intended, started_ns=intended, sent_ns=intended, bytes_up=10))

    def reply(self, number: int, now: int, error: str | None = None) -> None:
        self.ledger.reply(number, now, error=error, start=0, end=30, payload=7)

    @property
    def statuses(self) -> dict[int, str]:
        return {record["request"]: record["status"] for record in self.records}

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def test_an_error_is_a_failed_request_in_time_and_late() -> None:
    book = Bookkeeping()
    for number in (0, 1):
        book.publish(number, 0)
    book.reply(0, 5, "status 503")
    book.ledger.expire(115)
    book.reply(1, 120, "status 503")
    assert book.statuses == {0: "failed", 1: "failed"}
    assert [record["reply_ns"] for record in book.records] == [5, 120]
    assert (book.ledger.completed, book.ledger.failed, book.ledger.timed_out) == (0, 2, 0)


def test_at_the_end_what_is_past_its_time_timed_out_and_the_rest_is_lost() -> None:
    book = Bookkeeping()
    book.publish(0, 0)
    book.publish(1, 50)
    assert book.ledger.waiting
    book.ledger.close(120)
    assert book.statuses == {0: "timed-out", 1: "lost"}
    assert not book.ledger.waiting


def test_a_policy_observes_the_last_reply_the_oldest_that_waits_and_time_outs() -> None:
    book = Bookkeeping()
    assert book.ledger.latency_ns(0) is None
    book.publish(0, 0)
    book.publish(1, 10)
    assert book.ledger.latency_ns(30) == 30  # waits since 0
    book.reply(0, 40)
    assert book.ledger.latency_ns(41) == 40  # the reply took 40, and the other one waits since 31
    assert book.ledger.latency_ns(60) == 50
    book.ledger.expire(110)
    assert book.ledger.latency_ns(500) == TIMEOUT  # and no longer: nothing waits any more
    book.publish(2, 500)
    book.reply(2, 507)
    assert book.ledger.latency_ns(510) == 7


def test_memory_has_a_bound() -> None:
    book = Bookkeeping(most_open=3)
    for number in range(10):
        book.publish(number, number)
        book.ledger.expire(number)
    book.ledger.expire(200)
    assert len(book.lines) == 7
    assert set(book.statuses.values()) == {"timed-out"}


events = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 50)),
        st.tuples(st.just("reply"), st.integers(0, 30)),
        st.tuples(st.just("expire"), st.integers(0, 50)),
        st.tuples(st.just("break"), st.just(0)),
        st.tuples(st.just("refuse"), st.just(0)),
        st.tuples(st.just("lose"), st.integers(0, 30)),
    ),
    max_size=60,
)


@given(events)
def test_every_request_is_written_exactly_once_and_the_counts_add_up(story: list[tuple[str, int]]) -> None:
    book = Bookkeeping(most_open=5)
    now = number = 0
    for what, value in story:
        if what == "publish":
            now += value
            book.publish(number, now)
            number += 1
        elif what == "reply":
            book.reply(value, now)
        elif what == "expire":
            now += value
            book.ledger.expire(now)
        elif what == "break":
            book.ledger.connection_lost(now)
        elif what == "lose":
            book.ledger.lose(value, "malformed reply")
        else:
            book.ledger.refuse(Request(number, "endpoint-0", now), "not connected")
            number += 1
    book.ledger.close(now)
    written = [record["request"] for record in book.records]
    assert sorted(written) == list(range(number))
    statuses = list(book.statuses.values())
    assert book.ledger.issued == number
    assert book.ledger.completed == statuses.count("ok") + statuses.count("late")
    assert book.ledger.timed_out == statuses.count("timed-out")
    assert book.ledger.lost == statuses.count("lost")
    assert all(
        (record["reply_ns"] - record["intended_ns"] <= TIMEOUT) == (record["status"] == "ok")
        for record in book.records
        if record["reply_ns"] is not None
    )
