"""A generator: a name, its sources, its parameters, and its series."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cellbed.archive.generation.capacity import Grain
from cellbed.archive.generation.measures import Measure
from cellbed.archive.generation.series import Generated
from cellbed.archive.series import Content, Part
from cellbed.readable import duration_words
from cellbed.units import BIT_RATE, DURATION

Kind = Literal["duration", "durations", "rate", "number", "choice", "text"]
"""Of a parameter: nanoseconds, a list of them, bit/s, a number, one of some words, the name of a recording."""

MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000
LONGEST_NS = 31 * 24 * 3600 * SECOND_NS
"""Of what is generated."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """Something that a user may set.

    default: as a user writes it; "" for nothing. choices: of a choice. least, most: what is taken, in base units.
    """

    name: str
    kind: Kind
    default: str
    help: str
    choices: tuple[str, ...] = ()
    required: bool = False
    least: float = 0
    most: float = math.inf

    def outside(self, value: Any) -> str | None:
        """The problem of a value outside `least` to `most`; None inside."""
        each = value if self.kind == "durations" else (value,)
        if self.kind in ("text", "choice") or all(self.least <= one <= self.most for one in each):
            return None
        bounds = (self.least, self.most)
        times = self.kind in ("duration", "durations")
        low, high = (duration_words(bound / 1e9) if times else self.shown(bound) for bound in bounds)
        return f"is not from {low} to {high}"

    def shown(self, value: Any) -> str:
        """A value in base units, for people."""
        if self.kind == "duration":
            return DURATION.format(value)
        if self.kind == "durations":
            return ", ".join(DURATION.format(each) for each in value)
        if self.kind == "rate":
            return BIT_RATE.format(value)
        return f"{value:g}" if self.kind == "number" else str(value)


@dataclass(frozen=True, slots=True)
class Order:
    """What is generated.

    model: its name, so that two models of one seed differ. content: of the directions; ``None`` for the model's own.
    values: of the parameters, by name, in base units. usual: whether the duration is the model's own.
    """

    model: str
    seed: int
    duration_ns: int
    content: Content | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    usual: bool = True


@dataclass(frozen=True, slots=True)
class Figure:
    """A published figure that a series must show.

    what: in words. published: as published, in words. low, high: allowed range, in the unit of `measure`. unit: that
    it is shown in, and how many base units that is. place: section, table or figure of the citation.
    """

    part: Part
    what: str
    published: str
    low: float
    high: float
    unit: tuple[str, float]
    place: str
    measure: Measure


@dataclass(frozen=True, slots=True)
class Model:
    """A generator.

    summary: one line. about: fields of an entry's `About`. duration: unless asked otherwise. make: the parts. figures:
    published ones for comparison, if any. cited: published and own parameters. begins: hour of the day at time zero,
    where hours of the day mean something.
    """

    name: str
    summary: str
    about: Mapping[str, str]
    citation: str
    cited: str
    duration: str
    make: Callable[[Order], dict[Part, Generated]]
    parameters: tuple[Parameter, ...] = ()
    figures: tuple[Figure, ...] = ()
    seed: int = 1
    begins: Callable[[Order], float] | None = None


MBIT = ("Mbit/s", 1e6)
MS = ("ms", 1e-3)
SECONDS = ("s", 1.0)
SHARE = ("", 1.0)

SLOT_LTE = Grain(1_000_000)
"""Slots of 15, 30 and 120 kHz subcarrier spacing (3GPP TS 38.211, table 4.3.2-1; LTE's subframe is as the first)."""
SLOT_MIDBAND = Grain(500_000)
SLOT_MMWAVE = Grain(125_000)


def about(figure: float, tolerance: float) -> tuple[float, float]:
    """The tolerance of a published figure, relative, below and above."""
    return figure * (1.0 - tolerance), figure * (1.0 + tolerance)
