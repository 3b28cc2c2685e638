"""Tests of users with the fixture `cellbed`: testbeds and links, what skips, and what is left."""

import json
import os
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import pytest

HEAD = """
import os, signal, subprocess, sys, time
import cellbed as library

SCENARIO = {
    "name": "small",
    "duration": "5 s",
    "nodes": {"endpoint": {"cpus": 0.5, "memory": "128 MiB"}, "edge": {"cpus": 0.5, "memory": "128 MiB"}},
    "links": {"mobile": {"up": "20 Mbit/s", "down": "20 Mbit/s", "base_delay": "30 ms"}, "core": {"edge": "1 ms"}},
}
CONNECT = '''
import socket, sys, time
while True:
    try:
        begin = time.monotonic()
        socket.create_connection((sys.argv[1], 8080)).close()
        print(time.monotonic() - begin)
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
'''
"""
TESTS = """
def test_bed(cellbed):
    bed = cellbed.testbed(SCENARIO, limits=False)
    bed.node("edge-0").start([sys.executable, "-m", "http.server", "8080"])
    assert float(bed.node("endpoint-0").run([sys.executable, "-c", CONNECT, "edge-0"]).stdout) >= 0.06
    assert bed.node("edge-0").run(["cat"], input="text").stdout == "text"
    assert bed.node("edge-0").run(["sh", "-c", "echo no >&2; exit 3"]).returncode == 3
    assert bed.node("edge-1").run(["true"]).stderr.startswith("error: no node is called 'edge-1'")
    assert 1 / 0

def test_link(cellbed):
    link = cellbed.link(up="5 Mbit/s", delay="20 ms", offline=True)
    assert link.run(["sh", "-c", "exit 4"]).returncode == 4
    before = time.monotonic()
    try:
        link.run(["sleep", "1000"], timeout=0.1)
    except subprocess.TimeoutExpired:
        return
    assert False

def test_wrong_link(cellbed):
    cellbed.link(up="fast")

def test_lacking(cellbed):
    edge = SCENARIO["nodes"]["edge"] | {"backend": {"kind": "container", "image": "localhost/cellbed-none"}}
    cellbed.testbed({**SCENARIO, "nodes": {**SCENARIO["nodes"], "edge": edge}})

def test_wrong_scenario(cellbed):
    cellbed.testbed({**SCENARIO, "duration": "5"})
"""
KILLED = """
def test_killed(cellbed):
    bed = cellbed.testbed(SCENARIO, limits=False)
    bed.node("edge-0").start(["sleep", "1000"])
    cellbed.link(offline=True).start(["sleep", "1001"])
    os.kill(os.getpid(), signal.SIGKILL)
"""


def run_pytest(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on tests, with a registry of live runs below their folder."""
    (folder / "test_mine.py").write_text(HEAD + text)
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "cellbed.pytest_plugin", "-p", "no:cacheprovider", "-rA", *options]
    return subprocess.run(
        [*command, f"--rootdir={folder}", f"--basetemp={folder / 'base'}", "test_mine.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def live(folder: Path) -> list[str]:
    """The records of live testbeds and shells, and processes that belong to these tests."""
    found = [path.name for path in (folder / "state/cellbed/live").glob("*.json")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder / "state").encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            pass
    return found


@pytest.mark.slow
@pytest.mark.needs_tun
def test_tests_have_testbeds_and_links_which_end_with_them(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, TESTS, "-k", "bed or link")
    assert "FAILED test_mine.py::test_bed - ZeroDivisionError" in done.stdout, done.stdout
    assert "PASSED test_mine.py::test_link" in done.stdout
    assert "FAILED test_mine.py::test_wrong_link - ValueError: error: --up: " in done.stdout
    assert live(tmp_path) == []


@pytest.mark.needs_tun
def test_a_test_ends_its_testbed_also_where_it_fails(tmp_path: Path) -> None:
    short = """
def test_bed(cellbed):
    assert cellbed.testbed(SCENARIO, limits=False).node("edge-0").run(["sh", "-c", "exit 3"]).returncode == 4
"""
    done = run_pytest(tmp_path, short)
    assert "FAILED test_mine.py::test_bed - AssertionError: assert 3 == 4" in done.stdout, done.stdout
    assert live(tmp_path) == []


@pytest.mark.parametrize(("options", "outcome"), [((), "SKIPPED"), (("--cellbed-required",), "FAILED")])
def test_a_test_skips_by_what_is_lacking_and_fails_for_a_wrong_scenario(
    tmp_path: Path, options: tuple[str, ...], outcome: str
) -> None:
    done = run_pytest(tmp_path, TESTS, "-k", "lacking or scenario", *options)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("SKIPPED", "FAILED"))]
    assert any("test_wrong_scenario - cellbed.scenario.problems.Scenario" in line for line in lines)
    assert any(line.startswith(outcome) and "this machine lacks something: " in line for line in lines)


@pytest.mark.slow
@pytest.mark.needs_tun
def test_a_killed_test_leaves_no_testbed_and_no_program(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, KILLED)
    assert done.returncode == -9, done.stdout
    end = time.monotonic() + 200
    while live(tmp_path) and time.monotonic() < end:
        time.sleep(0.1)
    assert live(tmp_path) == []


def test_the_plugin_is_registered_and_imports_nothing_before_its_use() -> None:
    (entry,) = (each for each in entry_points(group="pytest11") if each.name == "cellbed")
    assert entry.value == "cellbed.pytest_plugin"
    code = (
        "import sys, pytest, json; before = set(sys.modules); import cellbed.pytest_plugin; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) <= {"cellbed", "cellbed.pytest_plugin"}
