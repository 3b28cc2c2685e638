"""The path model's result for the datagrams of a measurement.

The expected values of the proof for links whose delay and rate depend on the load, without a formula.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from cellbed import _core
from cellbed.scenario.conditional import Conditional
from cellbed.scenario.load_dependent import Replay
from cellbed.scenario.radio import Radio
from cellbed.testbed.plan import Direction
from cellbed.testbed.proof.prediction import Clock


def depends_on_load(path: Sequence[Direction]) -> bool:
    """Return whether what becomes of a packet on this path depends on the packets before it."""
    return any(isinstance(direction.capacity, Replay | Conditional | Radio) for direction in path)


def arrivals(path: Sequence[Direction], sent_ns: Sequence[int], size: int, clock: Clock) -> list[int | None]:
    """When datagrams of `size` bytes that meet an idle path reach its end, by packet; ``None`` for one that does not.

    sent_ns: in order. Where packets are lost or delayed by chance, the draws are those of an emulator that has just
    started.
    """
    # Here, because few runs have such links, and loading it takes a tenth of a second.
    import numpy as np

    from cellbed.outcomes import Fate

    order = np.arange(len(sent_ns))
    times = np.array([clock.position(sent) for sent in sent_ns], dtype=np.int64)
    for direction in path:
        changes = [(at, index, json.dumps(to)) for at, index, to in direction.stage_changes]
        model = _core.Direction(json.dumps(direction.stages), changes)
        sizes = np.full(len(times), size, dtype=np.uint32)
        packet, _, _, departed, _, fate, _, _ = model.run((times, sizes, None, None))
        # The first copy counts.
        _, first = np.unique(packet, return_index=True)
        rows = first[fate[first] == Fate.DELIVERED]
        rows = rows[np.argsort(departed[rows], kind="stable")]
        order, times = order[packet[rows].astype(np.int64)], departed[rows]
    reached: list[int | None] = [None] * len(sent_ns)
    for number, time in zip(order.tolist(), times.tolist(), strict=True):
        reached[number] = clock.time(time)
    return reached
