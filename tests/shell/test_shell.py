"""`cellbed shell` as its users meet it: real programs behind a real link, in namespaces made for the test."""

import json
import os
import shlex
import shutil
import signal
from pathlib import Path

import psutil
import pytest

from cellbed.testbed.machine.state import process_start
from run_commands import command_line
from shell_world import (
    ASK,
    ECHO,
    HOST,
    INTERNET,
    INTERNET_IPV6,
    NAME_SERVER,
    ORDINARY_USER,
    Terminal,
    World,
    cellbed,
    missing,
    next_line,
    python,
    wait_until,
    without_remark,
)

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

BOTH_USERS = pytest.mark.parametrize("user", [0, ORDINARY_USER], ids=["root", "ordinary"])
RESOLVE = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"
RESOLVE_OVER_TCP = """
import socket
[address] = [line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver")]
query = bytes.fromhex("beef01000001000000000000") + b"\\4edge\\4test\\0" + bytes.fromhex("00010001")
connection = socket.create_connection((address, 53), 100)
connection.sendall(len(query).to_bytes(2, "big") + query)
reply = connection.makefile("rb").read()
print(".".join(map(str, reply[-4:])))
"""
PARENT = """
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
child = os.fork()
if child:
    print(os.getpid(), child, flush=True)
time.sleep(1000)
"""
ROUND_TRIP = """
import socket, sys, time
begin = time.monotonic()
socket.create_connection((sys.argv[1], 7), 100)
print(time.monotonic() - begin)
"""


def in_turn(*commands: list[str]) -> list[str]:
    """Commands one after the other, as one; the first that fails is the last."""
    return ["sh", "-ec", "\n".join(map(shlex.join, commands))]


@pytest.mark.parametrize(("user", "nested"), [(0, False), (ORDINARY_USER, True)], ids=["root", "ordinary-nested"])
def test_a_program_reaches_the_network_and_the_loopback_resolver_of_the_host(
    world: World, user: int, nested: bool
) -> None:
    if user and shutil.which("pasta") is None:
        pytest.skip("needs pasta")
    world.hide("slirp4netns")  # it has no IPv6
    world.serve(NAME_SERVER, "127.0.0.53")
    world.resolve_with("nameserver 127.0.0.53\noptions timeout:5\n")
    inner = [*cellbed("shell"), "--delay", "1", "--"] if nested else []
    asks = python(ASK, INTERNET, "7"), python(ASK, INTERNET_IPV6, "7"), python(RESOLVE, "edge.test")
    command = [*inner, *in_turn(*asks, python(RESOLVE_OVER_TCP))]
    done = world.shell("--up", "50 Mbit/s", "--down", "50 Mbit/s", "--", *command, user=user)
    assert done.returncode == 0, done.stderr
    # The internet sees the host's address, not the shell's.
    assert done.stdout.split() == [f"::ffff:{HOST}", f"{INTERNET_IPV6[:-1]}2", "203.0.113.7", "203.0.113.7"]
    assert without_remark(done.stderr) == ""
    assert world.run(["cat", "/etc/resolv.conf"]).stdout.startswith("nameserver 127.0.0.53")


def test_the_program_has_its_arguments_its_user_and_its_files_and_gives_the_exit_status(world: World) -> None:
    home = world.home(ORDINARY_USER)
    script = f"id -u; id -g; echo written > {home}/file; cat {home}/file; exit 7"
    done = world.shell("--offline", "--", "sh", "-c", script, user=ORDINARY_USER)
    assert (done.returncode, done.stdout.split()) == (7, [str(ORDINARY_USER), str(ORDINARY_USER), "written"])
    assert (home / "file").stat().st_uid == ORDINARY_USER
    done = world.shell("--offline", "sh", "-c", 'echo "$@"; kill -TERM $$', "sh", "--up", "x", "--help")
    assert (done.returncode, done.stdout) == (143, "--up x --help\n")
    done = world.shell("--offline", "--", "no-such-program")
    assert (done.returncode, done.stderr) == (127, "cellbed shell: no command is called 'no-such-program'\n")


def test_shells_nest_their_delays_add_up_and_the_host_is_at_the_gateway(world: World) -> None:
    world.serve(ECHO, "::", "4711")
    inner = ["--delay", "10", "--", "sh", "-c", 'echo $CELLBED_SHELL $CELLBED_GATEWAY; exec "$@"', "sh"]
    # The gateway of the outermost shell is the way out of all of them.
    command = in_turn(python(ROUND_TRIP, INTERNET), python(ASK, "100.127.0.1", "4711"))
    for _ in range(3):
        command = [*cellbed("shell"), *inner, *command]
    done = world.run(command, user=ORDINARY_USER)
    assert done.returncode == 0, done.stderr
    *levels, round_trip, host = done.stdout.splitlines()
    assert host
    assert levels == ["1 100.127.0.1", "2 100.127.0.1", "3 100.127.0.1"]
    assert float(round_trip) >= 0.060
    assert without_remark(done.stderr) == ""


def test_a_log_of_every_packet_says_itself_what_it_is_of(world: World) -> None:
    log = world.home(ORDINARY_USER) / "packets.bin"
    (world.home(ORDINARY_USER) / "train.up").write_text("".join(f"{ms}\n" for ms in range(1, 1001)))
    link = ["--up", str(world.home(ORDINARY_USER) / "train.up"), "--delay", "5 ms", "--log", str(log)]
    done = world.shell(*link, "--", *python(ASK, INTERNET, "7"), user=ORDINARY_USER)
    assert done.returncode == 0, done.stderr
    shown = world.run([*cellbed("log"), "show", str(log), "--json"], user=ORDINARY_USER)
    uplink, downlink = json.loads(shown.stdout)
    assert (uplink["name"], downlink["name"]) == ("uplink", "downlink")
    # A connection from the inside: SYN, ACK and FIN or more.
    assert min(uplink["packets"], downlink["packets"]) >= 2
    assert min(uplink["delay_ms"][0], downlink["delay_ms"][0]) >= 5.0
    ours = ["log", "convert", str(log), "--to", "mahimahi", "--direction", "uplink", "-o", "-"]
    lines = world.run([*cellbed(ours[0]), *ours[1:]], user=ORDINARY_USER).stdout.splitlines()
    assert {line.split()[1] for line in lines if line[0] != "#"} == {"+", "#", "-"}


def test_an_ordinary_user_without_a_helper_is_told_once_and_has_a_shell(world: World) -> None:
    for program in ("pasta", "slirp4netns"):
        world.hide(program)
    done = world.shell("--delay", "1", "--", "echo", "works", user=ORDINARY_USER)
    assert done.stdout == "works\n"
    assert done.stderr.count("\n") == 1
    assert "apt install slirp4netns" in done.stderr
    connect = "import socket, sys; socket.create_connection((sys.argv[1], 7), 3)"
    silent = world.shell("--offline", "--", *python(connect, INTERNET), user=ORDINARY_USER)
    assert silent.returncode == 1
    assert "cellbed shell" not in silent.stderr


def test_the_end_of_the_emulator_is_told_and_ends_the_command(world: World) -> None:
    process = world.start([*cellbed("shell"), "--", "sh", "-c", "echo up; exec sleep 1000"])
    next_line(process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    [emulator] = [child for child in children if "emulate" in Path(f"/proc/{child}/cmdline").read_text()]
    os.kill(int(emulator), signal.SIGKILL)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 128 + signal.SIGTERM
    assert errors == "cellbed shell: the emulator ended unexpectedly; the link is gone, the command is ended\n"
    assert "cellbed" not in world.rules()
    assert world.setting("ipv4/ip_forward") == "0"


def test_a_tun_device_that_may_not_be_opened_is_one_clear_error(world: World) -> None:
    assert world.run(["chmod", "600", "/dev/net/tun"]).returncode == 0
    done = world.shell("--", "true", user=ORDINARY_USER)
    assert done.returncode == 1
    assert "cannot open /dev/net/tun: Permission denied" in done.stderr
    assert "`sudo chmod 0666 /dev/net/tun`" in done.stderr
    assert done.stderr.count("\n") == 1
    assert world.records(ORDINARY_USER) == []
    said = world.run(cellbed("doctor"), user=ORDINARY_USER)
    assert said.returncode == 1
    assert "missing TUN devices: /dev/net/tun, mode 0600" in said.stdout


def test_slirp4netns_is_the_way_out_where_pasta_is_missing(world: World) -> None:
    if shutil.which("slirp4netns") is None:
        pytest.skip("needs slirp4netns")
    world.hide("pasta")
    done = world.shell("--", *python(ASK, INTERNET, "7"), user=ORDINARY_USER)
    assert done.stdout.strip() == f"::ffff:{HOST}", done.stderr


def test_a_firewall_that_drops_what_is_forwarded_lets_the_shell_pass_and_is_left_as_it_was(world: World) -> None:
    firewall = "table ip filter { chain FORWARD { type filter hook forward priority 0; policy drop; }; }\n"
    assert world.run(["nft", firewall]).returncode == 0
    before = world.rules()
    done = world.shell("--", *python(ASK, INTERNET, "7"))
    assert done.stdout.strip() == f"::ffff:{HOST}", done.stderr
    assert world.rules() == before


def test_names_resolve_where_the_resolver_is_elsewhere(world: World) -> None:
    world.serve(NAME_SERVER, INTERNET, internet=True)
    world.resolve_with(f"nameserver {INTERNET}\n")
    done = world.shell("--delay", "1", "--", *python(RESOLVE, "edge.test"), user=ORDINARY_USER)
    assert done.stdout == "203.0.113.7\n", done.stderr


@pytest.mark.parametrize(
    ("user", "number"),
    [(0, signal.SIGHUP), (ORDINARY_USER, signal.SIGINT)],
    ids=["root-SIGHUP", "ordinary-SIGINT"],
)
def test_nothing_is_left_after_the_end_of_the_program_or_a_signal(
    world: World, user: int, number: signal.Signals
) -> None:
    before = world.traces()
    assert world.shell("--", "true", user=user).returncode == 0
    assert world.traces() == before
    assert world.records(user) == []
    # A program with a child: both have to go. Ctrl-C goes to the whole group, as the terminal sends it.
    process = world.start([*cellbed("shell"), "--", *python(PARENT)], user=user)
    family = list(map(int, next_line(process).split()))
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        os.kill(process.pid, number)
    assert process.wait(200) == 128 + number
    assert [process_start(member) for member in family] == [None, None]
    assert world.traces() == before
    assert world.records(user) == []


def test_an_interactive_shell_that_ignores_sigterm_is_ended_all_the_same(world: World) -> None:
    process = world.start(
        [*cellbed("shell"), "--", "sh", "-c", "trap '' TERM HUP; echo here; while :; do sleep 1; done"]
    )
    next_line(process)
    process.terminate()
    assert process.wait(200) == 128 + signal.SIGTERM
    assert "cellbed" not in world.rules()


@BOTH_USERS
def test_clean_puts_right_what_a_killed_shell_has_left(world: World, user: int) -> None:
    before = world.traces()
    world.serve(NAME_SERVER, "127.0.0.53")
    world.resolve_with("nameserver 127.0.0.53\n")
    process = world.start([*cellbed("shell"), "--", "sh", "-c", "echo up; exec sleep 1000"], user=user)
    next_line(process)
    # The network helper, the emulator, the name server, the command, and what connects an ordinary user's namespace.
    children = list(map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()))
    assert len(children) == (5 if user else 4)
    if user == 0:
        assert "cellbed" not in before[0]
        assert "masquerade" in world.rules()
        assert world.setting("ipv4/ip_forward") == "1"
    process.kill()
    process.wait()
    assert len(world.records(user)) == 1
    done = world.run(cellbed("clean"), user=user)
    assert done.returncode == 0, done.stderr
    assert world.records(user) == []
    wait_until(lambda: world.traces() == before)
    wait_until(lambda: all(process_start(child) is None for child in children))


def test_shells_side_by_side_do_not_disturb_each_other_and_the_last_switches_forwarding_off(world: World) -> None:
    assert world.setting("ipv4/ip_forward") == "0"
    ask = ["sh", "-c", 'echo "$CELLBED_GATEWAY"; read line; exec "$@"', "sh", *python(ASK, INTERNET, "7")]
    both = [world.start([*cellbed("shell"), "--delay", "1", "--", *ask]) for _ in range(2)]
    assert len({next_line(process) for process in both}) == 2
    for process, left in zip(both, ("1", "0"), strict=True):
        output, errors = process.communicate("\n", timeout=200)
        assert output.strip() == f"::ffff:{HOST}", errors
        assert world.setting("ipv4/ip_forward") == left


def test_an_interactive_shell_shows_where_it_is_and_survives_ctrl_c(world: World) -> None:
    terminal = Terminal(world, [*cellbed("shell"), "--offline", "--", "bash", "--norc"], ORDINARY_USER)
    terminal.wait_for("[cellbed 1] ")
    sleep = ["sleep", f"1000.{os.getpid()}"]
    terminal.type(f"{shlex.join(sleep)}; echo status $?\n")
    wait_until(lambda: any(command_line(pid).decode().split("\0")[:-1] == sleep for pid in psutil.pids()))
    terminal.type("\x03")
    terminal.wait_for("[cellbed 1] ")
    terminal.type("echo st'ill' here\n")
    terminal.wait_for("still here")
    terminal.type("exit 5\n")
    assert terminal.end() == 5


def test_a_program_behind_a_link_can_be_stopped_and_continued(world: World) -> None:
    terminal = Terminal(world, ["bash", "--norc", "-i"], 0)
    inner = 'import signal as s; s.signal(s.SIGINT, s.SIG_DFL)\nwhile True:\n print("got-" + input(), flush=True)'
    shell = shlex.join([*cellbed("shell"), "--offline", "--", *python(inner)])
    terminal.type(f"{shell}\n")
    terminal.type("one\n")
    terminal.wait_for("got-one")
    terminal.type("\x1a")
    terminal.wait_for("Stopped")
    terminal.wait_for("$ ")
    terminal.type("\nfg\n")
    terminal.wait_for("main()' shell")
    terminal.type("two\n")
    terminal.wait_for("got-two")
    terminal.type("\x03")
    terminal.wait_for("$ ")
    terminal.type("echo status $?\n")
    terminal.wait_for("status 130")
    terminal.type("exit 0\n")
    assert terminal.end() == 0
