"""Commands of `cellbed` as separate processes, and what a machine needs for real runs with limits."""

import contextlib
import itertools
import os
import pty
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from typing import Any

import pytest

from cellbed.testbed.machine import cgroups
from cellbed.testbed.machine.cgroups import LimitsError
from cellbed.testbed.machine.state import RUN_VARIABLE
from shell_world import wait_until


def limits_reason() -> str | None:
    """Why limits cannot be enforced here, or ``None``."""
    try:
        cgroups.locate()
    except LimitsError as error:
        return str(error).splitlines()[0]
    return None


needs_limits = pytest.mark.skipif(limits_reason() is not None, reason=str(limits_reason()))


def apply_marks(*marks: pytest.MarkDecorator) -> Callable[[Any], Any]:
    """Return a decorator that gives a test these marks."""

    def mark_all(test: Any) -> Any:
        for mark in marks:
            test = mark(test)
        return test

    return mark_all


def command(*words: object) -> list[str]:
    """The words that start `cellbed` with these."""
    return [sys.executable, "-P", "-m", "cellbed", *map(str, words)]


def run(
    *words: object, env: Mapping[str, str] | None = None, cwd: Path | None = None, status: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `cellbed` with these words, with additional variables. status: the expected exit status."""
    environment = {**os.environ, **(env or {})}
    done = subprocess.run(command(*words), capture_output=True, errors="replace", check=False, env=environment, cwd=cwd)
    assert status in (None, done.returncode), done.stdout + done.stderr
    return done


def run_on_a_terminal(*words: object, wide: int = 80, **variables: str) -> str:
    """Return all that `cellbed` shows with these words on a terminal of this width."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, wide, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment |= {"TERM": "xterm", **variables}
    shown = b""
    with subprocess.Popen(command(*words), stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):  # the other end was closed
            while part := os.read(ours, 1 << 16):
                shown += part
    os.close(ours)
    assert process.returncode == 0, shown.decode()
    return shown.decode()


def only_folder(parent: Path) -> Path:
    (folder,) = parent.iterdir()
    return folder


def processes_of(identifier: str) -> list[int]:
    """Processes that carry the mark of a run, here and in other namespaces of this machine. identifier: or its
    beginning."""
    mark = f"{RUN_VARIABLE}={identifier}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if any(entry.startswith(mark) for entry in environ.read_bytes().split(b"\0")):
                found.append(int(environ.parent.name))
    return found


def command_line(process: object) -> bytes:
    """The words of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def has_ended(process: int) -> bool:
    """Return whether a process is gone, or waits for its parent to notice that it ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


_ports = itertools.count(10_000 + os.getpid() % 440 * 50)


def free_port() -> int:
    """Return a port that is free until the test's server has it: the kernel gives ports below 32768 to nobody, and
    each process of tests has ports of its own."""
    while True:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port := next(_ports))):
            return port


def run_process(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command as a process."""
    command = [sys.executable, "-m", "cellbed", *words]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **options)


def assert_nothing_left(identifier: str, folder: Path) -> None:
    """Assert that no process, control group or record of a testbed is left. folder: of its registry."""
    wait_until(lambda: not processes_of(identifier))  # a killed process takes a moment to end
    _, bases = cgroups.locate()
    assert not [base for base in set(bases.values()) if (base / identifier).exists()]
    assert not list((folder / "state").rglob(f"{identifier}*"))
    assert not list((folder / "runtime").rglob(f"{identifier}*"))
