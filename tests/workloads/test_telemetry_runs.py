"""Runs whose processes are killed while programs export by OpenTelemetry."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from descendants import descendants
from run_commands import command, has_ended, only_folder, processes_of
from scenario_text import app_table, scenario_head, server_keys

pytestmark = pytest.mark.needs_tun
PATIENCE_S = 300


def scenario(program: Path) -> str:
    """Return a scenario with a client that exports, and a variable that leads elsewhere."""
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318/collector"}
    client = {"on": "phone", "command": [sys.executable, program], "environment": environment}
    server = server_keys([sys.executable, "-m", "http.server", "8080"], 8080)
    head = scenario_head({"phone": {"class": "endpoint"}, "edge": {}}, duration="5 s")
    return head + app_table("shop", telemetry=True, client=client, server=server)


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


class Run:
    """A run whose client exports without end, after its schedule has started."""

    def __init__(self, folder: Path) -> None:
        (folder / "client.py").write_text(ENDLESS)
        (folder / "x.toml").write_text(scenario(folder / "client.py"))
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
    assert "warning: the client of shop: its own OTEL_EXPORTER_OTLP_ENDPOINT" in printed
