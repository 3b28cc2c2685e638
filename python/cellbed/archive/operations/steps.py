"""The steps that make a recording from another, as a user writes them: ``cut 10s 70s``, ``scale 0.5``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cellbed.archive.errors import TraceError
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import DURATION, UnitError


class StepError(TraceError):
    """An invalid step. The text has the remedy."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a step. read: from text; raises StepError, UnitError or ValueError. optional: may be left out."""

    name: str
    read: Callable[[str], Any]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of step. does: what, in a line. example: a step as a user writes it."""

    does: str
    arguments: tuple[Argument, ...]
    example: str


@dataclass(frozen=True, slots=True)
class Step:
    """A step with its arguments by name; `text` as written."""

    kind: str
    arguments: Mapping[str, Any]
    text: str


def _time(text: str) -> int:
    return int(DURATION.parse(text))


def _span(text: str) -> int:
    span = _time(text)
    if span == 0:
        raise StepError("an empty span")
    return span


# A fraction is exact, so a number of a few characters, 1e999999999, would fill the memory.
_NUMBER = re.compile(r"[+-]?[0-9./]{1,40}(e[+-]?[0-9]{1,3})?", re.IGNORECASE)


def _factor(text: str) -> Fraction:
    written = text.removesuffix("%")
    if not _NUMBER.fullmatch(written):
        raise ValueError(text)
    factor = Fraction(written) / (100 if written != text else 1)
    if not Fraction(1, 10**6) <= factor <= 10**6:
        raise StepError(f"{text} is not from 0.000001 to 1000000")
    if factor.denominator > 10**9:
        raise StepError(f"{text} has too many decimals: write at most nine")
    return factor


def _share(text: str) -> float:
    share = float(_factor(text))
    if share > 1:
        raise StepError(f"{text} is more than 1")
    return share


def _whole(text: str) -> int:
    number = int(text)
    if not 0 <= number < 2**63:
        raise StepError(f"{text} is negative or too large")
    return number


def _users(text: str) -> int:
    users = int(text)
    if not 2 <= users <= 10_000:
        raise StepError(f"{text} users: write 2 to 10000")
    return users


_NAME = Argument("name", str)

STEPS: dict[str, Kind] = {
    "cut": Kind(
        "keep what is from one time to another", (Argument("from", _time), Argument("to", _time)), "cut 10s 70s"
    ),
    "seam": Kind(
        "end it, within this time of its end, where it resembles its start most, so that a loop goes on as it began",
        (Argument("within", _span),),
        "seam 20s",
    ),
    "loop": Kind("repeat it until it is as long as this", (Argument("until", _span),), "loop 10min"),
    "scale": Kind("multiply rates, or round-trip times", (Argument("factor", _factor),), "scale 0.5"),
    "stretch": Kind("multiply times: slower or faster in time", (Argument("factor", _factor),), "stretch 2"),
    "splice": Kind("let another entry follow", (_NAME,), "splice lte-suburban"),
    "outage": Kind(
        "let nothing through from a time, for a time", (Argument("at", _time), Argument("for", _span)), "outage 30s 2s"
    ),
    "resample": Kind("take the mean over bins of this width", (Argument("width", _span),), "resample 100ms"),
    "add": Kind("add the capacity of another entry", (_NAME,), "add lte-suburban"),
    "share": Kind(
        "be one of so many users of this capacity; the others are active for a share of the time, in spells",
        (
            Argument("users", _users),
            Argument("active", _share, optional=True),
            Argument("spell", _span, optional=True),
            Argument("seed", _whole, optional=True),
        ),
        "share 4 30% 5s",
    ),
}
"""Kinds of steps, by the word that begins them."""


def parse_step(text: str) -> Step:
    """Return the step in ``text``: a word and its arguments, separated by spaces. Raises StepError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise StepError(f"{text!r}: {error}: write a step such as 'cut 10s 70s'") from None
    if not words or words[0] not in STEPS:
        near = did_you_mean(words[0], STEPS).strip() if words else ""
        hint = near or f"write one of {', '.join(STEPS)}"
        raise StepError(f"{text!r} is not a step: {hint}")
    kind = STEPS[words[0]]
    given = words[1:]
    fewest = sum(not argument.optional for argument in kind.arguments)
    if not fewest <= len(given) <= len(kind.arguments):
        names = " ".join(f"[{each.name}]" if each.optional else each.name.upper() for each in kind.arguments)
        raise StepError(f"{text!r}: write {words[0]} {names}, as in '{kind.example}'")
    found = {}
    for argument, word in zip(kind.arguments, given, strict=False):
        try:
            found[argument.name] = argument.read(word)
        except (StepError, UnitError) as error:
            raise StepError(f"{text!r}: {error}, as in '{kind.example}'") from None
        except (ValueError, ZeroDivisionError):
            raise StepError(f"{text!r}: '{word[:40]}' is not a number, as in '{kind.example}'") from None
    return Step(words[0], found, " ".join(words))
