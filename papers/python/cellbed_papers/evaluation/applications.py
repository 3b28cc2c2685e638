"""The applications that measure a network in the evaluation, in virtual time.

Pages and videos are of the kinds ``web`` and ``video``, with a browser that takes no time to process.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self, TypeVar

from cellbed.extension.programs import Browser, Chunk, Files, Page, PageObject, Program, World, machine, play
from cellbed.extension.programs import pages as web
from cellbed.extension.programs import player as video
from cellbed_papers.evaluation.network import Network

T = TypeVar("T")

Measured = tuple[str, float | None]
"""A measure's name and a sample: seconds or Mbit/s, ``None`` if it was never completed."""

SECOND = 1_000_000_000
_PATIENCE_NS = 120 * SECOND
"""Maximum time of a transfer, ns."""
_REQUEST_BYTES = 8
_KB = 1000
ROUND_TRIP = "round trip"
"""Measure of :class:`RoundTrips`."""
EVERY_TRAIN, EVERY_FILE, EVERY_CHUNK = "every train", "every file", "first chunks"
EVERY_PAGE = {protocol: f"every page {protocol}" for protocol in ("HTTP/1.1", "HTTP/2")}
"""Groups of measures."""

Protocol = Literal["HTTP/1.1", "HTTP/2"]
Rule = Literal["throughput", "bola"]


class Application:
    """Base of the applications, which are frozen dataclasses. Their fields are the parameters, all JSON values.

    name: name in options and results. group: name of the group of all measures, if any.
    """

    name: ClassVar[str]
    group: ClassVar[str] = ""

    @property
    def length_s(self) -> float:
        """Approximate duration in seconds."""
        raise NotImplementedError

    def measures(self) -> list[str]:
        """Return the names of the application's measures, in the order of reports."""
        raise NotImplementedError

    def groups(self) -> dict[str, list[str]]:
        """Return, by name of a group, measures that are also reported together: the group's value is the mean size of
        their errors."""
        return {self.group: self.measures()} if self.group else {}

    @classmethod
    def quick(cls) -> Self:
        """Return a shortened application, for a first look."""
        return cls()

    def run(self, network: Network, seed: int) -> list[Measured]:
        """Return the samples of one run over a network. seed: seed of order and pauses. Errors: :class:`ValueError`
        for a network that cannot be simulated."""
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
        return self.packets * self.interval_s

    def measures(self) -> list[str]:
        """Return the round-trip time of each packet."""
        return [ROUND_TRIP]

    def run(self, network: Network, seed: int) -> list[Measured]:
        """Return the round-trip time of each packet in order; ``None`` for a packet without an answer."""
        interval = _nanoseconds(self.interval_s)
        found = network.path().round_trips(count=self.packets, interval=interval, request=self.bytes, answer=self.bytes)
        return [(ROUND_TRIP, value) for value in _seconds(found.taken.tolist())]


def train(length: int) -> str:
    """Return the name of the measure for trains of `length` packets."""
    return f"train of {length}"


@dataclass(frozen=True, slots=True)
class Trains(Application):
    """Downlink trains of back-to-back packets. Each is acknowledged when its last packet has arrived, and followed by a
    gap (Sentosa et al., NSDI 2025, §3.2).

    lengths: packets, in random order. trains: number of trains of each length.
    """

    name: ClassVar[str] = "trains"
    group: ClassVar[str] = EVERY_TRAIN
    lengths: tuple[int, ...] = (1, 10, 25, 50, 75, 100, 150, 200, 250, 300, 400, 500)
    trains: int = 5
    bytes: int = 1400
    ack_bytes: int = 100
    gap_s: float = 0.1

    @property
    def length_s(self) -> float:
        """Approximate duration in seconds, at half a millisecond per packet."""
        return sum(self.trains * (self.gap_s + 0.05 + 0.0005 * length) for length in self.lengths)

    def measures(self) -> list[str]:
        """Return the duration of trains, by length."""
        return [train(length) for length in self.lengths]

    @classmethod
    def quick(cls) -> Self:
        """Return an application with few train lengths."""
        return cls(lengths=(1, 10, 50, 100, 500), trains=3)

    def run(self, network: Network, seed: int) -> list[Measured]:
        """Return the duration of each train, from its first packet to the acknowledgement."""
        path, gap, found = network.path(), _nanoseconds(self.gap_s), list[Measured]()
        for length in (length for length in _shuffle(self.lengths, seed) for _ in range(self.trains)):
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
    """Files by TCP, each over a separate connection, in random order with pauses between them.

    sizes: bytes. A sample lasts from the first SYN to the last byte. pause_s: minimum and maximum pause. repeats:
    number of downloads of files up to 1 MB, which vary most; larger files are downloaded once.
    """

    name: ClassVar[str] = "downloads"
    group: ClassVar[str] = EVERY_FILE
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
        """Return the duration of files, by size."""
        return [download(size) for size in self.sizes]

    def run(self, network: Network, seed: int) -> list[Measured]:
        """Return the duration of each file."""
        path, chance, sizes = network.path(), random.Random(seed), self._all()
        chance.shuffle(sizes)
        found: list[Measured] = []
        for pause, size in [(chance.uniform(*self.pause_s), size) for size in sizes]:
            at = path.now + _nanoseconds(pause)
            until = at + _PATIENCE_NS
            done = path.downloads(at, sizes=[size], request=_REQUEST_BYTES, tcp=network.tcp, until=until)
            found += [(download(size), value) for value in _seconds(done.taken.tolist())]
        return found

    def _all(self) -> list[int]:
        return [size for size in self.sizes for _ in range(self.repeats if size <= 1000 * _KB else 1)]


@functools.cache
def objects(name: str) -> list[web.Object]:
    """Return the objects of a generated page, all of one origin. Each object is requested as soon as the object that
    names it has arrived."""
    return [replace(each, kind="image", origin=0) for each in web.pages()[name]]


def page(name: str, protocol: Protocol) -> str:
    """Return the name of the measure for pages by a protocol."""
    return f"page {name} {protocol}"


@dataclass(frozen=True, slots=True)
class Pages(Application):
    """Web pages without a cache, in random order, each until its load event."""

    name: ClassVar[str] = "pages"
    protocols: tuple[Protocol, ...] = ("HTTP/1.1", "HTTP/2")
    names: tuple[str, ...] = tuple(web.pages())
    pause_s: tuple[float, float] = (0.2, 1.0)

    @property
    def length_s(self) -> float:
        """Approximate duration in seconds, at 30 Mbit/s."""
        loads = [sum(each.size for each in web.pages()[name]) * 8 / 30e6 + 2.0 for name in self.names]
        return len(self.protocols) * sum(loads)

    def measures(self) -> list[str]:
        """Return the load time of each page by each protocol."""
        return [page(name, protocol) for protocol in self.protocols for name in self.names]

    def groups(self) -> dict[str, list[str]]:
        """Return a group of all pages for each protocol."""
        return {EVERY_PAGE[protocol]: [page(name, protocol) for name in self.names] for protocol in self.protocols}

    @classmethod
    def quick(cls) -> Self:
        """Return an application that loads two pages."""
        return cls(names=("google", "amazon"))

    def run(self, network: Network, seed: int) -> list[Measured]:
        """Return the load time of each page by each protocol."""
        chance = random.Random(seed)
        loads = [(name, protocol) for name in self.names for protocol in self.protocols]
        chance.shuffle(loads)
        found: list[Measured] = []
        world = network.world()
        with world.entered():
            for name, protocol in loads:
                taken = load(world, objects(name), protocol, world.now_ns + _nanoseconds(chance.uniform(*self.pause_s)))
                found += [(page(name, protocol), value) for value in _seconds([taken])]
        return found


def load(world: World, objects: Sequence[web.Object], protocol: Protocol, at_ns: int) -> int:
    """Return the load time of a page over a network by a browser without processing time, ns; -1 after the time
    limit. at_ns: begin of the load."""
    files = Files(world, protocol.removeprefix("HTTP/"))
    browser = Browser(files, Program(world, world.hosts["client"]))
    server = next(world.hosts["server"].ports)
    world.listen(world.hosts["server"], server, files, "")
    ended: list[int] = []

    def make(number: int) -> PageObject:
        return PageObject(number, "client", machine.now_ns())

    made = Page(browser, objects, make, [("server", server)], {}, 0, lambda: ended.append(machine.now_ns() - at_ns))
    world.at(at_ns, lambda: browser.program.call(made.begin))
    world.run(at_ns + _PATIENCE_NS, lambda: bool(ended))
    browser.close()
    return ended[0] if ended else -1


@dataclass(frozen=True, slots=True)
class Player(Application):
    """The start-up phase of an adaptive player: time until playback, and bit rate of the first chunks.

    rates: renditions' bit rates, Mbit/s. chunks: number of watched chunks. playable: number of chunks before playback.
    """

    name: ClassVar[str] = "player"
    group: ClassVar[str] = EVERY_CHUNK
    rules: tuple[Rule, ...] = ("throughput", "bola")
    rates: tuple[float, ...] = (1.5, 4.0, 7.5, 12.0, 18.0, 25.0, 40.0)
    chunk_s: float = 2.0
    chunks: int = 8
    playable: int = 2

    @property
    def length_s(self) -> float:
        return len(self.rules) * self.chunks * self.chunk_s / 2

    def measures(self) -> list[str]:
        """Return, by rule, the time until playback and the mean bit rate of the first chunks."""
        return [f"{what} {rule}" for what in ("start-up", "bit rate") for rule in self.rules]

    def run(self, network: Network, seed: int) -> list[Measured]:
        """Watch the beginning of a video by each rule, each over one connection."""
        found: list[Measured] = []
        world = network.world()
        with world.entered():
            for rule in _shuffle(self.rules, seed):
                begin_ns = world.now_ns
                player, rates = self._play(world, rule)
                waited = None if player.started_ns is None else (player.started_ns - begin_ns) / SECOND
                found += [(f"start-up {rule}", waited), (f"bit rate {rule}", sum(rates) / 1e6 / max(1, len(rates)))]
        return found

    def _play(self, world: World, rule: Rule) -> tuple[video.Player, list[int]]:
        """Return a player that has watched the chunks, and the bit rate of each chunk."""
        player = video.Player(
            [round(each * 1e6) for each in self.rates], self.chunk_s, self.chunks, rule, self.playable
        )
        files, client, server = Files(world, "2"), world.hosts["client"], world.hosts["server"]
        port = next(server.ports)
        world.listen(server, port, files, "")
        browser = Browser(files, Program(world, client))
        rates: list[int] = []

        def make(index: int) -> Chunk:
            rates.append(player.rates[index])
            return Chunk(len(rates), "client", machine.now_ns())

        def size(_: int, index: int) -> int:
            return int(player.rates[index] / 8 * self.chunk_s)

        begin = functools.partial(play, player, size, browser, ("server", port), make, lambda _: None)
        browser.program.call(begin)
        world.run(world.now_ns + _PATIENCE_NS, lambda: player.loaded == player.count)
        browser.close()
        return player, rates


APPLICATIONS: dict[str, type[Application]] = {
    each.name: each for each in (RoundTrips, Trains, Downloads, Pages, Player)
}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * SECOND)


def _seconds(taken: Sequence[int]) -> list[float | None]:
    """Return the durations in seconds; ``None`` for a negative one, which was never completed."""
    return [value / SECOND if value >= 0 else None for value in taken]


def _shuffle(values: Sequence[T], seed: int) -> list[T]:
    shuffled = list(values)
    random.Random(seed).shuffle(shuffled)
    return shuffled
