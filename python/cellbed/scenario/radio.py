"""A generated mobile link: a radio access network by the name of its profile."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self, get_args

from pydantic import Field

from cellbed.scenario.capacities import LinkCapacity
from cellbed.scenario.impairments import (
    CorruptionEachWay,
    DuplicationEachWay,
    LossEachWay,
    OutageEachWay,
    outage_misfits,
)
from cellbed.scenario.mobile import Change, Offset
from cellbed.scenario.queues import Queue
from cellbed.scenario.table import EachWay, Path, Table, Ways, written
from cellbed.support.ways import Way

Profile = Literal[
    "midband-good",
    "midband-weak",
    "midband-crowded",
    "midband-walking",
    "midband-driving",
    "lowband-good",
    "lowband-weak",
    "lowband-crowded",
    "lowband-walking",
    "lowband-driving",
]
"""Two operators in five conditions (docs/reference/radio.md)."""

PROFILES: tuple[Profile, ...] = get_args(Profile)


class Radio(Table):
    """One direction of a radio link.

    For a link in virtual time; scenarios and shells have both directions at once.
    """

    kind: Literal["radio"]
    profile: Profile = Field(description="Operator and condition, such as 'lowband-driving'.")
    way: Way = Field(description="Direction of the radio link.")


class RadioLink(Table):
    """A generated last mile; each endpoint has one, with its own surroundings."""

    kind: Literal["radio"]
    profile: Profile = Field(description="Operator and condition, such as 'lowband-driving'.", examples=[PROFILES[-1]])
    queue: Annotated[Ways[Queue | None], EachWay(Queue)] | None = Field(
        None,
        description="Queue before the radio link, one per direction. Default: the profile's.",
        examples=[{"kind": "droptail", "limit": "1 MB"}],
    )
    loss: LossEachWay = Field(written(0.0), description="Loss of packets before the radio link.")
    duplication: DuplicationEachWay = written(0.0)
    corruption: CorruptionEachWay = written(0.0)
    outage: OutageEachWay = written([])
    start: Offset = Field(written("0 s"), description="Start offset into the radio conditions.")

    @property
    def up(self) -> Radio:
        """The uplink."""
        return Radio(kind="radio", profile=self.profile, way="uplink")

    @property
    def down(self) -> Radio:
        """The downlink."""
        return Radio(kind="radio", profile=self.profile, way="downlink")

    @property
    def base_delay(self) -> Ways[int]:
        """Beside the profile's own."""
        return Ways(0, 0)

    @property
    def loop(self) -> bool:
        """Surroundings have no end."""
        return True

    @property
    def changes(self) -> tuple[Change, ...]:
        """None are known beforehand."""
        return ()

    def completed(self) -> Self:
        """Return the link itself: the profile has a base delay."""
        return self

    def misfits(self, duration: int) -> list[tuple[Path, str]]:
        """Keys that do not fit the workload's `duration` (ns): (path below the link, what to do)."""
        return list(outage_misfits(self.outage, duration))

    def capacities(self) -> Iterator[tuple[Path, LinkCapacity]]:
        """Capacities from files: none."""
        return iter(())
