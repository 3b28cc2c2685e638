"""Recordings that a model is to be like: from the archive by name, or files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.archive.catalogue import ENDINGS, resolve
from cellbed.archive.errors import TraceError
from cellbed.archive.generation.capacity import Capacity, Grain, opportunities
from cellbed.archive.generation.randomness import Stream
from cellbed.archive.generation.recorded import Recorded
from cellbed.archive.series import Content, Part, Series
from cellbed.archive.store import open_archive

if TYPE_CHECKING:
    from cellbed.archive.generation.randomness import Int64


@dataclass(frozen=True, slots=True)
class Like:
    """A recording by name. parts: its directions. sha256: of what was read, by name."""

    name: str
    parts: dict[Part, Recorded]
    sha256: dict[str, str]


def like(name: str, folder: Path) -> Like:
    """The recording called `name`: an entry of the archive, one direction of it, or a trace's file in `folder`.

    Errors: :class:`TraceError`.
    """
    import polars as pl

    archive = open_archive()
    if archive.has(name):
        entry = archive.entry(name)
        ways = [part for part in ENDINGS.values() if part in entry.parts]
        if not ways:
            raise TraceError(f"'{name}' has neither uplink nor downlink: no rate to fit")
        parts = {part: Recorded(times(archive.series(name, part)), entry.parts[part].duration_ns) for part in ways}
        return Like(name, parts, {f"{name} {part}": entry.parts[part].sha256 for part in ways})
    source = resolve(name, folder)
    _ = source.trace  # refuses what is malformed, line by line
    table = pl.read_csv(source.path, has_header=False, comment_prefix="#", schema={"ms": pl.Int64})
    stamps = table["ms"].drop_nulls().to_numpy()
    part: Part = ENDINGS.get(name.rpartition(".")[2], "downlink")
    found = Recorded(stamps * 1_000_000, int(stamps[-1]) * 1_000_000)
    return Like(Path(name).name, {part: found}, {Path(name).name: source.sha256})


def times(series: Series, until_ns: int | None = None) -> Int64:
    """Opportunities of a series of opportunities or rates, ns, up to a time."""
    import numpy as np
    import polars as pl

    end_ns = series.duration_ns if until_ns is None else min(series.duration_ns, until_ns)
    table = series.scan().filter(pl.col("at_ns") <= end_ns).collect()
    if series.content is Content.OPPORTUNITIES:
        return np.asarray(table["at_ns"].to_numpy())
    rates = table["bit_s"].to_numpy().astype(np.int64)
    capacity = Capacity(np.asarray(table["at_ns"].to_numpy()), rates, end_ns)
    chunks = list(opportunities(capacity, Grain(scattered=False), Stream(0, "")))
    return np.concatenate(chunks) if chunks else np.empty(0, np.int64)
