"""mm-throughput-graph and mm-delay-graph: plot a log of mm-link (SVG to stdout, statistics to stderr)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed.report import plot
from cellbed.support.errors import CellbedError
from cellbed_node import inputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_COLUMNS = 920
"""Maximum number of bins in a picture."""

_THROUGHPUT_USAGE = """\
Usage: mm-throughput-graph MS_PER_BIN [FILENAME]

Draw the rates in a log of mm-link (default: standard input) as SVG on standard output; print statistics on standard
error. MS_PER_BIN: width of a bin, a whole number of ms above 0."""
_DELAY_USAGE = """\
Usage: mm-delay-graph [FILENAME]

Draw the delays in a log of mm-link (default: standard input) as SVG on standard output; print statistics on standard
error."""


def throughput_graph(arguments: Sequence[str] | None = None) -> int:
    """Run the command ``mm-throughput-graph MS_PER_BIN [FILE]``; return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--help"]:
        print(_THROUGHPUT_USAGE)
        return 0
    if not 1 <= len(given) <= 2 or not given[0].isdecimal() or int(given[0]) == 0:
        return _refuse(_THROUGHPUT_USAGE)
    return _draw("mm-throughput-graph", given[1:], lambda log: _throughput(log, int(given[0])))


def delay_graph(arguments: Sequence[str] | None = None) -> int:
    """Run the command ``mm-delay-graph [FILE]``; return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--help"]:
        print(_DELAY_USAGE)
        return 0
    if len(given) > 1:
        return _refuse(_DELAY_USAGE)
    return _draw("mm-delay-graph", given, _delay)


def throughput_plot(figures: Figures, bins: Bins, bin_ms: int) -> str:
    """Return the picture of rates over time."""
    joined = -(-len(bins.capacity) // MOST_COLUMNS)
    width = bin_ms * joined / 1000
    capacity, ingress, egress = (_thin(column, joined) for column in (bins.capacity, bins.ingress, bins.egress))
    times = bins.first * bin_ms / 1000 + np.arange(len(capacity)) * width
    most = max(1e-3, *(float(column.max()) for column in (capacity, ingress, egress)))

    def draw(axes: Axes) -> None:
        label = f"Capacity (mean {figures.capacity:.2f} Mbit/s)"
        axes.fill_between(times, capacity, color="#c3cfe2", alpha=0.75, linewidth=0, label=label)
        label = f"Traffic ingress (mean {figures.ingress:.2f} Mbit/s)"
        axes.plot(times, ingress, color="#1b4a82", linewidth=2.5, label=label)
        label = f"Traffic egress (mean {figures.throughput:.2f} Mbit/s)"
        axes.plot(times, egress, color="#e8782a", linewidth=1.25, label=label)

    labels = ("time (s)", f"throughput (Mbit/s, bins of {_span(width)})")
    return plot.svg("Throughput", plot.single(labels, (figures.begin, figures.end), (0, 1.05 * most), draw))


def delay_plot(figures: Figures, log: Log) -> str:
    """Return the picture of delays over time."""
    first, signal = log.signal_delays()
    step = -(-len(signal) // MOST_COLUMNS)
    least = max(1, min(30, figures.median_delay))
    most = max(2.0 * least, 1.2 * float(max(signal.max(), figures.delay_95)))
    highest = np.maximum.reduceat(signal, np.arange(0, len(signal), step))
    times = (first + np.arange(len(highest)) * step) / 1000

    def draw(axes: Axes) -> None:
        axes.fill_between(times, highest, color="#2f74c0", alpha=0.4, linewidth=0, label="Signal delay")
        # Draw an image, and coinciding points once: there may be millions of points.
        pixel = max(1, (log.end - log.begin) // (2 * MOST_COLUMNS))
        points = log.departures.select(pl.col("sent") // pixel * pixel, "delay").unique().sort("sent", "delay")
        sent, delay = (points[column].to_numpy() for column in ("sent", "delay"))
        axes.plot(sent / 1000, delay, ".", color="#b3261e", markersize=1.5, label="Per-packet delay", rasterized=True)
        for value, colour, name in (
            (figures.signal_delay_95, "#2f74c0", "signal delay"),
            (figures.delay_95, "#b3261e", "per-packet delay"),
        ):
            label = f"95th percentile {name} ({value} ms)"
            axes.axhline(value, color=colour, linewidth=4, alpha=0.5, label=label)

    labels = ("time (s)", "delay (ms)")
    return plot.svg("Delay", plot.single(labels, (figures.begin, figures.end), (least, most), draw, log_y=True))


def _throughput(log: Log, bin_ms: int) -> tuple[str, list[str]]:
    figures = log.figures()
    share = figures.utilisation
    used = "" if share is None else f" ({100 * share:.1f}% utilization)"
    lines = [
        f"Average capacity: {figures.capacity:.2f} Mbits/s",
        f"Average throughput: {figures.throughput:.2f} Mbits/s{used}",
        *_delay_lines(figures),
    ]
    return throughput_plot(figures, log.bins(bin_ms), bin_ms), lines


def _delay(log: Log) -> tuple[str, list[str]]:
    figures = log.figures()
    return delay_plot(figures, log), _delay_lines(figures)


def _delay_lines(figures: Figures) -> list[str]:
    return [
        f"95th percentile per-packet queueing delay: {figures.delay_95} ms",
        f"95th percentile signal delay: {figures.signal_delay_95} ms",
    ]


def _draw(command: str, given: list[str], draw: Callable[[Log], tuple[str, list[str]]]) -> int:
    try:
        if given and given[0] != "-":
            with inputs.open_file(Path(given[0])) as file:
                log = read_log(file, given[0])
        else:
            log = read_log(sys.stdin.buffer, "standard input")
        picture, lines = draw(log)
    except CellbedError as error:
        return _refuse(f"{command}: {error}")
    except OSError as error:
        return _refuse(f"{command}: {given[0] if given else 'standard input'}: cannot read the log: {error.strerror}")
    print("\n".join(lines), file=sys.stderr)
    try:
        sys.stdout.write(picture)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at its end
        return 1
    return 0


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return CellbedError.exit_code


def _thin(values: Floats, count: int) -> Floats:
    """Return the means of groups of `count` neighbours."""
    starts = np.arange(0, len(values), count)
    sums: Floats = np.add.reduceat(values, starts)
    return sums / np.diff(np.append(starts, len(values)))


def _span(seconds: float) -> str:
    return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"


LONGEST = 4 * 86_400_000
"""Maximum duration of a log, ms: memory grows with the duration."""

_BASE = re.compile(rb"^# base timestamp: (\d{1,15})\b", re.MULTILINE)
_EVENT = r"^(?<time>\d{1,15})\s+(?<kind>\S+)(?:\s+(?<value>\d{1,15}))?(?:\s+(?<second>\d{1,15}))?\s*$"
_COLUMNS = {"time": pl.Int64, "kind": pl.String, "value": pl.Int64, "second": pl.Int64}

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Figures:
    """The statistics. Rates in Mbit/s, delays in ms, `begin` and `end` in s since the start of the schedule.

    The 95th percentile is the value at index ⌊0.95 n⌋ of n sorted values, from 0. The signal delay of a millisecond is
    the waiting time until the next packet is sent, and the delay of this packet: the minimum delay of a message at that
    moment. Both definitions are Mahimahi's.
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
        """The used share of the capacity; `None` for a log without capacity."""
        return self.throughput / self.capacity if self.capacity else None


@dataclass(frozen=True, slots=True)
class Bins:
    """Rates in Mbit/s in bins of equal width, from bin number `first` on."""

    first: int
    capacity: Floats
    ingress: Floats
    egress: Floats


@dataclass(frozen=True, slots=True)
class Log:
    """A log, with times in ms since the start of the schedule. begin: first event's time; end: latest time.

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

        Errors: :class:`CellbedError` if the log has too few events.
        """
        if not len(self.departures):
            raise CellbedError(f"{self.name}: no departures, nothing to draw")
        span = (self.end - self.begin) / 1000
        if not span:
            raise CellbedError(f"{self.name}: all events in one millisecond, no rates to draw")

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

        Errors: :class:`CellbedError` if the whole log is in one bin.
        """
        bins = self.events.filter(pl.col("kind") != "d").with_columns(pl.col("time") // width)
        first, last = bins.select(pl.col("time").min(), last=pl.col("time").max()).row(0)
        if last == first:
            raise CellbedError(f"{self.name}: bins of {width} ms are too wide for the length of this log")

        def rates(kind: str) -> Floats:
            of_kind = bins.filter(kind=kind)
            return np.bincount(of_kind["time"] - first, of_kind["value"] * 8, last - first + 1) / (width * 1000)

        return Bins(first, rates("#"), rates("+"), rates("-"))

    def signal_delays(self) -> tuple[int, Integers]:
        """Return the first ms with a sent packet, and the signal delays of each ms from there to the last one."""
        least = self.departures.group_by("sent").agg(pl.col("delay").min()).sort("sent")
        sent, delay = (least[column].to_numpy() for column in ("sent", "delay"))
        times = np.arange(sent[0], sent[-1] + 1)
        following = np.searchsorted(sent, times)
        return int(sent[0]), delay[following] + sent[following] - times


def read_log(file: IO[bytes], name: str) -> Log:
    """Read a log. name: name of the log in errors.

    Errors: :class:`CellbedError`.
    """
    data = file.read()
    bases = list(_BASE.finditer(data))
    if len(bases) > 1:
        line = data.count(b"\n", 0, bases[1].start()) + 1
        raise CellbedError(f"{name}, line {line}: second base timestamp; write one log at a time")
    events = _events(data, name)
    if len(events) and not bases:
        raise CellbedError(f"{name}: not a log of mm-link: no line '# base timestamp: MS' before the first event")
    events = events.with_columns(pl.col("time") - (int(bases[0][1]) if bases else 0))
    times = events["time"].to_list() or [0]
    begin, end = times[0], max(0, *times)
    if end - begin > LONGEST or end > 2 * LONGEST:
        hours = (end - begin) / 3_600_000
        raise CellbedError(f"{name}: the log spans {hours:,.0f} hours, too long to draw; check its times")
    left = events.filter(kind="-").select(sent=pl.col("time") - pl.col("second"), delay="second")
    return Log(name, begin, end, events, left)


def _events(data: bytes, name: str) -> pl.DataFrame:
    """Return the events of a log: ``time`` (ms), ``kind``, ``value`` and ``second`` (the field after ``value``).

    Errors: :class:`CellbedError`, with the malformed line.
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
        raise CellbedError(f"{name}, line {place}: {why}: {line[:60]!r}")
    return fields
