"""Settings of the calling process by prctl(2)."""

import contextlib
import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP, _CAP_MKNOD = 24, 27
_PR_SET_TIMERSLACK = 29


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Ask the kernel to send this process a signal when its parent ends (PR_SET_PDEATHSIG).

    Strictly when the thread of its parent ends that started it; it has no effect if the parent has already ended.
    """
    _prctl(_PR_SET_PDEATHSIG, number)


def make_no_devices() -> None:
    """Die with the parent, and have the program that is executed next unable to make device files (capabilities(7))."""
    die_with_parent()
    with contextlib.suppress(OSError):  # an ordinary user cannot anyway
        _prctl(_PR_CAPBSET_DROP, _CAP_MKNOD)


def wake_precisely() -> None:
    """Ask the kernel not to delay this process's timers to save power (PR_SET_TIMERSLACK; 50 µs else)."""
    _prctl(_PR_SET_TIMERSLACK, 1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
