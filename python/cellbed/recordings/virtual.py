"""A recording made in virtual time: trains with answers, and saturation, through links without a real clock.

For tests, for evaluations without a network, and for models in virtual time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle, pairwise
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

import cellbed
from cellbed import Link, _core
from cellbed.outcomes import Outcomes
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
    Workload,
)
from cellbed.recordings.packets import COLUMNS
from cellbed.recordings.recording import Recording

Int64 = npt.NDArray[np.int64]

SECOND = 1_000_000_000

FASTEST_BPS = 10_000_000_000
"""Maximum rate of an adaptive saturation, bit/s."""

_DRAINING = 2 * SECOND
"""Time without packets between saturation and trains on the same link, ns: the queue must be empty."""


class LinkLike(Protocol):
    """One direction of a network, such as :class:`cellbed.Link`."""

    def run(self, times: npt.ArrayLike, sizes: npt.ArrayLike) -> Outcomes:
        """Return the outcomes of packets sent over the idle direction; rows in order of arrival."""
        ...


Pair = tuple[LinkLike, LinkLike]
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
    heavy: Pair | None,
    plan: TrainPlan,
    saturation: tuple[Fixed | Adaptive | None, Fixed | Adaptive | None] = (None, None),
    *,
    duration_ns: int,
    packet_bytes: int = 1400,
    span_ns: int = 10 * SECOND,
) -> Recording:
    """Record two workloads in virtual time, each on a separate device.

    All links start at rest at time zero. Two devices meet the same weather if their links are made with the same seed
    and depend on time alone.

    Args:
        light: Uplink and downlink of the device that sends `plan`'s trains, the packets of a train at one instant; the
            first packet to arrive is answered at once.
        heavy: Uplink and downlink of the device that `saturation` fills; ``None`` lets both workloads run on the light
            device in turn, the light one first, with 2 s of silence at the end of each heavy span.
        plan: The trains.
        saturation: Of the uplink and of the downlink. An adaptive one needs a separate heavy device, whose directions
            are links without changes; the heavy span begins when its queues are full for the first time.
        duration_ns: Length of the recording.
        packet_bytes: Size of the saturating packets.
        span_ns: Length of each workload's turn on one device.

    Returns:
        The recording.

    Raises:
        ValueError: A link refuses its packets, or an adaptive saturation lacks a heavy device.
    """
    together = heavy is not None
    spans = _spans(duration_ns, span_ns, together, any(saturation))
    starts = _train_starts(plan, [span for span in spans if span.workload == "light"])
    up_trains = _trains(plan, starts)
    saturated = [span for span in spans if span.workload == "heavy"]
    up_heavy, down_heavy = (
        _Filled(it, saturated, packet_bytes, duration_ns, link)
        for it, link in zip(saturation, heavy or (None, None), strict=True)
    )
    (up_light_device, down_light_device), (up_heavy_device, down_heavy_device) = light, heavy or light
    up = _pass(up_light_device, up_heavy_device, up_trains, up_heavy)
    down_trains = _answers(plan, up_trains, up[0])
    down = _pass(down_light_device, down_heavy_device, down_trains, down_heavy)
    full = max(filled.full_ns() for filled in (up_heavy, down_heavy))
    spans = tuple(s.model_copy(update={"start_ns": max(s.start_ns, full)}) if s in saturated else s for s in spans)
    known = Clock(offset_ns=0, drift_ppm=0.0, uncertainty_ns=0)
    made = repr((plan, saturation, duration_ns, packet_bytes, span_ns)).encode()
    digest = hashlib.sha256(made + b"".join(fate.arrived.tobytes() for fate in (*up, *down)))
    description = Description(
        id=digest.hexdigest()[:32],
        # Virtual time has no date; the epoch keeps equal recordings equal.
        started=datetime.fromtimestamp(0, UTC),
        duration_ns=duration_ns,
        synthetic=True,
        tool=f"cellbed {cellbed.__version__}",
        packet_bytes=packet_bytes,
        arrangement="together" if together else "alternating",
        spans=spans,
        light=Light(plan=plan),
        heavy=Heavy(uplink=saturation[0], downlink=saturation[1]),
        clock=Clocks(light=known, heavy=known),
    )
    tables = [
        _table(*it)
        for it in ((up_trains, up[0]), (down_trains, down[0]), (up_heavy.sent, up[1]), (down_heavy.sent, down[1]))
    ]
    return Recording(description, *tables).counted()


def _spans(duration_ns: int, span_ns: int, together: bool, saturated: bool) -> tuple[Span, ...]:
    kinds: tuple[Workload, ...] = ("light", "heavy") if saturated else ("light",)
    if together or not saturated:
        return tuple(Span(workload=kind, start_ns=0, end_ns=duration_ns) for kind in kinds)
    between = pairwise([*range(0, duration_ns, span_ns), duration_ns])
    return tuple(
        Span(workload=kind, start_ns=start, end_ns=end if kind == "light" else max(start, end - _DRAINING))
        for kind, (start, end) in zip(cycle(kinds), between, strict=False)
    )


def _train_starts(plan: TrainPlan, spans: list[Span]) -> Int64:
    """Return the sending time of each train: the plan's gaps, from the begin of each span."""
    random = np.random.default_rng(plan.seed)
    nominal = np.array([train.gap_ns or plan.gap_ns for train in plan.rotation], np.int64)
    found: list[Int64] = []
    sent = 0
    for span in spans:
        most = int((span.end_ns - span.start_ns) / (nominal.min() * (1 - plan.jitter))) + 1
        gaps = nominal[(sent + np.arange(most)) % len(nominal)] * (1 + plan.jitter * random.uniform(-1, 1, most))
        at = span.start_ns + np.concatenate([[0], np.cumsum(np.maximum(1, np.rint(gaps)))]).astype(np.int64)
        found.append(at[at < span.end_ns])
        sent += len(found[-1])
    starts = np.concatenate(found) if found else np.empty(0, np.int64)
    return starts if plan.count is None else starts[: plan.count]


def _trains(plan: TrainPlan, starts: Int64) -> _Sent:
    return _bursts(plan, np.arange(1, len(starts) + 1), starts, "up")


def _answers(plan: TrainPlan, trains: _Sent, fate: _Fate) -> _Sent:
    """Return the answers to the trains with at least one arrived packet."""
    there = fate.arrived >= 0
    if not there.any():
        return _bursts(plan, np.empty(0, np.int64), np.empty(0, np.int64), "down")
    numbers, where = np.unique(trains.train[there], return_inverse=True)
    first = np.full(len(numbers), np.iinfo(np.int64).max)
    np.minimum.at(first, where, fate.arrived[there])
    return _bursts(plan, numbers, first, "down")


def _bursts(plan: TrainPlan, numbers: Int64, starts: Int64, way: Literal["up", "down"]) -> _Sent:
    """Return the packets of numbered trains (from 1); the packets of a train have one sending time."""
    turn = (numbers - 1) % len(plan.rotation)
    lengths = np.array([getattr(train, way) for train in plan.rotation], np.int64)[turn]
    sizes = np.array([getattr(train, f"{way}_bytes") for train in plan.rotation], np.int64)[turn]
    first = np.cumsum(lengths) - lengths
    return _Sent(
        train=np.repeat(numbers, lengths),
        index=np.arange(int(lengths.sum())) - np.repeat(first, lengths),
        size=np.repeat(sizes, lengths),
        at=np.repeat(starts, lengths),
    )


class _Filled:
    """The packets that saturate one direction; for an adaptive saturation, also their outcomes."""

    def __init__(
        self,
        how: Fixed | Adaptive | None,
        spans: list[Span],
        packet_bytes: int,
        duration_ns: int,
        link: LinkLike | None,
    ) -> None:
        self.fate: _Fate | None = None
        self._least_ns = how.least_delay_ns if isinstance(how, Adaptive) else 0
        at = np.concatenate([np.empty(0, np.int64), *(_evenly(how, span, packet_bytes) for span in spans)])
        if isinstance(how, Adaptive):
            if not isinstance(link, Link) or link.changes:
                raise ValueError(
                    "an adaptive saturation needs a heavy device whose directions are links without changes"
                )
            bounds = how.least_delay_ns, how.most_delay_ns
            at, arrived = _core.saturate_virtually(
                json.dumps(link.stages), packet_bytes, bounds, FASTEST_BPS, duration_ns
            )
            self.fate = _Fate(arrived, (arrived >= 0).astype(np.int64))
        self.sent = _Sent(np.zeros_like(at), np.arange(len(at)), np.full_like(at, packet_bytes), at)

    def full_ns(self) -> int:
        """Return the time when an adaptive saturation has filled its queue: a packet waited for at least the lower
        bound, or was lost."""
        if self.fate is None or not len(self.sent):
            return 0
        delay = self.fate.arrived - self.sent.at
        there = self.fate.arrived >= 0
        least = delay[there].min(initial=np.iinfo(np.int64).max)
        full = np.flatnonzero(~there | (delay >= least + self._least_ns))
        return int(self.sent.at[full[0]]) if len(full) else 0


def _evenly(how: Fixed | Adaptive | None, span: Span, packet_bytes: int) -> Int64:
    if not isinstance(how, Fixed):
        return np.empty(0, np.int64)
    interval = packet_bytes * 8 * SECOND / how.rate_bps
    number = np.arange(int(np.ceil((span.end_ns - span.start_ns) / interval)))
    at: Int64 = span.start_ns + (number * interval).astype(np.int64)
    return at


def _pass(light_link: LinkLike, heavy_link: LinkLike, light: _Sent, filled: _Filled) -> tuple[_Fate, _Fate]:
    """Return the outcomes of both workloads in one direction, on separate links or on a shared link."""
    heavy = filled.sent
    if light_link is not heavy_link:
        found = _through(light_link.run, light.at, light.size)
        return found, filled.fate or _through(heavy_link.run, heavy.at, heavy.size)
    fate = _through(light_link.run, np.concatenate([light.at, heavy.at]), np.concatenate([light.size, heavy.size]))
    cut = len(light)
    return _Fate(fate.arrived[:cut], fate.copies[:cut]), _Fate(fate.arrived[cut:], fate.copies[cut:])


def _through(run: Callable[[Any, Any], Outcomes], at: Int64, size: Int64) -> _Fate:
    order = np.argsort(at, kind="stable")
    fate = _Fate(np.full(len(at), -1), np.zeros(len(at), np.int64))
    if not len(at):
        return fate
    out = run(at[order], size[order])
    # A corrupted packet fails its checksum and counts as lost.
    intact = out.delivered & (out.corrupt_bit < 0)
    packet, departed = out.packet[intact].astype(np.int64), out.departed[intact]
    first = np.full(len(at), np.iinfo(np.int64).max)
    np.minimum.at(first, packet, departed)
    copies = np.bincount(packet, minlength=len(at))
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
