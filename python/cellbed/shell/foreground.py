"""Run one command in the foreground of the terminal, as if this process did not exist.

The command stays in the process group of its caller: Ctrl-C and Ctrl-Z reach the command and this process from the
terminal. A shell may make a new group for itself. Signals to this process alone are passed on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from cellbed.support.interruption import wait_with_handlers
from cellbed.testbed.machine.process import inhabitants

ENDING = (signal.SIGTERM, signal.SIGHUP)
_HANG_UP_AFTER_S = 1.0
_KILL_AFTER_S = 2.0
_SETTLE_S = 0.02


class Interrupted(BaseException):
    """A signal to end the shell arrived during its set-up. number: number of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def raise_on_signals() -> None:
    """Make Ctrl-C, SIGTERM and SIGHUP raise :class:`Interrupted`, except signals that the caller ignores."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(number)

    for number in (signal.SIGINT, *ENDING):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupt)


def ignore_signals() -> None:
    """Ignore signals from now on, so that only SIGKILL interrupts clean-up."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGALRM, *ENDING):
        signal.signal(number, signal.SIG_IGN)


class Command(Protocol):
    """A started process, such as :class:`subprocess.Popen`."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | Any: ...
    def wait(self) -> int: ...


class Foreground:
    """Waits for one command.

    hanging_up: the command always gets SIGHUP first. SIGINT and SIGQUIT also end it, unless they may come
    from the terminal, which sends them to the command as well. escalating: send further signals to a command that does
    not end; without it, the command itself ends its processes.
    ended_by: the signal that asked this process to end, if any. out_of_time: whether the time limit ended the command.
    """

    def __init__(self, *, hanging_up: bool = False, escalating: bool = True) -> None:
        self._hanging_up = hanging_up
        self._command: Command | None = None
        self.ended_by: int | None = None
        self.out_of_time = False
        self._escalation = [signal.SIGHUP, signal.SIGKILL] if escalating else []
        self._terminal_group = _terminal_group()

    def install_handlers(self) -> None:
        """Install the handlers, before the command starts; earlier signals are passed on once it runs."""
        # The command would inherit SIG_IGN, but not handlers.
        for number in (signal.SIGINT, signal.SIGQUIT):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._interrupt)
        for number in ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._end)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # ends waits
        signal.signal(signal.SIGCONT, self._continue)
        signal.signal(signal.SIGALRM, self._escalate)

    def wait(self, command: Command, other_ended: Callable[[int], None]) -> int:
        """Wait until `command` has ended and return its status as a shell would: 128+n for signal n.

        other_ended: called with the process id of another child that has ended; must reap that child.
        """
        self._command = command
        if self.ended_by is not None:
            self._send(self._first_signal(self.ended_by))
        with wait_with_handlers() as wait:
            while True:
                # WNOWAIT: other children are reaped by their owners.
                news = os.waitid(os.P_ALL, 0, os.WEXITED | os.WSTOPPED | os.WNOWAIT | os.WNOHANG)
                if news is None:
                    wait()
                elif news.si_pid != command.pid:
                    other_ended(news.si_pid)
                elif news.si_code == os.CLD_STOPPED:
                    self._stop_with(command)
                else:
                    status = command.wait()
                    _give_terminal_to(self._terminal_group)
                    return status if status >= 0 else 128 - status

    def end_after(self, seconds: float) -> None:
        """Send SIGHUP to the command after this time."""
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def end_command(self) -> None:
        """End the command when the shell can no longer serve it."""
        self._end(signal.SIGTERM, None)

    def _stop_with(self, command: Command) -> None:
        """Stop as well, unless the command runs again by now, so that the caller's shell takes the terminal back.

        Ctrl-Z stops both processes, and `fg` continues them one after the other: the command may have stopped only
        briefly.
        """
        time.sleep(_SETTLE_S)
        # The command may have ended by now: ECHILD (waitid(2)).
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, command.pid, os.WSTOPPED | os.WNOHANG) is not None:
                # SIGTSTP has no effect if no shell could continue us.
                os.kill(os.getpid(), signal.SIGTSTP)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self.ended_by = self.ended_by or number
        self._send(self._first_signal(number))
        if self._escalation:
            signal.setitimer(signal.ITIMER_REAL, _HANG_UP_AFTER_S)

    def _first_signal(self, number: int) -> int:
        """Return the first signal to the command when signal `number` ends the shell."""
        return signal.SIGHUP if self._hanging_up else number

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._hanging_up and _terminal_group() != os.getpgrp():
            self._end(number, frame)

    def _escalate(self, _number: int, _frame: FrameType | None) -> None:
        self.out_of_time = self.ended_by is None
        if self._escalation:
            # An interactive shell ignores SIGTERM, but ends at SIGHUP.
            self._send(self._escalation.pop(0))
            signal.setitimer(signal.ITIMER_REAL, _KILL_AFTER_S)

    def _continue(self, _number: int, _frame: FrameType | None) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: int) -> None:
        if self._command is not None and self._command.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._command.pid, number)
                if number in ENDING:
                    os.kill(self._command.pid, signal.SIGCONT)


def end_inhabitants(namespace: int, patience: float = 0.5) -> None:
    """End every process of this user in the network namespace with inode number `namespace`: SIGTERM, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + patience
        for process in inhabitants(namespace):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, number)
        while inhabitants(namespace) and time.monotonic() < deadline:
            time.sleep(0.01)


def _terminal_group() -> int | None:
    try:
        return os.tcgetpgrp(0)
    except OSError:
        return None


def _give_terminal_to(group: int | None) -> None:
    """Return the terminal to `group`: a killed shell keeps it, and the caller would be stopped at its next output."""
    if group is None or _terminal_group() == group:
        return
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.tcsetpgrp(0, group)
    signal.signal(signal.SIGTTOU, before)
