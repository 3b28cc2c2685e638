"""Video calls in a scenario."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from cellbed.scenario.applications import Groups, Key, Load, Timeout, group_misfits
from cellbed.scenario.fields import quantity
from cellbed.scenario.loads import Rate
from cellbed.scenario.nodes import Name
from cellbed.scenario.table import written
from cellbed.support.units import BIT_RATE
from cellbed.workloads.call import RELAY
from cellbed_node.browsing import PROGRAMS

_MOST_FRAMES = 60
"""Maximum frames per second: pages are drawn at this rate."""


class Call(Load):
    """Video calls between two Chromiums through a TURN relay, each frame followed from end to end."""

    model_config = ConfigDict(json_schema_extra={"required": ["kind", "server"]})

    starter: ClassVar[str] = 'server = "edge"                  # the relay\nwidth = 320\nheight = 180\n'
    usual_load: ClassVar[str] = "15 /s"
    least_endpoints: ClassVar[int] = 2

    kind: Literal["call"]
    peer: Name | None = Field(
        None,
        description="Node group of the other ends, as many as clients. Default: the clients call each other.",
        examples=["office"],
    )
    width: int = Field(1920, ge=64, le=7680, description="Width of the frames, pixels.")
    height: int = Field(1080, ge=48, le=4320, description="Height of the frames, pixels.")
    rate: Rate | None = Field(written("30 /s"), description="Frames per second of each end, at most 60.")
    bit_rate: Annotated[int, quantity(BIT_RATE, "50 kbit/s", "1 Gbit/s")] = Field(
        written("6 Mbit/s"), description="The most that the video of each end may have."
    )
    timeout: Timeout = Field(written("5 s"), description="A frame that is shown later is late.")

    @property
    def client_groups(self) -> tuple[str, ...]:
        return (*super().client_groups, *((self.peer,) if self.peer is not None else ()))

    @property
    def tools(self) -> tuple[tuple[str, tuple[str, ...], str], ...]:
        return ("kind", PROGRAMS, PROGRAMS[0]), ("kind", (RELAY,), "coturn")

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        yield from super().misfits(groups, duration)
        if self.arrivals != "periodic":
            yield "arrivals", "a camera has a frame rate: remove this key, and write rate = '30 /s'"
        if self.rate is not None and self.rate > _MOST_FRAMES:
            yield "rate", f"browsers draw up to {_MOST_FRAMES} frames a second: write at most '{_MOST_FRAMES} /s'"
        if self.policy is not None:
            yield "policy", "a browser adapts the call itself: remove this key"
        for key in ("width", "height"):
            if getattr(self, key) % 2:
                yield key, "encoders halve the resolution of colours: write an even number"
        for key in ("edge_policy", "balance"):
            if key in self.model_fields_set and getattr(self, key) != type(self).model_fields[key].default:
                yield key, "a call keeps its relay: remove this key"
        if self.server is None:
            yield "server", 'missing: write the node group of the relay, server = "edge"'
        elif self.server.on in groups and groups[self.server.on].count != 1:
            yield "server", f"both ends use one relay, and '{self.server.on}' has several nodes: write a group of one"
        if self.peer is not None:
            yield from group_misfits("peer", self.peer, groups)
        yield from self.complete(groups)._ends_misfit(groups)

    def _ends_misfit(self, groups: Groups) -> Iterator[tuple[Key, str]]:
        """Yield problems of the nodes of both ends."""
        client = self.client.on if self.client is not None else ""
        if client not in groups or (self.peer is not None and self.peer not in groups):
            return
        count = groups[client].count
        key = "client" if self.peer is None else "peer"
        if self.peer is None and count % 2:
            text = f"calls have two ends, and '{client}' has {count}"
            yield key, f"{text}: write an even count, or another group as 'peer'"
        elif self.peer is not None and (self.peer == client or groups[self.peer].count != count):
            yield key, f"write another group, with as many nodes as '{client}', {count}"
        if self.server is not None and self.server.on in self.client_groups:
            yield "server", "an end of the call is there: write another group for the relay"
        for name in (*self.client_groups, *([self.server.on] if self.server is not None else [])):
            if name in groups and not groups[name].backend.shares_files:
                yield "kind", f"browsers and relay run on namespace nodes alone: remove the backend of '{name}'"

    def __str__(self) -> str:
        """Return the application in a line."""
        return f"{super().__str__()}, {self.width} × {self.height} at up to {BIT_RATE.format(self.bit_rate)}"
