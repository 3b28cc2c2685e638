"""A generator: a name, its sources, and its series."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from cellbed.archive.generation.capacity import Capacity, Grain
from cellbed.archive.generation.radio import RadioLink
from cellbed.archive.generation.recorded import Like
from cellbed.archive.generation.series import Generated, bin_rates, of_capacity
from cellbed.archive.randomness import Stream
from cellbed.archive.series import Content, Part

SECOND_NS: Final = 1_000_000_000
LONGEST_NS: Final = 31 * 24 * 3600 * SECOND_NS
"""The longest series that can be generated."""

SLOT_LTE: Final = Grain(1_000_000)
"""Slots of 15 and 30 kHz subcarrier spacing (3GPP TS 38.211, table 4.3.2-1; LTE's subframe is as the first)."""
SLOT_MIDBAND: Final = Grain(500_000)


@dataclass(frozen=True, slots=True)
class Order:
    """The parameters of a series to generate.

    model: its name, so that two models of one seed differ. content: of the directions; ``None`` for the model's own.
    """

    model: str
    seed: int
    duration_ns: int
    content: Content | None = None


Make = Callable[[Order], dict[Part, Generated]]


@dataclass(frozen=True, slots=True)
class Model:
    """A generator with its parameters.

    about: fields of an entry's `About`. cited: published and own parameters. settings: parameters as a user writes
    them. like: the recording that the model is fitted to.
    """

    name: str
    citation: str
    cited: str
    make: Make
    summary: str = ""
    about: Mapping[str, str] = field(default_factory=dict)
    duration_ns: int = 120 * SECOND_NS
    settings: Mapping[str, str] = field(default_factory=dict)
    like: Like | None = None


class Process(Protocol):
    """A rate over time."""

    def capacity(self, duration_ns: int, stream: Stream) -> Capacity:
        """Return a sample of it."""


def each_way(
    uplink: Process | None, downlink: Process | None, grain: Grain, content: Content = Content.OPPORTUNITIES
) -> Make:
    """Make independent directions. content: of the directions, unless asked otherwise."""

    def make(order: Order) -> dict[Part, Generated]:
        parts: dict[Part, Generated] = {}
        ways: tuple[tuple[Part, Process | None], ...] = (("uplink", uplink), ("downlink", downlink))
        for part, process in ways:
            if process is not None:
                purpose = f"{order.model} {part}"
                capacity = process.capacity(order.duration_ns, Stream(order.seed, purpose))
                parts[part] = of_capacity(capacity, order.content or content, grain, order.seed, purpose)
        return parts

    return make


def saturate(link: RadioLink) -> Make:
    """Make the series of a radio link: both directions saturated, each alone, and round trips while it is idle."""

    def make(order: Order) -> dict[Part, Generated]:
        parts: dict[Part, Generated] = {
            "uplink": link.saturated("uplink", order.duration_ns, order.seed),
            "downlink": link.saturated("downlink", order.duration_ns, order.seed),
        }
        if order.content is Content.RATE:
            parts = {part: bin_rates(generated) for part, generated in parts.items()}
        return parts | {"round-trip": link.round_trips(order.duration_ns, order.seed)}

    return make
