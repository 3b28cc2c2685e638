"""The meaning and unit of a table's columns, from the user's options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cellbed.archive.errors import TraceError
from cellbed.archive.importers.written import in_quotes
from cellbed.archive.series import PARTS, Part
from cellbed.support.errors import printable
from cellbed.support.near_names import did_you_mean
from cellbed.support.ways import WAYS

TIME_UNITS: Final[Mapping[str, int]] = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
}
"""Units of time in ns."""
MOMENT: Final = "iso"
"""The unit of times written as ISO 8601 has them."""

_PREFIXES: Final = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_RATE_UNIT: Final = re.compile(r"([kmgKMG]?)(?:[bB]it/s|bps|b/s|(B/s|Bps))")
_LONGEST_NUMBER: Final = 9
"""Digits of a column's number; Python refuses to read thousands of them."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column to read. unit: ns or bit/s of 1; null for ISO 8601 times, which have none."""

    name: str
    unit: float | None


@dataclass(frozen=True, slots=True)
class Mapped:
    """The columns to read."""

    time: Column
    values: Mapping[Part, Column]


def map_columns(
    names: Sequence[str], asked: Mapping[str, str], moments: Callable[[str], bool], only: Part | None = None
) -> Mapped:
    """Return the columns to read among `names`.

    asked: by meaning, ``NAME:UNIT``, or ``NAME`` of ISO 8601 times. moments: whether a column holds these. only: the
    one direction to read. Raises TraceError with the option to use if they are missing.
    """
    for what in asked:
        if what not in ("time", *PARTS):
            raise TraceError(f"--column {in_quotes(what)}=…: a column is one of time, {', '.join(PARTS)}")
    columns = {what: _parse_column(what, text, names, moments) for what, text in asked.items()}
    if "time" not in columns:
        raise TraceError(f"unknown column of times: {_there(names)}: write --column time=COLUMN:UNIT")
    values = {part: columns[part] for part in PARTS if part in columns}
    if not values:
        ways = "--column downlink=COLUMN:UNIT, or uplink=, or round-trip="
        raise TraceError(f"unknown column of rates or round trips: {_there(names)}: write {ways}")
    if only in WAYS:
        values = {part: column for part, column in values.items() if part in (only, "round-trip")}
        if not values:
            raise TraceError(f"no column of the {only} is named: write --column {only}=COLUMN:UNIT")
    return Mapped(columns["time"], values)


def _parse_column(what: str, text: str, names: Sequence[str], moments: Callable[[str], bool]) -> Column:
    """Return the column that ``NAME`` or ``NAME:UNIT`` means; a number is a position from 1 if no column has that
    name."""
    option = f"--column {in_quotes(f'{what}={text}', 80)}"
    name, unit = _match_name(text, names), ""
    if name is None:
        before, _, unit = text.rpartition(":")
        name = _match_name(before, names)
    if name is None:
        hint = did_you_mean(text, [printable(each, kept="") for each in names])
        raise TraceError(f"{option}: no such column: {hint}{_there(names)}")
    if what == "time" and (unit.lower() == MOMENT or (not unit and moments(name))):
        return Column(name, None)
    if what in WAYS:
        rate = _RATE_UNIT.fullmatch(unit)
        factor = None if rate is None else _PREFIXES[rate[1].lower()] * (8 if rate[2] else 1)
    else:
        factor = TIME_UNITS.get(unit.lower())
    if factor is None:
        wrong = f"{in_quotes(unit)} is no unit" if unit else "missing unit"
        raise TraceError(f"{option}: {wrong}: write '{what}=COLUMN:UNIT', with a unit of {_UNITS[what in WAYS]}")
    return Column(name, factor)


_UNITS: Final = {
    False: f"time (s, ms, us, ns, min, h; {MOMENT} for times in ISO 8601)",
    True: "rate (bit/s, kbit/s, Mbit/s, Gbit/s, kB/s, MB/s)",
}


def _match_name(name: str, names: Sequence[str]) -> str | None:
    if name in names:
        return name
    if name.isdecimal() and len(name) <= _LONGEST_NUMBER and 1 <= int(name) <= len(names):
        return names[int(name) - 1]
    return None


def _there(names: Sequence[str]) -> str:
    return f"it has {', '.join(map(in_quotes, names[:12]))}{', …' if len(names) > 12 else ''}"
