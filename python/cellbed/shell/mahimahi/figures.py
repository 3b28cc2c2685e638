"""What mm-throughput-graph and mm-delay-graph compute from a log of mm-link, in one pass and little memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cellbed.shell.mahimahi.events import ARRIVAL, DEPARTURE, OPPORTUNITY, Events, Integers, MahimahiLogError

Floats = NDArray[np.float64]

LONGEST = 4 * 86_400_000
"""Most milliseconds that a log may span: memory grows with it."""

MOST_POINTS = 1 << 22
"""Pairs of time and delay that are kept for the picture; more are thinned."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The statistics. Rates in Mbit/s, delays in ms, `begin` and `end` in s since the schedule started.

    A percentile is the value at place ⌊0.95 n⌋ of n sorted ones, counted from 0. The signal delay of a millisecond is
    the delay of the next packet sent then or later, with the time until that one: what a message of that moment would
    have needed at least. Both as the original computes them.
    """

    begin: float
    end: float
    capacity: float
    ingress: float
    throughput: float
    median_delay: int
    delay_95: int
    signal_delay_95: int

    @property
    def utilisation(self) -> float | None:
        """Share of the capacity that was used; `None` where the log tells of no capacity."""
        return self.throughput / self.capacity if self.capacity else None


@dataclass(frozen=True, slots=True)
class Bins:
    """Mbit/s in bins of one width, from bin number `first` on."""

    first: int
    capacity: Floats
    ingress: Floats
    egress: Floats


@dataclass(frozen=True, slots=True)
class Delays:
    """What the delay graph shows: time (ms) and delay (ms) of packets, and the signal delay from ms `first` on."""

    time: Integers
    delay: Integers
    first: int
    signal: Integers


class Summary:
    """Takes the events of a log and then tells. bin_ms: width of the bins. points: whether single packets are kept."""

    def __init__(self, name: str, bin_ms: int = 0, *, points: bool = False) -> None:
        self._name = name
        self._bin_ms = bin_ms
        self._points = points
        self._begin: int | None = None
        self._end = 0
        self._bits = dict.fromkeys((ARRIVAL, OPPORTUNITY, DEPARTURE), 0)
        self._bins = {kind: _Growing(0) for kind in self._bits}
        self._delays = _Growing(0)
        self._signal = _Growing(_NEVER)
        self._pairs: list[Integers] = []
        self._kept = 0
        self._grain = 1

    def add(self, events: Events) -> None:
        """Take events."""
        if not len(events.time):
            return
        if self._begin is None:
            self._begin = self._end = int(events.time[0])
        self._end = max(self._end, int(events.time.max()))
        if self._end - self._begin > LONGEST or self._end > 2 * LONGEST:
            raise MahimahiLogError(
                f"{self._name}: the log spans {(self._end - self._begin) / 3_600_000:,.0f} hours, too long to draw; "
                "check its times"
            )
        for kind in self._bits:
            of = events.kind == kind
            bits = events.size[of] * 8
            self._bits[kind] += int(bits.sum())
            if self._bin_ms:
                self._bins[kind].add(events.time[of] // self._bin_ms, bits)
        left = events.kind == DEPARTURE
        delay = events.delay[left]
        sent = events.time[left] - delay
        self._delays.add(delay, np.ones(len(delay), np.int64))
        self._signal.least(sent, delay)
        if self._points and len(sent):
            self._keep(sent, delay)

    def figures(self) -> Figures:
        """The statistics.

        Errors: :class:`MahimahiLogError` where the log has too little.
        """
        count, delays = self._delays.total(), self._delays
        if self._begin is None or not count:
            raise MahimahiLogError(f"{self._name}: no departures, nothing to draw")
        span = (self._end - self._begin) / 1000
        if not span:
            raise MahimahiLogError(f"{self._name}: all events in one millisecond, no rates to draw")
        signal = self._signals()
        rates = {kind: bits / span / 1e6 for kind, bits in self._bits.items()}
        return Figures(
            begin=self._begin / 1000,
            end=self._end / 1000,
            capacity=rates[OPPORTUNITY],
            ingress=rates[ARRIVAL],
            throughput=rates[DEPARTURE],
            median_delay=delays.at(int(0.5 * count)),
            delay_95=delays.at(int(0.95 * count)),
            signal_delay_95=int(np.partition(signal, place := int(0.95 * len(signal)))[place]),
        )

    def bins(self) -> Bins:
        """The rates, where a width was given.

        Errors: :class:`MahimahiLogError` if all of the log is in one bin.
        """
        first = min(bins.first for bins in self._bins.values() if len(bins.values))
        last = max(bins.first + len(bins.values) for bins in self._bins.values() if len(bins.values))
        if last - first < 2:
            raise MahimahiLogError(f"{self._name}: bins of {self._bin_ms} ms are too wide for the length of this log")
        return Bins(first, *(self._rates(kind, first, last) for kind in (OPPORTUNITY, ARRIVAL, DEPARTURE)))

    def delays(self) -> Delays:
        """The delays, where points were wanted."""
        pairs = np.concatenate(self._pairs) if self._pairs else np.empty((0, 2), np.int64)
        return Delays(pairs[:, 0], pairs[:, 1], self._signal.first, self._signals())

    def _rates(self, kind: int, first: int, last: int) -> Floats:
        rates: Floats = self._bins[kind].between(first, last) / (self._bin_ms * 1000)
        return rates

    def _signals(self) -> Integers:
        """Signal delay of each ms from the first to the last at which a packet was sent."""
        least = self._signal.values
        place = np.arange(len(least))
        known = np.flatnonzero(least != _NEVER)
        following = known[np.searchsorted(known, place)]
        signals: Integers = least[following] + following - place
        return signals

    def _keep(self, sent: Integers, delay: Integers) -> None:
        pairs = np.stack([sent // self._grain * self._grain, delay], axis=1)
        self._pairs.append(_unique(pairs))
        self._kept += len(self._pairs[-1])
        while self._kept > MOST_POINTS:
            everything = _unique(np.concatenate(self._pairs))
            if len(everything) > MOST_POINTS // 2:
                self._grain *= 2
                everything[:, 0] = everything[:, 0] // self._grain * self._grain
                everything = _unique(everything)
            self._pairs, self._kept = [everything], len(everything)


_NEVER = np.iinfo(np.int64).max // 2


def _unique(pairs: Integers) -> Integers:
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    pairs = pairs[order]
    new = np.ones(len(pairs), np.bool_)
    new[1:] = (np.diff(pairs, axis=0) != 0).any(axis=1)
    return pairs[new]


class _Growing:
    """Whole numbers by place, from a first place on, that grows at both ends. empty: what is where nothing was put."""

    def __init__(self, empty: int) -> None:
        self._empty = empty
        self._room = np.empty(0, np.int64)
        self.first = 0
        self._length = 0

    @property
    def values(self) -> Integers:
        """From the first place to the last that was used."""
        return self._room[: self._length]

    def add(self, places: Integers, values: Integers) -> None:
        """Add values at places, several at one place too."""
        if len(places):
            low = self._reach(places)
            sums = np.bincount(places - low, values)
            begin = low - self.first
            self._room[begin : begin + len(sums)] += sums.astype(np.int64)

    def least(self, places: Integers, values: Integers) -> None:
        """Keep the least value of each place."""
        if len(places):
            self._reach(places)
            np.minimum.at(self._room, places - self.first, values)

    def at(self, rank: int) -> int:
        """The place at which the running total first exceeds `rank`."""
        return self.first + int(np.searchsorted(np.cumsum(self.values), rank, side="right"))

    def total(self) -> int:
        """The sum of all values."""
        return int(self.values.sum())

    def between(self, begin: int, end: int) -> Integers:
        """The values of the places from `begin` up to `end`."""
        whole = np.full(end - begin, self._empty)
        if self._length:
            whole[self.first - begin : self.first - begin + self._length] = self.values
        return whole

    def _reach(self, places: Integers) -> int:
        low, high = int(places.min()), int(places.max())
        first = min(self.first, low) if self._length else low
        length = max(self.first + self._length if self._length else 0, high + 1) - first
        if first < self.first or length > len(self._room) or not self._length:
            room = np.full(max(length, 2 * len(self._room)), self._empty)
            begin = self.first - first if self._length else 0
            room[begin : begin + self._length] = self.values
            self._room = room
        self.first, self._length = first, length
        return low


def summarised(events: Iterable[Events], summary: Summary) -> Summary:
    """The summary, with all events taken."""
    for some in events:
        summary.add(some)
    return summary
