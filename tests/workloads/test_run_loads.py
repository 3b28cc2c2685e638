"""A run with the loads of the kind ``http`` beyond a plain request: TLS, streamed replies."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import polars as pl
import pytest

from cellbed.measure.summary import Summary
from cellbed.testbed.machine.process import find
from in_process import cellbed

NGINX = find("nginx")
EVENTS, PAUSE_S = 4, 0.05
SCENARIO = """
name = "loads"
duration = "3 s"

[nodes.endpoint]
cpus = 1.0
memory = "256 MiB"

[nodes.edge]
cpus = 1.0
memory = "256 MiB"

[links.mobile]
up = "20 Mbit/s"
down = "20 Mbit/s"
base_delay = "10 ms"

[links.core]
edge = "5 ms"

[apps.page]
kind = "http"
url = "https://{server.address}:8443/page"
rate = "10 /s"

[apps.page.server]
on = "edge"
command = ["sh", "-c", "cp {server.certificate} {server.key} . && exec %(nginx)s -p . -c nginx.conf -e errors"]
copy_in = { "nginx.conf" = "nginx.conf", "page" = "page" }
ready = { port = 8443 }

[apps.pages]
kind = "http"
version = "2"
url = "https://edge-0:8444/page"
rate = "10 /s"
server = "edge"

[apps.stranger]
kind = "program"
client = { on = "endpoint", command = ["%(python)s", "-c", "%(client)s", "https://{page.address}:8443/page"] }

[apps.events]
kind = "http"
url = "http://{server.address}:8080/"
stream = "sse"
rate = "5 /s"

[apps.events.server]
on = "edge"
command = ["%(python)s", "events.py", "8080"]
copy_in = { "events.py" = "events.py" }
ready = { port = 8080 }

[apps.chunks]
kind = "http"
url = "http://{events.address}:8080/"
stream = "chunks"
rate = "5 /s"
"""
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

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
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
    (here / "nginx.conf").write_text(NGINX_CONF)
    (here / "page").write_bytes(bytes(50_000))
    (here / "events.py").write_text(SERVER)
    answer = cellbed("run", here / "scenario.toml", "--out", here / "runs", "--no-limits")
    assert answer.returncode == 0, answer.stderr
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
    assert wire.is_between(50_001, 55_000).all()
    opened = parts.filter(requests["opening_ns"] < requests["sent_ns"])
    assert len(opened) > 0
    # A round trip of TCP, and one of TLS, over links that delay for 15 ms each way.
    assert opened.select((pl.col("part_connect_uplink", "part_connect_downlink") >= 0.030).all()).row(0) == (True, True)
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
    waited = later.group_by("request").agg(pl.col("server_s").sum()).sort("request")["server_s"]
    assert (waited > 0.9 * PAUSE_S * (EVENTS - 1)).all()
    assert (parts["part_server_pauses"] > 0.9 * PAUSE_S * (EVENTS - 1)).all()
    assert (messages["downlink_s"] >= 0.015).all()
    (summary,) = (each for each in Summary.read(folder).applications if each.name == app)
    measures = {measure.label: measure for measure in summary.measures}
    assert measures["between messages"].requests == len(later)
    assert measures["time to first byte"].least < requests["latency_s"].min()  # type: ignore[operator]
    assert "between messages" in cellbed("report", folder).stdout
