"""Published experiments: scripts written for Mahimahi run unchanged for a user with the network helper."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellbed.doctor import changes
from cellbed.testbed.machine.process import inhabitants
from shell_world import ASK, ECHO, GRANTED_USER, World, missing, open_world, python, wait_until

if missing() is None and not changes.COMPILED_HELPER.exists():
    pytestmark = pytest.mark.skip(reason="needs the compiled helper: make setup")
else:
    pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

HOST_PORT = "4711"
INNER_PORT = "5000"
# Runs each line of standard input by the shell, and reports that it is there, as the managers of Pantheon's tunnels do.
MANAGER = """
import subprocess, sys
print("manager is running", flush=True)
for line in sys.stdin:
    if line == "halt\\n":
        break
    print(subprocess.run(line, shell=True, capture_output=True, text=True).stdout.strip(), flush=True)
"""
CALL_LINES = {
    "CCP": (
        "mm-delay 5 mm-link --downlink-queue=droptail --downlink-queue-args='packets=800' up down ./client 100.64.0.1"
    ),
    "Park": (
        "mm-delay 5 mm-link up down --meter-uplink --meter-uplink-delay --uplink-queue=pie --downlink-queue=infinite "
        '--uplink-queue-args="packets=500, qdelay_ref=100, max_burst=10" ./client 100.64.0.1 2>/dev/null'
    ),
    "genericCC": (
        "mm-delay 5 mm-loss uplink 0.0 mm-link up down --uplink-log up.log --downlink-log down.log "
        "--uplink-queue=droptail --uplink-queue-args=bytes=60000.0 ./client 100.64.0.1"
    ),
    "L4S duo": (
        "mm-delay 5 mm-link --meter-all --uplink-log=up.log --downlink-log=down.log --uplink-queue=droptail "
        '--uplink-queue-args="packets=100,interval=100,target=5" up down -- bash -c "./client 10.0.0.1" 2>/dev/null'
    ),
    "Octopus": (
        "timeout 60 mm-delay 5 mm-link up down --uplink-queue=droptail "
        '--uplink-queue-args=\\"packets=250,log_file=octopus_link.log,\\" ./client 10.0.0.1'
    ),
    "Nebby": (
        "mm-delay 5 mm-link up down --uplink-queue=droptail --uplink-queue-args=bytes=100KB --downlink-queue=droptail "
        '--downlink-queue-args="bytes=5000000000" -- bash -c "./setuid-ip -s link show ingress | grep -q RX: && '
        'mm-delay 1 ./client \\$MAHIMAHI_BASE"'
    ),
}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as world:
        world.install_mahimahi()
        world.grant(GRANTED_USER)
        world.serve(ECHO, "::", HOST_PORT)
        home = world.home(GRANTED_USER)
        for name in ("up", "down"):
            (home / name).write_text("1\n2\n3\n")
        (home / "client").write_text(f'#!/bin/sh\nexec {shlex.join(python(ASK))} "$1" {HOST_PORT}\n')
        (home / "client").chmod(0o755)
        # Set-uid root, as sudo, tcpdump and Pantheon's tunnels are on the machines of such scripts.
        shutil.copy(shutil.which("ip") or "", home / "setuid-ip")
        (home / "setuid-ip").chmod(0o4755)
        yield world


def script(world: World, text: str) -> list[str]:
    """The command that runs a script in the user's home."""
    return world.on_path("bash", "-c", f"cd {world.home(GRANTED_USER)}; {text}")


def lines(process: subprocess.Popen[str], last: str) -> list[str]:
    """Lines of standard output up to `last`."""
    found = []
    for line in iter(process.stdout.readline, ""):
        found.append(line.strip())
        if found[-1] == last:
            return found
    pytest.fail(f"the command ended: {found}: {process.stderr.read()}")


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(line, id=name, marks=[] if name in ("CCP", "Park", "Octopus") else pytest.mark.slow)
        for name, line in CALL_LINES.items()
    ],
)
def test_a_published_call_line_reaches_its_server(world: World, call: str) -> None:
    done = world.run(script(world, call), user=GRANTED_USER)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith("::ffff:100.64.0."), done.stderr


def test_devices_addresses_and_routes_are_where_scripts_look(world: World) -> None:
    before = world.traces()
    server = shlex.join(python(ECHO, "::", INNER_PORT))
    look = "ip route; ip -o addr; cat /proc/sys/net/ipv4/ip_forward; echo $MAHIMAHI_BASE"
    process = world.start(
        script(world, f"exec mm-delay 20 sh -c {shlex.quote(f'{look}; exec {server}')}"), user=GRANTED_USER
    )
    inside = "\n".join(lines(process, "ready"))
    assert "default via 100.64.0.1 dev ingress" in inside
    assert "100.64.0.2 peer 100.64.0.1/32" in inside
    assert inside.endswith("\n1\n100.64.0.1\nready")
    # What CCP's scripts do with the host's device.
    find = "ip -o link | grep delay | awk '{print $2}' | sed 's/://g'"
    device = world.run(["sh", "-c", f"x=$({find}) && tc qdisc add dev $x root pfifo && echo $x"])
    assert device.stdout == f"delay-{process.pid}\n", device.stderr
    # The sender outside, the receiver in the shell.
    assert world.run(python(ASK, "100.64.0.2", INNER_PORT)).stdout.strip() == "::ffff:100.64.0.1"
    # A second shell beside the first has the next addresses; the shell inside that one has those after them.
    done = world.run(
        script(world, 'mm-delay 1 sh -c "echo \\$MAHIMAHI_BASE; ./client 100.64.0.1; mm-meter ip route"'),
        user=GRANTED_USER,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("100.64.0.3\n::ffff:100.64.0.4\n")
    assert "default via 100.64.0.5 dev ingress" in done.stdout
    # `killall -9 mm-delay`
    host = Path(f"/proc/{world.holders()[0]}/ns/net").stat().st_ino
    for number in inhabitants(host):
        if Path(f"/proc/{number}/comm").read_text() == "mm-delay\n":
            os.kill(number, signal.SIGKILL)
    process.wait()
    wait_until(lambda: world.traces() == before)


def test_a_manager_behind_the_link_starts_set_uid_tunnels(world: World) -> None:
    # Pantheon's default call: a manager on pipes in a session of its own, whose commands create devices inside.
    home = world.home(GRANTED_USER)
    (home / "manager.py").write_text(MANAGER)
    call = "mm-delay 10 mm-link up down --uplink-log=up.log --downlink-log=down.log"
    process = world.start(script(world, f"exec {call} {sys.executable} manager.py"), user=GRANTED_USER)
    lines(process, "manager is running")
    tunnel = "tuntap add dev tunnel mode tun", "addr add 100.64.0.77 dev tunnel", "-br addr show tunnel"
    process.stdin.write("; ".join(f"./setuid-ip {command}" for command in tunnel) + "\n")
    process.stdin.write("id -u\necho last\nhalt\n")
    process.stdin.flush()
    answers = lines(process, "last")
    assert "100.64.0.77/32" in answers[0]
    assert answers[1] == str(GRANTED_USER)
    assert process.wait(200) == 0
