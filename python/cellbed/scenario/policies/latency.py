"""The policy ``latency``: a service moves when its users wait long."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from cellbed.scenario.fields import quantity
from cellbed.scenario.policies.policy import HISTORY_S, Decide, Decision, Place, Policy, State
from cellbed.scenario.table import written
from cellbed.support.units import DURATION

Value = Annotated[int, quantity(DURATION, "1 us", "1 h")]


class Latency(Policy):
    """By the latency of the application's requests, in each second of a time: above one threshold the service moves to
    ``to``, below another one back."""

    HEARS: ClassVar[bool] = True
    kind: Literal["latency"] = Field(description="Decide by the latency of the application's requests.")
    above: Value = Field(description="Above this value the service moves to the node 'to'.", examples=["100 ms"])
    back_below: Value | None = Field(
        None, description="Below it, it moves back. Default: it stays.", examples=["40 ms"]
    )
    percentile: int = Field(50, ge=1, le=99, description="Percentile of the latency in each second; 50: the median.")
    length: Annotated[int, quantity(DURATION, "1 s", f"{HISTORY_S} s")] = Field(
        written("3 s"), alias="for", description="Time beyond a threshold before a move."
    )

    def misfits(self, place: Place) -> Iterator[tuple[str, str]]:
        if self.back_below is not None and self.back_below >= self.above:
            yield "back_below", "the service would move back at once: write a shorter duration than 'above'"
        if not place.is_heard:
            yield "kind", "needs clients on namespaces or containers, whose replies are known while they run"

    def decider(self) -> Decide:
        return self._decide

    def _decide(self, state: State) -> Decision | None:
        """Decide by each of the latest seconds; at least half of the seconds must have replies."""
        seconds = math.ceil(self.length / 1e9)
        found: list[list[float]] = [[] for _ in range(seconds)]
        for reply in state.replies:
            if 0 <= (age := math.floor(state.time_s - reply.time_s)) < seconds:
                found[-1 - age].append(reply.latency_s)
        values = [_percentile(each, self.percentile) for each in found if each]
        if not values or state.time_s - state.since_s < seconds or 2 * len(values) < seconds:
            return None
        home, to = [*state.nodes][:2]
        reason = f"{self._name} over {DURATION.format(self.length)}, at last {values[-1] * 1e3:.4g} ms"
        if state.place == home and min(values) > self.above / 1e9:
            return to, f"{reason}, above {DURATION.format(self.above)}"
        if state.place == to and self.back_below is not None and max(values) < self.back_below / 1e9:
            return home, f"{reason}, below {DURATION.format(self.back_below)}"
        return None

    @property
    def _name(self) -> str:
        return "median latency" if self.percentile == 50 else f"latency (percentile {self.percentile})"

    def __str__(self) -> str:
        """Return the policy in words."""
        back = "" if self.back_below is None else f", back below {DURATION.format(self.back_below)}"
        return f"{self._name} above {DURATION.format(self.above)}{back} for {DURATION.format(self.length)}"


def _percentile(values: list[float], percentile: int) -> float:
    """Return a percentile of values, interpolated between neighbours."""
    return statistics.quantiles(values, n=100, method="inclusive")[percentile - 1] if len(values) > 1 else values[0]
