"""Services that move between nodes of different kinds: namespaces, containers, and machines over SSH."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellbed.scenario import parse
from cellbed.testbed.machine.process import signal_inhabitants
from cellbed.testbed.testbed import obstacles
from cellbed_node.processes import find
from container_images import LACKING, import_image
from moving_services import NODES, SMALL, Place, events, files, standing, wait_for, writing_sessions
from remote_world import Machine, machine, skip_without_vm
from scenario_text import app_table, migration, refusal

IMAGE = f"localhost/cellbed-kinds:{os.getpid()}"
FOLDERS = dict.fromkeys((sys.base_prefix, sys.prefix, "/lib", "/lib64"))
MOUNTS = ", ".join(f'{{ source = "{each}", target = "{each}", read_only = true }}' for each in FOLDERS)
BOX = f"""
[nodes.box]
class = "edge"
cpus = 0.5
memory = "256 MiB"
backend = {{ kind = "container", image = "{IMAGE}", mounts = [{MOUNTS}] }}
"""
pytestmark = [
    pytest.mark.needs_tun,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find("nft") is None, reason="nft is not installed"),
]
needs_container = pytest.mark.skipif(bool(LACKING), reason=f"needs {LACKING}")


@pytest.fixture(scope="module")
def image() -> Iterator[None]:
    import_image(IMAGE, ["podman"])
    yield
    subprocess.run(["podman", "rmi", "--force", IMAGE], capture_output=True, check=False)


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with an SSH server, another network namespace of this one."""
    with machine(tmp_path_factory.mktemp("machine")) as found:
        yield found


@pytest.fixture(scope="module")
def place(image: None, far: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    nodes = f'{NODES}{BOX}[nodes.pi]\nclass = "edge"\ncpus = 0.5\nmemory = "256 MiB"\nbackend = {far.toml}\n'
    with standing(files(tmp_path_factory.mktemp("standing")), nodes + SMALL) as place:
        yield place


def move(place: Place, node: str, strategy: str) -> dict[str, Any]:
    moved = place.run("migrate", "sessions", "--to", node, "--strategy", strategy, "--json")
    assert moved.returncode == 0, moved.stderr
    assert place.servers()["sessions"] == node
    return dict(json.loads(moved.stdout))


@pytest.mark.slow
@needs_container
def test_a_state_moves_between_nodes_of_all_kinds_and_no_acknowledged_write_is_lost(place: Place) -> None:
    with writing_sessions(place):
        for node in ("pi-0", "cloud-0", "box-0", "pi-0", "box-0", "cloud-0"):
            account = move(place, node, "state")
            assert account["bytes"] > 4 << 20
            assert place.request("sessions:9000/there", node) == ""
            # Programs on the machine follow, too, by the rules of the namespace through which their packets come.
            assert place.run("exec", "pi-0", "--", "curl", "-sS", "http://sessions:9000/there").stdout == node


@pytest.mark.slow
@needs_container
def test_a_machine_that_dies_during_the_move_leaves_the_service_at_its_source(place: Place, far: Machine) -> None:
    assert place.servers()["sessions"] == "cloud-0"
    with writing_sessions(place):
        since = len(events(place))
        moving = place.popen("migrate", "sessions", "--to", "pi-0", "--strategy", "state")
        wait_for(place, since, event="move phase began", what="sessions: round 1")
        signal_inhabitants(f"/proc/{far.process}/ns/net", signal.SIGKILL, [])
        output, errors = moving.communicate()
        assert moving.returncode == 1, output
        assert "sessions did not move: sessions.pi-0.server" in errors
        assert place.servers()["sessions"] == "cloud-0"
    moved = place.run("migrate", "sessions", "--to", "pi-0", "--strategy", "redeploy")
    assert "the connection to the node is lost" in moved.stderr
    assert place.servers()["sessions"] == "cloud-0"
    move(place, "box-0", "state")


@pytest.mark.slow
def test_a_service_of_a_virtual_machine_moves_away_and_back(tmp_path: Path) -> None:
    skip_without_vm()
    node = '[nodes.vm]\nclass = "edge"\ncpus = 0.5\nmemory = "256 MiB"\nbackend = { kind = "vm" }\n'
    service = SMALL.replace('on = "cloud"', 'on = "vm"').replace(sys.executable, "python3")
    with standing(files(tmp_path), NODES + node + service) as place, writing_sessions(place):
        for to in ("cloud-0", "vm-0"):
            move(place, to, "state")
            assert place.request("sessions:9000/there", to) == ""


def test_a_node_that_cannot_run_the_service_is_an_error_of_its_line(tmp_path: Path) -> None:
    def text(strategy: str, **keys: str) -> str:
        app = app_table("sessions", server={"on": "box", **keys})
        return NODES + BOX + app + migration("sessions", "cloud-0", 1, strategy)

    assert "cannot run on cloud-0, since its command is missing" in refusal(text("redeploy"), tmp_path)
    assert "memory moves between nodes of one kind" in refusal(text("stop-and-copy", command="x"), tmp_path)
    own = parse(text("redeploy", command="only-in-the-image"), source="x.toml", folder=tmp_path)
    found = obstacles(own, running=False)
    assert "cannot run on cloud-0: there is no program 'only-in-the-image'" in str(found)
