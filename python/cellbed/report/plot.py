"""A plot over time as SVG: axes with ticks, a legend above, and what is drawn inside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np
from numpy.typing import NDArray

from cellbed.report.palette import INK, MUTED, RULE

WIDTH, HEIGHT = 1024, 560
LEFT, RIGHT, TOP, BOTTOM = 76, 28, 64, 62

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Style:
    """How something looks. colour: of line and fill. width: of the line, px. opacity: 0 to 1."""

    colour: str
    width: float = 0.0
    opacity: float = 1.0


@dataclass
class Plot:
    """A plot. x, y: first and last value of each axis. log_y: whether the vertical axis is logarithmic.

    Values outside of the axes are drawn at their ends.
    """

    title: str
    x_label: str
    y_label: str
    x: tuple[float, float]
    y: tuple[float, float]
    log_y: bool = False
    _drawn: list[str] = field(default_factory=list)
    _legend: list[tuple[str, Style]] = field(default_factory=list)

    def across(self, values: NDArray[np.generic] | Sequence[float]) -> Floats:
        """Horizontal places, px."""
        low, high = self.x
        share = (np.asarray(values, np.float64) - low) / (high - low)
        return LEFT + np.clip(share, 0, 1) * (WIDTH - LEFT - RIGHT)

    def down(self, values: NDArray[np.generic] | Sequence[float]) -> Floats:
        """Vertical places, px from the top."""
        low, high = self.y
        number = np.asarray(values, np.float64)
        if self.log_y:
            low, high = math.log(low), math.log(high)
            number = np.log(np.maximum(number, self.y[0]))
        return HEIGHT - BOTTOM - np.clip((number - low) / (high - low), 0, 1) * (HEIGHT - TOP - BOTTOM)

    def area(self, times: NDArray[np.generic], values: NDArray[np.generic], style: Style, name: str) -> None:
        """Fill from the bottom up to the values."""
        floor = HEIGHT - BOTTOM
        across = self.across(times)
        path = f"M{across[0]:.1f} {floor}L{_points(across, self.down(values))} {across[-1]:.1f} {floor}Z"
        self._drawn.append(f'<path d="{path}" fill="{style.colour}" fill-opacity="{style.opacity}"/>')
        self._legend.append((name, style))

    def line(self, times: NDArray[np.generic] | Sequence[float], values: NDArray[np.generic] | Sequence[float],
             style: Style, name: str) -> None:  # fmt: skip
        """Join the values."""
        path = f"M{_points(self.across(times), self.down(values))}"
        self._drawn.append(f'<path d="{path}" {_stroke(style)} stroke-linejoin="round"/>')
        self._legend.append((name, style))

    def dots(self, times: NDArray[np.generic], values: NDArray[np.generic], style: Style, name: str) -> None:
        """A dot for each value within the axes; those that fall together are drawn once."""
        shown = np.asarray(values, np.float64) >= self.y[0]
        times, values = times[shown], values[shown]
        places = np.round(self.across(times)).astype(np.int64) * 4096 + np.round(self.down(values)).astype(np.int64)
        path = "".join(f"M{place >> 12} {place & 4095}h1" for place in np.unique(places).tolist())
        self._drawn.append(f'<path d="{path}" {_stroke(style)} stroke-linecap="square"/>')
        self._legend.append((name, style))

    def svg(self) -> str:
        """The picture."""
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'font-family="Arial, Helvetica, sans-serif" font-size="13" fill="{INK}" role="img">',
            f"<title>{escape(self.title)}</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            *self._horizontal_axis(),
            *self._vertical_axis(),
            *self._drawn,
            f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="{MUTED}"/>',
            *self._legend_row(),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _horizontal_axis(self) -> list[str]:
        bottom = HEIGHT - BOTTOM
        parts = []
        for tick in linear_ticks(*self.x, most=10):
            x = self.across([tick])[0]
            parts.append(f'<path d="M{x:.1f} {bottom}v5" stroke="{MUTED}"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{tick:g}</text>')
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(f'<text x="{middle}" y="{HEIGHT - 14}" text-anchor="middle">{escape(self.x_label)}</text>')
        return parts

    def _vertical_axis(self) -> list[str]:
        parts = []
        ticks = log_ticks(*self.y) if self.log_y else linear_ticks(*self.y, most=8)
        for tick in ticks:
            y = self.down([tick])[0]
            parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{RULE}"/>')
            shown = f"{tick:,.10g}".replace(",", " ")
            parts.append(f'<text x="{LEFT - 8}" y="{y + 4.5:.1f}" text-anchor="end">{shown}</text>')
        middle = (TOP + HEIGHT - BOTTOM) / 2
        turned = f'transform="rotate(-90 18 {middle})"'
        parts.append(f'<text x="18" y="{middle}" text-anchor="middle" {turned}>{escape(self.y_label)}</text>')
        return parts

    def _legend_row(self) -> list[str]:
        lengths = [40 + 6.9 * len(name) for name, _ in self._legend]
        rows: list[list[int]] = [[]]
        for index, length in enumerate(lengths):
            if rows[-1] and sum(lengths[it] for it in rows[-1]) + length > WIDTH - 20:
                rows.append([])
            rows[-1].append(index)
        parts = []
        for number, row in enumerate(rows):
            x = (WIDTH - sum(lengths[it] for it in row)) / 2
            y = TOP - 16 - 22 * (len(rows) - 1 - number)
            for index in row:
                name, style = self._legend[index]
                thick = min(style.width, 8.0) or 12.0
                key = f'stroke="{style.colour}" stroke-width="{thick:g}" stroke-opacity="{style.opacity}"'
                parts.append(f'<path d="M{x:.1f} {y - 4.5}h22" {key}/>')
                parts.append(f'<text x="{x + 28:.1f}" y="{y}">{escape(name)}</text>')
                x += lengths[index]
        return parts


def _points(across: Floats, down: Floats) -> str:
    return " ".join(f"{x:.1f} {y:.1f}" for x, y in zip(across.tolist(), down.tolist(), strict=True))


def _stroke(style: Style) -> str:
    opacity = f' stroke-opacity="{style.opacity}"' if style.opacity < 1 else ""
    return f'fill="none" stroke="{style.colour}" stroke-width="{style.width:g}"{opacity}'


def linear_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from `low` to `high`, `most` at most."""
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    step *= next(factor for factor in (1, 2, 5, 10, 20) if (high - low) / (step * factor) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten from `low` to `high`, powers alone over many of these; `low` if none is near."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if math.log10(high / low) <= 4 else (1,)
    ticks = [number for decade in decades for factor in factors if low <= (number := factor * 10.0**decade) <= high]
    return ticks if ticks and ticks[0] < 1.3 * low else [low, *ticks]
