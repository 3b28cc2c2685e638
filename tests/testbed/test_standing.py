"""Testbeds that stand in the background: brought up, used by other commands, taken down or killed."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellbed.testbed.machine.process import Place as NodePlace
from cellbed.testbed.nodes.backend import Setup
from cellbed.testbed.nodes.namespace import NamespaceNode
from cellbed.testbed.programs.reach import Guests
from moving_services import Place
from run_commands import assert_nothing_left, needs_limits
from scenario_text import scenario_head
from shell_world import ORDINARY_USER, World, missing

SCENARIO = scenario_head(
    {"endpoint": {"count": 2, "cpus": 1.0}, "edge": {"cpus": 1.0, "memory": "1 GiB", "disk": "64 MiB"}},
    mobile={"base_delay": "20 ms"},
    core={"edge": "5 ms"},
    name="standing",
    duration="5 s",
    transport={"slow_start_after_idle": False},
    workload={"kind": "image-classification", "on": "edge", "rate": "5 /s", "images": 3},
)
SEND = "import socket; socket.socket(2, 2).sendto(b'contents of a datagram', ('edge-0', 9))"


pytestmark = [pytest.mark.needs_tun, needs_limits]


MANY = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flow:
    for _ in range(20_000):
        flow.sendto(bytes(9), ("endpoint-0", 9))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place in which a testbed called `first` is up; everything of it is gone at the end."""
    place = Place(tmp_path_factory.mktemp("standing"), SCENARIO)
    done = place.run("up", "x.toml", "--name", "first")
    assert done.returncode == 0, done.stderr
    assert "starting the services, no loads, of image-classification" in done.stderr
    yield place
    for record in (place.folder / "state" / "cellbed" / "live").glob("testbed-*.json"):
        os.kill(json.loads(record.read_text())["process"], signal.SIGKILL)
    place.cellbed("clean")


def status(place: Place, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(place.cellbed("status", name, "--json").stdout)
    return found


def identifier_of(place: Place, name: str) -> str:
    process = status(place, name)["process"]
    (path,) = (place.folder / "state" / "cellbed" / "live").glob(f"testbed-{process}-*.json")
    return path.stem


def test_a_testbed_stands_with_its_services_and_without_its_loads(place: Place) -> None:
    found = status(place, "first")
    assert (found["kind"], found["state"], found["nodes"]) == ("testbed", "up", ["endpoint-0", "endpoint-1", "edge-0"])
    programs = {f"workload.edge-0.{role}": "ready" for role in ("broker", "service")}
    assert {each["name"]: each["state"] for each in found["programs"]} == programs
    events = [event["event"] for event in found["events"]]
    assert events[:3] == ["nodes up", "proved", "schedule started"]
    assert "first" in place.cellbed("status").stdout
    run = json.loads(Path(found["folder"], "run.json").read_text())
    assert run["status"] == "running"
    assert all(proof["ok"] for proof in run["proof"])


CONNECT = """
import socket, time
begin = time.monotonic()
try:
    socket.create_connection(("edge-0", 9), timeout=200)
except ConnectionRefusedError:
    print(time.monotonic() - begin >= 0.050)
# A server of IPv4 only must not refuse the first attempt of a client.
print([found[4][0] for found in socket.getaddrinfo("edge-0", 9, type=socket.SOCK_STREAM)])
"""


def test_a_command_runs_on_a_node_as_if_started_there(place: Place) -> None:
    done = place.run("exec", "endpoint-1", "--", sys.executable, "-c", CONNECT)
    expected = "True\n['100.64.64.2', 'fd63:656c:6c62:1::2']\n"
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    # Its exit status is the command's, and so is its standard input.
    assert place.run("exec", "edge-0", "sh", "-c", "exit 7").returncode == 7
    # A name server of this machine could not be reached, and programs would wait for it.
    assert "nameserver" not in place.run("exec", "edge-0", "cat", "/etc/resolv.conf").stdout
    assert place.run("exec", "edge-0", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    with place.popen("exec", "edge-0", "--", "cat", stdin=subprocess.PIPE) as cat:
        assert cat.communicate("through\n")[0] == "through\n"
    setting = "/proc/sys/net/ipv4/tcp_slow_start_after_idle"
    assert place.run("exec", "endpoint-0", "--", "cat", setting).stdout == "0\n", "as [transport] asks"
    groups = place.run("exec", "endpoint-0", "--", "cat", "/proc/self/cgroup").stdout
    assert f"{identifier_of(place, 'first')}/endpoint-0" in groups
    (event, *_) = [event for event in status(place, "first")["events"] if event["event"] == "exec"]
    assert (event["what"], event["command"][0]) == ("endpoint-1", sys.executable)


def test_a_command_starts_in_the_testbed_where_this_process_may_not_enter_the_node(place: Place) -> None:
    path = Path(status(place, "first")["folder"], "live.json")
    before = path.read_text()
    live = json.loads(before)
    live["nodes"]["edge-0"]["place"]["cgroups"] = ["/sys/fs/cgroup/of-another-scope/cgroup.procs"]
    path.write_text(json.dumps(live))
    done = place.run("exec", "edge-0", "--", "sh", "-c", "cat /proc/self/cgroup; pwd; exit 7")
    assert done.returncode == 7
    assert done.stdout.endswith(f"{place.folder}\n")
    assert f"{identifier_of(place, 'first')}/edge-0" in done.stdout
    path.write_text(before)


def test_a_command_has_the_terminal_and_its_interrupt(place: Place) -> None:
    ours, theirs = pty.openpty()
    word = "import sys, time; print(sys.stdin.isatty(), flush=True)\nwhile True: time.sleep(0.1)"
    process = place.popen(
        "exec", "edge-0", "--", sys.executable, "-c", word,
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(theirs, __import__("termios").TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    while b"True" not in seen:
        seen += os.read(ours, 1000)
    os.write(ours, b"\x03")
    while select.select([ours], [], [], 200)[0]:  # what it still prints
        try:
            os.read(ours, 1000)
        except OSError:
            break
    assert process.wait(200) == -signal.SIGINT
    os.close(ours)


@pytest.mark.parametrize(
    ("words", "status", "answer"),
    [
        (("exec", "endpont-0", "--", "true"), 2, "no node is called 'endpont-0': did you mean 'endpoint-0'?"),
        (("exec", "edge-0", "--", "no-such-command"), 127, "no command is called 'no-such-command'"),
        (("logs", "workloat"), 2, "no program 'workloat' has a log: did you mean 'workload'?"),
        (("tap", "mobile-2"), 2, "no link is called 'mobile-2': did you mean 'mobile-"),
        (("down", "fisrt"), 2, "no live run, testbed or shell is called 'fisrt': did you mean 'first'?"),
        (("up", "x.toml", "--name", "first"), 2, "a testbed called 'first' is up: choose another name"),
    ],
)
def test_what_is_not_there_is_named(place: Place, words: tuple[str, ...], status: int, answer: str) -> None:
    # A process for what forks: the background process of `up` must not be a copy of the test.
    done = (place.run if words[0] == "up" else place.cellbed)(*words)
    assert (done.returncode, done.stdout) == (status, "")
    assert f"error: {answer}" in done.stderr


def test_logs_are_printed_and_followed(place: Place) -> None:
    log = Path(status(place, "first")["folder"], "raw", "workload.edge-0.service.log")
    with log.open("a") as file:
        file.write("a line\nunfinished")
    assert "workload.edge-0.service | a line" in place.cellbed("logs", "workload").stdout
    with place.popen("logs", "workload.edge-0.service", "-f") as following:
        while following.stdout.readline() != "a line\n":
            pass
        with log.open("a") as file:
            file.write(" line\n")
        assert following.stdout.readline() == "unfinished line\n"
        following.terminate()


def test_a_link_is_captured_whole_and_live(place: Place) -> None:
    from cellbed.measure.packetlog.capture import section

    with place.popen("tap", "mobile-0", "--out", "-", errors="replace") as tap:  # further packets are no text
        descriptor = tap.stdout.fileno()
        seen = b""
        while b"mobile-0.downlink out" not in seen:
            part = os.read(descriptor, 65536)
            assert part, tap.communicate()
            seen += part
        assert seen.startswith(section())
        time.sleep(0.2)  # the socket is bound right after the headers
        while b"contents of a datagram" not in seen:
            place.run("exec", "endpoint-0", "--", sys.executable, "-c", SEND)
            if select.select([descriptor], [], [], 1)[0]:
                seen += os.read(descriptor, 65536)
        tap.send_signal(signal.SIGINT)
        _, errors = tap.communicate()
        assert tap.returncode == 0, errors
        assert "packet" in errors


TAP = """
cellbed() { "$0" -P -m cellbed "$@"; }
cd "$HOME"
cellbed up nodes.toml --no-limits --no-proof
cellbed exec edge-0 -- sh -c 'exit 7'; echo "status $?"
cellbed exec edge-0 -- no-such-program; echo "status $?"
"$0" -P -m cellbed tap mobile-0 --out packets & tap=$!
while kill -0 $tap && ! grep -aq "contents of a datagram" packets; do
    cellbed exec endpoint-0 -- "$0" -c "$1"
done
kill $tap
wait $tap
status=$?
cellbed down
exit $status
"""


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_an_ordinary_user_captures_a_link_and_runs_commands(world: World) -> None:
    home = world.home(ORDINARY_USER)
    (home / "nodes.toml").write_text(SCENARIO.partition("[workload]")[0])
    done = world.run(["env", f"TMPDIR={home}", "sh", "-c", TAP, sys.executable, SEND], user=ORDINARY_USER)
    assert done.returncode == 0, done.stderr
    assert "in packets" in done.stderr
    assert "status 7\nstatus 127\n" in done.stdout


def test_several_testbeds_and_their_end(place: Place) -> None:
    other = place.folder / "other.toml"
    # Nodes and links alone.
    named = SCENARIO.replace('"standing"', '"second"\npacket_log = "1 MiB"')
    other.write_text(named.partition("[workload]")[0])
    too_large = place.cellbed("up", other, "--packet-log", "9 GiB")
    assert too_large.stderr == "error: --packet-log: 9 GiB is outside the limits: write 1 MiB to 8 GiB\n"
    hanging_up = place.popen("up", other, "--no-proof", start_new_session=True)
    output, errors = hanging_up.communicate()
    assert (hanging_up.returncode, output[:12]) == (0, "second is up"), errors
    identifier = identifier_of(place, "second")
    listed = json.loads(place.cellbed("status", "--json").stdout)
    assert [each["name"] for each in listed] == ["first", "second"]
    done = place.cellbed("exec", "edge-0", "--", "true")
    assert "several testbeds have a node called 'edge-0': write --testbed with one of first, second" in done.stderr
    assert place.run("exec", "--testbed", "second", "edge-0", "--", sys.executable, "-c", MANY).returncode == 0
    several = place.cellbed("link", "set", "mobile-0", "delay=40 ms")
    assert several.stderr == "error: several runs have a link 'mobile-0': name one of first, second\n"
    changed = place.cellbed("link", "set", "second", "mobile-0.uplink", "delay=40 ms")
    assert changed.returncode == 0, changed.stderr
    with place.popen("exec", "--testbed", "second", "edge-0", "--", "sleep", "600") as sleeping:
        while not Path(f"/proc/{sleeping.pid}/cmdline").read_bytes().startswith(b"sleep\0"):
            time.sleep(0.01)
        folder = Path(status(place, "second")["folder"])
        assert place.cellbed("down").stderr.startswith("error: several testbeds are up: name one of first, second")
        down = place.cellbed("down", "second")
        assert (down.returncode, down.stdout) == (0, f"second is down; its folder: {folder}\n")
        assert sleeping.wait(200) == -signal.SIGKILL
    assert_nothing_left(identifier, place.folder)
    written = list((folder / "raw").glob("packets.bin*"))
    assert sum(path.stat().st_size for path in written) <= 1 << 20
    shown = place.cellbed("log", "show", folder).stderr
    (removed,) = re.findall(r"only its latest records: (\d+) older ones were removed", shown)
    assert int(removed) > 0
    assert f" {removed} older ones" in place.cellbed("report", folder).stdout
    assert json.loads((folder / "run.json").read_text())["status"] == "complete"
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    (change,) = [event for event in events if event["event"] == "link changed"]
    assert (change["what"], change["from"], change["to"]) == ("mobile-0.uplink", "20 ms one way", "40 ms one way")
    assert change["at_s"] > 0
    assert events[-1]["event"] == "complete"
    assert not (folder / "live.json").exists()


def test_an_interrupt_while_it_comes_up_leaves_nothing(place: Place) -> None:
    with place.popen("up", "x.toml", "--name", "never", start_new_session=True) as process:
        for line in process.stderr:
            if line.startswith("bringing up"):
                break
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        records = (place.folder / "state" / "cellbed" / "live").glob("*.json")
        (identifier,) = {path.stem for path in records if path.stem.split("-")[1] in children}
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    assert_nothing_left(identifier, place.folder)
    assert not [folder for folder in (place.folder / "runs").iterdir() if (folder / "live.json").exists()][1:]


def test_a_killed_testbed_leaves_nothing_after_clean(place: Place) -> None:
    identifier = identifier_of(place, "first")
    folder = Path(status(place, "first")["folder"])
    os.kill(status(place, "first")["process"], signal.SIGKILL)
    while place.cellbed("status").stdout != "no testbed is up\n":
        time.sleep(0.01)
    assert "error: no testbed is up" in place.cellbed("down").stderr
    assert place.cellbed("clean").returncode == 0
    assert_nothing_left(identifier, place.folder)
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    assert not (folder / "live.json").exists()


CLIENT = """
import sys
from cellbed.testbed.programs.reach import run_as_guest
from cellbed.testbed.machine.state import Record
record = Record("testbed-1-abcdef", "testbed", 1, 1, "")
sys.exit(run_as_guest(record, sys.argv[1], sys.argv[2:]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to enter this machine's own namespace")
def test_programs_are_found_where_ordinary_users_do_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    node = NamespaceNode(Setup("edge-0", NodePlace("/proc/self/ns/net")))
    assert node.missing({}, ["chroot"], {}, None) is None
    assert node.spawn(["chroot", "--version"], stdout=subprocess.DEVNULL).wait() == 0
    assert "there is no program 'chroot' in /usr/bin" in str(node.missing({}, ["chroot"], {"PATH": "/usr/bin"}, None))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to enter this machine's own namespace")
def test_the_run_starts_commands_on_nodes_that_it_alone_reaches() -> None:
    node = NamespaceNode(Setup("edge-0", NodePlace("/proc/self/ns/net")))
    guests = Guests({"edge-0": node}, "testbed-1-abcdef")

    def client(*words: str) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-c", CLIENT, *words], **pipes)  # type: ignore[call-overload,no-any-return]

    def served(process: subprocess.Popen[str]) -> int:
        while process.poll() is None:
            guests.serve()
            time.sleep(0.01)
        return process.returncode

    with client("edge-0", "sh", "-c", "cat; exec sleep 600") as process:
        process.stdin.write("through")
        process.stdin.close()
        while not select.select([process.stdout], [], [], 0.01)[0]:
            guests.serve()
        process.send_signal(signal.SIGINT)
        assert served(process) == 128 + signal.SIGINT
    with client("edge-0", "no-such-command") as process:
        assert served(process) == 1
        assert "edge-0" in process.stderr.read()
    guests.close()
    with client("edge-0", "true") as process:
        assert process.wait() == 1
        assert "edge-0 cannot be reached" in process.stderr.read()
