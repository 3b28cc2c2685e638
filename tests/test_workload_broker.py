"""The launcher of the broker: what it writes and what it says when it cannot start."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cellbed.workloads import broker
from cellbed.workloads.lifecycle import WorkloadError


def _settings(folder: Path, port: int) -> dict[str, object]:
    return {"name": "edge-0", "addresses": ["127.0.0.1"], "port": port, "folder": str(folder)}


def test_the_configuration_listens_where_it_should_and_sends_at_once() -> None:
    lines = broker.configuration(["100.64.64.2", "127.0.0.1"], 1883, None).splitlines()
    assert "listener 1883 100.64.64.2" in lines
    assert "listener 1883 127.0.0.1" in lines
    assert "set_tcp_nodelay true" in lines
    assert not any(line.startswith("user ") for line in lines)
    assert "user root" in broker.configuration(["127.0.0.1"], 1883, "root").splitlines()


def test_a_missing_mosquitto_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(broker, "find", lambda _: None)
    with pytest.raises(WorkloadError, match="sudo apt install mosquitto"):
        broker.main(_settings(tmp_path, 1883))


@pytest.mark.skipif(broker.find_mosquitto() is None, reason="Mosquitto is not installed: sudo apt install mosquitto")
def test_a_port_that_is_taken_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = _launch(tmp_path, _settings(tmp_path, port))
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == f"Mosquitto cannot listen on 127.0.0.1 port {port}: Address already in use\n"


def test_a_wrong_configuration_is_one_clear_line(tmp_path: Path) -> None:
    result = _launch(tmp_path, ["not", "an", "object"])
    assert result.returncode == 2
    assert "should hold one JSON object" in result.stderr
    assert "Traceback" not in result.stderr


def _launch(folder: Path, settings: object) -> "subprocess.CompletedProcess[str]":
    file = folder / "broker.json"
    file.write_text(json.dumps(settings))
    command = [sys.executable, "-P", "-m", "cellbed.workloads.broker", "--config", str(file)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
