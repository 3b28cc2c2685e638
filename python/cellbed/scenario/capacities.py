"""The capacity of one direction of a link over time."""

from bisect import bisect_right
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BeforeValidator, model_validator

from cellbed.scenario.fields import CAPACITY, LATER_CAPACITY, Capacity, refusal
from cellbed.scenario.load_dependent import WHOLE, Replay
from cellbed.scenario.stage_tables import Series, StageTable, stage_tables, union
from cellbed.scenario.table import PlainOr
from cellbed.support.units import DURATION


class RateSeries(Series):
    """A rate that holds until the next one."""

    @model_validator(mode="after")
    def _schedule(self) -> Self:
        points = self.pairs
        if points[0][0] != 0:
            raise refusal("the first rate must hold from time 0: begin with it")
        if not any(rate for _, rate in points):
            raise refusal("all rates are 0: no packet would ever pass; an outage is a change of the rate to '0 Mbit/s'")
        if self.period is not None and self.period <= points[-1][0]:
            last = DURATION.format(points[-1][0])
            raise refusal(f"the period, {DURATION.format(self.period)}, must lie behind the last time, {last}")
        return self

    def area(self, position_ns: int) -> int:
        """Return the capacity of the series before a position, in bit/s · ns."""
        position_ns = max(0, position_ns)
        if self.period is None:
            return self._within(position_ns)
        cycles, rest = divmod(position_ns, int(self.period))
        return cycles * self._within(self.period) + self._within(rest)

    @cached_property
    def _areas(self) -> list[int]:
        """The area before each point, in bit/s · ns."""
        steps = zip(self.pairs, self.pairs[1:], strict=False)
        return [0, *accumulate(rate * (end - begin) for (begin, rate), (end, _) in steps)]

    def _within(self, position_ns: int) -> int:
        """Return the area before a position in one cycle."""
        at = bisect_right(self.pairs, position_ns, key=lambda point: point[0]) - 1
        begin, rate = self.pairs[at]
        return self._areas[at] + int(rate) * (position_ns - begin)


SCHEDULES = stage_tables("schedule", series=RateSeries)
if TYPE_CHECKING:
    FlowLimit = StageTable
else:
    FlowLimit = stage_tables("flow-limit")["flow-limit"]


def _as_limit(value: object) -> object:
    return {"rate": value} if isinstance(value, str) else value


FLOW_LIMIT = BeforeValidator(_as_limit, json_schema_input_type=str | FlowLimit)
"""The form of a limit of flows: a rate, or the table."""


if TYPE_CHECKING:
    PlainCapacity = Capacity | StageTable
else:
    PlainCapacity = union(Capacity, *SCHEDULES.values())
"""The schedules of a bottleneck, without delays."""

LinkCapacity = PlainCapacity | Replay
"""Capacity of a direction: trace, constant rate or unlimited as text; other kinds as tables."""

LINK_CAPACITY = PlainOr(Annotated[Any, CAPACITY], (*SCHEDULES.values(), WHOLE["cellreplay"]), CAPACITY.show)
PLAIN_CAPACITY = PlainOr(Annotated[Any, CAPACITY], tuple(SCHEDULES.values()), CAPACITY.show)
LATER_LINK_CAPACITY = replace(LINK_CAPACITY, plain=Annotated[Any, LATER_CAPACITY])
"""`LINK_CAPACITY` in later changes: a rate of 0 is an outage."""
