"""Processes of one program that are forks of one process: where they run, how they end, and what is said of it."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellbed.testbed.links.emulator import Emulator
from cellbed.testbed.machine import cgroups
from cellbed.testbed.machine.process import Place, Process, ProgramError
from cellbed.testbed.machine.state import RUN_VARIABLE
from cellbed.testbed.nodes.backend import Setup
from cellbed.testbed.nodes.namespace import NamespaceNode
from cellbed.testbed.programs.supervise import Program, Supervisor
from emulator_process import line_of_two
from run_commands import needs_limits

pytestmark = [pytest.mark.needs_tun, needs_limits]
NODES = ("endpoint", "edge")
PROGRAM = """
import sys
from cellbed_node import lifecycle

def main(config):
    lifecycle.announce("ready", name=config["name"])
    for line in sys.stdin:
        raise ValueError(f"asked to crash: {line.strip()}")
    lifecycle.announce("done")

if __name__ == "__main__":
    lifecycle.run(main)
"""


@pytest.fixture
def places() -> Iterator[dict[str, Place]]:
    """Two nodes with their namespaces and control groups."""
    emulator = Emulator.start(line_of_two([], []))
    groups = cgroups.open_groups(f"run-test-forks-{os.getpid()}", lambda path: None)
    yield {
        name: Place(emulator.namespace(name), emulator.user_namespace, (), groups.create(name).join_files)
        for name in NODES
    }
    groups.remove()
    emulator.kill()


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    supervisor = Supervisor(tmp_path, f"forks-{os.getpid()}")
    yield supervisor
    supervisor.stop()


def start(supervisor: Supervisor, folder: Path, place: Place, name: str, program: str = PROGRAM) -> Program:
    """Start a fork called `name` of the program."""
    (folder / "program.py").write_text(program)
    (folder / f"{name}.json").write_text(f'{{"name": "{name}"}}')
    path = {"PYTHONPATH": str(folder)}
    script = Process(name, name, "program", folder / f"{name}.json", env=path, forked=True)
    return supervisor.start(script, NamespaceNode(Setup(name, place)))


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def wait(supervisor: Supervisor, *programs: Program) -> None:
    """Wait for the ends of programs."""
    limit = time.monotonic_ns() + 60_000_000_000
    assert supervisor.wait(lambda: all(program.ended for program in programs), limit)


def test_forks_run_on_their_nodes_and_end_like_programs_of_their_own(
    tmp_path: Path, places: dict[str, Place], supervisor: Supervisor
) -> None:
    first, second = (start(supervisor, tmp_path, places[name], name) for name in NODES)
    supervisor.wait_ready([first, second])
    assert parent(first.process.pid) == parent(second.process.pid) != os.getpid()
    for name, program in zip(NODES, (first, second), strict=True):
        process, events = Path(f"/proc/{program.process.pid}"), list[dict[str, Any]](program.events)
        assert events == [{"event": "ready", "name": name}]
        assert all(str(program.process.pid) in Path(file).read_text().split() for file in places[name].cgroups)
        assert (process / "ns/net").readlink() == Path(places[name].network_namespace).readlink()
        assert os.getsid(program.process.pid) == program.process.pid
        assert f"{RUN_VARIABLE}=forks-{os.getpid()}".encode() in (process / "environ").read_bytes().split(b"\0")
        assert len(list((process / "fd").iterdir())) == 3
    third = start(supervisor, tmp_path, places["edge"], "third")
    supervisor.wait_ready([third])
    first.send_command({"crash": 1})
    os.kill(second.process.pid, signal.SIGKILL)
    third.request_stop()
    wait(supervisor, first, second, third)
    assert 'ended with status 1: ValueError: asked to crash: {"crash": 1}' in str(first.failure())
    assert "was killed by signal 9" in str(second.failure())
    assert third.process.poll() == 0


def test_forks_end_with_their_server(tmp_path: Path, places: dict[str, Place], supervisor: Supervisor) -> None:
    forks = [start(supervisor, tmp_path, places[name], name) for name in NODES]
    supervisor.wait_ready(forks)
    os.kill(parent(forks[0].process.pid), signal.SIGKILL)
    wait(supervisor, *forks)
    assert all("was killed by signal 9" in str(fork.failure()) for fork in forks)
    with pytest.raises(ProgramError, match="cannot start third on third: its fork server does not answer"):
        start(supervisor, tmp_path, places["edge"], "third")


@pytest.mark.parametrize(
    ("program", "lost", "message"),
    [
        ("import no_such_library", False, "cannot start edge on edge: ModuleNotFoundError: No module named"),
        (PROGRAM, True, "edge on edge ended with status 1: .*The emulator that held this namespace has ended"),
    ],
)
def test_a_fork_that_cannot_start_is_named_with_the_reason(
    tmp_path: Path, places: dict[str, Place], supervisor: Supervisor, program: str, lost: bool, message: str
) -> None:
    place = Place("/proc/self/ns/no-such-namespace") if lost else places["edge"]
    with pytest.raises(ProgramError, match=message):
        supervisor.wait_ready([start(supervisor, tmp_path, place, "edge", program)])
