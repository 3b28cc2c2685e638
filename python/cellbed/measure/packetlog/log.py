"""A packet log with its names, start of the schedule and figures; its events by time.

Records are ordered by departure. A packet with a long delay arrived before many packets of earlier records. A first
pass notes the minimum arrival in each chunk and all later chunks; events before this time can be returned. So memory
holds only the packets under way at one moment, and one chunk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellbed.measure.packets import MAGIC, RECORD, log_files, removal_warning
from cellbed.measure.run_folder import read_account, read_run
from cellbed.support.errors import CellbedError
from cellbed.support.near_names import did_you_mean
from cellbed_node import inputs

CHUNK = 1 << 17
"""Number of records in memory at a time (8 MiB)."""

REASONS = {1: "queue-full", 2: "loss", 3: "congestion", 4: "handover"}
"""Reasons of drops, by the value of the field `drop`."""

Records = NDArray[Any]


class LogError(CellbedError):
    """A packet log that cannot be read, or that does not have a direction."""


def reason(drop: int) -> str:
    """Return the name of a reason, a value of the field `drop` other than 0."""
    return REASONS.get(drop, f"reason-{drop}")


@dataclass(frozen=True, slots=True)
class PacketLog:
    """A packet log on disk.

    path: the file; if it keeps only the latest records, the earlier part is next to it. count: number of complete
    records. warning: note on removed records. rest: bytes of an incomplete last record.
    run: content of the run's ``run.json``, or of the description that a shell leaves next to its log; folder: the run's
    or the log's folder; both `None` for a single file.
    """

    path: Path
    count: int
    rest: int
    run: dict[str, Any] | None = None
    folder: Path | None = None
    warning: str | None = None
    _names: dict[int, str] = field(default_factory=dict)
    _vertices: tuple[str, ...] = ()
    _files: tuple[tuple[Path, int], ...] = ()

    @property
    def t0_ns(self) -> int | None:
        """Return the monotonic time at which the schedule started; `None` if unknown."""
        t0: int | None = self.run.get("t0_ns") if self.run else None
        return t0

    @property
    def directions(self) -> dict[int, dict[str, Any]]:
        """Return the description of each direction in ``run.json``, by index; empty for a single file."""
        return {int(d["index"]): d for d in (self.run or {}).get("directions") or []}

    def direction_name(self, index: int) -> str:
        """Return the name of a direction."""
        return self._names.get(index, f"direction-{index}")

    def vertex_name(self, index: int) -> str:
        """Return the name of a vertex; nodes are numbered as in ``run.json``."""
        return self._vertices[index] if index < len(self._vertices) else f"vertex-{index}"

    def direction_index(self, name: str) -> int:
        """Return the index of the direction called `name`.

        Errors: :class:`LogError` with the existing names.
        """
        for index in self._names or self.directions_seen():
            if self.direction_name(index) == name:
                return index
        names = [self.direction_name(index) for index in self._names or self.directions_seen()]
        hint = did_you_mean(name, names)
        raise LogError(f"{self.path}: no direction is called {name!r}; {hint}it has {', '.join(names) or 'none'}")

    def directions_seen(self) -> list[int]:
        """Return the indices of the directions with records, ascending. Reads the whole log."""
        seen: set[int] = set()
        for records in self.chunks():
            seen.update(np.unique(records["direction"]).tolist())
        return sorted(seen)

    def chunks(self, direction: int | None = None, since_ns: int | None = None) -> Iterator[Records]:
        """Yield the records in the order of the file, at most :data:`CHUNK` at a time.

        direction: index of the only direction to read. since_ns: minimum arrival of the packets.
        Errors: :class:`LogError` for an impossible record.
        """
        for path, count in self._files:
            with _open_log(path) as file:
                file.seek(len(MAGIC))
                for begin in range(0, count, CHUNK):
                    wanted = min(CHUNK, count - begin)
                    records = np.fromfile(file, RECORD, wanted)
                    if len(records) < wanted:
                        raise LogError(f"{path}: has become shorter while it was read")
                    self._check(records, path, begin)
                    keep = np.ones(len(records), np.bool_)
                    if direction is not None:
                        keep &= records["direction"] == direction
                    if since_ns is not None:
                        keep &= records["arrived"] >= since_ns
                    yield records if keep.all() else records[keep]

    def _check(self, records: Records, path: Path, begin: int) -> None:
        backwards = (records["arrived"] > records["released"]) | (records["released"] > records["departed"])
        # A drop is a separate event: only the order of arrival and drop is certain.
        backwards &= (records["drop"] == 0) | (records["arrived"] > records["departed"])
        _refuse(backwards, path, begin, "departed before it arrived")
        _refuse(records["payload"] > records["bytes"], path, begin, "has more payload than bytes")
        if self._names:
            known = np.array(sorted(self._names), np.uint16)
            wrong = ~np.isin(records["direction"], known)
            _refuse(wrong, path, begin, "is of a direction that run.json does not have")


def _refuse(wrong: NDArray[np.bool_], path: Path, begin: int, what: str) -> None:
    if wrong.any():
        number = begin + int(np.argmax(wrong))
        place = len(MAGIC) + number * RECORD.itemsize
        raise LogError(f"{path}: record {number} (byte {place}) {what}; the file is damaged")


def open_log(path: Path) -> PacketLog:
    """Return the packet log of a run's folder, or a packet log file.

    Errors: :class:`LogError`; :class:`cellbed.measure.run_folder.MeasureError` for a folder that is not a run's.
    """
    folder: Path | None = None
    run: dict[str, Any] | None = None
    whole = False
    if path.is_dir():
        folder, run = path, read_run(path)
        path = path / "raw" / "packets.bin"
    elif path.name == "packets.bin" and (path.absolute().parent.parent / "run.json").is_file():
        folder = path.absolute().parent.parent
        run = read_run(folder)
    elif (account := path.with_name(f"{path.name}.json")).is_file():
        folder, run = path.absolute().parent, read_account(account)
        whole = True  # a shell keeps its whole log; FILE.1 is another one
    files, rest = [], 0
    parts = [(0, path)] if whole else log_files(path)
    for _, each in parts:
        count, rest = _records(each)
        files.append((each, count))
    names = {int(d["index"]): str(d["name"]) for d in (run or {}).get("directions") or []}
    vertices = tuple(str(node["name"]) for node in (run or {}).get("nodes") or [])
    count = sum(count for _, count in files)
    remark = removal_warning(path) if parts[0][0] else None
    return PacketLog(path, count, rest, run, folder, remark, names, vertices, tuple(files))


def _records(path: Path) -> tuple[int, int]:
    """Return the number of complete records of a file, and the bytes of an incomplete record."""
    with _open_log(path) as file:
        begin = file.read(len(MAGIC))
        size = path.stat().st_size
    if begin != MAGIC:
        if len(begin) < len(MAGIC) and MAGIC.startswith(begin):
            raise LogError(f"{path}: ends after {len(begin)} bytes; a packet log begins with {MAGIC.decode()!r}")
        raise LogError(f"{path}: is not a packet log of this version: it begins with {begin!r}, not with {MAGIC!r}")
    return divmod(size - len(MAGIC), RECORD.itemsize)


def _open_log(path: Path) -> Any:
    try:
        return inputs.open_file(path)
    except FileNotFoundError:
        raise LogError(f"{path}: there is no such file; give a run's folder or a packet log") from None
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror}") from None


ENTERS, LEAVES = 0, 1
FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Events:
    """Events of an interval that follows the previous interval.

    time: ns, ascending; at equal times, arrivals come first. point: ENTERS or LEAVES (or dropped).
    records: the packet of each event. until: every event before this time has been returned.
    """

    time: NDArray[np.int64]
    point: NDArray[np.uint8]
    records: Records
    until: int


def chunks_with_bounds(log: PacketLog, direction: int | None, since_ns: int | None) -> Iterator[tuple[Records, int]]:
    """Yield each chunk of a log with the minimum arrival in all later chunks; `FOREVER` with the last chunk."""
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
    """Yield the events of a log, ascending in time; arguments as for :meth:`PacketLog.chunks`.

    leaves: field with the time a packet leaves (``released`` or ``departed``); for a dropped packet, time of the drop.
    """
    time, point = np.empty(0, np.int64), np.empty(0, np.uint8)
    waiting: Records | None = None
    for records, until in chunks_with_bounds(log, direction, since_ns):
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


PERCENTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class DirectionFigures:
    """One direction since the start of the schedule.

    packets, bytes: delivered. dropped: packets by reason. delay_ms: one-way delay of delivered packets in the
    direction (departed − arrived, µs resolution) at :data:`PERCENTILES`; `None` if no packet was delivered. A
    percentile q of n is the value of rank ⌈n q⌉.
    """

    name: str
    packets: int
    bytes: int
    dropped: dict[str, int]
    delay_ms: tuple[float, ...] | None


def figures(log: PacketLog) -> list[DirectionFigures]:
    """Return the figures of every direction, in order, also for a run without packets."""
    import polars as pl

    schema = {"direction": pl.UInt16, "drop": pl.UInt8, "bytes": pl.UInt32, "delay_us": pl.UInt32}
    parts = [pl.DataFrame(schema=schema)]
    for records in log.chunks(since_ns=log.t0_ns):
        delay = np.clip((records["departed"] - records["arrived"]) // 1000, 0, 2**32 - 1).astype(np.uint32)
        columns = {name: np.ascontiguousarray(records[name]) for name in ("direction", "drop", "bytes")}
        parts.append(pl.DataFrame(columns | {"delay_us": delay}, schema))
    table = pl.concat(parts)
    found = []
    for index in sorted({*log.directions, *table["direction"].unique()}):
        delivered = table.filter(pl.col("direction") == index, pl.col("drop") == 0)
        lost = table.filter(pl.col("direction") == index, pl.col("drop") != 0).group_by("drop").len().sort("drop")
        delays = delivered["delay_us"].sort()
        ranks = [math.ceil(q * len(delays)) - 1 for q in PERCENTILES]
        found.append(
            DirectionFigures(
                log.direction_name(index),
                len(delivered),
                int(delivered["bytes"].cast(pl.UInt64).sum()),
                {reason(drop): count for drop, count in lost.rows()},
                tuple(delays[rank] / 1e3 for rank in ranks) if len(delays) else None,
            )
        )
    return found
