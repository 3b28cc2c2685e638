"""A summary of a recording in a few figures, and its table in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cellbed.recordings.packets import count
from cellbed.recordings.recording import Recording
from cellbed.recordings.series import idle_warnings, rates, round_trips
from cellbed.support.ways import WAYS, Way

SECOND = 1_000_000_000


def summarise(recording: Recording) -> dict[str, Any]:
    """Return the figures of a recording for JSON. ``saturation`` of a direction and ``round_trips`` are ``None``
    without data."""
    it = recording.description
    return {
        "id": it.id,
        "tool": it.tool,
        "started": None if it.started is None else it.started.isoformat(),
        "duration_ns": it.duration_ns,
        "synthetic": it.synthetic,
        "imported_from": None if it.imported is None else it.imported.format,
        "arrangement": it.arrangement,
        "spans": len(it.spans),
        "saturation": {way: _summarize_saturation(recording, way) for way in WAYS},
        "round_trips": _round_trips(recording),
        "packets": {stem: count(table).model_dump() for stem, table in recording.tables()},
        "calibration": _calibration(recording),
        "signal": {key: value for key, value in it.signal.model_dump().items() if value is not None},
        "position": None if it.position is None else it.position.model_dump(),
        "warnings": [*it.warnings, *idle_warnings(recording)],
    }


def _summarize_saturation(recording: Recording, way: Way) -> dict[str, float] | None:
    """Return the bit/s of received IP packets, over complete saturated seconds, and the longest silence."""
    arrived = recording.packets("heavy", way)["arrived_ns"].drop_nulls().sort().to_numpy()
    if len(arrived) < 2:
        return None
    series = rates(recording, way, SECOND)
    begins = np.rint(series["time_s"].to_numpy()).astype(np.int64) * SECOND
    spans = [span for span in recording.description.spans if span.workload == "heavy"]
    saturated = np.array([any(s.start_ns <= at and at + SECOND <= s.end_ns for s in spans) for at in begins], bool)
    each = series["rate_bit_s"].to_numpy().astype(float)
    chosen = each[saturated] if saturated.any() else each
    low, high = np.percentile(chosen, (5, 95)).tolist()
    silence = int(np.diff(arrived).max())
    return {"mean_bps": float(chosen.mean()), "p5_bps": low, "p95_bps": high, "longest_silence_ns": silence}


def _round_trips(recording: Recording) -> dict[str, float] | None:
    """Return the round-trip times of the trains' first packets, ns."""
    trips = round_trips(recording)["round_trip_ns"].to_numpy()
    if not len(trips):
        return None
    median, high = np.percentile(trips, (50, 95)).tolist()
    counts = {"trains": recording.light_uplink["train"].n_unique(), "answered": len(trips)}
    return counts | {"least_ns": int(trips.min()), "median_ns": median, "p95_ns": high}


def _calibration(recording: Recording) -> dict[str, Any] | None:
    found = recording.description.calibration
    if found is None:
        return None
    keys = {"train", "least_gap_ns", "idle_ns", "queue_bytes", "saturated_bps"}
    told: dict[str, Any] = {"verdict": list(found.verdict)}
    for way in WAYS:
        if (one := getattr(found.directions, way)) is not None:
            told[way] = one.model_dump(include=keys)
    return told


def show(name: str, summary: Mapping[str, Any]) -> RenderableType:
    """Return a recording as lines and two tables. name: the user's name for it."""
    return Group(
        Text("\n".join(_opening_lines(name, summary))), _packets(summary), Text("\n".join(_closing_lines(summary)))
    )


def _opening_lines(name: str, summary: Mapping[str, Any]) -> Iterator[str]:
    origin = f"imported from {summary['imported_from']}" if summary["imported_from"] else "recorded"
    origin = "synthetic" if summary["synthetic"] else origin
    when = f", {summary['started']}" if summary["started"] and not summary["synthetic"] else ""
    workloads = {"together": "at once", "alternating": "in turn"}[summary["arrangement"]]
    yield (
        f"{name}: {origin}{when}, {summary['duration_ns'] / 1e9:.1f} s, workloads {workloads} in {summary['spans']} "
        f"spans, by {summary['tool']}, {summary['id']}"
    )
    for way, rate in summary["saturation"].items():
        yield (
            f"{way} under saturation: mean {rate['mean_bps'] / 1e6:.2f} Mbit/s, p5 {rate['p5_bps'] / 1e6:.2f}, "
            f"p95 {rate['p95_bps'] / 1e6:.2f} over 1 s, longest silence {rate['longest_silence_ns'] / 1e6:.0f} ms"
            if rate
            else f"{way}: not saturated"
        )
    trips = summary["round_trips"]
    yield (
        f"round-trip time: least {trips['least_ns'] / 1e6:.2f} ms, median {trips['median_ns'] / 1e6:.2f}, "
        f"p95 {trips['p95_ns'] / 1e6:.2f}; {trips['answered']} of {trips['trains']} trains answered"
        if trips
        else "round-trip time: no train was answered"
    )


def _packets(summary: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("packets", no_wrap=True)
    for heading in ("sent", "lost", "duplicated", "reordered"):
        table.add_column(heading, justify="right")
    for stem, counts in summary["packets"].items():
        table.add_row(stem, *(str(counts[key]) for key in ("sent", "lost", "duplicated", "reordered")))
    return table


def _closing_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    calibration = summary["calibration"]
    if calibration is None:
        yield "not calibrated"
    else:
        for way in WAYS:
            if (found := calibration.get(way)) is not None:
                yield f"{way} calibrated: {', '.join(_parameters(found))}"
        yield from calibration["verdict"]
    if (position := summary["position"]) is not None:
        speed = "" if position["speed_m_s"] is None else f", speed {position['speed_m_s']:.1f} m/s"
        yield f"position: {position['latitude']:.5f}, {position['longitude']:.5f}{speed} (medians)"
    signal = ", ".join(f"{key} {value}" for key, value in summary["signal"].items())
    yield f"signal: {signal or 'not known'}"
    for warning in (*summary["warnings"], *summary.get("certificate", ())):
        yield f"note: {warning}"


def _parameters(found: dict[str, int | float | None]) -> Iterator[str]:
    yield f"trains of {found['train']} packets"
    for key, name in (("least_gap_ns", "least gap"), ("idle_ns", "idle after (F)")):
        if (value := found[key]) is not None:
            yield f"{name} {value / 1e6:g} ms"
    if (value := found["queue_bytes"]) is not None:
        yield f"queue {value / 1e3:.0f} kB"
    if (value := found["saturated_bps"]) is not None:
        yield f"saturated at {value / 1e6:.1f} Mbit/s"
