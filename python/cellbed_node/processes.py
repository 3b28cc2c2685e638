"""Processes that were started here, and programs of this machine."""

import os
import shutil
import signal
import subprocess
from typing import IO, Protocol


class Running(Protocol):
    """A process that was started here: the members that ``subprocess.Popen`` and other ways to start one share."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def stdin(self) -> IO[bytes] | None:
        """The pipe to its standard input, if there is one."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """The pipe from its standard output, if there is one."""

    def poll(self) -> int | None:
        """Return its exit status, negative for a signal, or ``None`` while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Errors: ``subprocess.TimeoutExpired``."""

    def send_signal(self, number: int, /) -> None:
        """Send a signal."""

    def kill(self) -> None:
        """Send SIGKILL."""


KILLED_S = 10.0
"""The longest time until a killed process must have ended."""


def kill(process: Running) -> None:
    """Kill a program and, if it leads a session, its process group.

    Raises TimeoutError for a program that the kernel does not end, such as one that waits for a disk.
    """
    if process.poll() is None:
        process.kill()
    try:
        if os.getsid(0) != process.pid:
            os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    if process.poll() is None:
        try:
            process.wait(KILLED_S)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"process {process.pid} has not ended {KILLED_S:g} s after SIGKILL") from None


def last_line(output: bytes) -> str | None:
    """Return the last line of a program's output that is not blank; ``None`` without one."""
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else None


def search_path() -> str:
    """``PATH``, and where distributions keep programs that ordinary users seldom run, such as nginx."""
    return os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"


def find(name: str) -> str | None:
    """Path of a program on the search path."""
    return shutil.which(name, path=search_path())
