"""A prediction over HTTP/2 beside a real run of nginx."""

from pathlib import Path

import polars as pl
import pytest

from cellbed.experiments.virtual import profile as profiles
from cellbed_node.processes import find
from in_process import cellbed
from scenario_text import app_table, scenario_head, server_keys

NGINX = find("nginx")
SCENARIO = scenario_head(
    {"endpoint": {}, "edge": {"cpus": 1.0, "memory": "512 MiB"}},
    mobile={"down": "9 Mbit/s", "base_delay": "10 ms"},
    core={"edge": "2 ms"},
    name="servers",
    duration="10 s",
    seed=5,
    transport={"congestion_control": "reno"},
)
FILES = app_table(
    "files",
    "http",
    version="2",
    url="http://{server.address}:8080/page",
    arrivals="poisson",
    rate="12 /s",
    server=server_keys(
        [str(NGINX), "-p", ".", "-c", "nginx.conf", "-e", "errors"],
        8080,
        copy_in={"nginx.conf": "nginx.conf", "page": "page"},
    ),
)
NGINX_CONF = """
daemon off; master_process off; pid pid; events {}
http { access_log off; client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t;
  scgi_temp_path t; keepalive_requests 1000; server { listen 8080 http2; root .; } }
"""


def run(folder: Path, *options: str | Path) -> Path:
    """Run the scenario, or predict it; return its folder."""
    (folder / "nginx.conf").write_text(NGINX_CONF)
    (folder / "page").write_bytes(bytes(100_000))
    (folder / "scenario.toml").write_text(SCENARIO + FILES)
    out = folder / ("predicted" if options else "real")
    cellbed("run", folder / "scenario.toml", "--out", out, *options, status=0)
    (made,) = out.iterdir()
    return made


@pytest.mark.slow
@pytest.mark.skipif(NGINX is None, reason="nginx is not installed: sudo apt install nginx-light")
def test_a_prediction_over_http2_is_near_a_real_run_of_nginx_whose_replies_share_the_link(tmp_path: Path) -> None:
    # The replies are 1.1 times what the link carries.
    real = run(tmp_path)
    predicted = run(tmp_path, "--virtual", "--profile", real)
    assert profiles.extract_profile(real).applications["files"][0]["turn"] >= 32_000
    # Most of it is the wait behind other replies, on any machine.
    latency = [pl.read_parquet(each / "requests.parquet")["latency_s"] for each in (real, predicted)]
    for share in (0.5, 0.9):
        first, second = (each.quantile(share) for each in latency)
        assert second == pytest.approx(first, rel=0.15)
