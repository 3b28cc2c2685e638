"""The packet log of a direction in the format of Mahimahi's mm-link (Netravali et al., ATC 2015).

What is written: ``T + bytes`` for a packet that arrived, ``T # bytes`` for an opportunity, ``T - bytes delay`` for a
packet that left the bottleneck, ``T d packets bytes`` for one that was dropped; T and delay in whole ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import IO

import numpy as np
from numpy.typing import NDArray

from cellbed._core import Trace
from cellbed.packetlog.log import LogError, PacketLog
from cellbed.packetlog.order import ENTERS, FOREVER, in_order

MS = 1_000_000
PDO_BYTES = 1500

_ARRIVAL, _OPPORTUNITY, _DEPARTURE, _DROP = range(4)


@dataclass(frozen=True)
class Opportunities:
    """Delivery opportunities of a direction. offset_ns: where in the trace the schedule starts."""

    trace: Trace
    offset_ns: int = 0
    looped: bool = True

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        """Opportunities at each millisecond of the recording, both ends included."""
        end = self.trace.duration_ns
        counts = np.append(np.array(self.trace.bins(MS), np.int64), 0) // PDO_BYTES
        # The last bin holds what lies at the very end, where in a loop the next pass begins.
        at_end = (self.trace.capacity(end, end + 1) - self.trace.capacity(0, 1)) // PDO_BYTES
        counts[-2:] += (-at_end, at_end)
        return counts

    def between(self, begin_ns: int, end_ns: int) -> NDArray[np.int64]:
        """Times of the opportunities in [begin, end), ns since the start of the schedule, one entry each."""
        first = -(-(begin_ns + self.offset_ns) // MS)
        last = -(-(end_ns + self.offset_ns) // MS)
        position = np.arange(max(0, first), max(0, last), dtype=np.int64)
        period = len(self._counts) - 1
        if self.looped:
            times = self._counts[position % period]
            # The end of a pass is the beginning of the next.
            times[(position > 0) & (position % period == 0)] += self._counts[period]
        else:
            position = position[position <= period]
            times = self._counts[position]
        return np.repeat(position, times) * MS - self.offset_ns


def write_mahimahi(
    log: PacketLog, file: IO[bytes], direction: int, opportunities: Opportunities | None = None, queue: str = ""
) -> None:
    """Write one direction, from the start of the schedule on.

    queue: words for the header. Without a known start, time counts from the first arrival.
    """
    zero = log.t0_ns
    if zero is None:
        zero = min((int(r["arrived"].min()) for r in log.chunks(direction) if len(r)), default=0)
    if zero < 0:
        raise LogError(f"{log.path}: times before the start of the clock")
    name = log.direction_name(direction)
    way = log.directions.get(direction, {}).get("way", name)
    trace = (log.directions.get(direction, {}).get("trace") or {}).get("name", "none")
    for line in (
        f"mahimahi mm-link ({way}) [{trace}] > {name}",
        "command line: cellbed log convert --to mahimahi",
        f"queue: {queue or log.directions.get(direction, {}).get('description', 'unknown')}",
        f"init timestamp: {zero // MS}",
        "base timestamp: 0",
    ):
        file.write(f"# {line}\n".encode())
    done = 0
    for events in in_order(log, leaves="released", direction=direction, since_ns=zero):
        records = events.records
        time = events.time - zero
        dropped = np.where(records["drop"] != 0, _DROP, _DEPARTURE)
        kind = np.where(events.point == ENTERS, _ARRIVAL, dropped)
        size = records["bytes"].astype(np.int64)
        # As the original: the difference of two times that were rounded.
        delay = time // MS - (records["arrived"] - zero) // MS
        if opportunities is not None:
            end = events.until - zero if events.until != FOREVER else int(time[-1]) + 1
            offered = opportunities.between(done, end)
            done = end
            fill = np.zeros(len(offered), np.int64)
            time, size = np.r_[time, offered], np.r_[size, fill + PDO_BYTES]
            kind, delay = np.r_[kind, fill + _OPPORTUNITY], np.r_[delay, fill]
            order = np.lexsort((kind, time))
            time, kind, size, delay = time[order], kind[order], size[order], delay[order]
        rows = zip((time // MS).tolist(), kind.tolist(), size.tolist(), delay.tolist(), strict=True)
        file.write("".join(_line(*row) for row in rows).encode())


def _line(time: int, kind: int, size: int, delay: int) -> str:
    if kind == _ARRIVAL:
        return f"{time} + {size}\n"
    if kind == _OPPORTUNITY:
        return f"{time} # {size}\n"
    if kind == _DEPARTURE:
        return f"{time} - {size} {delay}\n"
    return f"{time} d 1 {size}\n"
