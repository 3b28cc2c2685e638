"""A run that loads unmodified HTTP servers, of which one reports spans, and its prediction."""

import json
import os
import re
import sys
from pathlib import Path

import polars as pl
import pytest

from cellbed.experiments.virtual import profile
from cellbed.measure.summary import Summary
from cellbed_node.processes import find
from in_process import cellbed
from scenario_text import app_table, scenario_head, server_keys

SPANS = Path(__file__).parents[2] / "python" / "cellbed" / "spans.py"
NGINX = find("nginx")
FILES = app_table(
    "files",
    "http",
    client="phone",
    version="2",
    url="http://{server.address}:8080/page",
    rate="10 /s",
    arrivals="poisson",
    server=server_keys(
        ["%(nginx)s", "-p", ".", "-c", "nginx.conf", "-e", "errors"],
        8080,
        copy_in={"nginx.conf": "nginx.conf", "page": "page", "small": "small"},
    ),
)
SOURCES = {"service.py": "service.py", "spans.py": "spans.py"}
WRITERS = {"patient": 8083, "prompt": 8084}
"""Servers that write the header of a reply first, and their ports. The first one leaves the algorithm of Nagle on."""


def _writer(name: str, port: int) -> str:
    """Return the application with a server and a client of its own link."""
    url, file = f"http://{{server.address}}:{port}/tiny", {"patient": "tiny", "prompt": "prompt.py"}[name]
    words = ["-m", "http.server", "--protocol", "HTTP/1.1", str(port)] if name == "patient" else [file]
    server = server_keys(["%(python)s", *words], port, copy_in={file: file})
    return app_table(name, "http", client="near", url=url, rate="6 /s", server=server)


SCENARIO = (
    scenario_head(
        {
            "phone": {"class": "endpoint", "count": 2},
            "crowded": {"class": "endpoint", "link": {"down": "1 Mbit/s"}},
            "polite": {"class": "endpoint", "link": {"down": "1 Mbit/s"}},
            "near": {"class": "endpoint", "link": {"base_delay": "10 ms"}},
            "edge": {"cpus": 1.5, "memory": "1 GiB"},
        },
        mobile={"base_delay": "5 ms"},
        core={"edge": "2 ms"},
        name="http",
        duration="3 s",
        seed=5,
    )
    + FILES
    + app_table(
        "shop",
        "http",
        client="phone",
        url="http://{server.address}:8081/",
        method="POST",
        body_size="20 KiB",
        rate="10 /s",
        server=server_keys(["%(python)s", "service.py", "8081"], 8081, copy_in=SOURCES),
    )
    + "".join(_writer(*each) for each in WRITERS.items())
    + app_table("crowded", "http", client="crowded", version="2", url="http://{files.address}:8080/small", rate="10 /s")
    + app_table(
        "polite",
        "http",
        client="polite",
        version="2",
        url="http://{files.address}:8080/small",
        rate="10 /s",
        policy={"kind": "halve", "above": "200 ms"},
    )
    + app_table("stream", "http", client="phone", url="http://{shop.address}:8081/", rate="1 /s")
    + app_table(
        "plain",
        client={"on": "phone", "command": ["%(python)s", "-c", "%(client)s", "http://{server.address}:8082/"]},
        server=server_keys(["%(python)s", "service.py", "8082"], 8082, copy_in=SOURCES),
    )
)
NGINX_CONF = """
daemon off; master_process off; pid pid; events {}
http { access_log off; client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t;
  scgi_temp_path t; server { listen 8080 http2; root .; } }
"""
CLIENT = "import sys, urllib.request as web; [web.urlopen(sys.argv[1], bytes(9)).read() for _ in range(3)]"
SERVICE = """
import http.server, spans, sys, time

class Shop(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    served = 0

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "4000")
        self.end_headers()
        for _ in range(4):
            self.wfile.write(bytes(1000))
            self.wfile.flush()
            time.sleep(0.2)

    def do_POST(self):
        header, connection = self.headers["Cellbed-Request"], spans.of_connection(self.client_address, self.served)
        self.served += 1
        with spans.span(header, "work"):
            self.rfile.read(int(self.headers["Content-Length"]))
            with spans.span(connection, "query"):
                sum(range(50_000))
        self.send_response(503 if header and header.endswith("/3") else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Shop).serve_forever()
"""
PROMPT = """
import asyncio

async def serve(reader, writer):
    while await reader.readuntil(b"\\r\\n\\r\\n"):
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 700\\r\\n\\r\\n")
        writer.write(bytes(700))

async def main():
    await (await asyncio.start_server(serve, "0.0.0.0", 8084)).serve_forever()

asyncio.run(main())
"""

pytestmark = [
    pytest.mark.skipif(not os.access("/dev/net/tun", os.R_OK | os.W_OK), reason="/dev/net/tun cannot be opened"),
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed: sudo apt install nginx-light"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run with all servers."""
    return _run(tmp_path_factory.mktemp("http"), SCENARIO)


def _run(here: Path, text: str, *options: str | Path) -> Path:
    """Run a scenario, or predict it; return the folder of the run."""
    files = {"nginx.conf": NGINX_CONF, "page": "x" * 50_000, "small": "x" * 20_000, "service.py": SERVICE}
    files |= {"tiny": "x" * 700, "prompt.py": PROMPT, "spans.py": SPANS.read_text()}
    for name, content in files.items():
        (here / name).write_text(content)
    out = here / ("predicted" if options else "real")
    (here / "scenario.toml").write_text(text % {"nginx": NGINX, "python": sys.executable, "client": CLIENT})
    done = cellbed("run", here / "scenario.toml", "--out", out, "--no-limits", *options, status=0)
    (run,) = out.iterdir()
    (run / "printed").write_text(done.stdout)
    return run


@pytest.fixture(scope="module")
def predicted(folder: Path) -> Path:
    """The folder of a prediction of the applications that have a model, by the profile of the run."""
    return _run(folder.parents[1], SCENARIO[: SCENARIO.index("[apps.polite]")], "--virtual", "--profile", folder)


def _requests(run: Path, app: str) -> pl.DataFrame:
    return pl.read_parquet(run / "requests.parquet").filter(app=app)


def test_requests_to_an_unmodified_server_are_decomposed_exactly(folder: Path) -> None:
    requests = _requests(folder, "files")
    assert set(requests["code"]) == {200}
    assert set(requests["bytes_down"]) == {50_000}
    description = json.loads((folder / "run.json").read_text())["applications"][0]
    columns = [f"part_{span['name']}" for span in description["spans"]]
    assert "part_server" in columns
    parts = requests.select(columns)
    assert parts.null_count().sum_horizontal().item() == 0
    spent = parts.sum_horizontal() + requests["residual_s"]
    assert (spent - requests["latency_s"]).abs().max() < 1e-9  # type: ignore[operator]
    first = requests.sort("sent_ns").group_by("endpoint", maintain_order=True).first()
    assert (first["opening_ns"] < first["sent_ns"]).all()  # the connection was opened for it
    last = requests.sort("sent_ns").group_by("endpoint", maintain_order=True).last()
    assert (last["opening_ns"] == last["sent_ns"]).all()


def test_pauses_of_a_server_that_sends_its_reply_in_pieces_are_not_time_of_the_network(folder: Path) -> None:
    parts = _requests(folder, "stream").drop_nulls("residual_s")
    assert len(parts) > 0
    # Three pauses of 200 ms before the last piece.
    assert parts["part_server_pauses"].median() > 0.5  # type: ignore[operator]
    assert parts["part_downlink_transport"].median() < 0.1  # type: ignore[operator]
    assert "Server, pauses in the reply" in (folder / "report.html").read_text()


def test_spans_of_a_service_divide_its_time_in_tables_and_report(folder: Path) -> None:
    requests = _requests(folder, "shop").drop_nulls("downlink_entered_ns")
    assert requests["request"].n_unique() >= 25
    server = requests["downlink_entered_ns"] - requests["uplink_left_ns"]  # over HTTP/1.1 nothing is before a reply
    services = [f"part_service_{name}" for name in ("work", "query")]
    divided = requests.select(*services, "part_server").sum_horizontal()
    assert (divided - server / 1e9).abs().max() < 1e-9  # type: ignore[operator]
    for column in services:
        assert (requests[column] > 0).all()
    recorded = [json.loads(line) for line in (folder / "raw" / "shop.edge-0.service.jsonl").read_text().splitlines()]
    assert {line["endpoint"] for line in recorded} == {"phone-0", "phone-1"}
    assert {line["span"] for line in recorded} == {"work", "query"}
    assert "Server: query" in (folder / "report.html").read_text()


def test_a_reply_that_waits_behind_others_of_its_connection_is_not_server_time(folder: Path) -> None:
    # nginx answers at once, and the link takes 1.6 times as long as the requests come.
    parts = _requests(folder, "crowded").drop_nulls("residual_s").select("part_server", "part_downlink_wait").sum()
    server, waiting = parts.row(0)
    assert waiting > 4 * server > 0
    samples = profile.extract_profile(folder).applications["crowded"]
    assert waiting > 4 * sum(sample["server"] for sample in samples) / 1e9 > 0
    assert "Waiting behind other replies" in (folder / "report.html").read_text()


def test_a_prediction_has_the_spans_of_the_real_run(folder: Path, predicted: Path) -> None:
    foreseen = _requests(predicted, "shop").drop_nulls("residual_s")
    real = _requests(folder, "shop").filter(pl.col("error").is_null()).drop_nulls("residual_s")
    assert len(foreseen) > 20
    for column in ("part_service_work", "part_service_query"):
        assert set((foreseen[column] * 1e9).round()) <= set((real[column] * 1e9).round())
    server = [each.select(pl.sum_horizontal("^part_(service_.*|server)$")).to_series() for each in (real, foreseen)]
    assert server[0].min() * 0.99 <= server[1].min() <= server[1].max() <= server[0].max() * 1.01
    assert foreseen["residual_s"].abs().max() < 1e-6
    assert "Server: query" in (predicted / "report.html").read_text()


def test_a_prediction_is_near_the_real_run_whose_replies_share_the_link(folder: Path, predicted: Path) -> None:
    # Most of it is the wait behind other replies, on any machine.
    real, foreseen = (_requests(run, "crowded")["latency_s"] for run in (folder, predicted))
    for share in (0.5, 0.9):
        assert foreseen.quantile(share) == pytest.approx(real.quantile(share), rel=0.15)


def test_spans_of_a_plain_program_divide_the_time_of_its_connections(folder: Path) -> None:
    connections = pl.read_parquet(folder / "connections.parquet").filter(app="plain")
    assert len(connections) == 2 * 3
    assert (connections["part_service_query"] > 0).all()
    assert (connections["part_server"] > 0).all()


def test_error_statuses_are_reasons_and_nothing_is_left(folder: Path) -> None:
    files, shop, *_ = Summary.read(folder).applications
    assert shop.reasons == {"HTTP status 503 Service Unavailable": 2}
    assert files.reasons == {}
    description = json.loads((folder / "run.json").read_text())
    assert not any("spans" in warning or "CELLBED_SPANS" in warning for warning in description["warnings"])


def test_a_policy_lowers_the_latency_over_a_slow_link_and_what_it_skips_is_counted(folder: Path) -> None:
    crowded, polite = (each for each in Summary.read(folder).applications if each.name in ("crowded", "polite"))
    # Both have the same schedule over equal links, whose capacity is below the rate of the schedule.
    assert crowded.requests.total == polite.requests.total + polite.requests.skipped == 30
    assert crowded.requests.skipped == 0
    assert 0 < polite.requests.skipped <= 15
    requests = _requests(folder, "polite")
    skipped = requests.filter(status="skipped")
    assert len(skipped) == polite.requests.skipped
    assert skipped.select("started_ns", "sent_ns", "latency_s").null_count().row(0) == (len(skipped),) * 3
    # Never two in a row: half of the rate is the least.
    numbers = skipped["request"].sort()
    assert (numbers.diff().drop_nulls() >= 2).all()
    assert polite.percentiles[0].value < crowded.percentiles[0].value
    assert f"by policy: {polite.requests.skipped} more skipped, 0 sent reduced" in (folder / "printed").read_text()
    assert re.search("by policy: .*more skipped", (folder / "report.html").read_text())


def test_the_profile_shows_whether_the_end_of_a_reply_waits_for_an_acknowledgement(
    folder: Path, predicted: Path
) -> None:
    for run in (folder, predicted):
        samples = profile.extract_profile(run).applications
        assert {name: samples[name][0]["nagle"] for name in WRITERS} == {"patient": True, "prompt": False}
    transport = {name: _requests(predicted, name)["part_downlink_transport"] for name in WRITERS}
    # The way there and back takes 24 ms.
    assert transport["patient"].min() > 0.02  # type: ignore[operator]
    assert transport["prompt"].max() < 0.01  # type: ignore[operator]
    # It is not time of the server.
    own = sum(sample["server"] for sample in profile.extract_profile(folder).applications["patient"]) / 1e9
    assert own == pytest.approx(_requests(folder, "patient")["part_server"].sum(), abs=1e-3)
