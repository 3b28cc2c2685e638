"""Pictures of traces by matplotlib: one entry, or several entries on the same axes."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from cellbed.archive.catalogue import entry_and_part
from cellbed.archive.entry import About, second_of_day
from cellbed.archive.errors import TraceError
from cellbed.archive.series import PARTS, Part
from cellbed.archive.statistics import DEFAULT, Analysis, Definition, Statistics, analyse
from cellbed.archive.store import Archive
from cellbed.archive.warnings import PAUSE_INTERVALS
from cellbed.report import plot, trace_tables
from cellbed.report.plot import MUTED, draw_file, label_decades, palette
from cellbed.support.errors import CellbedError
from cellbed.support.readable import Unit, date_words, duration_words, rate_unit, rate_words
from cellbed.support.ways import Way
from cellbed.support.whole_files import write_whole

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

Floats = NDArray[np.float64]
Parts = Mapping[Part, Analysis]
Drawn = list[tuple[str, str, Analysis]]
"""Series on the same axes: name, colour, and its analysis."""

COLOURS: Final[dict[Part, str]] = {
    "uplink": palette("uplink")[1],
    "downlink": palette("downlink")[1],
    "round-trip": palette("remote")[0],
}
SEVERAL: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8a6d00", "#7b3294", "#444444")
"""Colours of several entries, which most colour-blind people can distinguish (after Okabe and Ito, 2008)."""
_LOST: Final = "#b3261e"
_MOST_POINTS: Final = 700
_LONGER: Final = 4
"""Maximum ratio of durations drawn in full: at higher ratios, a common axis would show little of the shorter series."""
_NOTE_WIDTH = 165
"""Maximum characters per line of a panel's note across the whole picture."""
_TITLE_WIDTH = 80
_KEY_FIGURES: Final = {"mean_bit_s": "Mean rate", "p50_ms": "Median", "outage_longest_ms": "Longest outage"}
"""Statistics in the head of a page."""
_STEP_DB = 3
"""Width of the steps of power with one median, dB."""
_BESIDE = 4
"""Number of legend entries per line."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes. draw: draws into them. end: end of the time axis, common to all full-width panels; ``None`` for
    a panel that shares its line. note: figures above the axes. height: inches."""

    title: str
    x_label: str
    y_label: str
    draw: Callable[[Axes], None]
    note: str = ""
    end: float | None = None
    height: float = 3.1


@dataclass(frozen=True, slots=True)
class Picture:
    """Panels under one title. about: a sentence beside it. tiles: key figures for a page. tables: its tables."""

    title: str
    about: str
    panels: list[Panel]
    tables: Sequence[tuple[str, Table]]
    tiles: Sequence[tuple[str, str, str]] = ()


class PictureError(CellbedError):
    """A picture cannot be written to the given path."""


def portrait(name: str, about: About, parts: Parts, signal: Mapping[Way, pl.DataFrame] | None = None) -> Picture:
    """Return the picture of one entry. signal: rates and powers by direction (`rates_and_rsrp`)."""
    panels = []
    ways: Drawn = [(part.capitalize(), COLOURS[part], found) for part, found in parts.items() if part != "round-trip"]
    trips = parts.get("round-trip")
    probes: Drawn = [] if trips is None else [("Round-trip time", COLOURS["round-trip"], trips)]
    if ways:
        end_s = _end(found for *_, found in ways)
        panels += [_rates(ways, "Rate over time", end_s), _outages(ways, "Outages", end_s)]
    if trips is not None:
        panels.append(_trips_over_time(probes, _end([trips])))
    if any(found.distributions for *_, found in ways):
        panels.append(_rate_distribution(ways, "Distribution of the rate", ("100ms", "1s")))
    if signal:
        panels.append(_rates_over_rsrp(signal))
    if hours := _by_hour(ways, "hourly_mean_bit_s"):
        panels.append(hours)
    if trips is not None and trips.distributions:
        panels.append(_trip_distribution(probes))
    if hours := _by_hour(probes, "hourly_p50_ms", "hourly_p95_ms"):
        panels.append(hours)
    words = sentence(about, max((found.duration_ns for found in parts.values()), default=0))
    figures = _statistics(parts)
    tiles = [
        (f"{label}, {part}", trace_tables.words(key, of[key]), "")
        for key, label in _KEY_FIGURES.items()
        for part, of in figures.items()
        if key in of
    ]
    return Picture(name, words, panels, [("Statistics", trace_tables.entry_table(figures))], tiles)


def comparison(entries: Mapping[str, Parts], directions: tuple[Part, ...] = PARTS) -> Picture:
    """Return a picture of several entries on the same axes: each direction over time, then the distributions.

    If an entry is much longer than another, the axes over time end where the shorter entry can still be seen well.
    """
    panels, distributions = [], []
    ways = [of for of in directions if of != "round-trip"]
    end_s, cut = _visible_span([parts[of] for parts in entries.values() for of in ways if of in parts])
    colours = {name: SEVERAL[number % len(SEVERAL)] for number, name in enumerate(entries)}
    for part in directions:
        having: Drawn = [(name, colours[name], parts[part]) for name, parts in entries.items() if part in parts]
        if not having:
            continue
        measured = [each for each in having if each[2].distributions]
        if part == "round-trip":
            trips_end_s, trips_cut = _visible_span([found for *_, found in having])
            panel = _trips_over_time(having, trips_end_s)
            panels.append(replace(panel, note=panel.note + trips_cut))
            distributions += [_trip_distribution(measured)] if measured else []
        else:
            word = part.capitalize()
            rates = _rates(having, f"{word}: rate over time", end_s)
            outages = _outages(having, f"{word}: outages", end_s)
            counted = f"{cut}, numbers are of all" if cut else ""
            panels += [replace(rates, note=rates.note + cut), replace(outages, note=outages.note + counted)]
            title = f"{word}: distribution of the rate"
            distributions += [_rate_distribution(measured, title, ("100ms",))] if measured else []
    figures = {name: _statistics(parts) for name, parts in entries.items()}
    tables = trace_tables.comparison_tables(figures, directions)
    headed = [(f"{part.capitalize()}: statistics", table) for part, table in tables]
    return Picture(" · ".join(entries), "", panels + distributions, headed)


def _statistics(parts: Parts) -> dict[Part, Statistics]:
    return {part: found.statistics for part, found in parts.items()}


def sentence(about: About, duration_ns: int) -> str:
    """Return an entry in words: ``"synthetic, 4g, driving, Delft, 2021-04, 120 s"``."""
    when = None if about.date is None else date_words(about.date)
    known = (about.origin, about.technology, about.band, about.operator, about.mobility, about.place, when)
    return ", ".join([*(each for each in known if each), duration_words(duration_ns / 1e9)])


def typical_and_high(figures: Mapping[str, Any]) -> str:
    """Return the median of round-trip times, and their P99 or the highest percentile that their number supports."""
    high = next((at for at in (99, 95, 90) if f"p{at}_ms" in figures), None)
    median = duration_words(figures["p50_ms"] / 1e3)
    return median if high is None else f"{median}, P{high} {duration_words(figures[f'p{high}_ms'] / 1e3)}"


# ---- panels


def _rates(of: Drawn, title: str, end_s: float) -> Panel:
    profiles = [(name, colour, *_thin(found)) for name, colour, found in of]
    unit = rate_unit(max((float(y.max()) for *_, y in profiles if len(y)), default=0.0))
    clock = _clock(end_s)
    words = [duration_words(width) for width in sorted({float(x[1] - x[0]) for *_, x, _ in profiles})]
    over = f" · means over {' and '.join(words) if len(words) < 3 else f'{words[0]} to {words[-1]}'}"
    notes = [f"{name} mean {rate_words(found.statistics['mean_bit_s'])}" for name, _, found in of]

    def draw(axes: Axes) -> None:
        for name, colour, x, y in profiles:
            axes.plot(x * clock.factor, y * unit.factor, color=colour, label=name, drawstyle="steps-post")
        axes.set_ylim(0, None)
        _legend(axes, len(of))

    label = f"rate, {unit.name}"
    return Panel(title, _since_start(clock), label, draw, " · ".join(notes) + over, end_s * clock.factor, 2.7)


def _outages(of: Drawn, title: str, end_s: float) -> Panel:
    least = min(found.statistics["outage_from_ms"] for *_, found in of)
    clock = _clock(end_s)
    notes = [f"no opportunity for {duration_words(least / 1e3)} or more"]
    for name, _, found in of if len(of) <= 2 else ():
        if found.statistics["outages"]:
            longest = duration_words(found.statistics["outage_longest_ms"] / 1e3)
            notes.append(f"{name} {found.statistics['outage_share'] * 100:.2g} % of the time, longest {longest}")

    def draw(axes: Axes) -> None:
        for row, (_, colour, found) in enumerate(of):
            spans = zip(*(each * clock.factor for each in found.outages), strict=True)
            axes.broken_barh(list(spans), (row - 0.36, 0.72), facecolors=colour, edgecolors=colour, linewidth=0.8)
        axes.set_yticks(range(len(of)), [f"{_cut(name, 30)}: {found.statistics['outages']}" for name, _, found in of])
        axes.set_ylim(len(of) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")

    height = 0.75 + 0.24 * len(of)
    return Panel(title, _since_start(clock), "", draw, " · ".join(notes), end_s * clock.factor, height)


def _rate_distribution(of: Drawn, title: str, scales: Sequence[str]) -> Panel:
    largest = max(float(values[-1]) for *_, found in of for values, _ in found.distributions.values())
    unit = rate_unit(largest / 2)

    def draw(axes: Axes) -> None:
        for name, colour, found in of:
            for scale in [scale for scale in scales if scale in found.distributions] or list(found.distributions)[:1]:
                values, shares = _visible(*found.distributions[scale])
                dash = (0, (4, 2)) if scale == "1s" and len(scales) > 1 else "-"
                label = f"{_cut(name, 40)}, over {scale.replace('ms', ' ms').replace('1s', '1 s')}"
                _steps(axes, values * unit.factor, shares, colour, label, linestyle=dash)
        axes.set_xlim(0, None)

    return Panel(title, f"rate, {unit.name}", "share at most that, %", draw)


def _rates_over_rsrp(signal: Mapping[Way, pl.DataFrame]) -> Panel:
    unit = rate_unit(max(float(rows["rate_bit_s"].max()) for rows in signal.values()))  # type: ignore[arg-type]

    def draw(axes: Axes) -> None:
        for part, rows in signal.items():
            rates = rows["rate_bit_s"].to_numpy() * unit.factor
            levels = np.round(rows["rsrp_dbm"].to_numpy() / _STEP_DB) * _STEP_DB
            at = np.unique(levels)
            axes.plot(rows["rsrp_dbm"], rates, ".", color=COLOURS[part], alpha=0.3, markersize=3)
            medians = [float(np.median(rates[levels == level])) for level in at]
            axes.plot(
                at, medians, color=COLOURS[part], marker="o", markersize=3.5, label=f"{part.capitalize()}, median"
            )
        axes.set_ylim(0, None)
        axes.legend(loc="best")

    note = f"rates over 200 ms under saturation, medians over {_STEP_DB} dB"
    return Panel("Rate over signal power", "RSRP, dBm", f"rate, {unit.name}", draw, note)


def _trip_distribution(of: Drawn) -> Panel:
    def draw(axes: Axes) -> None:
        for name, colour, found in of:
            values, shares = _visible(*found.distributions[""], least=0.999)  # the axis is logarithmic
            _steps(axes, values, shares, colour, _cut(name, 40))
        axes.set_xscale("log")
        label_decades(axes.xaxis, *axes.get_xlim())

    label = "round-trip time (logarithmic), ms"
    return Panel("Distribution of the round-trip time", label, "share at most that, %", draw)


def _steps(axes: Axes, x: Floats, shares: Floats, colour: str, label: str, **style: Any) -> None:
    axes.plot(x, shares * 100, color=colour, label=label, drawstyle="steps-post", **style)
    axes.set_ylim(0, 101)
    axes.legend(loc="best")


def _trips_over_time(of: Drawn, end_s: float) -> Panel:
    clock = _clock(end_s)
    log = any(found.statistics.get("most_ms", 0) > 5 * found.statistics.get("p50_ms", 1) for *_, found in of)
    notes = [
        f"{name} median {typical_and_high(found.statistics)}, lost {found.statistics['loss'] * 100:.2g} %"
        for name, _, found in of
        if "p50_ms" in found.statistics
    ]
    widths = [found.step_ns / 1e9 for *_, found in of if not _single(found)]
    band = ", and least to most," if len(of) == 1 else ""
    over = [f"means{band} of {duration_words(max(widths))}"] if widths else []
    over += ["single probes"] if len(widths) < len(of) else []

    def draw(axes: Axes) -> None:
        for name, colour, found in of:
            _trips(axes, name, colour, found, clock, log, alone=len(of) == 1)
        if log:
            axes.set_yscale("log")
            label_decades(axes.yaxis, *axes.get_ylim())
        else:
            axes.set_ylim(0, None)
        _legend(axes, len(axes.lines))

    label = "round-trip time (logarithmic), ms" if log else "round-trip time, ms"
    note = " · ".join([*notes, " and ".join(over)])
    return Panel("Round-trip time over time", _since_start(clock), label, draw, note, end_s * clock.factor, 2.7)


def _trips(axes: Axes, name: str, colour: str, found: Analysis, clock: Unit, log: bool, *, alone: bool) -> None:
    """Draw round-trip times over time: each probe, or means. Lines break at lost or missing probes."""
    assert found.low is not None, "of round-trip times"
    assert found.high is not None, "of round-trip times"
    assert found.lost is not None, "of round-trip times"
    x = (np.arange(len(found.profile)) + 0.5) * (found.step_ns / 1e9 * clock.factor)
    dots: Any = {"linestyle": "none", "marker": "o", "markersize": 2.2, "alpha": 0.65, "clip_on": False}
    known = np.isfinite(found.profile)
    if _single(found):
        axes.plot(x[known], found.profile[known], color=colour, label=_cut(name, 40), **dots)
    else:
        interval_ns = found.statistics.get("interval_ms", 0.0) * 1e6
        shown = np.flatnonzero(known | (found.lost > 0))
        pauses = np.flatnonzero(np.diff(shown) * found.step_ns > max(found.step_ns, PAUSE_INTERVALS * interval_ns))
        shown = np.insert(shown, pauses + 1, shown[pauses] + 1)
        if alone:
            axes.fill_between(x[shown], found.low[shown], found.high[shown], color=colour, alpha=0.25, linewidth=0)
        axes.plot(x[shown], found.profile[shown], color=colour, label=_cut(name, 40))
    if alone and found.lost.any():
        at = x[found.lost > 0]
        floor = found.statistics.get("least_ms", 1.0) if log else 0.0
        axes.plot(at, np.full(len(at), floor), color=_LOST, label="lost", **dots)


def _single(found: Analysis) -> bool:
    """Return whether probes are so rare that a mean would cover a single probe."""
    return bool(found.statistics.get("interval_ms", 0.0) * 1e6 >= found.step_ns)


def _by_hour(of: Drawn, *keys: str) -> Panel | None:
    """Return figures by hour: of the day if all series have a begin time, else since the start; None for fewer than
    three hours."""
    having = [each for each in of if len(each[2].statistics.get("hours", ())) > 2]
    if not having:
        return None
    figures = [found.statistics for *_, found in having]
    known = all(each["hours_known"] for each in figures)
    is_rate = keys[0].endswith("bit_s")
    unit = rate_unit(max(max(each[keys[0]]) for each in figures)) if is_rate else Unit("ms", 1.0)
    where = "of the day" if known else "since the start"

    def draw(axes: Axes) -> None:
        for (name, colour, _), each in zip(having, figures, strict=True):
            hours = np.array(each["hours"], float)
            gaps = np.flatnonzero(np.diff(hours) > 1) + 1  # no line across hours without data
            for key in keys:
                values = np.insert(np.array(each[key], float) * unit.factor, gaps, np.nan)
                label = name if is_rate else {"hourly_p50_ms": "median"}.get(key, "P95")
                x = np.insert(hours, gaps, hours[gaps] - 0.5)
                axes.plot(
                    x, values, color=colour, label=label, marker="o", markersize=3.5, alpha=0.65 ** keys.index(key)
                )
        axes.set_ylim(0, axes.get_ylim()[1] * 1.2)
        axes.legend(loc="best")

    what = "Mean rate" if is_rate else "Round-trip time"
    label = f"{'rate' if is_rate else 'round-trip time'}, {unit.name}"
    return Panel(f"{what} by hour {where}", f"hour {where}", label, draw)


def _legend(axes: Axes, count: int) -> None:
    """Make room above the curves for a legend, if there are several."""
    if count < 2:
        return
    share = 0.04 + 0.13 * -(-count // _BESIDE)
    low, high = axes.get_ylim()
    top = high * (high / low) ** share if axes.get_yscale() == "log" else high * (1 + share)
    axes.set_ylim(low, max(top, 1e-9))
    axes.legend(loc="upper right", ncols=_BESIDE)


def _end(analyses: Iterable[Analysis]) -> float:
    """Return the longest duration, seconds."""
    return max((found.duration_ns for found in analyses), default=0) / 1e9


def _visible_span(analyses: Sequence[Analysis]) -> tuple[float, str]:
    """Return the time drawn for several series, seconds, and a note on the rest."""
    whole, shortest = _end(analyses), min((found.duration_ns for found in analyses), default=0) / 1e9
    if whole <= _LONGER * shortest:
        return whole, ""
    end_s = _LONGER / 2 * shortest
    return end_s, f" · drawn are the first {duration_words(end_s)} of {duration_words(whole)}"


def _clock(longest_s: float) -> Unit:
    """Return the unit of a time axis of this length."""
    return Unit("h", 1 / 3600) if longest_s > 3 * 3600 else Unit("s", 1.0)


def _since_start(clock: Unit) -> str:
    return f"time since the start, {clock.name}"


def _thin(found: Analysis) -> tuple[Floats, Floats]:
    """Return at most _MOST_POINTS means of neighbouring steps, each at the begin of its bin in s; the last mean also at
    the end of its bin. A series shorter than a bin gives its mean.
    """
    if not len(found.profile):
        mean = found.statistics["mean_bit_s"]
        return np.array([0.0, found.duration_ns / 1e9]), np.array([mean, mean])
    factor = max(1, -(-len(found.profile) // _MOST_POINTS))
    begins = np.arange(0, len(found.profile), factor)
    edges = np.append(begins, len(found.profile))
    means: Floats = np.add.reduceat(found.profile, begins) / np.diff(edges)
    return edges * (found.step_ns / 1e9), np.append(means, means[-1])


def _visible(values: Floats, shares: Floats, least: float = 0.0) -> tuple[Floats, Floats]:
    """Return the visible steps of a distribution function. The first step is from 0, at `least` times the first
    value."""
    if len(values) > _MOST_POINTS:
        kept = np.searchsorted(shares, np.linspace(0, 1, _MOST_POINTS)[1:] - 1e-12)
        kept = np.unique(np.concatenate(([0], kept, [len(values) - 1])))
        values, shares = values[kept], shares[kept]
    if len(values) and values[0] > 0:
        values, shares = np.append(least * values[0], values), np.append(0.0, shares)
    return values, shares


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# ---- files


def draw(picture: Picture, ending: Literal["png", "svg"]) -> bytes:
    """Return the picture as a file of this format: 11 inches wide, 150 dots per inch."""
    return draw_file(ending, lambda: _figure(picture), picture.title)


def _figure(picture: Picture) -> Figure:
    from matplotlib.figure import Figure

    lines = _lines(picture.panels)
    heights = [max(panel.height + 0.15 * max(0, len(_note(panel, len(line))) - 1) for panel in line) for line in lines]
    title = textwrap.wrap(picture.title, _TITLE_WIDTH) or [""]
    height = sum(heights) + 0.5 + 0.25 * len(title)
    figure = Figure(figsize=(11, height), layout="constrained")
    figure.suptitle("\n".join(title), x=0.012, ha="left", fontsize=14, fontweight="bold")
    figure.text(0.988, 1 - 0.24 / height, _cut(picture.about, 80), ha="right", color=MUTED)
    grid = figure.add_gridspec(len(lines), 12, height_ratios=heights)
    aligned: dict[float, Axes] = {}
    for number, line in enumerate(lines):
        width = 12 // len(line)
        for place, panel in enumerate(line):
            above = None if panel.end is None else aligned.get(panel.end)
            axes = figure.add_subplot(grid[number, place * width : (place + 1) * width], sharex=above)
            fill(axes, panel, len(line))
            if panel.end is not None:
                aligned.setdefault(panel.end, axes)
    return figure


def _lines(panels: list[Panel]) -> list[list[Panel]]:
    """Return the lines of panels: a panel over time has a line alone; two or three other panels share a line."""
    lines: list[list[Panel]] = []
    most = 3 if sum(panel.end is None for panel in panels) % 3 == 0 else 2
    for panel in panels:
        if panel.end is None and lines and lines[-1][-1].end is None and len(lines[-1]) < most:
            lines[-1].append(panel)
        else:
            lines.append([panel])
    return lines


def _note(panel: Panel, beside: int) -> list[str]:
    return textwrap.wrap(panel.note, _NOTE_WIDTH // beside - 4)


def fill(axes: Axes, panel: Panel, beside: int) -> None:
    """Draw a panel. beside: number of panels in its line."""
    lines = _note(panel, beside)
    axes.set_title(panel.title, pad=6 + 11 * len(lines))
    place: Any = {"xycoords": "axes fraction", "textcoords": "offset points"}
    note = axes.annotate("\n".join(lines), (0, 1), xytext=(0, 5), color=MUTED, fontsize=8, **place)
    note.set_in_layout(False)  # a long note must not make the axes narrower
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    panel.draw(axes)
    if panel.end is not None:
        axes.set_xlim(0, panel.end)


def require_ending(path: Path) -> Literal["png", "svg", "html"]:
    """Return the format of a picture's file. Raises PictureError for an unknown format."""
    match path.suffix.lower():
        case ".png":
            return "png"
        case ".svg":
            return "svg"
        case ".html":
            return "html"
    raise PictureError(f"{path}: a picture's name ends with .png, .svg or .html")


def write_picture(picture: Picture, path: Path) -> None:
    """Write a picture, or the page with its panels and tables, atomically. Raises PictureError."""
    ending = require_ending(path)
    content = _page(picture).encode() if ending == "html" else draw(picture, ending)
    try:
        write_whole(path, content)
    except OSError as error:
        raise PictureError(f"{path}: cannot be written: {error.strerror}") from None


def _page(picture: Picture) -> str:
    from cellbed.report import html
    from cellbed.report.head import Head

    names, several, synthetic = picture.title.split(" · "), not picture.about, picture.about.startswith("synthetic")
    head = Head(
        title=picture.title,
        kind="traces" if several else "trace",
        asked=[f"How {' and '.join(names)} differ." if several else f"How this network behaves: {picture.about}."],
        tiles=picture.tiles,
        answers=[f"{panel.title}: {panel.note}." for panel in picture.panels if panel.note and panel.end is not None],
        trust="with care" if synthetic else "yes",
        reasons=["made by a model, not recorded" if synthetic else "computed from the whole entry"],
        next=[
            ("Play it in a scenario", f'[links.mobile] up = "{names[0]}.up", down = "{names[0]}.down"'),
            ("Compare it with others", f"cellbed traces compare {' '.join(names)} OTHER -o comparison.html"),
        ],
    )
    sections: list[html.Section] = [
        *((panel.title, [plot.element(panel.title, partial(_alone, panel))], []) for panel in picture.panels),
        *((heading, [], [("", table)]) for heading, table in picture.tables),
    ]
    return html.fill_template("recording.html", head, sections=sections)


def _alone(panel: Panel) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, panel.height + 0.3), layout="constrained")
    fill(figure.add_subplot(), replace(panel, title=""), 1)
    return figure


def analyse_entry(
    archive: Archive, name: str, definition: Definition = DEFAULT, parts: Iterable[Part] = PARTS
) -> dict[Part, Analysis]:
    """Return the parts of an entry, or the direction that `name` selects, read completely.

    Raises TraceError, also if the entry has none of the parts.
    """
    text, asked = name, tuple(parts)
    name, only = entry_and_part(archive, text)
    entry = archive.entry(name)
    starts = second_of_day(entry.about)
    wanted = [part for part in asked if part in entry.parts and only in (None, part)]
    if not wanted:
        has = " and ".join(entry.parts) or "only a recording of two workloads: `cellbed traces export` gives its rates"
        has = has if only is None or only in asked else f"only the {only}"
        lacks = only if only in asked else " or ".join(asked)
        raise TraceError(f"'{text}' has no {lacks}: it has {has}")
    return {part: analyse(archive.series(name, part), definition, starts) for part in wanted}
