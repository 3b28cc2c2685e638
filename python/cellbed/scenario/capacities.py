"""The capacity of one direction of a link over time."""

from bisect import bisect_right
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from cellbed.scenario.fields import CAPACITY, LATER_CAPACITY, Capacity, quantity, refusal
from cellbed.scenario.load_dependent import Replay
from cellbed.scenario.series import RATE, Pairs, Points, Recording, csv_field, points_of, require_one
from cellbed.scenario.table import PlainOr, Table, written
from cellbed.support.units import BIT_RATE, DURATION, SIZE

_STEP = quantity(BIT_RATE, "0 bit/s", "1000 Gbit/s")
_STEPS = Pairs(_STEP.validate, _STEP.show, {"type": "string", "pattern": BIT_RATE.pattern()}, "12 Mbit/s")


class RateSeries(Table):
    """A rate that holds until the next one."""

    kind: Literal["series"]
    steps: Annotated[Points, _STEPS] | None = Field(None, description="Pairs of a time and the rate from then on.")
    file: Annotated[Recording, csv_field(RATE)] | None = Field(
        None, description="A CSV file with a column of times and one of rates, in place of `steps`."
    )
    period: Annotated[int, quantity(DURATION, "1 ms", "24 h")] | None = Field(
        None, description="When the series starts again; left out: its last rate stays."
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        require_one(self, "steps", "file")
        points = self.points
        if points[0][0] != 0:
            raise refusal("the first rate must hold from time 0: begin with it")
        if not any(rate for _, rate in points):
            raise refusal("all rates are 0: no packet would ever pass; an outage is a change of the rate to '0 Mbit/s'")
        if self.period is not None and self.period <= points[-1][0]:
            last = DURATION.format(points[-1][0])
            raise refusal(f"the period, {DURATION.format(self.period)}, must lie behind the last time, {last}")
        return self

    @property
    def points(self) -> Points:
        """Pairs of time (ns) and rate (bit/s)."""
        return points_of(self.steps, self.file)

    def area(self, position_ns: int) -> int:
        """Return the capacity of the series before a position, in bit/s · ns."""
        position_ns = max(0, position_ns)
        if self.period is None:
            return self._within(position_ns)
        cycles, rest = divmod(position_ns, self.period)
        return cycles * self._within(self.period) + self._within(rest)

    @cached_property
    def _areas(self) -> list[int]:
        """The area before each point."""
        steps = zip(self.points, self.points[1:], strict=False)
        return [0, *accumulate(rate * (end - begin) for (begin, rate), (end, _) in steps)]

    def _within(self, position_ns: int) -> int:
        """Return the area in one cycle."""
        at = bisect_right(self.points, position_ns, key=lambda point: point[0]) - 1
        begin, rate = self.points[at]
        return self._areas[at] + int(rate) * (position_ns - begin)


class TokenBucket(Table):
    """A rate with bursts: a bucket of tokens fills at the rate, and packets with tokens pass at once."""

    kind: Literal["token-bucket"]
    rate: Annotated[int, quantity(BIT_RATE, "1 kbit/s", "1000 Gbit/s")] = Field(
        description="How fast the bucket fills.", examples=["12 Mbit/s"]
    )
    burst: Annotated[int, quantity(SIZE, "1500 B", "1 GB")] = Field(
        written("64 KiB"), description="How much the bucket holds."
    )


class FlowLimit(Table):
    """A rate limit of each flow: a token bucket with a queue."""

    rate: Annotated[int, quantity(BIT_RATE, "1 kbit/s", "1000 Gbit/s")] = Field(
        description="The most of a flow.", examples=["1 Gbit/s"]
    )
    burst: Annotated[int, quantity(SIZE, "1500 B", "1 GB")] = Field(
        written("64 KiB"), description="How much of a flow passes at once after a pause."
    )
    queue: Annotated[int, quantity(SIZE, "0 B", "1 GB")] = Field(
        written("1 MB"), description="How much of each flow waits; '0 B' drops all that is beyond the rate."
    )


def _as_limit(value: object) -> object:
    return {"rate": value} if isinstance(value, str) else value


FLOW_LIMIT = BeforeValidator(_as_limit, json_schema_input_type=str | FlowLimit)
"""A rate, or the table."""


PlainCapacity = Capacity | RateSeries | TokenBucket
"""The schedules of a bottleneck, without delays."""

LinkCapacity = PlainCapacity | Replay
"""Trace, constant rate or unlimited as text; the others as tables."""

LINK_CAPACITY = PlainOr(Annotated[Any, CAPACITY], (RateSeries, TokenBucket, Replay), CAPACITY.show)
LATER_LINK_CAPACITY = replace(LINK_CAPACITY, plain=Annotated[Any, LATER_CAPACITY])
"""The same from a later moment on: a rate of 0 is an outage."""
