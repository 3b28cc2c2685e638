"""Programs of a node that take all they can get: the limits of the node hold, the run ends, and nothing is left."""

import json
import os
import sys
from pathlib import Path

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
print("served", flush=True)
held = []
while True: held.append(bytes(b"x") * (1 << 24))
"""


def greedy(folder: Path, source: str) -> tuple[int, list[str], str]:
    """Run a greedy server; returns the exit status, the warnings, and what is left of its run."""
    (folder / "greedy.py").write_text(source)
    text = SCENARIO.replace("PYTHON", sys.executable).replace("GREEDY", str(folder / "greedy.py"))
    (folder / "x.toml").write_text(text)
    state = {"XDG_STATE_HOME": str(folder / "state")}
    done = run("run", folder / "x.toml", "--out", folder / "runs", env=state, cwd=folder)
    described = json.loads((only_folder(folder / "runs") / "run.json").read_text())
    assert described["status"] == "complete", done.stderr
    _, bases = cgroups.locate()
    left = [str(path) for base in bases.values() for path in base.glob("run-*/edge-0") if str(folder) in words_in(path)]
    return done.returncode, described["warnings"], " ".join(left)


def words_in(group: Path) -> str:
    """The command lines of the processes of a control group."""
    found = [Path(f"/proc/{process}/cmdline") for process in (group / "cgroup.procs").read_text().split()]
    return " ".join(path.read_text() for path in found if path.exists())


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
    assert not [path for path in Path("/proc").glob("[0-9]*/cwd") if str(tmp_path) in link(path)]


def link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def test_a_node_that_uses_up_its_memory_is_named(tmp_path: Path) -> None:
    _, warnings, left = greedy(tmp_path, MEMORY)
    assert any("edge-0 ran out of its memory" in each for each in warnings)
    assert not left


def test_a_program_killed_for_memory_is_explained_by_the_log(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(MEMORY.replace('print("served", flush=True)', ""))
    text = SCENARIO.replace("PYTHON", sys.executable).replace("GREEDY", "greedy.py").replace('"always"', '"never"')
    text = text.replace('"never"', '"never", copy_in = { "greedy.py" = "greedy.py" }')
    (tmp_path / "x.toml").write_text(text)
    run("run", tmp_path / "x.toml", "--out", tmp_path / "runs", cwd=tmp_path, status=1)
    lines = (only_folder(tmp_path / "runs") / "run.log").read_text().splitlines()
    assert any("was killed by signal 9 (edge-0 ran out of memory) before it was ready" in line for line in lines)
    assert any("edge-0 ran out of its memory: 1 processes were killed" in line for line in lines)
