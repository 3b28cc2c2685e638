"""The figures that the graphs show of a log of mm-link: read in pieces, kept as sums per millisecond."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed.support.errors import CellbedError

CHUNK = 1 << 22
"""Bytes that are in memory at a time."""

LONGEST = 4 * 86_400_000
"""Most milliseconds that a log may span: memory grows with it."""

MOST_POINTS = 1 << 22
"""Pairs of time and delay that are kept for the picture; more are thinned."""

_BASE = re.compile(rb"^# base timestamp: (\d{1,15})\b", re.MULTILINE)
_EVENT = r"^(?<time>\d{1,15})\s+(?<kind>\S+)(?:\s+(?<value>\d{1,15}))?(?:\s+(?<second>\d{1,15}))?\s*$"
_COLUMNS = {"time": pl.Int64, "kind": pl.String, "value": pl.Int64, "second": pl.Int64}

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class MahimahiLogError(CellbedError):
    """A malformed log: the file, the line and the reason."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The statistics. Rates in Mbit/s, delays in ms, `begin` and `end` in s since the schedule started.

    A percentile is the value at place ⌊0.95 n⌋ of n sorted ones, counted from 0. The signal delay of a millisecond is
    the delay of the next packet sent then or later, with the time until that one: what a message of that moment would
    have needed at least. Both as the original computes them.
    """

    begin: float
    end: float
    capacity: float
    ingress: float
    throughput: float
    median_delay: int
    delay_95: int
    signal_delay_95: int

    @property
    def utilisation(self) -> float | None:
        """Share of the capacity that was used; `None` for a log without capacity."""
        return self.throughput / self.capacity if self.capacity else None


@dataclass(frozen=True, slots=True)
class Bins:
    """Mbit/s in bins of one width, from bin number `first` on."""

    first: int
    capacity: Floats
    ingress: Floats
    egress: Floats


@dataclass(frozen=True, slots=True)
class Log:
    """A log, times in ms since the schedule started. begin, end: of the first event, and the latest.

    bits: by ``time``, one column a kind (``+``, ``#``, ``-``). delays: ``packets`` by ``delay``, ascending. signal:
    the least ``delay`` by time ``sent``, ascending. points: the pairs of ``sent`` and ``delay``, each once.
    """

    name: str
    begin: int
    end: int
    bits: pl.DataFrame
    delays: pl.DataFrame
    signal: pl.DataFrame
    points: pl.DataFrame

    def figures(self) -> Figures:
        """Return the statistics.

        Errors: :class:`MahimahiLogError` where the log has too little.
        """
        reached = self.delays["packets"].cum_sum().to_numpy()
        if not len(reached):
            raise MahimahiLogError(f"{self.name}: no departures, nothing to draw")
        span = (self.end - self.begin) / 1000
        if not span:
            raise MahimahiLogError(f"{self.name}: all events in one millisecond, no rates to draw")

        def rate(kind: str) -> float:
            return float(self.bits[kind].sum()) / span / 1e6

        def delay(share: float) -> int:
            return int(self.delays["delay"][int(np.searchsorted(reached, int(share * reached[-1]), side="right"))])

        signal = self.signal_delays()[1]
        place = int(0.95 * len(signal))
        return Figures(
            begin=self.begin / 1000,
            end=self.end / 1000,
            capacity=rate("#"),
            ingress=rate("+"),
            throughput=rate("-"),
            median_delay=delay(0.5),
            delay_95=delay(0.95),
            signal_delay_95=int(np.partition(signal, place)[place]),
        )

    def bins(self, width: int) -> Bins:
        """Return the rates in bins of `width` ms.

        Errors: :class:`MahimahiLogError` if all of the log is in one bin.
        """
        bins = self.bits.with_columns(bin=pl.col("time") // width)
        first, last = bins.select(pl.col("bin").min(), last=pl.col("bin").max()).row(0)
        if last == first:
            raise MahimahiLogError(f"{self.name}: bins of {width} ms are too wide for the length of this log")

        def rates(kind: str) -> Floats:
            return np.bincount(bins["bin"] - first, bins[kind]) / (width * 1000)

        return Bins(first, rates("#"), rates("+"), rates("-"))

    def signal_delays(self) -> tuple[int, Integers]:
        """Return the first ms at which a packet was sent, and the signal delay of each from there to the last."""
        sent, delay = (self.signal[column].to_numpy() for column in ("sent", "delay"))
        times = np.arange(sent[0], sent[-1] + 1)
        following = np.searchsorted(sent, times)
        return int(sent[0]), delay[following] + sent[following] - times


def read_log(file: IO[bytes], name: str) -> Log:
    """Read a log. name: of the log in errors.

    Errors: :class:`MahimahiLogError`.
    """
    base: int | None = None
    begin: int | None = None
    end, number, grain = 0, 1, 1
    empty = pl.DataFrame(schema={"time": pl.Int64, "sent": pl.Int64, "delay": pl.Int64})
    kinds = {kind: pl.when(kind=kind).then(pl.col("value") * 8).otherwise(0) for kind in ("+", "#", "-")}
    bits = [empty.select("time", **dict.fromkeys(kinds, pl.lit(0, pl.Int64)))]
    delays = [empty.select("delay", packets=pl.lit(0, pl.UInt32))]
    signal = [empty.select("sent", "delay")]
    points = list(signal)
    for data in _whole_lines(file):
        base = _base(data, name, number, base)
        events = _events(data, name, number)
        number += data.count(b"\n")
        if not len(events):
            continue
        if base is None:
            raise MahimahiLogError(
                f"{name}: not a log of mm-link: no line '# base timestamp: MS' before the first event"
            )
        events = events.with_columns(pl.col("time") - base)
        begin = int(events["time"][0]) if begin is None else begin
        end = max(end, begin, int(events["time"].max()))  # type: ignore[arg-type]
        if end - begin > LONGEST or end > 2 * LONGEST:
            hours = (end - begin) / 3_600_000
            raise MahimahiLogError(f"{name}: the log spans {hours:,.0f} hours, too long to draw; check its times")
        bits.append(events.filter(pl.col("kind") != "d").select("time", **kinds).group_by("time").sum())
        left = events.filter(kind="-").select(sent=pl.col("time") - pl.col("second"), delay="second")
        delays.append(left.group_by("delay").agg(packets=pl.len()))
        signal.append(left.group_by("sent").agg(pl.col("delay").min()))
        points.append(left.unique())
        if sum(map(len, points)) > MOST_POINTS:
            points = [pl.concat(points).unique()]
            while len(points[0]) > MOST_POINTS // 2 and grain <= end:
                grain *= 2
                points = [points[0].with_columns(pl.col("sent") // grain * grain).unique()]
    return Log(
        name,
        begin or 0,
        end,
        pl.concat(bits),
        pl.concat(delays).group_by("delay").agg(pl.col("packets").sum()).sort("delay"),
        pl.concat(signal).group_by("sent").agg(pl.col("delay").min()).sort("sent"),
        pl.concat(points).unique(),
    )


def _whole_lines(file: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while data := file.read(CHUNK):
        data = rest + data
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if end:
            yield data[:end]
    if rest:
        yield rest


def _base(data: bytes, name: str, number: int, base: int | None) -> int | None:
    """Return the base timestamp, from these lines or, `base`, from earlier ones. number: of the first of these
    lines."""
    found = list(_BASE.finditer(data)) if b"# base timestamp" in data else []
    if len(found) > 1 or (found and base is not None):
        place = number + data.count(b"\n", 0, found[base is None].start())
        raise MahimahiLogError(f"{name}, line {place}: second base timestamp; write one log at a time")
    return int(found[0][1]) if found else base


def _events(data: bytes, name: str, number: int) -> pl.DataFrame:
    """Return the events in lines of a log: ``time`` (ms), ``kind``, ``value`` and ``second``, the fields behind it.

    number: of the first line. Errors: :class:`MahimahiLogError` names the malformed line.
    """
    time, kind, value, second = map(pl.col, _COLUMNS)
    problem = (
        pl.when(time.is_null() | (pl.min_horizontal(time, value, second) < 0))
        .then(pl.lit("malformed event; expected TIME KIND BYTES, as in '17 + 1504'"))
        .when(~kind.is_in(["+", "#", "-", "d"]).fill_null(value=False))
        .then(pl.lit("unknown kind of event; expected +, #, - or d"))
        .when((kind == "-") & (value.is_null() | second.is_null()))
        .then(pl.lit("missing field, the delay in ms"))
        .when(value.is_null() | ((kind == "d") & second.is_null()))
        .then(pl.lit("missing field"))
        .when((kind == "-") & (second > time))
        .then(pl.lit("delay longer than the time of the departure"))
    )
    with contextlib.suppress(pl.exceptions.PolarsError):
        # The line in front gives the reader all four columns.
        options: dict[str, Any] = {"separator": " ", "comment_prefix": "#", "quote_char": None, "schema": _COLUMNS}
        events = pl.read_csv(b"0 d 0 0\n" + data, has_header=False, **options)[1:]
        if not events.select(problem.is_not_null().any()).item():
            return events
    # Any white space between the fields, or a malformed line.
    text = data.removesuffix(b"\n").decode("ascii", "replace")
    lines = pl.select(line=pl.lit(text).str.split("\n").explode()).with_row_index("number", number)
    lines = lines.filter(~pl.col("line").str.starts_with("#"))
    fields = lines["line"].str.extract_groups(_EVENT).struct.unnest().cast(_COLUMNS)  # type: ignore[arg-type]
    wrong = pl.concat([lines, fields.select(problem.alias("problem"))], how="horizontal").drop_nulls("problem")
    if len(wrong):
        place, line, why = wrong.row(0)
        raise MahimahiLogError(f"{name}, line {place}: {why}: {line[:60]!r}")
    return fields
