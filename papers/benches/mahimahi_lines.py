"""The log of Mahimahi's mm-link, worked out from what became of each packet: a second account beside the emulator's,
which writes its lines while packets pass. ``mahimahi_departures.py`` compares both with the original's."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
MS = 1_000_000
OPPORTUNITY_BYTES = 1504
"""What an opportunity of the original carries: an IP packet of 1500 bytes and the header of its TUN device."""
HEADER_BYTES = 4
"""That header, which the original counts with every packet."""

_CONGESTION = 3


@dataclass(frozen=True)
class _Part:
    """Lines of one kind. keys: by which all lines are sorted, the first foremost."""

    sign: str
    time: Integers
    keys: tuple[Integers | int, ...]
    value: Integers
    second: Integers | None = None

    def lines(self) -> list[tuple[tuple[int, ...], str]]:
        keys = np.zeros((len(self.time), 4), np.int64)
        for level, key in enumerate(self.keys):
            keys[:, level] = key
        second = [""] * len(self.time) if self.second is None else [f" {each}" for each in self.second.tolist()]
        columns = zip(keys.tolist(), (self.time // MS).tolist(), self.value.tolist(), second, strict=True)
        return [(tuple(key), f"{time} {self.sign} {value}{more}") for key, time, value, more in columns]


def original_lines(records: NDArray[Any], offered: Integers, until: int) -> list[str]:
    """The lines of times before `until` ns, as ``mm-link`` has them.

    They have 4 bytes more for each packet, opportunities of 1504, within a millisecond each opportunity with what
    leaves by it and then each arrival with what it displaces, and no line for what CoDel drops where packets leave.
    offered: times of opportunities.
    """
    arrived = records["arrived"]
    left = np.where(records["drop"] != 0, records["departed"], records["released"])
    arrives, leaves = np.flatnonzero(arrived < until), np.flatnonzero(left < until)
    arrives = arrives[np.lexsort((records["packet"][arrives], arrived[arrives]))]
    fate = records["drop"][leaves]
    goes, lost = leaves[fate == 0], leaves[fate != 0]
    goes = goes[np.argsort(left[goes], kind="stable")]
    size = records["bytes"].astype(np.int64) + HEADER_BYTES
    lost = lost[(records["drop"][lost] != _CONGESTION) | (left[lost] == arrived[lost])]
    time, since = left[goes] // MS, arrived[goes] // MS
    rank = _Service().ranks(time, since, size[goes])
    tick = offered // MS
    place = np.arange(len(tick)) - np.searchsorted(tick, tick)
    cause = _causes(records["packet"], arrives, lost, arrived, left)
    lost_at, which, packets = _grouped(left[lost], cause)
    volume = np.bincount(which, size[lost], len(lost_at)).astype(np.int64)
    count = np.bincount(which, minlength=len(lost_at)).astype(np.int64)
    came = arrived[arrives]
    parts = [
        _Part("+", came, (came // MS, 1, came, records["packet"][arrives].astype(np.int64)), size[arrives]),
        _Part("#", offered, (tick, 0, place), np.full(len(tick), OPPORTUNITY_BYTES)),
        _Part("-", left[goes], (time, 0, rank), size[goes], time - since),
        _Part("d", lost_at, (lost_at // MS, 1, lost_at, packets), count, volume),
    ]
    # Stable: lines with equal keys are in the order of these kinds.
    return [line for _, line in sorted((each for part in parts for each in part.lines()), key=lambda each: each[0])]


class _Service:
    """Which of the opportunities of its millisecond a packet leaves by.

    Packets served without a pause use opportunities one right after the other, so their bytes tell; the first to leave
    in a millisecond leaves by its first opportunity, since no packet needs more than one and what is left of another.
    """

    def __init__(self) -> None:
        self._last = -1
        self._bytes = 0

    def ranks(self, time: Integers, since: Integers, size: Integers) -> Integers:
        """From 0 within each millisecond. time, since: ms at which they left and came, in order."""
        if not len(time):
            return np.empty(0, np.int64)
        # One that was not there yet when the packet before left begins with an opportunity of its own.
        begins = since >= np.concatenate([[self._last], time[:-1]])
        total = self._bytes + np.cumsum(size)
        before = total - size
        base = np.where(begins, before, 0)
        total -= np.maximum.accumulate(base)
        used = -(-total // OPPORTUNITY_BYTES)
        self._last, self._bytes = int(time[-1]), int(total[-1] % OPPORTUNITY_BYTES)
        ranks: Integers = used - used[np.searchsorted(time, time)]
        return ranks


def _causes(
    packet: NDArray[np.uint64], arrives: Integers, lost: Integers, arrived: Integers, left: Integers
) -> Integers:
    """The packet whose arrival cost each lost one its place: itself, or the last that had come by then."""
    if not len(lost):
        return np.empty(0, np.int64)
    last = np.searchsorted(arrived[arrives], left[lost], side="right") - 1
    causes = packet[lost].astype(np.int64)
    other = (left[lost] != arrived[lost]) & (last >= 0)
    causes[other] = packet[arrives[last[other]]].astype(np.int64)
    return causes


def _grouped(time: Integers, cause: Integers) -> tuple[Integers, Integers, Integers]:
    """Equal pairs made one: times and causes of the groups, and which group each pair is in."""
    order = np.lexsort((cause, time))
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(time[order]) != 0) | (np.diff(cause[order]) != 0)
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(new) - 1
    return time[order][new], group, cause[order][new]
