"""Contents of a picture of one entry, or of several on the same axes: axes with units, curves, spans of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from cellbed.archive.entry import About
from cellbed.archive.series import PARTS, Part
from cellbed.archive.statistics import Analysis
from cellbed.archive.warnings import PAUSE_INTERVALS
from cellbed.report.plot import of_place
from cellbed.support.readable import Unit, date_words, duration_words, rate_unit, rate_words, significant

Floats = NDArray[np.float64]
Kind = Literal["time", "spans", "distribution", "scatter", "hours"]


@dataclass(frozen=True, slots=True)
class Curve:
    """y over x, NaN where nothing is known. low, high: the band about it. dots: no line. faint: it stands back.

    steps: y holds from its x to the next one.
    """

    name: str
    colour: str
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    dots: bool = False
    faint: bool = False
    steps: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Spans of time in a row of their own: where each begins and how long it lasts, in the unit of the axis."""

    name: str
    colour: str
    begins: Floats
    lengths: Floats


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes.

    kind: ``time`` and ``spans`` share the horizontal axis of the picture. note: a line of figures above it.
    end: where the horizontal axis ends; of hours the last one, or None where they are of the day: then it has all 24.
    """

    kind: Kind
    title: str
    x_label: str
    y_label: str
    curves: list[Curve] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    note: str = ""
    log_x: bool = False
    log_y: bool = False
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """Panels under one title. about: what the title leaves open."""

    title: str
    about: str
    panels: list[Panel]


def time_unit(longest_s: float) -> Unit:
    """Return the unit of an axis of time that is this long."""
    return Unit("h", 1 / 3600) if longest_s > 3 * 3600 else Unit("s", 1.0)


Parts = Mapping[Part, Analysis]

COLOURS: Final[dict[Part, str]] = {
    "uplink": of_place("uplink")[1],
    "downlink": of_place("downlink")[1],
    "round-trip": of_place("remote")[0],
}
SEVERAL: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8a6d00", "#7b3294", "#444444")
"""Colours of several entries, which most colour-blind people can distinguish (after Okabe and Ito, 2008)."""
MOST_POINTS: Final = 700
_LONGER: Final = 4
"""One series is so many times as long as another, and both on one axis would leave little of the shorter."""
_DAY_NS: Final = 86_400 * 10**9
_LOGARITHMIC: Final = "round-trip time (logarithmic), ms"
_LOST: Final = "#b3261e"
_OF_DAY: Final = {True: "of the day", False: "since the start"}
_FOLDED: Final = ", days on top of each other"


def portrait(name: str, about: About, parts: Parts) -> Picture:
    """Return the picture of one entry."""
    panels = []
    capacity: dict[Part, Analysis] = {part: found for part, found in parts.items() if part != "round-trip"}
    if capacity:
        colours = [(part.capitalize(), COLOURS[part], found) for part, found in capacity.items()]
        end_s = _end(capacity.values())
        panels += [_rates(colours, "Rate over time", end_s), _outages(colours, end_s)]
    trips = parts.get("round-trip")
    if trips is not None:
        drawn = [("Round-trip time", COLOURS["round-trip"], trips)]
        panels.append(_trips_over_time(drawn, _end([trips])))
    if any(found.distributions for found in capacity.values()):
        panels.append(_rate_distribution(colours, both_scales=True))
    if len(capacity) == 2 and all(len(found.seconds) > 1 for found in capacity.values()):
        panels.append(_asymmetry(capacity["uplink"], capacity["downlink"]))
    if any(len(found.statistics.get("hours", [])) > 2 for found in capacity.values()):
        panels.append(_rates_by_hour(capacity))
    if trips is not None and trips.distributions:
        panels.append(_trip_distribution(drawn))
    if trips is not None and "hours" in trips.statistics:
        panels.append(_hours(trips))
    return Picture(name, sentence(about, max((found.duration_ns for found in parts.values()), default=0)), panels)


def comparison(entries: Mapping[str, Parts], directions: tuple[Part, ...] = PARTS) -> Picture:
    """Several entries on the same axes: over time one direction after the other, then the distributions.

    Where one lasts much longer than another, the axes over time end when the shorter one is seen well.
    """
    panels, distributions = [], []
    ways = [of for of in directions if of != "round-trip"]
    end_s, cut = _seen([parts[of] for parts in entries.values() for of in ways if of in parts])
    for part in directions:
        having = [(name, parts[part]) for name, parts in entries.items() if part in parts]
        if not having:
            continue
        names = list(entries)
        drawn = [(name, SEVERAL[names.index(name) % len(SEVERAL)], found) for name, found in having]
        if part == "round-trip":
            trips_end_s, trips_cut = _seen([found for _, found in having])
            panel = _trips_over_time(drawn, trips_end_s)
            panels.append(replace(panel, note=panel.note + trips_cut))
            if any(found.distributions for _, found in having):
                distributions.append(_trip_distribution([each for each in drawn if each[2].distributions]))
        else:
            word = part.capitalize()
            rates, outages = _rates(drawn, f"{word}: rate over time", end_s), _outages(drawn, end_s, word)
            counted = f"{cut}, numbers are of all" if cut else ""
            panels += [replace(rates, note=rates.note + cut), replace(outages, note=outages.note + counted)]
            if any(found.distributions for _, found in having):
                distributions.append(_rate_distribution(drawn, both_scales=False, word=word))
    return Picture(" · ".join(entries), "", panels + distributions)


def sentence(about: About, duration_ns: int) -> str:
    """``"synthetic, 4g, driving, Delft, 2021-04, 120 s"``."""
    when = None if about.date is None else date_words(about.date)
    known = (about.origin, about.technology, about.band, about.operator, about.mobility, about.place, when)
    return ", ".join([*(each for each in known if each), duration_words(duration_ns / 1e9)])


_Drawn = list[tuple[str, str, Analysis]]


def _rates(drawn: _Drawn, title: str, end_s: float) -> Panel:
    profiles = [(name, colour, *_thinned(found)) for name, colour, found in drawn]
    unit = rate_unit(max((float(y.max()) for *_, y in profiles if len(y)), default=0.0))
    widths = sorted({float(x[1] - x[0]) for *_, x, _ in profiles})
    clock = time_unit(end_s)
    words = [duration_words(width) for width in widths]
    over = f" · means over {' and '.join(words) if len(words) < 3 else f'{words[0]} to {words[-1]}'}"
    notes = [f"{name} mean {rate_words(found.statistics['mean_bit_s'])}" for name, _, found in drawn]
    return Panel(
        "time",
        title,
        _since_start(clock),
        f"rate, {unit.name}",
        [Curve(name, colour, x * clock.factor, y * unit.factor, steps=True) for name, colour, x, y in profiles],
        note=" · ".join(notes) + over,
        end=end_s * clock.factor,
    )


def _outages(drawn: _Drawn, end_s: float, word: str = "") -> Panel:
    least = min(found.statistics["outage_from_ms"] for *_, found in drawn)
    clock = time_unit(end_s)
    notes, rows = [f"no opportunity for {duration_words(least / 1e3)} or more"], []
    for name, colour, found in drawn:
        count = found.statistics["outages"]
        share = found.statistics["outage_share"] * 100
        longest = found.statistics.get("outage_longest_ms", 0) / 1e3
        begins, lengths = found.outages
        rows.append(Row(f"{name}: {count}", colour, begins * clock.factor, lengths * clock.factor))
        if len(drawn) <= 2 and count:
            notes.append(f"{name} {share:.2g} % of the time, longest {duration_words(longest)}")
    return Panel(
        "spans",
        f"{word}: outages" if word else "Outages",
        _since_start(clock),
        "",
        rows=rows,
        note=" · ".join(notes),
        end=end_s * clock.factor,
    )


def _rate_distribution(drawn: _Drawn, *, both_scales: bool, word: str = "") -> Panel:
    curves, largest = [], 0.0
    for *_, found in drawn:
        largest = max(largest, *(float(values[-1]) for values, _ in found.distributions.values()), 0.0)
    unit = rate_unit(largest / 2)
    for name, colour, found in drawn:
        scales = [scale for scale in ("100ms", "1s") if scale in found.distributions]
        for number, scale in enumerate(scales if both_scales else scales[:1]):
            values, shares = _visible(*found.distributions[scale])
            label = f"{name}, over {scale.replace('ms', ' ms') if 'ms' in scale else '1 s'}"
            curves.append(Curve(label, colour, values * unit.factor, shares * 100, faint=number == 1, steps=True))
    title = f"{word}: distribution of the rate" if word else "Distribution of the rate"
    return Panel("distribution", title, f"rate, {unit.name}", "share at most that, %", curves)


def _asymmetry(uplink: Analysis, downlink: Analysis) -> Panel:
    """Return the rates of the two directions in the same seconds."""
    count = min(len(uplink.seconds), len(downlink.seconds))
    up, down = uplink.seconds[:count], downlink.seconds[:count]
    unit = rate_unit(max(float(up.max(initial=0)), float(down.max(initial=0))))
    step = max(1, count // 2000)
    order = np.argsort(up[::step], kind="stable")
    # Each axis has the scale of its direction: the line of equal rates ends where the slower one does.
    most = min(float(up.max(initial=0)), float(down.max(initial=0))) * unit.factor
    notes = []
    if up.mean() > 0:
        shared = "" if uplink.duration_ns == downlink.duration_ns else f" in the {duration_words(count)} of both"
        notes.append(f"downlink to uplink {significant(down.mean() / up.mean())} on average{shared}")
    if count > 2 and up.std() > 0 and down.std() > 0:
        notes.append(f"Pearson correlation of the rates over 1 s {np.corrcoef(up, down)[0, 1]:.2f}")
    diagonal = np.array([0.0, most])
    return Panel(
        "scatter",
        "Uplink and downlink in the same second",
        f"uplink, {unit.name}",
        f"downlink, {unit.name}",
        [
            Curve("a second", "#434a57", up[::step][order] * unit.factor, down[::step][order] * unit.factor, dots=True),
            Curve("equal", "#8b94a3", diagonal, diagonal, faint=True),
        ],
        note=" · ".join(notes),
    )


def _rates_by_hour(capacity: Parts) -> Panel:
    having = {part: found.statistics for part, found in capacity.items() if "hours" in found.statistics}
    unit = rate_unit(max(max(figures["hourly_mean_bit_s"]) for figures in having.values()))
    curves = [
        _by_hour(part.capitalize(), COLOURS[part], figures, "hourly_mean_bit_s", unit.factor)
        for part, figures in having.items()
    ]
    return _hours_panel("Mean rate", f"rate, {unit.name}", curves, list(capacity.values()))


def _hours_panel(what: str, y_label: str, curves: list[Curve], drawn: list[Analysis]) -> Panel:
    """Curves by hour: of the day where all of these say when they began, else since the start."""
    having = [found.statistics for found in drawn if "hours" in found.statistics]
    known = all(figures["hours_known"] for figures in having)
    folded = _FOLDED if max(found.duration_ns for found in drawn) > _DAY_NS and not known else ""
    return Panel(
        "hours",
        f"{what} by hour {_OF_DAY[known]}",
        f"hour {_OF_DAY[known]}{folded}",
        y_label,
        curves,
        end=None if known else float(max(max(figures["hours"]) for figures in having)),
    )


def _by_hour(
    name: str, colour: str, figures: Mapping[str, Any], key: str, factor: float = 1, *, faint: bool = False
) -> Curve:
    """Return a figure of each hour; no line leads over hours of which nothing is known."""
    hours = np.array(figures["hours"], float)
    values = np.array(figures[key], float) * factor
    gaps = np.flatnonzero(np.diff(hours) > 1) + 1
    hours = np.insert(hours, gaps, hours[gaps] - 0.5)
    return Curve(name, colour, hours, np.insert(values, gaps, np.nan), faint=faint)


def _trips_over_time(drawn: _Drawn, end_s: float) -> Panel:
    curves, notes = [], []
    clock = time_unit(end_s)
    log_y = any(found.statistics.get("most_ms", 0) > 5 * found.statistics.get("p50_ms", 1) for *_, found in drawn)
    for name, colour, found in drawn:
        curves.append(_trips(name, colour, found, clock, band=len(drawn) == 1))
        if len(drawn) == 1 and found.lost is not None and found.lost.any():
            at = _middles(len(found.lost), found.step_ns / 1e9 * clock.factor)[found.lost > 0]
            floor = found.statistics.get("least_ms", 1.0) if log_y else 0.0
            curves.append(Curve("lost", _LOST, at, np.full(len(at), floor), dots=True))
        if "p50_ms" in found.statistics:
            notes.append(
                f"{name} median {typical_and_high(found.statistics)}, lost {found.statistics['loss'] * 100:.2g} %"
            )
    widths = [found.step_ns / 1e9 for *_, found in drawn if not _single(found)]
    over = (
        [f"means{', and least to most,' if len(drawn) == 1 else ''} of {duration_words(max(widths))}"] if widths else []
    )
    over += ["single probes"] if len(widths) < len(drawn) else []
    return Panel(
        "time",
        "Round-trip time over time",
        _since_start(clock),
        _LOGARITHMIC if log_y else "round-trip time, ms",
        curves,
        note=" · ".join([*notes, " and ".join(over)]),
        log_y=log_y,
        end=end_s * clock.factor,
    )


def _trips(name: str, colour: str, found: Analysis, clock: Unit, *, band: bool) -> Curve:
    """Round-trip times over time: each probe, or means, which no line leads over what was lost or never sent."""
    x = _middles(len(found.profile), found.step_ns / 1e9 * clock.factor)
    known = np.isfinite(found.profile)
    if found.low is None or found.high is None or found.lost is None:
        return Curve(name, colour, x[known], found.profile[known])
    if _single(found):
        return Curve(name, colour, x[known], found.profile[known], dots=True)
    interval_ns = found.statistics.get("interval_ms", 0.0) * 1e6
    shown = np.flatnonzero(known | (found.lost > 0))
    pauses = np.flatnonzero(np.diff(shown) * found.step_ns > max(found.step_ns, PAUSE_INTERVALS * interval_ns))
    shown = np.insert(shown, pauses + 1, shown[pauses] + 1)
    low, high = (found.low[shown], found.high[shown]) if band else (None, None)
    return Curve(name, colour, x[shown], found.profile[shown], low, high)


def _single(found: Analysis) -> bool:
    """Return whether probes are so far apart that a mean would be of one."""
    return bool(found.statistics.get("interval_ms", 0.0) * 1e6 >= found.step_ns)


def typical_and_high(figures: Mapping[str, Any]) -> str:
    """Of round trips the median, and the P99 or the highest percentile that their number supports."""
    high = next((at for at in (99, 95, 90) if f"p{at}_ms" in figures), None)
    median = duration_words(figures["p50_ms"] / 1e3)
    return median if high is None else f"{median}, P{high} {duration_words(figures[f'p{high}_ms'] / 1e3)}"


def _trip_distribution(drawn: _Drawn) -> Panel:
    curves = []
    for name, colour, found in drawn:
        values, shares = _visible(*found.distributions[""], least=0.999)  # the axis is logarithmic
        curves.append(Curve(name, colour, values, shares * 100, steps=True))
    return Panel(
        "distribution",
        "Distribution of the round-trip time",
        _LOGARITHMIC,
        "share at most that, %",
        curves,
        log_x=True,
    )


def _hours(found: Analysis) -> Panel:
    colour, figures = COLOURS["round-trip"], found.statistics
    curves = [
        _by_hour("median", colour, figures, "hourly_p50_ms"),
        _by_hour("P95", colour, figures, "hourly_p95_ms", faint=True),
    ]
    return _hours_panel("Round-trip time", "round-trip time, ms", curves, [found])


def _end(analyses: Iterable[Analysis]) -> float:
    """Return the duration of the longest of them, s."""
    return max((found.duration_ns for found in analyses), default=0) / 1e9


def _seen(analyses: Sequence[Analysis]) -> tuple[float, str]:
    """Return the time of several that is drawn, s, and a note on the rest."""
    whole, shortest = _end(analyses), min((found.duration_ns for found in analyses), default=0) / 1e9
    if whole <= _LONGER * shortest:
        return whole, ""
    end_s = _LONGER / 2 * shortest
    return end_s, f" · drawn are the first {duration_words(end_s)} of {duration_words(whole)}"


def _since_start(clock: Unit) -> str:
    return f"time since the start, {clock.name}"


def _thinned(found: Analysis) -> tuple[Floats, Floats]:
    """Means of neighbours, MOST_POINTS at most, each from the beginning of its bin in s on; the last has its end, too.

    A series shorter than a bin has its mean.
    """
    if not len(found.profile):
        mean = found.statistics["mean_bit_s"]
        return np.array([0.0, found.duration_ns / 1e9]), np.array([mean, mean])
    factor = max(1, -(-len(found.profile) // MOST_POINTS))
    begins = np.arange(0, len(found.profile), factor)
    counts = np.diff(np.append(begins, len(found.profile)))
    means: Floats = np.add.reduceat(found.profile, begins) / counts
    edges = np.append(begins, len(found.profile)) * (found.step_ns / 1e9)
    return edges, np.append(means, means[-1])


def _middles(count: int, width: float) -> Floats:
    return (np.arange(count, dtype=np.float64) + 0.5) * width


def _visible(values: Floats, shares: Floats, least: float = 0.0) -> tuple[Floats, Floats]:
    """Return the steps of a distribution function, as many as can be seen, from 0 on, which it is at `least` times its
    first.

    A series of one value has a step.
    """
    if len(values) > MOST_POINTS:
        kept = np.searchsorted(shares, np.linspace(0, 1, MOST_POINTS)[1:] - 1e-12)
        kept = np.unique(np.concatenate(([0], kept, [len(values) - 1])))
        values, shares = values[kept], shares[kept]
    if len(values) and values[0] > 0:
        values, shares = np.append(least * values[0], values), np.append(0.0, shares)
    return values, shares
