"""Requests that clients report: the helpers in Python and C, the socket, and a run that decomposes them."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cellbed
import in_process
from any_text import ODD_TEXT
from cellbed import spans
from cellbed.measure.connections import read_connections
from cellbed.measure.reported import attach
from cellbed.measure.run_folder import read_run
from cellbed.testbed.machine.peers import Admission
from cellbed.testbed.programs.reports import MARGIN_NS, REQUESTS, ReportSockets

ROOT = Path(__file__).parents[2]


class Bed:
    """The socket of a client on phone-0."""

    def __init__(self, folder: Path) -> None:
        (folder / "sockets").mkdir()
        self.sockets = ReportSockets(folder / "sockets", {})
        self.record = folder / "shop.phone-0.requests.jsonl"
        self.environment = self.sockets.listen(REQUESTS, "shop", self.record, Admission(), node="phone-0")

    def lines(self) -> list[dict[str, Any]]:
        _forget()
        self.sockets.close()
        return [json.loads(line) for line in self.record.read_text().splitlines()]


def _forget() -> None:
    spans._requests.socket, spans._requests.next_try_ns, spans._requests.dropped = None, 0, 0


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    bed = Bed(tmp_path)
    monkeypatch.setenv(REQUESTS.variable, bed.environment[REQUESTS.variable])
    _forget()
    yield bed
    _forget()
    bed.sockets.close()


def test_requests_of_a_python_client_are_recorded_with_their_outcome(bed: Bed) -> None:
    began = time.monotonic_ns()
    with spans.request("GET /cart", intended_ns=began - 5):
        pass
    for error in (ValueError(), TimeoutError(), ConnectionResetError()):
        with contextlib.suppress(type(error)), spans.request("order"):
            raise error
    first, failed, late, lost = bed.lines()
    assert (first["request"], first["endpoint"], first["step"], first["status"]) == (0, "phone-0", "GET_/cart", "ok")
    assert first["intended_ns"] == began - 5
    assert began <= first["begin_ns"] <= first["reply_ns"] <= time.monotonic_ns()
    assert [each["status"] for each in (failed, late, lost)] == ["failed", "timed-out", "lost"]
    assert [each["reply_ns"] is None for each in (failed, late, lost)] == [False, True, True]
    assert [each["intended_ns"] == each["begin_ns"] for each in (failed, late, lost)] == [True] * 3
    assert bed.sockets.requesting == {"shop"}
    assert bed.sockets.warnings() == []


def test_requests_of_a_c_client_are_recorded(bed: Bed, tmp_path: Path) -> None:
    strict = ["-Wall", "-Wextra", "-Werror", "-std=gnu99", "-I", str(ROOT / "python" / "cellbed")]
    subprocess.run(["cc", *strict, "-o", tmp_path / "client", ROOT / "tests/support/requests_client.c"], check=True)
    command = [tmp_path / "client", "ok", "failed", "timed-out", "nonsense"]
    subprocess.run(command, check=True, env={**os.environ, **bed.environment})
    found = bed.lines()
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
    assert [line["intended_ns"] for line in bed.lines()] == [now, now]
    (warning,) = bed.sockets.warnings()
    assert f" {len(wrong)} malformed lines" in warning


@given(
    st.lists(ODD_TEXT | st.from_regex(r"[a-z]{1,5} [0-9]{1,20} [0-9]{1,20} (ok|lost)( [0-9]{1,20})?", fullmatch=True))
)
def test_any_line_is_a_request_or_malformed(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    bed = Bed(tmp_path_factory.mktemp("bed"))
    lines = [line.replace("\n", " ") for line in lines][:50]
    _send(bed, *lines)
    for line in bed.lines():
        assert line["step"].isprintable()
        assert line["intended_ns"] <= line["begin_ns"] < 1 << 62
    assert len(bed.record.read_text().splitlines()) <= len(lines)


LOCUST = """
import sys, time, types

class Hook:  # as locust.event.EventHook
    def __init__(self):
        self.handlers = []

    def add_listener(self, handler):
        self.handlers.append(handler)
        return handler

    def fire(self, **fields):
        for each in self.handlers:
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
    cart, old, *others = bed.lines()
    assert (cart["step"], old["step"]) == ("GET_/cart", "GET_/old")
    for each in (cart, old):
        assert each["reply_ns"] - each["begin_ns"] == 20_000_000
    assert cart["begin_ns"] <= old["begin_ns"] - 29_000_000  # the user had examined the reply for 30 ms
    assert [each["status"] for each in others] == ["timed-out", "lost", "lost", "failed", "failed"]


SCENARIO = f"""
name = "reported"
duration = "4 s"
nodes.phone = {{ class = "endpoint", cpus = 1.0, memory = "256 MiB" }}
nodes.edge = {{ class = "edge", cpus = 1.0, memory = "256 MiB" }}
links.mobile = {{ up = "20 Mbit/s", down = "20 Mbit/s", base_delay = "10 ms" }}
links.core.edge = "5 ms"
apps.shop.kind = "program"
apps.shop.server = {{ on = "edge", command = ["{sys.executable}", "SERVER"], ready = {{ port = 8080 }} }}
apps.shop.client = {{ on = "phone", command = ["{sys.executable}", "CLIENT", "{{server.address}}"] }}
"""
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

    def log_message(self, *_):
        pass

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


@pytest.mark.needs_tun
def test_a_run_decomposes_the_requests_that_its_client_reports(tmp_path: Path) -> None:
    folder = in_process.run_apart(tmp_path, SCENARIO, server=SERVER, client=CLIENT)
    run = cellbed.load(folder)
    (application,) = run.summary.applications
    counts = application.requests
    assert (counts.total, counts.ok, counts.lost) == (51, 48, 3)
    assert application.reasons == {"the client reports: lost": 3}
    good = run.requests.filter(status="ok")
    found = good.drop_nulls("residual_s")
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
    assert "Connections of shop" in (folder / "report.html").read_text()


HTTP = f"""
name = "known"
duration = "4 s"
nodes.phone = {{ class = "endpoint", cpus = 1.0, memory = "256 MiB" }}
nodes.edge = {{ class = "edge", cpus = 1.0, memory = "256 MiB" }}
links.mobile = {{ up = "20 Mbit/s", down = "20 Mbit/s", base_delay = "10 ms", loss = "1 %" }}
links.core.edge = "5 ms"
[apps.shop]
kind = "http"
url = "http://{{server.address}}:8080/"
rate = "20 /s"
arrivals = "poisson"
server = {{ on = "edge", command = ["{sys.executable}", "SERVER"], ready = {{ port = 8080 }} }}
"""


@pytest.mark.needs_tun
def test_requests_found_by_their_times_have_the_parts_of_those_whose_bytes_are_known(tmp_path: Path) -> None:
    run = in_process.run_apart(tmp_path, HTTP, server=SERVER)
    description = read_run(run)
    description["applications"][0]["variant"] = "reported"
    truth = pl.read_parquet(run / "requests.parquet").filter(status="ok")
    times = {"begin_ns": "started_ns", "reply_ns": "reply_ns"}
    found, _ = attach(truth.select("app", "request", "endpoint", "status", **times), read_connections(run, description))
    both = truth.join(
        found.select("request", port="local_port", served="served_ns", sending="uplink_sending_ns"), on="request"
    )
    right = both.filter(pl.col("port") == pl.col("local_port")).drop_nulls("residual_s")
    assert len(right) > 0.6 * len(truth)  # fewer than all on a busy machine
    server = pl.col("part_server") + pl.col("part_service_query")
    for part, known in (("served", server), ("sending", pl.col("part_uplink_transport"))):
        near = (pl.col(part) / 1e9 - known).abs() < 1e-3
        assert right.filter(near).height > 0.8 * right.height  # on a busy machine some are taken for their neighbours
