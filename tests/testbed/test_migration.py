"""Services that move to other nodes while they run: of a scenario and by command, and moves that fail."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cellbed.scenario import ScenarioError, parse
from cellbed.testbed.machine import conntrack
from cellbed.testbed.programs.balancing import Redirection, rules
from cellbed_node.processes import find
from in_process import run_apart
from moving_services import NODES, SESSIONS, Place, events, files, standing, wait_for, write
from run_commands import assert_nothing_left
from scenario_text import app_table

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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    move = f'[[migrations]]\napp = "shop"\nto = "edge-0"\nat = "{THERE_S} s"\nstrategy = "redeploy"\n'
    return run_apart(files(tmp_path_factory.mktemp("moves")), NODES + NGINX + move)


@pytest.mark.slow
@needs_nginx
def test_clients_follow_a_web_server_to_another_node(run: Path) -> None:
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


@pytest.mark.slow
@needs_nginx
def test_the_report_has_the_phases_and_when_a_move_has_paid(run: Path) -> None:
    (move,) = json.loads((run / "summary.json").read_text())["migrations"]
    assert move["before_s"] > move["after_s"]
    assert move["paid_s"] is not None
    assert move["served_before"] + move["served_after"] + move["delayed"] > 10
    page = (run / "report.html").read_text()
    for text in ((run.parents[1] / "output").read_text(), page):
        assert "redeploy of shop from cloud-0 to edge-0" in text
        assert "it has paid" in text
    assert "shop: drain" in page


@pytest.mark.slow
@needs_nginx
def test_a_run_whose_migration_fails_is_disturbed(tmp_path: Path) -> None:
    server = f'{{ on = "edge", command = "{sys.executable} -m http.server 8080" }}'
    other = f'[apps.other]\nkind = "program"\nserver = {server}\n'
    move = '[[migrations]]\napp = "shop"\nto = "edge-0"\nat = "1 s"\nstrategy = "redeploy"\n'
    scenario = NODES.replace("15 s", "4 s") + NGINX + other + move
    run = run_apart(files(tmp_path), scenario)
    (reason,) = [each for each in json.loads((run / "summary.json").read_text())["disturbances"] if "redeploy" in each]
    assert "redeploy of shop to edge-0 failed: shop.edge-0.server: port 8080 of edge-0 is in use already" in reason


OWN = app_table("vision", "image-classification", server="cloud", rate="4 /s") + app_table(
    "files", "transfers", server="cloud", download=["50 kB"], arrivals="closed"
)


@pytest.mark.slow
@pytest.mark.skipif(find("mosquitto") is None, reason="mosquitto is not installed")
def test_services_of_cellbed_move_there_and_back(tmp_path: Path) -> None:
    moves = "".join(
        f'[[migrations]]\napp = "{app}"\nto = "{node}"\nat = "{at} s"\nstrategy = "redeploy"\n'
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
    writer = threading.Thread(target=write, args=(place, acknowledged := [], stop := threading.Event()))
    writer.start()
    try:
        for node in ("edge-0", "cloud-0"):
            moved = place.run("migrate", "sessions", "--to", node, "--strategy", "state", "--json")
            assert moved.returncode == 0, moved.stderr
            assert place.servers()["sessions"] == node
            phases = [each["name"] for each in json.loads(moved.stdout)["phases"]]
            assert phases[:2] == ["start", "round 1"]
            assert phases[-5:] == ["prepare", "last round", "restore", "switch", "drain"]
    finally:
        stop.set()
        writer.join()
    assert acknowledged
    for key in acknowledged:
        assert place.request(f"sessions:9000/{key}") == key


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


@contextlib.contextmanager
def command_killed(place: Place, moving: subprocess.Popen[str], since: int) -> Iterator[None]:
    wait_for(place, since, event="move phase began", what="sessions: round 1")
    moving.kill()
    yield
    assert wait_for(place, since, event="move ended")["failed"] == "cancelled"


@contextlib.contextmanager
def target_killed(place: Place, moving: subprocess.Popen[str], since: int) -> Iterator[None]:
    wait_for(place, since, event="move phase began", what="sessions: round 1")
    started = wait_for(place, since, event="program started", node="edge-0")
    os.kill(started["pid"], signal.SIGKILL)
    yield


@contextlib.contextmanager
def link_down(place: Place, moving: subprocess.Popen[str], since: int) -> Iterator[None]:
    wait_for(place, since, event="move phase began", what="sessions: round 1")
    assert place.run("link", "set", "x", "core-edge-0", "down").returncode == 0
    yield
    assert place.run("link", "set", "x", "core-edge-0", "up").returncode == 0


@contextlib.contextmanager
def nothing_else(place: Place, moving: subprocess.Popen[str], since: int) -> Iterator[None]:
    yield


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "happens", "reason"),
    [
        ("edge-0", command_killed, ""),
        ("edge-0", target_killed, "sessions.edge-0.server"),
        ("edge-0", link_down, "timed out"),
        ("small-0", nothing_else, "no space left on device"),
    ],
    ids=["command killed", "target killed", "outage", "disk full"],
)
def test_a_failure_leaves_the_service_at_its_source_and_nothing_at_the_target(
    place: Place, target: str, happens: Any, reason: str
) -> None:
    assert place.servers()["sessions"] == "cloud-0"
    place.request("sessions:9000/kept", reason or "x")
    since = len(events(place))
    moving = place.popen("migrate", "sessions", "--to", target, "--strategy", "state")
    with happens(place, moving, since):
        output, errors = moving.communicate()
        assert moving.returncode in (1, -signal.SIGKILL), output
        assert reason in errors.lower()
    assert place.servers()["sessions"] == "cloud-0"
    assert place.request("sessions:9000/kept") == (reason or "x")
    assert place.request("sessions:9000/kept", "again") == ""
    sockets = place.run("exec", target, "--", "cat", "/proc/net/tcp").stdout
    assert not re.search(r":2328 \S+ 0A ", sockets), sockets  # closed connections remain for a minute
    assert not list(Path(place.record[1]["scratch"]).glob("n/migration-*"))


@pytest.mark.slow
def test_a_port_that_is_in_use_at_the_target_is_an_error(place: Place) -> None:
    with place.occupied("edge-0", 9000):
        moved = place.run("migrate", "sessions", "--to", "edge-0", "--strategy", "state")
    assert moved.returncode == 1
    assert "port 9000 of edge-0 is in use already" in moved.stderr
    assert place.servers()["sessions"] == "cloud-0"


@pytest.mark.slow
def test_nothing_is_left_of_a_testbed_that_is_killed_while_a_service_moves(place: Place) -> None:
    (identifier, record), since = place.record, len(events(place))
    with place.popen("migrate", "sessions", "--to", "edge-0", "--strategy", "state") as moving:
        wait_for(place, since, event="move phase began", what="sessions: round 1")
        place.kill_and_clean(moving)
    assert_nothing_left(identifier, place.folder)
    assert not Path(record["scratch"]).exists()


def test_names_that_there_are_not_are_errors_of_their_line(tmp_path: Path) -> None:
    files(tmp_path)

    def refused(table: str, nodes: str = NODES) -> str:
        with pytest.raises(ScenarioError) as error:
            parse(f"{nodes}{NGINX}[[migrations]]\n{table}", source="x.toml", folder=tmp_path)
        return str(error.value)

    assert "did you mean 'shop'?" in refused('app = "shp"\nto = "edge-0"\nat = "1 s"\nstrategy = "redeploy"')
    assert "did you mean 'edge-0'?" in refused('app = "shop"\nto = "egde-0"\nat = "1 s"\nstrategy = "redeploy"')
    assert "is already on cloud-0" in refused('app = "shop"\nto = "cloud-0"\nat = "1 s"\nstrategy = "redeploy"')
    assert "'redeploy' sends nothing" in refused(
        'app = "shop"\nto = "edge-0"\nat = "1 s"\nstrategy = "redeploy"\nconnections = 2'
    )
    both = "".join(
        f'app = "shop"\nto = "{to}"\nat = "{at} s"\nstrategy = "{how}"\n{then}'
        for at, to, how, then in ((1, "edge-0", "state", "[[migrations]]\n"), (9, "cloud-0", "stop-and-copy", ""))
    )
    assert "also moves by stop-and-copy, without `CELLBED_STATE`" in refused(both)
    assert "ends after 15 s" in refused('app = "shop"\nto = "edge-0"\nat = "19 s"\nstrategy = "redeploy"')
    several = NODES.replace("[nodes.cloud]", "[nodes.cloud]\ncount = 2")
    assert "one server moves" in refused('app = "shop"\nto = "edge-0"\nat = "1 s"\nstrategy = "redeploy"', several)


def test_rules_let_connections_follow_a_service_and_keep_those_that_exist() -> None:
    to = Redirection(("100.64.0.2", "fd63::2"), ("100.64.0.3", "fd63::3"), frozenset({80, 443}), frozenset({53}))
    text = rules({}, [to])
    assert "ip daddr 100.64.0.2 tcp dport { 80, 443 } tcp flags & (syn | ack) == syn dnat to 100.64.0.3\n" in text
    assert "ip6 daddr fd63::2 udp dport { 53 } dnat to fd63::3\n" in text
    assert "snat" not in text
    assert "table ip6" not in rules({})


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


def test_servers_of_cellbed_move_by_redeploy_alone() -> None:
    move = '[[migrations]]\napp = "vision"\nto = "edge-0"\nat = "1 s"\nstrategy = "state"\n'
    with pytest.raises(ScenarioError, match=r"image-classification.*write redeploy"):
        parse(NODES + OWN + move, source="s.toml", folder=Path())


def test_entries_of_connection_tracking_are_chosen_by_where_their_first_packet_went() -> None:
    def attribute(kind: int, content: bytes) -> bytes:
        return (
            (4 + len(content)).to_bytes(2, "little")
            + kind.to_bytes(2, "little")
            + content.ljust(-(-len(content) // 4) * 4, b"\0")
        )

    def original(target: str, port: int, protocol: int = 6) -> bytes:
        addresses = attribute(1, ip_address("10.0.0.1").packed) + attribute(2, ip_address(target).packed)
        ports = (
            attribute(1, bytes([protocol]))
            + attribute(2, (4000).to_bytes(2, "big"))
            + attribute(3, port.to_bytes(2, "big"))
        )
        return attribute(0x8001, addresses) + attribute(0x8002, ports)

    def is_chosen(entry: bytes) -> bool:
        return conntrack.matches(entry, {ip_address("10.0.0.2").packed}, {80}, 6)

    assert is_chosen(original("10.0.0.2", 80))
    assert not is_chosen(original("10.0.0.3", 80))
    assert not is_chosen(original("10.0.0.2", 81))
    assert not is_chosen(original("10.0.0.2", 80, 17))
