"""Migrations as their users saw them, from tables of requests worked out by hand."""

from itertools import pairwise
from typing import Any

import polars as pl
import pytest

from cellbed.measure.migrations import migration_summaries

MOVE: dict[str, Any] = {
    "app": "shop",
    "strategy": "state",
    "source": "cloud-0",
    "target": "edge-0",
    "begin_s": 10.0,
    "end_s": 14.0,
    "failed": None,
    "bytes": 5000,
    "phases": [{"name": "restore", "begin_s": 12.0, "end_s": 12.5, "bytes": None}],
}


def requests(rows: list[tuple[float, float | None, str | None]]) -> pl.DataFrame:
    """Requests of an application: intended, latency, server."""
    table = pl.DataFrame(rows, schema=["intended_s", "latency_s", "server"], orient="row")
    status = pl.when(pl.col("latency_s").is_null()).then(pl.lit("lost")).otherwise(pl.lit("ok"))
    return table.with_columns(status=status, app=pl.lit("shop"), endpoint=pl.lit("phone-0"))


BEFORE = [(float(second), 0.2, "cloud-0") for second in range(10)]
AFTER = [(float(second), 0.1, "edge-0") for second in range(14, 30)]
MEANWHILE: list[tuple[float, float | None, str | None]] = [
    (10.0, 0.2, "cloud-0"),
    (11.0, 0.2, "cloud-0"),
    (12.0, 1.9, "edge-0"),
    (13.0, None, None),
    (13.5, 0.5, "edge-0"),
]


def test_requests_meanwhile_are_served_by_either_node_delayed_or_failed() -> None:
    (found,) = migration_summaries({"migrations": [MOVE]}, requests([*BEFORE, *MEANWHILE, *AFTER]))
    # From 11.2 to 13.9 s there was no reply; before the move one came every second.
    assert found.gap_s == pytest.approx(2.7)
    assert found.gap_at_s == pytest.approx(11.2)
    assert found.usual_gap_s == pytest.approx(1.0)
    assert (found.served_before, found.delayed, found.failed_requests, found.served_after) == (2, 2, 1, 0)
    assert found.first_reply_s == pytest.approx(3.9)


Row = tuple[str, int | None, float, float | None]


def of_users(*rows: Row) -> pl.DataFrame:
    """Requests: endpoint, local port, intended, latency."""
    table = pl.DataFrame(rows, schema=["endpoint", "local_port", "intended_s", "latency_s"], orient="row")
    status = pl.when(pl.col("latency_s").is_null()).then(pl.lit("lost")).otherwise(pl.lit("ok"))
    return table.with_columns(status=status, app=pl.lit("shop"), server=pl.lit("cloud-0"))


def user(number: int, *, silent: tuple[float, float], port: int = 0, overlaps: bool = False) -> list[Row]:
    """Requests each second of a user of an endpoint of its own, or of phone-0, where they overlap those of others. It
    waits for a time for the reply to one."""
    begin, end = silent
    latency, rows = 0.55 if overlaps else 0.05, list[Row]()
    for at in (second + number * 0.1 for second in range(30)):
        if not begin <= at + latency <= end:
            rows.append(("phone-0" if overlaps else f"phone-{number}", port or 4000 + number, at, latency))
        elif at + latency < begin + 1 and end < 30:
            rows.append((rows[-1][0], rows[-1][1], at, end - at))
    return rows


@pytest.mark.parametrize("overlaps", [False, True], ids=["of an endpoint each", "of one endpoint"])
def test_each_user_has_its_gap_and_the_worst_does_not_shrink_with_more_users(overlaps: bool) -> None:
    worst, last = [], 10.55 if overlaps else 10.05
    for count in (1, 3, 5):
        rows = [row for each in range(count) for row in user(each, silent=(11, 13 - each * 0.2), overlaps=overlaps)]
        (found,) = migration_summaries({"migrations": [MOVE]}, of_users(*rows))
        assert found.users == count
        worst.append(found.gap_s)
    assert worst == pytest.approx([13 - last] * 3)
    assert found.gap_user == "phone-0, port 4000"
    assert found.gap_p50_s == pytest.approx(13 - last - 2 * 0.3)
    assert found.gap_p90_s is None  # of five users it would be the maximum
    assert found.usual_gap_s == pytest.approx(1.0)


def test_a_user_that_connects_again_is_the_same_user() -> None:
    rows = list[Row]()
    for number in range(3):
        before = user(number, silent=(11, 99), overlaps=True)
        after = [row for row in user(number, silent=(50, 50), port=5000 + number, overlaps=True) if row[2] >= 13]
        rows += [*before, *after, ("phone-0", 4000 + number, 11.0 + number * 0.1, None)]
    (found,) = migration_summaries({"migrations": [MOVE]}, of_users(*rows))
    assert found.users == 3
    # Replies at 10.55, 10.65, 10.75 and 13.55, 13.65, 13.75 s. Which of the new connections is whose is not known.
    assert found.gap_p50_s == pytest.approx(3.0)
    assert found.gap_s == pytest.approx(3.0, abs=0.2 + 1e-9)


@pytest.mark.parametrize("uses", [(1.0, 28.0), (1.0, 2.0, 28.0), (1.0, 1.2, 1.4, 1.6, 1.8, 28.0)], ids=len)
def test_a_connection_kept_in_reserve_is_no_user_that_waits(uses: tuple[float, ...]) -> None:
    busy = user(0, silent=(50, 50), overlaps=True)
    reserve: list[Row] = [("phone-0", 6000, at, 0.1) for at in uses]
    (found,) = migration_summaries({"migrations": [MOVE]}, of_users(*busy, *reserve))
    assert found.gap_s < 2


@pytest.mark.parametrize(
    ("ports", "periods", "error_s"),
    [(1, (0.1, 0.4, 3.0), 1e-6), (1000, (0.1, 0.2, 0.4), 0.4), (0, (0.1, 0.2, 0.4), 0.4)],
    ids=["a connection each", "a connection for each request", "one connection"],
)
def test_users_of_one_endpoint_with_other_rates_have_the_gaps_of_their_clocks(
    ports: int, periods: tuple[float, ...], error_s: float
) -> None:
    """Without a connection of its own, a user is known up to the time between two requests."""
    rows, gaps = list[Row](), list[float]()
    for number, period in enumerate(periods):
        at, replies = number * 0.03, list[float]()
        while at < 30:
            latency = 13 + number * 0.01 - at if 11 <= at < 12.9 else 0.08
            rows.append(("phone-0", 4000 + number + 10 * (len(replies) % ports) if ports else None, at, latency))
            replies.append(at + latency)
            at = max(at + period, replies[-1])
        gaps.append(max(later - earlier for earlier, later in pairwise(replies) if later > 10 and earlier < 14))
    (found,) = migration_summaries({"migrations": [MOVE]}, of_users(*sorted(rows, key=lambda row: row[2])))
    assert found.users == len(periods)
    assert found.gap_s == pytest.approx(max(gaps), abs=error_s)


def test_endpoints_without_a_reply_since_the_migration_are_counted() -> None:
    lost: list[Row] = [("phone-1", 4001, float(second), None) for second in range(14, 20)]
    rows = [*user(0, silent=(11, 13)), *user(1, silent=(11, 99)), *lost]
    (found,) = migration_summaries({"migrations": [MOVE]}, of_users(*rows))
    assert (found.users, found.silent_endpoints) == (2, 1)


def test_a_move_has_paid_when_later_requests_have_gained_what_those_meanwhile_lost() -> None:
    (found,) = migration_summaries({"migrations": [MOVE]}, requests([*BEFORE, *MEANWHILE, *AFTER]))
    assert (found.before_s, found.after_s) == (pytest.approx(0.2), pytest.approx(0.1))
    # 1.7 s and 0.3 s more than 0.2 s were lost, and one request a second gains 0.1 s.
    assert found.paid_s == pytest.approx(20.0)
    assert not found.has_paid  # the last request was due 15 s after its end
    later = [(float(second), 0.1, "edge-0") for second in range(14, 40)]
    (found,) = migration_summaries({"migrations": [MOVE]}, requests([*BEFORE, *MEANWHILE, *later]))
    assert found.has_paid
    back = MOVE | {"source": "edge-0", "target": "cloud-0"}
    slower = [(float(second), 0.3, "cloud-0") for second in range(14, 30)]
    (found,) = migration_summaries({"migrations": [back]}, requests([*BEFORE, *slower]))
    assert found.paid_s is None


def test_a_request_that_was_under_way_when_the_move_began_can_fail() -> None:
    unanswered: list[tuple[float, float | None, str | None]] = [(5.5, None, None), (9.5, None, None)]
    (found,) = migration_summaries({"migrations": [MOVE]}, requests([*BEFORE, *unanswered, *AFTER]))
    assert found.failed_requests == 1


def test_a_gap_no_longer_than_usual_delays_nothing() -> None:
    rows: list[tuple[float, float | None, str | None]] = [(float(second), 0.2, "cloud-0") for second in range(30)]
    (found,) = migration_summaries({"migrations": [MOVE]}, requests(rows))
    assert (found.delayed, found.failed_requests) == (0, 0)
    assert found.served_before == 4


def test_a_run_without_requests_has_the_phases_alone() -> None:
    (found,) = migration_summaries({"migrations": [MOVE | {"failed": "the disk is full"}]}, requests([]))
    assert (found.failed, found.gap_s, found.bytes) == ("the disk is full", None, 5000)
    assert [(each.name, each.begin_s) for each in found.phases] == [("restore", 12.0)]
