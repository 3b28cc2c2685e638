"""The events of a log of mm-link, some megabytes at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed.errors import CellbedError

CHUNK = 1 << 22
"""Bytes that are in memory at a time."""

ARRIVAL, OPPORTUNITY, DEPARTURE, DROP = b"+#-d"
"""Kinds of events, by their character."""

_BASE = re.compile(rb"^# base timestamp: (\d{1,15})\b", re.MULTILINE)
_EVENT = re.compile(rb"(\d{1,15})\s+(\S+)(?:\s+(\d{1,15}))?(?:\s+(\d{1,15}))?\s*")
_SCHEMA = {"time": pl.Int64, "kind": pl.String, "value": pl.Int64, "second": pl.Int64}

Integers = NDArray[np.int64]


class MahimahiLogError(CellbedError):
    """A malformed log: the file, the line and the reason."""


@dataclass(frozen=True, slots=True)
class Events:
    """Events in the order of the log, arrays of one length.

    time: ms since the schedule started. kind: one of the constants above. size: bytes. delay: ms; 0 but for departures.
    """

    time: Integers
    kind: NDArray[np.uint8]
    size: Integers
    delay: Integers


def read_events(file: IO[bytes], name: str) -> Iterator[Events]:
    """The events of a log. name: of the log in errors.

    Errors: :class:`MahimahiLogError`.
    """
    base: int | None = None
    number = 1
    rest = b""
    while data := file.read(CHUNK):
        data = rest + data
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if end:
            base, events = _chunk(data[:end], name, number, base)
            number += data.count(b"\n", 0, end)
            yield events
    if rest:
        yield _chunk(rest, name, number, base)[1]


def _chunk(data: bytes, name: str, number: int, base: int | None) -> tuple[int | None, Events]:
    """The events of whole lines. number: of the first line. base: the base timestamp if an earlier line has it."""
    found = _BASE.search(data) if b"# base timestamp" in data else None
    if found is not None:
        if base is not None or _BASE.search(data, found.end()):
            again = _BASE.search(data, found.end()) if base is None else found
            place = number + data.count(b"\n", 0, again.start()) if again else number
            raise MahimahiLogError(f"{name}, line {place}: second base timestamp; write one log at a time")
        base = int(found[1])
    columns = _fast(data) or _careful(data, name, number)
    time, kind, size, delay = columns
    if len(time) and base is None:
        raise MahimahiLogError(f"{name}: not a log of mm-link: no line '# base timestamp: MS' before the first event")
    return base, Events(time - (base or 0), kind, size, delay)


def _fast(data: bytes) -> tuple[Integers, NDArray[np.uint8], Integers, Integers] | None:
    """The columns of lines in the format of mm-link; `None` where a line differs."""
    try:
        # The line in front gives the reader all four columns.
        table = pl.read_csv(
            b"0 d 0 0\n" + data, has_header=False, separator=" ", comment_prefix="#", quote_char=None, schema=_SCHEMA
        )[1:]
    except pl.exceptions.PolarsError:
        return None
    kind, second = table["kind"], table["second"]
    wrong = table.select(
        pl.any_horizontal(
            pl.col("time").is_null() | pl.col("value").is_null() | pl.col("kind").is_null(),
            (pl.col("time") < 0) | (pl.col("value") < 0) | (pl.col("second").fill_null(0) < 0),
            ~pl.col("kind").is_in(["+", "#", "-", "d"]).fill_null(value=False),
            pl.col("kind").is_in(["-", "d"]) & pl.col("second").is_null(),
            (pl.col("kind") == "-") & (pl.col("second") > pl.col("time")),
        ).any()
    ).item()
    if wrong:
        return None
    code = table.select(pl.col("kind").replace_strict({"+": 43, "#": 35, "-": 45, "d": 100}, return_dtype=pl.UInt8))
    kinds = code["kind"].to_numpy() if len(kind) else np.empty(0, np.uint8)
    seconds = second.fill_null(0).to_numpy()
    dropped = kinds == DROP
    size = np.where(dropped, seconds, table["value"].to_numpy())
    return table["time"].to_numpy(), kinds, size, np.where(kinds == DEPARTURE, seconds, 0)


def _careful(data: bytes, name: str, number: int) -> tuple[Integers, NDArray[np.uint8], Integers, Integers]:
    """The columns of lines with any white space between the fields; errors name the malformed line."""
    rows: list[tuple[int, int, int, int]] = []
    for place, line in enumerate(data.splitlines(), number):
        if line.startswith(b"#"):
            continue

        def refused(why: str, place: int = place, line: bytes = line) -> MahimahiLogError:
            shown = line[:60].decode("ascii", "replace")
            return MahimahiLogError(f"{name}, line {place}: {why}: {shown!r}")

        match = _EVENT.fullmatch(line)
        if not match:
            raise refused("malformed event; expected TIME KIND BYTES, as in '17 + 1504'")
        time, kind, value, second = int(match[1]), match[2], match[3], match[4]
        if kind not in (b"+", b"#", b"-", b"d"):
            raise refused("unknown kind of event; expected +, #, - or d")
        if value is None or (kind in (b"-", b"d") and second is None):
            raise refused("missing field" + (", the delay in ms" if kind == b"-" else ""))
        if kind == b"-" and int(second) > time:
            raise refused("delay longer than the time of the departure")
        size, delay = int(value), int(second or 0)
        if kind == b"d":
            size, delay = delay, 0
        rows.append((time, kind[0], size, delay if kind == b"-" else 0))
    table = np.array(rows, np.int64).reshape(-1, 4)
    return table[:, 0], table[:, 1].astype(np.uint8), table[:, 2], table[:, 3]
