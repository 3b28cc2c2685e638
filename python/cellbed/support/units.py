"""Quantities as users write them, ``"25 ms"`` or ``"512 MiB"``, and the corresponding whole numbers.

Durations become nanoseconds, sizes bytes, rates bit/s, frequencies events per second. Decimal prefixes are powers
of ten (kB, MB), binary prefixes powers of two (KiB, MiB), as in IEC 80000-13. Arithmetic is exact: ``"3.125 ms"``
is 3 125 000 ns. Values that are not whole are refused, not rounded.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

from cellbed.support.errors import quote

# Common unambiguous spellings: refused, but the error names the right spelling.
_OTHER_SPELLINGS = {
    other: unit
    for unit, others in {
        "s": "sec secs second seconds",
        "min": "m minutes",
        "ms": "msec",
        "µs": "usec",
        "h": "hours",
        "KiB": "K",
        "kB": "k KB",
        "MiB": "M",
        "GiB": "G",
        "B": "b bytes",
        "bit/s": "bps b/s",
        "kbit/s": "kbps Kbit/s",
        "Mbit/s": "Mbps Mb/s",
        "Gbit/s": "Gbps Gb/s",
        "/s": "Hz rps requests/s",
    }.items()
    for other in others.split()
}

_DAYS = ("d", "day", "days")
_QUANTITY = re.compile(r"([+-]?)([0-9]{1,24}(?:\.[0-9]{1,24})?)[ \t]*([^\s0-9.+-]\S*|)")
_LARGEST = 2**63 - 1


class UnitError(ValueError):
    """A malformed quantity. The text gives the expected form."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A kind of quantity.

    name: name in messages. base: unit of the parsed number, which must be whole unless `whole` is false. units: number
    of base units by accepted unit. shown: units that `format` uses. examples: two values
    for messages. zero: unit of zero, by default the last one of `shown`.
    """

    name: str
    base: str
    units: Mapping[str, int | Fraction]
    shown: tuple[str, ...]
    examples: tuple[str, str]
    whole: bool = True
    zero: str = ""

    def parse(self, text: str) -> int | float:
        """Return the value of ``text`` in base units, an int if `whole`. Raises UnitError."""
        match = _QUANTITY.fullmatch(text.strip())
        if match is None:
            if _QUANTITY.fullmatch(pointed := text.strip().replace(",", ".")):
                raise UnitError(f"{quote(text)} has a decimal comma: write a point, as in '{pointed}'")
            raise UnitError(f"{quote(text)} is not a {self.name}: write {self.remedy()}")
        sign, number, unit = match.groups()
        unit = unit.replace("\N{GREEK SMALL LETTER MU}", "µ")
        if sign == "-" and Fraction(number) != 0:
            remedy = f"'{number} {unit}'" if unit in self.units else self.remedy(number)
            raise UnitError(f"{quote(text)} is negative: write {remedy}")
        if not unit:
            raise UnitError(f"{quote(text)} has no unit: write {self.remedy(number)}")
        if unit not in self.units:
            raise UnitError(f"{quote(text)} has an unknown unit: write {self._suggestion(number, unit)}")
        value = Fraction(number) * self.units[unit]
        if value > _LARGEST:
            raise UnitError(f"{quote(text)} is too large for a {self.name}: write {self.remedy()}")
        if not self.whole:
            return float(value)
        if value.denominator != 1:
            raise UnitError(f"{quote(text)} is not a whole number of {self.base}: write {self.remedy()}")
        return int(value)

    def format(self, value: int | float) -> str:
        """Return ``value`` base units as text in the unit with the shortest form; `parse` returns ``value`` again."""
        texts = []
        with localcontext() as context:
            context.prec = 100
            for unit in self.shown:
                number = Decimal(repr(value)) / Decimal(int(self.units[unit]))
                if number >= 1 or unit == self.shown[-1]:
                    texts.append(f"{_plain(number)} {unit}")
        return min(texts, key=len) if value else f"0 {self.zero or self.shown[-1]}"

    def pattern(self) -> str:
        """Return a regular expression (ECMA 262) that matches every readable quantity of this kind."""
        units = "|".join(self.units).replace("µ", "[µ\N{GREEK SMALL LETTER MU}]")
        return rf"^\s*\+?[0-9]{{1,24}}(\.[0-9]{{1,24}})?[ \t]*({units})\s*$"

    def remedy(self, number: str | None = None) -> str:
        """Return two valid values for a message, with the number that the user wrote, if any."""
        first, second = self.examples
        if number is not None:
            first, second = (f"{number} {example.partition(' ')[2]}" for example in self.examples)
        return f"'{first}' or '{second}'"

    def _suggestion(self, number: str, unit: str) -> str:
        if unit in _DAYS and "h" in self.units:
            return f"'{_plain(Decimal(number) * 24)} h'"
        right = _OTHER_SPELLINGS.get(unit)
        if right not in self.units:
            folded = {known.lower(): known for known in self.units}
            near = difflib.get_close_matches(unit.lower(), folded, n=1)
            right = folded[near[0]] if near else None
        known = ", ".join(self.units)
        return f"'{number} {right}'" if right else f"one of {known} after the number, as in {self.remedy()}"


DURATION = Quantity(
    name="duration",
    base="nanoseconds",
    units={"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9},
    shown=("s", "ms", "µs", "ns"),
    examples=("10 ms", "10 s"),
    zero="s",
)
SIZE = Quantity(
    name="size",
    base="bytes",
    units={"B": 1}
    | {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    | {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40},
    shown=("TB", "GB", "MB", "kB", "TiB", "GiB", "MiB", "KiB", "B"),
    examples=("1 MB", "512 MiB"),
)
BIT_RATE = Quantity(
    name="bit rate",
    base="bit/s",
    units={"bit/s": 1, "kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9},
    shown=("Gbit/s", "Mbit/s", "kbit/s", "bit/s"),
    examples=("12 Mbit/s", "500 kbit/s"),
)
FREQUENCY = Quantity(
    name="rate",
    base="/s",
    units={"/s": 1, "/min": Fraction(1, 60), "/h": Fraction(1, 3600)},
    shown=("/s",),
    examples=("2 /s", "30 /min"),
    whole=False,
)

MEASURE_NAME = r"[A-Za-z][A-Za-z0-9_]{0,63}"
"""Regular expression for the name of a program's measure."""
_SUFFIXES = {"per_s": "/s", "percent": "%"} | {
    unit.lower().replace("/", "_"): unit
    for quantity in (DURATION, SIZE, BIT_RATE)
    for unit in quantity.units
    if unit not in ("B", "h", "min")  # ``fps_min`` is a minimum
}
_SUFFIXES |= {name.lower(): unit for name, unit in _OTHER_SPELLINGS.items() if len(name) > 1 and name.isalpha()}


def unit_of_name(name: str) -> str:
    """Return the unit at the end of a name: ``"ms"`` for ``frame_ms``, ``"Mbit/s"`` for ``rate_mbit_s``; else empty."""
    words = name.lower().split("_")
    ends = ("_".join(words[-count:]) for count in (2, 1) if len(words) > count)
    return next((_SUFFIXES[end] for end in ends if end in _SUFFIXES), "")


def parse_probability(text: str, *, certain: bool = False) -> float:
    """Return a probability from ``"0.01"`` or ``"1 %"``: at least 0 and below 1, or also 1 if `certain`.

    Raises UnitError.
    """
    number, percent, rest = text.strip().partition("%")
    try:
        # An exponent rather than a division, so that 1 % is the same number as 0.01.
        value = float(f"{number.strip()}e-2" if percent else number)
    except ValueError:
        value = None
    if value is None or rest:
        raise UnitError(f"{quote(text)} is not a probability: write 0.01 or '1 %'")
    if not (0 <= value < 1 or (certain and value == 1)):
        raise UnitError(f"{quote(text)} is outside 0 to {'' if certain else 'below '}1: write 0.01 or '1 %'")
    return value


def _plain(number: Decimal) -> str:
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
