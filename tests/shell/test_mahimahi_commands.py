"""Mahimahi's commands as scripts call them: real programs in real namespaces, started by their launchers."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from shell_world import (
    ECHO,
    INTERNET,
    ORDINARY_USER,
    World,
    cellbed,
    missing,
    next_line,
    open_world,
    python,
    wait_until,
    without_remark,
)

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

HOST_PORT = "4711"
SLOW_MODULES = ("asyncio", "numpy", "polars", "psutil", "pydantic", "rich", "scipy", "typer", "yaml")
"""What a shell that starts must not wait for."""

ROUND_TRIP = """
import socket, sys, time
begin = time.monotonic()
socket.create_connection((sys.argv[1], int(sys.argv[2])), 200)
print(time.monotonic() - begin)
"""
# Sends ARGV[2] datagrams of 1000 bytes of IP to the echo server and prints how many answers came: all of them, or
# until none has come for ARGV[3] seconds (0.5).
COUNT = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], 7))
for _ in range(int(sys.argv[2])):
    s.send(bytes(972))
    time.sleep(0.0005)
s.settimeout(float((sys.argv[3:] or ["0.5"])[0]))
answers = 0
try:
    while answers < int(sys.argv[2]):
        s.recv(99)
        answers += 1
except TimeoutError:
    pass
print(answers)
"""
# Asks again and again until answers have come and failed to come by turns.
TURNS = """
import itertools, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], 7))
s.settimeout(0.05)
seen = []
while len(seen) < 4:
    s.send(b"x")
    try:
        answered = bool(s.recv(99))
    except TimeoutError:
        answered = False
    if seen[-1:] != [answered]:
        seen.append(answered)
print("turns")
"""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as world:
        world.install_mahimahi()
        world.serve(ECHO, "::", HOST_PORT)
        yield world


def run(world: World, *command: str, user: int = 0) -> subprocess.CompletedProcess[str]:
    return world.run(world.on_path(*command), user=user)


def start(world: World, *command: str, user: int = 0) -> subprocess.Popen[str]:
    return world.start(world.on_path(*command), user=user)


def events(log: Path) -> list[tuple[int, str, tuple[int, ...]]]:
    """Time, sign and numbers of a log's lines behind its header."""
    fields = [line.split() for line in log.read_text().splitlines() if not line.startswith("# ")]
    return [(int(it[0]), it[1], tuple(map(int, it[2:]))) for it in fields]


def check(log: Path) -> Counter[str]:
    """Hold a log of a first-in, first-out queue against its own rules; lines by sign."""
    assert log.read_text().endswith("\n")
    lines = events(log)
    times = [time for time, _, _ in lines]
    assert times == sorted(times)
    waiting: list[tuple[int, int]] = []
    counts: Counter[str] = Counter()
    room = 0
    for at, sign, numbers in lines:
        counts[sign] += 1
        if sign == "+":
            waiting.append((at, *numbers))
        elif sign == "#":
            assert numbers == (1504,)
            room += 1504
        elif sign == "-":
            arrived, size = waiting.pop(0)
            assert numbers == (size, at - arrived)
            assert at > arrived
            room -= size
            assert room >= 0
        else:
            assert sign == "d"
            # Drop-tail: the one that has just come.
            assert numbers == (1, waiting.pop()[1])
    return counts


def test_shells_nest_and_the_host_is_reached_at_mahimahi_base(world: World) -> None:
    shells = "mm-delay 20 mm-loss uplink 0 mm-link 12mbit 12mbit --"
    script = f'echo "$MAHIMAHI_BASE $MAHIMAHI_SHELL_PREFIX."; exec "$@" $MAHIMAHI_BASE {HOST_PORT}'
    done = run(world, *shells.split(), "sh", "-c", script, "sh", *python(ROUND_TRIP), user=ORDINARY_USER)
    assert done.returncode == 0, done.stderr
    said, round_trip = done.stdout.splitlines()
    assert said == "100.64.0.1 [delay 20 ms] [loss up=0] [link] ."
    # Never a packet early: a lower bound that no load of the machine can break.
    assert float(round_trip) >= 0.040
    assert without_remark(done.stderr) == ""


def test_the_prompt_begins_with_the_shells_around_it(world: World) -> None:
    # As bash does before each prompt; the caller's own command stays.
    script = 'PS1="$ "; eval "$PROMPT_COMMAND"; eval "$PROMPT_COMMAND"; echo "$PS1"'
    done = run(world, "env", "PROMPT_COMMAND=echo mine", "mm-delay", "1", "mm-meter", "bash", "-c", script)
    assert done.stdout == "mine\nmine\n[delay 1 ms] [meter] $ \n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_shell_alone_hangs_its_command_up(world: World, number: signal.Signals) -> None:
    script = 'trap "echo hung up; exit" HUP; echo $$; sleep 1000 & wait'
    process = start(world, "mm-delay", "1", "mm-link", "12mbit", "12mbit", "--", "sh", "-c", script)
    inhabitant = int(next_line(process))
    # What `pkill mm-delay` and `killall mm-delay` look for.
    assert Path(f"/proc/{process.pid}/comm").read_text() == "mm-delay\n"
    process.send_signal(number)
    assert process.communicate(timeout=200)[0] == "hung up\n"
    assert process.returncode == 128 + number
    assert not Path(f"/proc/{inhabitant}").exists()


def test_a_signal_to_the_outermost_shell_ends_processes_that_ignore_the_hangup(world: World) -> None:
    script = 'trap "" HUP TERM; setsid sleep 1000 & echo $! $$; while :; do sleep 1; done'
    process = start(world, *["mm-delay", "1"] * 3, "sh", "-c", script)
    inhabitants = next_line(process).split()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=200)
    assert process.returncode == 128 + signal.SIGTERM
    wait_until(lambda: not any(Path(f"/proc/{it}").exists() for it in inhabitants))


def test_logs_go_to_pipes_devices_and_fifos(world: World) -> None:
    fifo, seen = world.home(ORDINARY_USER) / "log.fifo", world.home(ORDINARY_USER) / "fifo.log"
    os.mkfifo(fifo)
    os.chown(fifo, ORDINARY_USER, ORDINARY_USER)
    outer = ["mm-link", "12mbit", "12mbit", "--uplink-log=/dev/null", "--downlink-log=/dev/stderr", "--"]
    inner = ["mm-link", "12mbit", "12mbit", f"--downlink-log={fifo}", "--uplink-log=/dev/fd/1", "--"]
    # The reader of the FIFO comes after the link; it gets the whole log, then the end of the file.
    script = f"{shlex.join(inner)} sh -c 'sleep 0.2; cat {fifo} > {seen} & sleep 0.2'; wait"
    done = run(world, *outer, "sh", "-c", script, user=ORDINARY_USER)
    assert done.returncode == 0
    wait_until(lambda: seen.exists() and seen.read_text().count(" # ") > 100)
    for text, name in (
        (seen.read_text(), f"Downlink) [12mbit] > {fifo}"),
        (done.stdout, "Uplink) [12mbit] > /dev/fd/1"),
    ):
        assert text.startswith(f"# mahimahi mm-link ({name}\n")
        assert "\n1 # 1504\n2 # 1504\n" in text
    assert without_remark(done.stderr).startswith("# mahimahi mm-link (Downlink) [12mbit] > /dev/stderr\n")
    # The null device is still one.
    assert world.run(["test", "-c", "/dev/null"]).returncode == 0


def test_a_signal_that_the_caller_ignores_is_ignored_by_the_command(world: World) -> None:
    done = run(world, "env", "--ignore-signal=INT", "mm-delay", "1", "sh", "-c", "kill -INT $$; echo alive")
    assert (done.returncode, done.stdout) == (0, "alive\n")


def test_nothing_slow_is_imported(world: World) -> None:
    log = world.folder / "imports.log"
    timed = [sys.executable, "-I", "-X", "importtime", "-m", "cellbed.shell.mahimahi"]
    done = run(world, *timed, "mm-link", "--once", "12mbit", "12mbit", f"--uplink-log={log}", "sleep", "9")
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "cellbed" in imported
    assert sorted(imported & set(SLOW_MODULES)) == []


@pytest.mark.parametrize("way", ["uplink", "downlink"])
def test_packets_of_one_direction_are_lost(world: World, way: str) -> None:
    logs = {side: world.folder / f"loss-{way}-{side}.log" for side in ("uplink", "downlink")}
    link = ["mm-link", "100mbit", "100mbit", *(f"--{side}-log={log}" for side, log in logs.items()), "--"]
    done = run(world, *link, "mm-loss", "--seed=3", way, "0.5", *python(COUNT, INTERNET, "200", "3"))
    assert done.returncode == 0, done.stderr
    sent = sum(sign == "-" and numbers[0] == 1004 for _, sign, numbers in events(logs["uplink"]))
    # Answers are all of one size; a host may have another small packet to send.
    sizes = Counter(numbers[0] for _, sign, numbers in events(logs["downlink"]) if sign == "-" and numbers[0] < 100)
    answered = max(sizes.values())
    answers = int(done.stdout)
    assert answered == sent
    if way == "uplink":
        assert 50 < sent < 150
        assert answers == answered
    else:
        assert sent == 200
        assert 50 < answers < 150


@pytest.mark.parametrize("command", ["mm-onoff --seed=1 uplink 0.2 0.2", "mm-intermittent downlink 0.2 0.2"])
def test_a_direction_is_on_and_off_by_turns(world: World, command: str) -> None:
    assert run(world, *command.split(), *python(TURNS, INTERNET)).stdout == "turns\n"


def test_the_logs_of_mm_link(world: World) -> None:
    folder = world.home()
    up, down = folder / "up.log", folder / "down.log"
    (folder / "a.up").write_text("0\n3\n3\n7\n")
    arguments = [
        *(f"{folder}/a.up", "6mbit", f"--uplink-log={up}", "-d", str(down)),
        *("--uplink-queue=droptail", "--uplink-queue-args=packets=5", "--"),
    ]
    # Back to back, so that the queue also overflows where the sender seldom has a processor.
    command = python(COUNT.replace("time.sleep(0.0005)", "pass"), INTERNET, "100")
    done = run(world, "mm-delay", "1", "mm-link", *arguments, *command)
    assert done.returncode == 0, done.stderr
    header, _, rest = up.read_text().partition("# queue: ")
    first, second = header.splitlines()
    assert first == f"# mahimahi mm-link (Uplink) [{folder}/a.up] > {up}"
    # In the words of a shell, on one line although the command has several.
    words = run(world, "bash", "-c", f"printf '%s\\0' {second.removeprefix('# command line: ')}").stdout
    assert words.split("\0")[:-1] == ["mm-link", *arguments, *command]
    queue, init, base, config = rest.splitlines()[:4]
    assert queue == "droptail [packets=5]"
    assert 0 <= time.time() * 1000 - int(init.removeprefix("# init timestamp: ")) < 60_000  # noqa: TID251, the log has that clock
    assert base == "# base timestamp: 0"
    assert config == "# mahimahi config: [delay 1 ms] "
    assert down.read_text().startswith(f"# mahimahi mm-link (Downlink) [6mbit] > {down}\n")
    counts = check(up)
    assert min(counts[sign] for sign in "+-#d") > 0
    # The last millisecond of a pass is the first of the next one.
    last = events(up)[-1][0]
    offers = [at for at, sign, _ in events(up) if sign == "#" and at < last]
    assert offers == sorted(
        at for n in range(last // 7 + 1) for at in (n * 7, n * 7 + 3, n * 7 + 3, n * 7 + 7) if at < last
    )
    check(down)
    assert sum(sign == "+" for _, sign, _ in events(down)) >= int(done.stdout)


def test_links_of_nested_shells_have_their_own_logs_and_queues(world: World) -> None:
    logs = {name: world.folder / f"nested-{name}.log" for name in ("outer", "inner")}
    outer = ["mm-link", "6mbit", "6mbit", f"--uplink-log={logs['outer']}", "--"]
    inner = ["mm-link", "12mbit", "12mbit", f"--uplink-log={logs['inner']}", "--uplink-queue=droptail"]
    inner += ["--uplink-queue-args=packets=10", "--"]
    command = python(COUNT.replace("time.sleep(0.0005)", "pass"), INTERNET, "100")
    assert run(world, *outer, "mm-delay", "5", *inner, *command).returncode == 0
    counts = {name: check(path) for name, path in logs.items()}
    assert counts["inner"]["d"] > 0
    assert counts["outer"]["d"] == 0
    # What leaves the inner link reaches the outer one, 5 ms later at the earliest.
    assert counts["outer"]["+"] == counts["inner"]["-"]
    left, reached = (
        [at for at, sign, _ in events(logs[name]) if sign == wanted]
        for name, wanted in (("inner", "-"), ("outer", "+"))
    )
    assert all(there - then >= 5 for then, there in zip(left, reached, strict=True))


def test_once_ends_with_the_longer_trace(world: World) -> None:
    up, down = world.folder / "once.up.log", world.folder / "once.down.log"
    (world.folder / "once.up").write_text("100\n250\n")
    (world.folder / "once.down").write_text("400\n")
    traces = [f"{world.folder}/once.up", f"{world.folder}/once.down"]
    done = run(world, "mm-link", *traces, "--once", f"-u{up}", f"-d{down}", "sleep", "1000")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert events(up) == [(100, "#", (1504,)), (250, "#", (1504,))]
    assert events(down) == [(400, "#", (1504,))]


def test_a_trace_comes_from_a_pipe(world: World) -> None:
    script = f"mm-link <(printf '20\\n40\\n') 12mbit -- {shlex.join(python(COUNT, INTERNET, '3', '60'))}"
    done = run(world, "bash", "-c", script)
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_a_delay_varies_as_a_file_says(world: World) -> None:
    (world.folder / "delay.csv").write_text("time_s,delay_ms\n0,30\n1000,60\n")
    done = run(world, "mm-delay", f"{world.folder}/delay.csv", *python(ROUND_TRIP, INTERNET, "7"))
    assert float(done.stdout) >= 0.060, done.stderr


@pytest.mark.parametrize(
    ("number", "user"),
    [
        pytest.param(signal.SIGTERM, 0, id="SIGTERM-root"),
        pytest.param(signal.SIGKILL, ORDINARY_USER, id="SIGKILL-ordinary"),
    ],
)
def test_a_script_that_kills_the_process_group_leaves_nothing(world: World, user: int, number: signal.Signals) -> None:
    home = world.home(user)
    for way, stamps in (("up", "1\n3\n4\n"), ("down", "0\n1\n2\n2\n")):
        (home / f"{way}.trace").write_text(stamps)
    before = world.traces()
    shells = (
        f"mm-delay 25 mm-loss uplink 0.0001 mm-link {home}/up.trace {home}/down.trace --uplink-queue=droptail "
        f"--uplink-queue-args=packets=100 --uplink-log={home}/up.log --downlink-log={home}/down.log -- sh -c"
    )
    script = f"{shlex.join(python(ROUND_TRIP))} $MAHIMAHI_BASE {HOST_PORT} && sleep 1000; echo survived"
    process = start(world, *shells.split(), script, user=user)
    assert float(next_line(process)) >= 0.05
    # The logs are a tenth of a second behind.
    logs = [home / f"{way}.log" for way in ("up", "down")]
    wait_until(lambda: all(any(sign == "-" for _, sign, _ in events(log)) for log in logs))
    os.killpg(process.pid, number)
    output, _ = process.communicate(timeout=200)
    assert (output, process.returncode) == ("", -number if number == signal.SIGKILL else 128 + number)
    # After a SIGKILL the emulators end by themselves.
    wait_until(lambda: world.devices() == before[2])
    assert all(check(log)["-"] > 0 for log in logs)
    if number == signal.SIGKILL:
        assert world.run(cellbed("clean"), user=user).returncode == 0
    assert world.traces() == before
    assert world.records(user) == []
