"""A saturated radio link in virtual time: the radio model (docs/reference/radio.md), fed so that its queue is never
empty.

Every packet that leaves is a delivery opportunity, as for the recorder's saturator. The model computes in floating
point with logarithms of the C library. The same build of cellbed gives the same bytes; another machine's library may
round differently.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cellbed.archive.generation.series import Generated
from cellbed.archive.series import OPPORTUNITY_BYTES, Content
from cellbed.support.ways import WAYS, Way

if TYPE_CHECKING:
    import polars as pl


_STEP_NS = 20_000_000
"""The interval of feeding the link."""

_ENOUGH = 1024
"""Minimum queue: more than the scheduler needs for the full share (docs/reference/radio.md, ramp)."""


@dataclass(frozen=True, slots=True)
class RadioLink:
    """A link of the radio model. profile: its name in docs/reference/radio.md."""

    profile: str

    def saturated(self, way: Way, duration_ns: int, seed: int) -> Generated:
        """Opportunities of a direction."""
        import numpy as np

        stages = self._stages(way, seed, queue={"kind": "infinite"})

        def times() -> Iterator[pl.DataFrame]:
            from cellbed._core import Direction

            link, packets = Direction(stages, []), _ENOUGH
            for now in range(0, duration_ns, _STEP_NS):
                missing = max(0, packets - link.queue[0])
                columns = link.send((np.full(missing, now), np.full(missing, OPPORTUNITY_BYTES, np.uint32), None, None))
                yield from _released(columns, duration_ns)
                until = link.advance(min(now + _STEP_NS, duration_ns) - 1)
                yield from _released(until, duration_ns)
                # As much as left in the last step, twice: enough while the rate does not double from one to the next.
                packets = max(_ENOUGH, 2 * len(until[0]))

        return Generated(Content.OPPORTUNITIES, duration_ns, times)

    def round_trips(self, duration_ns: int, seed: int, interval_ns: int = 100_000_000) -> Generated:
        """Round-trip times of probes of 1400 bytes over the idle link, both directions of it."""
        import numpy as np
        import polars as pl

        def rows() -> Iterator[pl.DataFrame]:
            from cellbed._core import Path

            uplink, downlink = (self._stages(way, seed) for way in WAYS)
            path = Path((uplink, []), (downlink, []), 0)
            count = -(-duration_ns // interval_ns)
            sent, taken, _ = path.trains(0, [1] * count, interval_ns, 1400, 1400, True, duration_ns + 10**11)
            frame = pl.DataFrame({"at_ns": sent, "round_trip_ns": np.where(taken < 0, -1, taken)})
            yield frame.with_columns(pl.col("round_trip_ns").replace(-1, None))

        return Generated(Content.ROUND_TRIP, duration_ns, rows)

    def _stages(self, way: Way, seed: int, **more: Any) -> str:
        """Return the stages of a direction in the terms of the emulator's configuration."""
        return json.dumps([{"kind": "radio", "profile": self.profile, "way": way, "seed": seed, **more}])


def _released(columns: tuple[Any, ...], duration_ns: int) -> Iterator[pl.DataFrame]:
    import polars as pl

    at = columns[2]
    if len(at):
        yield pl.DataFrame({"at_ns": at[at <= duration_ns]})
