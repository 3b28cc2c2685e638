"""Spans of services and requests of clients: the helpers in Python and C, the sockets of a run, and runs with them."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cellbed
import in_process
from any_text import ODD_TEXT, many
from cellbed import spans
from cellbed.measure.services import attach_services
from cellbed.testbed.machine.peers import Admission
from cellbed.testbed.programs.reports import (
    MARGIN_NS,
    MOST_MALFORMED,
    MOST_NAMES,
    REQUESTS,
    SPANS,
    TURN_BYTES,
    ReportSockets,
)
from cellbed.workloads.http import kind as http
from scenario_text import app_table, scenario_head, server_keys

ROOT = Path(__file__).parents[2]
NODES = {"100.64.0.1": "phone-0", "fd63:656c:6c62:0::1": "phone-0"}
NODE = {"cpus": 1.0}
HEAD = scenario_head(
    {"phone": NODE | {"class": "endpoint"}, "edge": NODE},
    mobile={"base_delay": "10 ms"},
    core={"edge": "5 ms"},
    duration="4 s",
)


class Bed:
    """The sockets of a run with one service, and one client on phone-0."""

    def __init__(self, folder: Path) -> None:
        (folder / "sockets").mkdir()
        self.sockets = ReportSockets(folder / "sockets", NODES)
        self.record, self.requested = folder / "web.edge-0.service.jsonl", folder / "shop.phone-0.requests.jsonl"
        self.environment = {
            **self.sockets.listen(SPANS, "web", self.record, Admission()),
            **self.sockets.listen(REQUESTS, "shop", self.requested, Admission(), node="phone-0"),
        }

    def lines(self) -> list[dict[str, Any]]:
        """Return the spans, after the service has ended."""
        _forget()
        self.sockets.close()
        return [json.loads(line) for line in self.record.read_text().splitlines()]

    def requests(self) -> list[dict[str, Any]]:
        """Return the requests, after the client has ended."""
        self.lines()
        return [json.loads(line) for line in self.requested.read_text().splitlines()]


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    bed = Bed(tmp_path)
    for name, path in bed.environment.items():
        monkeypatch.setenv(name, path)
    _forget()
    yield bed
    _forget()
    bed.sockets.close()


def _forget() -> None:
    for sender in (spans._spans, spans._requests):
        sender.socket, sender.next_try_ns, sender.dropped = None, 0, 0


def _compile(folder: Path, name: str) -> Path:
    strict = ["-Wall", "-Wextra", "-Werror", "-std=gnu99", "-I", str(ROOT / "python" / "cellbed")]
    subprocess.run(["cc", *strict, "-o", folder / name, ROOT / f"tests/support/{name}.c"], check=True)
    return folder / name


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
        ready.wait(200)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_together)
    threads = [threading.Thread(target=spans.report, args=(f"phone-0/{it}", "a", 1, 2)) for it in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(line["request"] for line in bed.lines()) == list(range(8))
    assert bed.sockets.warnings() == []


@pytest.fixture(scope="module")
def c_service(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _compile(tmp_path_factory.mktemp("c"), "spans_service")


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


def test_what_nobody_reads_is_dropped_and_counted_instead_of_waiting(bed: Bed) -> None:
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
    wrong = ["", "phone-0/1 a 1", "phone-0/1 a b 1 2", "phone-0/1 a 2 1", "phone-0 a 1 2", f"phone-0/1 a 1 {10**20}"]
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


@many
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


def test_requests_of_a_python_client_are_recorded_with_their_outcome(bed: Bed) -> None:
    began = time.monotonic_ns()
    with spans.request("GET /cart", intended_ns=began - 5):
        pass
    for error in (ValueError(), TimeoutError(), ConnectionResetError()):
        with contextlib.suppress(type(error)), spans.request("order"):
            raise error
    first, failed, late, lost = bed.requests()
    assert (first["request"], first["endpoint"], first["step"], first["status"]) == (0, "phone-0", "GET_/cart", "ok")
    assert first["intended_ns"] == began - 5
    assert began <= first["begin_ns"] <= first["reply_ns"] <= time.monotonic_ns()
    assert [each["status"] for each in (failed, late, lost)] == ["failed", "timed-out", "lost"]
    assert [each["reply_ns"] is None for each in (failed, late, lost)] == [False, True, True]
    assert [each["intended_ns"] == each["begin_ns"] for each in (failed, late, lost)] == [True] * 3
    assert bed.sockets.requesting == {"shop"}
    assert bed.sockets.warnings() == []


def test_requests_of_a_c_client_are_recorded(bed: Bed, tmp_path: Path) -> None:
    command = [_compile(tmp_path, "requests_client"), "ok", "failed", "timed-out", "nonsense"]
    subprocess.run(command, check=True, env={**os.environ, **bed.environment})
    found = bed.requests()
    assert [line["status"] for line in found] == ["ok", "failed", "timed-out"]
    assert [line["begin_ns"] - line["intended_ns"] for line in found] == [1, 0, 0]
    (warning,) = bed.sockets.warnings()
    assert warning.startswith("shop: its client sent 1 malformed lines to CELLBED_REQUESTS: times are nanoseconds")


def _send(bed: Bed, *lines: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(bed.environment[REQUESTS.variable])
        client.sendall("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
        bed.sockets.serve()


def test_malformed_and_impossible_requests_are_counted(bed: Bed) -> None:
    now = time.monotonic_ns()
    wrong = [
        "",
        f"order {now} {now + 1}",
        f"order {now} {now + 1} good",
        f"a name {now} {now + 1} ok",
        f"order {now + 1} {now} ok",
        f"order {time.clock_gettime_ns(time.CLOCK_REALTIME)} {time.clock_gettime_ns(time.CLOCK_REALTIME)} ok",
        f"order 1 {now} ok",
        f"order {now} {now + 100 * MARGIN_NS} ok",
        f"order {now} {now} ok 1",
    ]
    _send(bed, *wrong, f"order {now} {now + 1} ok", f"order {now} {now + 1} ok {now + 1}")
    assert [line["intended_ns"] for line in bed.requests()] == [now, now]
    (warning,) = bed.sockets.warnings()
    assert f" {len(wrong)} malformed lines" in warning


@many
@given(
    st.lists(ODD_TEXT | st.from_regex(r"[a-z]{1,5} [0-9]{1,20} [0-9]{1,20} (ok|lost)( [0-9]{1,20})?", fullmatch=True))
)
def test_any_line_is_a_request_or_malformed(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    bed = Bed(tmp_path_factory.mktemp("bed"))
    lines = [line.replace("\n", " ") for line in lines][:50]
    _send(bed, *lines)
    for line in bed.requests():
        assert line["step"].isprintable()
        assert line["intended_ns"] <= line["begin_ns"] < 1 << 62
    assert len(bed.requested.read_text().splitlines()) <= len(lines)


LOCUST = """
import sys, time, types

class Hook(list):  # as locust.event.EventHook
    add_listener = list.append

    def fire(self, **fields):
        for each in self:
            each(**fields)

locust = sys.modules["locust"] = types.ModuleType("locust")
locust.events = types.SimpleNamespace(request=Hook())
import runpy
for _ in range(2):  # a script may import what is a locustfile, too
    runpy.run_path("SPANS")
begun = time.time()
time.sleep(0.05)
common = {"request_type": "GET", "response_length": 9, "context": {}, "url": "/", "response": None}
fire = locust.events.request.fire
fire(name="/cart", response_time=20.0, exception=None, start_time=begun, **common)
fire(name="/old", response_time=20.0, exception=None, **common)
for kind in ("ReadTimeout", "ConnectionError", "RemoteDisconnected", "HTTPError", "CatchResponseError"):
    error = type(kind, (Exception,), {})()
    fire(name="/", response_time=1.0, exception=error, start_time=time.time() - 0.001, **common)
"""


def test_requests_of_locust_are_reported_by_its_event(bed: Bed) -> None:
    program = LOCUST.replace("SPANS", str(ROOT / "python" / "cellbed" / "spans.py"))
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, **bed.environment})
    cart, old, *others = bed.requests()
    assert (cart["step"], old["step"]) == ("GET_/cart", "GET_/old")
    for each in (cart, old):
        assert each["reply_ns"] - each["begin_ns"] == 20_000_000
    assert cart["begin_ns"] <= old["begin_ns"] - 29_000_000  # the user had examined the reply for 30 ms
    assert [each["status"] for each in others] == ["timed-out", "lost", "lost", "failed", "failed"]


SERVER = """
import http.server, time
from cellbed import spans

class Shop(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    served = 0

    def do_GET(self):
        with spans.span(spans.of_connection(self.client_address, self.served), "query"):
            time.sleep(0.02)
        self.served += 1
        self.send_response(200)
        self.send_header("Content-Length", "30000")
        self.end_headers()
        self.wfile.write(bytes(30_000))

http.server.ThreadingHTTPServer(("", 8080), Shop).serve_forever()
"""
CLIENT = """
import http.client, sys, threading, time
from cellbed import spans

def load(pause):
    kept = http.client.HTTPConnection(sys.argv[1], 8080)
    for number in range(8):
        with spans.request("kept"):
            kept.request("GET", "/")
            kept.getresponse().read()
        with spans.request("new"):
            fresh = http.client.HTTPConnection(sys.argv[1], 8080)
            fresh.request("GET", "/")
            fresh.getresponse().read()
        fresh.close()
        time.sleep(pause)
    try:
        with spans.request("refused"):
            http.client.HTTPConnection(sys.argv[1], 8081).request("GET", "/")
    except OSError:
        pass

threads = [threading.Thread(target=load, args=(pause,)) for pause in (0.01, 0.013, 0.017)]
for each in threads:
    each.start()
"""


REPORTED = HEAD + app_table(
    "shop",
    server=server_keys([sys.executable, "SERVER"], 8080),
    client={"on": "phone", "command": [sys.executable, "CLIENT", "{server.address}"]},
)


@pytest.mark.needs_tun
def test_a_run_decomposes_the_requests_that_its_client_reports(tmp_path: Path) -> None:
    folder = in_process.run_apart(tmp_path, REPORTED, server=SERVER, client=CLIENT)
    run = cellbed.load(folder)
    (application,) = run.summary.applications
    counts = application.requests
    assert (counts.total, counts.ok, counts.lost) == (51, 48, 3)
    assert application.reasons == {"the client reports: lost": 3}
    found = run.requests.filter(status="ok").drop_nulls("residual_s")
    # On a busy machine the log may not decide for one or the other; it never decides for nearly all.
    assert len(found) >= 36
    for row in found.to_dicts():
        assert row["server"] == "edge-0"
        assert row["part_service_query"] >= 0.019
        assert row["part_uplink_delay"] >= 0.015 - 1e-6
        assert row["part_downlink_delay"] >= 0.015 - 1e-6
    opened = found.filter(step="new").select(pl.col("part_connect_uplink") + pl.col("part_connect_downlink"))
    assert opened.to_series().median() == pytest.approx(0.03, abs=1e-3)
    assert {each.endpoint for each in application.steps} == {"kept", "new", "refused"}
    assert application.decompositions[0].requests
    assert [each.app for each in run.summary.connections if each.port == 8080] == ["shop"]
    assert "Client, before sending" in (folder / "report.html").read_text()
