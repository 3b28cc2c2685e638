"""The static drawings of the report, in coordinates of an SVG: latency in parts as bars, and its distribution."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cellbed.measure.decomposition import Decomposition
from cellbed.measure.statistics import Percentile, Samples
from cellbed.report import formats, plot
from cellbed.runformat.spans import PLACES, Place, Span

BAR_WIDTH = 1100.0
CHARACTER = 6.4
"""Width of an average character at the size of the bars' words."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One part in a bar: from x over a width, with words inside where they fit, dark or light."""

    name: str
    x: float
    width: float
    colour: str
    words: str
    light_words: bool
    title: str


@dataclass(frozen=True, slots=True)
class Bracket:
    """A place over its neighbouring parts; words empty where they do not fit."""

    x: float
    width: float
    words: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A decomposition drawn over BAR_WIDTH."""

    segments: list[Segment]
    brackets: list[Bracket]


def bar(decomposition: Decomposition, spans: Sequence[Span]) -> Bar:
    """The bar of a decomposition that has parts. Parts below zero (clock noise) get no width."""
    colours = plot.shades(spans)
    widths = {name: max(seconds, 0.0) for name, seconds in decomposition.parts.items()}
    residual = max(decomposition.residual or 0.0, 0.0)
    total = sum(widths.values()) + residual
    segments, brackets = [], []
    x = 0.0
    run: tuple[Place, float] | None = None
    for part in spans:
        width = widths[part.name] / total * BAR_WIDTH
        if run is None or run[0] != part.place:
            if run is not None:
                brackets.append(_bracket(*run, x))
            run = (part.place, x)
        share = formats.share(widths[part.name] / total)
        candidates = (f"{part.label} {share}", part.label, f"{part.short} {share}", part.short)
        words = next((words for words in candidates if len(words) * CHARACTER + 10 <= width), "")
        title = f"{PLACES[part.place].capitalize()}: {part.label}, {formats.duration(widths[part.name])}, {share}"
        colour = colours[part.name]
        segments.append(Segment(part.name, x, width, colour, words, _is_dark(colour), title))
        x += width
    if run is not None:
        brackets.append(_bracket(*run, x))
    title = f"Residual, {formats.duration(decomposition.residual)}"
    segments.append(Segment("residual", x, BAR_WIDTH - x, "#ffffff", "", False, title))
    return Bar(segments, brackets)


COLUMNS_HEIGHT = 90.0


@dataclass(frozen=True, slots=True)
class Column:
    """A column from the lower edge of COLUMNS_HEIGHT, in a drawing of BAR_WIDTH."""

    x: float
    width: float
    height: float
    title: str


def columns(shares: Sequence[tuple[str, float]]) -> list[Column]:
    """A column for each named share of a whole, the largest first and as high as the drawing."""
    ordered = sorted(shares, key=lambda each: -each[1])
    most = max((share for _, share in ordered), default=0.0)
    step = BAR_WIDTH / max(len(ordered), 12)
    return [
        Column(place * step, 0.8 * step, share / most * COLUMNS_HEIGHT, f"{name}: {formats.share(share)}")
        for place, (name, share) in enumerate(ordered)
        if most
    ]


def _bracket(place: Place, begin: float, end: float) -> Bracket:
    words = f"{PLACES[place].capitalize()} {formats.share((end - begin) / BAR_WIDTH)}"
    width = end - begin
    return Bracket(begin, width, words if len(words) * CHARACTER <= width else "")


def _is_dark(colour: str) -> bool:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140


WIDTH, HEIGHT = 552, 330
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 26, 50
MOST_STEPS = 1_500


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis: its place in the drawing and its words."""

    at: float
    words: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A percentile on a drawing: its place, its interval from `low` to `high` along x, its name."""

    x: float
    y: float
    low: float
    high: float
    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A curve with axes, in the coordinates of an SVG of WIDTH × HEIGHT; missing: words on requests without a good
    reply."""

    path: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    marks: list[Mark]
    missing: str


def ecdf(samples: Samples, percentiles: list[Percentile]) -> Drawing | None:
    """Share of requests answered within a time, linear axes; None without a single reply.

    The curve ends below 100 % where requests got no good reply.
    """
    finite = np.sort(samples[np.isfinite(samples)])
    if not len(finite):
        return None
    n = len(samples)
    step, unit, factor = _step(float(finite[-1]))
    top = math.ceil(float(finite[-1]) / step - 1e-9) * step

    def x(seconds: float) -> float:
        return LEFT + min(seconds / top, 1.0) * (WIDTH - LEFT - RIGHT)

    def y(share: float) -> float:
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    points = _stairs(finite, x, lambda rank: y(rank / n))
    points.append((x(top), points[-1][1]))
    decimals = max(0, -math.floor(math.log10(step * factor) + 1e-9))
    x_ticks = [Tick(x(i * step), f"{i * step * factor:.{decimals}f}") for i in range(round(top / step) + 1)]
    x_ticks[-1] = Tick(x_ticks[-1].at, f"{x_ticks[-1].words} {unit}")
    y_ticks = [Tick(y(share / 100), f"{share} %") for share in (0, 25, 50, 75, 100)]
    missing = n - len(finite)
    words = f"{missing} of {n} without a good reply" if missing else ""
    return Drawing(_path(points), x_ticks, y_ticks, _marks(percentiles, x, y), words)


def survival(samples: Samples, percentiles: list[Percentile]) -> Drawing | None:
    """Share of requests slower than a time, both axes logarithmic; None without a single reply."""
    finite = np.sort(samples[np.isfinite(samples)])
    if not len(finite) or finite[0] <= 0:
        return None
    n = len(samples)
    low, high = math.log10(finite[0].item()), math.log10(finite[-1].item())
    low, high = low - 0.03 * (high - low + 0.1), high + 0.03 * (high - low + 0.1)
    decades = math.ceil(math.log10(max(n, 10)) - 1e-9)

    def x(seconds: float) -> float:
        along = (math.log10(seconds) - low) / (high - low)
        return LEFT + min(max(along, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)

    def y(share: float) -> float:
        depth = min(-math.log10(share) / decades, 1.0) if share > 0 else 1.0
        return TOP + depth * (HEIGHT - TOP - BOTTOM)

    points = _stairs(finite, x, lambda rank: y((n - rank) / n))
    if len(finite) < n:
        points.append((WIDTH - RIGHT + 0.0, points[-1][1]))
    x_ticks = [Tick(x(time), formats.duration(time)) for time in _log_ticks(low, high)]
    y_ticks = [Tick(y(10.0**-k), f"{100 * 10.0**-k:.{max(0, k - 2)}f} %") for k in range(decades + 1)]
    missing = n - len(finite)
    words = f"{missing} of {n} without a good reply" if missing else ""
    marks = _marks(percentiles, x, lambda share: y(1 - share))
    return Drawing(_path(points), x_ticks, y_ticks, marks, words)


def _marks(percentiles: list[Percentile], x: Callable[[float], float], y: Callable[[float], float]) -> list[Mark]:
    return [
        Mark(
            x(at.value),
            y(at.quantile),
            x(at.low if at.low is not None else at.value),
            x(at.high) if at.high is not None else WIDTH - RIGHT if at.has_interval else x(at.value),
            at.label,
            formats.duration(at.value) + formats.mark(at),
        )
        for at in percentiles
        if at.value is not None
    ]


def _stairs(finite: Samples, x: Callable[[float], float], y: Callable[[int], float]) -> list[tuple[float, float]]:
    """A curve that steps at each reply. x: of a time; y: of a rank."""
    points = [(LEFT + 0.0, y(0))]
    for rank in ranks(len(finite)).tolist():
        points.append((x(float(finite[rank - 1])), points[-1][1]))
        points.append((points[-1][0], y(rank)))
    return points


def ranks(n: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Every rank, or evenly spaced ones and all of the tail, if single steps would not be visible."""
    if n <= MOST_STEPS:
        return np.arange(1, n + 1)
    return np.unique(np.r_[np.linspace(1, n, MOST_STEPS - 200).astype(int), np.arange(n - 199, n + 1)])


def _step(largest: float) -> tuple[float, str, float]:
    """A round distance between ticks in s, the unit to write it in, and the factor from s to that unit."""
    unit, factor = ("s", 1.0) if largest >= 1 else ("ms", 1e3)
    raw = largest / 6
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw * 0.999)
    return step, unit, factor


def _log_ticks(low: float, high: float) -> list[float]:
    """Round times between two powers of ten; fewer per decade over a wider span."""
    digits = (1, 2, 5) if high - low < 2.5 else (1,)
    if high - low < 0.5:
        digits = (1, 1.5, 2, 3, 4, 5, 7)  # type: ignore[assignment]
    span = range(math.floor(low), math.ceil(high) + 1)
    return [m * 10.0**k for k in span for m in digits if low <= math.log10(m * 10.0**k) <= high]


def _path(points: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
