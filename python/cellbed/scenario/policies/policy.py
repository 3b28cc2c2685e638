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

    place: present node of the service, since `since_s`. nodes: its possible nodes, the first one first, with their
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
    visit, ``None``: the tower.
    """

    nodes: Mapping[str, str | None]
    is_heard: bool
    sites: Sequence[str | None]


class Policy(Table):
    """The base of policies. HEARS: needs replies. SEES_LINKS: looks at links."""

    HEARS: ClassVar[bool] = False
    SEES_LINKS: ClassVar[bool] = False
    rest: Annotated[int, quantity(DURATION, "0 s", "24 h")] = Field(
        written("10 s"), description="How long after a migration the next one begins at the earliest."
    )

    def targets(self) -> list[str]:
        """Return the possible nodes of the service, where the policy has them instead of ``to``."""
        return []

    def misfits(self, place: Place) -> Iterator[tuple[str, str]]:
        """Yield what does not fit the scenario: (key, what to do)."""
        yield from ()

    def decider(self) -> Decide:
        """Return the pure function that decides. Errors: :class:`~cellbed.support.errors.CellbedError` of one that
        cannot be loaded."""
        raise NotImplementedError
