"""A generated mobile link: a radio access network by the name of its profile."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field

from cellbed.scenario.load_dependent import WHOLE, Constants, Radio
from cellbed.scenario.mobile import Offset, WholeLink
from cellbed.scenario.queues import Queue
from cellbed.scenario.table import EachWay, Ways, written
from cellbed.support.stages import radio_profiles
from cellbed.support.ways import Way

_PROFILE: Any = WHOLE["radio"].model_fields["profile"]
if TYPE_CHECKING:
    Profile = str
else:
    Profile = _PROFILE.annotation
PROFILES = radio_profiles()


def radio_direction(profile: Profile, way: Way, constants: Mapping[str, Any] | None = None) -> Radio:
    """Return one direction of a radio link. constants: in place of the profile's."""
    table = {"kind": "radio", "profile": profile, "way": way, "constants": constants or {}}
    return WHOLE["radio"].model_validate(table)  # type: ignore[return-value]


class RadioLink(WholeLink):
    """A generated last mile; each endpoint has one, with its own surroundings."""

    kind: Literal["radio"]
    profile: Profile = _PROFILE
    queue: Annotated[Ways[Queue | None], EachWay(Queue)] | None = Field(
        None,
        description="Queue before the radio link, one per direction. Default: the profile's.",
        examples=[{"kind": "droptail", "limit": "1 MB"}],
    )
    constants: Annotated[Ways[dict[str, Any] | None], EachWay(Constants)] | None = Field(
        None,
        description="Constants of the radio link in place of the profile's.",
        examples=[{"sleep": {"after": "100 ms", "cycle": "160 ms", "awake": "10 ms"}}],
    )
    start: Offset = Field(written("0 s"), description="Start offset into the radio conditions.")

    @property
    def up(self) -> Radio:
        """The uplink."""
        return radio_direction(self.profile, "uplink", self.constants.uplink if self.constants else None)

    @property
    def down(self) -> Radio:
        """The downlink."""
        return radio_direction(self.profile, "downlink", self.constants.downlink if self.constants else None)

    @property
    def loop(self) -> bool:
        """Always true: a radio link has no end."""
        return True

    def complete(self) -> Self:
        """Return the link itself: the profile has a base delay."""
        return self
