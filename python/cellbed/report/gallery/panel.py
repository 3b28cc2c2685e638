"""A picture before anybody draws it: axes with their units, curves, spans of time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cellbed.readable import Unit

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
    """The unit of an axis of time that is this long."""
    return Unit("h", 1 / 3600) if longest_s > 3 * 3600 else Unit("s", 1.0)


def as_json(picture: Picture) -> dict[str, Any]:
    """What a page's script draws the picture from; numbers with four significant digits."""
    return {
        "title": picture.title,
        "about": picture.about,
        "panels": [
            {
                "kind": panel.kind,
                "title": panel.title,
                "x": panel.x_label,
                "y": panel.y_label,
                "note": panel.note,
                "logX": panel.log_x,
                "logY": panel.log_y,
                "end": panel.end,
                "curves": [
                    {
                        "name": curve.name,
                        "colour": curve.colour,
                        "x": _numbers(curve.x, 7),
                        "y": _numbers(curve.y),
                        "low": None if curve.low is None else _numbers(curve.low),
                        "high": None if curve.high is None else _numbers(curve.high),
                        "dots": curve.dots,
                        "faint": curve.faint,
                        "steps": curve.steps,
                    }
                    for curve in panel.curves
                ],
                "rows": [
                    {
                        "name": row.name,
                        "colour": row.colour,
                        "begins": _numbers(row.begins, 7),
                        "lengths": _numbers(row.lengths),
                    }
                    for row in panel.rows
                ],
            }
            for panel in picture.panels
        ],
    }


def _numbers(values: Iterable[float], digits: int = 4) -> list[float | None]:
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in values]
