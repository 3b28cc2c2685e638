"""Running programs that CRIU moves to other nodes, with their memory and connections."""

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from cellbed.testbed.migration import checkpoint, criu
from cellbed.testbed.migration.checkpoint import names_in_use
from cellbed.testbed.migration.criu import CriuError, find_criu, replace_addresses
from cellbed.testbed.migration.pre_copy import PreCopy, tracks_writes
from cellbed.testbed.migration.strategy import MigrationError
from cellbed_node.processes import find
from descendants import descendants
from in_process import run_apart
from moving_services import (
    CLIENT,
    CRIU_NODES,
    REDIS,
    STRATEGIES,
    Place,
    events,
    in_containers,
    left_of_moves,
    link,
    redis,
    redis_image,
    skip_without,
    slow_with_redis,
    standing,
    wait_for,
    writing,
)
from run_commands import assert_nothing_left, has_ended
from scenario_text import app_table, migration, refusal, server_keys

REASONS = {
    "disk full": "No space left on device",
    "outage": "the connection to the target was lost",
    "outage in a round": "the connection to the target was lost",
    "target killed": "edge-0: the program 'transfer' has ended",
}
PHASES = ("prepare", "snapshot", "transfer", "restore", "pages")
STARTED_AT_SOURCE = ("program started", "cloud-0")
NODES = CRIU_NODES
SHARED = app_table(
    "shared", server=server_keys([sys.executable, "shared.py"], 7000, "cloud", copy_in={"shared.py": "shared.py"})
)
SHARED_PY = """
import ctypes, socket
library = ctypes.CDLL(None)
library.shmat.restype = ctypes.c_void_p
memory = library.shmget(0, 4096, 0o1600)
assert library.shmat(memory, None, 0) not in (None, -1)
library.shmctl(memory, 0, None)  # gone with the last process
server = socket.create_server(("", 7000))
while True:
    connection, _ = server.accept()
    connection.sendall(b"here")
    connection.close()
"""
FILLED = """
[apps.store.client]
on = "endpoint"
command = ["PYTHON", "FILL", "{server.address}"]
"""
CHANNEL = {"connections": 2, "compression": 3, "rate": "8 Mbit/s", "congestion_control": "reno"}
FILL_PY = """
import pathlib, random, socket, sys, time
connection = socket.create_connection((sys.argv[1], 6379))
connection.settimeout(200)
replies = connection.makefile("rb")
random.seed(1)
values = {b"key%d" % number: random.randbytes(600).hex().encode() for number in range(4000)}
for key, value in values.items():
    connection.sendall(b"SET %s %s\\r\\n" % (key, value))
assert all(replies.readline() == b"+OK\\r\\n" for _ in values)
while True:
    for key, value in values.items():
        connection.sendall(b"GET %s\\r\\n" % key)
        replies.readline()
        if replies.readline().strip() != value:
            pathlib.Path(sys.argv[0]).with_name("wrong").touch()
    time.sleep(0.2)
"""
pytestmark = pytest.mark.needs_tun


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("standing")
    (folder / "shared.py").write_text(SHARED_PY)
    (folder / "client.py").write_text(CLIENT)
    with standing(folder, NODES + REDIS + SHARED) as place:
        yield place


def fill(place: Place) -> None:
    """Let Redis have 20 MB."""
    redis(place, "FLUSHALL")
    assert redis(place, "DEBUG", "POPULATE", "20000", "key", "1000") == "OK"


def moving_in_phase(place: Place, phase: str) -> tuple[subprocess.Popen[str], int]:
    """Begin a move and return in this phase of it; with the number of events before."""
    strategy = "post-copy" if phase == "pages" else "stop-and-copy"
    since = len(events(place))
    moving = place.popen("migrate", "store", "--to", "edge-0", "--strategy", strategy)
    wait_for(place, since, event="move phase began", what=f"store: {phase}")
    return moving, since


@slow_with_redis
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_redis_moves_with_its_connections_and_loses_no_acknowledged_write(place: Place, strategy: str) -> None:
    skip_without(strategy)
    fill(place)
    with writing(place):
        for node in ("edge-0", "cloud-0"):
            moved = place.run("migrate", "store", "--to", node, "--strategy", strategy, "--json")
            assert moved.returncode == 0, moved.stderr
            account = json.loads(moved.stdout)
            print(
                f"\n{strategy}: {account['bytes'] / 1e6:.1f} MB, stood still {account['facts']['stood_still_s']:.2f} s"
            )
            phases = {each["name"]: each for each in account["phases"]}
            names = [each for each in phases if not each.startswith("round")]
            assert names[:3] == ["prepare", "snapshot", "transfer"]
            assert ("pages" in names) == (strategy == "post-copy")
            if strategy == "pre-copy":
                assert phases["transfer"]["bytes"] < phases["round 1"]["bytes"] / 4
                assert phases["round 1"]["pages_bytes"] > 20_000_000 > phases["round 2"]["pages_bytes"] > 0
            assert place.servers()["store"] == node
            assert redis(place, "DBSIZE") >= "20000"
    assert left_of_moves(place) == []


@slow_with_redis
def test_a_snapshot_travels_compressed_over_two_connections_within_its_rate(tmp_path: Path) -> None:
    move = migration("store", "edge-0", 5, "stop-and-copy", **CHANNEL)
    run = run_apart(tmp_path, NODES + REDIS + FILLED.replace("PYTHON", sys.executable) + move, fill=FILL_PY)
    (account,) = json.loads((run / "run.json").read_text())["migrations"]
    assert (account["failed"], account["target"], account["compression"]) == (None, "edge-0", 3)
    phases = {phase["name"]: phase for phase in account["phases"]}
    size, transfer = phases["snapshot"]["snapshot_bytes"], phases["transfer"]
    assert size > 4000 * 1200
    assert 4000 * 600 < transfer["bytes"] < 0.8 * size  # hexadecimal digits need half of their bytes
    assert 8 * transfer["bytes"] / transfer["on_link_s"] < 1.1 * 8e6
    assert not (tmp_path / "wrong").exists()


@pytest.fixture
def image() -> Iterator[str]:
    changes = ["WORKDIR /data", 'CMD ["redis-server", "--port", "6379", "--save", "", "--protected-mode", "no"]']
    with redis_image("redis", changes) as name:
        yield name


@slow_with_redis
@pytest.mark.skipif(find("podman") is None or find("crun") is None, reason="podman or crun is not installed")
@pytest.mark.parametrize("strategy", ["stop-and-copy", "post-copy"])
def test_redis_moves_between_containers_with_its_connections(tmp_path: Path, image: str, strategy: str) -> None:
    skip_without(strategy)
    (tmp_path / "client.py").write_text(CLIENT)
    own = REDIS.replace(next(line for line in REDIS.splitlines() if line.startswith("command")), "")
    with standing(tmp_path, in_containers(image) + own) as place, writing(place):
        for node in ("edge-0", "cloud-0"):
            moved = place.run("migrate", "store", "--to", node, "--strategy", strategy)
            assert moved.returncode == 0, moved.stderr


@slow_with_redis
def test_a_program_that_criu_refuses_goes_on_at_its_node(place: Place) -> None:
    moved = place.run("migrate", "shared", "--to", "edge-0", "--strategy", "stop-and-copy")
    assert moved.returncode == 1
    assert "criu cannot dump the program:" in moved.stderr
    assert place.servers()["shared"] == "cloud-0"
    hello = "import socket; print(socket.create_connection(('shared', 7000)).recv(9).decode())"
    assert place.run("exec", "endpoint-0", "--", sys.executable, "-c", hello).stdout == "here\n"
    sockets = place.run("exec", "edge-0", "--", "cat", "/proc/net/tcp").stdout
    assert " 0A " not in sockets  # none listens
    assert left_of_moves(place) == []


@slow_with_redis
@pytest.mark.parametrize("happens", REASONS)
def test_a_failed_transfer_leaves_redis_and_its_connections_at_the_source(place: Place, happens: str) -> None:
    strategy, phase = ("pre-copy", "round 1") if happens == "outage in a round" else ("stop-and-copy", "transfer")
    skip_without(strategy)
    fill(place)
    with writing(place):
        since = len(events(place))
        target = "small-0" if happens == "disk full" else "edge-0"
        moving = place.popen("migrate", "store", "--to", target, "--strategy", strategy)
        if happens != "disk full":
            wait_for(place, since, event="move phase began", what=f"store: {phase}")
        if "outage" in happens:
            assert place.run("link", "set", "x", "core-edge-0", "down").returncode == 0
        elif happens == "target killed":
            while not (receiving := playing(place, "receive")):
                time.sleep(0.01)
            kill(receiving)
        output, errors = moving.communicate()
        if "outage" in happens:
            assert place.run("link", "set", "x", "core-edge-0", "up").returncode == 0
        assert moving.returncode == 1, output
        assert REASONS[happens] in errors
        assert place.servers()["store"] == "cloud-0"
    assert left_of_moves(place) == []


@slow_with_redis
def test_redis_goes_on_as_it_was_when_its_pages_do_not_arrive(place: Place) -> None:
    skip_without("post-copy")
    fill(place)
    moving, _ = moving_in_phase(place, "pages")
    assert place.run("link", "set", "x", "core-edge-0", "down").returncode == 0
    output, errors = moving.communicate()
    assert place.run("link", "set", "x", "core-edge-0", "up").returncode == 0
    assert moving.returncode == 1, output
    assert "what it has done at edge-0 is lost" in errors
    assert place.servers()["store"] == "cloud-0"
    assert redis(place, "DBSIZE") == "20000"
    assert left_of_moves(place) == []


@pytest.fixture(scope="module")
def restarting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("restarting")
    (folder / "client.py").write_text(CLIENT)
    with standing(folder, NODES + REDIS + 'restart = "always"\n') as place:
        yield place


@slow_with_redis
@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_program_is_reported_and_lives_at_one_place_at_most(restarting: Place, phase: str) -> None:
    fill(restarting)
    moving, since = moving_in_phase(restarting, phase)
    root = [each["pid"] for each in events(restarting) if (each["event"], each.get("node")) == STARTED_AT_SOURCE][-1]
    kill([root, *descendants(root)])
    errors = moving.communicate()[1]
    assert wait_for(restarting, since, event="program ended", node="cloud-0")["status"] == -signal.SIGKILL
    if moving.returncode == 0:  # the copy runs, and has all it needs
        assert phase in ("restore", "pages")
        assert redis(restarting, "DBSIZE") == "20000"
        assert restarting.servers()["store"] == "edge-0"
        assert ":6379" not in restarting.left_at("cloud-0")
        assert restarting.run("migrate", "store", "--to", "cloud-0", "--strategy", "stop-and-copy").returncode == 0
    else:
        assert "store.cloud-0.server has ended" in errors
        wait_for(restarting, since, event="program started", node="cloud-0")
        assert ":6379" not in restarting.left_at("edge-0")
    assert left_of_moves(restarting) == []


KILLED = {
    "prepare": ("hold", "dump"),
    "snapshot": ("send", "receive", "hold", "dump"),
    "transfer": ("send", "receive", "hold", "dump"),
    "restore": ("hold", "dump"),
    "pages": ("pages", "hold", "dump"),
}
"""Roles of the programs of a move, by phases in which they run."""


@slow_with_redis
@pytest.mark.parametrize(("phase", "role"), [(phase, role) for phase, roles in KILLED.items() for role in roles])
def test_redis_goes_on_at_one_node_when_a_program_of_the_move_is_killed(
    restarting: Place, phase: str, role: str
) -> None:
    if node_of_store(restarting) != "cloud-0":
        assert restarting.run("migrate", "store", "--to", "cloud-0", "--strategy", "stop-and-copy").returncode == 0
    fill(restarting)
    before = playing(restarting, role)
    # A copy that dies once it serves takes its connections and its memory with it.
    with writing(restarting) if phase in ("prepare", "snapshot", "transfer") else contextlib.nullcontext():
        moving, _ = moving_in_phase(restarting, phase)
        while moving.poll() is None and not (found := playing(restarting, role) - before):
            pass
        kill(found)
        _, errors = moving.communicate()
        has_moved = moving.returncode == 0
        assert "Traceback" not in errors
        assert node_of_store(restarting) == ("edge-0" if has_moved else "cloud-0"), errors
    assert redis(restarting, "DBSIZE") >= "20000" or (has_moved and role == "hold")
    assert left_of_moves(restarting) == []
    assert ":6379" not in restarting.left_at("cloud-0" if has_moved else "edge-0")


def kill(processes: Iterable[int]) -> None:
    for each in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def playing(place: Place, role: str) -> set[int]:
    """Processes of moves that play a role."""
    found = descendants(place.record[1]["process"])
    return {each for each, words in found.items() if f'"role": "{role}"'.encode() in words}


def node_of_store(place: Place) -> str:
    """The node of the store, once it is ready."""
    deadline = time.monotonic() + 200
    while (node := place.servers().get("store")) is None:
        assert time.monotonic() < deadline, "the store is not ready"
    return node


@slow_with_redis
@pytest.mark.parametrize("phase", PHASES)
def test_nothing_is_left_of_a_testbed_that_is_killed_while_redis_moves(tmp_path: Path, phase: str) -> None:
    with standing(tmp_path, NODES + REDIS) as place:
        identifier, record = place.record
        networks = {Path(f"/proc/{each}/ns/net").readlink() for each in descendants(record["process"])}
        networks.discard(Path("/proc/self/ns/net").readlink())
        assert len(networks) > 1
        fill(place)
        moving, _ = moving_in_phase(place, phase)
        place.kill_and_clean(moving)
        assert_nothing_left(identifier, place.folder)
        assert not Path(record["scratch"]).exists()
        left = [each for each in Path("/proc").glob("[0-9]*/ns/net") if link(each) in networks]
        assert not [each for each in left if not has_ended(int(each.parts[2]))]


@slow_with_redis
def test_a_port_that_is_in_use_at_the_target_is_an_error(place: Place) -> None:
    redis(place, "FLUSHALL")
    with place.occupied("edge-0", 6379), writing(place):
        moved = place.run("migrate", "store", "--to", "edge-0", "--strategy", "stop-and-copy")
        assert moved.returncode == 1
        assert "port 6379 of edge-0 is in use already" in moved.stderr
        assert place.servers()["store"] == "cloud-0"


_WAITS = "import ctypes, os, time; ctypes.CDLL(None).vfork() or (print(flush=True), time.sleep(60), os._exit(0))"
"""The kernel holds the parent of a vfork uninterruptibly until the child ends, as one that waits for a disk."""


def test_a_process_that_does_not_stop_fails_the_move_and_the_run_goes_on_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint, "_STOP_S", 0.05)
    stopped: list[int] = []
    with subprocess.Popen([sys.executable, "-c", _WAITS], stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            steps = checkpoint.stop(process.pid, stopped)
            next(steps)  # the run goes on between two steps
            with pytest.raises(MigrationError, match=f"process {process.pid} does not stop within 0.05 s: state D"):
                list(steps)
            assert process.pid in stopped  # they continue
        finally:
            for each in stopped:
                os.kill(each, signal.SIGKILL)


def test_names_in_use_are_those_that_a_process_has_open(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "other").touch()
    with (tmp_path / "data" / "open").open("w"):
        assert names_in_use([os.getpid()], str(tmp_path)) == {"data"}


def test_pages_on_demand_need_one_connection_without_compression() -> None:
    assert "one connection" in refusal(NODES + REDIS + migration("store", "edge-0", 1, "post-copy", compression=3))


@pytest.mark.skipif(tracks_writes(), reason="the kernel has CONFIG_MEM_SOFT_DIRTY")
def test_a_kernel_that_does_not_track_writes_is_an_error_with_the_remedy() -> None:
    assert (PreCopy.obstacle() or "").endswith("(CONFIG_MEM_SOFT_DIRTY): use state, stop-and-copy or post-copy")


def test_a_machine_without_criu_is_an_error_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELLBED_CRIU", "/nowhere/criu")
    find_criu.cache_clear()
    try:
        with pytest.raises(CriuError, match=r"no file /nowhere/criu: install criu 4\.2"):
            find_criu()
    finally:
        find_criu.cache_clear()


def test_the_cause_of_a_refusal_is_the_first_error_that_is_no_consequence() -> None:
    log = (
        "(00.01) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted\n"
        "(00.02) Error (criu/cr-dump.c:1): Task 7 with SysVIPC shmem map @7f is not supported\n"
        "(00.03) Error (criu/cr-dump.c:1975): Dumping FAILED.\n"
    )
    assert criu.refusal(log) == "Task 7 with SysVIPC shmem map @7f is not supported"


def test_sockets_of_an_image_are_bound_to_the_target() -> None:
    def words(address: str) -> list[int]:
        packed = ip_address(address).packed
        return list(struct.unpack(f"={len(packed) // 4}I", packed))

    def number(value: int) -> bytes:
        found = b""
        while value > 127:
            found, value = found + bytes([value & 127 | 128]), value >> 7
        return found + bytes([value])

    def image(source: str, peer: str) -> bytes:
        # images/sk-inet.proto: id 1, src_addr 11, dst_addr 12; images/fdinfo.proto: id 2, isk 4.
        addresses = [b"\x58" + number(word) for word in words(source)] + [
            b"\x60" + number(word) for word in words(peer)
        ]
        socket = b"\x08\x05" + b"".join(addresses)
        entry = b"\x10\x05\x22" + number(len(socket)) + socket
        return b"MAGICNUM" + struct.pack("<I", len(entry)) + entry

    moves = {"100.64.0.2": "100.64.128.200", "fd63::2": "fd63:656c::3"}
    for source, target in (*moves.items(), ("::ffff:100.64.0.2", "::ffff:100.64.128.200"), ("0.0.0.0", "0.0.0.0")):
        peer = "100.64.0.2" if "." in source and ":" not in source else "fd63::2"
        assert replace_addresses(image(source, peer), moves) == image(target, peer)
