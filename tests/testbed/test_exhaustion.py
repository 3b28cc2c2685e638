"""Programs of a node that take all they can get: the limits of the node hold, the run ends, and nothing is left."""

import contextlib
import json
import os
import sys
from pathlib import Path

import psutil
import pytest

from cellbed.testbed.machine import cgroups
from run_commands import needs_limits, only_folder, run
from scenario_text import NODES, app_table, tables

pytestmark = [pytest.mark.needs_tun, needs_limits]

SCENARIO = (
    tables(name="greedy", duration="3 s")
    + NODES
    + app_table(
        "greedy",
        client={"on": "endpoint", "command": ["sleep", "3"]},
        server={"on": "edge", "command": ["PYTHON", "GREEDY"], "ready": {"line": "served"}, "restart": "always"},
    )
)
# Each takes what it gets before the load begins.
THREADS = """
import threading, time
try:
    while True: threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
except RuntimeError: print("served", flush=True)
time.sleep(1000)
"""
# Each process starts others in sessions of their own, without end.
BOMB = """
import os, sys
open("b", "w").write("sleep 1000 & setsid sh ./b & sh ./b")
print("served", flush=True)
os.execvp("sh", ["sh", "./b"])
"""
MEMORY = """
held = []
while True: held.append(bytes(b"x") * (1 << 24))
"""


def greedy(folder: Path, source: str) -> tuple[int, list[str], list[int]]:
    """Run a greedy server; returns the exit status, the warnings, and the processes that are left of its run."""
    (folder / "greedy.py").write_text(source)
    text = SCENARIO.replace("PYTHON", sys.executable).replace("GREEDY", str(folder / "greedy.py"))
    (folder / "x.toml").write_text(text)
    state = {"XDG_STATE_HOME": str(folder / "state")}
    done = run("run", folder / "x.toml", "--out", folder / "runs", env=state, cwd=folder)
    described = json.loads((only_folder(folder / "runs") / "run.json").read_text())
    assert described["status"] == "complete", done.stderr
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(folder) in word for word in (process.cwd(), *process.cmdline())):
                left.append(process.pid)
    return done.returncode, described["warnings"], left


@pytest.mark.skipif(cgroups.PROCESSES not in cgroups.locate()[1] if os.geteuid() == 0 else True, reason="needs 'pids'")
def test_a_node_has_at_most_a_number_of_processes_and_threads(tmp_path: Path) -> None:
    _, warnings, left = greedy(tmp_path, THREADS)
    (warning,) = (each for each in warnings if "processes and threads" in each)
    assert warning.startswith(f"edge-0 had {cgroups.MOST_PROCESSES} processes and threads, the most that a node may")
    assert not left


def test_a_fork_bomb_ends_with_its_run(tmp_path: Path) -> None:
    status, _, left = greedy(tmp_path, BOMB)
    assert status == 0
    assert not left


def test_a_node_that_uses_up_its_memory_is_named(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(MEMORY)
    text = SCENARIO.replace("PYTHON", sys.executable).replace("GREEDY", "greedy.py")
    text = text.replace('"always"', '"never", copy_in = { "greedy.py" = "greedy.py" }')
    (tmp_path / "x.toml").write_text(text)
    run("run", tmp_path / "x.toml", "--out", tmp_path / "runs", cwd=tmp_path, status=1)
    folder = only_folder(tmp_path / "runs")
    warnings = json.loads((folder / "run.json").read_text())["warnings"]
    assert any("edge-0 ran out of its memory" in each for each in warnings)
    lines = (folder / "run.log").read_text().splitlines()
    assert any("was killed by signal 9 (edge-0 ran out of memory) before it was ready" in line for line in lines)
    assert any("edge-0 ran out of its memory: 1 processes were killed" in line for line in lines)
