"""Generators (a name, sources, series), and the generators with parameters of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Protocol

from cellbed.archive.errors import TraceError
from cellbed.archive.generation.markov import fit
from cellbed.archive.generation.radio import Handover, Obstacle, RadioLink, Side
from cellbed.archive.generation.recorded import Like
from cellbed.archive.generation.series import Capacity, Generated, Grain, bin_rates, draw_series
from cellbed.archive.randomness import Stream
from cellbed.archive.series import Content, Part
from cellbed.support.units import DURATION

SECOND_NS: Final = 1_000_000_000
LONGEST_NS: Final = 31 * 24 * 3600 * SECOND_NS
"""Maximum length of a generated series, ns."""

SLOT_LTE: Final = Grain(1_000_000)
"""Slots of 15 and 30 kHz subcarrier spacing (3GPP TS 38.211, table 4.3.2-1; LTE's subframe equals the first)."""
SLOT_MIDBAND: Final = Grain(500_000)


@dataclass(frozen=True, slots=True)
class Order:
    """The parameters of a series to generate.

    model: name of the model, so that models with the same seed differ. content: kind of content of the directions;
    ``None`` for the model's own.
    """

    model: str
    seed: int
    duration_ns: int
    content: Content | None = None


Make = Callable[[Order], dict[Part, Generated]]


@dataclass(frozen=True, slots=True)
class Model:
    """A generator with its parameters.

    about: fields of an entry's `About`. cited: published and own parameters. settings: parameters in the user's
    notation. like: the recording to fit.
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
        """Return a sample of the process."""


def each_way(uplink: Process | None, downlink: Process | None, grain: Grain) -> Make:
    """Return a generator of two independent directions: of opportunities, unless an order asks for rates.

    Args:
        uplink: The process of the uplink, ``None`` for no uplink.
        downlink: The process of the downlink, ``None`` for no downlink.
        grain: The pattern of grants.

    Returns:
        The generator, for :class:`Model`.
    """

    def make(order: Order) -> dict[Part, Generated]:
        parts: dict[Part, Generated] = {}
        ways: tuple[tuple[Part, Process | None], ...] = (("uplink", uplink), ("downlink", downlink))
        for part, process in ways:
            if process is not None:
                purpose = f"{order.model} {part}"
                capacity = process.capacity(order.duration_ns, Stream(order.seed, purpose))
                content = order.content or Content.OPPORTUNITIES
                parts[part] = draw_series(capacity, content, grain, order.seed, purpose)
        return parts

    return make


def saturate(link: RadioLink) -> Make:
    """Return a generator of a radio link: each direction saturated alone, and round trips over the idle link."""

    def make(order: Order) -> dict[Part, Generated]:
        parts: dict[Part, Generated] = {
            "uplink": link.saturated("uplink", order.duration_ns, order.seed),
            "downlink": link.saturated("downlink", order.duration_ns, order.seed),
        }
        if order.content is Content.RATE:
            parts = {part: bin_rates(generated) for part, generated in parts.items()}
        return parts | {"round-trip": link.round_trips(order.duration_ns, order.seed)}

    return make


MOBILITY: Final = {"driving": 33_300_000_000, "subway": 14_000_000_000}
"""Mean time between handovers, ns (Lim et al., §VI-B)."""
OBSTACLES: Final = {"body": (26.0, 1.0), "vehicle": (29.0, 0.47), "complete": (60.0, 0.02)}
"""Signal loss of an obstacle, dB, and remaining fraction of the share.

26 and 29 dB: Lim et al., §VI-A. Our choices: a complete obstacle, and the share behind a vehicle. The 3 dB more than
a human body explain less than half of the published drop from 1 Gbit/s to 350 Mbit/s.
"""

_DOWNLINK: Final = {"blocks": 264, "layers": 2, "overhead": 0.18, "slot_ns": 125_000, "symbols": [14] * 10 + [0]}
_UPLINK: Final = {"blocks": 66, "layers": 2, "overhead": 0.10, "slot_ns": 125_000, "symbols": [0] * 10 + [14]}
"""400 MHz downlink and 100 MHz uplink, ten downlink slots per uplink slot (Lim et al., §IV-A), at 120 kHz spacing
(3GPP TS 38.101-2, table 5.3.2-1); overhead: TS 38.306, §4.1.2, for frequency range 2.
"""


def markov(like: Like, outage_ns: int) -> Model:
    """Return a model fitted to a recording; outages are silences of at least `outage_ns`."""

    def make(order: Order) -> dict[Part, Generated]:
        parts: dict[Part, Generated] = {}
        for part, recorded in like.parts.items():
            try:
                fitted = fit(recorded, outage_ns)
            except ValueError as error:
                raise TraceError(f"'{like.name}' cannot be fitted: {part} {error}") from None
            up, down = (fitted, None) if part == "uplink" else (None, fitted)
            parts |= each_way(up, down, fitted.grain)(order)
        return parts

    return Model(
        name="markov",
        citation="Markov-modulated rates after Fischer & Meier-Hellstern, The Markov-modulated Poisson process (MMPP) "
        "cookbook, Performance Evaluation 18, 1993; the two chains and the fit are cellbed's own",
        cited="Fitted; `cellbed traces compare` shows how close it is.",
        make=make,
        duration_ns=max(part.duration_ns for part in like.parts.values()),
        settings={"like": like.name, "outage": DURATION.format(outage_ns)},
        like=like,
    )


def radio(profile: str, mobility: str, obstacle: str, obstacle_at: Sequence[int], obstacle_ns: int) -> Model:
    """Return the radio model of a profile, with optional handovers of a mobility and an optional obstacle."""
    handover = None if mobility == "profile" else Handover(MOBILITY[mobility])
    behind = None
    if obstacle != "none":
        if any(later - at < obstacle_ns for at, later in pairwise(obstacle_at)):
            raise TraceError("--obstacle-at: obstacles overlap: see --obstacle-for")
        behind = Obstacle(*OBSTACLES[obstacle], tuple(obstacle_at), obstacle_ns)
    if profile == "mmwave":
        # 50 m from the tower in line of sight (Lim et al., §VI-A). Signal and share are our choice: 2 Gbit/s at the
        # maximum efficiency, and half of that rate with 26 dB less.
        up, down = Side(30.0, 0.7, 0.02, _UPLINK), Side(41.0, 0.57, 0.01, _DOWNLINK)
        link = RadioLink("midband-good", up, down, handover, behind, fading_db=1.0, delay_ns=3_300_000)
    elif behind is not None:
        raise TraceError(
            "--obstacle: the drop behind an obstacle is published for mmWave, and none was seen at lower frequencies: "
            "write --profile mmwave, or leave it out"
        )
    else:
        link = RadioLink(profile, handover=handover)

    def make(order: Order) -> dict[Part, Generated]:
        if behind is not None and min(behind.begins_ns) >= order.duration_ns:
            lasts = DURATION.format(order.duration_ns)
            raise TraceError(f"--obstacle-at: no obstacle within the duration of {lasts}: see --duration")
        return saturate(link)(order)

    settings: dict[str, Any] = {"profile": profile, "mobility": mobility, "obstacle": obstacle}
    if behind is not None:
        settings["obstacle-at"] = ", ".join(map(DURATION.format, obstacle_at))
        settings["obstacle-for"] = DURATION.format(obstacle_ns)
    return Model(
        name="radio",
        about={"technology": "5g"},
        citation="docs/reference/radio.md; handovers and obstacles: Lim et al., An Empirical Study of 5G, IEEE "
        "Transactions on Mobile Computing, 2024, §VI",
        cited="docs/reference/radio.md states which parts of the radio model are published. Published: time between "
        "handovers; loss behind obstacles. Ours: length of gaps, how an obstacle comes and goes.",
        make=make,
        settings=settings,
    )
