"""What another user of this machine, and a program of another node, reaches of a run: no file and no socket."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import shell_world
from cellbed.testbed.machine import certificates
from cellbed.testbed.machine.peers import Admission
from cellbed.testbed.migration.state_sockets import StateError, StateSockets
from cellbed.testbed.programs.reach import Guests
from cellbed.testbed.programs.reports import REQUESTS, ReportSockets
from cellbed_node.processes import find
from scenario_text import NODES, app_table, server_keys, tables
from shell_world import ORDINARY_USER, World, missing, next_line, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")

# Gives up root as the workers of a web server do, reads its key, and stays connected to its sockets.
SERVER = """
import os, socket, ssl, sys, time
os.setgid(65534); os.setuid(65534)
ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(sys.argv[1], sys.argv[2])
for name in ("CELLBED_STATE", "CELLBED_SPANS"):
    there = socket.socket(socket.AF_UNIX); there.connect(os.environ[name]); globals()[name] = there
print(os.listdir("."))
listener = socket.create_server(("", 8080)); time.sleep(1000)
"""
SCENARIO = (
    tables(name="shared", duration="1000 s")
    + NODES
    + app_table(
        "web",
        client={"on": "endpoint", "command": ["sleep", "1000"]},
        server=server_keys([sys.executable, "SERVER", "{server.certificate}", "{server.key}"], 8080),
    )
)
NO = {"run": ["--no-limits"], "up": ["--no-limits", "--no-proof"]}
# Tries every path, with the names that root found, and the socket of `cellbed exec`.
INTRUDE = """
import os, socket, sys
reached = []
for path in sys.stdin.read().splitlines():
    try:
        if path.startswith("@"):
            there = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); there.connect(chr(0) + path[1:])
            if there.recv(1) == b"": continue  # refused
        elif os.path.isdir(path): os.listdir(path)
        else:
            try: open(path, "rb").close()
            except OSError:
                there = socket.socket(socket.AF_UNIX); there.connect(path)
        reached.append(path)
    except OSError: pass
print(reached)
"""


@pytest.fixture
def registry(tmp_path: Path) -> dict[str, str]:
    tmp_path.chmod(0o755)
    return {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_RUNTIME_DIR": ""}


def cellbed(folder: Path, registry: dict[str, str], *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "cellbed", *words]
    return subprocess.Popen(command, cwd=folder, env=os.environ | registry, text=True, stdout=-1, stderr=-1)


def reached(paths: list[str]) -> str:
    """Those of some paths that another user reaches."""
    other = ["setpriv", f"--reuid={ORDINARY_USER}", f"--regid={ORDINARY_USER}", "--clear-groups"]
    command = [*other, "/usr/bin/python3", "-c", INTRUDE]
    return subprocess.run(command, input="\n".join(paths), capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.needs_tun
@pytest.mark.parametrize("verb", ["run", pytest.param("up", marks=pytest.mark.slow)])
def test_another_user_reaches_no_file_and_no_socket_of_a_run(
    tmp_path: Path, registry: dict[str, str], verb: str
) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "x.toml").write_text(SCENARIO.replace("SERVER", str(tmp_path / "server.py")))

    def events() -> Iterator[Path]:
        return tmp_path.glob("runs/*/events.jsonl")

    started = cellbed(tmp_path, registry, verb, "x.toml", *NO[verb])
    try:
        wait_until(lambda: started.poll() or any("schedule started" in path.read_text() for path in events()))
        (record,) = (json.loads(path.read_text()) for path in tmp_path.glob("state/cellbed/live/*.json"))
        scratch = Path(record["scratch"])
        paths = [str(path) for path in [scratch, *scratch.rglob("*")]]
        assert any(path.endswith("/key.pem") for path in paths)
        assert sum(Path(path).is_socket() for path in paths) >= 2
        assert reached([*paths, record["control"], f"@cellbed-exec-{record['identifier']}"]) == "[]"
    finally:
        if verb == "run":
            started.terminate()
        print(started.communicate(), cellbed(tmp_path, registry, "down").communicate())
    assert not scratch.exists()


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_another_user_reaches_no_socket_of_a_shell(world: World) -> None:
    shell = world.start([*shell_world.cellbed("shell"), "--", "sh", "-c", "echo ready; exec sleep 1000"])
    assert next_line(shell) == "ready"
    (record,) = (json.loads(path.read_text()) for path in world.home().glob(".local/state/cellbed/live/*.json"))
    assert Path(record["control"]).is_socket()
    assert reached([record["control"], f"{world.home()}/.local/state/cellbed/live/{record['identifier']}.json"]) == "[]"


@pytest.mark.skipif(find(certificates.PROGRAM) is None, reason="openssl is not installed")
def test_a_key_is_its_user_s_alone_unless_its_folder_is(tmp_path: Path) -> None:
    certificates.issue(tmp_path, {"site": ["localhost"]})
    assert (tmp_path / "site" / certificates.KEY).stat().st_mode & 0o077 == 0
    assert not list(tmp_path.rglob("ca.key"))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[StateSockets, Path]]:
    """The state socket of a service in this network namespace."""
    sockets = StateSockets(tmp_path)
    yield sockets, sockets.listen("service", Admission(["/proc/self/ns/net"]))
    sockets.close()


def connect(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.connect(str(path))
    made.settimeout(200)
    return made


def test_a_second_connection_to_the_state_socket_never_replaces_a_living_one(
    service: tuple[StateSockets, Path],
) -> None:
    sockets, path = service
    first, second = connect(path), connect(path)
    talk = sockets.talk("service")
    third = connect(path)
    assert sockets.talk("service") is talk
    assert [each.recv(1) for each in (second, third)] == [b"", b""]
    next(talk.serve(), None)
    assert first.recv(100) == b"serve\n"
    first.close()
    fourth = connect(path)
    assert sockets.talk("service") is not talk  # that of a service that was started again
    next(sockets.talk("service").serve(), None)
    assert fourth.recv(100) == b"serve\n"


def test_a_connection_from_another_network_namespace_is_refused(service: tuple[StateSockets, Path]) -> None:
    sockets, path = service
    script = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({str(path)!r}); print(s.recv(1))"
    there = subprocess.Popen(["unshare", "--net", sys.executable, "-c", script], stdout=subprocess.PIPE)
    while there.poll() is None:
        with pytest.raises(StateError, match="is not connected"):
            sockets.talk("service")
        time.sleep(0.01)
    assert there.communicate()[0] == b"b''\n"


FLOOD = """
import os, socket, sys
kept = []
for _ in range(int(sys.argv[2])):
    kept.append(socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[3])))
    kept[-1].setblocking(False)
    try: kept[-1].connect(sys.argv[1].replace("@", chr(0)))
    except BlockingIOError: break
print("full", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def flood(before: list[str], address: str, count: int, kind: str) -> Iterator[None]:
    """Meanwhile a stranger has connections to a socket, as many as wait there."""
    command = [*before, "/usr/bin/python3", "-c", FLOOD, address, str(count), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout.readline() == b"full\n"
        yield
        stranger.communicate()


def test_strangers_do_not_keep_a_service_from_its_state_socket(service: tuple[StateSockets, Path]) -> None:
    sockets, path = service
    with flood(["unshare", "--net"], str(path), 20, "SOCK_STREAM"):
        sockets.accept()
        connection = connect(path)
        assert sockets.is_connected("service")
        connection.close()


def test_a_flood_of_connections_of_another_user_does_not_keep_a_run_from_its_other_work() -> None:
    guests = Guests({}, f"flooded-{os.getpid()}")
    other = ["setpriv", f"--reuid={ORDINARY_USER}", f"--regid={ORDINARY_USER}", "--clear-groups"]
    with flood(other, f"@cellbed-exec-flooded-{os.getpid()}", 100, "SOCK_SEQPACKET"):
        for _ in range(5):
            guests.serve()
            assert guests._listener.accept()[0].close() is None  # some still wait
    guests.close()


def test_a_request_that_another_network_namespace_reports_is_refused_and_counted(tmp_path: Path) -> None:
    sockets, record = ReportSockets(tmp_path, {}), tmp_path / "record"
    inside = Admission(["/proc/self/ns/net"])
    (path,) = sockets.listen(REQUESTS, "shop", record, inside, node="phone-0").values()
    send = f"import socket, time; s = socket.socket(socket.AF_UNIX); s.connect({path!r}); t = time.monotonic_ns();"
    send += "s.send(b'forged %d %d ok\\n' % (t, t))"
    for before in (["unshare", "--net"], []):
        subprocess.run([*before, sys.executable, "-c", send], check=True)  # it has ended before its connection is seen
    sockets.close()
    assert len(record.read_text().splitlines()) == 1
    (warning,) = sockets.warnings()
    assert "refused 1 connection from outside of phone-0" in warning
