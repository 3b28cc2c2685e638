"""mm-throughput-graph and mm-delay-graph: a log of mm-link as SVG (standard output) and statistics (standard error)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import polars as pl

from cellbed.report import plot
from cellbed.shell.mahimahi.log import Bins, Figures, Floats, Log, MahimahiLogError, read_log
from cellbed.support.errors import CellbedError
from cellbed_node import inputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_COLUMNS = 920
"""Bins that a picture has room for."""

_THROUGHPUT_USAGE = """\
Usage: mm-throughput-graph MS_PER_BIN [FILENAME]

Draw the rates in a log of mm-link (default: standard input) as SVG on standard output; print statistics on standard
error. MS_PER_BIN: width of a bin, a whole number of ms above 0."""
_DELAY_USAGE = """\
Usage: mm-delay-graph [FILENAME]

Draw the delays in a log of mm-link (default: standard input) as SVG on standard output; print statistics on standard
error."""


def throughput_graph(arguments: Sequence[str] | None = None) -> int:
    """Run the command ``mm-throughput-graph MS_PER_BIN [FILE]``, its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--help"]:
        print(_THROUGHPUT_USAGE)
        return 0
    if not 1 <= len(given) <= 2 or not given[0].isdecimal() or int(given[0]) == 0:
        return _refuse(_THROUGHPUT_USAGE)
    return _draw("mm-throughput-graph", given[1:], lambda file, name: _throughput(file, name, int(given[0])))


def delay_graph(arguments: Sequence[str] | None = None) -> int:
    """Run the command ``mm-delay-graph [FILE]``, its exit status."""
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
    return plot.svg("Throughput", labels, (figures.begin, figures.end), (0, 1.05 * most), draw)


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
        # As an image, and those that fall together drawn once: there may be millions.
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
    return plot.svg("Delay", labels, (figures.begin, figures.end), (least, most), draw, log_y=True)


def _throughput(file: IO[bytes], name: str, bin_ms: int) -> tuple[str, list[str]]:
    log = read_log(file, name)
    figures = log.figures()
    share = figures.utilisation
    used = "" if share is None else f" ({100 * share:.1f}% utilization)"
    lines = [
        f"Average capacity: {figures.capacity:.2f} Mbits/s",
        f"Average throughput: {figures.throughput:.2f} Mbits/s{used}",
        *_delay_lines(figures),
    ]
    return throughput_plot(figures, log.bins(bin_ms), bin_ms), lines


def _delay(file: IO[bytes], name: str) -> tuple[str, list[str]]:
    log = read_log(file, name)
    figures = log.figures()
    return delay_plot(figures, log), _delay_lines(figures)


def _delay_lines(figures: Figures) -> list[str]:
    return [
        f"95th percentile per-packet queueing delay: {figures.delay_95} ms",
        f"95th percentile signal delay: {figures.signal_delay_95} ms",
    ]


def _draw(command: str, given: list[str], draw: Callable[[IO[bytes], str], tuple[str, list[str]]]) -> int:
    try:
        if given and given[0] != "-":
            with inputs.open_file(Path(given[0])) as file:
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


def _thin(values: Floats, count: int) -> Floats:
    """Means of `count` neighbours each."""
    starts = np.arange(0, len(values), count)
    sums: Floats = np.add.reduceat(values, starts)
    return sums / np.diff(np.append(starts, len(values)))


def _span(seconds: float) -> str:
    return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"
