"""Spans that services report: the helpers in Python and C, the sockets of a run, and the parts of requests."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import in_process
from cellbed import spans
from cellbed.measure.services import attach_services
from cellbed.runformat.events import read_events
from cellbed.runformat.spans import SERVER, divide_server
from cellbed.testbed.machine.peers import Admission
from cellbed.testbed.programs.reports import (
    MOST_MALFORMED,
    MOST_NAMES,
    SPANS,
    TURN_BYTES,
    ReportSockets,
)
from cellbed.workloads.http import kind as http

ROOT = Path(__file__).parents[2]
NODES = {"100.64.0.1": "phone-0", "fd63:656c:6c62:0::1": "phone-0"}


class Bed:
    """The sockets of a run with one service."""

    def __init__(self, folder: Path) -> None:
        (folder / "sockets").mkdir()
        self.sockets = ReportSockets(folder / "sockets", NODES)
        self.record = folder / "web.edge-0.service.jsonl"
        self.environment = self.sockets.listen(SPANS, "web", self.record, Admission())

    def lines(self) -> list[dict[str, Any]]:
        _forget()  # the service has ended
        self.sockets.close()
        return [json.loads(line) for line in self.record.read_text().splitlines()]


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    bed = Bed(tmp_path)
    monkeypatch.setenv(SPANS.variable, bed.environment[SPANS.variable])
    _forget()
    yield bed
    _forget()
    bed.sockets.close()


def _forget() -> None:
    for sender in (spans._spans, spans._requests):
        sender.socket, sender.next_try_ns, sender.dropped = None, 0, 0


def test_spans_of_a_python_service_are_recorded_by_request(bed: Bed) -> None:
    with spans.span("phone-0/17", "database"), spans.span("phone-0/17", "render"):
        pass
    spans.report(spans.of_connection(("100.64.0.1", 40_000), 3), "cache.look-up", 5, 9)
    spans.report(spans.of_connection(("::ffff:100.64.0.1", 40_000), 4), "cache.look-up", 5, 9)
    spans.report(None, "nobody", 5, 9)  # a request without the header
    render, database, *others = bed.lines()
    assert (render["endpoint"], render["request"], render["span"]) == ("phone-0", 17, "render")
    assert database["begin_ns"] <= render["begin_ns"] <= render["end_ns"] <= database["end_ns"]
    assert others == [
        {"endpoint": "phone-0", "port": 40_000, "order": order, "span": "cache.look-up", "begin_ns": 5, "end_ns": 9}
        for order in (3, 4)
    ]
    assert bed.sockets.names == {"web": ("cache.look-up", "database", "render")}
    assert bed.sockets.warnings() == []


def test_threads_that_report_first_at_the_same_time_drop_nothing(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    ready, connect = threading.Barrier(8), socket.socket.connect

    def connect_together(self: socket.socket, address: str) -> None:
        ready.wait(20)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_together)
    threads = [threading.Thread(target=spans.report, args=(f"phone-0/{it}", "a", 1, 2)) for it in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(line["request"] for line in bed.lines()) == list(range(8))
    assert bed.sockets.warnings() == []


def test_the_python_helper_is_one_short_file_that_needs_nothing(bed: Bed, tmp_path: Path) -> None:
    source = ROOT / "python" / "cellbed" / "spans.py"
    assert len(source.read_text().splitlines()) <= 150
    shutil.copy(source, tmp_path / "copied_spans.py")
    program = "import copied_spans; copied_spans.report('phone-0/1', 'a', 1, 2)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, env={**os.environ, **bed.environment})
    assert [line["span"] for line in bed.lines()] == ["a"]


@pytest.fixture(scope="module")
def c_service(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("c")
    strict = ["-Wall", "-Wextra", "-Werror", "-std=gnu99", "-I", str(ROOT / "python" / "cellbed")]
    subprocess.run(["cc", *strict, "-o", folder / "service", ROOT / "tests/support/spans_service.c"], check=True)
    return folder / "service"


def test_spans_of_a_c_service_are_recorded(bed: Bed, c_service: Path) -> None:
    requests = ["phone-0/0", "100.64.0.1:40000/7", "x" * 600, "", "phone-0/2"]
    subprocess.run([c_service, *requests], check=True, env={**os.environ, **bed.environment})
    found = bed.lines()
    assert [(line.get("request"), line.get("order")) for line in found] == [(0, None), (None, 7), (2, None)]
    assert [line["end_ns"] - line["begin_ns"] for line in found] == [1, 2, 5]
    assert bed.sockets.warnings() == ["web: its service reports that it dropped 1 spans that were not read in time"]


@pytest.mark.parametrize("path", ["", "/nowhere/socket", "/dev/null", "x" * 200])
def test_a_service_runs_on_when_nothing_listens(path: str, c_service: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SPANS.variable, path)
    _forget()
    for _ in range(100):
        spans.report("phone-0/1", "a", 1, 2)
    subprocess.run([c_service, *["phone-0/1"] * 100], check=True)


def test_what_nobody_reads_is_dropped_and_counted_instead_of_waiting(bed: Bed, c_service: Path) -> None:
    for number in range(20_000):
        spans.report(f"phone-0/{number}", "a", number, number)
    bed.sockets.serve()
    spans.report("phone-0/20000", "a", 1, 2)
    received = len(bed.lines())
    (warning,) = bed.sockets.warnings()
    dropped = int(warning.split()[7])
    assert dropped > 0
    assert received + dropped == 20_001


def test_a_service_outlives_cellbed(bed: Bed) -> None:
    spans.report("phone-0/1", "a", 1, 2)
    bed.sockets.close()
    for _ in range(100):
        spans.report("phone-0/1", "a", 1, 2)


def test_malformed_lines_are_counted_and_the_others_kept(bed: Bed) -> None:
    wrong = [
        "",
        "phone-0/1 a 1",
        "phone-0/1 a b 1 2",
        "phone-0/1 a 2 1",
        "phone-0 a 1 2",
        "phone-0/1 a 1 99999999999999999999",
    ]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
        service.connect(bed.environment[SPANS.variable])
        service.sendall("\n".join([*wrong, "phone-0/1 a 1 2", "phone-0/2 a"]).encode())
        bed.sockets.serve()
        service.sendall(b" 3 4\n" + b"x" * 5000)
        bed.sockets.serve()
        service.sendall(b"x\nphone-0/3 a 1 2\n")
        for number in range(2 * MOST_NAMES):
            service.sendall(f"phone-0/4 name-{number} 1 2\n".encode())
    found = bed.lines()
    assert [line["request"] for line in found] == [1, 2, 3, *[4] * 2 * MOST_NAMES]
    assert bed.sockets.warnings() == [f"web: its service sent {len(wrong) + 2} malformed lines to {SPANS.variable}"]
    assert len(bed.sockets.names["web"]) == MOST_NAMES


def _connect(bed: Bed, content: bytes) -> socket.socket:
    service = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    service.connect(bed.environment[SPANS.variable])
    service.sendall(content)
    return service


def test_a_service_that_floods_its_socket_is_read_in_bounded_turns(bed: Bed) -> None:
    line = b"phone-0/1 a 1 2\n"
    services = [_connect(bed, line * (TURN_BYTES // len(line))) for _ in range(5)]
    services.append(_connect(bed, b"phone-0/2 last 1 2\n"))
    for turn in range(1, 7):
        assert bed.sockets.serve()
        assert bed.record.read_text().count("\n") <= turn * TURN_BYTES / len(line)
    assert '"last"' in bed.record.read_text()  # no connection waits for another one's flood
    for service in services:
        service.close()
    assert len(bed.lines()) == 5 * (TURN_BYTES // len(line)) + 1


def test_a_connection_with_many_malformed_lines_is_closed(bed: Bed) -> None:
    flood = _connect(bed, b"\n" * 10_000)
    other = _connect(bed, b"phone-0/1 a 1 2\n")
    for _ in range(3):
        bed.sockets.serve()
    with pytest.raises(OSError, match="Broken pipe"):
        flood.sendall(b"phone-0/2 a 1 2\n")
    other.sendall(b"phone-0/3 a 1 2\n")
    other.close()
    assert [line["request"] for line in bed.lines()] == [1, 3]
    assert bed.sockets.warnings() == [f"web: its service sent {MOST_MALFORMED} malformed lines to {SPANS.variable}"]


def test_connections_beyond_a_number_wait_for_others_to_end(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cellbed.testbed.programs.reports.MOST_CONNECTIONS", 2)
    services = [_connect(bed, f"phone-0/{number} a 1 2\n".encode()) for number in range(3)]
    for _ in range(3):
        bed.sockets.serve()
    assert [json.loads(line)["request"] for line in bed.record.read_text().splitlines()] == [0, 1]
    for service in services:
        service.close()
    assert [line["request"] for line in bed.lines()] == [0, 1, 2]


def test_the_record_of_spans_has_a_limit(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cellbed.testbed.programs.reports.LARGEST_RECORD", 1 << 20)
    service = _connect(bed, b"")
    with contextlib.suppress(BrokenPipeError):
        while True:
            service.sendall(b"phone-0/1 a 1 2\n" * 100)
            bed.sockets.serve()
    assert len(bed.lines()) > 10_000
    assert bed.record.stat().st_size < (1 << 20) + 10 * TURN_BYTES
    assert bed.sockets.warnings() == ["web: of its spans only the first 1 MiB are kept"]


def test_the_end_does_not_wait_for_a_service_that_does_not_stop(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cellbed.testbed.programs.reports.CLOSING_S", 0.2)
    program = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({bed.environment[SPANS.variable]!r})\n"
    program += "while True: s.sendall(b'phone-0/1 a 1 2\\n' * 1000)"
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as service:
        while not bed.record.stat().st_size:
            bed.sockets.serve()
        bed.sockets.close()
        assert service.wait() == 1  # its connection is closed


FLOOD = """
import socket, os
while True:
    connections = []
    try:
        for _ in range(100):
            connections.append(socket.socket(socket.AF_UNIX))
            connections[-1].connect(os.environ["CELLBED_SPANS"])
            connections[-1].setblocking(False)
        print("ready", flush=True)
        while True:
            for connection in connections:
                try:
                    connection.send(b"\\n" * 65536)
                except BlockingIOError:
                    pass
    except OSError:
        pass
"""
FLOODED = f"""
name = "flooded"
duration = "5 s"
nodes.phone = {{ class = "endpoint", cpus = 1.0, memory = "256 MiB" }}
nodes.edge = {{ class = "edge", cpus = 1.0, memory = "256 MiB" }}
links.mobile = {{ up = "20 Mbit/s", down = "20 Mbit/s" }}
links.core.edge = "5 ms"
apps.web.kind = "program"
apps.web.server = {{ on = "edge", command = ["{sys.executable}", "FLOOD"], ready = {{ line = "ready" }} }}
apps.web.client = {{ on = "phone", command = "sleep 3" }}
apps.other.kind = "program"
apps.other.client = {{ on = "phone", command = "sleep 100" }}
faults = [{{ kind = "pause", node = "phone-0", at = "2 s", for = "1 s" }}]
"""


@pytest.mark.needs_tun
def test_a_service_that_floods_its_socket_breaks_no_run(tmp_path: Path) -> None:
    run = in_process.run_apart(tmp_path, FLOODED, flood=FLOOD)
    assert [each["event"] for each in read_events(run) if "fault" in each["event"]] == ["fault began", "fault ended"]
    warnings = json.loads((run / "run.json").read_text())["warnings"]
    assert any("malformed lines" in each for each in warnings), warnings


def _server_parts(
    tmp_path: Path, reported: list[dict[str, Any]], names: tuple[str, ...], ready: int = 200
) -> list[dict[str, int]]:
    """Return the parts of two requests whose server has the time from 100 to 200, ns; a third has no reply. ready: from
    when on the reply may have waited behind others."""
    (tmp_path / "web.edge-0.service.jsonl").write_text("".join(json.dumps(line) + "\n" for line in reported))
    requests = pl.DataFrame(
        {
            "endpoint": ["phone-0", "phone-0", "phone-1"],
            "request": [1, 2, 1],
            "local_port": [40_000, 40_000, 40_000],
            "order": [0, 1, 0],
            "uplink_left_ns": [100, 100, 100],
            "downlink_ready_ns": [ready, ready, None],
            "downlink_entered_ns": [200, 200, None],
        }
    )
    application = replace(http.describe({}), name="web", services=names)
    table = attach_services(requests, tmp_path, application, {}, requests.clear().select("endpoint", "request"))
    columns = [f"service_{name}_ns" for name in (*names, "rest")]
    assert table.select("endpoint", "request").rows() == requests.select("endpoint", "request").rows()
    assert table.row(2, named=True)[columns[0]] is None
    return [
        {name: row[column] for name, column in zip((*names, "rest"), columns, strict=True)}
        for row in table.head(2).to_dicts()
    ]


def _line(span: str, begin: int, end: int, **identity: Any) -> dict[str, Any]:
    identity = identity or {"request": 1}
    return {"endpoint": "phone-0", **identity, "span": span, "begin_ns": begin, "end_ns": end}


def test_spans_divide_the_time_of_the_server(tmp_path: Path) -> None:
    lines = [
        _line("queue", 90, 110),  # it began before the request was complete
        _line("work", 120, 180),
        _line("query", 130, 140),  # inside of work
        _line("query", 150, 160),
        _line("log", 170, 250),  # overlaps work, and ends after the reply began
        _line("query", 300, 400),
        _line("query", 110, 130, port=40_000, order=1),  # of the second request
        _line("query", 110, 130, request=99),
    ]
    first, second = _server_parts(tmp_path, lines, ("queue", "work", "query", "log"))
    assert first == {"queue": 10, "work": 30, "query": 20, "log": 30, "rest": 10}
    assert second == {"queue": 0, "work": 0, "query": 20, "log": 0, "rest": 80}


def test_a_server_is_ready_after_its_last_span_although_the_connection_is_busy(tmp_path: Path) -> None:
    first, second = _server_parts(tmp_path, [_line("work", 120, 180)], ("work",), ready=130)
    assert first == {"work": 60, "rest": 20}
    assert second == {"work": 0, "rest": 30}


times = st.integers(0, 300)


@given(st.lists(st.tuples(st.sampled_from("abc"), times, times), max_size=30))
def test_the_parts_of_the_server_add_up(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[str, int, int]]
) -> None:
    lines = [_line(name, min(ends), max(ends)) for name, *ends in story]
    first, _ = _server_parts(tmp_path_factory.mktemp("parts"), lines, ("a", "b", "c"))
    covered = {at for line in lines for at in range(max(100, line["begin_ns"]), min(200, line["end_ns"]))}
    assert sum(first.values()) == 100
    assert first["rest"] == 100 - len(covered)
    assert min(first.values()) >= 0


def test_a_report_shows_the_spans_in_the_place_of_the_server() -> None:
    before = http.describe({}).spans
    after = divide_server(before, ("queue", "work"))
    at = before.index(SERVER)
    assert after[:at] == before[:at]
    assert [span.label for span in after[at : at + 3]] == ["Server: queue", "Server: work", "Server, rest"]
    assert after[at + 3 :] == before[at + 1 :]
    assert divide_server(before, ()) == before
