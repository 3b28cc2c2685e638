"""Bytes by TCP: files over separate connections, and the segments that an adaptive player asks for over one."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from cellbed.experiments.evaluation.applications.application import (
    PATIENCE_NS,
    SECOND,
    Application,
    Measured,
    in_thread,
    nanoseconds,
    seconds,
)

if TYPE_CHECKING:
    from cellbed.simulation import Path as NetworkPath
    from cellbed.simulation import Session

PORT = 7009
_CHUNK = bytes(1 << 16)
_PATIENCE_S = 120.0
_REQUEST_BYTES = 8
_KB = 1000

Rule = Literal["throughput", "buffer"]
Fetch = Callable[[int], tuple[float, float]]
"""Gets so many bytes and returns when it began and ended, in seconds."""

SAFETY = 0.9
"""Share of the estimated throughput that the throughput rule asks for."""
REMEMBERED = 3
"""Segments in the throughput rule's estimate."""
RESERVOIR_S = 4.0
CUSHION_S = 12.0
"""The buffer rule asks for the lowest rung up to the reservoir and for the highest from reservoir + cushion on."""


def download(size: int) -> str:
    """Return name of the measure: how long a file of `size` bytes took."""
    return f"download of {size // _KB} KB" if size < 1000 * _KB else f"download of {size // (1000 * _KB)} MB"


class _ByTcp(Application):
    """Applications of a server that sends as many bytes as each request asks for."""

    __slots__ = ()

    def serve(self, address: str, folder: Path) -> None:
        """Answer requests, from threads."""
        listener = socket.create_server((address, PORT), backlog=256)

        def accept() -> None:
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=_answer, args=(connection,), daemon=True).start()

        in_thread(accept)


@dataclass(frozen=True, slots=True)
class Downloads(_ByTcp):
    """Files by TCP, each over a separate connection, in random order with pauses in between.

    sizes: bytes. A sample lasts from the first SYN to the last byte. pause_s: shortest and longest pause. repeats: how
    often files of up to 1 MB are fetched, which are soon there and vary most; larger ones once.
    """

    name: ClassVar[str] = "downloads"
    sizes: tuple[int, ...] = (
        1 * _KB, 10 * _KB, 50 * _KB, 100 * _KB, 250 * _KB, 500 * _KB, 1000 * _KB, 5000 * _KB, 10_000 * _KB,
    )  # fmt: skip
    pause_s: tuple[float, float] = (0.2, 1.0)
    repeats: int = 3

    @property
    def length_s(self) -> float:
        """Approximate duration in seconds, at 30 Mbit/s."""
        return sum(size * 8 / 30e6 + 0.2 + sum(self.pause_s) / 2 for size in self._all())

    def measures(self) -> list[str]:
        """How long a file of each size took."""
        return [download(size) for size in self.sizes]

    def simulate(self, path: NetworkPath, seed: int) -> list[Measured]:
        """Run over a path in virtual time."""
        found: list[Measured] = []
        for pause, size in self._turns(seed):
            at = path.now + nanoseconds(pause)
            taken = path.downloads(at, sizes=[size], request=_REQUEST_BYTES, until=at + PATIENCE_NS).taken.tolist()
            found += [(download(size), value) for value in seconds(taken)]
        return found

    def client(self, address: str, seed: int, folder: Path) -> Callable[[], Iterator[Measured]]:
        """Fetches the files in random order, each from the first SYN to the last byte."""
        return lambda: self._run(address, seed)

    def _run(self, address: str, seed: int) -> Iterator[Measured]:
        for pause, size in self._turns(seed):
            time.sleep(pause)
            began = time.monotonic()
            try:
                with socket.create_connection((address, PORT), timeout=_PATIENCE_S) as connection:
                    ended = _fetch(connection, size)
            except OSError:
                yield download(size), None
                continue
            yield download(size), ended - began

    def _turns(self, seed: int) -> list[tuple[float, int]]:
        """Return the files in random order, each with the pause before it, seconds."""
        chance, sizes = random.Random(seed), self._all()
        chance.shuffle(sizes)
        return [(chance.uniform(*self.pause_s), size) for size in sizes]

    def _all(self) -> list[int]:
        return [size for size in self.sizes for _ in range(self.repeats if size <= 1000 * _KB else 1)]


@dataclass(frozen=True, slots=True)
class Player(_ByTcp):
    """The start-up phase of an adaptive player: how soon it plays, and at which bit rate the first segments came.

    rungs: bit rates of the ladder, Mbit/s. segments: how many are watched. playable: segments after which it plays.
    """

    name: ClassVar[str] = "player"
    rules: tuple[Rule, ...] = ("throughput", "buffer")
    rungs: tuple[float, ...] = (1.5, 4.0, 7.5, 12.0, 18.0, 25.0, 40.0)
    segment_s: float = 2.0
    segments: int = 8
    playable: int = 2

    @property
    def length_s(self) -> float:
        """Approximate duration in seconds."""
        return len(self.rules) * self.segments * self.segment_s / 2

    def measures(self) -> list[str]:
        """For each rule how long it took until the player played, and the mean bit rate of the first segments."""
        return [f"{what} {rule}" for what in ("start-up", "bit rate") for rule in self.rules]

    def simulate(self, path: NetworkPath, seed: int) -> list[Measured]:
        """Run over a path in virtual time."""
        found: list[Measured] = []
        for rule in self._order(seed):
            session = path.session(request=_REQUEST_BYTES)

            def fetch(size: int, session: Session = session) -> tuple[float, float]:
                done = session.fetch(size)
                return float(done.started[0]) / SECOND, float(done.finished[0]) / SECOND

            found += self.play(rule, fetch)
        return found

    def client(self, address: str, seed: int, folder: Path) -> Callable[[], Iterator[Measured]]:
        """Watches the beginning of a video by each rule, over one connection for each."""
        return lambda: self._run(address, seed)

    def _run(self, address: str, seed: int) -> Iterator[Measured]:
        for rule in self._order(seed):
            with socket.create_connection((address, PORT), timeout=_PATIENCE_S) as connection:

                def fetch(size: int, connection: socket.socket = connection) -> tuple[float, float]:
                    began = time.monotonic()
                    return began, _fetch(connection, size)

                yield from self.play(rule, fetch)
            time.sleep(1.0)

    def play(self, rule: Rule, fetch: Fetch) -> list[Measured]:
        """Watch the beginning of a video. Pure."""
        throughputs: list[float] = []
        chosen: list[float] = []
        began = playing_since = ended = None
        for number in range(self.segments):
            played = 0.0 if playing_since is None or ended is None else ended - playing_since
            buffered = max(0.0, number * self.segment_s - played)
            rate = self.rungs[rung(rule, self.rungs, throughputs, buffered)]
            size = int(rate * 1e6 / 8 * self.segment_s)
            start, ended = fetch(size)
            began = start if began is None else began
            throughputs.append(size * 8 / 1e6 / max(ended - start, 1e-6))
            chosen.append(rate)
            if number + 1 == self.playable:
                playing_since = ended
            elif playing_since is not None and ended - playing_since > number * self.segment_s:
                # It stalled until this segment was there, and plays on from here.
                playing_since = ended - number * self.segment_s
        waited = None if began is None or playing_since is None else playing_since - began
        return [(f"start-up {rule}", waited), (f"bit rate {rule}", sum(chosen) / len(chosen))]

    def _order(self, seed: int) -> list[Rule]:
        rules = list(self.rules)
        random.Random(seed).shuffle(rules)
        return rules


def rung(rule: Rule, rungs: Sequence[float], throughputs: Sequence[float], buffered_s: float) -> int:
    """Return number of the rung that the next segment is asked for in. Pure.

    throughput: the highest rung below 90 % of the harmonic mean of the last three segments' throughputs (Mbit/s; Jiang
    et al., "Improving Fairness, Efficiency, and Stability in HTTP-based Adaptive Video Streaming with FESTIVE",
    CoNEXT 2012, §4.3, takes the harmonic mean for the same reason: one fast segment does not deceive it).
    buffer: linear in the seconds that are buffered (Huang et al., "A Buffer-Based Approach to Rate Adaptation", SIGCOMM
    2014, §4, BBA-0, with a reservoir and cushion for the small buffer of a start).
    """
    if rule == "buffer":
        share = min(max((buffered_s - RESERVOIR_S) / CUSHION_S, 0.0), 1.0)
        wanted = rungs[0] + share * (rungs[-1] - rungs[0])
    elif throughputs:
        last = throughputs[-REMEMBERED:]
        wanted = SAFETY * len(last) / sum(1 / each for each in last)
    else:
        wanted = rungs[0]
    return max((index for index, rate in enumerate(rungs) if rate <= wanted), default=0)


def _answer(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, contextlib.suppress(OSError):
        while request := connection.recv(_REQUEST_BYTES, socket.MSG_WAITALL):
            (left,) = struct.unpack("!Q", request)
            while left > 0:
                left -= connection.send(_CHUNK[: min(left, len(_CHUNK))])


def _fetch(connection: socket.socket, size: int) -> float:
    """Get `size` bytes; returns when the last one was there, monotonic seconds."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(struct.pack("!Q", size))
    left, buffer = size, bytearray(1 << 18)
    while left > 0:
        count = connection.recv_into(buffer, min(left, len(buffer)))
        if not count:
            raise ConnectionError(f"{left} of {size} bytes are missing")
        left -= count
    return time.monotonic()
