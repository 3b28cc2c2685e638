"""Sub-6 GHz 5G in the United States (Sentosa et al.), by the radio model."""

from __future__ import annotations

from cellbed.archive.generation.making import saturating
from cellbed.archive.generation.measures import mean
from cellbed.archive.generation.model import MBIT, Figure, Model, about
from cellbed.archive.generation.radio import RadioLink

CITATION = "Sentosa et al., CellReplay: Towards accurate record-and-replay for cellular networks, NSDI 2025"

MODELS = (
    Model(
        name="sub6-us",
        summary="Low-band 5G in the United States, at rest with a good signal: 60 Mbit/s down.",
        about={
            "technology": "5g",
            "band": "low",
            "place": "the United States",
            "operator": "after Verizon",
            "mobility": "stationary",
        },
        citation=f"{CITATION}, §3.2",
        cited="Published: the saturated downlink. Ours: the rest of the profile lowband-good "
        "(docs/reference/radio.md).",
        duration="120 s",
        make=saturating(RadioLink("lowband-good")),
        figures=(Figure("downlink", "mean rate", "60 Mbit/s", *about(60e6, 0.05), MBIT, "§3.2", mean),),
    ),
)
