"""Pictures as files: PNG and SVG by matplotlib."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cellbed.report.gallery.pictures import Panel, Picture
from cellbed.report.plot import MUTED, drawn, label_decades
from cellbed.support.errors import CellbedError
from cellbed.support.whole_files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_HEIGHTS = {"time": 2.7, "distribution": 3.1, "scatter": 3.1, "hours": 3.1}
_NOTE_WIDTH = 165
"""Letters of a panel's note across the whole picture; a longer one has several lines."""
_TITLE_WIDTH = 80
_BESIDE = 4
"""Names of a legend in a line."""


def draw(picture: Picture, ending: Literal["png", "svg"]) -> bytes:
    """Return the picture as a file of this kind: 11 inches wide, 150 dots an inch."""
    return drawn(ending, lambda: _figure(picture), picture.title)


def _figure(picture: Picture) -> Figure:
    from matplotlib.figure import Figure

    lines = _lines(picture.panels)
    heights = [max(_height(panel, len(line)) for panel in line) for line in lines]
    title = textwrap.wrap(picture.title, _TITLE_WIDTH) or [""]
    height = sum(heights) + 0.5 + 0.25 * len(title)
    figure = Figure(figsize=(11, height), layout="constrained")
    layout: Any = figure.get_layout_engine()
    layout.set(h_pad=0.08, w_pad=0.08, hspace=0.03)
    figure.suptitle("\n".join(title), x=0.012, ha="left", fontsize=14, fontweight="bold")
    if picture.about:
        figure.text(0.988, 1 - 0.24 / height, _cut(picture.about, 80), ha="right", color=MUTED)
    grid = figure.add_gridspec(len(lines), 12, height_ratios=heights)
    shared: dict[float | None, Axes] = {}
    for number, line in enumerate(lines):
        width = 12 // max(len(line), 1)
        for place, panel in enumerate(line):
            over_time = panel.kind in ("time", "spans")
            above = shared.get(panel.end) if over_time else None
            axes = figure.add_subplot(grid[number, place * width : (place + 1) * width], sharex=above)
            fill(axes, panel, len(line))
            if over_time:
                shared.setdefault(panel.end, axes)
    return figure


def _lines(panels: list[Panel]) -> list[list[Panel]]:
    """Return panels that share a line: those over time have the whole width, of the others two or three share it."""
    lines: list[list[Panel]] = []
    most = 3 if sum(panel.kind not in ("time", "spans") for panel in panels) % 3 == 0 else 2
    for panel in panels:
        narrow = panel.kind not in ("time", "spans")
        if narrow and lines and lines[-1][-1].kind not in ("time", "spans") and len(lines[-1]) < most:
            lines[-1].append(panel)
        else:
            lines.append([panel])
    return lines


def _height(panel: Panel, beside: int) -> float:
    """Inches of a panel that shares the width with others, `beside` in all."""
    more = 0.15 * max(0, len(textwrap.wrap(panel.note, _NOTE_WIDTH // beside - 4)) - 1)
    return more + (0.75 + 0.24 * len(panel.rows) if panel.kind == "spans" else _HEIGHTS[panel.kind])


def fill(axes: Axes, panel: Panel, beside: int) -> None:
    """Draw a panel. beside: how many share the width with it."""
    lines = textwrap.wrap(panel.note, _NOTE_WIDTH // beside - 4)
    axes.set_title(panel.title, pad=6 + 11 * len(lines))
    if lines:
        note = axes.annotate(
            "\n".join(lines),
            (0, 1),
            xytext=(0, 5),
            xycoords="axes fraction",
            textcoords="offset points",
            color=MUTED,
            fontsize=8,
        )
        # Its length must not make the axes narrower.
        note.set_in_layout(False)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    if panel.kind == "spans":
        _spans(axes, panel)
        return
    for number, curve in enumerate(panel.curves):
        below = panel.curves[:number]
        hiding = any(np.array_equal(curve.x, it.x) and np.array_equal(curve.y, it.y) for it in below)
        if curve.low is not None and curve.high is not None:
            axes.fill_between(curve.x, curve.low, curve.high, color=curve.colour, alpha=0.25, linewidth=0)
        drawn = curve.x <= panel.end if curve.dots and panel.end is not None else np.full(len(curve.x), fill_value=True)
        axes.plot(
            curve.x[drawn],
            curve.y[drawn],
            color=curve.colour,
            label=_cut(curve.name, 40),
            alpha=0.65 if curve.dots or (curve.faint and panel.kind != "scatter") else 1,
            linewidth=1.1,
            linestyle="none" if curve.dots else (0, (4, 2)) if curve.faint else (0, (6, 6)) if hiding else "-",
            marker="o" if curve.dots or panel.kind == "hours" else "",
            markersize=2.2 if curve.dots else 3.5,
            drawstyle="steps-post" if curve.steps else "default",
            # A dot on the axis is seen whole.
            clip_on=not curve.dots,
        )
    if panel.log_x:
        axes.set_xscale("log")
        values = np.concatenate([curve.x for curve in panel.curves])
        label_decades(axes.xaxis, float(np.nanmin(values)), float(np.nanmax(values)))
    if panel.log_y:
        axes.set_yscale("log")
        values = np.concatenate([each for it in panel.curves for each in (it.y, it.low, it.high) if each is not None])
        label_decades(axes.yaxis, float(np.nanmin(values)), float(np.nanmax(values)))
    if panel.kind == "time" and panel.log_y:
        axes.set_xlim(0, panel.end)
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * (high / low) ** _legend_share(panel))
    elif panel.kind == "time":
        axes.set_xlim(0, panel.end)
        axes.set_ylim(0, max(axes.get_ylim()[1] * (1 + _legend_share(panel)), 1e-9))
    elif panel.kind == "distribution":
        axes.set_ylim(0, 101)
        if not panel.log_x:
            axes.set_xlim(0, None)
    elif panel.kind == "scatter":
        axes.set_xlim(0, None)
        axes.set_ylim(0, None)
    else:
        axes.set_ylim(0, axes.get_ylim()[1] * 1.2)
        if panel.end is None:
            axes.set_xticks(range(0, 25, 3))
        else:
            axes.set_xticks(range(0, int(panel.end) + 1, 3 if panel.end > 12 else 1))
            axes.set_xlim(-0.5, panel.end + 0.5)
    if len(panel.curves) > 1 or panel.kind == "distribution":
        place: Any = "upper right" if panel.kind == "time" else "best"
        axes.legend(loc=place, ncols=_BESIDE if panel.kind == "time" else 1)


def _legend_share(panel: Panel) -> float:
    """Return the share of an axis over time that its legend takes, above the curves."""
    return 0.04 + 0.13 * -(-len(panel.curves) // _BESIDE) if len(panel.curves) > 1 else 0.0


def _spans(axes: Axes, panel: Panel) -> None:
    count = len(panel.rows)
    for number, row in enumerate(panel.rows):
        y = count - 1 - number
        spans = list(zip(row.begins.tolist(), row.lengths.tolist(), strict=True))
        axes.broken_barh(spans, (y - 0.36, 0.72), facecolors=row.colour, edgecolors=row.colour, linewidth=0.8)
    axes.set_yticks([count - 1 - number for number in range(count)], [_cut(row.name, 30) for row in panel.rows])
    axes.set_ylim(-0.6, count - 0.4)
    axes.set_xlim(0, panel.end)
    axes.grid(visible=False, axis="y")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


class PictureError(CellbedError):
    """A picture cannot be written where it was asked for."""


def require_ending(path: Path) -> Literal["png", "svg"]:
    """Return the format of a picture's file. Raises PictureError for an unknown one."""
    match path.suffix.lower():
        case ".png":
            return "png"
        case ".svg":
            return "svg"
    raise PictureError(f"{path}: a picture's name ends with .png or .svg")


def write_picture(picture: Picture, path: Path) -> None:
    """Write a picture whole or not at all. Raises PictureError."""
    content = draw(picture, require_ending(path))
    try:
        write_whole(path, lambda file: file.write_bytes(content))
    except OSError as error:
        raise PictureError(f"{path}: cannot be written: {error.strerror}") from None
