"""The interface of a policy of migrations: what it sees, and what it decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import Field

from cellbed.scenario.fields import quantity
from cellbed.scenario.table import Table, written
from cellbed.support.units import DURATION

HISTORY_S = 60
"""The recent past that a policy sees."""
MOST_REPLIES = 10_000
"""Replies in it at most, the latest."""
Recent = Annotated[int, quantity(DURATION, "1 s", f"{HISTORY_S} s")]
Value = Annotated[int, quantity(DURATION, "1 us", "1 h")]


@dataclass(frozen=True, slots=True)
class Reply:
    """A good reply. time_s: when it came, since the start of the workload; latency_s: since the intended time."""

    time_s: float
    latency_s: float
    endpoint: str


@dataclass(frozen=True, slots=True)
class Sample:
    """A direction of a link at a time. delay_s: mean one-way delay of its last packets; ``None``: it had none in the
    last second. queue_bytes: in its queue. delivered_bytes: so far. is_closed: in an outage."""

    time_s: float
    delay_s: float | None
    queue_bytes: int = 0
    delivered_bytes: int = 0
    is_closed: bool = False


@dataclass(frozen=True)
class State:
    """All that a policy sees, once a second. Times since the start of the workload.

    place: node on which the service is, since `since_s`. nodes: on which it may be, its first one first, with their
    sites. endpoints: of the clients, with the sites of their cells. replies: of the last :data:`HISTORY_S` since then,
    in order of time. links: samples by direction, such as ``core-cloud-0.uplink``, one of each of these seconds.
    """

    time_s: float
    place: str
    since_s: float = 0.0
    nodes: Mapping[str, str | None] = field(default_factory=dict)
    endpoints: Mapping[str, str | None] = field(default_factory=dict)
    replies: Sequence[Reply] = ()
    links: Mapping[str, Sequence[Sample]] = field(default_factory=dict)


Decision = tuple[str, str]
"""A node, and the reason why the service should be there."""
Decide = Callable[[State], Decision | None]


@dataclass(frozen=True)
class Place:
    """The surroundings of a policy in the scenario.

    nodes: as of :class:`State`. is_heard: whether replies are known while the clients run. sites: that the endpoints
    visit, ``None``: the tower. links: their names.
    """

    nodes: Mapping[str, str | None]
    is_heard: bool
    sites: Sequence[str | None]
    links: Sequence[str]


class Policy(Table):
    """The base of policies. HEARS: needs replies. SEES_LINKS: looks at links."""

    HEARS: ClassVar[bool] = False
    SEES_LINKS: ClassVar[bool] = False
    rest: Annotated[int, quantity(DURATION, "0 s", "24 h")] = Field(
        written("10 s"), description="How long after a migration the next one begins at the earliest."
    )

    def targets(self) -> list[str]:
        """Return the nodes to which the service may move, where the policy has them instead of ``to``."""
        return []

    def misfits(self, place: Place) -> Iterator[tuple[str, str]]:
        """Yield what does not fit the scenario: (key, what to do)."""
        yield from ()

    def decider(self) -> Decide:
        """Return the pure function that decides. Errors: :class:`~cellbed.support.errors.CellbedError` of one that
        cannot be loaded."""
        raise NotImplementedError


class Threshold(Policy):
    """A policy by a value: above one threshold the service moves to ``to``, below another one back."""

    above: Value = Field(description="Above this value the service moves to the node 'to'.", examples=["100 ms"])
    back_below: Value | None = Field(
        None, description="Below it, it moves back. Default: it stays.", examples=["40 ms"]
    )

    def misfits(self, place: Place) -> Iterator[tuple[str, str]]:
        """As of the base."""
        if self.back_below is not None and self.back_below >= self.above:
            yield "back_below", "the service would move back at once: write a shorter duration than 'above'"

    def compared(self, state: State, values: Sequence[float], what: str) -> Decision | None:
        """Decide by values in seconds, if all are beyond a threshold. what: the last one in words."""
        home, to = [*state.nodes][:2]
        reason = f"{what} {values[-1] * 1e3:.4g} ms" if values else ""
        if values and state.place == home and min(values) > self.above / 1e9:
            return to, f"{reason}, above {DURATION.format(self.above)}"
        if values and state.place == to and self.back_below is not None and max(values) < self.back_below / 1e9:
            return home, f"{reason}, below {DURATION.format(self.back_below)}"
        return None

    def __str__(self) -> str:
        """Return the thresholds in words."""
        back = "" if self.back_below is None else f", back below {DURATION.format(self.back_below)}"
        return f"above {DURATION.format(self.above)}{back}"
