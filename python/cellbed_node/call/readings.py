"""Measures of a call from the browser's statistics (W3C, "Identifiers for WebRTC's Statistics API")."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

Sample = Mapping[str, Any]
"""Reports at a time: ``at`` (ms, the page's clock), and reports by type and media kind, ``inbound-rtp video``."""
_SENT, _RECEIVED, _HEARD = "outbound-rtp video", "inbound-rtp video", "inbound-rtp audio"
_CLOCK = 48_000
"""Audio samples per second (Opus)."""
_MEANS = {
    "jitter_buffer_ms": (_RECEIVED, "jitterBufferDelay", "jitterBufferEmittedCount", 1e3),
    "target_delay_ms": (_RECEIVED, "jitterBufferTargetDelay", "jitterBufferEmittedCount", 1e3),
    "inter_frame_ms": (_RECEIVED, "totalInterFrameDelay", "framesDecoded", 1e3),
    "decode_ms": (_RECEIVED, "totalDecodeTime", "framesDecoded", 1e3),
    "encode_ms": (_SENT, "totalEncodeTime", "framesEncoded", 1e3),
    "audio_buffer_ms": (_HEARD, "jitterBufferDelay", "jitterBufferEmittedCount", 1e3),
    "concealed_percent": (_HEARD, "concealedSamples", "totalSamplesReceived", 100.0),
}
"""Ratios of the growth of two counters, with a factor."""
_RATES = {
    "received_mbit_s": (_RECEIVED, "bytesReceived", 8e-6),
    "frames_per_s": (_RECEIVED, "framesDecoded", 1.0),
    "sent_mbit_s": (_SENT, "bytesSent", 8e-6),
    "sent_frames_per_s": (_SENT, "framesSent", 1.0),
}
"""Growth of a counter per second."""
_STATES = {
    "round_trip_ms": ("pair", "currentRoundTripTime", 1e3),
    "rtcp_round_trip_ms": ("remote-inbound-rtp video", "roundTripTime", 1e3),
    "estimate_mbit_s": ("pair", "availableOutgoingBitrate", 1e-6),
    "height": (_RECEIVED, "frameHeight", 1),
}
"""Current values, with a factor."""
_TOTALS = {
    "freezes": (_RECEIVED, "freezeCount", 1.0),
    "frozen_s": (_RECEIVED, "totalFreezesDuration", 1.0),
    "frames_dropped": (_RECEIVED, "framesDropped", 1.0),
    "packets_lost": (_RECEIVED, "packetsLost", 1.0),
    "concealments": (_HEARD, "concealmentEvents", 1.0),
    "concealed_s": (_HEARD, "concealedSamples", 1 / _CLOCK),
}
"""Growth of a counter over the whole call."""
SHOWN = (
    *("delay_ms", "round_trip_ms", "jitter_buffer_ms", "target_delay_ms", "inter_frame_ms"),
    *("received_mbit_s", "frames_per_s", "height"),
)
"""Series that come first: the report draws these."""


def counter_growth(before: Sample, after: Sample, report: str, counter: str) -> float | None:
    """Return the growth of a counter; ``None`` if it is missing."""
    values = [each.get(report, {}).get(counter) for each in (before, after)]
    return None if values[1] is None else float(values[1]) - float(values[0] or 0)


def limitation_s(before: Sample, after: Sample, by: str) -> float:
    """Return how long the encoder lowered its quality for a reason, ``cpu`` or ``bandwidth``."""
    values = [each.get(_SENT, {}).get("qualityLimitationDurations", {}).get(by, 0) for each in (before, after)]
    return float(values[1] - values[0])


def measures(
    samples: Sequence[Sample], delays: Sequence[tuple[float, float]], begin_ms: float
) -> dict[str, dict[str, Any]]:
    """Return series and totals in the format of a program's own measures (``docs/reference/scenario/apps.md``). Pure.

    samples: in order of time. delays: per frame, when it was shown (s since the start of the schedule), and its
    end-to-end delay, ms. begin_ms: the start of the schedule by the clock of the samples.
    """
    series: dict[str, list[tuple[float, float]]] = {name: [] for name in SHOWN}
    by_second: dict[int, list[float]] = defaultdict(list)
    for shown_s, delay in delays:
        by_second[int(shown_s)].append(delay)
    series["delay_ms"] = [(second + 1.0, median(values)) for second, values in sorted(by_second.items())]
    for before, after in pairwise(samples):
        at_s, span_s = (after["at"] - begin_ms) / 1e3, (after["at"] - before["at"]) / 1e3
        values: dict[str, float | None] = {}
        for name, (report, total, count, factor) in _MEANS.items():
            amount, number = counter_growth(before, after, report, total), counter_growth(before, after, report, count)
            values[name] = amount / number * factor if amount is not None and number else None
        for name, (report, counter, factor) in _RATES.items():
            growth = counter_growth(before, after, report, counter)
            values[name] = None if growth is None or span_s <= 0 else growth / span_s * factor
        for name, (report, key, factor) in _STATES.items():
            state = after.get(report, {}).get(key)
            values[name] = None if state is None else state * factor
        for name, value in values.items():
            if value is not None:
                series.setdefault(name, []).append((at_s, value))
    found: dict[str, dict[str, Any]] = {
        name: {"values": [value for _, value in points], "times_s": [time for time, _ in points]}
        for name, points in series.items()
        if points
    }
    if len(samples) > 1:
        first, last = samples[0], samples[-1]
        for name, (report, counter, factor) in _TOTALS.items():
            if (growth := counter_growth(first, last, report, counter)) is not None:
                found[name] = {"value": growth * factor}
        for by in ("cpu", "bandwidth"):
            found[f"{by}_limited_s"] = {"value": limitation_s(first, last, by)}
    return found


def strains(
    samples: Sequence[Sample], interval_ms: float, due: int, painted: int, unread: int
) -> dict[str, dict[str, Any]]:
    """Return totals of a call that characterise the machine rather than the network. Pure.

    interval_ms: between frames; due: number of frames to paint; painted: painted frames; unread: shown frames that the
    page missed.
    """
    found = {}
    if due:
        found["unpainted_percent"] = 100 * (due - painted) / due
    if painted:
        found["missed_percent"] = 100 * unread / painted
    if len(samples) > 1:
        first, last = samples[0], samples[-1]
        found["cpu_limited_percent"] = 1e5 * limitation_s(first, last, "cpu") / (last["at"] - first["at"])
        for name in ("encode", "decode"):
            report, total, count, factor = _MEANS[f"{name}_ms"]
            amount, number = counter_growth(first, last, report, total), counter_growth(first, last, report, count)
            if amount is not None and number:
                found[f"{name}_percent"] = 100 * amount / number * factor / interval_ms
    return {name: {"value": value} for name, value in found.items()}
