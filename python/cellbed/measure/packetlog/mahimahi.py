"""The packet log of a direction in the format of Mahimahi's mm-link (Netravali et al., ATC 2015).

Lines: ``T + bytes`` for a packet that arrived, ``T # bytes`` for an opportunity, ``T - bytes delay`` for a packet that
left the bottleneck, ``T d packets bytes`` for a drop; T and delay in whole ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed._core import Trace
from cellbed.archive import TraceError, resolve
from cellbed.archive.soundness import sha256
from cellbed.measure.packetlog.log import ENTERS, FOREVER, Events, LogError, PacketLog, in_order
from cellbed.runformat.changes import changes_beside, manual_changes, read_changes

MS = 1_000_000
PDO_BYTES = 1500
_ARRIVAL, _OPPORTUNITY, _DEPARTURE, _DROP = range(4)
_SIGNS = np.array(["+", "#", "-", "d"])

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Opportunities:
    """Delivery opportunities of a trace. offset_ns: position in the trace at the start of the schedule. outages: begin
    and length, ns, of times without opportunities."""

    trace: Trace
    offset_ns: int = 0
    looped: bool = True
    outages: Sequence[Sequence[int]] = ()

    def between(self, begin_ns: int, end_ns: int) -> Integers:
        """Return the times of the opportunities in [begin, end), ns since the start of the schedule, one entry each."""
        first, last = (max(0, -(-(at + self.offset_ns) // MS)) for at in (begin_ns, end_ns))
        if not self.looped:
            last = min(last, self.trace.duration_ns // MS + 1)
        positions = range(first * MS, last * MS, MS)
        times = np.array([self.trace.capacity(at, at + 1) for at in positions], np.int64) // PDO_BYTES
        if not self.looped and self.trace.duration_ns in positions:
            # Exclude the opportunities that belong to the begin of the next pass.
            times[-1] -= self.trace.capacity(0, 1) // PDO_BYTES
        offered = np.repeat(np.array(positions, np.int64), times) - self.offset_ns
        for begin, length in self.outages:
            offered = offered[(offered < begin) | (offered >= begin + length)]
        return offered


def write_mahimahi(log: PacketLog, file: IO[bytes], direction: int, schedule: Opportunities | None = None) -> None:
    """Write one direction, from the start of the schedule, in the order of the records' nanoseconds.

    schedule: source of the lines of the opportunities; ``None``: no such lines. If the start is unknown, time
    counts from the first arrival.
    """
    zero = log.t0_ns
    if zero is None:
        zero = min((int(r["arrived"].min()) for r in log.chunks(direction) if len(r)), default=0)
    if zero < 0:
        raise LogError(f"{log.path}: times before the start of the clock")
    name = log.direction_name(direction)
    described = log.directions.get(direction, {})
    lines = [
        f"mahimahi mm-link ({str(described.get('way', name)).capitalize()}) "
        f"[{(described.get('trace') or {}).get('name', 'none')}] > {name}",
        "command line: cellbed log convert --to mahimahi",
        f"queue: {described.get('description', 'unknown')}",
        f"init timestamp: {zero // MS}",
        "base timestamp: 0",
    ]
    file.write("".join(f"# {line}\n" for line in lines).encode())
    done = 0
    for events in in_order(log, leaves="released", direction=direction, since_ns=zero):
        until = (events.until if events.until != FOREVER else int(events.records["departed"].max()) + 1) - zero
        offered = schedule.between(done, until) if schedule is not None else np.empty(0, np.int64)
        file.write(_lines(events, zero, offered).encode())
        done = until


def _lines(events: Events, zero: int, offered: Integers) -> str:
    records, time = events.records, (events.time - zero) // MS
    size, enters = records["bytes"].astype(np.int64), events.point == ENTERS
    lost = ~enters & (records["drop"] != 0)
    # As in the original: the difference of two rounded times.
    delay = time - (records["arrived"] - zero) // MS
    table = pl.DataFrame(
        {
            "at": np.r_[events.time - zero, offered],
            "kind": np.r_[
                np.select([enters, lost], [_ARRIVAL, _DROP], _DEPARTURE), np.full(len(offered), _OPPORTUNITY)
            ],
            "first": np.r_[np.where(lost, 1, size), np.full(len(offered), PDO_BYTES)],
            "second": np.r_[np.select([enters, lost], [-1, size], delay), np.full(len(offered), -1)],
        }
    ).sort("at", "kind", maintain_order=True)
    table = table.with_columns(pl.col("at") // MS, sign=pl.Series(_SIGNS[table["kind"].to_numpy()]))
    second = pl.when(pl.col("second") >= 0).then(pl.format(" {}", "second")).otherwise(pl.lit(""))
    text: str = table.select(pl.format("{} {} {}{}", "at", "sign", "first", second).str.join("\n")).item()
    return text + "\n"


def opportunities(log: PacketLog, direction: int, folder: Path) -> Opportunities | None:
    """Return the schedule of a direction; `None` if the direction had no trace.

    folder: where a trace with a relative path is searched after the folders of the run.
    Errors: :class:`LogError` if the trace is missing, has changed, or was not played throughout.
    """
    way = log.directions.get(direction, {})
    described = way.get("trace")
    if not described or log.folder is None:
        return None
    if _has_changes(log, direction):
        raise LogError(f"the bottleneck of {log.direction_name(direction)} was changed during the run")
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


def _has_changes(log: PacketLog, direction: int) -> bool:
    """Return whether the scenario or a user changed the schedule or the queue, or the link was down."""
    assert log.folder is not None
    planned = log.directions.get(direction, {}).get("changes") or []
    kinds = {kind for each in planned for kind in each.get("kinds", ())}
    name = log.direction_name(direction)
    by_hand = [*manual_changes(log.folder), *read_changes(changes_beside(log.path))]
    kinds |= {each.kind for each in by_hand if each.direction == name}
    return bool(kinds & {"bottleneck", "gate"})
