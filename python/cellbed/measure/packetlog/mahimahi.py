"""The packet log of a direction in the format of Mahimahi's mm-link (Netravali et al., ATC 2015).

What is written: ``T + bytes`` for a packet that arrived, ``T # bytes`` for an opportunity, ``T - bytes delay`` for a
packet that left the bottleneck, ``T d packets bytes`` for what was dropped; T and delay in whole ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed._core import Trace
from cellbed.archive import TraceError, resolve
from cellbed.archive.soundness import sha256
from cellbed.measure.packetlog.log import FOREVER, LogError, PacketLog, Records, settled
from cellbed.measure.packets import RECORD
from cellbed.runformat.changes import changes_beside, manual_changes, read_changes

MS = 1_000_000
PDO_BYTES = 1500
ARRIVAL, OPPORTUNITY, DEPARTURE, DROP = range(4)
_SIGNS = np.array(["+", "#", "-", "d"])

Integers = NDArray[np.int64]


class Offers(Protocol):
    """What a schedule offers."""

    def between(self, begin_ns: int, end_ns: int) -> Integers:
        """Return times of the opportunities in [begin, end), ns since the start of the schedule, one entry each,
        ascending."""


@dataclass(frozen=True)
class Opportunities:
    """Delivery opportunities of a trace. offset_ns: where in the trace the schedule starts. outages: pairs of begin and
    length, ns, in which it offers nothing."""

    trace: Trace
    offset_ns: int = 0
    looped: bool = True
    outages: Sequence[Sequence[int]] = ()

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
        """Return times of the opportunities in [begin, end), ns since the start of the schedule, one entry each."""
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
        offered = np.repeat(position, times) * MS - self.offset_ns
        for begin, length in self.outages:
            offered = offered[(offered < begin) | (offered >= begin + length)]
        return offered


def header(*, way: str, trace: str, log: str, command_line: str, queue: str, init_ms: int) -> str:
    """Return the lines at the beginning of a log whose times count from the start of the schedule.

    way: ``Uplink`` or ``Downlink``. init_ms: that start.
    """
    lines = [
        f"mahimahi mm-link ({way}) [{trace}] > {log}",
        f"command line: {command_line}",
        f"queue: {queue}",
        f"init timestamp: {init_ms}",
        "base timestamp: 0",
    ]
    return "".join(f"# {line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class Passages:
    """What happened in a stretch of time; times in ns since the start of the schedule.

    arrived, left: of all records. arrives, goes, lost: which of them came, were passed on or were dropped in it; the
    first two in order. offered: opportunities.
    """

    records: Records
    arrives: Integers
    goes: Integers
    lost: Integers
    arrived: Integers
    left: Integers
    offered: Integers


@dataclass(frozen=True, slots=True)
class Part:
    """Lines of one kind. keys: by which all lines are sorted, the first foremost; where equal, by kind."""

    kind: int
    time: Integers
    keys: tuple[Integers | int, ...]
    value: Integers
    second: Integers | None = None


class LogLines:
    """The lines of one direction out of its records, as these come: IP bytes, opportunities of 1500, in the order of
    the records' nanoseconds.

    zero_ns: when the schedule started, in the clock of the records; ``T`` counts from there, and what arrived before is
    left out. schedule: where the lines of the opportunities come from; without it there are none.
    """

    slot = 1
    """Time (ns) up to a multiple of which lines are certain once all before is known."""

    def __init__(self, zero_ns: int, schedule: Offers | None = None) -> None:
        self._zero = zero_ns
        self._schedule = schedule
        self._waiting: Records = np.empty(0, RECORD)
        self._done = 0

    def add(self, records: Records, settled_ns: int | None = None) -> str:
        """Take the next records; returns the lines that are certain by then.

        settled_ns: no later record is of a packet that arrived before this time. If not given, packets leave in the
        order in which they came, so that it is the arrival of the last one that got through.
        """
        self._waiting = np.concatenate([self._waiting, records[records["arrived"] >= self._zero]])
        if settled_ns is None:
            through = records["arrived"][records["drop"] == 0]
            settled_ns = int(through.max()) if len(through) else self._zero
        return self._lines((settled_ns - self._zero) // self.slot * self.slot)

    def finish(self, until_ns: int | None = None) -> str:
        """Return the lines that are left. until_ns: the end of time, for the opportunities; the last record if not
        given."""
        last = int(self._waiting["departed"].max()) - self._zero if len(self._waiting) else self._done - 1
        until = until_ns - self._zero if until_ns is not None else last + 1
        return self._lines(max(until, self._done), rest=True)

    def _lines(self, until: int, *, rest: bool = False) -> str:
        """Return the lines of the times before `until` that have not been given, or all that are left, but
        opportunities."""
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
        goes, lost = leaves[fate == 0], leaves[fate != 0]
        goes = goes[np.argsort(left[goes], kind="stable")]
        offered = np.empty(0, np.int64) if self._schedule is None else self._schedule.between(begin, until)
        return _text(self.parts(Passages(records, arrives, goes, lost, arrived, left, offered)))

    def parts(self, of: Passages) -> list[Part]:
        """Return the lines, by kind."""
        size = of.records["bytes"].astype(np.int64)
        arrived, left = of.arrived[of.arrives], of.left[of.goes]
        gone = of.left[of.lost]
        return [
            Part(ARRIVAL, arrived, (arrived,), size[of.arrives]),
            Part(OPPORTUNITY, of.offered, (of.offered,), np.full(len(of.offered), PDO_BYTES)),
            # As the original: the difference of two times that were rounded.
            Part(DEPARTURE, left, (left,), size[of.goes], left // MS - of.arrived[of.goes] // MS),
            Part(DROP, gone, (gone,), np.ones(len(gone), np.int64), size[of.lost]),
        ]


def _text(parts: list[Part]) -> str:
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
    table = pl.DataFrame({"time": time, "kind": _SIGNS[kind[order]], "value": value, "second": second})
    with_second = pl.format("{} {} {} {}", "time", "kind", "value", "second")
    line = pl.when(pl.col("second") < 0).then(pl.format("{} {} {}", "time", "kind", "value")).otherwise(with_second)
    text: str = table.select(line.str.join("\n")).item()
    return text + "\n"


def _key(part: Part, level: int) -> Integers:
    return np.broadcast_to(part.keys[level] if level < len(part.keys) else 0, len(part.time))


def write_mahimahi(
    log: PacketLog,
    file: IO[bytes],
    direction: int,
    schedule: Offers | None = None,
    queue: str = "",
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
    lines = LogLines(zero, schedule)
    for records, until in settled(log, direction, zero):
        file.write(lines.add(records, until if until != FOREVER else zero).encode())
    file.write(lines.finish().encode())


def opportunities(log: PacketLog, direction: int, folder: Path) -> Opportunities | None:
    """Return the schedule of a direction; `None` where it had no trace.

    folder: where a relative path of a trace is looked for, after the folders of the run.
    Errors: :class:`LogError` where the trace is not there any more, is another one, or was not played throughout.
    """
    way = log.directions.get(direction, {})
    described = way.get("trace")
    if not described or log.folder is None:
        return None
    if _changed(log, direction):
        raise LogError(f"the bottleneck of {log.direction_name(direction)} was changed while the run went on")
    name, digest = str(described["name"]), described.get("sha256")
    found = []
    for place in (folder, log.folder, log.folder.parent, log.folder.parent.parent):
        try:
            source = resolve(name, place)
            found.append(source.path)
            if digest in (None, source.sha256, sha256(source.path)):
                return Opportunities(
                    source.trace, int(described["offset_ns"]), bool(described["looped"]), way.get("outages_ns") or ()
                )
        except TraceError:
            continue
    why = f"{found[0]} is another one" if found else f"it is not in {folder.absolute()}"
    raise LogError(f"the trace {name!r} of this run cannot be used: {why}")


def _changed(log: PacketLog, direction: int) -> bool:
    """Return whether schedule or queue were changed, by the scenario or manually, or the link was down."""
    assert log.folder is not None
    planned = log.directions.get(direction, {}).get("changes") or []
    kinds = {kind for each in planned for kind in each.get("kinds", ())}
    name = log.direction_name(direction)
    by_hand = [*manual_changes(log.folder), *read_changes(changes_beside(log.path))]
    kinds |= {each.kind for each in by_hand if each.direction == name}
    return bool(kinds & {"bottleneck", "gate"})
