"""Readings as text: columns for a terminal, a sentence for a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from cellbed.measure.meter.reading import Reading

_HEADING = "  Mbit/s  queue kB  packets  delay ms  longest  dropped"


def table(readings: Sequence[Reading], columns: int, rows: int, indent: str = "") -> list[str]:
    """A heading and a row per direction, in at most `rows` lines of less than `columns` characters."""
    width = max((len(reading.direction) for reading in readings), default=0)
    lines = [f"{indent}{'':{width}}{_HEADING}", *(f"{indent}{_row(reading, width)}" for reading in readings)]
    if len(lines) > rows:
        lines = [*lines[: max(0, rows - 1)], f"{indent}… {len(readings)} directions"][: max(0, rows)]
    return [line[: columns - 1] for line in lines]


def sentence(readings: Sequence[Reading]) -> str:
    """All directions in one line."""
    return "; ".join(f"{reading.direction} {', '.join(_fields(reading))}" for reading in readings)


def _row(reading: Reading, width: int) -> str:
    delay = "—" if reading.delay_ms is None else f"{reading.delay_ms:.1f}"
    longest = "—" if reading.longest_ms is None else f"{reading.longest_ms:.1f}"
    return (
        f"{reading.direction:{width}}{reading.bit_rate / 1e6:8.2f}  {reading.queue_bytes / 1e3:8.1f}"
        f"  {reading.queue_packets:7d}  {delay:>8}  {longest:>7}  {_lost(reading)}"
    )


def _fields(reading: Reading) -> list[str]:
    fields = [
        f"{reading.bit_rate / 1e6:.2f} Mbit/s",
        f"queue {reading.queue_bytes / 1e3:.1f} kB in {reading.queue_packets} packets",
    ]
    if reading.delay_ms is not None and reading.longest_ms is not None:
        fields.append(f"delay {reading.delay_ms:.1f} ms, at most {reading.longest_ms:.1f} ms")
    return [*fields, f"dropped {_lost(reading)}"]


def _lost(reading: Reading) -> str:
    dropped = ", ".join(f"{count} {why}" for why, count in reading.dropped.items()) or "none"
    return f"{dropped}, {reading.marked} marked" if reading.marked else dropped
