"""The general generators, whose figures the user sets."""

from __future__ import annotations

from typing import Final

from cellbed.archive.errors import TraceError
from cellbed.archive.generation.markov import fit
from cellbed.archive.generation.model import Model, Order, each_way, saturating
from cellbed.archive.generation.radio import RadioLink
from cellbed.archive.generation.recorded import Like
from cellbed.archive.generation.series import Generated
from cellbed.archive.series import Part
from cellbed.support.units import DURATION

PROFILES: Final = tuple(
    f"{band}-{condition}"
    for band in ("midband", "lowband")
    for condition in ("good", "weak", "crowded", "walking", "driving")
)


def markov(like: Like, outage_ns: int) -> Model:
    """Return a model that is fitted to a recording; outages are silences of at least `outage_ns`."""

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


def radio(profile: str) -> Model:
    """Return the radio model of a profile."""
    return Model(
        name="radio",
        about={"technology": "5g"},
        citation="docs/reference/radio.md",
        cited="docs/reference/radio.md states which parts of the radio model are published.",
        make=saturating(RadioLink(profile)),
        settings={"profile": profile},
    )
