"""Processes started here, settings and time limits of this process, and programs of this machine."""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from types import FrameType
from typing import IO, NoReturn, Protocol


class Running(Protocol):
    """A process started here: the common members of ``subprocess.Popen`` and other ways to start processes."""

    @property
    def pid(self) -> int:
        """The process id."""

    @property
    def stdin(self) -> IO[bytes] | None:
        """The pipe to its standard input, if there is one."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """The pipe from its standard output, if there is one."""

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal, or ``None`` while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process. Errors: ``subprocess.TimeoutExpired``."""

    def send_signal(self, number: int, /) -> None:
        """Send a signal."""

    def kill(self) -> None:
        """Send SIGKILL."""


KILLED_S = 10.0
"""Maximum time in seconds for a killed process to end."""


def kill(process: Running) -> None:
    """Kill a program and, if it leads a session, its process group.

    Raises TimeoutError if the kernel does not end the program, e.g. because it waits for a disk.
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
    """Return the last non-blank line of a program's output; ``None`` if there is none."""
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else None


def search_path() -> str:
    """Return ``PATH`` with the folders of programs that ordinary users seldom run, such as nginx."""
    return os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"


def find(name: str) -> str | None:
    """Return the path of a program on the search path."""
    return shutil.which(name, path=search_path())


@contextlib.contextmanager
def time_limit(limit_s: float, error: BaseException, *, processor: bool = False) -> Iterator[None]:
    """Raise an error in this context after a time, even inside a regular expression; 0: never.

    processor: count processor time of the process only. Has no effect outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_error(number: int, frame: FrameType | None) -> NoReturn:
        raise error

    timer, number = (signal.ITIMER_VIRTUAL, signal.SIGVTALRM) if processor else (signal.ITIMER_REAL, signal.SIGALRM)
    before = signal.signal(number, raise_error)
    signal.setitimer(timer, limit_s)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)


_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP, _CAP_MKNOD = 24, 27
_PR_SET_TIMERSLACK = 29


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Ask the kernel to send this process a signal when its parent ends (PR_SET_PDEATHSIG).

    Strictly: when the thread that started this process ends. Has no effect if the parent has already ended.
    """
    _prctl(_PR_SET_PDEATHSIG, number)


def make_no_devices() -> None:
    """Die with the parent, and prevent the next executed program from making device files (capabilities(7))."""
    die_with_parent()
    with contextlib.suppress(OSError):  # an ordinary user has no such right anyway
        _prctl(_PR_CAPBSET_DROP, _CAP_MKNOD)


def wake_precisely() -> None:
    """Ask the kernel not to delay this process's timers to save power (PR_SET_TIMERSLACK; default 50 µs)."""
    _prctl(_PR_SET_TIMERSLACK, 1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
