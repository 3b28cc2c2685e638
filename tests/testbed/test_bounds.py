"""Waits for programs have a bound, and their errors name what has not answered."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellbed.testbed.machine import process
from cellbed.testbed.machine.process import ProgramError
from cellbed.testbed.migration import channel, state_sockets
from cellbed.testbed.migration.strategy import MigrationError
from cellbed.testbed.programs import supervise
from cellbed_node.processes import kill


def finish(steps: Iterator[None]) -> Any:
    """Take all steps of a wait; return its value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        time.sleep(0.001)


def test_a_command_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_RUN_S", 0.1)
    with pytest.raises(ProgramError, match=r"sleep 1000: has not ended within 0\.1 s"):
        process.run(["sleep", "1000"])


def test_a_program_that_runs_on_without_output_is_ended() -> None:
    code = "import os, time; os.close(1); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as running:
        assert supervise._await_end(running) == -9


def test_a_helper_without_an_answer_is_named(tmp_path: Path) -> None:
    code = f"import time; print({json.dumps(json.dumps({'ready': True}))}, flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as running:
        helper = channel.Helper.__new__(channel.Helper)
        super(channel.Helper, helper).__init__(running, tmp_path / "errors")
        helper.name, helper.node = "snapshot", "edge-0"
        assert finish(channel.wait(helper, "ready", 30.0)) is True
        with pytest.raises(MigrationError, match=r"edge-0: 'snapshot' has not reported 'done' within 0 s"):
            finish(channel.wait(helper, "done", 0.0))
        kill(running)


def test_a_service_that_does_not_answer_about_its_state_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_sockets, "ANSWER_S", 0.05)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        talk = state_sockets.Talk("shop.edge-0", ours)
        with pytest.raises(state_sockets.StateError, match=r"shop\.edge-0 has not answered at CELLBED_STATE"):
            finish(talk.serve())
