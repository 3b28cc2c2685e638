"""Broker and workers of the kinds that offload over MQTT, which CRIU moves with the connections of their clients."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from cellbed_node.processes import find
from container_images import LACKING, import_image
from in_process import run_apart
from moving_services import CRIU_NODES, events, in_containers, needs_criu, skip_without, standing, wait_for
from run_commands import apply_marks
from scenario_text import app_table, migration
from workload_needs import needs_reader

PLATES = app_table("plates", "plates", server="cloud", rate="2 /s", timeout="60 s")
VISION = app_table("vision", "image-classification", server="cloud", rate="4 /s")
ROLES = ("broker", "service")
pytestmark = [pytest.mark.needs_tun, pytest.mark.timeout(300)]
slow_with_broker = apply_marks(
    pytest.mark.slow,
    needs_criu,
    pytest.mark.skipif(find("mosquitto") is None, reason="mosquitto is not installed"),
)


@pytest.fixture
def image() -> Iterator[str]:
    name = f"localhost/cellbed-vision:{os.getpid()}"
    import_image(name, ["podman"])
    yield name
    subprocess.run(["podman", "rmi", "--force", name], capture_output=True, check=False)


@slow_with_broker
@needs_reader
@pytest.mark.skipif(bool(LACKING), reason=f"needs {LACKING}")
def test_plates_move_between_containers_and_no_request_is_lost(tmp_path: Path, image: str) -> None:
    skip_without("post-copy")
    moves = migration("plates", "edge-0", 1, "post-copy") + migration("plates", "cloud-0", 2, "stop-and-copy")
    nodes = in_containers(image).replace("15 s", "40 s").replace("40 Mbit/s", "400 Mbit/s")
    run = run_apart(tmp_path, nodes + PLATES + moves)
    there, back = json.loads((run / "run.json").read_text())["migrations"]
    print([(each["strategy"], each["facts"], each["bytes"]) for each in (there, back)])
    assert (there["failed"], back["failed"]) == (None, None)
    assert there["bytes"] > 50_000_000
    requests = pl.read_parquet(run / "requests.parquet")
    assert set(requests.filter(pl.col("status") != "ok")["error"]) <= {None, "the run ended"}  # on a busy machine
    assert requests["local_port"].n_unique() == 1  # the connection of the client to the broker moved, too
    between = requests.filter(pl.col("received_ns").is_not_null(), pl.col("server") == "edge-0")
    assert len(between) > 0
    assert set(requests.filter(pl.col("intended_s") > back["end_s"])["server"].drop_nulls()) == {"cloud-0"}


@slow_with_broker
def test_broker_and_workers_go_on_when_their_pages_do_not_arrive_and_can_move_later(tmp_path: Path) -> None:
    skip_without("post-copy")
    nodes = CRIU_NODES.replace("256 MiB", "512 MiB")
    with standing(tmp_path, nodes + VISION) as place:
        since = len(events(place))
        moving = place.popen("migrate", "vision", "--to", "edge-0", "--strategy", "post-copy")
        wait_for(place, since, event="move phase began", what="vision: pages")
        assert place.run("link", "set", "x", "core-edge-0", "down").returncode == 0
        _, errors = moving.communicate()
        assert place.run("link", "set", "x", "core-edge-0", "up").returncode == 0
        assert "what it has done at edge-0 is lost" in errors
        assert not [*Path(place.record[1]["scratch"]).glob("n/**/*migration*")]
        for node in ("edge-0", "cloud-0"):
            moved = place.run("migrate", "vision", "--to", node, "--strategy", "stop-and-copy")
            assert moved.returncode == 0, moved.stderr
            found = json.loads(place.cellbed("status", "x", "--json").stdout)["programs"]
            ready = {each["name"] for each in found if each["state"] == "ready"}
            assert ready == {f"vision.{node}.{role}" for role in ROLES}
        assert not [*Path(place.record[1]["scratch"]).glob("n/**/*migration*")]
