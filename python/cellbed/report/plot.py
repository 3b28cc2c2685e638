"""Static figures by matplotlib (PNG, SVG, PDF), and the common palette of all figures.

Matplotlib is imported only when a figure is drawn. Neighbouring colours of the palette also differ in lightness, so
that greyscale copies are readable.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from colorsys import hls_to_rgb, rgb_to_hls
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal
from zlib import crc32

from cellbed.report.formats import duration
from cellbed.runformat.spans import Place, Span
from cellbed.support.user_folders import cache_folder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, FigureBase


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing for a figure or a part of a figure, with its height in inches."""

    height: float
    draw: Callable[[FigureBase], None]

    def figure(self) -> Figure:
        """Return the drawing as a figure."""
        return together([self])

    def element(self, title: str, caption: str = "") -> str:
        """Return the drawing as an element for a page."""
        return element(title, self.figure, caption)


@dataclass(frozen=True, slots=True)
class Bars:
    """Stacked bars below each other. names: of the bars. parts: name (empty if too small to see), colour, and length in
    each bar, ms. label: of the axis, with the unit."""

    names: Sequence[str]
    parts: Sequence[tuple[str, str, Sequence[float]]]
    label: str

    @property
    def height(self) -> float:
        """Return the height in a file, inches."""
        return 1.5 + 0.45 * len(self.names) + 0.15 * -(-sum(bool(name) for name, _, _ in self.parts) // 3)

    def figure(self) -> Figure:
        """Return the bars as a figure for a file."""
        return together([self])

    def draw(self, figure: FigureBase) -> None:
        """Draw the bars for a file."""
        axes, begin = figure.subplots(), [0.0] * len(self.names)
        for name, colour, length in self.parts:
            style: Any = {"color": colour, "label": name or None, "edgecolor": "w", "lw": 0.4}
            axes.barh(range(len(self.names)), length, left=begin, **style)
            begin = [one + more for one, more in zip(begin, length, strict=True)]
        axes.set_yticks(range(len(self.names)), self.names)
        axes.set(xlabel=self.label, ylim=(len(self.names) - 0.5, -0.5))
        axes.grid(visible=False, axis="y")
        figure.legend(loc="outside lower center", ncols=3)

    def element(self, title: str) -> str:
        """Return the bars as an element for a page, of any width."""
        totals = [sum(length[bar] for _, _, length in self.parts) for bar in range(len(self.names))]
        rows = []
        for bar, (name, total) in enumerate(zip(self.names, totals, strict=True)):
            found = [(part, colour, length[bar]) for part, colour, length in self.parts if length[bar] > 0]
            spoken = ", ".join(f"{part} {duration(length / 1e3)}" for part, _, length in found if part)
            drawn = "".join(
                f'<i style="width:{100 * length / max(*totals, 1e-9):.3f}%;background:{themed(colour)}"></i>'
                for _, colour, length in found
            )
            rows.append(
                f"<p>{escape(name)} <b>{duration(total / 1e3)}</b></p>"
                f'<div class="track" role="img" aria-label="{escape(f"{name}: {spoken}")}">{drawn}</div>'
            )
        keys = "".join(
            f'<span><i class="swatch" style="background:{themed(colour)}"></i>{escape(part)}</span> '
            for part, colour, _ in self.parts
            if part
        )
        label = escape(self.label)
        rows.append(f'<figcaption class="note">{label.capitalize()}. {keys}</figcaption>')
        return f'<figure class="bars" aria-label="{escape(title)}: {label}">{"".join(rows)}</figure>'


def together(drawings: Sequence[Drawing | Bars]) -> Figure:
    """Return a figure with the drawings below each other, 9 inches wide."""
    from matplotlib.figure import Figure

    heights = [each.height for each in drawings]
    figure = Figure(figsize=(9, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(drawings), 1, height_ratios=heights, squeeze=False).flat
    for each, part in zip(drawings, parts, strict=True):
        each.draw(part)
    return figure


INK = "#1d2129"
MUTED = "#5b6472"
RULE = "#d9dee6"
ALARM = "#b3261e"

# Endpoint dark, uplink blue, remote warm and light, downlink green.
_SHADES: dict[Place, tuple[str, ...]] = {
    "endpoint": ("#2a2f38", "#434a57", "#5d6675", "#2a2f38"),
    "uplink": ("#123258", "#1f5597", "#3f82cb", "#8fbbe8", "#0d7a8c", "#86bfc8"),
    "remote": ("#9c5f10", "#b9741a", "#cf9138", "#e0ad62", "#efc98f", "#f8e4c3"),
    "downlink": ("#1a5c47", "#2f8f72", "#93d1bb", "#6d8f1f", "#bccb6d"),
}


# fmt: off
_PARTS = {
    "generator": "#2a2f38", "preprocessing": "#434a57", "connection_wait": "#747d8c", "connect": "#8d96a4",
    "endpoint_stack": "#5d6675", "endpoint_receive": "#171a20",
    "schedule": "#2a2f38", "client_before": "#434a57", "client_between": "#747d8c", "client_after": "#171a20",
    "connect_uplink": "#86bfc8", "uplink_wait": "#123258", "uplink_transport": "#1f5597",
    "uplink_retransmission": "#3f82cb", "uplink_queue": "#8fbbe8", "uplink_delay": "#0d7a8c",
    "connect_remote": "#7a4a0c", "receive_window": "#9c5f10", "server": "#d9a02b", "remote_stack": "#b9741a",
    "server_queue": "#cf9138", "decode": "#e0ad62", "inference": "#efc98f", "remote_reply": "#f8e4c3",
    "uplink_proxy": "#4d7f9c", "downlink_proxy": "#4f6b3a",
    "connect_downlink": "#bccb6d", "downlink_wait": "#0c3328", "downlink_transport": "#1a5c47",
    "downlink_retransmission": "#2f8f72", "downlink_queue": "#93d1bb", "downlink_delay": "#6d8f1f",
}
# fmt: on
_SERVICES = ("#8a6d1f", "#e3c04f", "#b0563a", "#f2dc9b", "#d98f6a", "#6b4a2b")


def shades(spans: Sequence[Span]) -> dict[str, str]:
    """Return the colour of each span by name: a part has the same colour in every report. Unknown parts (reported by
    services, or of other versions) get a colour of their place by a hash of the name, or the next free colour."""
    found = {span.name: _PARTS[span.name] for span in spans if span.name in _PARTS}
    for span in spans:
        others = _SERVICES if span.place == "remote" else _SHADES[span.place]
        first = crc32(span.name.encode()) % len(others)
        turned = (*others[first:], *others[:first])
        found.setdefault(span.name, next((each for each in turned if each not in found.values()), turned[0]))
    return found


def shade(part: str) -> str:
    """Return the colour of a part by its name alone."""
    return shades([Span(part, "remote", "", "", "", "")])[part]


def palette(place: Place) -> tuple[str, ...]:
    """Return the shades of a place, dark to light."""
    return _SHADES[place]


STYLE: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    # If a legend must cover curves, its names stay readable.
    "legend.framealpha": 0.85,
    "legend.edgecolor": "none",
    "legend.fontsize": 8,
    # Make the bytes reproducible.
    "svg.hashsalt": "cellbed",
    "svg.fonttype": "none",
    # Show a dollar sign in a user's label as a dollar sign.
    "text.parse_math": False,
}
_STEPS: tuple[tuple[float, ...], ...] = (
    (1,),
    (1, 2, 5),
    (1, 1.5, 2, 3, 5, 7),
    (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9),
)
"""Round numbers of a decade for logarithmic axes, for ever smaller parts of a decade."""


def draw_file(ending: Literal["png", "svg", "pdf"], figure: Callable[[], Figure], title: str) -> bytes:
    """Return the figure that `figure` creates as a file, 150 dots per inch, in the style of all figures."""
    mpl = _matplotlib()
    style: Any = STYLE
    with mpl.rc_context(style):
        content = io.BytesIO()
        metadata: dict[str, dict[str, Any]] = {
            "svg": {"Date": None, "Creator": "cellbed", "Title": title},
            "pdf": {"CreationDate": None, "Creator": "cellbed", "Title": title},
            "png": {"Software": "cellbed"},
        }
        figure().savefig(content, format=ending, dpi=150, metadata=metadata[ending])
    return content.getvalue()


def _matplotlib() -> Any:
    """Import matplotlib with its font cache inside cellbed's cache, unless this process has already imported it."""
    given = os.environ.get("MPLCONFIGDIR")
    if given is None and "matplotlib" not in sys.modules:
        os.environ["MPLCONFIGDIR"] = str(cache_folder() / "matplotlib")
    try:
        import matplotlib as mpl
        import matplotlib.font_manager
    finally:
        if given is None:
            os.environ.pop("MPLCONFIGDIR", None)
    return mpl


def single(
    labels: tuple[str, str],
    x: tuple[float, float],
    y: tuple[float, float],
    draw: Callable[[Axes], None],
    *,
    log_y: bool = False,
) -> Callable[[], Figure]:
    """Return a figure with one set of axes, and a legend above them.

    labels: labels of the horizontal and vertical axes, with units. x, y: first and last value of each axis. draw: draws
    into the axes; labelled curves appear in the legend.
    """

    def figure() -> Figure:
        from matplotlib.figure import Figure

        made = Figure(figsize=(9, 5), layout="constrained")
        axes = made.add_subplot(xlabel=labels[0], ylabel=labels[1])
        draw(axes)
        if log_y:
            axes.set_yscale("log")
            label_decades(axes.yaxis, *y)
        axes.set(xlim=x, ylim=y)
        made.legend(loc="outside upper center", ncols=4)
        return made

    return figure


def svg(title: str, figure: Callable[[], Figure]) -> str:
    """Return the result of `figure` as the text of an SVG file, without the prologue."""
    text = draw_file("svg", figure, title).decode()
    return text[text.index("<svg") :]


def element(title: str, figure: Callable[[], Figure], caption: str = "") -> str:
    """Return the result of `figure` as an element for a page: its colours follow the page's theme, and its alternative
    text consists of `title`, the axes with their units, and the names in its legends."""
    drawn: list[Figure] = []

    def draw() -> Figure:
        drawn.append(figure())
        return drawn[0]

    text = re.sub(r"<metadata>.*?</metadata>|<title>.*?</title>", "", svg(title, draw), flags=re.DOTALL)
    text = re.sub(r' id="[a-zA-Z.]+_\d+"', "", text)  # would occur several times on a page
    text = re.sub(r"#[0-9a-f]{6}", lambda found: themed(found[0]), text)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{escape(_describe(title, drawn[0]))}" ', 1)
    below = f'<figcaption class="note">{escape(caption)}</figcaption>' if caption else ""
    return f'<figure><div class="scroll">{text}</div>{below}</figure>'


def _describe(title: str, figure: Figure) -> str:
    """Return the alternative text of a figure."""
    shared_x, shared_y = figure.get_supxlabel(), figure.get_supylabel()
    axes = [(each.get_xlabel() or shared_x, each.get_ylabel() or shared_y) for each in figure.axes]
    lines = dict.fromkeys(f"{y} over {x}" if x and y else x or y for x, y in axes if x or y)
    legends = [*figure.legends, *(each.get_legend() for each in figure.axes)]
    names = dict.fromkeys(text.get_text() for each in legends if each for text in each.get_texts())
    shown = f"Shown: {', '.join(names)}" if names else ""
    return ". ".join(filter(None, [title, "; ".join(lines), shown])) + "."


def themed(colour: str) -> str:
    """Return a colour as a style value that follows the theme of the page (:func:`dark_theme`)."""
    return f"var(--c{colour[1:]},{colour})"


PAPER_DARK = "#14181e"
_DARK = {"#ffffff": PAPER_DARK, INK: "#e4e7ec", MUTED: "#a7b0bd", RULE: "#363e4a", ALARM: "#ff8a80"}
"""Colours on dark pages that do not follow from the lightness; as in ``page.css``."""


def dark_theme(page: str) -> str:
    """Return the declarations of all themed colours of a page in dark mode. Other colours than text and rules keep hue
    and order of lightness, but none is nearly as dark as the page."""
    found = sorted(set(re.findall(r"var\(--c([0-9a-f]{6}),", page)))
    return "".join(f"--c{colour}:{_lighten('#' + colour)};" for colour in found)


def _lighten(colour: str) -> str:
    if colour in _DARK:
        return _DARK[colour]
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    hue, lightness, saturation = rgb_to_hls(red, green, blue)
    return "#" + "".join(
        f"{round(255 * part):02x}" for part in hls_to_rgb(hue, 0.4 + 0.48 * lightness, 0.8 * saturation)
    )


def label_decades(axis: Axis, least: float, most: float) -> None:
    """Set ticks at round numbers of a logarithmic axis from `least` to `most`; fewer decades get more ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    least = max(least, 1e-9)
    if most < 1.4 * least:
        # Otherwise no round number would be on the axis.
        least, most = least / 1.3, most * 1.3
        axis.set_view_interval(least, most, ignore=True)
    steps = _steps(least, most)
    axis.set_major_locator(LogLocator(subs=steps) if steps else MaxNLocator(8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _steps(least: float, most: float) -> tuple[float, ...]:
    """Return the least set of steps with at least four labels, the first in the lowest quarter of the axis; none for
    a small part of a decade."""
    for steps in _STEPS:
        labels = [step * 10.0**decade for decade in range(-9, 16) for step in steps]
        seen = [label for label in labels if least <= label <= most]
        if len(seen) >= 4 and seen[0] <= least * (most / least) ** 0.25:
            return steps
    return ()
