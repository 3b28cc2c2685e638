"""The applications that measure a network in the evaluation, in virtual time over a :class:`cellbed.path.Path`.

They run in Rust: as predicted runs of a scenario they would take about seven times as long.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, TypeVar

from cellbed.path import Path as NetworkPath
from cellbed.path import Session
from cellbed.workloads.web import pages as web

T = TypeVar("T")

Measured = tuple[str, float | None]
"""A measure's name and a sample: seconds or Mbit/s, ``None`` where it was never completed."""

SECOND = 1_000_000_000
_PATIENCE_NS = 120 * SECOND
"""Time limit of a transfer."""
_REQUEST_BYTES = 8
_KB = 1000
ROUND_TRIP = "round trip"
"""The measure of :class:`RoundTrips`."""

Protocol = Literal["HTTP/1.1", "HTTP/2"]
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


class Application:
    """Base of the applications, which are frozen dataclasses: their fields are the parameters, all JSON-able.

    name: in options and results.
    """

    name: ClassVar[str]

    @property
    def length_s(self) -> float:
        """Approximate duration in seconds."""
        raise NotImplementedError

    def measures(self) -> list[str]:
        """Return the names of what the application measures, in the order of reports."""
        raise NotImplementedError

    def groups(self) -> dict[str, dict[str, str]]:
        """Measures that are also reported together, as the mean of the sizes of their errors: for each name of a group
        the short names of its measures."""
        return {}

    @classmethod
    def quick(cls) -> Self:
        """Return a shortened application, for a first look."""
        return cls()

    def run(self, path: NetworkPath, seed: int) -> list[Measured]:
        """Return the samples of one run over a path. seed: of the order and the pauses."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RoundTrips(Application):
    """UDP packets to an echo server at a fixed interval (Sentosa et al., NSDI 2025, §3.1: 1400 bytes every 50 ms)."""

    name: ClassVar[str] = "round-trips"
    bytes: int = 1400
    interval_s: float = 0.05
    packets: int = 100

    @property
    def length_s(self) -> float:
        """Approximate duration in seconds."""
        return self.packets * self.interval_s

    def measures(self) -> list[str]:
        """Return the round-trip time of each packet."""
        return [ROUND_TRIP]

    def run(self, path: NetworkPath, seed: int) -> list[Measured]:
        """Return the round-trip time of each packet in order; ``None`` for one without an answer."""
        interval = _nanoseconds(self.interval_s)
        found = path.round_trips(count=self.packets, interval=interval, request=self.bytes, answer=self.bytes)
        return [(ROUND_TRIP, value) for value in _seconds(found.taken.tolist())]


def train(length: int) -> str:
    """Return the name of the measure for trains of `length` packets."""
    return f"train of {length}"


@dataclass(frozen=True, slots=True)
class Trains(Application):
    """Trains of back-to-back packets down, each acknowledged when its last one has arrived; a gap behind each
    (Sentosa et al., NSDI 2025, §3.2).

    lengths: packets, in random order. trains: of each length.
    """

    name: ClassVar[str] = "trains"
    lengths: tuple[int, ...] = (1, 10, 25, 50, 75, 100, 150, 200, 250, 300, 400, 500)
    trains: int = 5
    bytes: int = 1400
    ack_bytes: int = 100
    gap_s: float = 0.1

    @property
    def length_s(self) -> float:
        """Approximate duration in seconds, at half a millisecond a packet."""
        return sum(self.trains * (self.gap_s + 0.05 + 0.0005 * length) for length in self.lengths)

    def measures(self) -> list[str]:
        """Return the duration of a train of each length."""
        return [train(length) for length in self.lengths]

    @classmethod
    def quick(cls) -> Self:
        """Return trains of few lengths."""
        return cls(lengths=(1, 10, 50, 100, 500), trains=3)

    def run(self, path: NetworkPath, seed: int) -> list[Measured]:
        """Return the duration of each train, from its first packet to the acknowledgement."""
        gap, found = _nanoseconds(self.gap_s), list[Measured]()
        for length in (length for length in _shuffled(self.lengths, seed) for _ in range(self.trains)):
            at = path.now + gap
            taken = path.trains(
                at, lengths=[length], packet=self.bytes, acknowledgement=self.ack_bytes, until=at + _PATIENCE_NS
            ).completion.tolist()
            found += [(train(length), value) for value in _seconds(taken)]
        return found


def download(size: int) -> str:
    """Return the name of the measure for files of `size` bytes."""
    return f"download of {size // _KB} KB" if size < 1000 * _KB else f"download of {size // (1000 * _KB)} MB"


@dataclass(frozen=True, slots=True)
class Downloads(Application):
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
        """Return the duration of a file of each size."""
        return [download(size) for size in self.sizes]

    def run(self, path: NetworkPath, seed: int) -> list[Measured]:
        """Return the duration of each file."""
        chance, sizes = random.Random(seed), self._all()
        chance.shuffle(sizes)
        found: list[Measured] = []
        for pause, size in [(chance.uniform(*self.pause_s), size) for size in sizes]:
            at = path.now + _nanoseconds(pause)
            taken = path.downloads(at, sizes=[size], request=_REQUEST_BYTES, until=at + _PATIENCE_NS).taken.tolist()
            found += [(download(size), value) for value in _seconds(taken)]
        return found

    def _all(self) -> list[int]:
        return [size for size in self.sizes for _ in range(self.repeats if size <= 1000 * _KB else 1)]


@functools.cache
def pages() -> dict[str, list[tuple[int, int | None]]]:
    """Return the objects of each generated page by its name, in the order they are requested: bytes, and number of the
    object that names it; ``None`` for the document."""
    return {name: [(each.size, each.parent) for each in objects] for name, objects in web.pages().items()}


def page(name: str, protocol: Protocol) -> str:
    """Return the name of the measure for pages."""
    return f"page {name} {protocol}"


@dataclass(frozen=True, slots=True)
class Pages(Application):
    """Web pages without a cache, in random order, each until its load event."""

    name: ClassVar[str] = "pages"
    protocols: tuple[Protocol, ...] = ("HTTP/1.1", "HTTP/2")
    names: tuple[str, ...] = tuple(pages())
    pause_s: tuple[float, float] = (0.2, 1.0)

    @property
    def length_s(self) -> float:
        """Approximate duration in seconds, at 30 Mbit/s."""
        loads = [sum(size for size, _ in pages()[name]) * 8 / 30e6 + 2.0 for name in pages() if name in self.names]
        return len(self.protocols) * sum(loads)

    def measures(self) -> list[str]:
        """Return the load time of each page by each protocol."""
        return [page(name, protocol) for protocol in self.protocols for name in self.names]

    def groups(self) -> dict[str, dict[str, str]]:
        """Return all pages of a protocol."""
        return {
            f"every page {protocol}": {page(name, protocol): name for name in self.names} for protocol in self.protocols
        }

    @classmethod
    def quick(cls) -> Self:
        """Return loads of two pages."""
        return cls(names=("google", "amazon"))

    def run(self, path: NetworkPath, seed: int) -> list[Measured]:
        """Return the load time of each page by each protocol."""
        chance = random.Random(seed)
        loads = [(name, protocol) for name in self.names for protocol in self.protocols]
        chance.shuffle(loads)
        found: list[Measured] = []
        for name, protocol in loads:
            at = path.now + _nanoseconds(chance.uniform(*self.pause_s))
            taken = path.page(at, objects=pages()[name], protocol=protocol, until=at + _PATIENCE_NS).taken
            found += [(page(name, protocol), value) for value in _seconds([taken])]
        return found


@dataclass(frozen=True, slots=True)
class Player(Application):
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
        """Return the time until the player plays and the mean bit rate of the first segments, by each rule."""
        return [f"{what} {rule}" for what in ("start-up", "bit rate") for rule in self.rules]

    def run(self, path: NetworkPath, seed: int) -> list[Measured]:
        """Watch the beginning of a video by each rule, over one connection for each."""
        found: list[Measured] = []
        for rule in _shuffled(self.rules, seed):
            session = path.session(request=_REQUEST_BYTES)

            def fetch(size: int, session: Session = session) -> tuple[float, float]:
                done = session.fetch(size)
                return float(done.started[0]) / SECOND, float(done.finished[0]) / SECOND

            found += self.play(rule, fetch)
        return found

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


def rung(rule: Rule, rungs: Sequence[float], throughputs: Sequence[float], buffered_s: float) -> int:
    """Return the number of the rung that the next segment is asked for in. Pure.

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


APPLICATIONS: dict[str, type[Application]] = {
    each.name: each for each in (RoundTrips, Trains, Downloads, Pages, Player)
}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * SECOND)


def _seconds(taken: Sequence[int]) -> list[float | None]:
    """Return the durations in seconds; a negative one was never completed."""
    return [value / SECOND if value >= 0 else None for value in taken]


def _shuffled(values: Sequence[T], seed: int) -> list[T]:
    shuffled = list(values)
    random.Random(seed).shuffle(shuffled)
    return shuffled
