"""Programs that measure go before others, where the user may; elsewhere they take their turn.

On a busy machine a program that waits for a packet is woken up some milliseconds late, now and then a hundred: as much
as the networks that are compared differ by. Niceness does not help, since Linux shares the processor among sessions
first (sched(7), "The autogroup feature").
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_SESSION_NICE = -10


def run_first() -> None:
    """Let this process, with the threads that it will have, run before all ordinary ones.

    For programs that do little but wait: one that computes would leave nothing to others.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def prefer_session() -> None:
    """Let this session, with the programs that it will have, have most of the processor when it needs it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_SESSION_NICE), encoding="utf-8")
