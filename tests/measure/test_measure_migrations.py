"""Migrations as their users saw them, from tables of requests worked out by hand."""

from __future__ import annotations

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
    return table.with_columns(status=status, app=pl.lit("shop"))


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
