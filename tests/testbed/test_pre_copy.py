"""Programs whose memory moves in rounds while they run, where the kernel notes what they write."""

import json
from collections.abc import Iterator

import pytest

from cellbed.testbed.migration.pre_copy import PreCopy, tracks_writes
from moving_services import (
    CLIENT,
    CRIU_NODES,
    REDIS,
    Place,
    events,
    left_of_moves,
    redis,
    slow_with_redis,
    standing,
    wait_for,
    writing,
)
from run_commands import apply_marks

needs_tracking = pytest.mark.skipif(not tracks_writes(), reason="the kernel has no CONFIG_MEM_SOFT_DIRTY")
in_rounds = apply_marks(pytest.mark.needs_tun, pytest.mark.timeout(1200), slow_with_redis, needs_tracking)


@pytest.mark.skipif(tracks_writes(), reason="the kernel has CONFIG_MEM_SOFT_DIRTY")
def test_a_kernel_that_does_not_track_writes_is_an_error_with_the_remedy() -> None:
    assert (PreCopy.obstacle() or "").endswith("(CONFIG_MEM_SOFT_DIRTY): use state, stop-and-copy or post-copy")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("standing")
    (folder / "client.py").write_text(CLIENT)
    with standing(folder, CRIU_NODES + REDIS) as place:
        yield place


@in_rounds
def test_redis_moves_in_rounds_and_loses_no_acknowledged_write(place: Place) -> None:
    redis(place, "FLUSHALL")
    assert redis(place, "DEBUG", "POPULATE", "20000", "key", "1000") == "OK"
    with writing(place):
        for node in ("edge-0", "cloud-0"):
            moved = place.run("migrate", "store", "--to", node, "--strategy", "pre-copy", "--json")
            assert moved.returncode == 0, moved.stderr
            phases = {each["name"]: each for each in json.loads(moved.stdout)["phases"]}
            assert phases["transfer"]["bytes"] < phases["round 1"]["bytes"] / 4
            assert phases["round 1"]["pages_bytes"] > 20_000_000 > phases["round 2"]["pages_bytes"] > 0
            assert place.servers()["store"] == node
            assert redis(place, "DBSIZE") >= "20000"
    assert left_of_moves(place) == []


@in_rounds
def test_an_outage_in_a_round_leaves_redis_at_its_source(place: Place) -> None:
    redis(place, "FLUSHALL")
    with writing(place):
        since = len(events(place))
        moving = place.popen("migrate", "store", "--to", "edge-0", "--strategy", "pre-copy")
        wait_for(place, since, event="move phase began", what="store: round 1")
        assert place.run("link", "set", "x", "core-edge-0", "down").returncode == 0
        output, errors = moving.communicate()
        assert place.run("link", "set", "x", "core-edge-0", "up").returncode == 0
        assert moving.returncode == 1, output
        assert "the connection to the target was lost" in errors or "timed out" in errors
        assert place.servers()["store"] == "cloud-0"
    assert left_of_moves(place) == []
