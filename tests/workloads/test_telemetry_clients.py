"""Clients with automatic instrumentation of OpenTelemetry, compared with their own clocks and with that of their
server."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import cellbed
import in_process
from scenario_text import app_table, scenario_head, server_keys

SERVER = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Replies(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "20000")
        self.end_headers()
        for _ in range(2):
            if self.path.startswith("/paused"):
                time.sleep(0.03)
            wrote = time.monotonic_ns()
            self.wfile.write(bytes(10_000))
        sys.stdout.write(json.dumps([self.path, wrote]) + "\\n")  # one write: replies have threads
        sys.stdout.flush()

    def log_message(self, *_):
        pass

ThreadingHTTPServer(("", 8080), Replies).serve_forever()
"""
CLOCK = """
import asyncio, json, sys, time
APP, URL = sys.argv[1:]
PATHS = [f"/{kind}/{APP}/{number}" for number in range(6) for kind in ("whole", "paused")]

def note(path, begin):
    print(json.dumps([path, begin, time.monotonic_ns()]), flush=True)
"""
CLIENTS = {
    "requests": """
import requests
with requests.Session() as session:
    for path in PATHS:
        begin = time.monotonic_ns()
        with session.get(URL + path, stream=path.endswith("3")) as reply:
            assert len(reply.content) == 20000
        note(path, begin)
""",
    "urllib3": """
import urllib3
pool = urllib3.PoolManager()
for path in PATHS:
    begin = time.monotonic_ns()
    reply = pool.request("GET", URL + path, preload_content=path.endswith("3"))
    assert len(reply.data) == 20000
    note(path, begin)
""",
    "httpx": """
import httpx
with httpx.Client() as client:
    for path in PATHS:
        begin = time.monotonic_ns()
        assert len(client.get(URL + path).content) == 20000
        note(path, begin)
""",
    "aiohttp": """
import aiohttp
async def main():
    async with aiohttp.ClientSession() as session:
        for path in PATHS:
            begin = time.monotonic_ns()
            async with session.get(URL + path) as reply:
                assert len(await reply.read()) == 20000
            note(path, begin)
asyncio.run(main())
""",
}
LOCAL = """
import threading, requests
from http.server import HTTPServer, SimpleHTTPRequestHandler
server = HTTPServer(("127.0.0.1", 9000), SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
for _ in range(3):
    requests.get("http://127.0.0.1:9000/")
"""
ENDS_EARLY = {"requests": 2, "urllib3": 10, "httpx": 12, "aiohttp": 12}
"""Spans of twelve that end with the headers of their replies, or later where the client had to wait for a processor;
the others end after the last byte."""
SCENARIO = scenario_head(
    {"phone": {"class": "endpoint", "cpus": 1.0}, "edge": {"cpus": 1.0}},
    mobile={"base_delay": "10 ms"},
    core={"edge": "2 ms"},
    duration="40 s",
) + app_table("web", server=server_keys([sys.executable, "SERVER"], 8080))
DELAY_NS = 12_000_000
CLOCKS_NS = 2_000_000
"""Difference of the wall clock and the monotonic clock, which spans and packets are stamped with, and its error."""


@pytest.mark.parametrize(
    "names", [("requests", "aiohttp", "local"), pytest.param(("urllib3", "httpx"), marks=pytest.mark.slow)]
)
def test_sequential_requests_end_with_their_replies(tmp_path: Path, names: tuple[str, ...]) -> None:
    instrument = str(Path(sys.executable).with_name("opentelemetry-instrument"))
    commands = {name: [instrument, sys.executable, name.upper(), name] for name in names}
    run = check(tmp_path, commands, {name: CLOCK + (CLIENTS | {"local": LOCAL})[name] for name in names})
    assert run.summary.warnings == [
        "local: 3 of 3 requests could not be assigned to a connection, and have no parts: "
        "3 × no TCP connection of its node goes to its server and port"
    ] * ("local" in names)


def check(folder: Path, commands: dict[str, list[str]], programs: dict[str, str]) -> cellbed.Run:
    """Run clients, and compare each request with the clock of its client and its server."""
    text = SCENARIO
    for name, command in commands.items():
        client = {"on": "phone", "command": [*command, "http://{web.address}:8080"]}
        client["environment"] = {"OTEL_METRICS_EXPORTER": "none"}
        text += app_table(name, telemetry=True, after=["web"], client=client)
    run = cellbed.load(in_process.run_apart(folder, text, server=SERVER, **programs))
    wrote = dict(lines(run.path / "raw" / "web.edge-0.server.out"))
    for name in commands.keys() & ENDS_EARLY.keys():
        own = lines(run.path / "raw" / f"{name}.phone-0.client.out")
        requests = run.requests.filter(app=name).sort("begin_ns").to_dicts()
        assert len(requests) == len(own) == 12
        assert [each["unassigned"] for each in requests] == [None] * 12, name
        early = sum(each["span_s"] is not None for each in requests)
        assert bool(ENDS_EARLY[name]) <= early <= ENDS_EARLY[name], name
        for request, (path, begin, end) in zip(requests, own, strict=True):
            assert begin - CLOCKS_NS <= request["begin_ns"]
            assert wrote[path] + DELAY_NS - CLOCKS_NS <= request["reply_ns"] <= end + CLOCKS_NS
            assert request["server"] == "edge-0"
            assert request["span_s"] is None or request["span_s"] < request["latency_s"]
        application = next(each for each in run.summary.applications if each.name == name)
        assert application.requests.without_parts == 0
    return run


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]
