"""A day of LTE: the quietest and the busiest hour as crowd-sourced measurements have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cellbed.archive.generation.daily import Daily
from cellbed.archive.generation.making import each_way
from cellbed.archive.generation.measures import of_hours
from cellbed.archive.generation.model import MBIT, SLOT_LTE, Figure, Model, about
from cellbed.archive.series import Content

CITATION = (
    "Opensignal, The 5G Opportunity: How 5G will solve the congestion problems of today's 4G networks, February 2019"
)
QUIETEST_HOUR = 3.5
"""The middle of the hour that begins at 03:00, when the surveyed countries are fastest."""


def _hour(which: str, mbit: float, choose: Callable[[Any], float]) -> Figure:
    low, high = about(mbit * 1e6, 0.05)
    return Figure("downlink", f"{which} hour", f"{mbit:g} Mbit/s", low, high, MBIT, "text", of_hours(choose))


def _day(name: str, where: str, busiest: float, quietest: float, hour: float, source: str, when: str) -> Model:
    process = Daily(quietest * 1e6, busiest * 1e6, QUIETEST_HOUR, hour + 0.5)
    return Model(
        name=name,
        summary=f"A day of LTE in {where}: {quietest:g} Mbit/s in the quietest hour, {busiest:g} in the busiest.",
        about={"technology": "4g", "place": where},
        citation=f"{CITATION}; {source}",
        cited=f"Published: the mean rates of the two hours. {when} Ours: the way from one to the other and how the "
        "rate wanders within an hour. They are means over all users of a country or city; no place is like that.",
        duration="24 h",
        begins=lambda _: process.begins,
        make=each_way(None, process, SLOT_LTE, content=Content.RATE),
        figures=(_hour("quietest", quietest, max), _hour("busiest", busiest, min)),
    )  # fmt: skip


MODELS = (
    _day(
        "daily-us", "the United States", 15.3, 28.8, 21,
        "Big swings in urban 4G speeds highlight why the US needs 5G, 20 February 2019",
        "That the busiest is the evening is published for most countries, but the hour for this one is ours: 21:00.",
    ),
    _day(
        "daily-london", "London", 17.5, 38.3, 17,
        "as reported by Capacity Media, England swings like a pendulum do in 4G speeds, 2019",
        "So are the hours: 03:00, and 17:00 for the United Kingdom.",
    ),
)  # fmt: skip
