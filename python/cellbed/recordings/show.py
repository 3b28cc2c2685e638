"""The figures of a recording for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cellbed.recordings.summary import RecordingSummary
from cellbed.ways import WAYS


def show(name: str, summary: RecordingSummary) -> RenderableType:
    """A recording as lines and two tables. name: what the user calls it."""
    return Group(Text("\n".join(_opening(name, summary))), _packets(summary), Text("\n".join(_closing(summary))))


def _opening(name: str, summary: RecordingSummary) -> Iterator[str]:
    origin = f"imported from {summary.imported_from}" if summary.imported_from else "recorded"
    origin = "synthetic" if summary.synthetic else origin
    when = f", {summary.started}" if summary.started and not summary.synthetic else ""
    workloads = {"together": "at once", "alternating": "in turn"}[summary.arrangement]
    yield (
        f"{name}: {origin}{when}, {summary.duration_ns / 1e9:.1f} s, workloads {workloads} in {summary.spans} spans, "
        f"by {summary.tool}, {summary.id}"
    )
    for way in WAYS:
        rate = summary.saturation[way]
        yield (
            f"{way} under saturation: mean {rate.mean_bps / 1e6:.2f} Mbit/s, p5 {rate.p5_bps / 1e6:.2f}, "
            f"p95 {rate.p95_bps / 1e6:.2f} over 1 s, longest silence {rate.longest_silence_ns / 1e6:.0f} ms"
            if rate
            else f"{way}: not saturated"
        )
    trips = summary.round_trips
    yield (
        f"round-trip time: least {trips.least_ns / 1e6:.2f} ms, median {trips.median_ns / 1e6:.2f}, "
        f"p95 {trips.p95_ns / 1e6:.2f}; {trips.answered} of {trips.trains} trains answered"
        if trips
        else "round-trip time: no train was answered"
    )


def _packets(summary: RecordingSummary) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("packets", no_wrap=True)
    for heading in ("sent", "lost", "duplicated", "reordered"):
        table.add_column(heading, justify="right")
    for stem, counts in summary.packets.items():
        table.add_row(stem, *(str(counts[key]) for key in ("sent", "lost", "duplicated", "reordered")))
    return table


def _closing(summary: RecordingSummary) -> Iterator[str]:
    calibration = summary.calibration
    if calibration is None:
        yield "not calibrated"
    else:
        for way in WAYS:
            if (found := calibration.get(way)) is not None:
                yield f"{way} calibrated: {', '.join(_parameters(found))}"
        yield from calibration["verdict"]
    signal = ", ".join(f"{key} {value}" for key, value in summary.signal.items())
    yield f"signal: {signal or 'not known'}"
    for warning in summary.warnings:
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
