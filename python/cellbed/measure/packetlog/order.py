"""The two ends of each packet's way through a direction, in the order of time.

The log is in the order in which packets left. A packet that waited long arrived before many that are written earlier,
so arrivals cannot simply be taken as they come. A first pass notes the earliest arrival in each chunk and all later
ones; what lies before that can be given out. In memory is then what was under way at one moment, and a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cellbed.measure.packetlog.log import PacketLog, Records

ENTERS, LEAVES = 0, 1
FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Events:
    """Events of a stretch of time that follows the one before.

    time: ns, ascending; where equal, what enters comes first. point: ENTERS or LEAVES (or dropped).
    records: the packet of each. until: every event before this time has been given.
    """

    time: NDArray[np.int64]
    point: NDArray[np.uint8]
    records: Records
    until: int


def settled(log: PacketLog, direction: int | None, since_ns: int | None) -> Iterator[tuple[Records, int]]:
    """The chunks of a log, each with a time before which no packet of a later one arrived; at the end `FOREVER`."""
    earliest = [
        int(records["arrived"].min()) if len(records) else FOREVER for records in log.chunks(direction, since_ns)
    ]
    for at in range(len(earliest) - 2, -1, -1):
        earliest[at] = min(earliest[at], earliest[at + 1])
    for at, records in enumerate(log.chunks(direction, since_ns)):
        yield records, earliest[at + 1] if at + 1 < len(earliest) else FOREVER


def in_order(
    log: PacketLog, *, leaves: str = "departed", direction: int | None = None, since_ns: int | None = None
) -> Iterator[Events]:
    """The events of a log, ascending in time; arguments as for :meth:`PacketLog.chunks`.

    leaves: the field that says when a packet leaves (``released`` or ``departed``); for a dropped one it is the drop.
    """
    time, point = np.empty(0, np.int64), np.empty(0, np.uint8)
    waiting: Records | None = None
    for records, until in settled(log, direction, since_ns):
        left = np.where(records["drop"] != 0, records["departed"], records[leaves])
        time = np.concatenate([time, records["arrived"], left])
        points = np.repeat(np.array([ENTERS, LEAVES], np.uint8), len(records))
        point = np.concatenate([point, points])
        waiting = np.concatenate([*([] if waiting is None else [waiting]), records, records])
        order = np.lexsort((point, time))
        time, point, waiting = time[order], point[order], waiting[order]
        ready = int(np.searchsorted(time, until))
        if ready:
            yield Events(time[:ready], point[:ready], waiting[:ready], until)
        time, point, waiting = time[ready:], point[ready:], waiting[ready:]
