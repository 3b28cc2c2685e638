"""Calibration: the effects of a network on packet trains and saturation (CellReplay, NSDI 2025, §4.4).

A table and figures (like figures 5 and 8b of the paper) of a calibration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cellbed.measure.run_folder import MeasureError, replace
from cellbed.recordings.description import CalibratedDirection, Calibration
from cellbed.report import plot
from cellbed.report.plot import INK, MUTED, palette
from cellbed.support.ways import WAYS, Way

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def show(title: str, calibration: Calibration) -> RenderableType:
    """Return the parameters as a table, with the verdict below. title: name of the network."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for heading in ("", *WAYS):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in _rows(calibration):
        table.add_row(*row)
    return Group(table, Text("\n".join([*calibration.verdict, *calibration.unknown])))


def _rows(calibration: Calibration) -> Iterator[tuple[str, str, str]]:
    """Yield rows of the table: name, uplink, downlink."""
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


PACKET_BITS = 8 * 1400
"""IP length of a calibration's packets, bits."""

TOLERANCE = 0.2
"""Maximum r_last of a sufficient gap (§4.4)."""

_MILLI = 1e-6
"""Milliseconds per nanosecond."""

_LINE: Final[dict[str, Any]] = {"color": palette("uplink")[1], "linewidth": 2}
_MEASURED = _LINE | {"marker": "o", "markersize": 5, "ecolor": INK, "elinewidth": 1.2}
_SATURATION: Final[dict[str, Any]] = {"color": INK, "linewidth": 1.5, "linestyle": "--"}


def figures(calibration: Calibration) -> Iterator[tuple[str, str]]:
    """Yield all figures with data in the calibration: file name without suffix, and picture."""
    for way in WAYS:
        direction: CalibratedDirection | None = getattr(calibration.directions, way)
        if direction is None:
            continue
        if direction.lengths and direction.saturated_bps:
            yield f"arrivals-{way}", arrivals(direction, way)
        if direction.gaps:
            yield f"gaps-{way}", gaps(direction, way)


def arrivals(direction: CalibratedDirection, way: Way) -> str:
    """Return a figure of the mean arrival of each packet, a line for each train length (figure 5)."""
    longest = direction.lengths[-1].length
    heavy = 1e3 * (longest - 1) * PACKET_BITS / (direction.saturated_bps or 1)
    most = max(heavy, *(profile.mean_arrival_ns[-1] * _MILLI for profile in direction.lengths))
    rate = f"at the saturated rate, {(direction.saturated_bps or 0) / 1e6:.1f} Mbit/s"

    def draw(axes: Axes) -> None:
        axes.plot((1, longest), (0, heavy), label=rate, **_SATURATION)
        for place, profile in enumerate(direction.lengths):
            colour = _mix("#8fbbe8", "#12305a", place / max(1, len(direction.lengths) - 1))
            means = np.array(profile.mean_arrival_ns) * _MILLI
            axes.plot(range(1, len(means) + 1), means, color=colour, label=f"{profile.length} packets")

    title = f"Arrivals within trains {way}"
    return _plot(title, "packet of the train", "after the first packet (ms)", longest, most, draw)


def gaps(direction: CalibratedDirection, way: Way) -> str:
    """Return a figure of the chosen trains' completion by gap, and the minimum sufficient gap (figure 8b)."""
    spans = [gap.gap_ns * _MILLI for gap in direction.gaps]
    lasts = [gap.last_ns * _MILLI for gap in direction.gaps]
    errors = [(gap.last_error_ns or 0) * _MILLI for gap in direction.gaps]

    def draw(axes: Axes) -> None:
        name = f"within 20 % of that at {spans[0]:.0f} ms"
        for limit in (1 - TOLERANCE, 1 + TOLERANCE):
            axes.axhline(limit * lasts[0], color=MUTED, linestyle=":", label=name)
            name = ""
        if direction.least_gap_ns is not None:
            least = direction.least_gap_ns * _MILLI
            name = f"least gap that is long enough: {least:.0f} ms"
            axes.axvline(least, color=palette("downlink")[1], linestyle="--", label=name)
        axes.errorbar(spans, lasts, errors, label="mean of trains, with its standard error", **_MEASURED)

    title = f"Trains of {direction.train} packets {way} by gap"
    labels = ("gap between the starts of trains (ms)", "last packet after the first (ms)")
    return _plot(title, *labels, spans[0], max(*lasts, (1 + TOLERANCE) * lasts[0]), draw)


def _plot(title: str, x_label: str, y_label: str, x: float, y: float, draw: Callable[[Axes], None]) -> str:
    return plot.svg(title, plot.single((x_label, y_label), (0, 1.02 * x), (0, 1.05 * max(y, 1e-3)), draw))


def _mix(light: str, dark: str, share: float) -> str:
    parts = ((int(light[at : at + 2], 16), int(dark[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(one + (other - one) * share):02x}" for one, other in parts)


RESULT = "calibration.json"


def write(folder: Path, calibration: Calibration) -> Path:
    """Write ``calibration.json`` and an SVG per figure into a folder, which is created if missing; return the path of
    ``calibration.json``.

    Raises MeasureError if the folder or a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "not a folder" if isinstance(error, FileExistsError) else error.strerror
        raise MeasureError(f"{folder}: cannot be made: {reason}") from None
    files = {f"{name}.svg": picture for name, picture in figures(calibration)}
    files |= {RESULT: calibration.recorder_json() + "\n"}
    for name, text in files.items():
        replace(folder / name, text)
    return folder / RESULT
