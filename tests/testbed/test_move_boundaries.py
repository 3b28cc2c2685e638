"""Moves of services beside hostile programs of the nodes: no port to connect to, no path that leads to this machine."""

import base64
import contextlib
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellbed.testbed.migration.channel import accept_only
from cellbed_node.processes import find
from moving_services import (
    CRIU_NODES,
    NODES,
    REDIS,
    SMALL,
    Place,
    files,
    in_containers,
    needs_criu,
    needs_redis,
    redis,
    redis_image,
    skip_without,
    slow_with_redis,
    standing,
)
from remote_world import machine, skip_without_vm
from run_commands import apply_marks

pytestmark = [pytest.mark.needs_tun, pytest.mark.skipif(find("nft") is None, reason="nft is not installed")]
needs_containers = pytest.mark.skipif(
    any(find(each) is None for each in ("podman", "crun", "busybox")), reason="podman, crun or busybox is not installed"
)
redis_in_containers = apply_marks(needs_containers, slow_with_redis, pytest.mark.timeout(600))
ATTACK = """
import random, select, socket, sys, time
pause_s = float(sys.argv[3])
address, known = sys.argv[1], set(map(int, sys.argv[2].split(",")))
print("begun", flush=True)
while True:
    with open("/proc/net/tcp") as table:
        rows = [each.split() for each in table.readlines()[1:]]
    ports = [int(each[1].rpartition(":")[2], 16) for each in rows if each[3] == "0A"] * 20
    ports += random.sample(range(32768, 61000), 400)
    tried = []
    for port in ports:
        if port not in known:
            tried.append(socket.socket())
            tried[-1].setblocking(False)
            tried[-1].connect_ex((address, port))
    for each in select.select([], tried, [], 0.1)[1]:
        if each.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 and each.getpeername() != each.getsockname():
            print("connected", each.getpeername(), flush=True)  # and not to itself
    for each in tried:
        each.close()
    time.sleep(pause_s)
"""
"""Connects to each port of an address that listens in its own network, many times, and to any others."""


@contextlib.contextmanager
def meanwhile(place: Place, node: str, *command: object) -> Iterator[None]:
    """Meanwhile run a program of a node that prints that it has begun, and must not print anything else."""
    with place.popen("exec", node, "--", *command) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            yield
            assert process.poll() is None, process.communicate()
        finally:
            process.terminate()
        assert process.stdout.read() == ""


def attack(
    place: Place, node: str, address: str, python: str = sys.executable, pause_s: float = 0
) -> contextlib.AbstractContextManager[None]:
    """Meanwhile a second program of a node connects to all ports of an address; none may take a connection."""
    return meanwhile(place, node, python, "-c", ATTACK, address, "9000,8080,6379", pause_s)


def migrate(place: Place, app: str, node: str, strategy: str) -> None:
    moved = place.run("migrate", app, "--to", node, "--strategy", strategy)
    assert moved.returncode == 0, moved.stderr
    assert place.servers()[app] == node


def test_a_connection_that_comes_first_and_a_flood_are_not_taken_for_the_other_end() -> None:
    with socket.socket() as listener, socket.socket() as sender, contextlib.ExitStack() as stack:
        for each in (listener, sender):
            each.bind(("127.0.0.1", 0))
            each.setblocking(False)
        accept_only(listener, *sender.getsockname())
        listener.listen(1)
        others = [stack.enter_context(socket.socket()) for _ in range(300)]
        for each in others:
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        sender.connect_ex(listener.getsockname())
        sender.settimeout(200)
        listener.settimeout(200)
        connection, peer = listener.accept()
        assert peer == sender.getsockname()
        sender.sendall(b"x")
        assert connection.recv(1) == b"x"
        connection.close()
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
        assert select.select([], others, [], 0)[1] == []


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with standing(files(tmp_path_factory.mktemp("sessions")), NODES.replace("150 ms", "50 ms") + SMALL) as place:
        yield place


@pytest.mark.slow
@pytest.mark.parametrize("attacker", ["edge-0", "cloud-0", "endpoint-0"])
def test_no_program_of_a_node_connects_to_a_port_of_a_state_that_moves(sessions: Place, attacker: str) -> None:
    with attack(sessions, attacker, "100.64.64.2"):
        migrate(sessions, "sessions", "edge-0", "state")
    assert sessions.request("sessions:9000/kept", attacker) == ""
    with attack(sessions, attacker, "100.64.128.2"):
        migrate(sessions, "sessions", "cloud-0", "state")
    assert sessions.request("sessions:9000/kept") == attacker


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["host", "vm"])
def test_no_program_behind_a_node_connects_to_a_port_of_a_state_that_moves(tmp_path: Path, kind: str) -> None:
    with contextlib.ExitStack() as stack:
        backend = '{ kind = "vm" }'
        if kind == "vm":
            skip_without_vm()
        else:
            backend = stack.enter_context(machine(tmp_path)).toml
        node = f'[nodes.far]\nclass = "edge"\ncpus = 0.5\nmemory = "256 MiB"\nbackend = {backend}\n'
        service = SMALL.replace(sys.executable, "python3").replace("port = 9000", 'port = 9000, timeout = "120 s"')
        place = stack.enter_context(standing(files(tmp_path), NODES + node + service))
        gateway = place.run("exec", "far-0", "--", "python3", "-c", GATEWAY).stdout.strip()
        with attack(place, "far-0", gateway, "python3", 2 if kind == "vm" else 0):  # a slow processor serves both
            migrate(place, "sessions", "far-0", "state")
        migrate(place, "sessions", "cloud-0", "state")


GATEWAY = """
import socket, struct
with open("/proc/net/route") as table:
    row = next(each for each in map(str.split, table) if each[1] == "00000000")
print(socket.inet_ntoa(struct.pack("<I", int(row[2], 16))))
"""


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    changes = ["WORKDIR /data/canary", "ENV PATH=/bin:/usr/bin"]
    with redis_image("boundaries", changes) as name:
        yield name


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A folder of this machine that no move may read or change."""
    folder = tmp_path / "canary"
    folder.mkdir()
    (folder / "dump.rdb").write_text("secret")
    (folder / "only-here").write_text("secret")
    before = {each.name: each.read_text() for each in folder.iterdir()}, folder.stat().st_mtime_ns
    yield folder
    assert ({each.name: each.read_text() for each in folder.iterdir()}, folder.stat().st_mtime_ns) == before


@pytest.fixture(scope="module")
def boxes(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A testbed with Redis, whose server is a container, as is the edge."""
    folder = tmp_path_factory.mktemp("boxes")
    (folder / "conf").write_text("save ''\n")
    text = REDIS.replace("\nready", '\ncopy_in = { "conf" = "conf" }\nready')
    with standing(folder, in_containers(image) + text) as place:
        yield place


def inside(place: Place, node: str, script: str) -> str:
    """Run a script of the shell as a program of a node."""
    return place.run("exec", node, "--", "busybox", "sh", "-c", script).stdout


HOSTILE = {
    "name": "for n in $(seq 0 99); do ln -s CANARY /data/canary/.cellbed-migration-$n; done",
    "absolute": "mv /data/canary /kept/; ln -s CANARY /data/canary",
    "up": "mv /data/canary /kept/; ln -s UP /data/canary",
    "parent": "mv /data /kept/; ln -s PARENT /data",
}
"""Scripts of a program whose container has the working folder ``/data/canary``."""


@needs_containers
@needs_redis
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("strategy", ["redeploy", "stop-and-copy", "post-copy"])
@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_links_of_a_container_lead_a_move_to_no_file_of_this_machine(
    boxes: Place, canary: Path, strategy: str, side: str, kind: str
) -> None:
    skip_without(strategy)
    home, other = begin_anew(boxes)
    victim = home if side == "source" else other
    script = HOSTILE[kind].replace("UP", "../" * 30 + str(canary)[1:]).replace("PARENT", str(canary.parent))
    inside(boxes, victim, script.replace("CANARY", str(canary)))
    inside(boxes, home if side == "target" else other, "mkdir -p /kept/canary /kept/data/canary")  # for its return
    moved = boxes.run("migrate", "store", "--to", other, "--strategy", strategy)
    assert "Traceback" not in moved.stderr
    assert moved.returncode == 0 or kind != "name", moved.stderr
    for node in (home, other):
        assert "secret" not in inside(boxes, node, "cat /data/canary/* /kept/*/* /only-here 2> /dev/null")


def begin_anew(place: Place) -> tuple[str, str]:
    """Start the service once more, at the other container, with new folders; return its node and the other one."""
    before = place.servers()["store"]
    now = "edge-0" if before == "cloud-0" else "cloud-0"
    inside(place, now, "rm -rf /data /kept; mkdir -p /data/canary /kept")
    migrate(place, "store", now, "redeploy")
    inside(place, before, "rm -rf /data /kept; mkdir -p /data/canary /kept")
    return now, before


@redis_in_containers
def test_criu_executes_nothing_that_a_container_has_put_in_its_way(boxes: Place, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("needs cc")
    _, other = begin_anew(boxes)
    for name in ("preloaded", "plugin"):
        code = f'#include <fcntl.h>\n__attribute__((constructor)) void f(void) {{ creat("/{name}", 0600); }}\n'
        build = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", tmp_path / f"{name}.so"]
        subprocess.run(build, input=code, text=True, check=True)
        content = base64.b64encode((tmp_path / f"{name}.so").read_bytes()).decode()
        for node in ("cloud-0", "edge-0"):
            inside(boxes, node, f"echo {content} | base64 -d > /{name}.so")
    script = """
        mkdir -p /etc/criu /usr/lib/criu; cp /plugin.so /usr/lib/criu/; echo /preloaded.so > /etc/ld.so.preload
        printf '#!/bin/sh\nbusybox touch /configured\n' > /script; chmod +x /script
        echo action-script /script > /etc/criu/default.conf
        mkdir -p /etc/gnutls /run; echo x > /run/criu.kdat; echo x > /etc/gnutls/config
        touch -d 2001-01-01 /run/criu.kdat /etc/gnutls/config
    """
    for node in ("cloud-0", "edge-0"):
        inside(boxes, node, script)
    migrate(boxes, "store", other, "stop-and-copy")
    for node in ("cloud-0", "edge-0"):
        assert inside(boxes, node, "ls / | grep -E '^(preloaded|plugin|configured)$'") == ""
        read = inside(boxes, node, "stat -c '%n %x' /run/criu.kdat /etc/gnutls/config")
        assert read.count("2001-01-01") == 2, read
        inside(boxes, node, "rm -r /run /etc/gnutls /etc/criu /usr/lib/criu /etc/ld.so.preload")


@redis_in_containers
@pytest.mark.parametrize("strategy", ["stop-and-copy", "post-copy"])
def test_no_program_of_a_container_connects_to_a_port_while_memory_moves(boxes: Place, strategy: str) -> None:
    _, other = begin_anew(boxes)
    address = "100.64.64.2" if other == "edge-0" else "100.64.128.2"
    script = f"""
        while :; do
            for port in $(awk '$4 == "0A" {{ split($2, a, ":"); print a[2] }}' /proc/net/tcp); do
                [ $port = 18EB ] && continue  # Redis
                echo x | nc -w 1 {address} $((0x$port)) > /dev/null && echo "connected $port"
            done
        done
    """
    with meanwhile(boxes, other, "busybox", "sh", "-c", f"echo begun; {script}"):
        migrate(boxes, "store", other, strategy)


@redis_in_containers
def test_a_container_does_not_see_the_images_of_a_move(boxes: Place) -> None:
    _, other = begin_anew(boxes)
    script = "echo begun; while :; do find / -xdev -name '*.img'; done"
    with meanwhile(boxes, other, "busybox", "sh", "-c", script):
        migrate(boxes, "store", other, "stop-and-copy")


@redis_in_containers
def test_a_container_with_very_many_files_moves(boxes: Place) -> None:
    now, other = begin_anew(boxes)
    inside(boxes, now, "for n in $(seq 5000); do : > /data/canary/a-rather-long-name-of-a-file-$n; done")
    migrate(boxes, "store", other, "stop-and-copy")
    assert inside(boxes, other, "ls /data/canary | grep -c name-of-a-file") == "5000\n"


def in_folder(place: Place, node: str, script: str) -> None:
    """Run a script in the own folder of a node, as a program of it."""
    folder = f"{place.record[1]['scratch']}/n/{node}"
    done = place.run("exec", node, "--", "sh", "-c", f"mkdir -p {folder} && cd {folder} && {script}")
    assert done.returncode == 0, done.stderr


FOLDER_LINKS = {
    "folder": "rm -rf work && ln -s CANARY work",
    "name": "mkdir -p work; for n in $(seq 0 99); do ln -s CANARY .cellbed-migration-$n; done",
    "files": "rm -rf work && mkdir work && ln -s CANARY/only-here work/sessions.py && ln -s CANARY work/state.py",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", ["redeploy", "state"])
@pytest.mark.parametrize("kind", FOLDER_LINKS)
def test_links_in_the_folder_of_a_node_lead_a_move_to_no_other_file(
    tmp_path: Path, canary: Path, strategy: str, kind: str
) -> None:
    service = SMALL.replace("ready =", 'folder = "work"\nready =')
    service = service.replace('= "sessions.py"', '= "work/sessions.py"').replace('= "state.py"', '= "work/state.py"')
    with standing(files(tmp_path), NODES.replace("150 ms", "5 ms") + service) as place:
        in_folder(place, "edge-0", FOLDER_LINKS[kind].replace("CANARY", str(canary)))
        moved = place.run("migrate", "sessions", "--to", "edge-0", "--strategy", strategy)
        assert "Traceback" not in moved.stderr
        assert place.request("sessions:9000/kept", "here") == ""


@needs_criu
@needs_redis
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", ["stop-and-copy", "post-copy"])
def test_links_in_the_folder_of_a_node_lead_memory_that_moves_to_no_other_file(
    tmp_path: Path, canary: Path, strategy: str
) -> None:
    text = REDIS.replace("ready =", 'folder = "work"\ncopy_in = { "x.toml" = "work/x" }\nready =')
    with standing(tmp_path, CRIU_NODES + text) as place:
        for node in ("edge-0", "cloud-0"):
            in_folder(place, node, f"rm -rf kept; mv work kept 2> /dev/null; ln -s {canary} work")
            moved = place.run("migrate", "store", "--to", "edge-0", "--strategy", strategy)
            assert "Traceback" not in moved.stderr
            assert redis(place, "PING") == "PONG"
