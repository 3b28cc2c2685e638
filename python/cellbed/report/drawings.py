"""Bars of latency in parts and of shares, in the coordinates of an SVG that the page draws."""

from collections.abc import Sequence
from dataclasses import dataclass

from cellbed.measure.decomposition import Decomposition
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
    """Return the bar of a decomposition that has parts. Parts below zero (clock noise) get no width."""
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
    """Return a column for each named share of a whole, the largest first and as high as the drawing."""
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
