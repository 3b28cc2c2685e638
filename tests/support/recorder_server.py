"""The recorder's server, and an emulated network to record."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from emulator_process import EmulatorProcess, Stages, line_of_two

RECORD = [sys.executable, "-m", "cellbed", "record"]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    subprocess.run([*RECORD, "secret", str(path)], check=True, capture_output=True)
    return path


@contextmanager
def serving(secret: Path, listen: str = "127.0.0.1:0", **options: Any) -> Iterator[str]:
    """A server; its address."""
    command = [*RECORD, "serve", "--secret", str(secret), "--listen", listen, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    try:
        listening = json.loads(process.stdout.readline())
        assert listening["event"] == "listening"
        yield listening["address"]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


@contextmanager
def network(uplink: Stages, downlink: Stages, folder: Path) -> Iterator[EmulatorProcess]:
    with EmulatorProcess(line_of_two(uplink, downlink, folder)) as emulator:
        emulator.ready()
        yield emulator
