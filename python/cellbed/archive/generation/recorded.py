"""The input of a fit: a recording by name, its outages, and the rates between outages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from cellbed.archive.catalogue import resolve
from cellbed.archive.errors import TraceError
from cellbed.archive.generation.series import OPPORTUNITY_BITS, Capacity, Grain, opportunities
from cellbed.archive.randomness import Stream
from cellbed.archive.series import ENDINGS, Content, Part, Series
from cellbed.archive.store import open_archive
from cellbed_node import inputs

if TYPE_CHECKING:
    from cellbed.archive.randomness import Float64, Int64

TICK_NS = 100_000_000
"""Averaging interval of a rate, ns."""

OUTAGE_NS = 200_000_000
"""Default minimum length of an outage, ns."""


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Delivery opportunities. at_ns: sorted, the first at 0 or later. duration_ns: the period of their loop."""

    at_ns: Int64
    duration_ns: int

    def rates(self, tick_ns: int = TICK_NS) -> Float64:
        """Return the rate of each tick, bit/s; an incomplete last tick is left out."""
        count = self.duration_ns // tick_ns
        ticks = np.maximum(self.at_ns - 1, 0) // tick_ns  # an opportunity at the end of a tick belongs to that tick
        counts = np.bincount(ticks[ticks < count], minlength=count).astype(np.float64)
        found: Float64 = counts * (OPPORTUNITY_BITS * 1e9 / tick_ns)
        return found

    def outages(self, least_ns: int) -> tuple[Int64, Int64]:
        """Return start and length (ns) of silences of at least `least_ns`, at beginning and end, too."""
        bounds = np.concatenate(([0], self.at_ns, [self.duration_ns])).astype(np.int64)
        gaps = np.diff(bounds)
        long = gaps >= least_ns
        return bounds[:-1][long], gaps[long]

    def together(self) -> float:
        """Return the mean number of opportunities in a millisecond that has any."""
        return len(self.at_ns) / max(1, len(np.unique(self.at_ns // 1_000_000)))

    def whole_milliseconds(self) -> bool:
        """Return whether all times are whole milliseconds, as in Mahimahi's files."""
        whole: np.bool_ = (self.at_ns % 1_000_000 == 0).all()
        return bool(whole)


def split_at_outages(recorded: Recorded, least_ns: int) -> tuple[npt.NDArray[np.int64], Int64, Int64]:
    """Return the opportunities of each tick on a clock that pauses in outages, and each outage's time on that clock and
    length (ns)."""
    start, length = recorded.outages(least_ns)
    before = np.cumsum(length)
    passed = before[np.searchsorted(start + length, recorded.at_ns, side="right") - 1] if len(start) else 0
    outside = np.where(recorded.at_ns < (start[0] + length[0]), 0, passed) if len(start) else 0
    clock = recorded.at_ns - outside
    count = int(recorded.duration_ns - (before[-1] if len(before) else 0)) // TICK_NS
    ticks = np.maximum(clock - 1, 0) // TICK_NS
    counts = np.bincount(ticks[ticks < count], minlength=count)[:count]
    return counts, start - (before - length), length


@dataclass(frozen=True, slots=True)
class Like:
    """A recording by name. parts: directions of the recording. sha256: digests of the files read, by name."""

    name: str
    parts: dict[Part, Recorded]
    sha256: dict[str, str]


def times(series: Series) -> Int64:
    """Return the opportunities of a series of opportunities or rates, ns."""
    table = series.scan().collect()
    if series.content is Content.OPPORTUNITIES:
        return np.asarray(table["at_ns"].to_numpy())
    rates = table["bit_s"].to_numpy().astype(np.int64)
    capacity = Capacity(np.asarray(table["at_ns"].to_numpy()), rates, series.duration_ns)
    chunks = list(opportunities(capacity, Grain(scattered=False), Stream(0, "")))
    return np.concatenate(chunks) if chunks else np.empty(0, np.int64)


def read_recorded(name: str, folder: Path) -> Like:
    """Return the recording called `name`: an entry of the archive, one of its directions, or a trace file in `folder`.

    Errors: :class:`TraceError`.
    """
    archive = open_archive()
    if archive.has(name):
        entry = archive.entry(name)
        ways = [part for part in ENDINGS.values() if part in entry.parts]
        if not ways:
            raise TraceError(f"'{name}' has neither uplink nor downlink: no rate to fit")
        parts = {part: Recorded(times(archive.series(name, part)), entry.parts[part].duration_ns) for part in ways}
        return Like(name, parts, {f"{name} {part}": entry.parts[part].sha256 for part in ways})
    source = resolve(name, folder)
    _ = source.trace  # raises an error for a malformed line
    table = pl.read_csv(inputs.check(source.path), has_header=False, comment_prefix="#", schema={"ms": pl.Int64})
    stamps = table["ms"].drop_nulls().to_numpy()
    part: Part = ENDINGS.get(name.rpartition(".")[2], "downlink")
    found = Recorded(stamps * 1_000_000, int(stamps[-1]) * 1_000_000)
    return Like(Path(name).name, {part: found}, {Path(name).name: source.sha256})
