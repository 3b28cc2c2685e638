"""Endpoints that share a recorded network: what a recording by two devices at once shows about its scheduler.

The bursts of the light device compete with the saturation of the heavy one. The packets that the saturation loses to a
burst show whether both devices have one capacity; those that still arrive during the burst show the burst's share.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cellbed.recordings.recording import Recording, read_recording
from cellbed.support.units import DURATION
from cellbed.support.ways import Way

Int64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_FEWEST = 12
"""Minimum number of bursts."""
_SURE = 3.0
"""Minimum distance from zero, in standard errors."""
_LEAST = 0.1
"""Minimum of the saturation's packets that a competing packet displaces."""
_AROUND = 50_000_000
"""Minimum time before and after a burst that it is compared with, ns."""
_ADVANTAGES = np.geomspace(2e6, 2e9, 60)
"""Candidates of the time for which a burst has the whole capacity, ns."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """The sharing of one direction.

    displaced: packets that the saturation lost for each packet of a burst; 1 if both devices have one capacity, less if
    others' traffic gives way, too. advantage_ns: time for which a burst has the whole capacity. bursts: their number.
    reason: why equal shares are assumed instead; empty if the recording shows the shares.
    """

    displaced: float = 0.0
    advantage_ns: float = 0.0
    bursts: int = 0
    reason: str = ""

    @property
    def scheduler(self) -> dict[str, Any]:
        """The scheduler of a cell: round robin, or proportional fair with an equal advantage of a burst.

        The averages of a new user and of one that had the whole cell meet after ln 2 windows.
        """
        if not self.advantage_ns:
            return {"kind": "round-robin"}
        window = min(max(self.advantage_ns / math.log(2), 1e6), 1e12)
        return {"kind": "proportional-fair", "window": DURATION.format(round(window / 1e6) * 1_000_000)}

    def __str__(self) -> str:
        """Return where the shares come from."""
        if self.reason:
            return f"equal shares assumed: {self.reason}"
        lead = f", a burst first has all for {self.advantage_ns / 1e6:.0f} ms" if self.advantage_ns else ""
        return f"shares learned from {self.bursts} bursts beside the saturation{lead}"


@functools.lru_cache(maxsize=16)
def read_sharing(folder: Path, way: Way) -> Sharing:
    """Return the sharing of the recording in a folder. Errors: :class:`RecordingError`."""
    return learn(read_recording(folder), way)


def learn(recording: Recording, way: Way) -> Sharing:
    """Return how two devices shared a direction of a recording.

    Both devices are fast and slow at the same times, in the same radio conditions. So packets are counted in times that
    follow from the sending of bursts alone, and the displaced ones are a ratio of differences (Wald, "The fitting of
    straight lines if both variables are subject to error", Annals of Mathematical Statistics 11, 1940).
    """
    packet = recording.description.packet_bytes
    heavy = recording.packets("heavy", way)["arrived_ns"].drop_nulls().sort().to_numpy()
    light = recording.packets("light", way).filter(pl.col("bytes") == packet).drop_nulls("sent_ns")
    arrivals = light["arrived_ns"].drop_nulls().sort().to_numpy()
    sent, arrived = pl.col("sent_ns"), pl.col("arrived_ns")
    trains = light.group_by("train").agg(
        sent=sent.min(), begin=arrived.min(), end=arrived.max(), got=arrived.count(), length=pl.len()
    )
    bursts = trains.filter(pl.col("end") > pl.col("begin"))
    if len(bursts) and len(heavy):
        least = int((light["arrived_ns"] - light["sent_ns"]).min())  # type: ignore[arg-type]
        taken = (pl.col("end") - pl.col("sent") - least) / pl.col("got")
        # From before the burst on, so that the time does not begin with an arrival.
        span = pl.max_horizontal(3, (3 * taken.median() * pl.col("length")).cast(pl.Int64))
        bursts = bursts.with_columns(start=pl.col("sent") + least - span // 3, width=span)
        margin = pl.max_horizontal(_AROUND, 2 * pl.col("width"))
        bursts = bursts.with_columns(before=pl.col("start") - margin, after=pl.col("start") + pl.col("width") + margin)
        bursts = bursts.filter(pl.col("before") > heavy[0], pl.col("after") < heavy[-1])
    if len(bursts) < _FEWEST or not len(heavy):
        return Sharing(reason=f"{len(bursts)} bursts arrived beside the saturation, {_FEWEST} are needed")
    start, width, before, after, begin, end = (
        bursts[name].to_numpy() for name in ("start", "width", "before", "after", "begin", "end")
    )

    def more(flow: Int64) -> Floats:
        inside = _count(flow, start, start + width)
        found: Floats = inside - (_count(flow, before, after) - inside) * width / (after - before - width)
        return found

    lost, own = -more(heavy), more(arrivals)
    total = max(1.0, float(own.sum()))
    displaced = float(lost.sum()) / total
    error = float(np.sqrt(((lost - displaced * own) ** 2).sum())) / total
    if displaced < max(_LEAST, _SURE * error):
        return Sharing(reason="bursts took nothing from the saturation, so the two devices did not compete")
    advantage = _advantage(bursts["got"].to_numpy() - 1.0, _count(heavy, begin, end), (end - begin).astype(float))
    return Sharing(min(1.0, displaced), advantage, len(bursts))


def _count(arrivals: Int64, begin: Int64, end: Int64) -> Floats:
    found: Floats = np.diff(np.searchsorted(arrivals, [begin, end], "right"), axis=0)[0].astype(float)
    return found


def _advantage(own: Floats, inside: Floats, span: Floats) -> float:
    """Return the time for which a burst has the whole capacity, and after which it has half, ns; 0 if no such time is
    surely better.

    own, inside: packets of each burst and of the saturation, in a time span.
    """

    def wrong(advantage: float) -> Floats:
        found: Floats = np.abs(inside - (own + inside) / 2 * np.maximum(0, 1 - advantage / span))
        return found

    best = min(_ADVANTAGES, key=lambda advantage: float(wrong(advantage).sum()))
    gain = wrong(0) - wrong(best)
    sure = gain.mean() > _SURE * gain.std(ddof=1) / math.sqrt(len(gain))
    return float(best) if sure else 0.0


def alone(recording: Recording, way: Way) -> Recording:
    """Return what one device alone would have recorded in a direction, if two devices competed.

    The packets that the saturation lost arrive as well, and bursts have those that the saturation got meanwhile.
    """
    if not (displaced := learn(recording, way).displaced):
        return recording
    packet = recording.description.packet_bytes
    heavy, light = recording.packets("heavy", way), recording.packets("light", way)
    arrivals = heavy["arrived_ns"].drop_nulls().sort().to_numpy()
    got = light.filter(pl.col("arrived_ns").is_not_null()).sort("arrived_ns")
    full = np.diff((got["bytes"].cast(pl.Int64).cum_sum() * displaced / packet).to_numpy().astype(np.int64), prepend=0)
    more = got.filter(pl.Series(full > 0)).with_columns(
        train=pl.lit(0, pl.UInt32), bytes=pl.lit(packet, got.schema["bytes"]), copies=pl.lit(1, got.schema["copies"])
    )
    pool = pl.concat([heavy, more.select(heavy.columns).cast(dict(heavy.schema))])  # type: ignore[arg-type]
    sooner = [
        _without(train, arrivals, displaced, packet) for train in light.partition_by("train", maintain_order=True)
    ]
    tables: dict[str, Any] = {f"heavy_{way}": pool, f"light_{way}": pl.concat([light.clear(), *sooner])}
    return replace(recording, **tables)


def _without(train: pl.DataFrame, heavy: Int64, displaced: float, packet: int) -> pl.DataFrame:
    """Return a burst that arrives as soon as it has got its bytes and those that the saturation got meanwhile."""
    there = train["arrived_ns"].is_not_null().to_numpy()
    at = np.sort(train["arrived_ns"].drop_nulls().to_numpy())
    if len(at) < 2:
        return train
    size = train["bytes"].to_numpy()[there].astype(float)
    between = heavy[slice(*np.searchsorted(heavy, at[[0, -1]], "right"))]
    times = np.concatenate([at, between])
    order = np.argsort(times, kind="stable")
    carried = np.cumsum(np.concatenate([size, np.full(len(between), displaced * packet)])[order])
    first = np.searchsorted(carried, np.cumsum(size) - 1e-6)
    sooner = np.full(len(train), -1)
    sooner[there] = times[order][first]
    arrived = pl.Series(sooner, dtype=train.schema["arrived_ns"])
    return train.with_columns(arrived_ns=arrived.set(pl.Series(~there), None))
