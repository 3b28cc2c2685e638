"""Redeploy: start a stateless service at the target, let new connections go there, and drain the source."""

from __future__ import annotations

import time

from cellbed.testbed.migration.listening import established
from cellbed.testbed.migration.strategy import Move, Steps, Strategy

DRAIN_S = 2.0
"""The longest time of connections to the source once new ones go to the target; then the program is asked to end, which
gives it the grace time of the scenario."""


def drain(move: Move) -> Steps:
    """Wait until the source has no connections any more, ``DRAIN_S`` at most, and end it."""
    with move.phase("drain"):
        deadline = time.monotonic() + DRAIN_S
        process = move.program.process
        while process is not None and time.monotonic() < deadline and established(process.pid, move.ports):
            yield
        yield from move.leave()


class Redeploy(Strategy):
    """A new program in place of the old one: no state moves, no request waits."""

    def move(self, move: Move) -> Steps:
        with move.phase("start"):
            yield from move.start()
        move.switch(established=False)
        yield from drain(move)
