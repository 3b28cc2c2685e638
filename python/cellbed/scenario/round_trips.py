"""Recorded round-trip times that a core link replays: of the archive, or a CSV file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import cast

from cellbed.archive import Archive, find_file, obstacle, open_archive
from cellbed.scenario.fields import TextField
from cellbed.scenario.series import Column, read_recording
from cellbed.support.near_names import near_names, question
from cellbed.support.units import UnitError

_UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
ROUND_TRIP = Column(
    "round-trip time",
    {f"{name}_{unit}": Decimal(size) for name in ("round_trip", "rtt") for unit, size in _UNITS.items()},
    Decimal(0),
    Decimal(120 * 10**9),
    gaps=True,
)


@dataclass(frozen=True, slots=True)
class RoundTripRecord:
    """Round-trip times over time.

    name: what the user wrote. path: absolute. sha256: of its bytes. samples: (ns since its start, round-trip time in
    ns) of answered probes, in order of time, at least one. duration: ns, after which it repeats. synthetic: whether it
    comes from a model.
    """

    name: str
    path: Path
    sha256: str
    samples: tuple[tuple[int, int], ...]
    duration: int
    synthetic: bool = False

    def over(self, start: int, duration: int) -> list[tuple[int, int]]:
        """Return the samples of `duration` ns from a position on, each with its time since then; the first is at 0."""
        return [(max(0, at - start), trip) for at, trip in self._from(start % self.duration, start, start + duration)]

    def _from(self, position: int, start: int, end: int) -> Iterator[tuple[int, int]]:
        # The value at the start is the last sample before it, possibly from the end of the previous repetition.
        index = bisect_right(self.samples, position, key=lambda sample: sample[0]) - 1
        begun = start - position
        if index < 0:
            index, begun = len(self.samples) - 1, begun - self.duration
        for number in count(index):
            rounds, which = divmod(number, len(self.samples))
            at = self.samples[which][0] + begun + rounds * self.duration
            if at >= end:
                return
            yield at, self.samples[which][1]


def round_trip_record() -> TextField:
    """Return the name of a record of round-trip times."""
    return TextField(
        _read,
        lambda record: record.name,
        {"minLength": 1, "examples": ["pings.csv"]},
        lambda _number: "a name of the archive or the path of a CSV file",
    )


def _read(text: str, folder: Path) -> RoundTripRecord:
    archive = open_archive()
    if archive.has(text):
        return _archived(archive, text)
    if find_file(text, folder) is None and "/" not in text:
        near = question(near_names(text, archive.names()))
        why = obstacle(text, folder, "file of round-trip times")
        raise UnitError(
            f"the archive has no '{text:.40}', and {why}: {near or '`cellbed traces ls` shows what the archive has'}"
        )
    file = read_recording(text, folder, ROUND_TRIP)
    points = file.points
    if len(points) < 2:
        raise UnitError(f"{file.path}: a record needs two round-trip times or more")
    # The last one holds as long as the one before it did.
    duration = 2 * points[-1][0] - points[-2][0]
    return RoundTripRecord(file.name, file.path, file.sha256, points, duration)


def _archived(archive: Archive, name: str) -> RoundTripRecord:
    series = archive.series(name, "round-trip")
    entry = archive.entry(name)
    answered = series.scan().drop_nulls().unique("at_ns", keep="first", maintain_order=True)
    samples = cast("tuple[tuple[int, int], ...]", tuple(answered.select("at_ns", "round_trip_ns").collect().rows()))
    if not samples:
        raise UnitError(f"'{name}' contains no answered round trip: choose another record")
    synthetic = entry.about.origin == "synthetic"
    return RoundTripRecord(name, series.path, entry.parts["round-trip"].sha256, samples, series.duration_ns, synthetic)
