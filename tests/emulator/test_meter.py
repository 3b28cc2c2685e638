"""The meter: what it reads from an emulator, and where it draws it."""

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cellbed.measure.meter import INTERVAL_NS, WINDOW_NS, Below, Lines, Meter, Reading, display, sentence, table
from emulator_process import constant, delay, line_of_two
from shell_world import ORDINARY_USER, Terminal, World, cellbed, missing, next_line, python, without_remark

needs_world = pytest.mark.skipif(missing() is not None, reason=missing() or "")
READINGS = [
    Reading("uplink", 4_990_000.0, 51_400, 50, 448.1, 465.3, {"queue-full": 3}),
    Reading("downlink", 0.0, 0, 0, None, None, {}, marked=2),
]
# A datagram of 1000 bytes a ms to the outer end of the link, for so many seconds: 8.2 Mbit/s.
FLOOD = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    s.sendto(bytes(1000), ("100.127.0.1", 9))
    time.sleep(0.001)
"""


def status(time_ns: int, delivered_bytes: int, **changes: Any) -> dict[str, Any]:
    """An emulator's answer with one direction."""
    direction = {
        "name": "uplink",
        "delivered": delivered_bytes // 1500,
        "delivered_bytes": delivered_bytes,
        "dropped": {"queue-full": 0, "congestion": 0, "loss": 0},
        "marked": 0,
        "queue_bytes": 0,
        "queue_packets": 0,
        "delay_ns": None,
    }
    return {"event": "status", "time_ns": time_ns, "directions": [direction | changes]}


def test_the_rate_is_that_of_the_last_second() -> None:
    # 1 Mbyte in the first second, nothing in the next, in readings of a tenth of a second.
    answers = [status(step * INTERVAL_NS, min(step, 10) * 100_000) for step in range(22)]
    meter = Meter(iter(answers).__next__)
    mbits = [meter.read(step * INTERVAL_NS)[0].bit_rate / 1e6 for step in range(1, 22)]
    assert mbits[:10] == pytest.approx([8.0] * 10)
    assert mbits[10:] == pytest.approx([7.2, 6.4, 5.6, 4.8, 4.0, 3.2, 2.4, 1.6, 0.8, 0.0, 0.0])


def test_of_many_directions_the_busiest_are_shown() -> None:
    many = [Reading(f"mobile-{number}", 1000.0 * (number % 50), 0, 0, None, None, {}) for number in range(100)]
    lines = table(many, 80, 6)
    assert [line.split()[0] for line in lines[1:]] == ["mobile-48", "mobile-49", "mobile-98", "mobile-99", "…"]
    assert "and 84 more directions" in sentence(many)
    assert table([replace(many[0], closed=True)], 80, 6)[1].endswith("none, outage")


def test_a_meter_may_count_from_now_on() -> None:
    lost = {"queue-full": 5, "congestion": 0, "loss": 2}
    first = status(0, 0, dropped=lost, marked=7)
    later = status(INTERVAL_NS, 0, dropped=lost | {"loss": 3}, marked=9, delay_ns={"mean": 2_500_000, "max": 3_000_000})
    for since_now, dropped, marked in ((True, {"loss": 1}, 2), (False, {"queue-full": 5, "loss": 3}, 9)):
        [reading] = Meter(iter([first, later]).__next__, since_now=since_now).read(0) or []
        assert (reading.dropped, reading.marked) == (dropped, marked)
        assert (reading.delay_ms, reading.longest_ms) == (2.5, 3.0)


def test_a_meter_reads_a_real_link(tmp_path: Path) -> None:
    from cellbed.testbed.links.emulator import Emulator, EmulatorError

    config = line_of_two([constant(20_000_000, queue_bytes=20_000), delay(7)], [], tmp_path)
    try:
        emulator = Emulator.start(config)
    except EmulatorError as error:
        pytest.skip(f"this machine runs no emulator for this user: {error}")
    try:
        meter = Meter(lambda: emulator.command({"do": "status"}, "status"), ["mobile.uplink"])
        flow = {"from": "endpoint", "to": "edge", "bytes": 1500, "bit_rate": 40_000_000, "duration_ns": 300_000_000}
        (sent,) = emulator.probe([{**flow, "family": 4}], 10.0)
        lost = sum(stamp is None for stamp in sent["received_ns"])
        now = time.monotonic_ns()
        [reading] = meter.read(now) or []
        assert meter.read(now + INTERVAL_NS - 1) is None
        assert reading.bit_rate > 0
        # A probe ends when the emulator holds no more packets.
        assert (reading.queue_bytes, reading.queue_packets) == (0, 0)
        assert reading.dropped == {"queue-full": lost}
        # The emulator reports a delay for a second after the last packet.
        later = reading
        while later.delay_ms is not None:
            time.sleep(WINDOW_NS / 1e9)
            [later] = meter.read(time.monotonic_ns()) or []
        assert (later.bit_rate, later.dropped) == (0.0, reading.dropped)
    finally:
        emulator.stop()


def test_a_file_gets_a_line_a_second(tmp_path: Path) -> None:
    with (tmp_path / "meter").open("wb") as file:
        shown = display(file.fileno(), below=True)
        assert isinstance(shown, Lines)
        for tenth in range(25):
            shown.show(tenth / 10, READINGS)
        shown.close()
    lines = (tmp_path / "meter").read_text().splitlines()
    assert [line.split(":")[0] for line in lines] == ["1 s", "2 s"]
    assert "uplink 4.99 Mbit/s, queue 51.4 kB in 50 packets, delay 448.1 ms, at most 465.3 ms" in lines[0]
    assert "dropped 3 queue-full; downlink 0.00 Mbit/s" in lines[0]
    assert lines[0].endswith("dropped none, 2 marked")


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal of 24 lines."""
    ours, theirs = pty.openpty()
    resize(theirs, 24, 80)
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def resize(terminal: int, lines: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def size(terminal: int) -> tuple[int, int]:
    lines, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8)))
    return lines, columns


def printed(terminal: int) -> str:
    """Return the text printed since the last look."""
    seen = b""
    while select.select([terminal], [], [], 0.5)[0]:
        seen += os.read(terminal, 4096)
    return seen.decode()


def test_the_last_lines_are_kept_from_the_command_and_given_back(terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    shown = Below(theirs)
    shown.show(0.0, READINGS)
    assert size(theirs) == (21, 80)
    # The command scrolls lines 1 to 21, and the table is below them.
    assert re.search(r"\x1b\[1;21r.*\x1b\[22;1H\x1b\[2K[^\x1b]*Mbit/s", printed(ours))
    shown.show(0.2, READINGS)
    assert size(theirs) == (21, 80)
    resize(theirs, 40, 100)
    shown.show(0.4, READINGS)
    assert size(theirs) == (37, 100)
    shown.close()
    assert size(theirs) == (40, 100)
    assert "\x1b[r\x1b[38;1H\x1b[m\x1b[J" in printed(ours)


def test_a_terminal_of_few_lines_is_left_to_the_command(terminal: tuple[int, int]) -> None:
    _, theirs = terminal
    resize(theirs, 6, 80)
    shown = Below(theirs)
    shown.show(0.0, READINGS)
    shown.close()
    assert size(theirs) == (6, 80)


@needs_world
@pytest.mark.parametrize(("user", "to_file"), [(0, False), (ORDINARY_USER, True)], ids=["root", "ordinary"])
def test_a_shell_writes_its_meter_where_it_is_told(world: World, user: int, to_file: bool) -> None:
    file = world.home(user) / "meter"
    meter = ["--meter-to", str(file)] if to_file else ["--meter"]
    link = ["--offline", "--up", "500 kbit/s", "--delay", "5 ms"]
    done = world.shell(*link, *meter, "--", *python(FLOOD, "2.5"), user=user)
    assert done.returncode == 0, done.stderr
    text = file.read_text() if to_file else done.stderr
    found = re.findall(r"\d s: uplink ([0-9.]+) Mbit/s, queue ([0-9.]+) kB in \d+ packets", text)
    # The first second may have passed before the flood began; a flood on a busy machine is faster than this link, too.
    assert 0 < max(float(rate) for rate, _ in found) <= 0.51
    assert max(float(waiting) for _, waiting in found) > 0
    assert "; downlink " in text
    assert not to_file or without_remark(done.stderr) == ""


@needs_world
def test_a_meter_that_cannot_be_written_is_one_clear_error(world: World) -> None:
    done = world.shell("--offline", "--meter-to", "/no/such/folder", "--", "echo", "started")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --meter-to: /no/such/folder cannot be written: No such file or directory\n"


@needs_world
def test_live_shells_are_watched_from_outside(world: World) -> None:
    user = ORDINARY_USER
    nobody = world.run([*cellbed("meter"), "--once"], user=user)
    assert (nobody.returncode, nobody.stderr.partition(": start a run")[0]) == (2, "error: nothing is running")
    inner = [*cellbed("shell"), "--offline", "--", "sh", "-c", "echo ready; exec sleep 1000"]
    shell = world.start([*cellbed("shell"), "--offline", "--up", "5 Mbit/s", "--", *inner], user=user)
    assert next_line(shell) == "ready"
    seen = world.run([*cellbed("meter"), "--once"], user=user)
    assert seen.returncode == 0, seen.stderr
    heading, *rows = seen.stdout.splitlines()
    assert "Mbit/s" in heading
    names = [row.split()[0] for row in rows]
    assert [row.split()[1] for row in rows] == ["uplink", "downlink"] * 2
    # By name in any order: process numbers differ in length.
    assert sorted(names) == sorted(path.stem for path in world.records(user) for _ in range(2))
    one = world.run([*cellbed("meter"), names[0], "--once"], user=user)
    assert one.stdout.count(names[0]) == 2
    assert names[2] not in one.stdout
    wrong = world.run([*cellbed("meter"), "shell-x", "--once"], user=user)
    assert wrong.returncode == 2
    assert f"live: {names[0]}, {names[2]}" in wrong.stderr
    watching = world.start(cellbed("meter"), user=user)
    shell.terminate()
    shell.wait(200)
    # What is watched has ended, and so does who watches; unless it came too late to see anything.
    assert watching.wait(200) in (0, 2)


@needs_world
def test_one_terminal_has_one_meter(world: World) -> None:
    inner = [*cellbed("shell"), "--offline", "--meter", "--", "echo", "inner", "ran"]
    terminal = Terminal(world, [*cellbed("shell"), "--offline", "--meter", "--", *inner], 0)
    terminal.wait_for("this terminal has the meter of the shell around this one already")
    terminal.wait_for("inner ran")
    assert terminal.end() == 0
