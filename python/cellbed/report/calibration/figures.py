"""The figures of a calibration as SVG, after figures 4, 5 and 8 of Sentosa et al. ("CellReplay", NSDI 2025)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cellbed.recordings.description import WAYS, CalibratedDirection, Calibration, Length, Way
from cellbed.report.palette import ALARM, INK, MUTED, of_place
from cellbed.report.plot import Plot, Style

PACKET_BITS = 8 * 1400
"""Of the packets of a calibration, IP length."""

TOLERANCE = 0.2
"""r_last of a gap that is long enough (§4.4)."""

_MILLI = 1e-6
"""Nanoseconds to milliseconds."""

_LINE = Style(of_place("uplink")[1], width=2.5)
_DOT = Style(of_place("uplink")[0], width=7)
_ERROR_BAR = Style(INK, width=1.5)
_SATURATION = Style(INK, width=2, dashes="7 5")
_WRONG = Style(ALARM, width=3)
_BAND = Style(MUTED, width=1.5, dashes="2 4")
_LEAST = Style(of_place("downlink")[1], width=2, dashes="7 5")


def figures(calibration: Calibration) -> Iterator[tuple[str, str]]:
    """All figures that the calibration has data for: a name for a file without its ending, and the picture."""
    for way in WAYS:
        direction: CalibratedDirection | None = getattr(calibration.directions, way)
        if direction is None:
            continue
        if direction.lengths and direction.saturated_bps:
            yield f"completion-{way}", completion(direction, way)
            yield f"arrivals-{way}", arrivals(direction, way)
            yield f"prediction-{way}", prediction(direction, way)
        if direction.gaps:
            yield f"gaps-{way}", gaps(direction, way)


def completion(direction: CalibratedDirection, way: Way) -> str:
    """Mean completion of trains by their length, beside what the saturated rate makes of it (figure 4)."""
    lengths = [profile.length for profile in direction.lengths]
    lasts = [_last(profile) for profile in direction.lengths]
    most = max(*lasts, _heavy(direction, lengths[-1] - 1))
    plot = _plot(f"Trains {way} by length", "packets of a train", "last packet after the first (ms)", lengths[-1], most)
    plot.line((1, lengths[-1]), (0, _heavy(direction, lengths[-1] - 1)), _SATURATION, _saturated(direction))
    plot.line(lengths, lasts, _LINE, "mean of trains, with its standard error")
    for profile, last in zip(direction.lengths, lasts, strict=True):
        _error_bar(plot, profile.length, last, profile.last_error_ns)
    plot.dots(np.array(lengths), np.array(lasts), _DOT)
    return plot.svg()


def arrivals(direction: CalibratedDirection, way: Way) -> str:
    """Mean arrival of each packet, a line for each length of trains (figure 5)."""
    longest = direction.lengths[-1].length
    most = max(_heavy(direction, longest - 1), *(_last(profile) for profile in direction.lengths))
    plot = _plot(f"Arrivals within trains {way}", "packet of the train", "after the first packet (ms)", longest, most)
    plot.line((1, longest), (0, _heavy(direction, longest - 1)), _SATURATION, _saturated(direction))
    for place, profile in enumerate(direction.lengths):
        share = place / max(1, len(direction.lengths) - 1)
        style = Style(_between("#8fbbe8", "#12305a", share), width=2)
        means = [arrival * _MILLI for arrival in profile.mean_arrival_ns]
        plot.line(range(1, len(means) + 1), means, style, f"{profile.length} packets")
    return plot.svg()


def prediction(direction: CalibratedDirection, way: Way) -> str:
    """What trains of the chosen length, and saturation from there on, predict of the others (figure 8a)."""
    chosen = next((it for it in direction.lengths if it.length == direction.train), direction.lengths[0])
    longest = direction.lengths[-1].length
    predicted = [arrival * _MILLI for arrival in chosen.mean_arrival_ns]
    predicted += [predicted[-1] + _heavy(direction, more) for more in range(1, longest - chosen.length + 1)]
    most = max(*predicted, *(_last(profile) for profile in direction.lengths))
    title = f"Trains {way} as predicted from {chosen.length} packets"
    plot = _plot(title, "packets of a train", "last packet after the first (ms)", longest, most)
    plot.line(range(1, longest + 1), predicted, _LINE, f"predicted from trains of {chosen.length} packets, R*")
    name = "error of the prediction"
    for profile in direction.lengths:
        plot.line([profile.length] * 2, (_last(profile), predicted[profile.length - 1]), _WRONG, name)
        name = ""
    lengths = np.array([profile.length for profile in direction.lengths])
    plot.dots(lengths, np.array([_last(profile) for profile in direction.lengths]), _DOT, "mean of trains")
    return plot.svg()


def gaps(direction: CalibratedDirection, way: Way) -> str:
    """Completion of the chosen trains by the gap between them, and the least gap that is long enough (figure 8b)."""
    cold = direction.gaps[0].last_ns * _MILLI
    longest = direction.gaps[0].gap_ns * _MILLI
    lasts = [gap.last_ns * _MILLI for gap in direction.gaps]
    most = max(*lasts, (1 + TOLERANCE) * cold)
    title = f"Trains of {direction.train} packets {way} by gap"
    plot = _plot(title, "gap between the starts of trains (ms)", "last packet after the first (ms)", longest, most)
    for limit, name in ((1 - TOLERANCE, f"within 20 % of that at {longest:.0f} ms"), (1 + TOLERANCE, "")):
        plot.line((0, longest), (limit * cold, limit * cold), _BAND, name)
    if direction.least_gap_ns is not None:
        least = direction.least_gap_ns * _MILLI
        plot.line((least, least), (0, 1.05 * most), _LEAST, f"least gap that is long enough: {least:.0f} ms")
    spans = [gap.gap_ns * _MILLI for gap in direction.gaps]
    plot.line(spans, lasts, _LINE, "mean of trains, with its standard error")
    for gap, span, last in zip(direction.gaps, spans, lasts, strict=True):
        _error_bar(plot, span, last, gap.last_error_ns)
    plot.dots(np.array(spans), np.array(lasts), _DOT)
    return plot.svg()


def _plot(title: str, x_label: str, y_label: str, x: float, y: float) -> Plot:
    return Plot(title, x_label, y_label, (0.0, 1.02 * x), (0.0, 1.05 * max(y, 1e-3)))


def _last(profile: Length) -> float:
    return profile.mean_arrival_ns[-1] * _MILLI


def _heavy(direction: CalibratedDirection, packets: int) -> float:
    return 1e3 * packets * PACKET_BITS / (direction.saturated_bps or 1)


def _saturated(direction: CalibratedDirection) -> str:
    return f"at the saturated rate, {(direction.saturated_bps or 0) / 1e6:.1f} Mbit/s"


def _error_bar(plot: Plot, x: float, y: float, error_ns: float | None) -> None:
    if error_ns:
        error = error_ns * _MILLI
        plot.line((x, x), (y - error, y + error), _ERROR_BAR)


def _between(light: str, dark: str, share: float) -> str:
    parts = ((int(light[at : at + 2], 16), int(dark[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(one + (other - one) * share):02x}" for one, other in parts)
