"""Connections out of the packet log: their times, parts and counts, and the applications they belong to."""

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellbed.measure.connections import PARTS, read_connections, summarise_connections, traffic
from cellbed.measure.run_folder import read_run
from cellbed.report import connections as report
from cellbed.runformat.description import Description
from packet_logs import DIRECTIONS, MS, NODES, Log, application, fetch, read
from predicted_runs import PORT, make_run, read_log, repeat_later, write_log


def test_a_connection_that_moves_with_its_service_is_one(tmp_path: Path) -> None:
    there, later = Log(), Log()
    there.up(0, 99, 0)
    there.down(20, 499, 0)
    there.up(40, 100, 50)
    there.down(70, 500, 1000)
    later.up(300, 150, 50)
    later.down(330, 1500, 1000)
    for number, record in enumerate(later.records):
        direction = {2: 4, 3: 5}.get(record[5], record[5])
        ends = (2 * end for end in record[-2:])  # cloud-0 is vertex 2
        later.records[number] = (*record[:5], direction, *record[6:-2], *ends)
    description = {
        "directions": [
            *DIRECTIONS,
            {"index": 4, "from": "tower", "to": "cloud-0"},
            {"index": 5, "from": "cloud-0", "to": "tower"},
        ],
        "nodes": [*NODES, {"name": "cloud-0"}],
        "migrations": [{"source": "edge-0", "target": "cloud-0", "ports": [80]}],
    }
    (row,) = read(tmp_path, there, later, **description).to_dicts()
    assert (row["client"], row["server"]) == ("phone-0", "edge-0")
    assert (row["to_server_bytes"], row["to_client_bytes"]) == (100, 2000)
    assert row["to_client_last_s"] == pytest.approx(0.34)


def parts(row: dict[str, Any]) -> dict[str, float]:
    """Those that are not zero, ms."""
    return {name: round(row[f"part_{name}"] * 1e3, 6) for name in PARTS if row[f"part_{name}"]}


def test_a_fetch_is_divided_into_handshake_request_server_and_reply(tmp_path: Path) -> None:
    (row,) = read(tmp_path, fetch()).to_dicts()
    assert (row["client"], row["client_port"], row["server"], row["server_port"]) == ("phone-0", 40_000, "edge-0", 80)
    assert row["protocol"] == "tcp"
    times = ("connect", "to_server_first", "to_server_last", "to_client_first", "to_client_last")
    assert [row[f"{name}_s"] for name in times] == pytest.approx([0.021, 0.035, 0.035, 0.050, 0.054])
    assert parts(row) == {
        "connect": 21,
        "client": 2,
        "to_server_queue": 2,
        "to_server_delay": 10,
        "server": 5,
        "to_client_transport": 1,
        "to_client_queue": 3,
        "to_client_delay": 10,
    }
    assert (row["to_server_bytes"], row["to_client_bytes"], row["exchanges"]) == (100, 2000, 1)
    assert (row["to_server_packets"], row["to_client_packets"]) == (4, 4)
    assert row["to_client_queue_s"] == pytest.approx(0.001)
    assert row["to_client_queue_max_s"] == pytest.approx(0.003)
    assert row["to_client_delay_s"] == pytest.approx(0.010)


def test_spans_that_name_no_connection_do_not_divide_the_server(tmp_path: Path) -> None:
    """As those of OpenTelemetry, which divide requests: a connection has no rows of 0 ms, and no rest."""
    (tmp_path / "raw").mkdir()
    app = asdict(Description("program", "", (), {}, {}, name="web", servers=("edge-0",), services=("GET", "SET")))
    (peer,) = summarise_connections(read(tmp_path, fetch(), applications=[app]))
    assert peer.parts["server"] == pytest.approx(0.005)
    assert [label for _, place, label, _ in report.parts([peer]) if place == "server"] == ["Server"]


def test_spans_of_a_service_divide_the_time_of_its_server(tmp_path: Path) -> None:
    log = fetch()  # it waits for the server from 35 to 40 ms
    log.up(154, 1101, 100)
    log.down(170, 2501, 100)  # and from 164 to 170 ms
    other = fetch(Log(port=40_001), at=1)
    spans = [("query", 36, 39), ("log", 38, 60), ("query", 160, 168), ("query", 300, 301)]
    lines = [
        {"endpoint": "phone-0", "port": 40_000, "order": 0, "span": name, "begin_ns": begin * MS, "end_ns": end * MS}
        for name, begin, end in spans
    ]
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "web.edge-0.service.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    app = asdict(Description("program", "", (), {}, {}, name="web", servers=("edge-0",), services=("query", "log")))
    table = read(tmp_path, log, other, applications=[app])
    first, second = table.to_dicts()
    assert parts(first)["server"] == pytest.approx(1 + 2)
    assert first["part_service_query"] == pytest.approx(0.002 + 0.004)
    assert first["part_service_log"] == pytest.approx(0.002)
    assert (parts(second)["server"], second["part_service_query"]) == (5, None)
    (peer,) = summarise_connections(table)
    labels = [label for _, place, label, _ in report.parts([peer]) if place == "server"]
    assert labels == ["Server: query", "Server: log", "Server, rest"]


def test_a_retransmission_is_transport_and_counts_once(tmp_path: Path) -> None:
    log = Log()
    log.up(0, 2**32 - 50, 0, drop=2)
    log.up(1000, 2**32 - 50, 0)
    log.down(1010, 7, 0)
    for at, sequence, drop in ((1020, -49, 1), (1021, 51, 0), (1300, -49, 0)):
        log.up(at, sequence, 100, drop=drop)
    log.down(1311, 8, 0)
    (row,) = read(tmp_path, log).to_dicts()
    assert (row["to_server_dropped"], row["to_server_retransmitted"], row["to_server_bytes"]) == (2, 2, 200)
    assert parts(row) == {"connect": 1020, "to_server_transport": 280, "to_server_delay": 10}


def test_refused_and_unanswered_connections_have_no_parts(tmp_path: Path) -> None:
    refused, silent = Log(40_000), Log(40_001)
    refused.up(0, 1000, 0)
    refused.down(10, 0, 0)  # RST
    silent.up(1, 1000, 0)
    silent.up(1001, 1000, 0)
    found = read(tmp_path, refused, silent)
    assert found["connect_s"].to_list() == found["part_connect"].to_list() == [None, None]
    assert found["to_server_retransmitted"].to_list() == [0, 1]


def test_udp_counts_packets_and_loss(tmp_path: Path) -> None:
    log = Log(protocol=17)
    for index in range(5):
        log.up(10 * index, 0, 200, queue=index, drop=1 if index == 3 else 0)
    (row,) = read(tmp_path, log).to_dicts()  # its receiver sends nothing
    assert (row["protocol"], row["client"], row["server"]) == ("udp", "phone-0", "edge-0")
    assert (row["to_server_packets"], row["to_server_dropped"], row["to_server_bytes"]) == (5, 1, 800)
    assert row["to_server_retransmitted"] is row["connect_s"] is row["part_client"] is None
    assert row["to_server_queue_s"] == pytest.approx((0 + 1 + 2 + 4) / 4e3)
    assert row["to_server_last_s"] == pytest.approx(0.054)


def test_only_connections_that_live_in_the_schedule_are_listed(tmp_path: Path) -> None:
    kept = fetch(Log(40_001))
    kept.up(900, 1101, 0)
    found = read(tmp_path, fetch(), kept, t0=500 * MS)
    assert found["client_port"].to_list() == [40_001]
    assert found["opened_s"].to_list() == [-0.5]


@pytest.mark.parametrize(
    ("applications", "expected"),
    [
        ([application("web", ["phone-0"], ["edge-0"])], "web"),
        ([application("other", ["cloud-0"], ["cloud-1"])], None),
        ([application("push", ["edge-0"], ["phone-0"])], "push"),
        ([application("a", ["phone-0"], ["edge-0"]), application("b", ["phone-0"], ["edge-0"], [80])], "b"),
        ([application("a", ["phone-0"], ["edge-0"]), application("b", ["phone-0"], ["edge-0"], [81])], "a"),
        ([application("a", ["phone-0"], ["edge-0"]), application("b", ["phone-0"], ["edge-0"])], None),
        ([application("database", [], ["edge-0"]), application("web", ["cloud-0"], ["cloud-1"])], "database"),
    ],
)
def test_the_application_follows_from_nodes_and_ports(
    tmp_path: Path, applications: list[Any], expected: str | None
) -> None:
    assert read(tmp_path, fetch(), applications=applications)["app"].to_list() == [expected]


def test_many_connections_are_summed_by_peer(tmp_path: Path) -> None:
    logs = [fetch(Log(40_000 + index), at=10 * index) for index in range(5)]
    found = read(tmp_path, *logs, applications=[application("web", ["phone-0"], ["edge-0"])])
    (peer,) = summarise_connections(found)
    assert (peer.app, peer.server, peer.port, peer.connections, peer.clients) == ("web", "edge-0", 80, 5, 1)
    assert peer.connect_s == pytest.approx(0.021)
    assert peer.first_byte_s == pytest.approx(0.050)
    assert peer.parts["server"] == pytest.approx(0.005)
    assert peer.exchange_s == pytest.approx(0.031)
    assert peer.to_client.bytes == 10_000
    assert peer.to_client.queue_s == pytest.approx(0.001)


def test_round_trips_are_weighted_by_bytes_of_the_loaded_direction(tmp_path: Path) -> None:
    found = read(tmp_path, *(fetch(Log(40_000 + index), at=10 * index) for index in range(3)))

    def figures(trips: list[float], up: list[int], down: list[int]) -> tuple[float | None, float | None]:
        columns = {"round_trip_s": trips, "to_server_bytes": up, "to_client_bytes": down}
        made = found.head(len(trips)).with_columns(**{name: pl.Series(values) for name, values in columns.items()})
        of = traffic(made, ["phone-0"])
        return of.round_trip_p50_s, of.fairness

    # The control connection of iperf3 sends more than a transfer in the direction without load.
    assert figures([0.04, 0.348], [900, 300], [500, 10_000_000]) == (0.348, None)
    assert figures([0.04, 0.3, 0.4], [900, 0, 0], [500, 6_000_000, 2_000_000]) == (0.3, pytest.approx(0.8))
    assert figures([0.04, 0.3, 0.4], [0, 5_000_000, 5_000_000], [500, 0, 0])[1] == 1
    assert figures([0.04, 0.05], [0, 0], [0, 0]) == (0.04, None)
    assert figures([0.04], [10], [10]) == (0.04, None)


def test_peers_with_few_bytes_are_summed_together(tmp_path: Path) -> None:
    logs = []
    for index in range(15):
        log = fetch(Log(40_000 + index))
        log.records = [
            tuple(7000 + index if at in (9, 10) and value == 80 else value for at, value in enumerate(record))
            for record in log.records
        ]
        logs.append(log)
    peers = summarise_connections(read(tmp_path, *logs))
    assert [peer.port for peer in peers] == [*range(7000, 7010), None]
    assert (peers[-1].server, peers[-1].connections) == (None, 5)


def bytes_in_order(packets: np.ndarray[Any, Any]) -> int:
    """Return the number of bytes of a flow up to the first one that no packet carries."""
    packets = np.sort(packets[packets["payload"] > 0], order="tcp_sequence")
    begins, ends = (
        packets["tcp_sequence"].astype(np.int64),
        packets["tcp_sequence"].astype(np.int64) + packets["payload"],
    )
    reached = np.maximum.accumulate(ends)
    gaps = np.flatnonzero(begins[1:] > reached[:-1])
    return int(reached[gaps[0] if len(gaps) else -1] - begins[0])


@pytest.mark.parametrize(("loss", "uplink", "port"), [(0, 8, PORT), (0.1, 3, PORT + 1), (0.02, 40, PORT)])
def test_parts_add_up_and_counts_agree_with_the_packet_log(
    tmp_path: Path, loss: float, uplink: float, port: int
) -> None:
    make_run(tmp_path, loss=loss, uplink=uplink, outages=((3, 1),))
    once = read_log(tmp_path)
    repeat_later(tmp_path, port)
    log = read_log(tmp_path)
    log["tcp_sequence"] += 2**32 - 200_000  # it wraps around soon
    write_log(tmp_path, log)
    found = read_connections(tmp_path, read_run(tmp_path))
    assert len(found) == 2
    last = pl.max_horizontal("to_server_last_s", "to_client_last_s")
    total = pl.sum_horizontal(f"part_{name}" for name in PARTS)
    assert found.select((total - last).abs().max()).item() < 1e-8
    assert found.select(pl.min_horizontal(f"part_{name}" for name in PARTS).min()).item() >= 0
    sent = log[np.isin(log["direction"], (0, 3))]  # the first hops of both ways
    assert found.select(pl.sum("to_server_packets", "to_client_packets")).sum_horizontal().item() == len(sent)
    dropped = int((log["drop"] != 0).sum())
    assert found.select(pl.sum("to_server_dropped", "to_client_dropped")).sum_horizontal().item() == dropped
    assert (dropped > 0) == (loss > 0 or uplink < 8)
    # A flow with losses may end before all that was sent has arrived.
    carried = sum(bytes_in_order(once[(once["direction"] == last_hop) & (once["drop"] == 0)]) for last_hop in (1, 2))
    assert found.select(pl.sum("to_server_bytes", "to_client_bytes")).sum_horizontal().item() == 2 * carried


Step = tuple[int, bool, int, bool]
"""Of a conversation: ms since the one before, whether the client sends, its queueing in ms, whether it is lost."""


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.booleans(), st.sampled_from([0, 1, 7, 25]), st.booleans()),
        min_size=1,
        max_size=25,
    )
)
def test_the_parts_are_those_of_each_moment(steps: list[Step]) -> None:
    """Every ms of a conversation is looked at by itself, with the definition in the module's documentation."""
    log, now = Log(), 100
    log.up(0, 999, 0)
    log.down(10, 499, 0)
    log.up(20, 1000, 0)
    sent = {True: 0, False: 0}
    missing: dict[bool, list[int]] = {True: [], False: []}
    packets: list[tuple[int, bool, int, int, int | None]] = []  # entered, way, first byte, last byte + 1, left
    for pause, is_client, queue, lost in steps:
        now += pause
        again = missing[is_client].pop() if missing[is_client] else None
        start = sent[is_client] if again is None else again
        sent[is_client] = max(sent[is_client], start + 10)
        if lost:
            missing[is_client].append(start)
        (log.up if is_client else log.down)(now, (1000 if is_client else 500) + start, 10, queue=queue, drop=2 * lost)
        packets.append((now, is_client, start, start + 10, None if lost else now + queue + 10))
    with tempfile.TemporaryDirectory() as folder:
        (row,) = read(Path(folder), log).to_dicts()
    if all(left is None for *_, left in packets):
        assert parts(row) == {"connect": 20}
        return

    def complete(is_client: bool, end: int) -> int | None:
        """When all bytes up to one had arrived."""
        arrivals = [
            min(
                (left for _, way, low, high, left in packets if way == is_client and low <= byte < high and left),
                default=None,
            )
            for byte in range(end)
        ]
        return None if None in arrivals else max(left for left in arrivals if left is not None)

    new = []  # entered, way, complete
    for number, (entered, is_client, _, end, _) in enumerate(packets):
        fresh = all(end > high for _, way, _, high, _ in packets[:number] if way == is_client)
        if fresh and (at := complete(is_client, end)) is not None:
            new.append((entered, is_client, at))
    if not new:
        assert parts(row) == {"connect": 20}
        return
    spent = dict.fromkeys(("client", "server", "to_server", "to_client"), 0)
    for moment in range(20, max(at for *_, at in new)):
        begun = [each for each in new if each[0] <= moment]
        later = [each for each in new if each[0] > moment]
        way = begun[-1][1] if begun else None
        if any(at > moment for _, each_way, at in begun if each_way == way):
            spent["to_server" if way else "to_client"] += 1
        elif any(at > moment for *_, at in begun):
            spent["to_client" if way else "to_server"] += 1
        else:
            sender = later[0][1]
            over = max((at for *_, at in begun), default=0)
            ended = max((at for _, each_way, at in begun if each_way == way), default=0)
            answers = [(entered, left) for entered, each_way, _, _, left in packets if each_way != way and left]
            answer = next((left for entered, left in answers if entered >= ended), 0)
            if sender == way and over <= moment < answer:
                spent["to_server" if way else "to_client"] += 1
            else:
                spent["client" if sender else "server"] += 1
    found = parts(row)
    assert found["connect"] == 20
    for name, value in spent.items():
        assert sum(part for each, part in found.items() if each == name or each.startswith(f"{name}_")) == value, name
