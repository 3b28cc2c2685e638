"""The two ways of a link: up from an endpoint, or from the client of a recording, and down to it."""

from typing import Final, Literal

Way = Literal["uplink", "downlink"]
WAYS: Final[tuple[Way, ...]] = ("uplink", "downlink")
WayOrBoth = Literal[Way, "both"]
