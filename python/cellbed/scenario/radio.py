"""A generated mobile link: a radio access network by the name of its profile."""

from typing import Annotated, Literal, Self, get_args

from pydantic import Field

from cellbed.scenario.mobile import Offset, WholeLink
from cellbed.scenario.queues import Queue
from cellbed.scenario.table import EachWay, Table, Ways, written
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


class RadioLink(WholeLink):
    """A generated last mile; each endpoint has one, with its own surroundings."""

    kind: Literal["radio"]
    profile: Profile = Field(description="Operator and condition, such as 'lowband-driving'.", examples=[PROFILES[-1]])
    queue: Annotated[Ways[Queue | None], EachWay(Queue)] | None = Field(
        None,
        description="Queue before the radio link, one per direction. Default: the profile's.",
        examples=[{"kind": "droptail", "limit": "1 MB"}],
    )
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
    def loop(self) -> bool:
        """Always true: a radio link has no end."""
        return True

    def complete(self) -> Self:
        """Return the link itself: the profile has a base delay."""
        return self
