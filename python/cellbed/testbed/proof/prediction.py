"""The expected arrivals of datagrams, which the proof of links compares with measurements.

Formulas compute arrivals from a link's parameters alone. If a value is drawn at random, the result is a span of
possible values. If arrivals depend on earlier packets, the path model computes them.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from cellbed import _core
from cellbed.archive import TraceSource
from cellbed.scenario.capacities import RateSeries
from cellbed.scenario.fields import ConstantRate, QueueLimit, Unlimited
from cellbed.scenario.impairments import Delay
from cellbed.scenario.load_dependent import Radio, Recorded
from cellbed.scenario.series import Points
from cellbed.scenario.stage_tables import Series, StageTable
from cellbed.testbed.links.stages import MTU
from cellbed.testbed.plan import Direction
from cellbed.testbed.proof.limits import MILLISECOND

Span = tuple[int, int]
"""Minimum and maximum, ns or bytes."""

BYTE = 8 * 10**9
"""A byte in units of bit/s · ns."""
CUT = 4
"""Number of standard deviations at which normal and Pareto delays are cut."""
KNOWN = {
    "delay": ("series", "normal", "pareto", "uniform", "empirical"),
    "capacity": ("series", "token-bucket", "cellreplay", "conditional", "radio"),
}
"""Kinds of tables with a formula in this module, or that depend on the load."""
LEVEL_NS = 20_000_000
"""Minimum size of a queue, as time at the link's rate, that keeps the link busy while enough packets arrive."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The relation of monotonic time to positions in recordings: at `zero_ns` the position is `begin_ns`."""

    zero_ns: int
    begin_ns: int

    def position(self, time_ns: int) -> int:
        """Return the position at a time."""
        return time_ns - self.zero_ns + self.begin_ns

    def time(self, position_ns: int) -> int:
        """Return the time of a position."""
        return position_ns + self.zero_ns - self.begin_ns


def find_unknown(path: Sequence[Direction]) -> str | None:
    """Return why arrivals cannot be computed (a kind of delay or capacity without a formula); ``None`` if they can."""
    for direction in path:
        for what, table in (("delay", direction.parameters.delay), ("capacity", direction.capacity)):
            if isinstance(table, StageTable) and table.kind not in KNOWN[what]:
                return f"{direction.name} has a {what} of kind '{table.kind}', for which there is no formula"
    return None


def depends_on_load(path: Sequence[Direction]) -> bool:
    """Return whether the fate of a packet on this path depends on previous packets."""
    return any(isinstance(direction.capacity, Recorded | Radio) for direction in path)


def arrivals(path: Sequence[Direction], sent_ns: Sequence[int], size: int, clock: Clock) -> list[Span | None]:
    """Return the arrivals of datagrams of `size` bytes on an idle path; ``None`` for a lost datagram.

    sent_ns: in order; if the path does not depend on the load, each datagram must meet empty queues.
    """
    if depends_on_load(path):
        return _model_arrivals(path, sent_ns, size, clock)
    spans: list[Span | None] = []
    for sent in sent_ns:
        low = high = sent
        for direction in path:
            low, high = (_release_time(direction, at, size, clock) for at in (low, high))
            low, high = low + _delay(direction, low, clock)[0], high + _delay(direction, high, clock)[1]
        spans.append((low, high))
    return spans


def _model_arrivals(path: Sequence[Direction], sent_ns: Sequence[int], size: int, clock: Clock) -> list[Span | None]:
    """Return the arrivals by the path model. Random losses and delays are those of an emulator that has just
    started."""
    # Imported here: few runs have such links, and the import takes 0.1 s.
    import numpy as np

    from cellbed.outcomes import Fate

    order = np.arange(len(sent_ns))
    times = np.array([clock.position(sent) for sent in sent_ns], dtype=np.int64)
    for direction in path:
        changes = [(at, index, json.dumps(to)) for at, index, to in direction.stage_changes]
        model = _core.Direction(json.dumps(direction.stages), changes)
        sizes = np.full(len(times), size, dtype=np.uint32)
        packet, _, _, departed, _, fate, _, _ = model.run((times, sizes, None, None))
        # Only a packet's first copy counts.
        _, first = np.unique(packet, return_index=True)
        rows = first[fate[first] == Fate.DELIVERED]
        rows = rows[np.argsort(departed[rows], kind="stable")]
        order, times = order[packet[rows].astype(np.int64)], departed[rows]
    reached: list[Span | None] = [None] * len(sent_ns)
    for number, time in zip(order.tolist(), times.tolist(), strict=True):
        reached[number] = clock.time(time), clock.time(time)
    return reached


def _release_time(direction: Direction, arrival_ns: int, size: int, clock: Clock) -> int:
    start_ns = direction.playing.start_ns
    match direction.capacity:
        case TraceSource() as trace:
            # A small packet fits into one opportunity.
            position = trace.trace.next_opportunity(clock.position(arrival_ns) + start_ns)
            return clock.time(position - start_ns)
        case ConstantRate(bit_rate=bit_rate):
            return arrival_ns + round(size * 8e9 / bit_rate)
        case RateSeries() as series:
            position = _find_position(series, clock.position(arrival_ns) + start_ns, size)
            return clock.time(position - start_ns)
        case StageTable(kind="token-bucket") | Unlimited():
            # The bucket is full at first.
            return arrival_ns
        case Recorded():
            raise ValueError(f"the effect of {direction.name} on a packet depends on earlier packets")
        case _:
            raise ValueError(f"no formula for the capacity of {direction.name}")


def _delay(direction: Direction, at_ns: int, clock: Clock) -> Span:
    delay = direction.parameters.delay
    if isinstance(delay, Series):
        now = _linear(delay.pairs, clock.position(at_ns) + direction.playing.start_ns)
        # The emulator has the series relative to its start, rounded to whole nanoseconds.
        return max(0, now - 1), now + 1
    return delays(delay)


def delays(delay: Delay) -> Span:
    """Return the minimum and maximum of a delay, ns."""
    match delay:
        case int():
            return delay, delay
        case Series():
            return _extremes([value for _, value in delay.pairs])
        case StageTable(kind="empirical"):
            return _extremes(list(delay.file.values))
        case StageTable(kind="uniform"):
            return max(0, delay.mean - delay.spread), delay.mean + delay.spread
        case StageTable(kind="normal" | "pareto"):
            return max(0, delay.mean - CUT * delay.deviation), delay.mean + CUT * delay.deviation
        case _:
            raise ValueError(f"no limits of a delay of kind '{delay.kind}'")


def byte_offer(direction: Direction, begin_ns: int, end_ns: int) -> int:
    """Return the bytes that the direction's schedule offers between two positions, without a token bucket's burst."""
    start_ns = direction.playing.start_ns
    match direction.capacity:
        case TraceSource() as trace:
            return trace.trace.capacity(max(0, begin_ns + start_ns), max(0, end_ns + start_ns))
        case Recorded() as replay:
            heavy = replay.heavy.trace.capacity(max(0, begin_ns + start_ns), max(0, end_ns + start_ns))
            return heavy * replay.opportunity // MTU
        case ConstantRate(bit_rate=rate) | StageTable(kind="token-bucket", rate=rate):
            return round(rate * max(0, end_ns - begin_ns) / 8e9)
        case RateSeries() as series:
            return max(0, series.area(end_ns + start_ns) - series.area(begin_ns + start_ns)) // BYTE
        case Unlimited():
            raise ValueError(f"{direction.name} has no capacity limit")
        case _:
            raise ValueError(f"no formula for the capacity of {direction.name}")


def burst(direction: Direction, begin_ns: int) -> int:
    """Return the bytes that the direction may pass after a packet that leaves at a position, in addition to its
    schedule's offer: of a token bucket, or of the opportunities that a trace has in the packet's millisecond."""
    match direction.capacity:
        case StageTable(kind="token-bucket") as bucket:
            return int(bucket.burst)
        case TraceSource() | Recorded():
            return byte_offer(direction, begin_ns - MILLISECOND, begin_ns)
        case _:
            return 0


def idles(direction: Direction, begin_ns: int, end_ns: int) -> str | None:
    """Return why the bottleneck may be idle between two positions even if enough is sent; ``None`` if it may not."""
    queue = direction.parameters.queue
    if queue is not None and queue.kind not in ("droptail", "drophead", "codel", "fqcodel", "infinite", "classes"):
        return f"its {queue.kind} queue drops packets at random"
    parts = queue.classes if queue is not None and queue.kind == "classes" else [queue]
    limits: list[QueueLimit] = [it for part in parts if (it := getattr(part, "limit", None)) is not None]
    if not limits:
        return None
    held = min(limit.bytes if limit.bytes is not None else 1500 * (limit.packets or 0) for limit in limits)
    starts = range(begin_ns, end_ns, LEVEL_NS)
    needed = max(byte_offer(direction, at, at + LEVEL_NS) for at in starts) + 3000
    return None if held >= needed else "its queue is too short to keep it busy"


def chance_of_loss(direction: Direction) -> float | None:
    """Return the probability that a packet is lost; ``None`` if the probability varies."""
    loss = direction.parameters.loss
    return loss if isinstance(loss, float | int) else None


def _extremes(values: list[int]) -> Span:
    return min(values), max(values)


def _linear(points: Points, position_ns: int) -> int:
    """Return the value of a series that is linear between its points and constant outside of them."""
    after = bisect_right(points, position_ns, key=lambda point: point[0])
    if after == 0:
        return int(points[0][1])
    if after == len(points):
        return int(points[-1][1])
    (begin, low), (end, high) = points[after - 1], points[after]
    return int(low + (high - low) * Fraction(position_ns - begin, end - begin))


def _find_position(series: RateSeries, begin_ns: int, size: int) -> int:
    """Return the position at which the next `size` bytes have been offered, at most a day after `begin_ns`."""
    low, high = begin_ns, begin_ns + 24 * 3600 * 10**9
    target = series.area(begin_ns) + size * BYTE
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if series.area(middle) < target else (low, middle)
    return low
