"""Predictions of servers that differ: how they write their replies is read from the profile's run."""

import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cellbed.experiments.virtual import profile as profiles
from cellbed_node.processes import find
from in_process import cellbed
from scenario_text import app_table, scenario_head, server_keys

NGINX = find("nginx")
SCENARIO = scenario_head(
    {"endpoint": {}, "edge": {"cpus": 1.0, "memory": "512 MiB"}},
    mobile={"down": "%(down)s", "base_delay": "10 ms"},
    core={"edge": "2 ms"},
    name="servers",
    duration="%(duration)s",
    seed=5,
    transport={"congestion_control": "reno"},
)
HTTP1 = """
[apps.%(name)s]
kind = "http"
url = "http://{server.address}:%(port)s/"
rate = "6 /s"

[apps.%(name)s.server]
on = "edge"
command = ["%(python)s", "%(name)s.py"]
copy_in = { "%(name)s.py" = "%(name)s.py" }
ready = { port = %(port)s }
"""
HTTP2 = app_table(
    "files",
    "http",
    version="2",
    url="http://{server.address}:8080/page",
    arrivals="poisson",
    rate="%(rate)s /s",
    server=server_keys(
        ["%(nginx)s", "-p", ".", "-c", "nginx.conf", "-e", "errors"],
        8080,
        copy_in={"nginx.conf": "nginx.conf", "page": "page"},
    ),
)
NGINX_CONF = """
daemon off; master_process off; pid pid; events {}
http { access_log off; client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t;
  scgi_temp_path t; keepalive_requests 1000; server { listen 8080 http2; root .; } }
"""
# Both write the header first; http.server leaves the algorithm of Nagle on, asyncio does not.
PATIENT = """
import http.server

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "700")
        self.end_headers()
        self.wfile.write(bytes(700))

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("", 8081), Handler).serve_forever()
"""
PROMPT = """
import asyncio

async def serve(reader, writer):
    while await reader.readuntil(b"\\r\\n\\r\\n"):
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 700\\r\\n\\r\\n")
        writer.write(bytes(700))

async def main():
    await (await asyncio.start_server(serve, "0.0.0.0", 8082)).serve_forever()

asyncio.run(main())
"""

PORTS = {"patient": 8081, "prompt": 8082}


def run(folder: Path, text: str, *options: str | Path, **values: object) -> Path:
    """Run a scenario, or predict it; return its folder."""
    (folder / "nginx.conf").write_text(NGINX_CONF)
    (folder / "page").write_bytes(bytes(100_000))
    (folder / "patient.py").write_text(PATIENT)
    (folder / "prompt.py").write_text(PROMPT)
    (folder / "scenario.toml").write_text(text % ({"nginx": NGINX, "python": sys.executable} | values))
    out = folder / ("predicted" if options else "real")
    cellbed("run", folder / "scenario.toml", "--out", out, *options, status=0)
    (made,) = out.iterdir()
    return made


def requests(run: Path, app: str) -> pl.DataFrame:
    return pl.read_parquet(run / "requests.parquet").filter(pl.col("app") == app)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A real run of servers of HTTP/1.1, and its prediction."""
    folder = tmp_path_factory.mktemp("servers")
    apps = [HTTP1 % {"name": name, "port": port, "python": "%(python)s"} for name, port in PORTS.items()]
    text = SCENARIO + "".join(apps)
    real = run(folder, text, duration="3 s", down="20 Mbit/s")
    return real, run(folder, text, "--virtual", "--profile", real, duration="3 s", down="20 Mbit/s")


def sample(run: Path, app: str) -> dict[str, Any]:
    return profiles.of_run(run).applications[app][0]


def test_the_profile_shows_whether_the_end_of_a_reply_waits_for_an_acknowledgement(pair: tuple[Path, Path]) -> None:
    for run in pair:
        assert {name: sample(run, name)["nagle"] for name in PORTS} == {"patient": True, "prompt": False}


def test_a_prediction_waits_for_acknowledgements_only_where_the_server_does(pair: tuple[Path, Path]) -> None:
    _, predicted = pair
    transport = {name: requests(predicted, name)["part_downlink_transport"] for name in PORTS}
    # The way there and back takes 24 ms.
    assert transport["patient"].min() > 0.02  # type: ignore[operator]
    assert transport["prompt"].max() < 0.01  # type: ignore[operator]


def test_the_wait_for_an_acknowledgement_is_not_counted_as_time_of_the_server(pair: tuple[Path, Path]) -> None:
    real, _ = pair
    found = requests(real, "patient")
    own = profiles.of_run(real).applications["patient"]
    assert sum(each["server"] for each in own) / 1e9 == pytest.approx(found["part_server"].sum(), abs=1e-3)


@pytest.mark.slow
@pytest.mark.skipif(NGINX is None, reason="nginx is not installed: sudo apt install nginx-light")
def test_a_prediction_over_http2_is_near_a_real_run_of_nginx_whose_replies_share_the_link(tmp_path: Path) -> None:
    # The replies are 1.1 times what the link carries.
    values = {"duration": "10 s", "down": "9 Mbit/s", "rate": 12}
    real = run(tmp_path, SCENARIO + HTTP2, **values)
    predicted = run(tmp_path, SCENARIO + HTTP2, "--virtual", "--profile", real, **values)
    assert sample(real, "files")["turn"] >= 32_000
    # Most of it is the wait behind other replies, on any machine.
    latency = [requests(each, "files")["latency_s"] for each in (real, predicted)]
    for share in (0.5, 0.9):
        first, second = (each.quantile(share) for each in latency)
        assert second == pytest.approx(first, rel=0.15)
