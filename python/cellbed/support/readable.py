"""Figures for people: three significant digits, in a suitable unit.

:mod:`cellbed.support.units` has the exact forms that can be parsed again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit, and its size in base units, such as bit/s or s."""

    name: str
    factor: float


_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")
_RATES: Final = ((1e9, Unit("Gbit/s", 1e-9)), (1e6, Unit("Mbit/s", 1e-6)), (1e3, Unit("kbit/s", 1e-3)))
_DURATIONS: Final = (
    (3 * 3600, Unit("h", 1 / 3600)),
    (600, Unit("min", 1 / 60)),
    (1, Unit("s", 1)),
    (1e-3, Unit("ms", 1e3)),
    (1e-6, Unit("µs", 1e6)),
)


def rate_unit(largest_bit_s: float) -> Unit:
    """Return the best unit for rates up to `largest_bit_s`."""
    return next((unit for least, unit in _RATES if largest_bit_s >= least), Unit("bit/s", 1))


def duration_unit(longest_s: float) -> Unit:
    """Return the best unit for durations.

    Args:
        longest_s: The longest duration, seconds.

    Returns:
        The unit.
    """
    return next((unit for least, unit in _DURATIONS if longest_s >= least), Unit("ns", 1e9))


def rate_words(bit_s: float) -> str:
    """Return a rate as text: ``"16.7 Mbit/s"``; ``"0 bit/s"`` for 0."""
    unit = rate_unit(bit_s)
    return f"{significant(bit_s * unit.factor)} {unit.name}"


def duration_words(seconds: float) -> str:
    """Return a duration as text: ``"56.3 µs"``, ``"140 s"``, ``"16.9 min"``, ``"24 h"``; ``"0 s"`` for 0."""
    unit = duration_unit(seconds) if seconds else Unit("s", 1)
    return f"{significant(seconds * unit.factor)} {unit.name}"


def alike(lines: Iterable[str], most: int = 3) -> list[str]:
    """Return lines in order; if more than `most` differ only in numbers, the first of them and the number of others."""
    kinds: dict[str, list[str]] = {}
    for line in lines:
        kinds.setdefault(re.sub(r"\d+(\.\d+)?", "0", line), []).append(line)
    folded = (
        [f"{same[0]} (and {len(same) - 1} more like this)"] if len(same) > most else same for same in kinds.values()
    )
    return [line for same in folded for line in same]


def date_words(text: str) -> str:
    """Return ``"2025-03-14 08:59 UTC"`` for ``"2025-03-14T08:59:59Z"``; a plain date, or other text, unchanged."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return text
    day, time, zone = found.groups()
    return " ".join([day, time, *(["UTC"] if zone == "Z" else [zone] if zone else [])])


def significant(value: float) -> str:
    """Return three significant digits without an exponent: ``"0.0563"``, ``"16.7"``, ``"1540"``."""
    text = f"{value:.3g}"
    if "e" not in text:
        return text
    return f"{float(text):.0f}" if abs(value) >= 1 else f"{float(text):.12f}".rstrip("0")
