"""A calibration as a table for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cellbed.recordings.description import WAYS, CalibratedDirection, Calibration

HEADINGS = ("", *WAYS)


def show(title: str, calibration: Calibration) -> RenderableType:
    """The parameters as a table, the verdict below. title: of what network."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in rows(calibration):
        table.add_row(*row)
    return Group(table, Text("\n".join(calibration.verdict)))


def rows(calibration: Calibration) -> Iterator[tuple[str, str, str]]:
    """What is found, uplink, downlink."""
    sides = [getattr(calibration.directions, way) for way in WAYS]

    def row(name: str, cell: object) -> tuple[str, str, str]:
        one, other = ("–" if side is None else cell(side) for side in sides)  # type: ignore[operator]
        return name, one, other

    yield row("saturated rate, Mbit/s", _rate)
    yield row("train (U, D), packets", lambda side: str(side.train))
    yield row("  error of its predictions", _error)
    yield row("least gap (G_min), ms", lambda side: _millis(side.least_gap_ns))
    yield row("cold after (F), ms", lambda side: _millis(side.idle_ns))
    yield row("bottleneck queue (B), KB", _queue)
    offsets = [dict(getattr(calibration.compensation, way)) for way in WAYS]
    one, other = (f"{offset[100] / 1e6:+.1f}" if 100 in offset else "–" for offset in offsets)
    yield "100 bytes, later than 1400, ms", one, other


def _rate(side: CalibratedDirection) -> str:
    if side.saturated_bps is None:
        return "–"
    error = "" if side.saturated_error_bps is None else f" ± {side.saturated_error_bps / 1e6:.1f}"
    return f"{side.saturated_bps / 1e6:.1f}{error}"


def _error(side: CalibratedDirection) -> str:
    errors = [error.mean_error for error in side.errors if error.length == side.train]
    return f"{100 * errors[0]:.0f} %" if errors else "–"


def _queue(side: CalibratedDirection) -> str:
    if side.queue_bytes is not None:
        return f"{side.queue_bytes / 1e3:.0f}"
    return "–" if side.queue_at_least_bytes is None else f"≥ {side.queue_at_least_bytes / 1e3:.0f}"


def _millis(nanos: int | None) -> str:
    return "–" if nanos is None else f"{nanos / 1e6:.0f}"
