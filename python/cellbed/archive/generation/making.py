"""From processes to the parts of an entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cellbed.archive.generation.capacity import Capacity, Grain
from cellbed.archive.generation.model import Order
from cellbed.archive.generation.radio import RadioLink
from cellbed.archive.generation.round_trips import RoundTrips
from cellbed.archive.generation.series import Generated, binned, of_capacity
from cellbed.archive.randomness import Stream
from cellbed.archive.series import Content, Part

Make = Callable[[Order], dict[Part, Generated]]


class Process(Protocol):
    """A rate over time."""

    def capacity(self, duration_ns: int, stream: Stream) -> Capacity:
        """A course of it."""


def each_way(
    uplink: Process | None,
    downlink: Process | None,
    grain: Grain,
    round_trips: RoundTrips | None = None,
    content: Content = Content.OPPORTUNITIES,
) -> Make:
    """Independent directions and round trips.

    content: of the directions, unless asked otherwise.
    """

    def make(order: Order) -> dict[Part, Generated]:
        parts: dict[Part, Generated] = {}
        ways: tuple[tuple[Part, Process | None], ...] = (("uplink", uplink), ("downlink", downlink))
        for part, process in ways:
            if process is not None:
                purpose = f"{order.model} {part}"
                capacity = process.capacity(order.duration_ns, Stream(order.seed, purpose))
                parts[part] = of_capacity(capacity, order.content or content, grain, order.seed, purpose)
        if round_trips is not None:
            parts["round-trip"] = round_trips.series(order.duration_ns, order.seed, order.model)
        return parts

    return make


def saturating(link: RadioLink) -> Make:
    """A radio link: both directions saturated, each alone, and round trips while it is idle."""

    def make(order: Order) -> dict[Part, Generated]:
        parts: dict[Part, Generated] = {
            "uplink": link.saturated("uplink", order.duration_ns, order.seed),
            "downlink": link.saturated("downlink", order.duration_ns, order.seed),
        }
        if order.content is Content.RATE:
            parts = {part: binned(generated) for part, generated in parts.items()}
        return parts | {"round-trip": link.round_trips(order.duration_ns, order.seed)}

    return make
