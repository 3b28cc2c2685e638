"""Nodes on other machines: the agent, a machine over SSH (another namespace of this one), and a VM."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import psutil
import pytest

from cellbed import spans as cellbed_spans
from cellbed.runformat.events import read_events
from cellbed.scenario.nodes import AnyBackend, VmBackend
from cellbed.support import errors
from cellbed.support.errors import CellbedError
from cellbed.testbed.clean import clean
from cellbed.testbed.machine import cgroups, privilege
from cellbed.testbed.machine.peers import Admission
from cellbed.testbed.nodes import vm, vm_image
from cellbed.testbed.nodes.agent_hub import estimate, probe
from cellbed.testbed.nodes.host import HostNode
from cellbed.testbed.programs import reports
from cellbed.testbed.proof.limits import Limited, prove_limits
from cellbed.testbed.testbed import Testbed
from cellbed_node import agent, temporary
from cellbed_node import errors as node_errors
from cellbed_node.agent import WINDOW, Wire
from container_images import NEEDED, import_image
from descendants import descendants
from in_process import cellbed
from node_programs import BURNER
from remote_world import (
    DISK,
    LIMITS,
    MACHINE,
    NODE,
    PEER,
    Machine,
    leftovers,
    machine,
    node,
    open_bed,
    output,
    skip_without_vm,
    until,
)
from run_commands import command, command_line, processes_of
from scenario_text import app_table

PIPE = subprocess.PIPE


def test_clock_offset_is_that_of_the_shortest_round_trip() -> None:
    # The other clock is 1000 ahead; 10 there, 2 in it, 30 back: wrong by half of the difference.
    assert probe(sent=0, received=1010, replied=1012, returned=42) == (990, 20)
    assert estimate([(990, 20), (1100, 200), (1001, 3)]) == (1001, 3)
    # A clock that has drifted out of the interval of the best probe widens it.
    assert estimate([(1001, 3), (1061, 10)]) == (1001, 50)


def test_slow_reader_does_not_hold_up_other_streams() -> None:
    near, far = socket.socketpair()
    sender = Wire(near.fileno(), near.fileno(), lambda _: None)
    receiver = Wire(far.fileno(), far.fileno(), lambda _: None)
    blocked, unread = os.pipe()
    read, write = os.pipe()
    receiver.write_to(1, unread)
    receiver.write_to(2, write)
    sender.send(hello={})  # streams begin after the first message
    with Path("/dev/zero").open("rb") as endless:
        sender.read_from(1, os.dup(endless.fileno()))
        for _ in range(40):
            sender.turn(0)
            receiver.turn(0)
        assert len(os.read(blocked, 2 * WINDOW)) <= WINDOW
        source, ours = os.pipe()
        sender.read_from(2, source)
        os.write(ours, b"passes")
        for _ in range(40):
            sender.turn(0)
            receiver.turn(0)
        assert os.read(read, 100) == b"passes"
    near.close()
    far.close()


@pytest.mark.skipif(shutil.which(vm.QEMU) is None, reason="QEMU is missing: apt install qemu-system-x86")
def test_qemu_makes_the_machine_of_a_node_without_kvm(tmp_path: Path) -> None:
    (tmp_path / "disk.img").write_bytes(bytes(4096))
    machine = vm.machine("tcg", 2, 352 << 20, vm_image.Image(*[tmp_path / "disk.img"] * 3))
    card = vm.network("tap0", "02:cb:00:00:00:01", vhost=False)
    # Without its kernel, which is no kernel, and before it runs: QEMU makes processors, memory and devices, and ends.
    kernel = machine.index("-kernel")
    machine[kernel : kernel + 6] = []
    card[1] = "user,id=net"
    command = [vm.QEMU, *machine, *card, "-S", "-monitor", "stdio"]
    done = subprocess.run(
        command, input="info status\nquit\n", capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert "VM status: paused" in done.stdout


@pytest.fixture(scope="module")
def ssh_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with an SSH server."""
    with machine(tmp_path_factory.mktemp("machine")) as found:
        yield found
    assert until(lambda: not leftovers()), leftovers()  # of other tests, too


@pytest.fixture(scope="module")
def vm_table() -> VmBackend:
    """The back end of a VM. `scripts/setup.sh test` has built its image."""
    skip_without_vm()
    return VmBackend(kind="vm")


def backend_of(kind: str, request: pytest.FixtureRequest) -> AnyBackend:
    return request.getfixturevalue("ssh_machine").backend() if kind == "host" else request.getfixturevalue("vm_table")


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """A testbed with a node of each kind."""
    with open_bed(backend_of(request.param, request), tmp_path_factory.mktemp("bed")) as bed:
        yield bed


VM = pytest.param("vm", marks=pytest.mark.needs_tun)
HOST = pytest.param("host", marks=pytest.mark.needs_tun)
SLOW_VM = pytest.param("vm", marks=[pytest.mark.needs_tun, pytest.mark.slow])
EACH_IF_SLOW = pytest.mark.parametrize("bed", [HOST, SLOW_VM], indirect=True, scope="module")


@pytest.mark.parametrize("bed", [HOST, VM], indirect=True, scope="module")
def test_programs_behave_like_those_of_this_machine(bed: Testbed) -> None:
    at = node(bed)
    process = at.spawn(
        ["sh", "-c", "cat; echo $WORD >&2; pwd; uname -n; exit 7"],
        environment={"WORD": "error"},
        folder="/usr",
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )
    sent = os.urandom(3 * WINDOW)
    printed, errors = process.communicate(sent)
    assert (printed == sent + f"/usr\n{at.name}\n".encode(), errors, process.returncode) == (True, b"error\n", 7)

    sleeping = at.spawn(["sh", "-c", "echo began; sleep 1000"], stdout=PIPE)
    assert sleeping.stdout.readline() == b"began\n"
    sleeping.send_signal(signal.SIGTERM)
    assert sleeping.wait(200) == -signal.SIGTERM

    # A relay that is killed takes its program with it, and what that has started.
    killed = at.spawn(["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=PIPE)
    process_there = killed.stdout.readline().decode().strip()
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    output(bed, NODE, "sh", "-c", f"while [ -e /proc/{process_there} ]; do sleep 0.1; done")

    missing = at.spawn(["no-such-program"], stderr=PIPE)
    assert b"cannot run no-such-program" in missing.communicate()[1]
    assert missing.returncode == 127

    burner = at.spawn(["python3", "-c", BURNER])
    assert burner.wait() == 0
    assert 0.28e9 <= at.use(burner.pid)[0] < 60e9, "known after its end"


@EACH_IF_SLOW
def test_files_are_copied_both_ways(bed: Testbed, tmp_path: Path) -> None:
    at = node(bed)
    folder = output(bed, NODE, "mktemp", "-d").strip()
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/program").write_bytes(os.urandom(WINDOW + 1))
    (tmp_path / "a/b/program").chmod(0o755)
    (tmp_path / "a/link").symlink_to("b/program")
    at.copy_in(tmp_path / "a", f"{folder}/deep/a")
    at.copy_in(tmp_path / "a/b/program", f"{folder}/deep/file")
    assert output(bed, NODE, "sh", "-c", f"cd {folder}/deep && cmp a/link file && stat -c %a file a/b/program") == (
        "755\n755\n"
    )
    at.copy_out(f"{folder}/deep", tmp_path / "back")
    assert (tmp_path / "back/file").read_bytes() == (tmp_path / "a/link").read_bytes()
    assert (tmp_path / "back/a/link").is_symlink()
    assert at.read(f"{folder}/deep/file", WINDOW) == (tmp_path / "a/link").read_bytes()[:WINDOW]
    with pytest.raises(FileNotFoundError):
        at.read(f"{folder}/nothing", 10)
    output(bed, NODE, "mkfifo", f"{folder}/pipe")
    with pytest.raises(OSError, match="not a regular file"):
        at.read(f"{folder}/pipe", 10)
    with pytest.raises(OSError, match="not a regular file"):
        at.copy_out(f"{folder}/pipe", tmp_path / "nothing")
    with pytest.raises(OSError, match="No such file"):
        at.copy_out("/no/such/file", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    output(bed, NODE, "rm", "-r", folder)
    # A shown file lies in the node's own folder.
    shown = at.show_file(str(tmp_path / "a/b/program"))
    assert output(bed, NODE, "sh", "-c", f"cd / && wc -c < {shown} && rm {shown}") == f"{WINDOW + 1}\n"


@EACH_IF_SLOW
def test_disk_of_limited_size_can_be_full(bed: Testbed) -> None:
    write = "head -c 4096 /dev/zero > file && echo written"
    at = node(bed)
    at.fill_disk(True)
    with pytest.raises(AssertionError, match="No space left"):
        output(bed, NODE, "sh", "-c", write)
    at.fill_disk(False)
    assert output(bed, NODE, "sh", "-c", write) == "written\n"
    assert int(output(bed, NODE, "df", "-B1", "--output=size", ".").split()[1]) == DISK


@EACH_IF_SLOW
def test_spans_are_forwarded_to_the_last(bed: Testbed, tmp_path: Path) -> None:
    at = node(bed)
    sockets = reports.ReportSockets(bed.sockets, {})
    (there,) = sockets.listen(reports.SPANS, "web", tmp_path / "record", Admission()).values()
    at.copy_in(SPANS, "spans.py")
    report = "import spans\nfor number in range(500): spans.report(f'phone-0/{number}', 'work', 1, 2)"
    process = at.spawn(["python3", "-c", report], environment={reports.SPANS.variable: at.show_socket(there)})
    assert process.wait() == 0
    sockets.close()
    assert len((tmp_path / "record").read_text().splitlines()) == 500


ECHO = """
import socket, sys
with socket.create_server(("", 7070)), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
    connection.connect(sys.argv[1])
    while data := connection.recv(1 << 16):
        connection.sendall(data)
"""


@EACH_IF_SLOW
def test_a_program_talks_with_a_socket_of_this_machine_and_its_ports_are_known(bed: Testbed) -> None:
    at = node(bed)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(bed.sockets / "echo"))
        listener.listen()
        process = at.spawn(["python3", "-c", ECHO, at.show_socket(str(bed.sockets / "echo"))])
        connection, _ = listener.accept()
    assert at.served(process.pid) == ([7070], [], 0)
    sent = os.urandom(4 * WINDOW)
    with connection, connection.makefile("rb") as reader:
        sending = threading.Thread(target=connection.sendall, args=(sent,))
        sending.start()
        assert reader.read(len(sent)) == sent
        sending.join()
        connection.shutdown(socket.SHUT_RDWR)
    assert process.wait() == 0
    assert at.served(process.pid) == ([], [], 0)


CONTROL_GROUPS = """
import os, signal, subprocess, sys, time
from pathlib import Path
from cellbed.testbed.machine.cgroups import ASIDE, MOST_PROCESSES, LimitsError, divide, locate, open_groups
root = Path("/sys/fs/cgroup")
noted = []
groups = open_groups("run", noted.append)
assert (groups.version, noted) == (2, [root / "cellbed/run"]), (groups.version, noted)
group = groups.create("node")
assert group.limits() == (None, None)
group.limit(0.25, 64 << 20)
assert group.limits() == (0.25, 64 << 20)

def inside(code):
    join = f"import os\\nfor path in {group.join_files!r}: open(path, 'w').write('0')\\n"
    return subprocess.Popen([sys.executable, "-c", join + code], stdout=subprocess.PIPE)

burner = inside("print('joined', flush=True)\\nwhile True: pass")
assert burner.stdout.readline() == b"joined\\n"
assert group.contains(burner.pid)
while group.sample().throttled_periods < 10: time.sleep(0.01)
sample = group.sample()
assert sample.periods >= sample.throttled_periods >= 10, sample
assert sample.throttled_ns > 0 and sample.cpu_ns > 0 and sample.memory_bytes > 0, sample
assert sample.oom_kills == 0, sample
burner.kill()
burner.wait()
assert int((Path(group.join_files[0]).parent / "pids.max").read_text()) == MOST_PROCESSES
hog = inside("held = [b'x' * (1 << 20) for _ in range(256)]")
assert hog.wait() == -signal.SIGKILL
assert group.sample().oom_kills == 1, group.sample()

# A group that holds processes is divided: they step aside into a child.
scope = root / "scope"
scope.mkdir()
asleep = subprocess.Popen(["sleep", "1000"])
(scope / "cgroup.procs").write_text(str(asleep.pid))
divide(scope)
assert (scope / ASIDE / "cgroup.procs").read_text().split() == [str(asleep.pid)]
assert {"cpu", "memory"} <= set((scope / "cgroup.subtree_control").read_text().split())
asleep.kill()
asleep.wait()

left = inside("import time; print('joined', flush=True); time.sleep(1000)")
assert left.stdout.readline() == b"joined\\n"
groups.remove()
assert left.wait() == -signal.SIGKILL
assert not (root / "cellbed/run").exists()

# An ordinary user divides a group that was delegated, and is refused elsewhere.
granted = root / "cellbed-1000"
granted.mkdir()
for path in (granted, granted / "cgroup.procs", granted / "cgroup.subtree_control", granted / "cgroup.threads"):
    os.chown(path, 1000, 1000)
if os.fork() == 0:
    (granted / "cgroup.procs").write_text("0")
    os.setuid(1000)
    own = open_groups("run", noted.append)
    assert own.folders == [granted / "runs/run"], own.folders
    mine = own.create("node")
    mine.limit(0.5, 32 << 20)
    assert mine.limits() == (0.5, 32 << 20)
    own.remove()
    os._exit(0)
assert os.wait()[1] == 0
if os.fork() == 0:
    os.setuid(1001)
    try:
        locate()
    except LimitsError as error:
        os._exit("not delegated to you" not in str(error))
    os._exit(2)
assert os.wait()[1] == 0
print("enforced")
"""


@pytest.mark.parametrize("bed", [SLOW_VM], indirect=True, scope="module")
def test_limits_are_enforced_by_control_groups_of_version_2(bed: Testbed) -> None:
    at = node(bed)
    for module in (agent, cgroups, errors, node_errors, privilege, temporary):
        at.copy_in(Path(module.__file__), f"library/{module.__name__.replace('.', '/')}.py")
    words = ["python3", "-c", CONTROL_GROUPS]
    process = at.spawn(words, environment={"PYTHONPATH": "library"}, stdout=PIPE, stderr=PIPE)
    printed, problem = process.communicate()
    assert printed == b"enforced\n", problem.decode()


@EACH_IF_SLOW
def test_all_programs_stand_still_and_are_killed(bed: Testbed) -> None:
    at = node(bed)
    process = at.spawn(["sh", "-c", "setsid sleep 1000 & echo $$ $!; wait"], stdout=PIPE)
    programs = process.stdout.readline().decode().split()

    def states() -> list[str]:
        script = 'for each; do cut -d" " -f3 /proc/$each/stat 2>&1 || echo gone; done'
        return output(bed, NODE, "sh", "-c", script, "sh", *programs).split("\n")[:-1]

    for number, state in ((signal.SIGSTOP, "T"), (signal.SIGCONT, "S")):
        at.signal(number)
        assert until(lambda state=state: states() == [state, state])
    at.signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert until(lambda: "gone" in states()[-1])


@EACH_IF_SLOW
def test_packets_of_full_size_pass_in_both_directions(bed: Testbed, tmp_path: Path) -> None:
    server = """
import socket
with socket.create_server(("", 5000), family=socket.AF_INET6, dualstack_ipv6=True) as server:
    print("ready", flush=True)
    for _ in range(2):
        connection, peer = server.accept()
        with connection:
            size = 0
            while data := connection.recv(65536):
                size += len(data)
            connection.sendall(bytes(size))
            print(peer[0], size, flush=True)
"""
    client = """
import socket, sys
for address in (sys.argv[1], "fd63:656c:6c62:1::2"):
    with socket.create_connection((address, 5000), 100) as connection:
        connection.sendall(bytes(300_000))
        connection.shutdown(socket.SHUT_WR)
        left = 300_000
        while data := connection.recv(65536):
            left -= len(data)
        assert left == 0
"""
    process = bed.nodes[PEER].spawn([sys.executable, "-c", server], stdout=PIPE)
    assert process.stdout.readline() == b"ready\n"
    output(bed, NODE, "python3", "-c", client, PEER)
    assert process.communicate()[0] == b"::ffff:100.64.0.2 300000\nfd63:656c:6c62::2 300000\n"


@EACH_IF_SLOW
def test_limits_hold_inside(bed: Testbed) -> None:
    at = node(bed)
    planned: Any = SimpleNamespace(name=NODE, cpus=LIMITS.cpus, memory_bytes=LIMITS.memory_bytes)
    proofs = prove_limits([Limited(planned, at.group, at)], 64)
    assert [proof.state for proof in proofs if proof.state != "not reached"] in (["holds"] * 2, ["holds"])
    # It keeps what it reads until the end of a line.
    assert at.spawn(["tail", "/dev/zero"]).wait() == -signal.SIGKILL
    assert output(bed, NODE, "echo", "alive") == "alive\n"
    sample = at.sample()
    assert sample.oom_kills
    assert sample.cpu_ns


@EACH_IF_SLOW
def test_clock_is_measured(bed: Testbed) -> None:
    at = node(bed)
    at.sample()
    reading = "import time; print(time.monotonic_ns())"
    before = json.loads(output(bed, PEER, sys.executable, "-c", reading))
    there = json.loads(output(bed, NODE, "python3", "-c", reading))
    after = json.loads(output(bed, PEER, sys.executable, "-c", reading))
    at.sample()
    assert before - at.clock.uncertainty_ns <= there - at.clock.offset_ns <= after + at.clock.uncertainty_ns
    if "accelerator" not in at.facts:  # the SSH machine has this machine's clock
        assert abs(at.clock.offset_ns) <= at.clock.uncertainty_ns
        assert at.facts["fragmented"]  # the MTU between the two is 1500


def test_host_that_cannot_be_used_is_one_sentence(ssh_machine: Machine, tmp_path: Path) -> None:
    unknown = ssh_machine.backend(options=[f"UserKnownHostsFile={tmp_path / 'none'}"])
    for table, sentence in (
        (unknown, "phone-0 cannot be reached: ssh .*Host key verification failed"),
        (ssh_machine.backend(ssh=f"nobody@{MACHINE}"), "phone-0 cannot be reached: ssh .*Permission denied"),
        (ssh_machine.backend(ssh=f"guest@{MACHINE}"), "phone-0 cannot be reached: ssh .*NOPASSWD"),
    ):
        with pytest.raises(CellbedError, match=sentence), open_bed(table, tmp_path):
            pass
        ((key, problem),) = HostNode.obstacles(table, running=True)
        assert (key, re.search(sentence.partition(".*")[2], problem) is not None) == ("ssh", True)
        assert list(HostNode.obstacles(table, running=False)) == []
    assert list(HostNode.obstacles(ssh_machine.backend(), running=True)) == []
    assert until(lambda: not leftovers()), leftovers()  # of other tests, too


@pytest.mark.slow
@pytest.mark.needs_tun
@pytest.mark.parametrize(
    ("dropped", "what"), [("udp dport 47890", "packets"), ("ip frag-off & 0x3fff != 0", "packets of 1500")]
)
def test_packets_that_no_datagrams_carry_cross_the_ssh_connection(
    ssh_machine: Machine, tmp_path: Path, dropped: str, what: str
) -> None:
    inside = ["nsenter", "--net", "--target", str(ssh_machine.process), "nft"]
    rules = f"table ip walls {{ chain in {{ type filter hook prerouting priority -500; {dropped} drop; }}; }}"
    subprocess.run([*inside, "-f", "-"], input=rules, text=True, check=True)
    fact = (
        f"an SSH connection .no {what}.* reach this machine through the tunnel to root@.* .UDP port 47890.., MTU 1500"
    )
    try:
        with open_bed(ssh_machine.backend(), tmp_path) as bed:
            assert re.fullmatch(fact, node(bed).facts["tunnel"])
    finally:
        subprocess.run([*inside, "delete", "table", "ip", "walls"], check=True)


@pytest.mark.needs_tun
@pytest.mark.skipif(shutil.which("sudo") is None, reason="sudo is missing: apt install sudo")
def test_programs_run_as_the_user_who_logs_in(ssh_machine: Machine, tmp_path: Path) -> None:
    with open_bed(ssh_machine.backend(ssh=f"pi@{MACHINE}"), tmp_path) as bed:
        (tmp_path / "file").write_text("text")
        node(bed).copy_in(tmp_path / "file", "deep/copy")
        assert output(bed, NODE, "sh", "-c", "id -u; stat -c %u deep/copy; echo $HOME") == "4242\n4242\n/tmp\n"
        # Links that wait for the sockets of the agent, which is root, and a folder deeper than its stack.
        secret = tmp_path / "secret"
        secret.touch(0o600)
        output(bed, NODE, "sh", "-c", f"for n in $(seq 0 9); do ln -s {secret} .cellbed-socket-$n; done")
        output(bed, NODE, "sh", "-c", "mkdir -p $(printf 'a/%.0s' $(seq 1500))")
        shown = node(bed).show_socket(str(bed.sockets / "none"))
        assert output(bed, NODE, "stat", "-c", "%F %a", shown) == "socket 666\n"
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert until(lambda: not leftovers()), leftovers()  # of other tests, too


def scenario(pi: Machine, further: str = "") -> str:
    """Two downloads by a machine over SSH, and what `further` describes."""
    return f"""
name = "mixed"
duration = "300 s"
nodes.pi = {{ class = "endpoint", cpus = 0.5, memory = "128 MiB", backend = {pi.toml} }}
nodes.edge = {{ cpus = 0.5, memory = "128 MiB" }}
links.mobile = {{ up = "20 Mbit/s", down = "20 Mbit/s", base_delay = "10 ms" }}
links.core.edge = "3 ms"
apps.files.kind = "program"
apps.files.server = {{ on = "edge", command = {json.dumps(["python3", "-c", SERVER])}, ready = {{ port = 8080 }} }}
apps.files.client = {{ on = "pi", command = {json.dumps(["python3", "-c", DOWNLOAD])}, copy_out = ["page"] }}
{further}
"""


# `python3 -m http.server` waits for a name server first.
SERVER = """
import http.server, socketserver
socketserver.TCPServer(("", 8080), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
SERVICE = """
import http.server, socketserver, time, spans
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with spans.span(self.headers["Cellbed-Request"], "work"):
            time.sleep(0.02)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
socketserver.ThreadingTCPServer.allow_reuse_address = True  # after a crash
socketserver.ThreadingTCPServer(("", 8081), Handler).serve_forever()
"""
TRACED = """
import os, struct, time, urllib.request
def number(value):
    return bytes([value & 127 | 128]) + number(value >> 7) if value > 127 else bytes([value])
def field(at, content):
    return number(at << 3 | 2) + number(len(content)) + content
time.sleep(3)  # a connection of `own` to the same server meanwhile could be the span's, too
began = time.time_ns()
urllib.request.urlopen("http://files:8080/").read()
times = struct.pack("<BQBQ", 7 << 3 | 1, began, 8 << 3 | 1, time.time_ns())
span = field(1, os.urandom(16)) + field(2, os.urandom(8)) + field(5, b"GET") + bytes([6 << 3, 3]) + times
given = [each.split("=") for each in os.environ["OTEL_RESOURCE_ATTRIBUTES"].split(",")]
attributes = b"".join(field(1, field(1, key.encode()) + field(2, field(1, value.encode()))) for key, value in given)
export = field(1, field(1, attributes) + field(2, field(2, span)))
where = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] + "/v1/traces"
sent = urllib.request.Request(where, export)
sent.add_header("Content-Type", "application/x-protobuf")
print(urllib.request.urlopen(sent).status)
"""
"""Exports a client span over OTLP, without a library."""
SPANS = Path(cellbed_spans.__file__)
DOWNLOAD = """
import time, urllib.request
for _ in range(2):
    began = time.monotonic()
    with urllib.request.urlopen("http://files:8080/") as reply, open("page", "wb") as page:
        page.write(reply.read())
    print(time.monotonic() - began)
"""
DELAY_S = 0.013


def measured(folder: Path) -> dict[str, dict[str, Any]]:
    """The nodes of the finished run in a folder, after checks of what its clients have printed."""
    (path,) = folder.glob("mixed-*")
    description = json.loads((path / "run.json").read_bytes())
    assert description["status"] == "complete"
    outputs = list(path.glob("raw/*.client.out"))
    assert outputs
    for printed in outputs:
        assert min(map(float, printed.read_text().split())) >= 4 * DELAY_S, printed
    assert (path / "files/files/pi-0/page").read_text().startswith("<!DOCTYPE")
    return {node["name"]: node for node in description["nodes"]}


@pytest.mark.needs_tun
def test_run_with_a_machine_over_ssh(ssh_machine: Machine, tmp_path: Path) -> None:
    further = f"""
nodes.phone = {{ class = "endpoint", cpus = 0.5, memory = "128 MiB" }}
apps.web.kind = "http"
apps.web.client = "phone"
apps.web.server.on = "pi"
apps.web.server.command = {json.dumps(["python3", "-c", SERVICE])}
apps.web.server.ready.port = 8081
apps.web.server.copy_in = {{ "{SPANS}" = "spans.py" }}
apps.web.url = "http://{{server.address}}:8081/"
apps.web.rate = "10 /s"
apps.web.stop = "17 s"
apps.own = {{ kind = "http", client = "pi", server = "edge", url = "http://files:8080/", rate = "10 /s", stop = "2 s" }}
apps.traced.kind = "program"
apps.traced.telemetry = true
apps.traced.client = {{ on = "pi", command = {json.dumps(["python3", "-c", TRACED])} }}
faults = [
  {{ kind = "pause", at = "8 s", for = "500 ms", node = "pi-0" }},
  {{ kind = "crash", at = "9 s", for = "500 ms", node = "pi-0" }},
]
"""
    (tmp_path / "mixed.toml").write_text(scenario(ssh_machine, further))
    cellbed("run", str(tmp_path / "mixed.toml"), "--out", str(tmp_path), status=0)
    (path,) = tmp_path.glob("mixed-*")
    starts = [each for each in read_events(path) if each["event"] == "program started"]
    assert [each["what"] for each in starts].count("web.pi-0.server") == 2
    summary = json.loads((path / "summary.json").read_text())
    used = {each["program"]: each for each in summary["programs"]}
    assert used["web.pi-0.server"]["cpu_s"] > 0
    assert used["web.pi-0.server"]["memory_peak_bytes"] > 1 << 20
    pause, crash = (each["losses"][0] for each in summary["faults"])
    assert pause["during"] - pause["during_lost"] > 0
    assert crash["during_lost"] + crash["during_late"] > 0
    everything = pl.read_parquet(path / "requests.parquet").filter(status="ok")
    own = everything.filter(app="own")
    assert len(own) == 20
    parts = own.select("part_uplink_delay", "part_server", "part_downlink_delay")
    assert parts.null_count().sum_horizontal().item() == 0
    assert parts.min().row(0) >= (DELAY_S, 0.0, DELAY_S)
    (traced,) = everything.filter(app="traced").iter_rows(named=True)
    assert traced["part_uplink_delay"] >= DELAY_S
    assert (path / "raw/traced.pi-0.client.out").read_text() == "200\n"
    requests = everything.filter(app="web")
    assert len(requests)
    assert requests["part_service_work"].min() > 0  # type: ignore[operator]
    (web,) = (each for each in summary["applications"] if each["name"] == "web")
    assert web["uncertainty"]["service_work"] > 0
    nodes = measured(tmp_path)
    assert nodes["pi-0"]["facts"]["tunnel"].startswith("VXLAN")
    clock = nodes["pi-0"]["clock"]
    assert abs(clock["offset_ns"]) <= clock["uncertainty_ns"]


@pytest.mark.slow
@pytest.mark.needs_tun
def test_run_with_each_kind_of_node(ssh_machine: Machine, vm_table: VmBackend, tmp_path: Path) -> None:
    if not all(NEEDED.values()):
        pytest.skip("a program that containers need is missing")
    image = f"localhost/cellbed-mixed:{os.getpid()}"
    import_image(image, ["podman"])
    download = DOWNLOAD.replace("files:8080/", "second:9090/passwd")
    further = f"""
nodes.phone = {{ class = "endpoint", cpus = 0.5, memory = "128 MiB", backend = {{ kind = "{vm_table.kind}" }} }}
nodes.box = {{ class = "edge", cpus = 0.5, memory = "128 MiB", backend = {{ kind = "container", image = "{image}" }} }}
apps.second.kind = "program"
apps.second.server = {{ on = "box", command = "httpd -f -p 9090 -h /etc", ready = {{ port = 9090 }} }}
apps.second.client = {{ on = "phone", command = {json.dumps(["python3", "-c", download])} }}
"""
    keys = {"client": "phone", "server": "edge", "url": "http://files:8080/", "rate": "5 /s", "stop": "3 s"}
    further += app_table("own", "http", **keys)
    (tmp_path / "mixed.toml").write_text(scenario(ssh_machine, further))
    try:
        done = cellbed("run", str(tmp_path / "mixed.toml"), "--out", str(tmp_path))
    finally:
        subprocess.run(["podman", "rmi", "--force", image], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    nodes = measured(tmp_path)
    assert [node["backend"]["kind"] for node in nodes.values()] == ["host", "vm", "namespace", "container"]
    (path,) = tmp_path.glob("mixed-*")
    own = pl.read_parquet(path / "requests.parquet").filter(app="own", status="ok")
    assert len(own) == 15
    assert own["part_uplink_delay"].min() >= DELAY_S  # type: ignore[operator]
    assert nodes["phone-0"]["facts"]["accelerator"] in ("kvm", "tcg")


STANDING = """
import json, os, signal, sys
from pathlib import Path
from cellbed.scenario.nodes import HostBackend, VmBackend
from in_process import cellbed
from remote_world import node, open_bed
table = json.loads(sys.argv[1])
backend = {"host": HostBackend, "vm": VmBackend}[table["kind"]].model_validate(table)
with open_bed(backend, Path(sys.argv[2])) as bed:
    children = [node(bed).spawn(["sleep", "1000"]) for _ in range(2)]
    print(node(bed).setup.run, flush=True)
    signal.pause()
"""


TAKE_OVER = """
import ctypes, json, os, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
agent = os.pidfd_open(1)
targets = [fd for fd in os.listdir("/proc/1/fd") if "vport" in os.readlink("/proc/1/fd/" + fd)] or ["1"]
stream = libc.syscall(438, agent, int(targets[0]), 0)  # pidfd_getfd
assert stream >= 0, os.strerror(ctypes.get_errno())
os.set_blocking(stream, True)
def frame(number, content):
    os.write(stream, struct.pack("!II", number, len(content)) + content)
frame(0, json.dumps({"connected": 1 << 31, "path": sys.argv[1], "socket": 0}).encode())
frame(1 << 31, b"POST /containers/create")
time.sleep(1000)
"""


@pytest.mark.needs_tun
@pytest.mark.parametrize("kind", ["host", pytest.param("vm", marks=pytest.mark.slow)])
def test_root_on_a_machine_reaches_no_socket_of_this_one(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    backend = backend_of(kind, request)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as private:
        private.bind(str(tmp_path / "private"))
        private.listen()
        private.setblocking(False)
        with open_bed(backend, tmp_path) as bed:
            taken = bed.nodes[NODE].spawn(["python3", "-c", TAKE_OVER, private.getsockname()], stderr=PIPE)
            _, errors = taken.communicate()
            assert b"the connection to the node is lost: its agent sent" in errors, errors
            with pytest.raises(CellbedError, match="phone-0 cannot be reached: its agent sent"):
                node(bed).call("use", process=1)
        with pytest.raises(BlockingIOError):
            private.accept()


@pytest.mark.needs_tun
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)])
def test_run_whose_hub_is_killed_or_stands_still_ends_with_one_error(
    ssh_machine: Machine, tmp_path: Path, number: signal.Signals
) -> None:
    text = scenario(ssh_machine).replace(', copy_out = ["page"]', "")
    (tmp_path / "mixed.toml").write_text(text.replace(json.dumps(["python3", "-c", DOWNLOAD]), '"sleep 1000"'))
    words = command("run", tmp_path / "mixed.toml", "--out", tmp_path)
    with subprocess.Popen(words, stderr=PIPE, stdout=PIPE, text=True) as running:
        assert until(lambda: any("load started" in path.read_text() for path in tmp_path.glob("mixed-*/events.jsonl")))
        started = descendants(running.pid)
        (hub,) = (each for each, line in started.items() if b"cellbed.testbed.nodes.agent_hub\0hub\0" in line)
        run = psutil.Process(hub).environ()["CELLBED_RUN"]
        os.kill(hub, number)
        _, errors = running.communicate()
    assert running.returncode == 1, errors
    (error,) = (line for line in errors.splitlines() if line.startswith("error: "))
    assert "pi-0" in error
    assert "its hub" in error
    assert "Traceback" not in errors
    assert until(lambda: not processes_of(run))
    assert until(lambda: not leftovers()), leftovers()


@pytest.mark.slow
@pytest.mark.needs_tun
@pytest.mark.parametrize(("kind", "times"), [("host", 10), ("vm", 4)])
def test_processes_killed_at_random_leave_nothing(
    kind: str, times: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    backend = backend_of(kind, request)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.with_name("support"))}
    command = [sys.executable, "-c", STANDING, backend.model_dump_json(), str(tmp_path)]
    for number in range(times):
        chosen = random.Random(number)
        with subprocess.Popen(command, env=environment, stdout=PIPE, stderr=PIPE) as standing:
            run = standing.stdout.readline().decode().strip()
            processes = processes_of(run)  # beside the run; at first only the run itself is killed
            for process in chosen.sample(processes, chosen.randint(1, len(processes)) if number else 0):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            standing.kill()
        assert until(lambda run=run: not processes_of(run)), [*map(command_line, processes_of(run))]
        clean()
    while True:
        # If the agent of a host was killed together with its parent, the next one removes its group and folder, once
        # the killed process has been waited for.
        with open_bed(backend, tmp_path):
            pass
        if until(lambda: not leftovers()):
            break
