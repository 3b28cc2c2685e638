"""Outcomes of the packets of a :class:`cellbed.Link`, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import polars as pl

Int64 = npt.NDArray[np.int64]


class Fate(IntEnum):
    """The outcome of a packet. Drops have the codes of the packet log."""

    DELIVERED = 0
    QUEUE_FULL = 1
    LOSS = 2
    CONGESTION = 3
    """Dropped by the queue's active queue management."""
    HANDOVER = 4
    """Was waiting at the begin of an outage that empties the queue."""
    HELD = 255
    """Never leaves, since an unlooped trace has ended. Only :meth:`Link.run` returns such packets."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Outcomes of packets: arrays of equal length, a row for each packet that left or was dropped.

    Attributes:
        packet (uint64): Number of the packet, from 0.
        arrived (int64): Arrival, ns since the link's start.
        released (int64): Departure of the last byte from the bottleneck; ``arrived`` without one; -1 for ``HELD``.
        departed (int64): Departure from the link, or time of the drop; -1 for ``HELD``.
        size (uint32): Bytes from the IP header on.
        fate (uint8): 0 delivered; 1 queue full, 2 loss, 3 congestion, 4 handover; 255 held, never leaves.
        marked (bool): Whether a queue marked it (ECN).
        corrupt_bit (int64): The flipped bit, -1 if none.
    """

    packet: npt.NDArray[np.uint64]
    arrived: Int64
    released: Int64
    departed: Int64
    size: npt.NDArray[np.uint32]
    fate: npt.NDArray[np.uint8]
    marked: npt.NDArray[np.bool_]
    corrupt_bit: Int64

    def __len__(self) -> int:
        return len(self.packet)

    def __repr__(self) -> str:
        counts = {fate.name.lower(): int(np.count_nonzero(self.fate == fate)) for fate in Fate}
        return f"Outcomes({', '.join(f'{name}={count}' for name, count in counts.items() if count)})"

    @property
    def delivered(self) -> npt.NDArray[np.bool_]:
        """Mask of the packets that reached the far end."""
        delivered: npt.NDArray[np.bool_] = self.fate == Fate.DELIVERED
        return delivered

    @property
    def dropped(self) -> npt.NDArray[np.bool_]:
        """Mask of the packets that were dropped."""
        dropped: npt.NDArray[np.bool_] = (self.fate != Fate.DELIVERED) & (self.fate != Fate.HELD)
        return dropped

    @property
    def delay(self) -> Int64:
        """One-way delay of the packets that reached the far end, ns, in the order of their rows."""
        delivered = self.delivered
        delay: Int64 = self.departed[delivered] - self.arrived[delivered]
        return delay

    def to_polars(self) -> pl.DataFrame:
        """Return a data frame with a row for each packet, and the fate as its name."""
        import polars as pl

        names = {int(fate): fate.name.lower() for fate in Fate}
        columns = {it.name: getattr(self, it.name) for it in fields(self)}
        fates = pl.Series("fate", self.fate).replace_strict(names, return_dtype=pl.Enum(list(names.values())))
        return pl.DataFrame({**columns, "fate": fates})

    def __getitem__(self, rows: Any) -> Outcomes:
        """Return the outcomes of some rows: a slice, a mask or an array of indices."""
        return Outcomes(*(getattr(self, it.name)[rows] for it in fields(self)))
