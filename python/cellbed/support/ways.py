"""The two directions of a link: up from an endpoint or a recording's client, and down to it."""

from typing import Final, Literal

Way = Literal["uplink", "downlink"]
WAYS: Final[tuple[Way, ...]] = ("uplink", "downlink")
WayOrBoth = Literal[Way, "both"]
