"""mm-throughput-graph and mm-delay-graph: a log of mm-link as SVG (standard output) and statistics (standard error)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from cellbed.errors import CellbedError
from cellbed.report.plot import LEFT, RIGHT, WIDTH, Floats, Plot, Style
from cellbed.shell.mahimahi.events import MahimahiLogError, read_events
from cellbed.shell.mahimahi.figures import Bins, Delays, Figures, Summary, summarised

MOST_COLUMNS = WIDTH - LEFT - RIGHT
"""Bins that a picture has room for."""

_THROUGHPUT_USAGE = """\
Usage: mm-throughput-graph MS_PER_BIN [FILENAME]

Draw the rates in a log of mm-link (default: standard input) as SVG on standard output; print statistics on standard
error. MS_PER_BIN: width of a bin, a whole number of ms above 0."""
_DELAY_USAGE = """\
Usage: mm-delay-graph [FILENAME]

Draw the delays in a log of mm-link (default: standard input) as SVG on standard output; print statistics on standard
error."""

CAPACITY = Style("#c3cfe2", opacity=0.75)
INGRESS = Style("#1b4a82", width=3.5)
EGRESS = Style("#e8782a", width=1.75)
SIGNAL = Style("#2f74c0", opacity=0.4)
PACKETS = Style("#b3261e", width=1.2, opacity=0.8)
SIGNAL_95 = Style("#2f74c0", width=6, opacity=0.55)
PACKETS_95 = Style("#b3261e", width=6, opacity=0.5)


def throughput_graph(arguments: Sequence[str] | None = None) -> int:
    """The command ``mm-throughput-graph MS_PER_BIN [FILE]``; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--help"]:
        print(_THROUGHPUT_USAGE)
        return 0
    if not 1 <= len(given) <= 2 or not given[0].isdecimal() or int(given[0]) == 0:
        return _refuse(_THROUGHPUT_USAGE)
    return _draw("mm-throughput-graph", given[1:], lambda file, name: _throughput(file, name, int(given[0])))


def delay_graph(arguments: Sequence[str] | None = None) -> int:
    """The command ``mm-delay-graph [FILE]``; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--help"]:
        print(_DELAY_USAGE)
        return 0
    if len(given) > 1:
        return _refuse(_DELAY_USAGE)
    return _draw("mm-delay-graph", given, _delay)


def throughput_plot(figures: Figures, bins: Bins, bin_ms: int) -> str:
    """The picture of rates over time."""
    joined = -(-len(bins.capacity) // MOST_COLUMNS)
    width = bin_ms * joined / 1000
    capacity, ingress, egress = (_joined(column, joined) for column in (bins.capacity, bins.ingress, bins.egress))
    times = bins.first * bin_ms / 1000 + np.arange(len(capacity)) * width
    most = max(1e-3, *(float(column.max()) for column in (capacity, ingress, egress)))
    plot = Plot("Throughput", "time (s)", f"throughput (Mbit/s, bins of {_span(width)})",
                (figures.begin, figures.end), (0, 1.05 * most))  # fmt: skip
    plot.area(times, capacity, CAPACITY, f"Capacity (mean {figures.capacity:.2f} Mbit/s)")
    plot.line(times, ingress, INGRESS, f"Traffic ingress (mean {figures.ingress:.2f} Mbit/s)")
    plot.line(times, egress, EGRESS, f"Traffic egress (mean {figures.throughput:.2f} Mbit/s)")
    return plot.svg()


def delay_plot(figures: Figures, delays: Delays) -> str:
    """The picture of delays over time."""
    signal, step = delays.signal, -(-len(delays.signal) // MOST_COLUMNS)
    least = max(1, min(30, figures.median_delay))
    most = max(2.0 * least, 1.2 * float(max(signal.max(), figures.delay_95)))
    plot = Plot("Delay", "time (s)", "delay (ms)", (figures.begin, figures.end), (least, most), log_y=True)
    highest = np.maximum.reduceat(signal, np.arange(0, len(signal), step))
    times = (delays.first + np.arange(len(highest)) * step) / 1000
    plot.area(times, highest, SIGNAL, "Signal delay")
    plot.dots(delays.time / 1000, delays.delay, PACKETS, "Per-packet delay")
    ends = (figures.begin, figures.end)
    for value, style, name in (
        (figures.signal_delay_95, SIGNAL_95, "signal delay"),
        (figures.delay_95, PACKETS_95, "per-packet delay"),
    ):
        plot.line(ends, (value, value), style, f"95th percentile {name} ({value} ms)")
    return plot.svg()


def _throughput(file: IO[bytes], name: str, bin_ms: int) -> tuple[str, list[str]]:
    summary = summarised(read_events(file, name), Summary(name, bin_ms))
    figures = summary.figures()
    share = figures.utilisation
    used = "" if share is None else f" ({100 * share:.1f}% utilization)"
    lines = [
        f"Average capacity: {figures.capacity:.2f} Mbits/s",
        f"Average throughput: {figures.throughput:.2f} Mbits/s{used}",
        *_delay_lines(figures),
    ]
    return throughput_plot(figures, summary.bins(), bin_ms), lines


def _delay(file: IO[bytes], name: str) -> tuple[str, list[str]]:
    summary = summarised(read_events(file, name), Summary(name, points=True))
    figures = summary.figures()
    return delay_plot(figures, summary.delays()), _delay_lines(figures)


def _delay_lines(figures: Figures) -> list[str]:
    return [
        f"95th percentile per-packet queueing delay: {figures.delay_95} ms",
        f"95th percentile signal delay: {figures.signal_delay_95} ms",
    ]


def _draw(command: str, given: list[str], draw: Callable[[IO[bytes], str], tuple[str, list[str]]]) -> int:
    try:
        if given and given[0] != "-":
            with Path(given[0]).open("rb") as file:
                picture, lines = draw(file, given[0])
        else:
            picture, lines = draw(sys.stdin.buffer, "standard input")
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
    return MahimahiLogError.exit_code


def _joined(values: Floats, count: int) -> Floats:
    """Means of `count` neighbours each."""
    starts = np.arange(0, len(values), count)
    sums: Floats = np.add.reduceat(values, starts)
    return sums / np.diff(np.append(starts, len(values)))


def _span(seconds: float) -> str:
    return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"
