"""The meaning and unit of a table's columns: from the user's options, else from their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cellbed.archive.errors import TraceError
from cellbed.archive.series import PARTS, Part
from cellbed.support.near_names import did_you_mean
from cellbed.support.ways import WayOrBoth

TIME_UNITS: Final[Mapping[str, int]] = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "msec": 10**6,
    "milliseconds": 10**6,
    "s": 10**9,
    "sec": 10**9,
    "secs": 10**9,
    "seconds": 10**9,
    "min": 60 * 10**9,
    "minutes": 60 * 10**9,
    "h": 3600 * 10**9,
    "hours": 3600 * 10**9,
}
"""Units of time in ns."""

MOMENT: Final = "iso"
"""The unit of times written as ISO 8601 has them."""

_BITS: Final = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_BIT_WORDS: Final = ("bit/s", "bits/s", "bps", "b/s", "bitps", "bits_per_second")
_BYTE_WORDS: Final = ("byte/s", "bytes/s", "byteps", "bytes_per_second")

_LONGEST_UNIT: Final = 40
"""Characters at the end of a name in which its unit is looked for."""

_LONGEST_NUMBER: Final = 9
"""Digits of a column's number; Python refuses to read thousands of them."""

_TIME_WORDS = {"time", "timestamp", "t", "at", "date", "datetime", "elapsed", "ts", "when"}
_RATE_WORDS = {"rate", "bitrate", "throughput", "bandwidth", "bw", "speed", "tput", "capacity", "goodput"}
_ROUND_TRIP_WORDS = {"rtt", "ping"}
_UPLINK_WORDS = {"uplink", "ul", "up", "upload", "upstream"}
_DOWNLINK_WORDS = {"downlink", "dl", "down", "download", "downstream"}


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


def rate_unit(text: str) -> float | None:
    """Return a unit of rate in bit/s: ``Mbit/s``, ``mbps``, ``kB/s``; null if it is none."""
    # Case distinguishes bytes from bits only in "B/s" and "b/s".
    if match := re.fullmatch(r"([kKMG]?)([Bb])/s", text):
        return _BITS[match[1].lower()] * (8 if match[2] == "B" else 1)
    folded = text.lower()
    for words, size in ((_BIT_WORDS, 1), (_BYTE_WORDS, 8)):
        for word in words:
            prefix = folded.removesuffix(word)
            if prefix != folded and prefix in _BITS:
                return _BITS[prefix] * size
    return None


def map_columns(
    names: Sequence[str],
    asked: Mapping[str, str],
    direction: WayOrBoth | None,
    moments: Callable[[str], bool],
    only: Part | None = None,
) -> Mapped:
    """Return the columns to read among `names`.

    asked: by meaning, ``NAME`` or ``NAME:UNIT``. direction: of a rate whose name lacks it.
    moments: whether a column holds times as ISO 8601 writes them. only: the one direction to read. If `asked` has
    columns of values, only those are read.

    Raises TraceError with the option to use if they are ambiguous.
    """
    try:
        return _mapped(names, asked, direction, moments, only)
    except TraceError as error:
        # A column of a Parquet file may have any name; an error is one line.
        raise TraceError(str(error).replace("\n", "\\n")) from None


def _mapped(
    names: Sequence[str],
    asked: Mapping[str, str],
    direction: WayOrBoth | None,
    moments: Callable[[str], bool],
    only: Part | None,
) -> Mapped:
    values: dict[Part, Column] = {}
    for what in asked:
        if what not in ("time", *PARTS):
            raise TraceError(f"--column '{what:.40}=…': a column is one of time, {', '.join(PARTS)}")
    for part in PARTS:
        if part in asked:
            values[part] = _asked(part, asked[part], names, _value_unit(part))
    time = _time(names, asked, moments)
    if not values:
        values = _guessed(names, time.name, direction, only)
    return Mapped(time, _wanted(values, only))


def _wanted(values: Mapping[Part, Column], only: Part | None) -> Mapping[Part, Column]:
    """Without the other direction."""
    unwanted: Part = "downlink" if only == "uplink" else "uplink"
    if only is None or unwanted not in values:
        return values
    if only not in values:
        raise TraceError(
            f"'{values[unwanted].name}' is of the {unwanted}, but --direction {only} asks for the other: "
            f"write --column {only}=COLUMN:UNIT"
        )
    return {part: column for part, column in values.items() if part != unwanted}


def _time(names: Sequence[str], asked: Mapping[str, str], moments: Callable[[str], bool]) -> Column:
    def unit(text: str) -> float | None:
        return 0.0 if text.lower() in (MOMENT, "iso8601") else TIME_UNITS.get(text.lower())

    if "time" in asked:
        column = _asked("time", asked["time"], names, unit, when_missing=lambda name: 0.0 if moments(name) else None)
        return Column(column.name, column.unit or None)
    found = [name for name in names if (words := _words(name)) and (_TIME_WORDS & set(words) or words[0] in TIME_UNITS)]
    if not found:
        raise TraceError(f"no column has the name of a time: {_there(names)}: write --column time=COLUMN:UNIT")
    name = found[0]
    if moments(name):
        return Column(name, None)
    size = next((TIME_UNITS[word] for word in reversed(_words(name)) if word in TIME_UNITS), None)
    if size is None:
        raise TraceError(f"the column '{name}' has no unit: write --column 'time={name}:s', or ms, us, ns, {MOMENT}")
    return Column(name, size)


def _guessed(names: Sequence[str], time: str, direction: WayOrBoth | None, only: Part | None) -> dict[Part, Column]:
    found: dict[Part, list[str]] = {}
    for name in names:
        part = None if name == time else _part(name, direction)
        if part is not None:
            found.setdefault(part, []).append(name)
    if not found:
        ways = "--column downlink=COLUMN:UNIT, or uplink=, or round-trip="
        rates = [name for name in names if name != time and _is_rate(name)]
        if rates:
            raise TraceError(f"'{rates[0]}' has no direction: write --direction uplink or --direction downlink")
        raise TraceError(f"no column has the name of a rate or a round-trip time: {_there(names)}: write {ways}")
    if only in found:
        # Unwanted columns need no options.
        found = {part: candidates for part, candidates in found.items() if part in (only, "round-trip")}
    values: dict[Part, Column] = {}
    for part, candidates in found.items():
        if len(candidates) > 1:
            both = " and ".join(f"'{name}'" for name in candidates[:2])
            raise TraceError(f"{both} may both be the {part}: write --column {part}=COLUMN:UNIT")
        name = candidates[0]
        size = _unit_in(name, part)
        if size is None:
            example = "ms" if part == "round-trip" else "Mbit/s"
            raise TraceError(f"the column '{name}' has no unit: write --column '{part}={name}:{example}'")
        values[part] = Column(name, size)
    return values


def _part(name: str, direction: WayOrBoth | None) -> Part | None:
    words = set(_words(name))
    if words & _ROUND_TRIP_WORDS or {"round", "trip"} <= words:
        return "round-trip"
    if not _is_rate(name):
        return None
    if words & _UPLINK_WORDS:
        return "uplink"
    if words & _DOWNLINK_WORDS:
        return "downlink"
    return direction if direction != "both" else None


def _is_rate(name: str) -> bool:
    return bool(_RATE_WORDS & set(_words(name))) or _unit_in(name, "downlink") is not None


def _unit_in(name: str, part: Part) -> float | None:
    """Return the unit at the end of a name, such as of ``rtt_ms``, ``rate_mbit_s`` or ``Throughput (Mbit/s)``."""
    if part == "round-trip":
        return next((float(TIME_UNITS[word]) for word in reversed(_words(name)) if word in TIME_UNITS), None)
    # Without this limit a hostile name would take minutes.
    name = name.rstrip()[-_LONGEST_UNIT:]
    bracketed = re.search(r"[(\[]([^)\]]+)[)\]]$", name)
    if bracketed and (size := rate_unit(bracketed[1].strip())) is not None:
        return size
    ends = (name[match.start() :].strip() for match in re.finditer(r"(?<![A-Za-z0-9])[A-Za-z]", name))
    sizes = (rate_unit(written) for end in ends for written in (end, end.replace("_", "/")))
    return next((size for size in sizes if size is not None), None)


def _value_unit(part: Part) -> Callable[[str], float | None]:
    if part == "round-trip":
        return lambda text: float(TIME_UNITS[text.lower()]) if text.lower() in TIME_UNITS else None
    return rate_unit


def _asked(
    what: str,
    text: str,
    names: Sequence[str],
    unit: Callable[[str], float | None],
    when_missing: Callable[[str], float | None] | None = None,
) -> Column:
    """Return the column that ``NAME`` or ``NAME:UNIT`` means; a number is a position from 1 if no column has that
    name."""
    name, size = text, None
    if _found(name, names) is None:
        name, _, written = text.rpartition(":")
        size = unit(written)
        if size is None and _found(name, names) is not None:
            raise TraceError(f"--column '{what}={text:.80}': '{written:.20}' is no unit of {_of(what)}")
    found = _found(name, names)
    if found is None:
        hint = did_you_mean(name or text, names)
        raise TraceError(f"--column '{what}={text:.80}': no such column: {hint}{_there(names)}")
    if size is None and when_missing is not None:
        size = when_missing(found)
    if size is None:
        size = _unit_in(found, what) if what in PARTS else _time_in(found)
    if size is None:
        raise TraceError(f"--column '{what}={text:.80}': missing unit: write '{what}={found}:UNIT', {_of(what)}")
    return Column(found, size)


def _time_in(name: str) -> float | None:
    return next((float(TIME_UNITS[word]) for word in reversed(_words(name)) if word in TIME_UNITS), None)


def _of(what: str) -> str:
    if what == "time":
        return f"time (s, ms, us, ns, min, h, {MOMENT})"
    return "time (s, ms, us, ns)" if what == "round-trip" else "rate (bit/s, kbit/s, Mbit/s, Gbit/s, kB/s, MB/s)"


def _found(name: str, names: Sequence[str]) -> str | None:
    if name in names:
        return name
    if name.isdecimal() and len(name) <= _LONGEST_NUMBER and 1 <= int(name) <= len(names):
        return names[int(name) - 1]
    return None


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9µ]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()) if word]


def _there(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name:.40}'" for name in names[:12])
    return f"it has {shown}{', …' if len(names) > 12 else ''}"
