"""Decompositions as stacked bars: one bar is the whole of a percentile's latency."""

from dataclasses import dataclass

from cellbed.measure.decomposition import Decomposition
from cellbed.measure.parts import PARTS, PLACES
from cellbed.report import formats, palette

WIDTH = 1100.0
HEIGHT = 46.0
CHARACTER = 6.4
"""Width of an average character at the size of the bars' words."""

PLACE_NAMES = {"endpoint": "Endpoint", "uplink": "Uplink", "remote": "Remote node", "downlink": "Downlink"}


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
    """A decomposition drawn over WIDTH."""

    segments: list[Segment]
    brackets: list[Bracket]


def bar(decomposition: Decomposition) -> Bar:
    """The bar of a decomposition that has parts. Parts below zero (clock noise) get no width."""
    colours = palette.shades()
    widths = {name: max(seconds, 0.0) for name, seconds in decomposition.parts.items()}
    residual = max(decomposition.residual or 0.0, 0.0)
    total = sum(widths.values()) + residual
    segments, brackets = [], []
    x = 0.0
    run: tuple[str, float] | None = None
    for part in PARTS:
        width = widths[part.name] / total * WIDTH
        if run is None or run[0] != part.place:
            if run is not None:
                brackets.append(_bracket(*run, x))
            run = (part.place, x)
        share = formats.share(widths[part.name] / total)
        candidates = (f"{part.label} {share}", f"{part.short} {share}", part.short)
        words = next((words for words in candidates if len(words) * CHARACTER + 10 <= width), "")
        title = f"{PLACE_NAMES[part.place]}: {part.label}, {formats.duration(widths[part.name])}, {share}"
        colour = colours[part.name]
        segments.append(Segment(part.name, x, width, colour, words, _is_dark(colour), title))
        x += width
    if run is not None:
        brackets.append(_bracket(*run, x))
    title = f"Residual, {formats.duration(decomposition.residual)}"
    segments.append(Segment("residual", x, WIDTH - x, "#ffffff", "", False, title))
    return Bar(segments, brackets)


def _bracket(place: str, begin: float, end: float) -> Bracket:
    words = f"{PLACE_NAMES[place]} {formats.share((end - begin) / WIDTH)}"
    width = end - begin
    return Bracket(begin, width, words if len(words) * CHARACTER <= width else "")


def _is_dark(colour: str) -> bool:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140


assert {part.place for part in PARTS} == set(PLACES)
