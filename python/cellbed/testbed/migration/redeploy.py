"""Redeploy: start a stateless service at the target, let new connections go there, and drain the source."""

from __future__ import annotations

import contextlib
import time

from cellbed.testbed.machine.process import ProgramError
from cellbed.testbed.migration.strategy import Move, Predicted, PredictedSteps, Steps, Strategy

DRAIN_S = 2.0
"""Maximum time of connections to the source after new ones go to the target, seconds. Then the program is asked to end,
with the grace time of the scenario."""
_LOOK_S = 0.05


def drain(move: Move) -> Steps:
    """Wait until the source has no connections, at most ``DRAIN_S``, and end the program there."""
    with move.phase("drain"):
        deadline = time.monotonic() + DRAIN_S
        process, look_s = move.program.process, 0.0
        with contextlib.suppress(ProgramError):  # another machine may have become unreachable
            while process is not None and (now := time.monotonic()) < deadline:
                if now >= look_s:
                    if not move.source.served(process.pid)[2]:
                        break
                    look_s = now + _LOOK_S
                yield
        yield from move.leave()


class Redeploy(Strategy):
    """A new program replaces the old one: no state moves, no request waits."""

    unused_keys = dict.fromkeys(
        ("congestion_control", "connections", "compression", "rate"), "'redeploy' sends nothing"
    )
    needs = "start"
    drain_s = DRAIN_S

    def move(self, move: Move) -> Steps:
        with move.phase("start"):
            yield from move.start()
        move.switch(established=False)
        yield from drain(move)

    def predict(self, move: Predicted) -> PredictedSteps:
        with move.phase("start"):
            yield move.model.start or 0
        yield from move.switch()
        yield from move.drain(DRAIN_S)
