"""A recording made in virtual time: trains with answers, and saturation, through links without a real clock.

For tests, for evaluations without a network, and for models in virtual time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import polars as pl

import cellbed
from cellbed import Link, _core
from cellbed.recordings.description import (
    Adaptive,
    Clock,
    Clocks,
    Description,
    Fixed,
    Heavy,
    Light,
    Span,
    TrainPlan,
)
from cellbed.recordings.packets import COLUMNS, DOWNLOADS
from cellbed.recordings.recording import Recording

Int64 = npt.NDArray[np.int64]

SECOND = 1_000_000_000

FASTEST_BPS = 10_000_000_000
"""Maximum rate of an adaptive saturation, bit/s."""

_REQUEST_BYTES = 200
_REPEATS, _MOST_DOWNLOADS, _LARGEST_DOWNLOAD = 4, 500, 100_000_000
_PATIENCE_NS = 60 * SECOND
"""Maximum duration of a download, ns."""

Pair = tuple[Link, Link]
"""Uplink and downlink of one device."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """Packets of one direction of one workload: arrays of equal length, in order of train and index."""

    train: Int64
    index: Int64
    size: Int64
    at: Int64

    def __len__(self) -> int:
        return len(self.at)


@dataclass(frozen=True, slots=True)
class _Fate:
    """Arrival of each packet's first copy, -1 if lost, and the number of copies."""

    arrived: Int64
    copies: Int64


def record_virtually(
    light: Pair,
    heavy: Pair,
    plan: TrainPlan,
    saturation: tuple[Fixed | Adaptive | None, Fixed | Adaptive | None] = (None, None),
    *,
    duration_ns: int,
    packet_bytes: int = 1400,
    downloads: Sequence[int] = (),
) -> Recording:
    """Record two workloads in virtual time, each on a separate device.

    All links start at rest at time zero. Two devices meet the same weather if their links are made with the same seed
    and depend on time alone.

    Args:
        light: Uplink and downlink of the device that sends `plan`'s trains, the packets of a train at one instant; the
            first packet to arrive is answered at once.
        heavy: Uplink and downlink of the device that `saturation` fills.
        plan: The trains.
        saturation: Of the uplink and of the downlink. An adaptive one needs links without changes; the heavy span
            begins when the queues are full for the first time.
        duration_ns: Length of the recording.
        packet_bytes: Size of the saturating packets.
        downloads: Bytes of files that a third device downloads by TCP, over links equal to `light`, one after another.

    Returns:
        The recording.

    Raises:
        ValueError: A link refuses its packets, or has changes under an adaptive saturation.
    """
    path = _path(light)
    sent_trains = path.record(plan.model_dump_json(exclude_none=True), duration_ns)
    up_heavy, down_heavy = (
        _Filled(how, link, packet_bytes, duration_ns) for how, link in zip(saturation, heavy, strict=True)
    )
    passed = [(_Sent(train + 1, index, size, at), _Fate(*fate)) for train, index, size, at, *fate in sent_trains]
    passed += ((each.sent, each.fate) for each in (up_heavy, down_heavy))
    spans = [Span(workload="light", start_ns=0, end_ns=duration_ns)]
    if any(saturation):
        full = max(filled.full_ns() for filled in (up_heavy, down_heavy))
        spans.append(Span(workload="heavy", start_ns=full, end_ns=duration_ns))
    columns = [(sent.train, sent.index, sent.size, sent.at, fate.arrived) for sent, fate in passed]
    known = Clock(offset_ns=0, drift_ppm=0.0, uncertainty_ns=0)
    made = repr((plan, saturation, duration_ns, packet_bytes)).encode()
    digest = hashlib.sha256(made + b"".join(fate.arrived.tobytes() for _, fate in passed))
    description = Description(
        id=digest.hexdigest()[:32],
        # Virtual time has no date; the epoch keeps equal recordings equal.
        started=datetime.fromtimestamp(0, UTC),
        duration_ns=duration_ns,
        synthetic=True,
        tool=f"cellbed {cellbed.__version__}",
        packet_bytes=packet_bytes,
        arrangement="together",
        spans=tuple(spans),
        light=Light(plan=plan),
        heavy=Heavy(uplink=saturation[0], downlink=saturation[1]),
        clock=Clocks(light=known, heavy=known),
        warnings=tuple(_core.light_doubts(columns[:2], columns[2:])),
    )
    recording = Recording(description, *(_table(sent, fate) for sent, fate in passed)).counted()
    if not downloads:
        return recording
    # At random times: regular ones could meet the same phase of a network's cycles.
    starts = (np.arange(len(downloads)) + np.random.default_rng(plan.seed).random(len(downloads))) / len(downloads)
    asked = pl.DataFrame({"bytes": downloads, "started_ns": (starts * duration_ns).astype(np.int64)})
    return replace(recording, downloads=_download(path, asked))


def send_again(recording: Recording, links: Pair) -> Recording:
    """Return a recording of other links with the same trains and downloads, sent at the same times.

    An answer is sent when the first packet of its train arrives, later by the server's recorded delay. Each download
    is repeated within a second, so that chance adds less.

    Args:
        recording: A recording.
        links: Uplink and downlink.

    Returns:
        The recording with other arrivals; its saturation is unchanged.
    """
    there = recording.light_uplink.drop_nulls("sent_ns")
    up_sent = _Sent(*(there[name].to_numpy().astype(np.int64) for name in ("train", "index", "bytes", "sent_ns")))
    up = _through(links[0], up_sent)
    firsts = pl.DataFrame({"train": there["train"], "now": up.arrived, "then": there["arrived_ns"]})
    arrived = firsts.group_by("train").agg(pl.col("now").filter(pl.col("now") >= 0).min(), pl.col("then").min())
    late = pl.col("sent_ns").forward_fill().over("train").fill_null(pl.col("then")) - pl.col("then")
    back = recording.light_downlink.join(arrived, on="train", maintain_order="left").drop_nulls(["now", "then"])
    back = back.with_columns(sent_ns=pl.col("now") + late.clip(0))
    down_sent = _Sent(*(back[name].to_numpy().astype(np.int64) for name in ("train", "index", "bytes", "sent_ns")))
    asked = recording.downloads
    if asked is not None:
        later = [pl.col("started_ns") + part * SECOND // _REPEATS for part in range(_REPEATS)]
        asked = asked.filter(pl.col("bytes") <= _LARGEST_DOWNLOAD).head(_MOST_DOWNLOADS)
        asked = pl.concat([asked.with_columns(started_ns=at) for at in later]).sort("started_ns")
    return replace(
        recording,
        light_uplink=_table(up_sent, up),
        light_downlink=_table(down_sent, _through(links[1], down_sent)),
        downloads=None if asked is None else _download(_path(links), asked),
    )


def _path(links: Pair) -> _core.Path:
    up, down = ((json.dumps(link.stages), [(at, i, json.dumps(to)) for at, i, to in link.changes]) for link in links)
    return _core.Path(up, down, 0)


def _download(path: _core.Path, asked: pl.DataFrame) -> pl.DataFrame:
    """Return downloads by TCP, each over a path that a packet has used 0.2 to 1 s before, as after the trains of a
    recorder. asked: columns bytes and started_ns."""
    taken = []
    for size, at in asked.select("bytes", "started_ns").iter_rows():
        own, pause = path.copy(), SECOND // 5 + at % (SECOND * 4 // 5)
        own.trains(max(0, at - pause), [1], SECOND, 1400, 100, True, at)
        [start], [end], _, _ = own.downloads(
            at, [size], [], _REQUEST_BYTES, False, '{"control": "cubic"}', at + _PATIENCE_NS
        )
        taken.append(int(end - start) if end >= 0 else None)
    return asked.with_columns(taken_ns=pl.Series(taken, dtype=pl.Int64)).cast(dict(DOWNLOADS))  # type: ignore[arg-type]


class _Filled:
    """The packets that saturate one direction; for an adaptive saturation, also their outcomes."""

    def __init__(self, how: Fixed | Adaptive | None, link: Link, packet_bytes: int, duration_ns: int) -> None:
        self._least_ns = how.least_delay_ns if isinstance(how, Adaptive) else None
        if isinstance(how, Adaptive):
            if link.changes:
                raise ValueError("an adaptive saturation needs links without changes")
            bounds = how.least_delay_ns, how.most_delay_ns
            at, arrived = _core.saturate_virtually(
                json.dumps(link.stages), packet_bytes, bounds, FASTEST_BPS, duration_ns
            )
        else:
            at, arrived = _evenly(how, duration_ns, packet_bytes), None
        self.sent = _Sent(np.zeros_like(at), np.arange(len(at)), np.full_like(at, packet_bytes), at)
        self.fate = _through(link, self.sent) if arrived is None else _Fate(arrived, (arrived >= 0).astype(np.int64))

    def full_ns(self) -> int:
        """Return the time when an adaptive saturation has filled its queue: a packet waited for at least the lower
        bound, or was lost."""
        if self._least_ns is None or not len(self.sent):
            return 0
        delay = self.fate.arrived - self.sent.at
        there = self.fate.arrived >= 0
        least = delay[there].min(initial=np.iinfo(np.int64).max)
        full = np.flatnonzero(~there | (delay >= least + self._least_ns))
        return int(self.sent.at[full[0]]) if len(full) else 0


def _evenly(how: Fixed | None, duration_ns: int, packet_bytes: int) -> Int64:
    if how is None:
        return np.empty(0, np.int64)
    interval = packet_bytes * 8 * SECOND / how.rate_bps
    at: Int64 = (np.arange(int(np.ceil(duration_ns / interval))) * interval).astype(np.int64)
    return at


def _through(link: Link, sent: _Sent) -> _Fate:
    """Return the outcomes of packets on a link."""
    order = np.argsort(sent.at, kind="stable")
    fate = _Fate(np.full(len(sent), -1), np.zeros(len(sent), np.int64))
    if not len(sent):
        return fate
    out = link.run(sent.at[order], sent.size[order])
    # A corrupted packet fails its checksum and counts as lost.
    intact = out.delivered & (out.corrupt_bit < 0)
    packet, departed = out.packet[intact].astype(np.int64), out.departed[intact]
    first = np.full(len(sent), np.iinfo(np.int64).max)
    np.minimum.at(first, packet, departed)
    copies = np.bincount(packet, minlength=len(sent))
    fate.arrived[order] = np.where(copies > 0, first, -1)
    fate.copies[order] = copies
    return fate


def _table(sent: _Sent, fate: _Fate) -> pl.DataFrame:
    columns = {
        "train": sent.train,
        "index": sent.index,
        "bytes": sent.size,
        "sent_ns": sent.at,
        "arrived_ns": pl.Series(fate.arrived, dtype=pl.Int64).set(pl.Series(fate.arrived < 0), None),
        "copies": np.minimum(fate.copies, 255),
    }
    return pl.DataFrame(columns).cast(dict(COLUMNS))  # type: ignore[arg-type]
