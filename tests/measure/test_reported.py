"""Requests that programs report: the connections that carried them, and their parts."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellbed.measure.connections import read_connections
from cellbed.measure.requests import read_requests
from cellbed.measure.telemetry import read_traces
from cellbed.runformat.description import Description
from cellbed.runformat.spans import REPORTED, divided
from test_connections import DIRECTIONS, MS, NODES, Log, fetch, read

SHOP = Description(
    "program",
    "",
    REPORTED,
    {"step": "text", "begin_ns": "integer"},
    {},
    name="shop",
    clients=("phone-0",),
    servers=("edge-0",),
    reported=True,
)
Times = tuple[float, float] | tuple[float, float, str] | tuple[float, float, str, float]


def requests(
    folder: Path, logs: Iterable[Log], *reported: Times, service: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """The requests that phone-0 has reported, from begin to end in ms, with an outcome and an intended time."""
    app = asdict(SHOP)
    raw = folder / "raw"
    raw.mkdir(exist_ok=True)
    if service is not None:
        names = tuple(sorted({line["span"] for line in service}))
        app |= {"spans": [asdict(span) for span in divided(REPORTED, names)], "services": names}
        (raw / "shop.edge-0.service.jsonl").write_text("".join(json.dumps(line) + "\n" for line in service))
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
    table, _, _ = read_requests(folder, run, read_connections(folder, run), read_traces(folder, run))
    return table.sort("request").to_dicts()


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


def test_requests_on_a_kept_connection_have_their_own_exchange(tmp_path: Path) -> None:
    log = opened()
    for number in range(3):
        exchange(log, 100 * (number + 1), 100 * number, 100 * number, think=number + 1)
    rows = requests(tmp_path, [log], *((100 * number - 1, 100 * number + 30) for number in (1, 2, 3)))
    for number, row in enumerate(rows):
        assert parts(row) == {
            "client_before": 1,
            "uplink_delay": 10,
            "server": number + 1,
            "downlink_delay": 10,
            "client_after": 30 - 20 - number - 1,
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


def test_concurrent_requests_have_each_their_connection(tmp_path: Path) -> None:
    one, other = opened(40_000), opened(40_001)
    exchange(one, 100, 0, 0, think=60)  # until 180
    exchange(other, 110, 0, 0, think=20)  # until 150
    exchange(other, 160, 100, 100, think=30)  # until 210
    exchange(one, 200, 100, 100, think=1)  # until 221
    rows = requests(tmp_path, [one, other], (99, 181), (109, 151), (159, 211), (199, 222))
    assert [row["local_port"] for row in rows] == [40_000, 40_001, 40_001, 40_000]
    assert [parts(row)["server"] for row in rows] == [60, 20, 30, 1]


def test_requests_that_share_a_connection_have_no_parts(tmp_path: Path) -> None:
    """As streams of HTTP/2 do."""
    log = opened()
    log.up(100, 1001, 100)
    log.up(110, 1101, 100)
    log.down(135, 501, 100)  # until 145
    log.up(146, 1201, 20)  # the window of the second one
    log.down(160, 601, 100)
    rows = requests(tmp_path, [log], (99, 146), (109, 171))
    assert [row["residual_s"] for row in rows] == [None, None]
    assert [row["local_port"] for row in rows] == [None, None]
    assert [row["latency_s"] for row in rows] == pytest.approx([0.047, 0.062])


def test_traffic_that_nobody_reports_does_not_disturb(tmp_path: Path) -> None:
    own, other = opened(40_000), opened(40_001)
    exchange(own, 100, 0, 0, think=60)  # until 180
    exchange(other, 120, 0, 0)
    own.down(500, 601, 24)  # the end of the connection: TLS's alert
    own.up(520, 1101, 24)
    (row,) = requests(tmp_path, [own, other], (99, 181))
    assert row["local_port"] == 40_000
    assert parts(row)["server"] == 60


def test_requests_without_traffic_or_reply_get_no_parts(tmp_path: Path) -> None:
    log = opened()
    exchange(log, 100, 0, 0)
    cached, refused, late, good = requests(
        tmp_path, [log], (50, 50.1), (99, 126, "failed"), (90, 300, "timed-out"), (99.5, 126.5)
    )
    assert cached["residual_s"] is None
    assert [each["latency_s"] for each in (refused, late)] == [None, None]
    assert good["local_port"] is None or refused["local_port"] is None


def test_a_lost_packet_and_its_repetition_are_distinguished(tmp_path: Path) -> None:
    log = opened()
    log.up(100, 1001, 100, drop=1)
    log.up(300, 1001, 100)
    log.down(315, 501, 100)
    (row,) = requests(tmp_path, [log], (99, 326))
    assert parts(row)["uplink_retransmission"] == 200
    assert parts(row)["server"] == 5


def test_spans_of_a_service_divide_the_server(tmp_path: Path) -> None:
    log = opened()
    exchange(log, 100, 0, 0, think=10)  # the server has it from 110 to 120
    exchange(log, 200, 100, 100, think=10)
    lines = [
        {"endpoint": "phone-0", "port": 40_000, "order": 0, "span": name, "begin_ns": begin * MS, "end_ns": end * MS}
        for name, begin, end in (("query", 112, 118), ("render", 116, 119), ("query", 211, 212))
    ]
    first, second = requests(tmp_path, [log], (99, 131), (199, 231), service=lines)
    served = {name: value for name, value in parts(first).items() if "serv" in name}
    assert served == {"service_query": 4, "service_render": 3, "server": 3}
    assert parts(second)["service_query"] == 1
    assert parts(second)["server"] == 9


slack = st.floats(0.01, 0.4)


@settings(max_examples=30, deadline=None)
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
