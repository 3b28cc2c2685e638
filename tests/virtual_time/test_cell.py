"""Users of a radio cell over arrays: ``cellbed.Cell``."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from cellbed import Cell, Link, Outcomes

TIMES = np.arange(400) * 500_000
"""A packet of 1500 bytes each 0.5 ms: 24 Mbit/s."""
LINK = Link(rate="12 Mbit/s", queue="20 packets")


def same(one: Outcomes, other: Outcomes) -> bool:
    return all(np.array_equal(getattr(one, each.name), getattr(other, each.name)) for each in fields(Outcomes))


def test_schedulers_choose_by_priority_rate_and_remaining_bytes() -> None:
    at_once = [np.zeros(20, np.int64)] * 2
    users = [{"rate": "12 Mbit/s"}, {"rate": "24 Mbit/s"}]
    first, second = Cell(users, scheduler="priority", priorities=[0, 1]).run(at_once, 1500).users
    assert first.departed.max() == 20_000_000 < second.departed.min()
    first, second = Cell(users, scheduler="max-rate").run(at_once, 1500).users
    assert second.departed.max() < first.departed[1]
    to_come = [np.full(20, 10**6), np.zeros(20, np.int64)]
    cell = Cell([LINK, LINK], scheduler="shortest-remaining")
    first, second = cell.run(at_once, 1500, to_come=to_come).users
    assert second.departed.max() < first.departed[1]
    first, second = cell.run(at_once, 1500, to_come=to_come[::-1]).users
    assert first.departed.max() < second.departed.min()
    # Without a forecast, by what waits. The first user begins: its packets came first.
    first, second = cell.run([at_once[0], np.zeros(5, np.int64)], 1500).users
    assert (first.departed.max(), second.departed.max()) == (25_000_000, 6_000_000)


def test_users_enter_leave_and_change() -> None:
    # Two of 12 Mbit/s take turns of 1 ms; the second is there from 10 to 20 ms, and its link is closed otherwise.
    closed = [("0 s", "10 ms"), ("20 ms", "20 ms")]
    users = [{"rate": "12 Mbit/s"}, {"rate": "12 Mbit/s", "outage": closed}]
    cell = Cell(users, scheduler="round-robin", visits=[[(None, None)], [("10 ms", "20 ms")]])
    shared = cell.run([np.zeros(25, np.int64)] * 2, 1500)
    first, second = (each.departed // 1_000_000 for each in shared.users)
    assert [int(np.count_nonzero((first > at) & (first <= at + 10))) for at in (0, 10, 20)] == [10, 5, 10]
    # At 20 ms its link closes before its fifth packet has left, which has then nothing left to send.
    assert second[:6].tolist() == [12, 14, 16, 18, 40, 41]
    assert shared.served.tolist() == [25_000_000, 5_000_000]
    # A link changes beside another as it does alone, and takes its turns with the new rate.
    faster = Link(rate="12 Mbit/s", changes=[{"at": "20 ms", "rate": "24 Mbit/s"}])
    assert same(Cell([faster]).run([TIMES], 1500).users[0], faster.run(TIMES, 1500))
    first, second = Cell([faster, LINK], scheduler="round-robin").run([np.zeros(20, np.int64)] * 2, 1500).users
    assert np.count_nonzero(first.departed <= 20_000_000) == 10
    assert first.departed.max() < second.departed.max()
    # Two visits of one user are added up.
    twice = Cell([LINK], visits=[[(None, "2 ms"), ("3 ms", None)]]).run([np.zeros(5, np.int64)], 1500)
    assert twice.served.tolist() == [4_000_000]


@pytest.mark.parametrize(("begin", "least", "most"), [("zero", 0.9, 1.0), ("fair-share", 0.3, 0.4)])
def test_an_entering_user_takes_the_cell_or_its_fair_share(begin: str, least: float, most: float) -> None:
    # Three saturated users of 12 Mbit/s, of which the last enters at 5 s: its share of the next 100 ms.
    cell = Cell(
        [{"rate": "12 Mbit/s", "queue": {"kind": "infinite"}}] * 3,
        scheduler={"kind": "proportional-fair", "window": "1 s", "begin": begin},
        visits=[[(None, None)], [(None, None)], [("5 s", None)]],
    )
    waiting = np.zeros(6_000, np.int64)
    users = cell.run([waiting, waiting, waiting[:200] + 5 * 10**9], 1500).users
    sent = [np.count_nonzero((each.departed > 5 * 10**9) & (each.departed <= 5.1 * 10**9)) for each in users]
    assert least <= sent[2] / sum(sent) <= most


def test_packets_are_numbered_and_sized_by_user() -> None:
    shared = Cell([LINK, {"rate": "6 Mbit/s"}], slot="500 us").run([[0, 5_000_000], [1_000_000]], [[1500, 300], [750]])
    assert [each.packet.tolist() for each in shared.users] == [[0, 1], [0]]
    assert [each.departed.tolist() for each in shared.users] == [[1_000_000, 5_200_000], [2_000_000]]
    assert shared.served.tolist() == [1_200_000, 1_000_000]
    assert repr(shared) == "Shared(users=[Outcomes(delivered=2), Outcomes(delivered=1)], served=[1200000, 1000000])"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"users": []}, "users: give a list of at least one user"),
        ({"users": LINK}, "users: give a list"),
        ({"users": [LINK, {}]}, r"users\[1\]: a direction in a cell needs a bottleneck with a limited rate"),
        ({"users": [{"rate": "5 Mbit"}]}, r"users\[0\]: rate: .*5 Mbit"),
        ({"users": [LINK, 7]}, r"users\[1\]: "),
        ({"visits": []}, "visits: 0 for 1 users"),
        ({"visits": [[]]}, r"visits\[0\]: the user is never in the cell"),
        ({"visits": [["1 s"]]}, r"visits\[0\]\[0\]: '1 s' is not a pair of times"),
        ({"visits": [[("1 s", "1 s")]]}, r"visits\[0\]\[0\]: it must end after it begins"),
        ({"visits": [[(0, 5), ("1 ns", None)]]}, r"visits\[0\]\[1\]: .*and begin after the one before"),
        ({"scheduler": "fair"}, "scheduler: 'fair' is not known: write one of"),
        ({"scheduler": {"kind": "proportional-fair", "window": "0 s"}}, "scheduler.window: '0 s' is too small"),
        ({"slot": "1 us"}, "slot: '1 us' is too small"),
        ({"priorities": [1]}, "only the scheduler 'priority' has them"),
        ({"scheduler": "priority", "priorities": [1, 2]}, "priorities: 2 for 1 users"),
        ({"scheduler": "priority", "priorities": [-1]}, "priorities has -1"),
    ],
)
def test_a_wrong_cell_is_one_clear_error(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Cell(**({"users": [LINK]} | arguments))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"times": [[0]]}, "times: give a list of 2, one row for each user"),
        ({"times": 0}, "times: give a list of 2"),
        ({"sizes": [[1], [1, 2, 3]]}, r"users\[1\]: sizes has 3 values for 2 packets"),
        ({"times": [[0], [5, 4]]}, r"users\[1\]: times are not sorted"),
        ({"times": [[0.5], [5, 6]]}, r"users\[0\]: times has dtype float64"),
        ({"times": [[-1], [5, 6]]}, r"users\[0\]: times contain a negative one"),
        ({"sizes": 0}, r"users\[0\]: sizes contain 0"),
        ({"ecn": [[0], [0, 4]]}, r"users\[1\]: ecn contains a number above 3"),
        ({"to_come": [[0], [0]]}, r"users\[1\]: to_come has 1 values for 2 packets"),
    ],
)
def test_wrong_packets_are_one_clear_error(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Cell([LINK, LINK]).run(**({"times": [[0], [0, 1]], "sizes": 1500} | arguments))
