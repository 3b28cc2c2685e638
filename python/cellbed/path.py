"""Probes and transfers over a path of two links in virtual time.

A :class:`Path` is two hosts, a client and a server, and the links between them::

    path = Path(Link(rate="10 Mbit/s", delay="20 ms"), Link(rate="50 Mbit/s", delay="20 ms"))
    path.copy().downloads(sizes=[100_000]).taken  # ns

Times are ns since the links' start. Equal paths give equal results.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from cellbed import _core
from cellbed.laws.law import find, load_shipped
from cellbed.link import Link, model_of
from cellbed.support.errors import CellbedError

Int64 = npt.NDArray[np.int64]

CONTROLS = tuple(_core.congestion_controls())
"""Names of the congestion control laws of a path's TCP."""
_LARGEST = 65_535
"""Maximum bytes of an IP packet."""
PATIENCE_NS = 3600 * 10**9
"""Default time limit of an application's run: an hour of virtual time, ns."""


@dataclass(frozen=True, slots=True)
class Tcp:
    """Settings of both ends of a connection; the defaults are Linux's.

    control: congestion control: one of ``CONTROLS``, which are CUBIC (RFC 9438), NewReno (RFC 5681, 6582) and BBR
    version 1 with pacing (Cardwell et al., 2016); or a law of ``cellbed cc ls``, or the path of a law's header.
    hystart: whether CUBIC's slow start may end before a loss. idle_restart: whether the congestion window shrinks
    during idle time. initial_window: segments. receive_window: maximum, bytes. segment: bytes of data in a full
    packet, behind 52 bytes of headers. send_buffer: maximum, bytes, which also limits the bytes in flight.
    pacing: whether segments are paced under controls without pacing.
    """

    control: str = "cubic"
    hystart: bool = True
    idle_restart: bool = True
    initial_window: int = 10
    receive_window: int = 6 * 2**20
    segment: int = 1448
    send_buffer: int = 4 * 2**20
    pacing: bool = False

    def to_json(self) -> str:
        """Return the settings in the format of the network in virtual time."""
        return json.dumps(asdict(self), default=np.generic.item)


def settings(tcp: Tcp) -> Tcp:
    """Return the settings with the law's name in the network in virtual time."""
    if tcp.control.endswith(".h") or tcp.control in load_shipped():
        return replace(tcp, control=find(tcp.control, pathlib.Path()).load())
    return tcp


@dataclass(frozen=True, slots=True, eq=False)
class RoundTrips:
    """Round trips, a row each. sent: sending time. taken: ns; -1 if the packet or its answer was lost."""

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

    sent: sending time. completion: ns from then until the sender receives the acknowledgement of the last packet; -1 if
    one of these two was lost. arrivals: arrival times of the packets of each train, -1 if lost.
    """

    sent: Int64
    completion: Int64
    arrivals: list[Int64]


@dataclass(frozen=True, slots=True, eq=False)
class Downloads:
    """Downloads, a row each.

    started: when the client sent the SYN, or on an open connection the request. finished: when the client received the
    last byte; -1 after the time limit. repairs: segments retransmitted by either end. timeouts: timeouts of either
    end, except in the handshake.
    """

    started: Int64
    finished: Int64
    repairs: Int64
    timeouts: Int64

    @property
    def taken(self) -> Int64:
        """Flow completion times, ns; -1 for unfinished downloads."""
        taken: Int64 = np.where(self.finished >= 0, self.finished - self.started, -1)
        return taken


class Outside(Protocol):
    """A network of another program, e.g. of another simulator, in step with the virtual time.

    Both advance in turns, and this network stops at each departure, because the departure may cause a packet at once. A
    packet that does not depart within 10 s was lost.
    """

    def send(self, direction: int, at_ns: int, number: int, size: int) -> None:
        """Accept a packet. at_ns: send time, not before the last result of :meth:`advance`. size: IP length, bytes."""

    def advance(self, until_ns: int) -> tuple[int, list[int]]:
        """Advance to the first departures, at the latest to `until_ns`; return the reached time, ns, and the numbers of
        the packets that depart then."""


class OutsideProgram:
    """A program as an outside network. It reads commands, one a line, and writes answers; times are ns:

    * ``s AT DIRECTION BYTES NUMBER``: send a packet. ``q`` in place of ``s``: its departure stops no advance.
    * ``a UNTIL``: advance to the first departure of a packet of ``s``, at the latest to a time. The answer is a line
      ``d AT NUMBER`` for each departure since the last answer, in order, then ``t NOW``.

    The program is stopped with the last reference to the object, or at the end of a ``with`` block.
    """

    def __init__(self, command: Sequence[str], folder: pathlib.Path) -> None:
        """Start the program in a folder. Errors: :class:`CellbedError` for a program that cannot be started."""
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        except OSError as error:
            raise CellbedError(f"{command[0]}: cannot be started: {error.strerror}") from None
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._commands, self._answers, self._messages = process.stdin, process.stdout, process.stderr
        self._process, self._name = process, pathlib.Path(command[0]).name
        self._close = weakref.finalize(self, _stop, process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def send(self, direction: int, at_ns: int, number: int, size: int, *, quiet: bool = False) -> None:
        """Send a packet, see :class:`Outside`. quiet: whether its departure does not end :meth:`run`."""
        self._write(f"{'q' if quiet else 's'} {at_ns} {direction} {size} {number}\n")

    def advance(self, until_ns: int) -> tuple[int, list[int]]:
        """Advance to the first departures, see :class:`Outside`."""
        now_ns, departures = self.run(until_ns)
        return now_ns, [number for _, number in departures]

    def run(self, until_ns: int) -> tuple[int, list[tuple[int, int]]]:
        """Advance to the first departure of a packet that was not sent quietly, at the latest to `until_ns`.

        Returns the reached time, and the time and number of each departure since the last call.

        Errors: :class:`CellbedError` with the last words of a program that has ended.
        """
        departures = list[tuple[int, int]]()
        self._write(f"a {until_ns}\n")
        with suppress(OSError):
            self._commands.flush()
        for line in self._answers:
            kind, at, *number = line.split()
            if kind == "t":
                return int(at), departures
            departures.append((int(at), int(number[0])))
        words = self._messages.read().strip()[-500:]
        raise CellbedError(f"{self._name} ended with status {self._process.wait()}: {words or 'no message'}")

    def _write(self, command: str) -> None:
        # After the end of the program, run() reads its last words.
        with suppress(OSError):
            self._commands.write(command)


def _stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    with suppress(OSError):
        process.communicate()


class Path:
    """Two hosts and the links between them, at rest at time 0.

    A run begins at the end of the previous run or later, with the queues in their state. :meth:`copy` returns an
    independent path.
    turnaround: ns from a packet's arrival at a host until the host's answer is on the path. Real hosts with the
    emulator between them take about 100 µs. If all opportunities of a trace are on whole milliseconds, an instant
    answer would use an opportunity that any real answer misses.
    outside: network that packets pass before the links: direction 0 is the uplink, 1 the downlink.
    """

    def __init__(self, uplink: Link, downlink: Link, *, turnaround: int = 0, outside: Outside | None = None) -> None:
        self._model = _core.Path(model_of(uplink), model_of(downlink), turnaround, outside)

    def copy(self) -> Self:
        """Return a path in the same state. Errors: :class:`ValueError` for a path over an outside network."""
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
        """Send packets that the server answers at once.

        Args:
            at: Sending time of the first packet, ns; default: now.
            count: Number of packets.
            interval: Time between two packets, ns.
            request: IP length of a packet.
            answer: IP length of an answer.
            until: Time limit, ns.

        Returns:
            A row for each packet.

        Raises:
            ValueError: An impossible value, named in the error.
        """
        _check_packets(request=request, answer=answer)
        at, until = self._span(at, until)
        sent, taken, _ = self._model.trains(at, [1] * count, interval, request, answer, True, until)
        return RoundTrips(sent, taken)

    def trains(
        self, at: int | None = None, *, lengths: Sequence[int], gap: int = 100_000_000, packet: int = 1400,
        acknowledgement: int = 100, uplink: bool = False, until: int | None = None,
    ) -> Trains:  # fmt: skip
        """Send trains of back-to-back packets, each with an acknowledgement of the last one (Sentosa et al., NSDI 2025,

        Args:
            at: Begin of the first train, ns; default: now.
            lengths: Number of packets of each train.
            gap: Time between the begins of two trains, ns.
            packet: IP length of a packet.
            acknowledgement: IP length of an acknowledgement.
            uplink: Whether the client sends the trains, else the server.
            until: Time limit, ns.

        Returns:
            A row for each train.

        Raises:
            ValueError: An impossible value, named in the error.
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
        """Download files by TCP, one after another.

        Args:
            at: Begin of the first download, ns; default: now.
            sizes: Bytes of each file.
            thinking: Time from the end of each download to the begin of the next, ns; default: 0.
            request: Bytes of a request.
            keep_connection: Whether all downloads use one connection; else each opens a new one.
            tcp: Settings of both ends.
            until: Time limit, ns.

        Returns:
            A row for each file.

        Raises:
            ValueError: An impossible value, named in the error.
        """
        at, until = self._span(at, until)
        numbers, pauses = [int(size) for size in sizes], [int(pause) for pause in thinking]
        tables = self._model.downloads(at, numbers, pauses, request, keep_connection, settings(tcp).to_json(), until)
        return Downloads(*tables)

    def _span(self, at: int | None, until: int | None) -> tuple[int, int]:
        at = self.now if at is None else at
        return at, at + PATIENCE_NS if until is None else until


def _check_packets(**lengths: int) -> None:
    for name, length in lengths.items():
        if not 0 < length <= _LARGEST:
            raise ValueError(f"{name} is {length} bytes: a packet has 1 to {_LARGEST}")
