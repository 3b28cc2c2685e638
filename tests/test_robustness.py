"""What goes wrong around cellbed: full disks, clocks that are set, kills at any moment."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cellbed.measure.packets import RECORD
from cellbed.testbed import cgroups
from cellbed.testbed.cgroups import LimitsError
from cellbed.testbed.emulator import Emulator, EmulatorError
from cellbed.testbed.state import RUN_VARIABLE
from emulator_process import EMULATE, EmulatorProcess, constant, delay, line_of_two
from shell_world import ORDINARY_USER, World, cellbed, missing

PYTHON = [sys.executable, "-c", EMULATE]
UPLINK = [constant(100_000_000), delay(5)]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk and to set time apart")


@needs_root
def test_a_full_disk_costs_records_and_stops_nothing(tmp_path: Path) -> None:
    log, ballast = tmp_path / "packets.bin", tmp_path / "ballast"
    # A disk of 1 MiB of its own, half of which something else takes at first. It is there until standard input ends.
    disk = f"mount -t tmpfs -o size=1m none {tmp_path}; head -c 512K /dev/zero > {ballast}"
    script = f'{disk}; "$@"; read line || true'
    command = ["unshare", "--mount", "--propagation=private", "sh", "-ec", script, "sh", *PYTHON]
    with EmulatorProcess(line_of_two(UPLINK, [], packet_log=str(log)), command) as emulator:
        emulator.ready()
        there = Path(f"/proc/{emulator.process.pid}/root")
        records = 0

        def send(seconds: float) -> int:
            flow = emulator.probe(bytes=200, bit_rate=16_000_000, seconds=seconds)
            assert len(flow["received_ns"]) == len(flow["sent_ns"]) == 10_000 * seconds
            assert min(np.array(flow["received_ns"]) - np.array(flow["sent_ns"])) >= 5_000_000
            return 2 * len(flow["sent_ns"])  # one in each of the two directions

        records += send(2)
        lost = emulator.command(do="status")["records_lost"]
        assert lost > 20_000
        (there / ballast.relative_to("/")).unlink()
        records += send(0.2)
        account = emulator.command(do="stop")
        assert account["event"] == "stopped"
        assert account["records_problem"].startswith(f"cannot write to {log}: No space left on device")
        content = (there / log.relative_to("/")).read_bytes()
    assert len(content) == 16 + 64 * (records - account["records_lost"])
    assert len(content) > 550_000, "the log goes on once there is room again"
    numbers = np.frombuffer(content[16:], RECORD)["packet"]
    assert np.all(np.diff(np.unique(numbers)) >= 1)
    assert set(np.unique(numbers, return_counts=True)[1]) <= {1, 2}


@needs_root
@pytest.mark.parametrize("offset", ["-1", "315360000"], ids=["just after the start of the machine", "ten years later"])
def test_where_the_monotonic_clock_stands_does_not_matter(offset: str) -> None:
    # As early as it can be: a clock may not be negative.
    uptime = int(float(Path("/proc/uptime").read_text().split()[0]))
    shift = str(5 - uptime) if offset == "-1" else offset
    command = ["unshare", "--time", "--fork", "--kill-child", f"--monotonic={shift}", *PYTHON]
    if subprocess.run([*command[:-3], "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this kernel has no time namespaces")
    with EmulatorProcess(line_of_two(UPLINK, []), command) as emulator:
        emulator.ready()
        flow = emulator.probe(bytes=1000, bit_rate=8_000_000, seconds=0.5)
        took = np.array(flow["received_ns"]) - np.array(flow["sent_ns"])
        assert len(took) == 500
        assert took.min() >= 5_080_000
        emulator.stop()


@pytest.fixture
def stepping_clock(tmp_path: Path) -> str:
    """A library to preload, under which the wall clock is set by hours four times a second."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path / "stepping_clock.so"
    source = Path(__file__).with_name("stepping_clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    show = "import time; a = [time.time() for _ in range(3) if time.sleep(0.3) is None]; print(max(a) - min(a) > 3600)"
    shown = subprocess.run(
        [sys.executable, "-c", show], env={**os.environ, "LD_PRELOAD": str(library)}, capture_output=True, text=True
    )
    assert shown.stdout == "True\n", shown.stderr
    return str(library)


SCENARIO = """
name = "clock"
duration = "3 s"
[nodes.endpoint]
cpus = 1.0
memory = "512 MiB"
[nodes.edge]
cpus = 1.0
memory = "2 GiB"
[links.mobile]
up = "20 Mbit/s"
down = "20 Mbit/s"
[links.core]
edge = "base-edge"
[workload]
kind = "image-classification"
on = "edge"
rate = "8 /s"
"""


@pytest.mark.slow
def test_a_run_does_not_notice_that_the_clock_is_set(tmp_path: Path, stepping_clock: str) -> None:
    try:
        cgroups.locate()
    except LimitsError as error:
        pytest.skip(str(error).splitlines()[0])
    (tmp_path / "clock.toml").write_text(SCENARIO)
    command = [sys.executable, "-P", "-m", "cellbed", "run", tmp_path / "clock.toml", "--out", tmp_path / "runs"]
    done = subprocess.run(
        command, env={**os.environ, "LD_PRELOAD": stepping_clock}, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "complete"
    assert summary["residual"]["median_share"] < 0.01
    assert summary["requests"]["ok"] == 24


@pytest.fixture
def world() -> Iterator[World]:
    why = missing()
    if why is not None:
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="cellbed-test-") as folder:
        world = World(Path(folder))
        try:
            yield world
        finally:
            world.close()


def ours(folder: Path) -> set[int]:
    """Processes of the world that belong to a shell: those with the mark of one and its home."""
    found = set()
    home = f"HOME={folder}".encode()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            content = environ.read_bytes()
        except OSError:
            continue
        if home in content and RUN_VARIABLE.encode() in content:
            found.add(int(environ.parent.name))
    return found


def left_behind(world: World) -> dict[str, object]:
    """What a shell could leave on the host."""
    mounts = world.run(["cat", "/proc/self/mountinfo"]).stdout
    homes = [world.home(user) for user in (0, ORDINARY_USER)]
    return {
        "rules": world.rules(),
        "devices": world.devices(),
        "forwarding": world.setting("ipv4/ip_forward"),
        "mounted namespaces": mounts.count("nsfs"),
        "sockets": sorted(str(path) for home in homes for path in home.rglob("*") if path.is_socket()),
        "processes": ours(world.folder),
        "records": [*world.records(0), *world.records(ORDINARY_USER)],
    }


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_hundred_shells_killed_at_any_moment_leave_nothing(world: World) -> None:
    before = left_behind(world)
    dice = random.Random(1)
    reached = 0
    for cycle in range(100):
        user = ORDINARY_USER if cycle % 2 else 0
        shell = world.start(
            [*cellbed("shell"), "--delay", "1", "--", "sh", "-c", "echo up; exec sleep 1000"], user=user
        )
        time.sleep(dice.uniform(0.0, 1.6))
        victims = [shell.pid]
        children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
        emulators = [int(it) for it in children if b"emulate" in Path(f"/proc/{it}/cmdline").read_bytes()]
        reached += bool(emulators)
        match dice.randrange(3):
            case 0 if emulators:
                victims = emulators
            case 1 if emulators:
                victims = [*emulators, shell.pid]
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        shell.communicate(timeout=60)
        if cycle % 10 == 9:
            for each in (0, ORDINARY_USER):
                done = world.run(cellbed("clean"), user=each)
                assert done.returncode == 0, done.stderr
            deadline = time.monotonic() + 60
            while left_behind(world) != before and time.monotonic() < deadline:
                time.sleep(0.1)
            assert left_behind(world) == before, f"after {cycle + 1} shells"
    assert reached > 50, "most were killed before there was a link"


def network_namespaces() -> set[int]:
    """The network namespaces of all processes that may be looked at."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):
            found.add(path.stat().st_ino)
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_emulators_started_and_killed_leak_no_descriptor_and_no_process(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    dice = random.Random(2)
    control = tmp_path / "control.sock"
    counts = []
    for cycle in range(100):
        try:
            emulator = Emulator.start(line_of_two(UPLINK, [], tmp_path, control=str(control)))
        except EmulatorError as error:
            pytest.skip(f"this machine runs no emulator for this user: {error}")
        time.sleep(dice.uniform(0.0, 0.1))
        pid = emulator.pid
        namespaces = {Path(emulator.namespace(node)).stat().st_ino for node in ("endpoint", "edge")}
        if cycle % 4:
            emulator.kill()
        else:
            emulator.stop()
            assert not control.exists()
        assert not Path(f"/proc/{pid}").exists()
        counts.append(descriptors())
        assert not namespaces & network_namespaces()
    assert counts[-1] == counts[0]
