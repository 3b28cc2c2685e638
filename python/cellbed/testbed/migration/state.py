"""State transfer by the application: one instance saves its state in rounds while it serves, another loads it."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterator

from cellbed.testbed.migration.state_sockets import StateError, Talk
from cellbed.testbed.migration.strategy import Move, Predicted, PredictedSteps, Steps, Strategy
from cellbed.testbed.migration.transfer import EMPTY_BYTES

MOST_ROUNDS = 8
SHRINKS = 0.8
"""Maximum ratio of a round's size to the previous round's for which a further round is worth its time."""
SMALL_BYTES = 64 << 10
"""Size of a round, bytes, up to which a further round saves no time: the rest is sent as fast during the pause."""
CONNECT_S = 5.0


class StateTransfer(Strategy):
    """Pre-copy by the application, which pauses only for the changes of the last round."""

    def move(self, move: Move) -> Steps:
        with _open_unnamed(move) as files:
            yield from self._move(move, files)

    def _move(self, move: Move, files: tuple[int, int]) -> Steps:
        source = move.states.talk(move.program.name)
        with move.phase("start"):
            yield from move.start()
            target = yield from _connect(move)
        size, before, since = 0, 0, 0.0
        for number in range(1, MOST_ROUNDS + 1):
            with move.phase(f"round {number}"):
                span, since = time.monotonic() - since, time.monotonic()
                size = yield from _pass_on(move, source, target, b"save" if before else b"save all", files)
            if before:
                move.facts["dirty_rate"] = dirty_rate(size, span)
            if is_last(size, before):
                break
            before = size
        with move.phase("prepare"):
            yield from move.channel.prepare(*files)
        stopped = time.monotonic()
        with move.phase("last round"):
            yield from _pass_on(move, source, target, b"finish", files)
        with move.phase("restore"):
            yield from target.serve()
        move.facts["stood_still_s"] = time.monotonic() - stopped
        move.switch(established=False)
        with move.phase("drain"):
            yield from move.leave()

    def undo(self, move: Move) -> Steps:
        move.states.forget(move.program.name)
        yield from ()

    def predict(self, move: Predicted) -> PredictedSteps:
        model = move.model
        with move.phase("start"):
            yield model.start or 0
        change = yield from predict_rounds(move)
        with move.phase("prepare"):
            yield from move.prepare(model.overhead)
        stopped_ns = move.now_ns
        move.pause()
        with move.phase("last round"):
            yield from move.send(change() + EMPTY_BYTES, model.finish)
        with move.phase("restore"):
            yield model.restore or 0
        move.facts["stood_still_s"] = (move.now_ns - stopped_ns) / 1e9
        yield from move.switch()
        yield from move.drain()


def predict_rounds(move: Predicted) -> Generator[int, None, Callable[[], int]]:
    """Send the state in rounds; return a function of the bytes that have changed since the last round was saved.

    A round has the changes during the previous one: bytes(n) = min(size, rate of changes × time(n − 1)) (Liu et al.,
    Performance and energy modeling for live migration of virtual machines, HPDC 2011).
    """
    model = move.model
    size, before, saved_ns = model.size or 0, 0, move.now_ns

    def change() -> int:
        nonlocal saved_ns
        span_ns, saved_ns = move.now_ns - saved_ns, move.now_ns
        return min(model.size or 0, (model.dirty_rate or 0) * span_ns // (8 * 10**9))

    for number in range(1, MOST_ROUNDS + 1):
        with move.phase(f"round {number}"):
            if before:
                size = change()
            else:
                yield model.save or 0
            yield from move.send(size + EMPTY_BYTES if before else size, model.overhead)
        if is_last(size, before):
            break
        before = size
    return change


def is_last(size: int, before: int) -> bool:
    """Return whether no further round is worth its time. size, before: bytes of this and the previous round; `before`
    is 0 in the first round."""
    return size <= SMALL_BYTES or (before > 0 and size > SHRINKS * before)


def dirty_rate(size: int, span: float) -> str:
    """Return the rate at which a service changes its state. size: bytes that changed in `span` seconds."""
    return f"{8e-6 * size / span:.1f} Mbit/s"


def _connect(move: Move) -> Generator[None, None, Talk]:
    assert move.started is not None
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            return move.states.talk(move.started.name)
        except StateError:
            if time.monotonic() > deadline:
                raise
        yield


def _pass_on(move: Move, source: Talk, target: Talk, verb: bytes, files: tuple[int, int]) -> Generator[None, None, int]:
    """Transfer the state that the source saves; return its size in bytes. files: files of the state, here and there."""
    saved, arrived = files
    yield from source.save(verb, saved)
    yield from move.channel.send(saved, arrived)
    size = os.fstat(arrived).st_size
    yield from target.load(arrived)
    for each in files:
        os.ftruncate(each, 0)
    return size


@contextlib.contextmanager
def _open_unnamed(move: Move) -> Iterator[tuple[int, int]]:
    """Open unnamed files for a state, here and on the target's disk: no program can open them."""
    there = f"/proc/self/fd/{move.target_folder}"
    with tempfile.TemporaryFile(dir=move.folder) as saved, tempfile.TemporaryFile(dir=there) as arrived:
        yield saved.fileno(), arrived.fileno()
