"""Applications over a path of two links in virtual time.

A :class:`Path` is two hosts, a client and a server, and the links between them::

    path = Path(Link(rate="10 Mbit/s", delay="20 ms"), Link(rate="50 Mbit/s", delay="20 ms"))
    path.copy().downloads(sizes=[100_000]).taken  # ns

Times are ns since the links' start. Equal paths give equal results.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from cellbed import _core
from cellbed.laws.law import find, shipped
from cellbed.link import Link

Int64 = npt.NDArray[np.int64]

CONTROLS = tuple(_core.congestion_controls())
"""Names of the congestion control laws of a path's TCP."""
_LARGEST = 65_535
"""Bytes of the largest IP packet."""
PATIENCE_NS = 3600 * 10**9
"""The default limit of an application's run: an hour of virtual time."""


@dataclass(frozen=True, slots=True)
class Tcp:
    """Settings of both ends of a connection; the defaults are Linux's.

    control: congestion control, one of ``CONTROLS``: CUBIC (RFC 9438), NewReno (RFC 5681, 6582) or BBR version 1
    (Cardwell et al., 2016), which paces; or a law of ``cellbed cc ls``, or the path of a law's header. hystart: whether
    CUBIC's slow start may end before a loss. idle_restart: whether the congestion window shrinks while nothing is sent.
    initial_window: segments. receive_window: the largest, bytes. segment: bytes of data in a full packet, behind 52
    bytes of headers. send_buffer: the largest, bytes, which also bounds what is in flight.
    pacing: whether segments are paced under controls that do not pace.
    """

    control: str = "cubic"
    hystart: bool = True
    idle_restart: bool = True
    initial_window: int = 10
    receive_window: int = 6 * 2**20
    segment: int = 1448
    send_buffer: int = 4 * 2**20
    pacing: bool = False


def _settings(tcp: Tcp) -> tuple[str, bool, bool, int, int, int, int, bool]:
    control = tcp.control
    if control.endswith(".h") or control in shipped():
        control = find(control, pathlib.Path()).load()
    return (control, *astuple(tcp)[1:])


@dataclass(frozen=True, slots=True, eq=False)
class RoundTrips:
    """Round trips, a row each. sent: when. taken: ns; -1 if it was lost."""

    sent: Int64
    taken: Int64

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Mask of the answered packets."""
        answered: npt.NDArray[np.bool_] = self.taken >= 0
        return answered


@dataclass(frozen=True, slots=True, eq=False)
class Trains:
    """Packet trains, a row each.

    sent: when. completion: ns from then until the sender has the acknowledgement of the last packet; -1 if one of the
    two was lost. arrivals: of each train the times at which its packets arrived, -1 if lost.
    """

    sent: Int64
    completion: Int64
    arrivals: list[Int64]


@dataclass(frozen=True, slots=True, eq=False)
class Downloads:
    """Downloads, a row each.

    started: when the client sent the SYN, on a connection that was open the request. finished: when the client had the
    last byte; -1 if time was up. repairs: segments that were sent once more, by either end. timeouts: of either end,
    without those of the handshake.
    """

    started: Int64
    finished: Int64
    repairs: Int64
    timeouts: Int64

    @property
    def taken(self) -> Int64:
        """Flow completion times, ns; -1 for what was not finished."""
        taken: Int64 = np.where(self.finished >= 0, self.finished - self.started, -1)
        return taken


@dataclass(frozen=True, slots=True, eq=False)
class PageLoad:
    """The load of a page, a row for each object.

    started: when the browser sent the first SYN. requested, arrived: when the object was requested and when its last
    byte arrived; -1 for never.
    """

    started: int
    requested: Int64
    arrived: Int64

    @property
    def taken(self) -> int:
        """The page load time, ns: until the last object arrived; -1 if one did not."""
        return int(self.arrived.max()) - self.started if len(self.arrived) and self.arrived.min() >= 0 else -1


@dataclass(frozen=True, slots=True)
class Handshake:
    """Bytes of a TLS 1.3 handshake (RFC 8446 §2), which takes one round trip. The sizes are ours: a padded hello, two
    certificates.

    hello: from the client. answer: from the server. end: from the client, in front of its first request.
    """

    hello: int = 517
    answer: int = 3500
    end: int = 80


class Path:
    """Two hosts and the links between them, at rest at time 0.

    A run begins at the end of the previous one or later, with the queues in their state. :meth:`copy` makes an
    independent path.

    turnaround: ns that a host takes until what it sends is on the path. Real ones and the emulator between them take
    about 100 µs; where a trace has all its opportunities on whole milliseconds, an instant answer uses one that any
    real answer misses.
    """

    def __init__(self, uplink: Link, downlink: Link, *, turnaround: int = 0) -> None:
        self._model = _core.Path(_described(uplink), _described(downlink), turnaround)

    def copy(self) -> Self:
        """Return a path in the same state."""
        copy = self.__class__.__new__(self.__class__)
        copy._model = self._model.copy()
        return copy

    @property
    def now(self) -> int:
        """The current time of the path, ns."""
        return self._model.now_ns

    def round_trips(
        self, at: int | None = None, *, count: int, interval: int, request: int = 1400, answer: int = 1400,
        until: int | None = None,
    ) -> RoundTrips:  # fmt: skip
        """Send `count` packets every `interval` ns, each of which the server answers at once.

        at: when the first is sent, now if not given. request, answer: IP lengths. until: when to give up.

        Errors: :class:`ValueError` that names the wrong value; so for all methods.
        """
        _check_packets(request=request, answer=answer)
        at, until = self._span(at, until)
        sent, taken, _ = self._model.trains(at, [1] * count, interval, request, answer, True, until)
        return RoundTrips(sent, taken)

    def trains(
        self, at: int | None = None, *, lengths: Sequence[int], gap: int = 100_000_000, packet: int = 1400,
        acknowledgement: int = 100, uplink: bool = False, until: int | None = None,
    ) -> Trains:  # fmt: skip
        """Trains of so many packets back to back, the last of which is acknowledged (Sentosa et al., NSDI 2025, §3.2).

        gap: from the sending of one to that of the next, ns. packet, acknowledgement: IP lengths. uplink: the client
        sends them, else the server.
        """
        _check_packets(packet=packet, acknowledgement=acknowledgement)
        at, until = self._span(at, until)
        numbers = [int(length) for length in lengths]
        sent, completion, arrivals = self._model.trains(at, numbers, gap, packet, acknowledgement, uplink, until)
        return Trains(sent, completion, np.split(arrivals, np.cumsum(numbers[: len(sent)]))[:-1])

    def downloads(
        self, at: int | None = None, *, sizes: Sequence[int], thinking: Sequence[int] = (), request: int = 200,
        keep_connection: bool = False, tcp: Tcp = Tcp(), until: int | None = None,
    ) -> Downloads:  # fmt: skip
        """Files of `sizes` bytes by TCP, one after the other.

        thinking: ns from the end of each until the next begins, 0 where not given. request: bytes. keep_connection:
        whether all use one connection, else each opens its own.
        """
        at, until = self._span(at, until)
        numbers, pauses = [int(size) for size in sizes], [int(pause) for pause in thinking]
        tables = self._model.downloads(at, numbers, pauses, request, keep_connection, _settings(tcp), until)
        return Downloads(*tables)

    def page(
        self, at: int | None = None, *, objects: Sequence[tuple[int, int | None]],
        protocol: Literal["HTTP/1.1", "HTTP/2"] = "HTTP/2", tls: Handshake | None = Handshake(),
        request: int | None = None, header: int | None = None, processing: int = 0, tcp: Tcp = Tcp(),
        until: int | None = None,
    ) -> PageLoad:  # fmt: skip
        """Return a page by a browser with an empty cache: HTTP/1.1 over up to six connections, or HTTP/2 over one.

        objects: bytes of each, and the number of the object that names it, which comes before it; ``None`` for the
        document. They are requested in this order. request, header: bytes of a request, and in front of each body; 500
        and 300 for HTTP/1.1, 100 each for HTTP/2 unless given. processing: ns from an object's arrival until the
        browser requests those that it names.
        """
        at, until = self._span(at, until)
        http2 = protocol == "HTTP/2"
        if not http2 and protocol != "HTTP/1.1":
            raise ValueError(f"there is no protocol {protocol!r}: HTTP/1.1 or HTTP/2")
        usual = (100, 100) if http2 else (500, 300)
        sizes = (request or usual[0], usual[1] if header is None else header, None if tls is None else astuple(tls))
        numbers = [(int(size), None if parent is None else int(parent)) for size, parent in objects]
        return PageLoad(at, *self._model.page(at, numbers, http2, sizes, processing, _settings(tcp), until))

    def session(self, *, request: int = 200, tcp: Tcp = Tcp()) -> Session:
        """Downloads over one connection, each chosen after the previous one, as by an adaptive player."""
        return Session(self, request, tcp)

    def _span(self, at: int | None, until: int | None) -> tuple[int, int]:
        at = self.now if at is None else at
        return at, at + PATIENCE_NS if until is None else until


class Session:
    """A client that downloads over one connection. :meth:`Path.session` makes one.

    It ends when another application runs on its path.
    """

    def __init__(self, path: Path, request: int, tcp: Tcp) -> None:
        self._path = path
        self._model = _core.Session(path._model, request, _settings(tcp))

    def fetch(self, size: int, at: int | None = None, *, until: int | None = None) -> Downloads:
        """Download `size` bytes from `at` on, now if not given: one row. The first opens the connection."""
        at, until = self._path._span(at, until)
        return Downloads(*self._model.fetch(at, size, until))


def _check_packets(**lengths: int) -> None:
    for name, length in lengths.items():
        if not 0 < length <= _LARGEST:
            raise ValueError(f"{name} is {length} bytes: a packet has 1 to {_LARGEST}")


def _described(link: Link) -> tuple[str, list[tuple[int, int, str]]]:
    return json.dumps(link.stages), [(at, index, json.dumps(to)) for at, index, to in link.changes]
