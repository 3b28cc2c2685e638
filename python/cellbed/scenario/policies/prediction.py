"""The policy ``prediction``: a service moves before a link becomes slow."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from cellbed.scenario.policies.policy import Decide, Decision, Place, Recent, State, Threshold
from cellbed.scenario.table import written
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import DURATION
from cellbed.support.ways import WAYS


class Prediction(Threshold):
    """By the delay of a link that the linear trend of its recent past predicts, of both directions together."""

    SEES_LINKS: ClassVar[bool] = True
    kind: Literal["prediction"] = Field(description="By the delay of a link that the trend of its past predicts.")
    link: str = Field(description="Name of the link.", examples=["core-cloud-0"])
    past: Recent = Field(written("10 s"), description="How far back the trend looks.")
    ahead: Recent = Field(written("5 s"), description="How far ahead it predicts.")

    def misfits(self, place: Place) -> Iterator[tuple[str, str]]:
        """As of the base."""
        yield from super().misfits(place)
        if self.link not in place.links:
            listed = ", ".join(place.links[:8])
            yield "link", f"no link is called '{self.link}': {did_you_mean(self.link, place.links)}there are {listed}"

    def decider(self) -> Decide:
        """As of the base."""
        return self._decide

    def _decide(self, state: State) -> Decision | None:
        """Decide by the line of least squares, if at least three samples and half of the seconds have packets."""
        begin_s = state.time_s - self.past / 1e9
        pairs = zip(*(state.links.get(f"{self.link}.{way}", ()) for way in WAYS), strict=True)
        points = [
            (up.time_s, up.delay_s + down.delay_s)
            for up, down in pairs
            if up.time_s > begin_s and up.delay_s is not None and down.delay_s is not None
        ]
        if len(points) < max(3, self.past / 2e9) or state.time_s - state.since_s < self.past / 1e9:
            return None
        slope, at_zero = statistics.linear_regression(*zip(*points, strict=True))
        predicted = max(0.0, at_zero + slope * (state.time_s + self.ahead / 1e9))
        return self.compared(state, [predicted], f"delay of {self.link} in {DURATION.format(self.ahead)} by its trend")

    def __str__(self) -> str:
        """Return the policy in words."""
        return f"delay of {self.link} in {DURATION.format(self.ahead)} by its trend {super().__str__()}"
