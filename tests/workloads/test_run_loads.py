"""A run with loads beyond plain requests over HTTP: TLS, streamed replies, journeys, gRPC, WebSockets."""

import json
import os
import sys
import tomllib
from pathlib import Path

import polars as pl
import pytest
import tomli_w

from cellbed.measure.rows import measure
from cellbed.measure.summary import Summary
from cellbed_node.processes import find
from in_process import cellbed
from scenario_text import NODES, app_table, server_keys, tables
from workload_program import GREETER

NGINX = find("nginx")
EVENTS, PAUSE_S = 3, 0.2
SCENARIO = (
    tables(name="loads", duration="3 s")
    + NODES.replace("3 ms", "5 ms")
    + app_table(
        "page",
        "http",
        url="https://{server.address}:8443/page",
        rate="10 /s",
        server=server_keys(
            ["sh", "-c", "cp {server.certificate} {server.key} . && exec %(nginx)s -p . -c nginx.conf -e errors"],
            8443,
            copy_in={"nginx.conf": "nginx.conf", "page": "page"},
        ),
    )
    + app_table("pages", "http", version="2", url="https://edge-0:8444/page", rate="10 /s", server="edge")
    + app_table(
        "stranger",
        client={"on": "endpoint", "command": ["%(python)s", "-c", "%(client)s", "https://{page.address}:8443/page"]},
    )
    + app_table(
        "events",
        "http",
        url="http://{server.address}:8080/",
        stream="sse",
        rate="4 /s",
        server=server_keys(["%(python)s", "events.py", "8080"], 8080, copy_in={"events.py": "events.py"}),
    )
    + app_table("chunks", "http", url="http://{events.address}:8080/", stream="chunks", rate="4 /s")
    + app_table(
        "users",
        "http",
        url="https://edge-0:8443",
        journey=[
            {"get": "/page", "take": {"length": "^content-length: (.*)"}},
            {"get": "/page?{length}", "name": "again"},
        ],
        rate="5 /s",
        server="edge",
    )
    + app_table(
        "calls",
        "http",
        url="http://{server.address}:8081",
        grpc="a.Greeter/Many",
        body_hex="0a03616263",
        rate="5 /s",
        server=server_keys(["%(python)s", "greeter.py"], 8081, copy_in={"greeter.py": "greeter.py"}),
    )
    + app_table(
        "echo",
        "websocket",
        url="ws://{server.address}:8083/",
        message='{{"say": "{request}"}}',
        rate="5 /s",
        server=server_keys(["%(python)s", "echo.py"], 8083, copy_in={"echo.py": "echo.py"}),
    )
    + app_table(
        "chat",
        "websocket",
        url="wss://{server.address}:8082/room",
        rate="5 /s",
        server=server_keys(
            ["%(python)s", "chat.py", "{server.certificate}", "{server.key}"], 8082, copy_in={"chat.py": "chat.py"}
        ),
    )
)
NGINX_CONF = """
daemon off; master_process off; pid pid; events {}
http { access_log off; client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t;
  scgi_temp_path t; ssl_protocols TLSv1.3; ssl_certificate certificate.pem; ssl_certificate_key key.pem;
  server { listen 8443 ssl; root .; } server { listen 8444 ssl http2; root .; } }
"""
CLIENT = "import sys, urllib.request as web; print(len(web.urlopen(sys.argv[1]).read()))"
SERVER = f"""
import http.server, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range({EVENTS}):
            time.sleep({PAUSE_S})
            event = b"data: %d\\n\\n: a comment\\n\\n" % number
            self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(event), event))
        self.wfile.write(b"0\\r\\n\\r\\n")

http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
"""

ECHO = """
from websockets.sync.server import serve

def repeat(connection):
    for message in connection:
        connection.send(message)

serve(repeat, "", 8083).serve_forever()
"""

CHAT = """
import ssl, sys, time
from websockets.sync.server import serve

def room(connection):
    for message in connection:
        connection.send("news")
        time.sleep(0.05)
        connection.send(message)

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(*sys.argv[1:])
serve(room, "", 8082, ssl=context).serve_forever()
"""

pytestmark = [
    pytest.mark.skipif(not os.access("/dev/net/tun", os.R_OK | os.W_OK), reason="/dev/net/tun cannot be opened"),
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed: sudo apt install nginx-light"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run with all loads."""
    here = tmp_path_factory.mktemp("loads")
    (here / "scenario.toml").write_text(SCENARIO % {"nginx": NGINX, "python": sys.executable, "client": CLIENT})
    (here / "page").write_bytes(bytes(50_000))
    for name, text in {"nginx.conf": NGINX_CONF, "events.py": SERVER, "chat.py": CHAT, "echo.py": ECHO}.items():
        (here / name).write_text(text)
    (here / "greeter.py").write_text(GREETER.replace("127.0.0.1:0", "0.0.0.0:8081"))
    done = cellbed("run", here / "scenario.toml", "--out", here / "runs", "--no-limits", status=0)
    (here / "printed").write_text(done.stdout)
    (run,) = (here / "runs").iterdir()
    return run


def _requests(run: Path, app: str) -> pl.DataFrame:
    requests = pl.read_parquet(run / "requests.parquet").filter(app=app)
    assert set(requests["status"]) == {"ok"}, requests["error"].to_list()
    return requests


def _parts(run: Path, app: str) -> pl.DataFrame:
    """The parts of an application's requests, after a check that they add up."""
    requests = _requests(run, app)
    described = json.loads((run / "run.json").read_text())["applications"]
    (spans,) = (each["spans"] for each in described if each["name"] == app)
    parts = requests.select(f"part_{span['name']}" for span in spans)
    assert parts.null_count().sum_horizontal().item() == 0
    assert (parts.sum_horizontal() + requests["residual_s"] - requests["latency_s"]).abs().max() < 1e-9  # type: ignore[operator]
    return parts


@pytest.mark.parametrize("app", ["page", "pages"])
def test_requests_over_tls_are_decomposed_with_their_handshake(folder: Path, app: str) -> None:
    requests, parts = _requests(folder, app), _parts(folder, app)
    assert set(requests["code"]) == {200}
    wire = requests["downlink_end"] - requests["downlink_start"]
    assert (wire > 50_000).all()
    assert app == "pages" or (wire < 55_000).all()  # over HTTP/2 there may be bytes of other streams in between
    # A round trip of TCP, and one of TLS, over links that delay for 15 ms each way.
    first = parts.filter(requests["request"] == 0).row(0, named=True)
    assert min(first["part_connect_uplink"], first["part_connect_downlink"]) >= 0.030
    assert parts.filter(requests["opening_ns"] == requests["sent_ns"])["part_connect_uplink"].sum() == 0


def test_programs_trust_the_authority_of_the_run(folder: Path) -> None:
    assert (folder / "raw" / "stranger.endpoint-0.client.out").read_text() == "50000\n"


@pytest.mark.parametrize("app", ["events", "chunks"])
def test_messages_of_a_streamed_reply_are_measured_apart_from_the_pauses_of_the_server(folder: Path, app: str) -> None:
    requests, parts = _requests(folder, app), _parts(folder, app)
    messages = pl.read_parquet(folder / "messages.parquet").filter(app=app)
    assert len(messages) == EVENTS * len(requests)
    assert set(messages["bytes"]) == {9 if app == "events" else 9 + 13}
    assert messages.null_count().select("entered_ns", "left_ns", "downlink_s").sum_horizontal().item() == 0
    later = messages.filter(pl.col("message") > 0)
    assert later["between_messages_s"].null_count() == 0
    # A packet that comes with an acknowledgement could have waited for it: then there is no pause.
    waited = later.group_by("request").agg(pl.col("server_s").sum())["server_s"]
    assert waited.median() > 0.9 * PAUSE_S * (EVENTS - 1)  # type: ignore[operator]
    assert parts["part_server_pauses"].median() > 0.9 * PAUSE_S * (EVENTS - 1)  # type: ignore[operator]
    assert (messages["downlink_s"] >= 0.015).all()
    (summary,) = (each for each in Summary.read(folder).applications if each.name == app)
    measures = {measure.label: measure for measure in summary.measures}
    assert measures["between messages"].requests == len(later)
    assert measures["time to first byte"].least < requests["latency_s"].min()  # type: ignore[operator]


def test_measures_of_streamed_replies_are_printed_and_in_datasets(folder: Path) -> None:
    assert "between messages" in (folder.parents[1] / "printed").read_text()
    summaries = {each.name: each for each in Summary.read(folder).applications}
    for row in (each for each in measure(folder)[0] if each["app"] in ("events", "chunks")):
        measures = {measure.label: measure for measure in summaries[row["app"]].measures}
        assert row["between_messages_p50_s"] == measures["between messages"].median
        assert row["first_byte_p99_s"] is None  # too few requests


def test_each_step_of_a_journey_is_reported(folder: Path) -> None:
    requests, parts = _requests(folder, "users"), _parts(folder, "users")
    assert set(requests["step"]) == {"GET /page", "again"}
    assert parts["part_server"].min() > 0  # type: ignore[operator]
    (summary,) = (each for each in Summary.read(folder).applications if each.name == "users")
    counts = {each.endpoint: each.counts.ok for each in summary.steps}
    assert counts["GET /page"] == requests["journey"].n_unique() >= counts["again"] > 0
    assert "By step" in (folder / "report.html").read_text()


def test_calls_of_grpc_are_decomposed_by_message(folder: Path) -> None:
    requests, parts = _requests(folder, "calls"), _parts(folder, "calls")
    assert parts["part_uplink_delay"].min() >= 0.015  # type: ignore[operator]
    messages = pl.read_parquet(folder / "messages.parquet").filter(app="calls")
    assert len(messages) == 3 * len(requests)
    assert messages["downlink_s"].null_count() == 0


def test_messages_over_a_websocket_are_decomposed_and_those_of_the_server_kept_apart(folder: Path) -> None:
    requests, parts = _requests(folder, "chat"), _parts(folder, "chat")
    # Of each message where the machine delays neither packets nor programs, as in most of them.
    assert parts["part_server"].median() >= 0.04
    assert requests["local_port"].n_unique() == 1
    messages = pl.read_parquet(folder / "messages.parquet").filter(app="chat")
    assert len(messages) == len(requests)
    assert messages["request"].null_count() == len(messages)
    assert (messages["downlink_s"] >= 0.015).all()
    assert "WebSocket over TLS /room" in (folder / "report.html").read_text()


@pytest.fixture(scope="module")
def predicted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prediction of the same loads, but for those without a model, with the profile of the run."""
    here = tmp_path_factory.mktemp("predicted")
    tables = tomllib.loads((folder / "scenario.toml").read_text())
    del tables["apps"]["stranger"], tables["apps"]["chat"]
    (here / "scenario.toml").write_text(tomli_w.dumps(tables))
    for name in ("nginx.conf", "page", "events.py", "greeter.py", "echo.py"):
        (here / name).write_bytes((folder.parents[1] / name).read_bytes())
    asked = ("--virtual", "--profile", folder, "--out", here / "runs", "--no-limits")
    cellbed("run", here / "scenario.toml", *asked, status=0)
    (run,) = (here / "runs").iterdir()
    return run


@pytest.mark.parametrize("app", ["page", "pages", "events", "chunks", "users", "calls", "echo"])
def test_a_prediction_has_the_requests_messages_and_bytes_of_the_run(folder: Path, predicted: Path, app: str) -> None:
    real, foreseen = _requests(folder, app), _requests(predicted, app)
    _parts(predicted, app)
    if app == "users":  # later requests follow replies
        assert set(real["step"]) == set(foreseen["step"])
    else:
        assert len(real) == len(foreseen)
    assert set(real["bytes_down"]) == set(foreseen["bytes_down"])
    messages = [pl.read_parquet(run / "messages.parquet").filter(app=app) for run in (folder, predicted)]
    counts = [each.group_by("request").len()["len"].unique().to_list() for each in messages]
    assert counts[0] == counts[1]
    assert set(messages[0]["bytes"]) == set(messages[1]["bytes"])
    if app == "pages":
        return  # there may be bytes of other streams in between
    wire = [(each["downlink_end"] - each["downlink_start"]).median() for each in (real, foreseen)]
    assert wire[1] == pytest.approx(wire[0], rel=0.01, abs=60)


def test_a_prediction_has_handshakes_and_pauses_of_the_server(folder: Path, predicted: Path) -> None:
    parts = _parts(predicted, "page").filter(_requests(predicted, "page")["request"] == 0).row(0, named=True)
    assert min(parts["part_connect_uplink"], parts["part_connect_downlink"]) > 1.5 * 0.015  # of TCP, and of TLS
    later = pl.read_parquet(predicted / "messages.parquet").filter(pl.col("app") == "events", pl.col("message") > 0)
    assert later["server_s"].median() > 0.9 * PAUSE_S  # type: ignore[operator]
    assert _parts(predicted, "events")["part_server_pauses"].median() > 0.9 * PAUSE_S * (EVENTS - 1)  # type: ignore[operator]


def test_a_prediction_names_what_has_no_model(folder: Path) -> None:
    answer = cellbed("run", folder.parents[1] / "scenario.toml", "--virtual")
    assert answer.returncode != 0
    assert "'chat': wss" in answer.stderr
    assert "'page'" not in answer.stderr
