"""The load of a day: a device's rate by the hour, as the load of other users varies.

Between a quietest and a busiest hour the mean rate falls and rises along a smooth curve, a cubic, which is ours; around
it the rate wanders, like the free share of a cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellbed.archive.generation.capacity import Capacity
from cellbed.archive.randomness import Stream

if TYPE_CHECKING:
    from cellbed.archive.randomness import Float64

DAY_NS = 86_400_000_000_000
TICK_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Daily:
    """One direction over the hours of the day.

    quietest, busiest: mean rates (bit/s) in those hours, 0 to 24, of the day. begins: the hour at time zero. spread:
    standard deviation in parts of the hour's mean. memory_ns: time constant with which the rate forgets.
    """

    quietest: float
    busiest: float
    quietest_hour: float
    busiest_hour: float
    begins: float = 0.0
    spread: float = 0.2
    memory_ns: int = 10_000_000_000

    def capacity(self, duration_ns: int, stream: Stream) -> Capacity:
        """Return a course of it, second by second."""
        import numpy as np

        count = -(-duration_ns // TICK_NS)
        at = np.arange(count, dtype=np.int64) * TICK_NS
        step = TICK_NS / self.memory_ns
        kept, value, wander = 1.0 - step, 0.0, []
        noise = math.sqrt(1.0 - kept * kept)
        for normal in stream.normals(count).tolist():
            value = kept * value + noise * normal
            wander.append(min(max(value, -3.0), 3.0))
        hour = (self.begins + at / 3_600_000_000_000) % 24.0
        rate = self._mean(hour) * (1.0 + self.spread * np.array(wander))
        return Capacity(at, np.maximum(rate, 0.0).astype(np.int64), duration_ns)

    def _mean(self, hour: Float64) -> Float64:
        import numpy as np

        falling = (self.busiest_hour - self.quietest_hour) % 24.0
        since = (hour - self.quietest_hour) % 24.0
        # 0 at the quietest hour, 1 at the busiest, on the way there and on the way back.
        place = np.where(since <= falling, since / falling, (24.0 - since) / (24.0 - falling))
        load = place * place * (3.0 - 2.0 * place)
        mean: Float64 = self.quietest + (self.busiest - self.quietest) * load
        return mean
