"""The recording that a model is fitted to: from the archive by name, or a file."""

from __future__ import annotations

from pathlib import Path

from cellbed.archive.catalogue import resolve
from cellbed.archive.errors import TraceError
from cellbed.archive.generation.recorded import Like, Recorded, times
from cellbed.archive.series import ENDINGS, Part
from cellbed.archive.store import open_archive
from cellbed_node import inputs


def like(name: str, folder: Path) -> Like:
    """Return the recording called `name`: an entry of the archive, one direction of it, or a trace's file in `folder`.

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
    table = pl.read_csv(inputs.check(source.path), has_header=False, comment_prefix="#", schema={"ms": pl.Int64})
    stamps = table["ms"].drop_nulls().to_numpy()
    part: Part = ENDINGS.get(name.rpartition(".")[2], "downlink")
    found = Recorded(stamps * 1_000_000, int(stamps[-1]) * 1_000_000)
    return Like(Path(name).name, {part: found}, {Path(name).name: source.sha256})
