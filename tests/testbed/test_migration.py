"""Services that move to other nodes while they run: of a scenario and by command, and moves that fail."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import polars as pl
import pytest

from cellbed.testbed.programs.balancing import Redirection, rules
from cellbed_node.processes import find
from in_process import run_apart
from moving_services import NODES, SESSIONS, Place, events, files, standing, wait_for, writing_sessions
from run_commands import assert_nothing_left
from scenario_text import app_table, migration, refusal

NGINX = """
[apps.shop]
kind = "http"
url = "http://{server.address}:8080/"
rate = "20 /s"
[apps.shop.server]
on = "cloud"
command = ["nginx", "-c", "nginx.conf", "-p", ".", "-e", "stderr"]
copy_in = { "nginx.conf" = "nginx.conf" }
ready = { port = 8080 }
stop = { signal = "SIGQUIT" }
"""
THERE_S = 1.5
pytestmark = [pytest.mark.needs_tun, pytest.mark.skipif(find("nft") is None, reason="nft is not installed")]
needs_nginx = pytest.mark.skipif(find("nginx") is None, reason="nginx is not installed")


@pytest.mark.slow
@needs_nginx
def test_clients_follow_a_web_server_to_another_node_and_the_report_has_its_move(tmp_path: Path) -> None:
    run = run_apart(files(tmp_path), NODES + NGINX + migration("shop", "edge-0", THERE_S))
    (account,) = json.loads((run / "run.json").read_text())["migrations"]
    assert (account["source"], account["target"], account["failed"]) == ("cloud-0", "edge-0", None)
    assert [phase["name"] for phase in account["phases"]] == ["start", "switch", "drain"]
    requests = pl.read_parquet(run / "requests.parquet")
    assert set(requests.filter(pl.col("intended_s") < THERE_S)["server"]) == {"cloud-0"}
    assert set(requests.filter(pl.col("intended_s") > account["end_s"])["server"]) == {"edge-0"}
    # By its stop signal nginx ends its replies first. Requests may cross the end of idle connections (RFC 9112, §9.5).
    lost = requests.filter(pl.col("status") != "ok")
    assert len(lost) <= 6
    assert all("closed the connection" in reason for reason in lost["error"])
    (move,) = json.loads((run / "summary.json").read_text())["migrations"]
    assert move["before_s"] > move["after_s"]
    assert move["paid_s"] is not None
    assert move["served_before"] + move["served_after"] + move["delayed"] > 10
    for text in ((run.parents[1] / "output").read_text(), (run / "report.html").read_text()):
        assert "redeploy of shop from cloud-0 to edge-0" in text


@pytest.mark.slow
@needs_nginx
def test_a_run_whose_migration_fails_is_disturbed(tmp_path: Path) -> None:
    other = app_table("other", server={"on": "edge", "command": f"{sys.executable} -m http.server 8080"})
    run = run_apart(files(tmp_path), NODES.replace("15 s", "4 s") + NGINX + other + migration("shop", "edge-0", 1))
    (reason,) = [each for each in json.loads((run / "summary.json").read_text())["disturbances"] if "redeploy" in each]
    assert "redeploy of shop to edge-0 failed: shop.edge-0.server: port 8080 of edge-0 is in use already" in reason


OWN = app_table("vision", "image-classification", server="cloud", rate="4 /s") + app_table(
    "files", "transfers", server="cloud", download=["50 kB"], arrivals="closed"
)


@pytest.mark.slow
@pytest.mark.skipif(find("mosquitto") is None, reason="mosquitto is not installed")
def test_services_of_cellbed_move_there_and_back(tmp_path: Path) -> None:
    moves = "".join(
        migration(app, node, at)
        for at, node in ((2, "edge-0"), (3, "cloud-0"))  # it begins when the one before has ended
        for app in ("vision", "files")
    )
    run = run_apart(tmp_path, NODES.replace("15 s", "40 s").replace("256 MiB", "512 MiB") + OWN + moves)
    requests = pl.read_parquet(run / "requests.parquet").filter(pl.col("status") == "ok")
    accounts = json.loads((run / "run.json").read_text())["migrations"]
    assert [each["failed"] for each in accounts] == [None] * 4
    for app in ("vision", "files"):
        there, back = (each for each in accounts if each["app"] == app)
        replies = requests.filter(pl.col("app") == app)
        assert set(replies.filter(pl.col("intended_s") < 2)["server"]) == {"cloud-0"}
        assert "edge-0" in replies.filter(pl.col("intended_s") > there["end_s"])["server"]
        assert set(replies.filter(pl.col("intended_s") > back["end_s"])["server"]) == {"cloud-0"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with standing(files(tmp_path_factory.mktemp("standing")), NODES + NGINX + SESSIONS) as place:
        yield place


@pytest.mark.slow
def test_a_service_passes_its_state_on_and_no_acknowledged_write_is_lost(place: Place) -> None:
    with writing_sessions(place):
        for node in ("edge-0", "cloud-0"):
            moved = place.run("migrate", "sessions", "--to", node, "--strategy", "state", "--json")
            assert moved.returncode == 0, moved.stderr
            assert place.servers()["sessions"] == node
            phases = [each["name"] for each in json.loads(moved.stdout)["phases"]]
            assert phases[:2] == ["start", "round 1"]
            assert phases[-5:] == ["prepare", "last round", "restore", "switch", "drain"]


@pytest.mark.slow
@needs_nginx
def test_two_services_move_at_once_and_connections_elsewhere_stay(place: Place) -> None:
    words = [("migrate", "shop", "--to", "edge-0"), ("migrate", "sessions", "--to", "edge-0", "-s", "state")]
    moves = [place.popen(*each) for each in words]
    assert [move.wait() for move in moves] == [0, 0], [move.communicate() for move in moves]
    assert place.servers() == {"shop": "edge-0", "sessions": "edge-0"}
    assert ip_address(place.request("shop:8080/").strip()) == ip_address("100.64.64.2")
    for app in ("shop", "sessions"):
        assert place.run("migrate", app, "--to", "cloud-0", "-s", "redeploy").returncode == 0
    assert ip_address(place.request("shop:8080/").strip()) == ip_address("100.64.128.2")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        ("command killed", ""),
        ("target killed", "sessions.edge-0.server"),
        ("outage", "timed out"),
        ("disk full", "no space left on device"),
    ],
)
def test_a_failure_leaves_the_service_at_its_source_and_nothing_at_the_target(
    place: Place, happens: str, reason: str
) -> None:
    target = "small-0" if happens == "disk full" else "edge-0"
    assert place.servers()["sessions"] == "cloud-0"
    place.request("sessions:9000/kept", reason or "x")
    since = len(events(place))
    moving = place.popen("migrate", "sessions", "--to", target, "--strategy", "state")
    if happens != "disk full":
        wait_for(place, since, event="move phase began", what="sessions: round 1")
    if happens == "command killed":
        moving.kill()
    elif happens == "target killed":
        os.kill(wait_for(place, since, event="program started", node="edge-0")["pid"], signal.SIGKILL)
    elif happens == "outage":
        assert place.run("link", "set", "x", "core-edge-0", "down").returncode == 0
    output, errors = moving.communicate()
    assert moving.returncode in (1, -signal.SIGKILL), output
    assert reason in errors.lower()
    if happens == "command killed":
        assert wait_for(place, since, event="move ended")["failed"] == "cancelled"
    elif happens == "outage":
        assert place.run("link", "set", "x", "core-edge-0", "up").returncode == 0
    assert place.servers()["sessions"] == "cloud-0"
    assert place.request("sessions:9000/kept") == (reason or "x")
    assert place.request("sessions:9000/kept", "again") == ""
    sockets = place.run("exec", target, "--", "cat", "/proc/net/tcp").stdout
    assert not re.search(r":2328 \S+ 0A ", sockets), sockets  # closed connections remain for a minute
    assert not list(Path(place.record[1]["scratch"]).glob("n/migration-*"))


@pytest.mark.slow
def test_nothing_is_left_of_a_testbed_that_is_killed_while_a_service_moves(place: Place) -> None:
    (identifier, record), since = place.record, len(events(place))
    with place.popen("migrate", "sessions", "--to", "edge-0", "--strategy", "state") as moving:
        wait_for(place, since, event="move phase began", what="sessions: round 1")
        place.kill_and_clean(moving)
    assert_nothing_left(identifier, place.folder)
    assert not Path(record["scratch"]).exists()


def test_a_migration_that_is_not_possible_is_an_error_of_its_line(tmp_path: Path) -> None:
    files(tmp_path)

    def refused(
        app: str, to: str, at_s: int = 1, how: str = "redeploy", before: str = NODES + NGINX, **keys: int
    ) -> str:
        return refusal(before + migration(app, to, at_s, how, **keys), tmp_path)

    assert "did you mean 'shop'?" in refused("shp", "edge-0")
    assert "did you mean 'edge-0'?" in refused("shop", "egde-0")
    assert "is already on cloud-0" in refused("shop", "cloud-0")
    assert "'redeploy' sends nothing" in refused("shop", "edge-0", connections=2)
    there = NODES + NGINX + migration("shop", "edge-0", 1, "state")
    mixed = refused("shop", "cloud-0", 9, "stop-and-copy", there)
    assert "also moves by stop-and-copy, without `CELLBED_STATE`" in mixed
    assert "ends after 15 s" in refused("shop", "edge-0", 19)
    several = NODES.replace("[nodes.cloud]", "[nodes.cloud]\ncount = 2")
    assert "one server moves" in refused("shop", "edge-0", before=several + NGINX)
    own = refused("vision", "edge-0", how="state", before=NODES + OWN)
    assert "does not move by state: write redeploy or stop-and-copy or pre-copy or post-copy" in own


CONNECTION = """
import socket, subprocess, sys

subprocess.run("ip link set lo up; ip addr add 10.9.0.1/32 dev lo; ip addr add 10.9.0.2/32 dev lo", shell=True)
servers = {address: socket.create_server((address, 80)) for address in ("10.9.0.1", "10.9.0.2")}
for number, text in enumerate(sys.argv[1:]):
    subprocess.run(["nft", "-f", "-"], input=text.encode(), check=True)
    if number == 0:
        client = socket.create_connection(("10.9.0.1", 80), 20)
        server, _ = servers["10.9.0.2"].accept()
    client.sendall(b"x")
    assert server.recv(1) == b"x"
"""


def test_a_connection_outlives_the_rule_that_led_it_to_another_node() -> None:
    alone = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if subprocess.run([*alone, "nft", "list", "tables"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespace in which nft works")
    to = Redirection(("10.9.0.1", "fd63::1"), ("10.9.0.2", "fd63::2"), frozenset({80}), frozenset())
    subprocess.run([*alone, sys.executable, "-c", CONNECTION, rules({}, [to]), rules({}, [])], check=True)
