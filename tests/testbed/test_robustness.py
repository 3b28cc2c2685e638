"""Disks that fill and kills at any moment concern neither the packets nor the machine."""

import contextlib
import io
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from cellbed.measure.packets import RECORD
from cellbed.testbed.links.emulator import Emulator, EmulatorError
from cellbed.testbed.machine.events import EventProcess
from cellbed.testbed.machine.process import Place, spawn
from cellbed.testbed.machine.state import process_start
from descendants import descendants
from emulator_process import EMULATE, EmulatorProcess, bottleneck, constant, delay, line_of_two, packets
from shell_world import INTERNET, ORDINARY_USER, World, cellbed, missing, python, wait_until

needs_a_world = pytest.mark.skipif(missing() is not None, reason=missing() or "")

KILLS = 40
SEND = """
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.connect((sys.argv[1], 7))
for number in range(3000):
    one.send(b"x" * 20)
    one.recv(99)
print("all answered")
"""


def on_a_disk_of(kibibytes: int, folder: Path, then: str) -> list[str]:
    """The begin of a command for which `folder` is a disk of its own: words of the script `then` follow."""
    folder.mkdir()
    make = f"mount -t tmpfs -o size={kibibytes}k none {folder}"
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "sh", "-c", make], check=False).returncode:
        pytest.skip("needs a mount namespace with a disk of its own: unshare, and the right to mount")
    return ["unshare", "-m", "sh", "-c", f"{make}; {then}"]


def emulating_on_a_disk(folder: Path) -> tuple[list[str], Path]:
    """The command of an emulator whose folder is a small disk of its own, and a folder with its log in the end."""
    (kept := folder / "kept").mkdir()
    run = f'"$0" -c "$1" && cp {folder}/disk/packets.bin {kept}'
    return [*on_a_disk_of(800, folder / "disk", run), sys.executable, EMULATE], kept


def test_a_disk_that_fills_while_packets_are_logged_stops_none_and_the_missing_are_counted(tmp_path: Path) -> None:
    command, kept = emulating_on_a_disk(tmp_path)
    with EmulatorProcess(line_of_two([delay(5)], [], tmp_path / "disk", series=None), command) as emulator:
        emulator.ready()
        flow = emulator.probe(bytes=100, bit_rate=8_000_000, seconds=2)
        delivered = emulator.status()["core.uplink"]["delivered"]
        account = emulator.stop()
    assert None not in flow["received_ns"]
    assert delivered == len(flow["sent_ns"]) == 20_000
    assert account["records_lost"] > 0
    assert "packets.bin: No space left on device" in account["records_problem"]
    log = packets(kept)  # whole records only
    assert 0 < len(log) == 2 * delivered - account["records_lost"]
    assert RECORD.itemsize * len(log) < 800 * 1024


def test_a_disk_that_has_room_again_gets_the_records_from_then_on(tmp_path: Path) -> None:
    command, kept = emulating_on_a_disk(tmp_path)
    with EmulatorProcess(line_of_two([], [], tmp_path / "disk", series=None), command) as emulator:
        emulator.ready()
        pid = emulator.process.pid
        [inside] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        filler = Path(f"/proc/{inside}/root{tmp_path}/disk/filler")
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        emulator.probe(bytes=100, bit_rate=4_000_000, seconds=0.1)
        time.sleep(0.5)  # it hands its records over every 100 ms
        filler.unlink()
        emulator.probe(bytes=100, bit_rate=4_000_000, seconds=0.1)
        account = emulator.stop()
    log = packets(kept)
    assert len(log) + account["records_lost"] == 2 * 2 * 500
    assert account["records_lost"] > 0
    assert set(range(501, 1001)) <= set(log["packet"].tolist())


def test_an_error_that_the_end_of_an_emulator_causes_names_the_emulator(tmp_path: Path) -> None:
    try:
        emulator = Emulator.start(line_of_two([], [], tmp_path))
    except EmulatorError as error:
        pytest.skip(f"this machine runs no emulator for this user: {error}")
    place = Place(emulator.namespace("endpoint"), emulator.user_namespace)
    os.kill(emulator.pid, signal.SIGKILL)
    os.waitid(os.P_PID, emulator.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(EmulatorError, match="emulator ended unexpectedly"), emulator.require():
        spawn(["true"], place)
    emulator.kill()


@needs_a_world
def test_a_shell_says_what_its_log_lacks_because_the_disk_was_full(world: World) -> None:
    disk = world.home() / "disk"
    disk.mkdir()
    assert world.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]).returncode == 0
    done = world.shell("--log", str(disk / "packets.bin"), "--", *python(SEND, INTERNET))
    assert (done.returncode, done.stdout) == (0, "all answered\n"), done.stderr
    [line] = done.stderr.splitlines()
    assert "the logs of the links lack" in line
    assert "No space left on device" in line


def on_a_small_disk(kibibytes: int, folder: Path, script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a shell script for which `folder` is a disk of its own; `cellbed` in it is the command."""
    then = f'cellbed() {{ "{sys.executable}" -P -m cellbed "$@"; }}; cd {folder}; {script}'
    words = [*on_a_disk_of(kibibytes, folder, then), "sh", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.needs_tun
@pytest.mark.parametrize("kibibytes", [300, *(pytest.param(size, marks=pytest.mark.slow) for size in (100, 420, 540))])
def test_a_disk_that_fills_ends_a_run_that_can_be_reported_and_cleaned(tmp_path: Path, kibibytes: int) -> None:
    scenario = Path(__file__).parents[2] / "scenarios" / "smoke.toml"
    disk = tmp_path / "disk"
    script = """
        export XDG_STATE_HOME="$2"
        cellbed run "$1" --no-limits --out runs; echo "run: $?"
        mount -o remount,size=10m .; cellbed clean
        for folder in runs/*/; do cellbed report $folder --json; echo "report: $?"; done
    """
    done = on_a_small_disk(kibibytes, disk, script, scenario, tmp_path)
    assert "Traceback" not in done.stderr
    assert "error: " in done.stderr
    assert "No space left on device" in done.stderr or "was full when the run ended" in done.stderr
    assert "run: 1" in done.stdout or "run: 2" in done.stdout
    # The folder of a run that measured nothing is removed, any other has a report.
    assert '"status": "failed"' in done.stdout or "runs/*: not a run folder" in done.stderr
    assert "report: 0" in done.stdout or "runs/*: not a run folder" in done.stderr


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    script = """
        export XDG_STATE_HOME=$PWD
        mount -o remount,ro .; cellbed shell -- true; cellbed clean
        mount -o remount,rw .; head -c 1M /dev/zero > filler; cellbed shell -- true; cellbed clean
        XDG_DATA_HOME=$PWD XDG_CACHE_HOME=$PWD cellbed traces ls
        rm -r *; mount -o remount,size=20m .; export XDG_DATA_HOME=$PWD XDG_CACHE_HOME=$PWD
        cellbed traces ls; head -c 20M /dev/zero > filler; touch cellbed/traces/*/entry.toml; cellbed traces ls
    """
    done = on_a_small_disk(8, tmp_path / "disk", script)
    assert "Traceback" not in done.stderr
    read_only, full, archive = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    for line, reason in ((read_only, "Read-only file system"), (full, "No space left on device")):
        assert f"error: {tmp_path / 'disk' / 'cellbed'}" in line
        assert "set XDG_STATE_HOME" in line
        assert reason in line
    assert "No space left on device" in archive
    assert done.stdout.count("lte-suburban") == 2  # a table that cannot be stored is made again


# Without the vDSO, by way of which clocks are read unseen, strace sees every reading.
SEEN = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
unsigned long getauxval(unsigned long type) {
    unsigned long (*real)(unsigned long) = dlsym(RTLD_NEXT, "getauxval");
    return type == AT_SYSINFO_EHDR ? 0 : real(type);
}
int clock_gettime(clockid_t clock, struct timespec *now) { return syscall(SYS_clock_gettime, clock, now); }
int gettimeofday(struct timeval *now, void *zone) { return syscall(SYS_gettimeofday, now, zone); }
"""


def test_setting_the_clock_changes_nothing_since_nobody_reads_it(tmp_path: Path) -> None:
    for program in ("cc", "strace"):
        if shutil.which(program) is None:
            pytest.skip(f"needs the program {program}")
    library, trace = tmp_path / "seen.so", tmp_path / "trace"
    build = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library), "-ldl"]
    subprocess.run(build, input=SEEN, text=True, check=True)
    calls = "clock_gettime,gettimeofday,timerfd_create,clock_nanosleep"
    watch = ["strace", "-f", "-o", str(trace), "-e", f"trace={calls}", "env", f"LD_PRELOAD={library}"]
    if subprocess.run([*watch, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to trace a process: strace")
    config = line_of_two([bottleneck({"kind": "constant", "bit_rate": 12_000_000}), delay(5)], [], tmp_path)
    with EmulatorProcess(config, [*watch, sys.executable, "-c", EMULATE]) as emulator:
        emulator.ready()
        emulator.command(do="start", at_ns=time.monotonic_ns())
        emulator.probe(bit_rate=2_000_000, seconds=1)
        emulator.status()
        emulator.stop()
    read = re.findall(r" (\w+)\((\w+)", trace.read_text())
    assert len(read) > 100
    assert {clock for _, clock in read} == {"CLOCK_MONOTONIC"}
    assert "timerfd_create" in {call for call, _ in read}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to set a clock apart")
@pytest.mark.parametrize("offset", ["-1", "315360000"], ids=["just after the start of the machine", "ten years later"])
def test_where_the_monotonic_clock_stands_does_not_matter(offset: str) -> None:
    # As early as it can be: a clock may not be negative.
    uptime = int(float(Path("/proc/uptime").read_text().split()[0]))
    shift = str(5 - uptime) if offset == "-1" else offset
    command = ["unshare", "--time", "--fork", "--kill-child", f"--monotonic={shift}", sys.executable, "-c", EMULATE]
    if subprocess.run([*command[:-3], "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this kernel has no time namespaces")
    with EmulatorProcess(line_of_two([constant(100_000_000), delay(5)], []), command) as emulator:
        emulator.ready()
        flow = emulator.probe(bytes=1000, bit_rate=8_000_000, seconds=0.5)
        took = np.array(flow["received_ns"]) - np.array(flow["sent_ns"])
        assert len(took) == 500
        assert took.min() >= 5_080_000
        emulator.stop()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.slow
def test_what_a_process_prints_is_skipped_unless_it_is_an_object_and_bounded() -> None:
    code = 'import sys; w = sys.stdout.write; w("["*100_000+"\\n"); w("x"*(20<<20)+"\\n"); w("{\\"a\\": 1}\\n"*20_000)'
    process = EventProcess(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE), io.BytesIO())
    longest = 0
    while not process.ended:
        process.read()
        longest = max(longest, len(process._rest))
    assert longest == 16 << 20
    assert process.events == [{"a": 1}] * 10_000
    process.process.wait()


def test_emulators_killed_at_any_moment_leave_their_parent_nothing(tmp_path: Path) -> None:
    moments = random.Random(1)
    config = line_of_two([delay(1)], [delay(1)], tmp_path, control=str(tmp_path / "control.sock"))
    try:
        Emulator.start(config).kill()
    except EmulatorError as error:
        pytest.skip(f"this machine runs no emulator for this user: {error}")

    def state() -> tuple[int, set[int]]:
        return descriptors(), {each.pid for each in psutil.Process().children()}

    def on_machine() -> set[str]:
        return {path.name for path in Path("/sys/class/net").glob("cellbed[0-9]*")} | {*mounted_namespaces()}

    before, machine_before = state(), on_machine()
    for number in range(KILLS // 2):
        if number % 2:
            emulator = Emulator.start(config)
            emulator.restart_links(time.monotonic_ns())
            time.sleep(moments.uniform(0, 0.03))
            emulator.kill()
            assert process_start(emulator.pid) is None
        else:  # in the middle of its start
            with EmulatorProcess(config):
                time.sleep(moments.uniform(0, 0.2))
    assert state() == before
    wait_until(lambda: on_machine() <= machine_before)  # what other tests have made meanwhile ends with them
    # Of what they had made there is what the next one replaces, and no temporary file beside it.
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"control.sock", "packets.bin", "series.bin"}
    with EmulatorProcess(config) as last:
        last.ready()
        last.stop()
    assert not (tmp_path / "control.sock").exists()


def mounted_namespaces(pid: int | str = "self") -> list[str]:
    """Namespaces that a mount keeps alive."""
    return [line for line in Path(f"/proc/{pid}/mounts").read_text().splitlines() if line.split()[2] == "nsfs"]


def processes_of(world: World) -> set[int]:
    """Processes that were started in the world by way of :meth:`World.start`, and theirs."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HOME", "").startswith(f"{world.folder}/"):
                found.add(process.pid)
    return found


@pytest.mark.slow
@pytest.mark.timeout(1200)
@needs_a_world
def test_a_shell_or_its_emulator_killed_at_any_moment_leaves_nothing_after_clean(world: World) -> None:
    moments = random.Random(2)

    def state() -> dict[str, Any]:
        """All that could be left: a namespace lives as long as a process, a mount or a descriptor holds it."""
        places = [world.home(user) / ".local" / "state" / "cellbed" for user in (0, ORDINARY_USER)]
        return {
            "rules, settings, interfaces": world.traces(),
            "sockets": world.run(["ss", "-Hanutlp"]).stdout if shutil.which("ss") else "",
            "namespaces": [mounted_namespaces(holder) for holder in world.holders()],
            "processes": processes_of(world),
            "files": sorted(str(path) for place in places for path in place.rglob("*") if path.is_file()),
            "descriptors": descriptors(),
        }

    for user in (0, ORDINARY_USER):
        assert world.shell("--", "true", user=user).returncode == 0  # makes the folders of the state
    before = state()
    killed = {"shell": 0, "emulator": 0}
    for number in range(KILLS):
        user = (0, ORDINARY_USER)[number % 2]
        command = [*cellbed("shell"), "--delay", "1 ms", "--", "sleep", "1000"]
        process = world.start(command, user=user)
        time.sleep(moments.uniform(0, 1.2))
        below = descendants(process.pid).items() if moments.random() < 0.5 else ()
        victim = next((each for each, line in below if b"import emulate" in line), None)
        killed["shell" if victim is None else "emulator"] += 1
        os.kill(victim or process.pid, signal.SIGKILL)
        if victim is not None:
            # It notices by itself, says so and puts everything back.
            assert process.wait(200) != 0
        process.communicate()
        if number % 10 == 9:
            for each in (0, ORDINARY_USER):
                done = world.run(cellbed("clean"), user=each)
                assert done.returncode == 0, done.stderr
            assert state() == before, f"after {number + 1} kills"
    assert min(killed.values()) > 10, killed
