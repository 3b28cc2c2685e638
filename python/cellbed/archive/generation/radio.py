"""A saturated radio link in virtual time: the radio model (docs/reference/radio.md) with a queue that is never empty.

Every departing packet is a delivery opportunity, as for the recorder's saturator. Obstacles reduce the mean signal for
a while. A band without a profile uses another profile with a different carrier.

The model computes in floating point with logarithms of the C library. The same build of cellbed gives the same bytes;
another machine's library may round differently.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from cellbed.archive.generation.series import Generated
from cellbed.archive.series import OPPORTUNITY_BYTES, Content
from cellbed.support.ways import WAYS, Way

_STEP_NS = 20_000_000
"""Interval between feeds of the link, ns."""

_EDGE_NS = 500_000_000
"""Time during which an obstacle appears or disappears, ns. Our choice: half a metre at walking pace, or less."""

_EDGE_PARTS = 5


@dataclass(frozen=True, slots=True)
class Handover:
    """Changes of the cell.

    every_ns: mean time between changes. least_ns, most_ns: minimum and maximum gap. spread_db: deviation of a cell's
    addition to the signal.
    """

    every_ns: int
    least_ns: int = 80_000_000
    most_ns: int = 300_000_000
    spread_db: float = 3.0


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An obstacle in the line of sight.

    loss_db: loss of signal. share: remaining fraction of the resources. begins_ns: times at which the obstacle appears;
    it stays for `lasts_ns`.
    """

    loss_db: float
    share: float
    begins_ns: tuple[int, ...]
    lasts_ns: int


@dataclass(frozen=True, slots=True)
class Side:
    """One direction.

    signal_db: mean signal-to-noise ratio. share: share of the cell's resources. share_deviation: deviation of `share`.
    carrier: blocks, layers, overhead, slot_ns and symbols. ``None`` selects the profile's value.
    """

    signal_db: float | None = None
    share: float | None = None
    share_deviation: float | None = None
    carrier: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RadioLink:
    """A link of the radio model. profile: name in docs/reference/radio.md. fading_db, memory_ns: deviation and time
    constant of the signal.

    delay_ns: one-way delay beyond the base station. ``None`` selects the profile's value.
    """

    profile: str
    uplink: Side = Side()
    downlink: Side = Side()
    handover: Handover | None = None
    obstacle: Obstacle | None = None
    fading_db: float | None = None
    memory_ns: int = 500_000_000
    delay_ns: int | None = None

    def saturated(self, way: Way, duration_ns: int, seed: int) -> Generated:
        """Return the opportunities of a saturated direction."""
        stages, changes = self._describe_changes(way, seed, duration_ns, saturated=True)

        def times() -> Iterator[pl.DataFrame]:
            from cellbed._core import Direction

            link, packets = Direction(stages, changes), _ENOUGH
            for now in range(0, duration_ns, _STEP_NS):
                missing = max(0, packets - link.queue[0])
                columns = link.send((np.full(missing, now), np.full(missing, OPPORTUNITY_BYTES, np.uint32), None, None))
                yield from _releases(columns, duration_ns)
                until = link.advance(min(now + _STEP_NS, duration_ns) - 1)
                yield from _releases(until, duration_ns)
                # Twice the packets of the last step: enough unless the rate doubles from one step to the next.
                packets = max(_ENOUGH, 2 * len(until[0]))

        return Generated(Content.OPPORTUNITIES, duration_ns, times)

    def round_trips(self, duration_ns: int, seed: int, interval_ns: int = 100_000_000) -> Generated:
        """Return round-trip times of probes of 1400 bytes over both directions of the idle link."""

        def rows() -> Iterator[pl.DataFrame]:
            from cellbed._core import Path

            described = [self._describe_changes(way, seed, duration_ns, saturated=False) for way in WAYS]
            path = Path(described[0], described[1], 0)
            count = -(-duration_ns // interval_ns)
            sent, taken, _ = path.trains(0, [1] * count, interval_ns, 1400, 1400, True, duration_ns + 10**11)
            frame = pl.DataFrame({"at_ns": sent, "round_trip_ns": np.where(taken < 0, -1, taken)})
            yield frame.with_columns(pl.col("round_trip_ns").replace(-1, None))

        return Generated(Content.ROUND_TRIP, duration_ns, rows)

    def _describe_changes(
        self, way: Way, seed: int, duration_ns: int, saturated: bool
    ) -> tuple[str, list[tuple[int, int, str]]]:
        """Return the stage and its changes in the format of the emulator's configuration."""
        side = self.uplink if way == "uplink" else self.downlink
        stage = {
            "kind": "radio",
            "profile": self.profile,
            "way": way,
            "seed": seed,
            "queue": {"kind": "infinite"} if saturated else None,
            "delay_ns": self.delay_ns,
            "carrier": side.carrier,
            "fading": self.fading_db and {"deviation_db": self.fading_db, "memory_ns": self.memory_ns},
            "handover": self.handover and asdict(self.handover),
        }

        def text(depth: float) -> str:
            whole = stage | self._signal(side, depth)
            return json.dumps({key: value for key, value in whole.items() if value is not None})

        return f"[{text(0.0)}]", [(at, 0, text(depth)) for at, depth in self._depths() if at < duration_ns]

    def _depths(self) -> Iterator[tuple[int, float]]:
        """Yield the strength of the obstacle over time: time (ns) and strength from 0 to 1."""
        if self.obstacle is None:
            return
        for begin in self.obstacle.begins_ns:
            for part in range(1, _EDGE_PARTS + 1):
                yield begin + (part - 1) * _EDGE_NS // _EDGE_PARTS, part / _EDGE_PARTS
            for part in range(1, _EDGE_PARTS + 1):
                end = begin + self.obstacle.lasts_ns - _EDGE_NS
                yield end + part * _EDGE_NS // _EDGE_PARTS, 1.0 - part / _EDGE_PARTS

    def _signal(self, side: Side, depth: float) -> dict[str, float | None]:
        signal_db, share = side.signal_db, side.share
        if self.obstacle is not None and depth > 0.0:
            if signal_db is None or share is None:
                raise ValueError("an obstacle needs a signal and a share that it reduces")
            signal_db = max(-50.0, signal_db - depth * self.obstacle.loss_db)
            share *= 1.0 - depth * (1.0 - self.obstacle.share)
        return {"signal_db": signal_db, "share": share, "share_deviation": side.share_deviation}


_ENOUGH = 1024
"""Minimum queue, packets: more than the scheduler needs for the full share (docs/reference/radio.md, ramp)."""


def _releases(columns: tuple[Any, ...], duration_ns: int) -> Iterator[pl.DataFrame]:
    at = columns[2]
    if len(at):
        yield pl.DataFrame({"at_ns": at[at <= duration_ns]})
