"""Each part of a run that stands still (SIGSTOP): the run ends, and its report says what happened."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from descendants import descendants
from run_commands import command, only_folder
from scenario_text import NODES, app_table, server_keys, tables
from shell_world import wait_until

SCENARIO = (
    tables(name="still", duration="3 s")
    + NODES
    + app_table(
        "web",
        "http",
        url="http://{server.address}:8080/",
        rate="5 /s",
        arrivals="periodic",
        timeout="2 s",
        drain="2 s",
        telemetry=True,
        server=server_keys([sys.executable, "-m", "http.server", "8080"], 8080),
    )
)


@pytest.mark.needs_tun
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (b"emulate()", "the emulator did not answer within"),
        (b"http.load", "http-load did not end within the drain"),
        (b"cellbed_node.receiver", "the receiver of OpenTelemetry failed"),
        (b"http.server", "web.edge-0.server was killed, since it had not ended"),
    ],
)
def test_a_run_whose_part_stands_still_ends_with_a_sentence(tmp_path: Path, part: bytes, sentence: str) -> None:
    (tmp_path / "x.toml").write_text(SCENARIO)
    words = command("run", tmp_path / "x.toml", "--out", tmp_path / "runs", "--no-limits")

    def events() -> Iterator[Path]:
        return tmp_path.glob("runs/*/events.jsonl")

    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(words, env=environment, stdout=-1, stderr=-1) as run:
        wait_until(lambda: run.poll() is not None or any("load started" in path.read_text() for path in events()))
        stopped = [pid for pid, line in descendants(run.pid).items() if part in line]
        assert stopped
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        run.communicate()
    described = json.loads((only_folder(tmp_path / "runs") / "run.json").read_text())
    assert any(sentence in each for each in described["warnings"]), described["warnings"]
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in stopped))
