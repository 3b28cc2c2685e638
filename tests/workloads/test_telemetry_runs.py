"""Runs whose programs export to the wrong place, and runs whose processes are killed while programs export."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cellbed
import in_process
from descendants import descendants
from run_commands import command, has_ended, only_folder, processes_of
from scenario_text import app_table, scenario_head, server_keys

pytestmark = pytest.mark.needs_tun
PATIENCE_S = 120
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def scenario(duration: str, **variables: str) -> str:
    """Return a scenario with a client that exports. variables: its environment."""
    client = {"on": "phone", "command": [sys.executable, "CLIENT"], "environment": variables}
    server = server_keys([sys.executable, "-m", "http.server", "8080"], 8080)
    head = scenario_head({"phone": {"class": "endpoint"}, "edge": {}}, duration=duration)
    return head + app_table("shop", telemetry=True, client=client, server=server)


WRONG = """
import os, socket, sys, urllib.error, urllib.request
for _ in range(3):
    try:
        urllib.request.urlopen(urllib.request.Request(os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"], data=b"x"))
    except urllib.error.HTTPError as error:
        print(error.status)
with socket.create_connection(("127.0.0.1", 4318)) as connection:
    connection.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\\0\\0\\0\\4\\0\\0\\0\\0\\0")
    print(connection.recv(100))
"""
ENDLESS = """
import time, urllib.error, urllib.request
export = urllib.request.Request(
    "http://127.0.0.1:4318/v1/traces", data=b"", headers={"Content-Type": "application/x-protobuf"}
)
while True:
    try:
        urllib.request.urlopen(export)
    except OSError as error:
        print(error)
    time.sleep(0.02)
"""


@pytest.mark.slow
def test_exports_to_the_wrong_place_are_counted_and_their_reasons_named(tmp_path: Path) -> None:
    text = scenario("10 s", **{ENDPOINT: "http://127.0.0.1:4318/collector"})
    folder = in_process.run_apart(tmp_path, text, client=WRONG)
    warnings = cellbed.load(folder).summary.warnings
    expected = [
        "the client of shop: its own OTEL_EXPORTER_OTLP_ENDPOINT (http://127.0.0.1:4318/collector) replaces "
        "http://127.0.0.1:4318: cellbed may get no spans of it; remove the variable",
        "phone-0: 1 exports of OpenTelemetry were lost: they came by gRPC: use http/protobuf",
        "phone-0: 3 exports of OpenTelemetry were lost: they came to /collector, not to /v1/traces",
        "the run recorded no request",
    ]
    assert warnings == expected
    report, printed = (folder / "report.html").read_text(), (tmp_path / "output").read_text()
    for warning in expected:
        assert warning in report
        assert f"warning: {warning}" in printed


class Run:
    """A run whose client exports without end, after its schedule has started."""

    def __init__(self, folder: Path) -> None:
        (folder / "client.py").write_text(ENDLESS)
        (folder / "x.toml").write_text(scenario("5 s").replace("CLIENT", str(folder / "client.py")))
        self.output = folder / "output"
        words = command("run", folder / "x.toml", "--out", folder / "runs", "--no-limits")
        environment = os.environ | {"XDG_STATE_HOME": str(folder / "state")}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(words, cwd=folder, stdout=output, stderr=output, env=environment)
        self.until(lambda: self.process.poll() is not None or "schedule started" in self.events(folder / "runs"))
        self.folder = only_folder(folder / "runs")
        self.children = descendants(self.process.pid)
        (self.receiver,) = (pid for pid, line in self.children.items() if b"cellbed_node.receiver" in line)

    @staticmethod
    def events(runs: Path) -> str:
        return "".join(path.read_text() for path in runs.glob("*/events.jsonl"))

    def until(self, happened: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < end, self.output.read_text()
            time.sleep(0.05)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    found = Run(tmp_path)
    yield found
    found.process.kill()
    found.process.wait()
    for pid in processes_of(found.folder.name):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_and_none_prints_afterwards(run: Run) -> None:
    printed = run.output.read_text()
    run.process.kill()
    run.process.wait()
    run.until(lambda: all(map(has_ended, run.children)))
    assert run.output.read_text() == printed


def test_a_killed_receiver_is_a_warning_and_the_run_goes_on(run: Run) -> None:
    os.kill(run.receiver, signal.SIGKILL)
    run.until(lambda: run.process.poll() is not None)
    printed = run.output.read_text()
    assert run.process.returncode == 0, printed
    assert "Traceback" not in printed
    assert "warning: the receiver of OpenTelemetry failed: its last spans may be missing" in printed
