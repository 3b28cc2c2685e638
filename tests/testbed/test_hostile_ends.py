"""Programs that make the end of a run, its loop or its clean-up wait, or leave trees that Python cannot walk."""

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import polars as pl
import psutil
import pytest

import in_process
from cellbed.archive.unfinished import discard
from cellbed.experiments.sweep.store import Store
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.peers import Admission
from cellbed.testbed.migration.state_sockets import StateSockets
from cellbed.testbed.nodes import copies
from cellbed.testbed.programs.reach import Guests
from cellbed.testbed.programs.reports import SPANS, ReportSockets
from cellbed_node.temporary import remove_stale, remove_tree, temporary_folder
from hostile_folders import flipping, make_deep
from run_commands import command_line
from scenario_text import app_table, scenario_head, server_keys
from shell_world import wait_until

HERE = Admission(["/proc/self/ns/net"])
DEPTH = 1050
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount and for network namespaces")


def test_folders_of_any_depth_are_removed_with_what_they_are_in(tmp_path: Path) -> None:
    with temporary_folder() as temporary:
        make_deep(temporary / "x", DEPTH)
    discard(tmp_path, make_deep(tmp_path / "entry", DEPTH))
    left = make_deep(tmp_path / "left", DEPTH)
    assert remove_stale([left]) == [left]
    assert not temporary.exists()
    assert [each.name for each in tmp_path.iterdir()] == [".lock"]


def test_a_trial_with_a_folder_of_any_depth_is_adopted_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    other = make_deep(tmp_path / "other" / "trials" / "key", DEPTH)
    (other / "out").symlink_to(tmp_path / "secret")
    (other / "summary.json").write_text("{}")
    plan: Any = SimpleNamespace(distinct={"key": None})
    with Store(tmp_path / "sweep", lambda _: None) as store:
        store.adopt(plan, [tmp_path / "other"])
        adopted = tmp_path / "sweep" / "trials" / "key"
        assert (adopted / "summary.json").samefile(other / "summary.json")
        assert (adopted / "out").is_symlink()
        assert (adopted / ("a/" * DEPTH)).is_dir()
        # One of another file system is one error.
        plan.distinct["second"] = None
        with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
            (Path(elsewhere) / "trials" / "second").mkdir(parents=True)
            (Path(elsewhere) / "trials" / "second" / "summary.json").write_text("{}")
            with pytest.raises(CellbedError, match=r"second: cannot be adopted: .*cross-device link"):
                store.adopt(plan, [Path(elsewhere)])
    for name in ("other", "sweep"):  # pytest cannot
        remove_tree(tmp_path / name)


def test_the_names_of_a_folder_are_bounded_in_number_and_in_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "MOST_FILES", 1000)
    node = tmp_path / "node"
    (node / "d").mkdir(parents=True)
    for number in range(1001):
        os.mkfifo(node / "d" / f"\x1b]0;\n{number:04}".ljust(255, "\n"))
    with copies.close_after(os.open(node / "d", os.O_RDONLY)) as folder:
        with pytest.raises(OSError, match="a folder has more than 1,000 files"):
            copies.names_in(folder)
        (node / "d" / "\x1b]0;\n0000".ljust(255, "\n")).unlink()
        assert len(copies.names_in(folder)) == 1000
    monkeypatch.setattr(copies, "MOST_FILES", 1001)  # with the folder
    with pytest.raises(OSError, match=r"neither a file.*\(and 999 more\)$") as error:
        copies.copy((str(node), PurePosixPath("d")), (str(tmp_path), PurePosixPath("out")))
    assert len(str(error.value)) < 300
    assert str(error.value).isprintable()


def test_a_move_into_folders_that_are_renamed_meanwhile_reaches_no_other_file(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    for folder in (tmp_path / "node" / "d" / "e", outside / "e"):
        folder.mkdir(parents=True)
        (folder / "file").write_text("kept" if outside in folder.parents else "of the node")
    (tmp_path / "new" / "d" / "e").mkdir(parents=True)
    (tmp_path / "new" / "d" / "e" / "file").write_text("new")
    archive = subprocess.run(["tar", "-C", tmp_path / "new", "-c", "d"], capture_output=True, check=True).stdout
    packed = set()
    with flipping(tmp_path / "node", outside), copies.close_after(os.open(tmp_path / "node", os.O_RDONLY)) as root:
        for _ in range(100):
            with contextlib.suppress(OSError), tarfile.open(fileobj=io.BytesIO(archive)) as members:
                copies.unpack(members, root)
            made = io.BytesIO()
            with contextlib.suppress(OSError), tarfile.open(fileobj=made, mode="w") as members:
                copies.pack(root, ["d"], members)
            packed |= {content for content in (b"kept", b"of the node", b"new") if content in made.getvalue()}
            with (
                contextlib.suppress(OSError),
                copies.close_after(copies.open_folder(root, PurePosixPath("d/e"), make=True)) as inner,
            ):
                copies.remove(inner, "file")
    assert (outside / "e" / "file").read_text() == "kept"
    assert sorted(each.name for each in outside.rglob("*")) == ["e", "file"]
    assert b"kept" not in packed


@contextlib.contextmanager
def waiting_program(folder: Path, mark: str) -> Iterator[tuple[int, list[int]]]:
    """A marked program whose environment cannot be read, in a network of its own; its inode, and its processes."""
    folder.mkdir()
    script = Path(__file__).parents[1] / "support" / "waiting_environment.py"
    command = ["unshare", "--net", sys.executable, str(script), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "CELLBED_RUN": mark}) as program:
        processes = [int(each) for each in program.stdout.readline().split()]
        try:
            assert len(processes) == 3
            while Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[0] != "D":
                time.sleep(0.01)
            yield Path(f"/proc/{program.pid}/ns/net").stat().st_ino, processes
        finally:
            for each in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, 9)


def kill_marked(mark: str, *networks: int) -> int:
    """Kill in a process of its own, which may stand still; returns how many."""
    code = f"from cellbed.testbed.clean import kill_marked; print(kill_marked({mark!r}, {networks!r}))"
    killing = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        return int(killing.communicate(timeout=200)[0])
    except subprocess.TimeoutExpired:  # it cannot be waited for before the program has been killed
        pytest.fail("it waits for the environment of a program")


@needs_root
@pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="needs FUSE")
def test_a_program_whose_environment_cannot_be_read_does_not_hold_up_the_end_of_a_run(tmp_path: Path) -> None:
    mark = f"run-{os.getpid()}-abcdef"
    with waiting_program(tmp_path / "mount", mark) as (_, processes):
        with subprocess.Popen(["sleep", "1000"], env={"CELLBED_RUN": mark}) as other:
            try:
                killed = kill_marked(mark)
            finally:
                other.kill()
        assert killed >= 1
        assert other.returncode == -9
    with waiting_program(tmp_path / "again", mark) as (network, processes):
        # In a network that the run knows nothing is read first, and nothing survives.
        assert kill_marked(mark, network) >= len(processes)


ESCAPE = """
import os, subprocess, sys, time
subprocess.Popen(["sleep", "1000"], env={}, cwd="/", start_new_session=True)
print("ready", flush=True)
time.sleep(1000)
"""


def speaker(program: str) -> dict[str, Any]:
    """Return the keys of a server that prints that it is ready."""
    return {"on": "edge", "command": [sys.executable, program], "ready": {"line": "ready"}}


ESCAPING = scenario_head(name="escaping", duration="1 s") + app_table(
    "web", server=speaker("ESCAPE"), client={"on": "endpoint", "command": "sleep 1"}
)


@pytest.mark.needs_tun
def test_a_program_that_takes_off_the_mark_of_its_run_ends_with_the_run_without_limits(tmp_path: Path) -> None:
    in_process.run_apart(tmp_path, ESCAPING, escape=ESCAPE.replace('"1000"', f'"1000.{os.getpid()}"'))
    wait_until(lambda: not any(f"1000.{os.getpid()}".encode() in command_line(each) for each in psutil.pids()))


def unix(path: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, kind)
    made.setblocking(False)
    made.connect(path)
    return made


def test_half_open_and_slow_connections_keep_no_socket_of_a_run_from_its_work(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    reports = ReportSockets(tmp_path / "s", {})
    (spans,) = reports.listen(SPANS, "web", tmp_path / "record", HERE).values()
    states = StateSockets(tmp_path / "s")
    service = unix(str(states.listen("service", HERE)))
    assert states.is_connected("service")
    guests = Guests({}, f"slow-{os.getpid()}")
    slow = [unix(spans) for _ in range(100)]
    slow += [unix(str(states.listen("service", HERE))) for _ in range(8)]
    slow += [unix(f"\0cellbed-exec-slow-{os.getpid()}", socket.SOCK_SEQPACKET) for _ in range(20)]
    good = unix(spans)
    good.send(b"phone-0/1 a 1 2\n")
    good.close()
    saving, received = states.talk("service").serve(), b""
    for _ in range(1000):  # turns, not time
        for each in slow[::2]:  # the others send nothing
            with contextlib.suppress(OSError):
                each.send(b"p")
        reports.serve()
        states.accept()
        guests.serve()
        next(saving)
        with contextlib.suppress(BlockingIOError):
            received += service.recv(100)
        if b"serve\n" in received and (tmp_path / "record").read_text():
            break
    for closed in (reports, guests, states, *slow):
        closed.close()
    assert received == b"serve\n"
    assert json.loads((tmp_path / "record").read_text())["span"] == "a"


REPORTING = """
import os, socket, threading
def spans():
    there = socket.socket(socket.AF_UNIX)
    there.connect(os.environ["CELLBED_SPANS"])
    while True: there.sendall(b"phone-0/1 a 1 2\\n" * 4000)
def exports():
    body = bytes(1 << 16)
    head = b"POST /v1/traces HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/x-protobuf\\r\\n"
    head += b"Content-Length: 65536\\r\\n\\r\\n"
    while True:
        with socket.create_connection(("127.0.0.1", 4318)) as there:
            there.sendall(head + body)
            there.recv(100)
def again(flood):
    while True:
        try: flood()
        except OSError: pass
for flood in (spans, exports):
    threading.Thread(target=again, args=[flood]).start()
slow = [socket.create_connection(("127.0.0.1", 4318)) for _ in range(80)]
print("ready", flush=True)
"""
MEASURED = (
    scenario_head(name="beside", duration="3 s")
    + app_table(
        "loud", telemetry=True, server=speaker("REPORTING"), client={"on": "endpoint", "command": ["sleep", "100"]}
    )
    + app_table(
        "quiet",
        "http",
        url="http://{server.address}:8080/",
        rate="20 /s",
        server=server_keys([sys.executable, "-m", "http.server", "8080"], 8080),
    )
)


@pytest.mark.needs_tun
def test_a_flood_of_reports_loses_no_request_of_another_application_and_is_named(tmp_path: Path) -> None:
    run = in_process.run_apart(tmp_path, MEASURED, reporting=REPORTING)
    described = json.loads((run / "run.json").read_text())
    requests = pl.read_parquet(run / "requests.parquet").filter(app="quiet")
    assert described["status"] == "complete"
    assert requests["status"].to_list() == ["ok"] * len(requests)
    assert any("lost: more than 64 connections at a time" in each for each in described["warnings"])
