"""Requests that programs report: the connections that carried them, and their parts."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellbed.measure.reported import ELSEWHERE, NOTHING, SEVERAL, SHARES, UNFINISHED, attach
from cellbed.measure.requests import read_requests
from cellbed.runformat.description import Reported
from cellbed.runformat.spans import REPORTED
from packet_logs import DIRECTIONS, MS, NODES, Log, fetch, read

SHOP = Reported(
    "program",
    "",
    REPORTED,
    {"step": "text", "begin_ns": "integer"},
    {},
    name="shop",
    clients=("phone-0",),
    servers=("edge-0",),
)
Times = tuple[float, float] | tuple[float, float, str] | tuple[float, float, str, float]


def requests(folder: Path, logs: Iterable[Log], *reported: Times) -> list[dict[str, Any]]:
    """The requests that phone-0 has reported, from begin to end in ms, with an outcome and an intended time."""
    app = SHOP.as_json()
    raw = folder / "raw"
    raw.mkdir(exist_ok=True)
    lines = []
    for number, (begin, end, *more) in enumerate(reported):
        outcome = str(more[0]) if more else "ok"
        fields = {"request": number, "endpoint": "phone-0", "step": "order", "status": outcome}
        intended = float(more[1]) if len(more) > 1 else begin
        times = {"intended_ns": round(intended * MS), "begin_ns": round(begin * MS), "reply_ns": round(end * MS)}
        lines.append(json.dumps(fields | times) + "\n")
    (raw / "shop.phone-0.requests.jsonl").write_text("".join(lines))
    read(folder, *logs, applications=[app])
    run = {"t0_ns": 0, "directions": DIRECTIONS, "nodes": NODES, "applications": [app]}
    return read_requests(folder, run)[0]["requests"].sort("request").to_dicts()


def parts(row: dict[str, Any]) -> dict[str, float]:
    """Those that are not zero, ms; they add up to the latency."""
    found = {name.removeprefix("part_"): round(value * 1e3, 6) for name, value in row.items()
             if name.startswith("part_") and value}  # fmt: skip
    if row["residual_s"] is not None:
        assert sum(found.values()) + row["residual_s"] * 1e3 == pytest.approx(row["latency_s"] * 1e3)
    return found


def exchange(log: Log, at: float, up: int, down: int, *, think: float = 5) -> None:
    """Send 100 bytes from offset `up` at a time, and 100 from offset `down` back, which are there 20 ms + think
    later."""
    log.up(at, 1001 + up, 100)
    log.down(at + 10 + think, 501 + down, 100)


def opened(port: int = 40_000, at: float = 0) -> Log:
    log = Log(port)
    log.up(at, 1000, 0)
    log.down(at + 10, 500, 0)
    log.up(at + 20, 1001, 0)
    return log


def test_a_request_on_a_new_connection_has_all_parts(tmp_path: Path) -> None:
    (row,) = requests(tmp_path, [fetch(at=10)], (9, 66, "ok", 8))
    assert row["latency_s"] == pytest.approx(0.058)
    assert (row["server"], row["local_port"], row["remote_port"], row["step"]) == ("edge-0", 40_000, 80, "order")
    assert parts(row) == {
        "schedule": 1,
        "client_before": 1 + 2,
        "connect_uplink": 10,
        "connect_downlink": 11,
        "uplink_queue": 2,
        "uplink_delay": 10,
        "server": 5,
        "downlink_transport": 1,
        "downlink_queue": 3,
        "downlink_delay": 10,
        "client_after": 2,
    }


def test_several_exchanges_of_a_request_add_up(tmp_path: Path) -> None:
    """As TLS has them: its handshake, then its end together with the request."""
    log = opened()
    exchange(log, 21, 0, 0, think=1)  # until 42
    exchange(log, 45, 100, 100, think=7)  # until 72
    (row,) = requests(tmp_path, [log], (-1, 75))
    assert parts(row) == {
        "client_before": 1 + 1,
        "connect_uplink": 10,
        "connect_downlink": 10,
        "uplink_delay": 20,
        "server": 8,
        "downlink_delay": 20,
        "client_between": 3,
        "client_after": 3,
    }


def test_traffic_that_nobody_reports_does_not_disturb(tmp_path: Path) -> None:
    own, other = opened(40_000), opened(40_001)
    exchange(own, 100, 0, 0, think=60)  # until 180
    exchange(other, 120, 0, 0)
    own.down(500, 601, 24)  # the end of the connection: TLS's alert
    own.up(520, 1101, 24)
    (row,) = requests(tmp_path, [own, other], (99, 181))
    assert row["local_port"] == 40_000
    assert parts(row)["server"] == 60


def test_a_lost_packet_and_its_repetition_are_distinguished(tmp_path: Path) -> None:
    log = opened()
    log.up(100, 1001, 100, drop=1)
    log.up(300, 1001, 100)
    log.down(315, 501, 100)
    (row,) = requests(tmp_path, [log], (99, 326))
    assert parts(row)["uplink_retransmission"] == 200
    assert parts(row)["server"] == 5


slack = st.floats(0.01, 0.4)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(1, 40), st.integers(3, 40), slack, slack), max_size=6), max_size=4))
def test_sequential_requests_on_several_connections_find_their_exchanges(
    tmp_path_factory: pytest.TempPathFactory, story: list[list[tuple[int, int, float, float]]]
) -> None:
    folder, logs, asked, entered = tmp_path_factory.mktemp("run"), [], [], []
    for number, exchanges in enumerate(story):
        log, at = opened(40_000 + number), 50.0
        for index, (think, pause, before, after) in enumerate(exchanges):
            exchange(log, at, 100 * index, 100 * index, think=think)
            asked.append((at - before, at + 20 + think + after))
            entered.append(at)
            at += 20 + think + pause
        logs.append(log)
    rows = requests(folder, logs, *asked)
    assert len(rows) == len(asked)
    for row, at in zip(rows, entered, strict=True):
        if row["residual_s"] is None:
            continue
        parts(row)
        assert abs(row["uplink_entered_ns"] / MS - at) <= 1
    alone = len(story) == 1
    assert not alone or all(row["residual_s"] is not None for row in rows)


def spans(folder: Path, logs: Iterable[Log], *asked: tuple[float, float], **more: Any) -> list[dict[str, Any]]:
    """Spans of HTTP of phone-0, from begin to end in ms, which may end with the headers of their replies."""
    rows = [
        {"app": "shop", "endpoint": "phone-0", "status": "ok", "early": True, "row": row}
        | {"begin_ns": round(begin * MS), "reply_ns": round(end * MS)}
        | {name: value[row] if isinstance(value, list) else value for name, value in more.items()}
        for row, (begin, end) in enumerate(asked)
    ]
    app = SHOP.as_json()
    table, _ = attach(pl.DataFrame(rows).drop("row"), read(folder, *logs, applications=[app]))
    return table.to_dicts()


def streamed(log: Log, at: float, sent: int, received: int, *, think: float = 5, pauses: Iterable[float] = ()) -> float:
    """Send 300 bytes from offset `sent` at a time, and back a head of 100 bytes from offset `received` and a body of
    100 after each pause; returns when the last byte is there."""
    log.up(at, 1001 + sent, 300)
    at += 10 + think
    log.down(at, 501 + received, 100)
    for number, pause in enumerate(pauses, 1):
        at += pause
        log.down(at, 501 + received + 100 * number, 100)
    return at + 10


def test_a_span_that_ends_with_the_headers_gets_the_end_of_the_reply(tmp_path: Path) -> None:
    log = opened()
    end = streamed(log, 100, 0, 0, think=5, pauses=(2, 40))
    assert end == 167
    (row,) = spans(tmp_path, [log], (99, 126))
    assert (row["reply_ns"] / MS, row["span_s"]) == (167, 0.027)
    times = ("before_ns", "uplink_delayed_ns", "served_ns", "downlink_sending_ns", "downlink_delayed_ns", "after_ns")
    assert [row[name] / MS for name in times] == [1, 10, 5 + 40, 2, 10, 0]


def test_acknowledgements_of_http2_do_not_end_a_reply(tmp_path: Path) -> None:
    log = opened()
    log.up(100, 1001, 300)
    log.down(115, 501, 1000)
    log.up(130, 1301, 13)  # a window update
    log.down(145, 1501, 1000)
    streamed(log, 200, 313, 2000)
    first, second = spans(tmp_path, [log], (99, 126), (199, 226))
    assert (first["reply_ns"] / MS, second["reply_ns"] / MS) == (155, 226)


def test_the_end_of_tls_is_not_of_the_last_reply(tmp_path: Path) -> None:
    log = opened()
    end = streamed(log, 100, 0, 0, pauses=[30])
    log.down(end + 5_000, 701, 24)  # the server has waited for 5 s
    for secure, last in ((True, end), (False, end + 5_010)):
        (row,) = spans(tmp_path, [log], (99, 126), secure=secure)
        assert row["reply_ns"] / MS == last


def test_spans_whose_replies_are_mixed_have_none(tmp_path: Path) -> None:
    """As streams of HTTP/2: the second request goes between the headers and the body of the first reply."""
    log = opened()
    log.up(100, 1001, 300)
    log.down(115, 501, 100)
    log.up(130, 1301, 300)
    log.down(135, 601, 2000)
    log.down(145, 2601, 100)
    rows = spans(tmp_path, [log], (99, 126), (129, 156), (132, 147))
    assert [row["unassigned"] for row in rows] == [SHARES, SHARES, SHARES]
    assert [row["span_s"] for row in rows] == [None, None, None]


def test_parallel_requests_that_their_programs_end_late_have_a_connection_each(tmp_path: Path) -> None:
    """The first to end may take the connection whose reply came last, the only one of the last to begin."""
    logs = [opened(40_000 + number) for number in range(4)]
    begins = (100, 110, 120, 130)
    for log, at in zip(logs, begins, strict=True):
        exchange(log, at, 0, 0, think=50 + at / 10)
    rows = spans(tmp_path, logs, *((at - 1, 300 + at / 10) for at in begins), early=False)
    assert [row["local_port"] for row in rows] == [40_000, 40_001, 40_002, 40_003]


def test_each_request_without_a_connection_has_a_reason(tmp_path: Path) -> None:
    log, twin, third = opened(40_000), opened(40_001), opened(40_002)
    exchange(log, 100, 0, 0)  # until 125
    for each in (twin, third):
        exchange(each, 200, 0, 0)
    log.up(300, 1101, 100)
    log.down(315, 601, 1000)
    log.down(324, 1601, 1000)  # until 334
    rows = spans(
        tmp_path,
        [log, twin, third],
        *((99, 126), (50, 60), (99, 126), (199, 226), (299, 326)),
        early=[True, True, True, True, False],
        peer=["edge-0", "edge-0", "edge-1", None, None],
        peer_port=[80, 80, 80, None, None],
    )
    assert [row["unassigned"] for row in rows] == [None, NOTHING, ELSEWHERE, SEVERAL, UNFINISHED]


def test_a_connection_belongs_to_one_program(tmp_path: Path) -> None:
    """Once two programs send at the same time, and the span of one ends late, with the headers of the other's reply."""
    logs = opened(40_000), opened(40_001)
    asked, ends = [], []
    for turn in range(3):
        for log, at in zip(logs, (100, 150), strict=True):
            ends.append(streamed(log, 300 * turn + at, 300 * turn, 200 * turn, pauses=[20]))
            asked.append((300 * turn + at - 1, 300 * turn + at + 26))
    for log, at, think in zip(logs, (1100, 1100.5), (5, 9.5), strict=True):
        ends.append(streamed(log, at, 900, 600, think=think, pauses=[40]))
    asked += [(1099, 1131), (1099.2, 1132)]
    rows = spans(tmp_path, logs, *asked, app=["one", "two"] * 4)
    assert [row["local_port"] for row in rows] == [40_000, 40_001] * 4
    assert [row["reply_ns"] / MS for row in rows] == pytest.approx(ends)


def test_spans_that_could_be_exchanged_are_not_assigned(tmp_path: Path) -> None:
    logs = opened(40_000), opened(40_001)
    for log, pause in zip(logs, (20, 200), strict=True):
        streamed(log, 100, 0, 0, pauses=[pause])
    rows = spans(tmp_path, logs, (99, 126), (99.1, 126.1))
    assert [row["unassigned"] for row in rows] == [SEVERAL, SEVERAL]


@pytest.mark.parametrize("logs", [[], [Log(protocol=17)], [Log()]])
def test_requests_without_any_connection_are_requests(tmp_path: Path, logs: list[Log]) -> None:
    for log in logs:
        log.up(100, 0, 0 if log.protocol == 6 else 100)
    assert [row["unassigned"] for row in spans(tmp_path, logs, (99, 126), (150, 160))] == [ELSEWHERE] * 2
    failed, timed_out = requests(tmp_path, logs, (99, 126, "failed"), (130, 150, "timed-out"))
    assert (failed["status"], timed_out["status"]) == ("failed", "timed-out")


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.lists(st.integers(1, 40), max_size=3), slack, slack), min_size=1, max_size=8
    )
)
def test_sequential_spans_that_end_with_headers_have_their_whole_replies(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[int, list[int], float, float]]
) -> None:
    log, at, sent, received = opened(), 50.0, 0, 0
    asked, ends = [], []
    for think, pauses, before, after in story:
        asked.append((at - before, at + 20 + think + after))
        end = streamed(log, at, sent, received, think=think, pauses=pauses)
        ends.append(max(end, asked[-1][1]))
        sent, received, at = sent + 300, received + 100 * (1 + len(pauses)), end + 2
    rows = spans(tmp_path_factory.mktemp("run"), [log], *asked)
    assert [row["unassigned"] for row in rows] == [None] * len(story)
    for row, end in zip(rows, ends, strict=True):
        assert row["reply_ns"] / MS == pytest.approx(end, abs=1)
