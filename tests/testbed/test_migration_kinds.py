"""Services that move between nodes of different kinds: namespaces, containers, and machines over SSH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellbed.scenario import Scenario, ScenarioError, parse
from cellbed.testbed.machine.process import find
from cellbed.testbed.testbed import obstacles
from moving_services import Place, standing
from test_container import LACKING, import_image
from test_migration import NODES, SESSIONS, files, write

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
pytestmark = [pytest.mark.needs_tun, pytest.mark.skipif(find("nft") is None, reason="nft is not installed")]
needs_container = pytest.mark.skipif(bool(LACKING), reason=f"needs {LACKING}")


@pytest.fixture(scope="module")
def image() -> Iterator[None]:
    import_image(IMAGE, ["podman"])
    yield
    subprocess.run(["podman", "rmi", "--force", IMAGE], capture_output=True, check=False)


@pytest.fixture(scope="module")
def place(image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with standing(files(tmp_path_factory.mktemp("standing")), NODES + SESSIONS + BOX) as place:
        yield place


def move(place: Place, node: str, strategy: str) -> list[str]:
    """Move the service, and return the phases."""
    moved = place.run("migrate", "sessions", "--to", node, "--strategy", strategy, "--json")
    assert moved.returncode == 0, moved.stderr
    assert place.servers()["sessions"] == node
    return [each["name"] for each in json.loads(moved.stdout)["phases"]]


@pytest.mark.slow
@needs_container
def test_a_service_moves_between_namespace_and_container_with_its_state(place: Place) -> None:
    writer = threading.Thread(target=write, args=(place, acknowledged := [], stop := threading.Event()))
    writer.start()
    try:
        for node in ("box-0", "cloud-0"):
            assert move(place, node, "state")[-3:] == ["restore", "switch", "drain"]
    finally:
        stop.set()
        writer.join()
    assert acknowledged
    for key in acknowledged:
        assert place.request(f"sessions:9000/{key}") == key
    for node in ("box-0", "cloud-0"):
        assert move(place, node, "redeploy") == ["start", "switch", "drain"]
        assert place.request("sessions:9000/new", node) == ""
        assert place.request("sessions:9000/new") == node
    moved = place.run("migrate", "sessions", "--to", "box-0", "--strategy", "stop-and-copy")
    assert "memory moves between nodes of one kind" in moved.stderr


def test_a_node_that_cannot_run_the_service_is_an_error_of_its_line(tmp_path: Path) -> None:
    def parsed(command: str, strategy: str) -> Scenario:
        app = f'[apps.sessions]\nkind = "program"\nserver = {{ on = "box"{command} }}\n'
        migration = f'[[migrations]]\napp = "sessions"\nto = "cloud-0"\nat = "1 s"\nstrategy = "{strategy}"\n'
        return parse(NODES + BOX + app + migration, source="x.toml", folder=tmp_path)

    with pytest.raises(ScenarioError, match="cannot run on cloud-0, since its command is missing"):
        parsed("", "redeploy")
    with pytest.raises(ScenarioError, match="memory moves between nodes of one kind"):
        parsed(', command = "x"', "stop-and-copy")
    found = obstacles(parsed(', command = "only-in-the-image"', "redeploy"), running=False)
    assert "cannot run on cloud-0: there is no program 'only-in-the-image'" in str(found)
