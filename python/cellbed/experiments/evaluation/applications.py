"""The applications that run on each network, and what each of them measures.

An application describes its requests; `.programs` makes them over sockets, `.virtual` in virtual time.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal

from cellbed.experiments.evaluation.pages import pages

Measured = tuple[str, float | None]
"""A measure's name and a sample: seconds or Mbit/s, ``None`` where it was never completed."""

Protocol = Literal["HTTP/1.1", "HTTP/2"]
Rule = Literal["throughput", "buffer"]

_KB = 1000


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """UDP packets to an echo server at a fixed interval (§3.1 of the paper: 1400 bytes every 50 ms)."""

    name: ClassVar[str] = "round-trips"
    bytes: int = 1400
    interval_s: float = 0.05
    packets: int = 100

    @property
    def length_s(self) -> float:
        """How long it takes, about."""
        return self.packets * self.interval_s


@dataclass(frozen=True, slots=True)
class Trains:
    """Trains of back-to-back packets down, each acknowledged when its last one is there; a gap behind each (§3.2).

    lengths: packets, met in random order. trains: of each length.
    """

    name: ClassVar[str] = "trains"
    lengths: tuple[int, ...] = (1, 10, 25, 50, 75, 100, 150, 200, 250, 300, 400, 500)
    trains: int = 5
    bytes: int = 1400
    ack_bytes: int = 100
    gap_s: float = 0.1

    @property
    def length_s(self) -> float:
        """How long it takes, about: half a millisecond a packet."""
        return sum(self.trains * (self.gap_s + 0.05 + 0.0005 * length) for length in self.lengths)


@dataclass(frozen=True, slots=True)
class Downloads:
    """Files by TCP, each over a connection of its own, in random order with pauses in between.

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
        """How long it takes, about: at 30 Mbit/s."""
        return sum(size * 8 / 30e6 + 0.2 + sum(self.pause_s) / 2 for size in self._all())

    def turns(self, seed: int) -> list[tuple[float, int]]:
        """The files in random order, each with the pause before it, seconds."""
        chance, sizes = random.Random(seed), self._all()
        chance.shuffle(sizes)
        return [(chance.uniform(*self.pause_s), size) for size in sizes]

    def _all(self) -> list[int]:
        return [size for size in self.sizes for _ in range(self.repeats if size <= 1000 * _KB else 1)]


@dataclass(frozen=True, slots=True)
class Pages:
    """Web pages in a headless browser without a cache, in random order; the page load time of its navigation timing."""

    name: ClassVar[str] = "pages"
    protocols: tuple[Protocol, ...] = ("HTTP/1.1", "HTTP/2")
    names: tuple[str, ...] = tuple(page.name for page in pages())
    pause_s: tuple[float, float] = (0.2, 1.0)

    @property
    def length_s(self) -> float:
        """How long it takes, about."""
        loads = [page.bytes * 8 / 30e6 + 2.0 for page in pages() if page.name in self.names]
        return len(self.protocols) * sum(loads)


@dataclass(frozen=True, slots=True)
class Player:
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
        """How long it takes, about."""
        return len(self.rules) * self.segments * self.segment_s / 2


Application = RoundTrips | Trains | Downloads | Pages | Player

APPLICATIONS: dict[str, type[Application]] = {
    each.name: each for each in (RoundTrips, Trains, Downloads, Pages, Player)
}


def described(application: Application) -> dict[str, Any]:
    """The application as JSON has it."""
    return {"name": application.name, **asdict(application)}


def told(description: dict[str, Any]) -> Application:
    """The application that :func:`described` told."""
    kind: Any = APPLICATIONS[description["name"]]
    known = {field.name for field in fields(kind)}
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in description.items()}
    application: Application = kind(**{key: value for key, value in lists.items() if key in known})
    return application


ROUND_TRIP = "round trip"


def train(length: int) -> str:
    """Name of the measure: how long a train of `length` packets took."""
    return f"train of {length}"


def download(size: int) -> str:
    """Name of the measure: how long a file of `size` bytes took."""
    return f"download of {size // _KB} KB" if size < 1000 * _KB else f"download of {size // (1000 * _KB)} MB"


def page(name: str, protocol: Protocol) -> str:
    """Name of the measure: how long a page took."""
    return f"page {name} {protocol}"


def every_page(protocol: Protocol) -> str:
    """Name of what pages have in common, beside their own measures: the mean of their errors' sizes."""
    return f"every page {protocol}"


def start_up(rule: Rule) -> str:
    """Name of the measure: how long the player with this rule took until it played."""
    return f"start-up {rule}"


def bit_rate(rule: Rule) -> str:
    """Name of the measure: mean bit rate of the first segments."""
    return f"bit rate {rule}"


def measures(application: Application) -> list[str]:
    """Names of what an application measures, in the order they are told in."""
    match application:
        case RoundTrips():
            return [ROUND_TRIP]
        case Trains():
            return [train(length) for length in application.lengths]
        case Downloads():
            return [download(size) for size in application.sizes]
        case Pages():
            return [page(name, protocol) for protocol in application.protocols for name in application.names]
        case Player():
            return [each(rule) for each in (start_up, bit_rate) for rule in application.rules]


def quick(application: type[Application]) -> Application:
    """A shortened application, for a first look."""
    match application.name:
        case Trains.name:
            return Trains(lengths=(1, 10, 50, 100, 500), trains=3)
        case Pages.name:
            return Pages(names=("google", "amazon"))
        case _:
            return application()
