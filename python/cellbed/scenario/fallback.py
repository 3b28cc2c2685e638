"""Rules by which a mobile link of two radios uses the second: times, handovers, or the signal of the first."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Annotated, Any, Literal

from pydantic import Field

from cellbed.archive import TraceSource
from cellbed.scenario.capacities import LinkCapacity, RateSeries
from cellbed.scenario.fields import quantity
from cellbed.scenario.impairments import Outages
from cellbed.scenario.series import Points
from cellbed.scenario.table import Path, PlainOr, Table, written
from cellbed.support.units import BIT_RATE, DURATION

_BIN = 10_000_000
"""Averaging time of the first radio's capacity, ns."""
_AFTER = 60 * 10**9
"""Maximum time from the workload's end to the end of a stay, ns: replies are still in flight."""
_TOO_SHORT = "the stay would end within the interruption that begins it: write more than '{}'"
Stays = tuple[tuple[int, int], ...]
"""Times on the second radio: begin and end, ns from the start of the workload, in order."""


class Handovers(Table):
    """Random handovers between cells of the first radio, with a stay on the second one in each."""

    kind: Literal["handovers"]
    every: Annotated[int, quantity(DURATION, "1 s", "24 h")] = Field(
        written("33.3 s"), description="Mean time from one to the next."
    )
    stay: Annotated[int, quantity(DURATION, "1 ms", "1 h")] = Field(
        written("2 s"), description="Time for which the second radio has the link."
    )

    def misfits(self, interruption: int, _down: LinkCapacity) -> Iterator[tuple[str, str]]:
        """Yield problems: (key, what to do)."""
        if self.stay <= interruption:
            yield "stay", _TOO_SHORT.format(DURATION.format(interruption))
        if self.every < 2 * (self.stay + interruption):
            least = DURATION.format(2 * (self.stay + interruption))
            yield "every", f"half of the time or more would be on the fallback: write at least '{least}'"

    def stays(
        self, duration: int, interruption: int, seed: str, _down: LinkCapacity, _start: int, _loop: bool
    ) -> Stays:
        """Return the stays that begin in `duration` ns."""
        random, least = Random(seed), self.stay + interruption
        found: list[tuple[int, int]] = []
        at = round(random.expovariate(1 / self.every))
        while at < duration:
            found.append((at, at + self.stay))
            # After the return, the first radio has the link for at least a moment.
            at += least + 1 + round(random.expovariate(1 / (self.every - least)))
        return tuple(found)


class Signal(Table):
    """The second radio, while the downlink of the first one carries less than a rate."""

    kind: Literal["signal"]
    below: Annotated[int, quantity(BIT_RATE, "1 kbit/s", "1000 Gbit/s")] = Field(
        description="Downlink capacity below which the first radio is lost.", examples=["20 Mbit/s"]
    )
    after: Annotated[int, quantity(DURATION, "10 ms", "10 s")] = Field(
        written("50 ms"), description="Time below that capacity, or not below, before the radio changes."
    )
    stay: Annotated[int, quantity(DURATION, "1 ms", "1 h")] = Field(
        written("1 s"), description="Minimum time for which the second radio has the link."
    )

    def misfits(self, interruption: int, down: LinkCapacity) -> Iterator[tuple[str, str]]:
        """Yield problems: (key, what to do)."""
        if not isinstance(down, TraceSource | RateSeries):
            yield "kind", "the downlink has no signal that varies: write a trace or a series, or times of the fallback"
        if self.stay <= interruption:
            yield "stay", _TOO_SHORT.format(DURATION.format(interruption))

    def stays(self, duration: int, interruption: int, _seed: str, down: LinkCapacity, start: int, loop: bool) -> Stays:
        """Return the stays that begin in `duration` ns. start, loop: replay of the first radio's downlink."""
        carried = _byte_count(down, start, loop)
        needed = self.below * _BIN / 8e9
        found: list[tuple[int, int]] = []
        begin, run, free = None, 0, 0
        for at in range(0, duration, _BIN):
            lost = carried(at, at + _BIN) < needed
            run = run + 1 if lost == (begin is None) else 0
            now = at + _BIN
            if run * _BIN < self.after:
                continue
            if begin is None and now >= free:
                begin, run = now, 0
            elif begin is not None and now >= begin + self.stay:
                found.append((begin, now))
                begin, run, free = None, 0, now + interruption + 1
        return (*found, *([] if begin is None else [(begin, duration + _AFTER)]))


def _byte_count(capacity: LinkCapacity, start: int, loop: bool) -> Callable[[int, int], float]:
    """Return a function for the bytes that a capacity carries between two times, ns from the start of the workload."""
    match capacity:
        case TraceSource():
            trace, end = capacity.trace, capacity.trace.duration_ns
            last = float("inf") if loop else end
            return lambda begin, until: trace.capacity(begin + start, until + start) if begin + start < last else 0
        case RateSeries():
            return lambda begin, until: (capacity.area(until + start) - capacity.area(begin + start)) / 8e9
    raise ValueError("the capacity does not vary")  # refused by `misfits`


def time_misfits(times: Points, interruption: int, duration: int) -> Iterator[tuple[Path, str]]:
    """Yield problems of times: (path below the times, what to do)."""
    short = DURATION.format(interruption)
    for number, (begin, length) in enumerate(times):
        if length <= interruption:
            yield (number,), _TOO_SHORT.format(short)
        if begin >= duration:
            yield (number,), f"the workload ends after {DURATION.format(duration)}: write an earlier time"
    for number, ((begin, length), (following, _)) in enumerate(pairwise(times), 1):
        if following - begin - length <= interruption:
            yield (number,), f"begins within the interruption after the stay before it: write a time '{short}' later"


def _show_times(times: Points) -> Any:
    return [[DURATION.format(begin), DURATION.format(length)] for begin, length in times]


Rule = Outages | Handovers | Signal
RULE = PlainOr(Outages, (Handovers, Signal), _show_times)
"""A rule in the file: pairs of begin and length, or a table."""
