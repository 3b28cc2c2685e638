"""The input of CellReplay's method, derived from a recording (Sentosa et al., NSDI 2025, §4.2 to §4.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from cellbed.recordings.errors import RecordingError
from cellbed.recordings.recording import Recording
from cellbed.recordings.series import SILENCE, base_delays, gaps, opportunities, visible_stretches
from cellbed.support.ways import WAYS, Way

Int64 = npt.NDArray[np.int64]

LightRow = tuple[int, int, list[int]]
"""Sending time of a train, its base delay, and the arrivals of the other packets after the first one's, sorted; ns."""
_MOST_ROWS = 10_000_000
Offsets = list[tuple[int, int]]
"""Packet size in bytes, and its additional delay in ns, relative to a packet of the recorder's size."""


@dataclass(frozen=True, slots=True, eq=False)
class CellReplay:
    """The method's input for one direction.

    light: rows in order of time. heavy: opportunities under saturation, ns, each of the recorder's packet size.
    offsets: comp(s), empty without calibration. idle_ns: F; ``None`` without calibration.
    """

    light: list[LightRow]
    heavy: Int64
    offsets: Offsets
    idle_ns: int | None


def derive(recording: Recording, way: Way, train: int | None = None) -> CellReplay:
    """Return the method's input for one direction of a recording.

    train: number of packets of the trains that become light rows; default: the number in the only kind of trains with
    several full packets both ways, or the calibrated number; if no train has this number, the longest trains' number.

    Errors: :class:`RecordingError` for a recording without saturation or without trains in this direction.
    """
    calibration = recording.description.calibration
    calibrated = getattr(calibration.directions, way) if calibration else None
    offsets = getattr(calibration.compensation, way) if calibration else ()
    plan = recording.description.light.plan
    size = recording.description.packet_bytes
    full = (it for it in (plan.rotation if plan else ()) if it.up_bytes == it.down_bytes == size)
    regular = {(it.up, it.down) for it in full if min(it.up, it.down) > 1}
    if train is None:
        train = min(regular)[WAYS.index(way)] if len(regular) == 1 else calibrated and calibrated.train
    return CellReplay(
        light=light_rows(recording, way, train),
        heavy=opportunities(recording, way),
        offsets=list(offsets),
        idle_ns=calibrated.idle_ns if calibrated else None,
    )


def light_rows(recording: Recording, way: Way, train: int | None = None) -> list[LightRow]:
    """Return the light rows of a direction, in order of time. train: as for :func:`derive`.

    A row stands for a train whose packets have the recorder's size, with at least one arrival. For both directions, its
    time is the sending time of the train's first uplink packet. A lost packet is no opportunity, a duplicated packet is
    one, in order of arrival. The base delay of an unanswered train is interpolated between its neighbours. Seconds
    without trains, as during saturation by the same device, repeat the rows of the span before, or else the next.
    Another tool's files lack the lengths of trains: all their rows count.

    Errors: :class:`RecordingError` without such trains.
    """
    starts = recording.light_uplink.group_by("train").agg(time=pl.col("sent_ns").min())
    full = recording.packets("light", way).filter(pl.col("bytes") == recording.description.packet_bytes)
    trains = full.group_by("train", maintain_order=True).agg(
        length=pl.len(), arrived=pl.col("arrived_ns").drop_nulls().sort()
    )
    if recording.description.imported is None:
        lengths = trains["length"].unique().to_list()
        trains = trains.filter(pl.col("length") == (train if train in lengths else max(lengths, default=0)))
    rows = (
        trains.filter(pl.col("arrived").list.len() > 0)
        .join(starts, on="train")
        .drop_nulls("time")
        .sort("time", "train")
    )
    delays = base_delays(recording, way)
    if not rows.height or not delays.height:
        raise RecordingError(f"the recording has no trains of the {way} that arrived: light rows cannot be derived")
    times = rows["time"].to_numpy()
    between = np.interp(times, delays["time_ns"].to_numpy(), delays["delay_ns"].to_numpy())
    own = rows.join(delays, on="train", how="left", maintain_order="left")["delay_ns"]
    base = own.fill_null(pl.Series(np.rint(between).astype(np.int64)))
    after_first = rows.select(pl.col("arrived").list.eval(pl.element() - pl.element().first())).to_series()
    found = list(zip(times.tolist(), base.to_list(), after_first.to_list(), strict=True))
    return sorted([*found, *_repeated_rows(recording, found)])


def _repeated_rows(recording: Recording, rows: list[LightRow]) -> Iterator[LightRow]:
    shown = visible_stretches(recording.description, "light")
    for gap, source in gaps(shown, recording.description.duration_ns):
        if gap.end - gap.start >= SILENCE:
            inside = [row for row in rows if source.start <= row[0] < source.end]
            if len(inside) * (gap.end - gap.start) > _MOST_ROWS * (source.end - source.start):
                raise RecordingError(f"no trains from {gap.start} to {gap.end} ns: too long to repeat others")
            for begin in range(gap.start, gap.end, source.end - source.start):
                again = ((begin + time - source.start, base, after) for time, base, after in inside)
                yield from (row for row in again if row[0] < gap.end)
