"""The packet log of a direction in the format of Mahimahi's mm-link (Netravali et al., ATC 2015).

What is written: ``T + bytes`` for a packet that arrived, ``T # bytes`` for an opportunity, ``T - bytes delay`` for a
packet that left the bottleneck, ``T d packets bytes`` for what was dropped; T and delay in whole ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import IO, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed._core import Trace
from cellbed.measure.packets import RECORD
from cellbed.packetlog.log import LogError, PacketLog, Records
from cellbed.packetlog.order import FOREVER, settled

MS = 1_000_000
PDO_BYTES = 1500
MAHIMAHI_PDO_BYTES = 1504
"""What an opportunity of the original carries: an IP packet of 1500 bytes and the header of its TUN device."""
HEADER_BYTES = 4
"""That header, which the original counts with every packet."""

HELD = 255
"""Value of the field `drop` of a packet that never left: it has the line of its arrival only."""

_CONGESTION = 3
_ARRIVAL, _OPPORTUNITY, _DEPARTURE, _DROP = range(4)
_KINDS = np.array(["+", "#", "-", "d"])

Integers = NDArray[np.int64]


class Offers(Protocol):
    """What a schedule offers."""

    def between(self, begin_ns: int, end_ns: int) -> Integers:
        """Times of the opportunities in [begin, end), ns since the start of the schedule, one entry each, ascending."""


@dataclass(frozen=True)
class Opportunities:
    """Delivery opportunities of a trace. offset_ns: where in the trace the schedule starts."""

    trace: Trace
    offset_ns: int = 0
    looped: bool = True

    @cached_property
    def _counts(self) -> Integers:
        """Opportunities at each millisecond of the recording, both ends included."""
        end = self.trace.duration_ns
        counts = np.append(np.array(self.trace.bins(MS), np.int64), 0) // PDO_BYTES
        # The last bin holds what lies at the very end, where in a loop the next pass begins.
        at_end = (self.trace.capacity(end, end + 1) - self.trace.capacity(0, 1)) // PDO_BYTES
        counts[-2:] += (-at_end, at_end)
        return counts

    def between(self, begin_ns: int, end_ns: int) -> Integers:
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


def header(
    *, way: str, trace: str, log: str, command_line: str, queue: str, init_ms: int, base_ms: int = 0, prefix: str = ""
) -> str:
    """The lines at the beginning of a log.

    way: ``Uplink`` or ``Downlink``. init_ms: the time that all others count from, ms since the epoch. base_ms: when the
    schedule started, counted from there. prefix: what ``MAHIMAHI_SHELL_PREFIX`` holds.
    """
    lines = [
        f"mahimahi mm-link ({way}) [{trace}] > {log}",
        f"command line: {command_line}",
        f"queue: {queue}",
        f"init timestamp: {init_ms}",
        f"base timestamp: {base_ms}",
    ]
    if prefix:
        lines.append(f"mahimahi config: {prefix}")
    return "".join(f"# {line}\n" for line in lines)


class LogLines:
    """The lines of one direction out of its records, as these come.

    zero_ns: when the schedule started, in the clock of the records; ``T`` counts from there, and what arrived before is
    left out. schedule: where the lines of the opportunities come from; without it there are none. original: as
    ``mm-link`` has it: 4 bytes more for each packet, opportunities of 1504, within a millisecond what leaves before
    what arrives, what one packet displaces in one line, and no line for what CoDel drops where packets leave.
    Otherwise IP bytes, opportunities of 1500, and the order of the records' nanoseconds.
    """

    def __init__(self, zero_ns: int, schedule: Offers | None = None, *, original: bool = True) -> None:
        self._zero = zero_ns
        self._schedule = schedule
        self._original = original
        self._slot = MS if original else 1
        self._waiting: Records = np.empty(0, RECORD)
        self._done = 0
        self._service = _Service()

    def add(self, records: Records, settled_ns: int | None = None) -> str:
        """Take the next records; returns the lines that are certain by then.

        settled_ns: no later record is of a packet that arrived before this time. If not given, packets leave in the
        order in which they came, so that it is the arrival of the last one that got through.
        """
        self._waiting = np.concatenate([self._waiting, records[records["arrived"] >= self._zero]])
        if settled_ns is None:
            through = records["arrived"][records["drop"] == 0]
            settled_ns = int(through.max()) if len(through) else self._zero
        return self._lines((settled_ns - self._zero) // self._slot * self._slot)

    def finish(self, until_ns: int | None = None) -> str:
        """The lines that are left. until_ns: the end of time, for the opportunities; the last record if not given."""
        last = int(self._waiting["departed"].max()) - self._zero if len(self._waiting) else self._done - 1
        until = until_ns - self._zero if until_ns is not None else last + 1
        return self._lines(max(until, self._done), rest=True)

    def _lines(self, until: int, *, rest: bool = False) -> str:
        """The lines of the times before `until` that have not been given, or all that are left, but opportunities."""
        if until <= self._done and not rest:
            return ""
        records = self._waiting
        zero, begin = self._zero, self._done
        left = np.where(records["drop"] != 0, records["departed"], records["released"]) - zero
        arrived = records["arrived"] - zero
        ends = np.iinfo(np.int64).max if rest else until
        arrives = np.flatnonzero((arrived >= begin) & (arrived < ends))
        leaves = np.flatnonzero((left >= begin) & (left < ends))
        self._waiting = records[left >= ends]
        self._done = until
        arrives = arrives[np.lexsort((records["packet"][arrives], arrived[arrives]))]
        fate = records["drop"][leaves]
        goes, lost = leaves[fate == 0], leaves[(fate != 0) & (fate != HELD)]
        goes = goes[np.argsort(left[goes], kind="stable")]
        offered = np.empty(0, np.int64) if self._schedule is None else self._schedule.between(begin, until)
        size = records["bytes"].astype(np.int64) + (HEADER_BYTES if self._original else 0)
        if self._original:
            # What is dropped on the way out is not in the original's log.
            lost = lost[(records["drop"][lost] != _CONGESTION) | (left[lost] == arrived[lost])]
            parts = self._original_order(records, arrives, goes, lost, arrived, left, offered, size)
        else:
            parts = [
                _Part(_ARRIVAL, arrived[arrives], (arrived[arrives],), size[arrives]),
                _Part(_OPPORTUNITY, offered, (offered,), np.full(len(offered), PDO_BYTES)),
                # As the original: the difference of two times that were rounded.
                _Part(_DEPARTURE, left[goes], (left[goes],), size[goes], left[goes] // MS - arrived[goes] // MS),
                _Part(_DROP, left[lost], (left[lost],), np.ones(len(lost), np.int64), size[lost]),
            ]
        return _text(parts)

    def _original_order(
        self,
        records: Records,
        arrives: Integers,
        goes: Integers,
        lost: Integers,
        arrived: Integers,
        left: Integers,
        offered: Integers,
        size: Integers,
    ) -> list[_Part]:
        """Within a millisecond each opportunity with what leaves by it, then each arrival with what it displaces."""
        time, since = left[goes] // MS, arrived[goes] // MS
        rank = self._service.ranks(time, since, size[goes])
        tick = offered // MS
        place = np.arange(len(tick)) - np.searchsorted(tick, tick)
        cause = _causes(records["packet"], arrives, lost, arrived, left)
        lost_at, which, packets = _grouped(left[lost], cause)
        volume = np.bincount(which, size[lost], len(lost_at)).astype(np.int64)
        count = np.bincount(which, minlength=len(lost_at)).astype(np.int64)
        return [
            _Part(_OPPORTUNITY, offered, (tick, 0, place), np.full(len(tick), MAHIMAHI_PDO_BYTES)),
            _Part(_DEPARTURE, left[goes], (time, 0, rank), size[goes], time - since),
            _Part(
                _ARRIVAL,
                arrived[arrives],
                (arrived[arrives] // MS, 1, arrived[arrives], records["packet"][arrives].astype(np.int64)),
                size[arrives],
            ),
            _Part(_DROP, lost_at, (lost_at // MS, 1, lost_at, packets), count, volume),
        ]


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
        used = -(-total // MAHIMAHI_PDO_BYTES)
        self._last, self._bytes = int(time[-1]), int(total[-1] % MAHIMAHI_PDO_BYTES)
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


@dataclass(frozen=True, slots=True)
class _Part:
    """Lines of one kind. keys: by which all lines are sorted, the first foremost; where equal, by kind."""

    kind: int
    time: Integers
    keys: tuple[Integers | int, ...]
    value: Integers
    second: Integers | None = None


def _text(parts: list[_Part]) -> str:
    lengths = [len(part.time) for part in parts]
    if not sum(lengths):
        return ""
    depth = max(len(part.keys) for part in parts)
    kind = np.repeat(np.array([part.kind for part in parts]), lengths)
    columns = [np.concatenate([_key(part, level) for part in parts]) for level in range(depth)]
    order = np.lexsort((kind, *reversed(columns)))
    time = np.concatenate([part.time for part in parts])[order] // MS
    value = np.concatenate([part.value for part in parts])[order]
    seconds = [np.full(len(part.time), -1) if part.second is None else part.second for part in parts]
    second = np.concatenate(seconds)[order]
    table = pl.DataFrame({"time": time, "kind": _KINDS[kind[order]], "value": value, "second": second})
    with_second = pl.format("{} {} {} {}", "time", "kind", "value", "second")
    line = pl.when(pl.col("second") < 0).then(pl.format("{} {} {}", "time", "kind", "value")).otherwise(with_second)
    text: str = table.select(line.str.join("\n")).item()
    return text + "\n"


def _key(part: _Part, level: int) -> Integers:
    return np.broadcast_to(part.keys[level] if level < len(part.keys) else 0, len(part.time))


def write_mahimahi(
    log: PacketLog,
    file: IO[bytes],
    direction: int,
    schedule: Offers | None = None,
    queue: str = "",
) -> None:
    """Write one direction, from the start of the schedule on; as the original where the run accounted for it so.

    queue: words for the header. Without a known start, time counts from the first arrival.
    """
    zero = log.t0_ns
    if zero is None:
        zero = min((int(r["arrived"].min()) for r in log.chunks(direction) if len(r)), default=0)
    if zero < 0:
        raise LogError(f"{log.path}: times before the start of the clock")
    name = log.direction_name(direction)
    described = log.directions.get(direction, {})
    file.write(
        header(
            way=str(described.get("way", name)).capitalize(),
            trace=(described.get("trace") or {}).get("name", "none"),
            log=name,
            command_line="cellbed log convert --to mahimahi",
            queue=queue or described.get("description", "unknown"),
            init_ms=zero // MS,
        ).encode()
    )
    lines = LogLines(zero, schedule, original=bool(described.get("mahimahi")))
    for records, until in settled(log, direction, zero):
        file.write(lines.add(records, until if until != FOREVER else zero).encode())
    file.write(lines.finish().encode())
