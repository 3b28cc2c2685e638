"""A testbed that stands while services of it move, driven by commands as a user gives them."""

import contextlib
import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import in_process
from cellbed.testbed.migration.criu import CriuError, find_criu
from cellbed.testbed.migration.post_copy import PostCopy
from cellbed.testbed.migration.pre_copy import PreCopy
from cellbed.testbed.migration.stop_and_copy import StopAndCopy
from cellbed_node.processes import find
from run_commands import apply_marks, command
from scenario_text import scenario_head


class Place:
    """A testbed that stands, with a registry of its own."""

    def __init__(self, folder: Path, scenario: str) -> None:
        self.folder = folder
        (folder / "runtime").mkdir()
        self.variables = {"XDG_STATE_HOME": str(folder / "state"), "XDG_RUNTIME_DIR": str(folder / "runtime")}
        (folder / "x.toml").write_text(scenario)

    def cellbed(self, *words: object) -> subprocess.CompletedProcess[str]:
        return in_process.cellbed(*words, env=self.variables, cwd=self.folder)

    def popen(self, *words: object, **options: Any) -> subprocess.Popen[str]:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(command(*words), text=True, cwd=self.folder, env=os.environ | self.variables, **options)

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        with self.popen(*words) as process:
            output, errors = process.communicate()
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    @property
    def record(self) -> tuple[str, dict[str, Any]]:
        """The identifier of the testbed, and its record."""
        (path,) = (self.folder / "state" / "cellbed" / "live").glob("testbed-*.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return path.stem, found

    def kill_and_clean(self, moving: subprocess.Popen[str]) -> None:
        """Kill the testbed while a command moves a service, which must report that, and clean up."""
        os.kill(self.record[1]["process"], signal.SIGKILL)
        assert "the testbed has ended" in moving.communicate()[1]
        assert self.run("clean").returncode == 0

    @contextlib.contextmanager
    def occupied(self, node: str, port: int) -> Iterator[None]:
        """Meanwhile another program of a node listens at a port."""
        code = f"import socket, time; s = socket.create_server(('', {port})); print('up', flush=True); time.sleep(600)"
        with self.popen("exec", node, "--", sys.executable, "-c", code) as other:
            assert other.stdout.readline() == "up\n"
            try:
                yield
            finally:
                other.terminate()

    def request(self, path: str, body: str | None = None) -> str:
        """A request of the endpoint; its reply."""
        method = ["-X", "PUT", "--data-binary", body] if body is not None else []
        done = self.run("exec", "endpoint-0", "--", "curl", "-sS", "--max-time", "20", *method, f"http://{path}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def servers(self) -> dict[str, str]:
        """Where the programs run, by application."""
        found = json.loads(self.cellbed("status", "x", "--json").stdout)["programs"]
        return {each["name"].partition(".")[0]: each["node"] for each in found if each["state"] == "ready"}

    def left_at(self, node: str) -> str:
        """Programs on a node beside this look at it."""
        return self.run("exec", node, "--", "sh", "-c", "ss -Htlpn; ls -d /var/tmp/*/.cellbed-migration* 2>&1").stdout


@contextlib.contextmanager
def standing(folder: Path, scenario: str) -> Iterator[Place]:
    """A testbed "x" of this scenario. folder: of its files."""
    place = Place(folder, scenario)
    done = place.run("up", "x.toml", "--name", "x", "--no-limits")
    assert done.returncode == 0, done.stderr
    yield place
    place.run("down", "x")
    for record in (place.folder / "state" / "cellbed" / "live").glob("testbed-*.json"):
        os.kill(json.loads(record.read_text())["process"], signal.SIGKILL)


def events(place: Place) -> list[dict[str, Any]]:
    """What has happened in the testbed since it began."""
    (path,) = (place.folder / "runs").glob("*/events.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def wait_for(place: Place, after: int, **wanted: str) -> dict[str, Any]:
    """The first event with these values after so many."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        for event in events(place)[after:]:
            if all(event.get(key) == value for key, value in wanted.items()):
                return event
        time.sleep(0.02)
    raise AssertionError(f"no event {wanted}")


ROOT = Path(__file__).parents[2]
NODES = scenario_head(
    {
        "endpoint": {"memory": "128 MiB"},
        "cloud": {},
        "edge": {},
        "small": {"class": "edge", "memory": "128 MiB", "disk": "4 MiB"},
    },
    mobile={"up": "50 Mbit/s", "down": "50 Mbit/s"},
    core={"edge": {"kind": "delay", "delay": "2 ms", "rate": "40 Mbit/s"}, "cloud": "150 ms"},
    name="migration",
    duration="15 s",
)
CRIU_NODES = NODES.replace("migration", "criu").replace("150 ms", "10 ms")


def in_containers(image: str) -> str:
    """Return the nodes for CRIU, whose edge and cloud are containers of an image."""
    backend = f'backend = {{ kind = "container", image = "{image}" }}'
    nodes = CRIU_NODES.replace("[nodes.edge]", f"[nodes.edge]\n{backend}")
    return nodes.replace("[nodes.cloud]", f"[nodes.cloud]\n{backend}")


NGINX_CONF = """
daemon off;
worker_processes 1;
pid nginx.pid;
events {}
http {
    access_log off;
    client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t; scgi_temp_path t;
    server { listen 8080; location / { return 200 "$server_addr\\n"; } }
}
"""
SESSIONS = f"""
[apps.sessions]
kind = "http"
url = "http://{{server.address}}:9000/a"
rate = "20 /s"
[apps.sessions.server]
on = "cloud"
command = ["{sys.executable}", "sessions.py", "9000", "16777216"]
copy_in = {{ "sessions.py" = "sessions.py", "state.py" = "state.py" }}
ready = {{ port = 9000 }}
"""


def files(folder: Path) -> Path:
    (folder / "nginx.conf").write_text(NGINX_CONF)
    (folder / "sessions.py").write_text((ROOT / "scenarios/sessions.py").read_text())
    (folder / "state.py").write_text((ROOT / "python/cellbed/state.py").read_text())
    return folder


@contextlib.contextmanager
def writing_sessions(place: Place) -> Iterator[None]:
    """Meanwhile a client writes; the service must have what it has acknowledged."""
    acknowledged: list[str] = []
    stop = threading.Event()

    def write() -> None:
        for number in itertools.takewhile(lambda _: not stop.is_set(), itertools.count()):
            with contextlib.suppress(AssertionError):  # not acknowledged
                place.request(f"sessions:9000/key{number}", f"key{number}")
                acknowledged.append(f"key{number}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()
    assert acknowledged
    ask = 'for key; do curl -sS "http://sessions:9000/$key"; echo; done'
    found = place.run("exec", "endpoint-0", "--", "sh", "-c", ask, "sh", *acknowledged)
    assert found.stdout.split() == acknowledged


REDIS_SERVER = find("redis-server") or ""
STRATEGIES = {"stop-and-copy": StopAndCopy, "post-copy": PostCopy, "pre-copy": PreCopy}
REDIS = """
[apps.store]
kind = "program"
[apps.store.server]
on = "cloud"
command = "redis-server --port 6379 --save '' --protected-mode no --enable-debug-command yes"
ready = { port = 6379 }
"""
CLIENT = """
import json, pathlib, socket, sys, time
own = socket.create_connection(("store", 6379))
own.settimeout(200)
replies = own.makefile("rb")
print("connected", flush=True)
count, longest, last = 0, 0.0, time.monotonic()
while not pathlib.Path(sys.argv[1]).exists():
    own.sendall(b"INCR count\\r\\n")
    assert replies.readline() == b":%d\\r\\n" % (count + 1), count
    count, now = count + 1, time.monotonic()
    longest, last = max(longest, now - last), now
with socket.create_connection(("store", 6379)) as other:  # the service's memory, by a connection that began later
    other.sendall(b"GET count\\r\\n")
    reply = other.makefile("rb")
    reply.readline()
    print(json.dumps([count, int(reply.readline()), longest]))
"""


def find_obstacle(strategy: str) -> str | None:
    """Obstacles of this machine to a strategy, without a trial."""
    try:
        find_criu()
    except CriuError as error:
        return str(error)
    if os.geteuid() != 0:
        return "CRIU needs root"
    return STRATEGIES[strategy].obstacle()


def skip_without(strategy: str) -> None:
    """Skip a test if this machine lacks what a strategy needs."""
    if strategy in STRATEGIES and (reason := find_obstacle(strategy)) is not None:
        pytest.skip(reason)


needs_criu = pytest.mark.skipif(
    find_obstacle("stop-and-copy") is not None, reason=f"CRIU: {find_obstacle('stop-and-copy')}"
)
needs_redis = pytest.mark.skipif(not REDIS_SERVER, reason="redis-server is not installed")
slow_with_redis = apply_marks(pytest.mark.slow, needs_criu, needs_redis)
"""A test of programs that CRIU moves."""


@contextlib.contextmanager
def redis_image(name: str, changes: Sequence[str]) -> Iterator[str]:
    """An image with Redis of this machine, BusyBox if it is there, and a root folder that all may write to."""
    libraries = re.findall(r"/\S+", subprocess.run(["ldd", REDIS_SERVER], capture_output=True, text=True).stdout)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", dereference=True) as archive:
        for path in (REDIS_SERVER, *libraries):
            archive.add(path)
        if (busybox := find("busybox")) is not None:
            archive.add(busybox)
            archive.add(busybox, "bin/sh")
    image = f"localhost/cellbed-{name}:{os.getpid()}"
    command = ["podman", "import", *(f"--change={each}" for each in changes), "-", image]
    subprocess.run(command, input=made.getvalue(), capture_output=True, check=True)
    yield image
    subprocess.run(["podman", "rmi", "--force", image], capture_output=True, check=False)


def redis(place: Place, *words: str) -> str:
    done = place.run("exec", "endpoint-0", "--", "redis-cli", "-h", "store", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextlib.contextmanager
def writing(place: Place) -> Iterator[None]:
    """Meanwhile a client writes over one connection; it must stay, and the store must have what it acknowledged."""
    stop = place.folder / f"stop-{len(list(place.folder.glob('stop-*')))}"
    with place.popen("exec", "endpoint-0", "--", sys.executable, place.folder / "client.py", stop) as client:
        try:
            assert client.stdout.readline() == "connected\n"
            yield
            stop.touch()
            line = client.stdout.readline()
            assert line, client.communicate()
            acknowledged, stored, gap_s = json.loads(line)
            print(f"\nlongest time between replies of Redis: {gap_s:.2f} s")
            assert acknowledged == stored > 0
        except BaseException:
            client.kill()
            raise


def left_of_moves(place: Place) -> list[str]:
    """Nodes with folders of migrations, or this machine with one."""
    return files_of(place, ".cellbed-migration-*") + files_of(place, "../migration-*")


def files_of(place: Place, pattern: str) -> list[str]:
    """Nodes in whose folders there are files of a name."""
    scratch = Path(place.record[1]["scratch"]) / "n"
    nodes = [each.name for each in scratch.glob("*-0")]
    assert {"cloud-0", "edge-0"} <= {*nodes}
    return [
        node
        for node in nodes
        if place.run("exec", node, "--", "sh", "-c", f"ls -d {scratch}/{node}/{pattern}").returncode == 0
    ]


def link(path: Path) -> Path | None:
    with contextlib.suppress(OSError):
        return path.readlink()
    return None


SMALL = SESSIONS.replace("16777216", "4194304")
