"""What a packet log says in a few figures per direction."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cellbed.measure.packetlog.log import PacketLog, reason

PERCENTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class DirectionFigures:
    """One direction from the start of the schedule on.

    packets, bytes: delivered. dropped: packets by reason. delay_ms: one-way delay of delivered packets in the
    direction (departed − arrived, to the µs) at :data:`PERCENTILES`; `None` where none was delivered. A percentile q
    of n is the value of rank ⌈n q⌉.
    """

    name: str
    packets: int
    bytes: int
    dropped: dict[str, int]
    delay_ms: tuple[float, ...] | None


@dataclass(slots=True)
class _Sums:
    packets: int = 0
    bytes: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    delays_us: list[NDArray[np.uint32]] = field(default_factory=list)


def figures(log: PacketLog) -> list[DirectionFigures]:
    """Figures of every direction, in their order; those of a run that carried nothing too."""
    sums = {index: _Sums() for index in log.directions}
    for records in log.chunks(since_ns=log.t0_ns):
        for index in np.unique(records["direction"]).tolist():
            of = records[records["direction"] == index]
            total = sums.setdefault(index, _Sums())
            delivered = of[of["drop"] == 0]
            total.packets += len(delivered)
            total.bytes += int(delivered["bytes"].sum(dtype=np.int64))
            delay = (delivered["departed"] - delivered["arrived"]) // 1000
            total.delays_us.append(np.minimum(delay, 2**32 - 1).astype(np.uint32))
            codes, counts = np.unique(of["drop"][of["drop"] != 0], return_counts=True)
            for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
                total.dropped[reason(code)] += count
    return [
        DirectionFigures(
            log.direction_name(index), total.packets, total.bytes, dict(total.dropped), _percentiles(total.delays_us)
        )
        for index, total in sorted(sums.items())
    ]


def _percentiles(parts: list[NDArray[np.uint32]]) -> tuple[float, ...] | None:
    delays = np.concatenate(parts) if parts else np.empty(0, np.uint32)
    if not len(delays):
        return None
    ranks = [math.ceil(q * len(delays)) - 1 for q in PERCENTILES]
    delays.partition(ranks)
    return tuple(float(delays[rank]) / 1e3 for rank in ranks)
