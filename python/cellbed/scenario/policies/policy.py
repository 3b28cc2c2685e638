"""The interface of a policy of migrations: its input and its decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import Field

from cellbed.scenario.fields import quantity
from cellbed.scenario.table import Table, written
from cellbed.support.units import DURATION

HISTORY_S = 60
"""Length of the history that a policy receives, seconds."""
MOST_REPLIES = 10_000
"""Maximum number of replies in the history; the latest are kept."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A good reply. time_s: arrival, since the start of the workload; latency_s: since the intended time."""

    time_s: float
    latency_s: float
    endpoint: str


@dataclass(frozen=True, slots=True)
class Sample:
    """A direction of a link at a time. delay_s: mean one-way delay of the latest packets; ``None``: no packets in the
    last second. queue_bytes: bytes in the queue. delivered_bytes: so far. is_closed: in an outage."""

    time_s: float
    delay_s: float | None
    queue_bytes: int = 0
    delivered_bytes: int = 0
    is_closed: bool = False


@dataclass(frozen=True)
class State:
    """The input of a policy, once a second. Times count from the start of the workload.

    Attributes:
        time_s: Present time.
        place: Present node of the service.
        since_s: Begin of its stay on this node.
        nodes: Possible nodes of the service with their sites, the initial node first.
        endpoints: Endpoints of the clients, with the sites of their cells.
        replies: Replies of the last :data:`HISTORY_S` during this stay, in order of time.
        links: Samples by direction, such as ``core-cloud-0.uplink``, one per second of this time.
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

    nodes: see :class:`State`. is_heard: whether replies are known while the clients run. sites: visited by the
    endpoints, ``None``: the tower.
    """

    nodes: Mapping[str, str | None]
    is_heard: bool
    sites: Sequence[str | None]


class Policy(Table):
    """The base of policies. HEARS: needs replies. SEES_LINKS: looks at links."""

    HEARS: ClassVar[bool] = False
    SEES_LINKS: ClassVar[bool] = False
    rest: Annotated[int, quantity(DURATION, "0 s", "24 h")] = Field(
        written("10 s"), description="Minimum time from a migration to the next."
    )

    def targets(self) -> list[str]:
        """Return the possible nodes of the service, if the policy has them instead of ``to``."""
        return []

    def misfits(self, place: Place) -> Iterator[tuple[str, str]]:
        """Yield problems of the policy in a scenario: (key, remedy).

        Args:
            place: Surroundings of the policy in the scenario.
        """
        yield from ()

    def decider(self) -> Decide:
        """Return the pure function that decides.

        Raises:
            CellbedError: The function cannot be loaded.
        """
        raise NotImplementedError
