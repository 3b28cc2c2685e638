"""The figures that the graphs show of a log of mm-link."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import IO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed.support.errors import CellbedError

LONGEST = 4 * 86_400_000
"""Most milliseconds that a log may span: memory grows with it."""

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

    events: ``time``, ``kind`` (``+``, ``#``, ``-`` or ``d``), ``value`` (bytes). departures: ``sent`` and ``delay`` of
    each packet.
    """

    name: str
    begin: int
    end: int
    events: pl.DataFrame
    departures: pl.DataFrame

    def figures(self) -> Figures:
        """Return the statistics.

        Errors: :class:`MahimahiLogError` where the log has too little.
        """
        if not len(self.departures):
            raise MahimahiLogError(f"{self.name}: no departures, nothing to draw")
        span = (self.end - self.begin) / 1000
        if not span:
            raise MahimahiLogError(f"{self.name}: all events in one millisecond, no rates to draw")

        def rate(kind: str) -> float:
            return float(self.events.filter(kind=kind)["value"].sum()) * 8 / span / 1e6

        delays, signal = self.departures["delay"].sort(), np.sort(self.signal_delays()[1])
        return Figures(
            begin=self.begin / 1000,
            end=self.end / 1000,
            capacity=rate("#"),
            ingress=rate("+"),
            throughput=rate("-"),
            median_delay=int(delays[int(0.5 * len(delays))]),
            delay_95=int(delays[int(0.95 * len(delays))]),
            signal_delay_95=int(signal[int(0.95 * len(signal))]),
        )

    def bins(self, width: int) -> Bins:
        """Return the rates in bins of `width` ms.

        Errors: :class:`MahimahiLogError` if all of the log is in one bin.
        """
        bins = self.events.filter(pl.col("kind") != "d").with_columns(pl.col("time") // width)
        first, last = bins.select(pl.col("time").min(), last=pl.col("time").max()).row(0)
        if last == first:
            raise MahimahiLogError(f"{self.name}: bins of {width} ms are too wide for the length of this log")

        def rates(kind: str) -> Floats:
            of_kind = bins.filter(kind=kind)
            return np.bincount(of_kind["time"] - first, of_kind["value"] * 8, last - first + 1) / (width * 1000)

        return Bins(first, rates("#"), rates("+"), rates("-"))

    def signal_delays(self) -> tuple[int, Integers]:
        """Return the first ms at which a packet was sent, and the signal delay of each from there to the last."""
        least = self.departures.group_by("sent").agg(pl.col("delay").min()).sort("sent")
        sent, delay = (least[column].to_numpy() for column in ("sent", "delay"))
        times = np.arange(sent[0], sent[-1] + 1)
        following = np.searchsorted(sent, times)
        return int(sent[0]), delay[following] + sent[following] - times


def read_log(file: IO[bytes], name: str) -> Log:
    """Read a log. name: of the log in errors.

    Errors: :class:`MahimahiLogError`.
    """
    data = file.read()
    bases = list(_BASE.finditer(data))
    if len(bases) > 1:
        line = data.count(b"\n", 0, bases[1].start()) + 1
        raise MahimahiLogError(f"{name}, line {line}: second base timestamp; write one log at a time")
    events = _events(data, name)
    if len(events) and not bases:
        raise MahimahiLogError(f"{name}: not a log of mm-link: no line '# base timestamp: MS' before the first event")
    events = events.with_columns(pl.col("time") - (int(bases[0][1]) if bases else 0))
    times = events["time"].to_list() or [0]
    begin, end = times[0], max(0, *times)
    if end - begin > LONGEST or end > 2 * LONGEST:
        hours = (end - begin) / 3_600_000
        raise MahimahiLogError(f"{name}: the log spans {hours:,.0f} hours, too long to draw; check its times")
    left = events.filter(kind="-").select(sent=pl.col("time") - pl.col("second"), delay="second")
    return Log(name, begin, end, events, left)


def _events(data: bytes, name: str) -> pl.DataFrame:
    """Return the events of a log: ``time`` (ms), ``kind``, ``value`` and ``second``, the fields behind it.

    Errors: :class:`MahimahiLogError` names the malformed line.
    """
    time, kind, value, second = map(pl.col, _COLUMNS)
    problem = (
        pl.when(time.is_null())
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
    text = data.removesuffix(b"\n").decode("ascii", "replace")
    lines = pl.DataFrame({"line": text.split("\n") if text else []}, {"line": pl.String})
    lines = lines.with_row_index("number", 1).filter(~pl.col("line").str.starts_with("#"))
    fields = lines["line"].str.extract_groups(_EVENT).struct.unnest().cast(_COLUMNS)  # type: ignore[arg-type]
    wrong = pl.concat([lines, fields.select(problem.alias("problem"))], how="horizontal").drop_nulls("problem")
    if len(wrong):
        place, line, why = wrong.row(0)
        raise MahimahiLogError(f"{name}, line {place}: {why}: {line[:60]!r}")
    return fields
