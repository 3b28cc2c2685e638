"""Programs of cellbed that are sent to other machines: the archive, and the paths of their configuration."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cellbed.testbed.machine.process import Process
from cellbed.testbed.nodes.backend import Backend
from cellbed.testbed.programs.sent import SentPrograms, shift, write_archive


@pytest.mark.parametrize(
    "module",
    [
        f"cellbed_node.{name}"
        for name in ("http.load", "websocket.load", "offloading.broker", "offloading.service", "receiver")
    ],
)
def test_the_archive_has_all_that_programs_import(module: str, tmp_path: Path) -> None:
    write_archive(tmp_path / "cellbed_node.zip")
    # -S: without the packages that are installed here.
    command = [sys.executable, "-S", "-P", "-c", f"import {module}"]
    environment = {"PYTHONPATH": "cellbed_node.zip", "PATH": os.defpath}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_only_declared_files_are_sent_and_those_beside_the_configuration_come_back(tmp_path: Path) -> None:
    copied: dict[str, bytes] = {}

    def copy_in(source: Path, target: str) -> None:
        copied[target] = source.read_bytes() if source.is_file() else b""

    raw, bank = tmp_path / "raw", tmp_path / "cache" / "bank"
    raw.mkdir()
    bank.mkdir(parents=True)
    config = raw / "app.pi-0.load.json"
    settings: dict[str, Any] = {
        "record": str(raw / "app.pi-0.requests.jsonl"),
        "target": "/",
        "headers": {"Referer": str(tmp_path)},
        "options": {"inputs": str(bank)},
        "rate": 5,
    }
    config.write_text(json.dumps(settings))
    node = SimpleNamespace(name="pi-0", copy_in=copy_in, spawn=lambda *_, **__: None, output=lambda _: b"")
    programs = SentPrograms(raw)
    process = Process("app.pi-0.load", "pi-0", "cellbed_node.http.load", config, reads=(str(bank),))
    programs.start(process, cast(Backend, node), errors=None)
    assert copied.keys() == {"cellbed_node.zip", config.name, "cache-bank"}
    sent = json.loads(copied[config.name])
    assert sent == settings | {"record": "app.pi-0.requests.jsonl", "options": {"inputs": "cache-bank"}}


def test_moments_of_commands_are_those_of_the_other_clock() -> None:
    command = {"t0_ns": 5, "end_ns": 7, "drain_ns": 2}
    assert shift(command, 100) == {"t0_ns": 105, "end_ns": 107, "drain_ns": 2}
