"""The network helper: what an ordinary user gets through it, what it refuses, and what a kill leaves."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cellbed.doctor import changes
from cellbed.doctor.machine import Machine
from cellbed.testbed.machine.privilege import NETWORK_HELPER, NETWORK_USERS
from shell_world import (
    ASK,
    ECHO,
    GRANTED_USER,
    INTERNET,
    ORDINARY_USER,
    World,
    cellbed,
    missing,
    next_line,
    open_world,
    python,
    wait_until,
)

if missing() is None and not changes.COMPILED_HELPER.exists():
    pytestmark = pytest.mark.skip(reason="needs the compiled helper: make setup")
else:
    pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

HOST_PORT = "4711"
# Notes each connection that comes up in the file ARGV[2].
NOTING = """
import socket, sys
server = socket.create_server(("0.0.0.0", int(sys.argv[1])))
print("ready", flush=True)
while True:
    connection, peer = server.accept()
    with open(sys.argv[2], "a") as file:
        file.write("connected\\n")
"""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 0.5)"
# `cellbed-net enter` with a network namespace.
ENTER = """
import os, subprocess, sys
namespace, (read, write) = os.open(sys.argv[2], os.O_RDONLY), os.pipe()
done = subprocess.run([sys.argv[1], "enter", str(namespace), str(write), "--", "id"], pass_fds=(namespace, write))
os.close(write)
print(done.returncode, os.read(read, 4096).decode())
"""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as world:
        world.install_mahimahi()
        world.grant(GRANTED_USER)
        world.serve(ECHO, "::", HOST_PORT)
        yield world


def helper(world: World, *arguments: str, user: int) -> subprocess.CompletedProcess[str]:
    return world.run([str(NETWORK_HELPER), *arguments], user=user)


@pytest.mark.parametrize("user", [GRANTED_USER, ORDINARY_USER], ids=["granted", "ordinary"])
def test_addresses_that_public_scripts_have_for_the_host_lead_there(world: World, user: int) -> None:
    before = world.traces()
    asks = [python(ASK, host, HOST_PORT) for host in ("$MAHIMAHI_BASE", "100.64.0.1", "10.0.0.1")]
    script = "ip -o -4 address show dev ingress; ip route; cat /proc/sys/net/ipv4/ip_forward; "
    script += "; ".join(f"{sys.executable} -c '{ASK}' {ask[-2]} {HOST_PORT}" for ask in asks)
    done = world.run(world.on_path("mm-delay", "1", "sh", "-c", script), user=user)
    address, default, *rest = done.stdout.splitlines()
    assert "inet 100.64.0.2 peer 100.64.0.1/32" in address, done.stderr
    assert default.startswith("default via 100.64.0.1 dev ingress")
    assert rest[1] == "1"
    assert len(rest) == 5, done.stderr
    nested = ["mm-delay", "1", "mm-link", "12mbit", "12mbit", "--", *python(ASK, "10.0.0.1", HOST_PORT)]
    done = world.run(world.on_path(*nested), user=user)
    assert done.returncode == 0, done.stderr
    assert world.traces() == before


@pytest.mark.parametrize("user", [0, GRANTED_USER, ORDINARY_USER], ids=["root", "granted", "ordinary"])
def test_tcp_to_the_outside_runs_from_end_to_end_but_for_a_user_without_the_helper(world: World, user: int) -> None:
    noted = world.folder / f"noted-{user}"
    port = str(5000 + user % 1000)
    world.serve(NOTING, port, str(noted), internet=True)
    # The answer to the first segment is lost: the server has no connection unless somebody else answers in front of it.
    done = world.run(world.on_path("mm-loss", "downlink", "1", *python(CONNECT, INTERNET, port)), user=user)
    assert done.stderr.endswith("TimeoutError: timed out\n")
    assert ("TCP to the outside ends in " in done.stderr) == (user == ORDINARY_USER)
    if user == ORDINARY_USER:
        wait_until(noted.exists)
    else:
        assert not noted.exists()


def test_a_kill_of_everything_leaves_nothing(world: World) -> None:
    before = world.traces()
    script = "setsid sleep 1001 & echo $!; sleep 1000"
    process = world.start(world.on_path("mm-delay", "1", "sh", "-c", script), user=GRANTED_USER)
    daemon = process.stdout.readline().strip()
    wait_until(lambda: os.getsid(int(daemon)) == int(daemon))
    assert world.traces() != before
    os.killpg(process.pid, signal.SIGKILL)
    wait_until(lambda: world.traces() == before)
    # In a session of its own, it outlives the shell.
    process.wait()
    assert "ended 1 process" in world.run(cellbed("clean"), user=GRANTED_USER).stdout
    wait_until(lambda: not Path(f"/proc/{daemon}").exists())


def test_a_granted_user_stays_who_he_is_and_set_user_id_programs_work(world: World) -> None:
    program = world.folder / "id"
    shutil.copy("/usr/bin/id", program)
    program.chmod(0o4755)
    script = f"id -u; {program} -u; grep -h -e NoNewPrivs -e CapEff /proc/self/status; echo $TMPDIR $LD_LIBRARY_PATH"
    shell = [*cellbed("shell"), "--", "sh", "-c", script]
    done = world.run(["env", "TMPDIR=/a", "LD_LIBRARY_PATH=/b", *shell], user=GRANTED_USER)
    user, effective, capabilities, privileges, kept = done.stdout.splitlines()
    assert (user, effective) == (str(GRANTED_USER), "0"), done.stderr
    assert capabilities.split()[1].strip("0") == ""
    assert privileges.split() == ["NoNewPrivs:", "0"]
    assert kept == "/a /b"


def test_the_helper_serves_nobody_else(world: World) -> None:
    done = helper(world, "serve", "delay", user=ORDINARY_USER)
    assert done.returncode == 1
    assert f"user {ORDINARY_USER} may not use it" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_helper_enters_nothing_but_a_shell_of_the_user(world: World) -> None:
    # With the alias by which the helper knows a shell's namespace, in a user namespace of the user's.
    forge = f"""
        ip link add ingress type veth
        ip link set ingress alias "cellbed shell of user {GRANTED_USER}"
        ip link show ingress
        read x
    """
    forger = world.start(["unshare", "--map-root-user", "--net", "sh", "-ec", forge], user=GRANTED_USER)
    while "alias cellbed shell of user" not in (line := forger.stdout.readline()):
        assert line
    for namespace in ("/proc/self/ns/net", f"/proc/{forger.pid}/ns/net"):
        done = world.run(python(ENTER, str(NETWORK_HELPER), namespace), user=GRANTED_USER)
        assert done.stdout.startswith("1 "), done.stderr
        assert "belongs to no shell of this user" in done.stdout
    forger.communicate("\n", timeout=200)


def test_the_helper_refuses_what_is_not_in_its_grammar(world: World) -> None:
    before = world.traces()
    for words in ("serve eth", "serve delay --private", "delete x", "enter 0 1 -- id"):
        done = helper(world, *words.split(), user=GRANTED_USER)
        assert (done.returncode in (1, 2), done.stderr.count("\n")) == (True, 1), words
    assert world.traces() == before


def test_a_spoofed_source_address_does_not_leave_the_device(world: World) -> None:
    # A holder of the device can write any packet to it. Here root shows it with another address inside.
    script = f"ip address add 192.0.2.9/32 dev cellbed0; {sys.executable} -c '{SPOOF}' {INTERNET}"
    done = world.shell("--", "sh", "-c", script)
    assert done.stdout == "own True\nother False\n", done.stderr


SPOOF = """
import socket, sys
for name, source in (("own", ""), ("other", "192.0.2.9")):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((source, 0))
    s.settimeout(0.5 if source else 200)
    s.sendto(b"x", (sys.argv[1], 7))
    try:
        print(name, bool(s.recv(99)))
    except TimeoutError:
        print(name, False)
"""


def test_a_connection_through_pasta_to_a_distant_server_comes_up(world: World) -> None:
    if shutil.which("pasta") is None:
        pytest.skip("needs pasta")
    far = [*cellbed("shell"), "--delay", "50", "--publish", "5050", "--", *python(ECHO, "::", "5050")]
    process = subprocess.Popen(
        world.command(far, internet=True), stdout=subprocess.PIPE, text=True, env=world.environment()
    )
    try:
        assert process.stdout.readline() == "ready\n"
        world.hide("slirp4netns")
        done = world.shell("--", *python(ASK, INTERNET, "5050"), user=ORDINARY_USER)
        assert done.returncode == 0, done.stderr
    finally:
        process.terminate()
        process.communicate()


def test_the_grant_is_shared_renewed_and_revoked(tmp_path: Path) -> None:
    program = tmp_path / "compiled"
    program.write_bytes(b"program")
    first, second = (Machine(root=tmp_path, user=user) for user in (1001, 1002))
    installed = tmp_path / str(NETWORK_HELPER).lstrip("/")
    for machine in (first, second):
        changes.do(list(changes.network_helper(machine, program)), machine)
        assert list(changes.network_helper(machine, program)) == []
    assert installed.read_bytes() == b"program"
    assert installed.stat().st_mode & 0o7777 == 0o755
    assert os.getxattr(installed, "security.capability") == changes.NETWORK_CAPABILITIES
    program.write_bytes(b"newer")
    changes.do(list(changes.network_helper(first, program)), first)
    assert installed.read_bytes() == b"newer"
    users = tmp_path / str(NETWORK_USERS).lstrip("/")
    assert users.read_text() == "1001\n1002\n"
    changes.undo(first)
    assert users.read_text() == "1002\n"
    assert installed.exists()
    changes.undo(second)
    assert not installed.parent.exists()
    assert not users.parent.exists()


def test_what_a_killed_helper_leaves_is_removed_by_the_next(world: World) -> None:
    before = world.traces()
    table = "table inet cellbed.0.delay-1 { chain c { type filter hook forward priority 0; policy accept; }; }\n"
    assert world.run(["nft", table]).returncode == 0
    assert world.shell("--", "true").returncode == 0
    assert world.traces() == before


def go_on(caller: subprocess.Popen[str]) -> None:
    caller.stdin.write("\n")
    caller.stdin.flush()


def serve_by_hand(world: World, *then: str) -> subprocess.Popen[str]:
    """Start a caller of the helper, a user's own program: it prints the device and the helper's process, reads a line,
    and continues with the statements `then`; `ours` is its socket, `tun` the device's descriptor, `helper` the process.
    """
    return world.start(python("\n".join([CALLER, *then]), str(NETWORK_HELPER)), user=GRANTED_USER)


CALLER = """
import fcntl, json, os, signal, socket, subprocess, sys, time
ours, theirs = socket.socketpair()
helper = subprocess.Popen([sys.argv[1], "serve", "delay"], stdin=theirs)
theirs.close()
text, (tun, *others), _, _ = socket.recv_fds(ours, 4096, 8)
event = json.loads(text)
print(event["device"], helper.pid, flush=True)
sys.stdin.readline()
"""
CLOSE = "ours.close()"
WAIT = "sys.stdin.readline()"
PERSIST = "fcntl.ioctl(tun, 0x400454CB, 1)  # TUNSETPERSIST"
WRITE = """
try:
    os.write(tun, bytes(10) + b"E" + bytes(19))
    print("written", flush=True)
except OSError as error:
    print(error.strerror, flush=True)
"""
# Attaches to an existing device.
ATTACH = """
import fcntl, os, struct, sys
tun = os.open("/dev/net/tun", os.O_RDWR)
try:
    fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", sys.argv[1].encode(), 0x5001))
    print("attached")
except OSError as error:
    print(error.strerror)
"""


@contextmanager
def stopping_nft(world: World, on: str) -> Iterator[None]:
    """Let nft stop the process that has called it, and wait, where its commands contain `on`."""
    real = str(Path(shutil.which("nft") or "").resolve())
    kept, wrapper = world.folder / "nft.kept", world.folder / "nft.wrapper"
    shutil.copy(real, kept)
    kept.chmod(0o755)
    wrapper.write_text(
        f"#!/bin/sh\ntext=$(cat)\ncase $text in *'{on}'*) kill -STOP $PPID; exit 1;; esac\n"
        f'printf \'%s\\n\' "$text" | {kept} "$@"\n'
    )
    wrapper.chmod(0o755)
    assert world.run(["mount", "--bind", str(wrapper), real]).returncode == 0
    try:
        yield
    finally:
        assert world.run(["umount", real]).returncode == 0


def is_stopped(pid: str) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_helper_that_is_stopped_while_it_removes_its_rules_leaves_no_device(world: World) -> None:
    before = world.traces()
    with stopping_nft(world, "delete table"):
        caller = serve_by_hand(world, CLOSE, WAIT, WRITE)
        device, helper_pid = next_line(caller).split()
        assert device in world.devices()
        go_on(caller)
        wait_until(lambda: is_stopped(helper_pid))
        # Its user may keep the device's descriptor: without the rules any packet could be written to it.
        assert device not in world.devices()
        assert device in world.rules()
        go_on(caller)
        assert next_line(caller) == "File descriptor in bad state"
        os.kill(int(helper_pid), signal.SIGKILL)
        caller.communicate(timeout=200)
    assert helper(world, "clean", user=GRANTED_USER).returncode == 0
    assert world.traces() == before


def test_a_device_that_its_user_made_persistent_keeps_its_rules_and_is_cleaned_up(world: World) -> None:
    before = world.traces()
    caller = serve_by_hand(world, PERSIST, "helper.kill()", "helper.wait()")
    device, _ = next_line(caller).split()
    caller.communicate("\n", timeout=200)
    assert device in world.devices()
    assert f"cellbed.{GRANTED_USER}.{device}" in world.rules()
    # The grant does not spread to others who may open /dev/net/tun.
    attached = world.run(python(ATTACH, device), user=ORDINARY_USER)
    assert attached.stdout == "Operation not permitted\n", attached.stderr
    done = helper(world, "clean", user=GRANTED_USER)
    assert done.stdout == f"removed the packet filter rules of {device}, a shell that was killed\n", done.stderr
    assert world.traces() == before


def test_nobody_else_can_hold_up_the_helper(world: World) -> None:
    hold = ["sh", "-c", "flock -x /proc/self/ns/net sh -c 'echo ready; exec sleep 1000' 2>&1"]
    holder = world.start(hold, user=ORDINARY_USER)
    assert next_line(holder) == "ready"
    refused = world.run(["flock", "-x", LOCK, "echo", "locked"], user=ORDINARY_USER)
    assert "Permission denied" in refused.stderr
    for user in (0, GRANTED_USER):
        done = world.shell("--", "echo", "inside", user=user)
        assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr
    os.killpg(holder.pid, signal.SIGKILL)


LOCK = "/proc/sys/net/ipv4/tcp_fastopen_key"


@contextmanager
def locked(world: World) -> Iterator[int]:
    """Hold the helpers' lock, as a helper does that its user has stopped; gives the process."""
    holder = world.start(["flock", "-x", LOCK, "sh", "-c", "echo ready; exec sleep 1000"])
    assert next_line(holder) == "ready"
    try:
        yield holder.pid
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.wait()


def test_a_shell_removes_its_rules_while_a_stopped_helper_has_the_lock(world: World) -> None:
    before = world.traces()
    caller = serve_by_hand(world, CLOSE, "helper.wait()")
    device, _ = next_line(caller).split()
    with locked(world):
        go_on(caller)
        wait_until(lambda: device not in world.devices() and device not in world.rules())
    caller.communicate(timeout=200)
    assert world.traces() == before


@pytest.mark.slow
def test_the_helper_names_the_process_that_has_the_lock(world: World) -> None:
    with locked(world) as holder:
        done = helper(world, "clean", user=GRANTED_USER)
    assert done.returncode == 1
    text = f"another network helper, process {holder}, has held the lock for 10 s; if it is stopped, an administrator"
    assert done.stderr == f"cellbed-net: {text} ends it with `kill -9 {holder}`\n"


def test_a_shell_takes_one_name_server(world: World) -> None:
    before = world.traces()
    ask = "for _ in range(2): ours.sendall(b'names 5000\\n'); print(ours.recv(4096).decode().strip(), flush=True)"
    caller = serve_by_hand(world, ask)
    next_line(caller)
    output, _ = caller.communicate("\n", timeout=200)
    events = [json.loads(line) for line in output.splitlines()]
    assert events[0] == {"event": "done"}
    assert events[1] == {"event": "error", "message": "names: the shell has a name server already"}
    wait_until(lambda: world.traces() == before)
