"""The policy ``latency``: a service moves when its users wait for long."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from cellbed.scenario.policies.policy import Decide, Decision, Place, Recent, State, Threshold
from cellbed.scenario.table import written
from cellbed.support.units import DURATION


class Latency(Threshold):
    """By the latency of the application's requests, in each second of a time."""

    HEARS: ClassVar[bool] = True
    kind: Literal["latency"] = Field(description="By the latency of the application's requests.")
    percentile: int = Field(50, ge=1, le=99, description="Percentile of the latency in each second; 50: the median.")
    length: Recent = Field(written("3 s"), alias="for", description="How long it is beyond a threshold before a move.")

    def misfits(self, place: Place) -> Iterator[tuple[str, str]]:
        """As of the base."""
        yield from super().misfits(place)
        if not place.is_heard:
            yield "kind", "needs clients on namespaces or containers, whose replies are known while they run"

    def decider(self) -> Decide:
        """As of the base."""
        return self._decide

    def _decide(self, state: State) -> Decision | None:
        """Decide by each second of the last ones; at least half of them must have replies."""
        seconds = math.ceil(self.length / 1e9)
        found: list[list[float]] = [[] for _ in range(seconds)]
        for reply in state.replies:
            if 0 <= (age := math.floor(state.time_s - reply.time_s)) < seconds:
                found[-1 - age].append(reply.latency_s)
        values = [_percentile(each, self.percentile) for each in found if each]
        if state.time_s - state.since_s < seconds or 2 * len(values) < seconds:
            return None
        return self.compared(state, values, f"{self._name} over {DURATION.format(self.length)}, at last")

    @property
    def _name(self) -> str:
        return "median latency" if self.percentile == 50 else f"latency (percentile {self.percentile})"

    def __str__(self) -> str:
        """Return the policy in words."""
        return f"{self._name} {super().__str__()} for {DURATION.format(self.length)}"


def _percentile(values: list[float], percentile: int) -> float:
    """Return a percentile of values, interpolated between those next to it."""
    return statistics.quantiles(values, n=100, method="inclusive")[percentile - 1] if len(values) > 1 else values[0]
