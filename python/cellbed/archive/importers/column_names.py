"""The meaning and unit of a table's columns: from the user's options, else from names such as ``downlink_mbit_s``."""

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
from cellbed.support.ways import WAYS, WayOrBoth

TIME_UNITS: Final[Mapping[str, int]] = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
}
"""Units of time in ns."""
ISO: Final = "iso"
"""The unit of times in ISO 8601."""

_PREFIXES: Final = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_RATE_UNIT: Final = re.compile(r"([kmgKMG]?)(?:[bB]it/s|bps|b/s|(B/s|Bps))")
_NAME: Final = re.compile(r"(time|at|uplink|downlink|rate|rtt|round_trip)_(.{1,20})", re.IGNORECASE | re.DOTALL)
_MEANINGS: Final = {"at": "time", "rtt": "round-trip", "round_trip": "round-trip"}
_PUBLISHED: Final[Mapping[frozenset[str], Mapping[str, str]]] = {
    # Lumos5G 1.0; 5Gophers 1.0, on foot; G-NetTrack Pro, as in the Irish data sets, with times in ISO 8601.
    frozenset({"run_num", "seq_num", "Throughput"}): {"time": "seq_num:s", "downlink": "Throughput:Mbit/s"},
    frozenset({"num_tcp_conn", "throughput_mbps"}): {"time": "seq_num:s", "downlink": "throughput_mbps:Mbit/s"},
    frozenset({"NetworkMode", "Timestamp", "DL_bitrate"}): {"downlink": "DL_bitrate:kbit/s"},
}
"""Columns of published tables by meaning, as a user would write them, by names that only such a table has."""
_LONGEST_NUMBER: Final = 9
"""Maximum digits of a column's number: Python refuses to convert thousands of digits."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column to read. unit: ns or bit/s of a value of 1; None for ISO 8601 times."""

    name: str
    unit: float | None


@dataclass(frozen=True, slots=True)
class Mapped:
    """The columns to read."""

    time: Column
    values: Mapping[Part, Column]


def map_columns(
    names: Sequence[str],
    asked: Mapping[str, str],
    direction: WayOrBoth | None,
    moments: Callable[[str], bool],
    only: Part | None = None,
) -> Mapped:
    """Return the columns to read among `names`.

    asked: columns by meaning, as ``NAME`` or ``NAME:UNIT``. direction: direction of a column ``rate_UNIT``.
    moments: returns whether a column has ISO 8601 times. only: the only direction to read. If `asked` has columns of
    values, no other values are read.
    Raises TraceError with the option to use if columns are missing or ambiguous.
    """
    published = next((columns for marks, columns in _PUBLISHED.items() if marks.issubset(names)), {})
    values_asked = bool(asked.keys() & set(PARTS))
    asked = {what: column for what, column in published.items() if what == "time" or not values_asked} | dict(asked)
    for what in asked:
        if what not in ("time", *PARTS):
            raise TraceError(f"--column {in_quotes(what)}=…: a column is one of time, {', '.join(PARTS)}")
    columns = {what: _parse_column(what, text, names, moments) for what, text in asked.items()}
    known = _columns_by_name(names, direction, moments, ("time",) if columns.keys() & set(PARTS) else ("time", *PARTS))
    columns = known | columns
    if "time" not in columns:
        raise TraceError(f"no column is called time_s or the like: {_there(names)}: write --column time=COLUMN:UNIT")
    values = {part: columns[part] for part in PARTS if part in columns}
    if not values:
        rate = next((name for name in names if name.lower().startswith("rate_")), None)
        if rate is not None and direction is not None:
            wrong = f"{in_quotes(rate)} has no known unit: write --column {direction}={printable(rate)}:UNIT"
            raise TraceError(f"{wrong}, with a unit of {_UNITS[True]}")
        if rate is not None:
            raise TraceError(f"{in_quotes(rate)} has no direction: write --direction uplink or --direction downlink")
        ways = "--column downlink=COLUMN:UNIT, or uplink=, or round-trip="
        raise TraceError(f"no column is called downlink_mbit_s or the like: {_there(names)}: write {ways}")
    if only in WAYS:
        other: Part = "downlink" if only == "uplink" else "uplink"
        unwanted = values.pop(other, None)
        if unwanted is not None and only not in values:
            name = in_quotes(unwanted.name)
            raise TraceError(f"{name} is of the {other}: for the {only}, write --column {only}=COLUMN:UNIT")
    return Mapped(columns["time"], values)


def _columns_by_name(
    names: Sequence[str], direction: WayOrBoth | None, moments: Callable[[str], bool], wanted: Sequence[str]
) -> dict[str, Column]:
    """Return the columns with a name of the form ``MEANING_UNIT``, and times in ISO 8601 called ``time``."""
    found: dict[str, Column] = {}
    for name in names:
        if name.lower() in ("time", "timestamp") and moments(name):
            found.setdefault("time", Column(name, None))
        if (match := _NAME.fullmatch(name)) is None:
            continue
        word = match[1].lower()
        what = direction if word == "rate" else _MEANINGS.get(word, word)
        unit = _unit(what, match[2]) if what in wanted else None
        if what is None or unit is None:
            continue
        if what in found:
            both = f"{in_quotes(found[what].name)} and {in_quotes(name)}"
            raise TraceError(f"{both} may both be the {what}: write --column {what}=COLUMN:UNIT")
        found[what] = Column(name, None if what == "time" and moments(name) else unit or None)
    return found


def _parse_column(what: str, text: str, names: Sequence[str], moments: Callable[[str], bool]) -> Column:
    """Return the column for ``NAME`` or ``NAME:UNIT``. A number is a position, counted from 1, if it is no column's
    name."""
    option = f"--column {in_quotes(f'{what}={text}', 80)}"
    name, written = _match_name(text, names), None
    if name is None:
        before, _, written = text.rpartition(":")
        name = _match_name(before, names)
    if name is None:
        hint = did_you_mean(text, [printable(each, kept="") for each in names])
        raise TraceError(f"{option}: no such column: {hint}{_there(names)}")
    if written is None and what == "time" and moments(name):
        return Column(name, None)
    words = name.split("_")[-3:]
    endings = ["_".join(words[at:]) for at in range(len(words))] if written is None else [written]
    if written is None and what not in WAYS:
        endings = [each for each in endings if not any(_unit("uplink", longer) is not None for longer in endings)]
    unit = next((unit for ending in endings if (unit := _unit(what, ending)) is not None), None)
    if unit is None:
        wrong = "missing unit" if written is None else f"{in_quotes(written)} is not a unit"
        raise TraceError(f"{option}: {wrong}: write '{what}=COLUMN:UNIT', with a unit of {_UNITS[what in WAYS]}")
    return Column(name, unit or None)


_UNITS: Final = {
    False: f"time (s, ms, us, ns, min, h; {ISO} for times in ISO 8601)",
    True: "rate (bit/s, kbit/s, Mbit/s, Gbit/s, kB/s, MB/s)",
}


def _unit(what: str | None, text: str) -> float | None:
    """Return a unit in ns or bit/s; 0 for times in ISO 8601, None for an unknown unit."""
    if what in WAYS:
        rate = _RATE_UNIT.fullmatch(text.replace("_", "/"))
        return None if rate is None else _PREFIXES[rate[1].lower()] * (8 if rate[2] else 1)
    return 0.0 if (what, text.lower()) == ("time", ISO) else TIME_UNITS.get(text.lower())


def _match_name(name: str, names: Sequence[str]) -> str | None:
    if name in names:
        return name
    if name.isdecimal() and len(name) <= _LONGEST_NUMBER and 1 <= int(name) <= len(names):
        return names[int(name) - 1]
    return None


def _there(names: Sequence[str]) -> str:
    return f"it has {', '.join(map(in_quotes, names[:12]))}{', …' if len(names) > 12 else ''}"
