"""A table of the archive's entries, for finding one among ten thousand.

It is kept in the archive, behind a checksum, and is a cache: entries that changed since it was written are read again,
and a table that is missing or damaged is made anew. It is read and replaced whole, so it needs no lock, which not every
file system has, and works in a read-only archive.

| column | is |
|---|---|
| `name`, and each key of an entry's `about` | as in `entry.toml`; null is unknown |
| `PART_content`, `PART_duration_ns`, `PART_rows`, `PART_sha256` | of `uplink`, `downlink` and `round_trip` |
| `PART_KEY` | each statistic that is a number, as a floating-point number: `uplink_mean_bit_s` |
| `recording` | whether it holds a recording of two workloads |
| `duration_ns` | of its longest part |
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from cellbed import inputs
from cellbed.archive.entry_file import ENTRY_FILE, read_entry
from cellbed.archive.errors import TraceError
from cellbed.archive.search import as_text
from cellbed.archive.series import PARTS
from cellbed.whole_files import write_whole

if TYPE_CHECKING:
    from cellbed.archive.entry import Entry

_FILE: Final = ".index-5"
"""SHA-256 of what follows, a line of JSON, and the table as Parquet. Raise the number when the columns change."""
_DIGEST: Final = 32
_MOST: Final = 1900
"""Maximum number of columns; the last keys have none."""
_STEMS: Final = tuple(part.replace("-", "_") for part in PARTS)
_HELD: Final[dict[str, Any]] = {"content": pl.String, "sha256": pl.String, "duration_ns": pl.Int64, "rows": pl.Int64}
_MEASURED: Final = tuple(f"{stem}_" for stem in _STEMS)
_TICK_NS: Final = 100_000_000
"""A file that changed within this time before it was read may change again and keep its time."""

Stamp = tuple[int, int, int]
"""Time of change (ns), inode and size of a description; zeros where there is none."""
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class EntryTable:
    """A row for each entry that can be read, in order of their names.

    problems: by name, why an entry cannot be read. stamps: by folder, of the descriptions that were read.
    """

    frame: pl.DataFrame
    problems: dict[str, str] = field(default_factory=dict)
    stamps: dict[str, Stamp] = field(default_factory=dict)


@cache
def _always() -> dict[str, Any]:
    """Columns that always exist; first those that a list shows."""
    from cellbed.archive.entry import About

    return {
        **{"name": pl.String, "duration_ns": pl.Int64},
        **dict.fromkeys(("uplink_mean_bit_s", "downlink_mean_bit_s"), pl.Float64),
        **dict.fromkeys(About.model_fields, pl.String),
        **{f"{stem}_{key}": kind for stem in _STEMS for key, kind in _HELD.items()},
        "recording": pl.Boolean,
    }


def frame_of(rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """A table of entries with these values by column."""
    rows = list(rows)
    names = list(dict.fromkeys([*_always(), *(key for row in rows for key in row)]))[:_MOST]
    schema = {name: _kind(name) for name in names}
    return pl.DataFrame({name: [row.get(name) for row in rows] for name in names}, schema=schema).sort("name")


def refreshed(archive: Path, progress: Progress | None = None) -> EntryTable:
    """The table of the entries in `archive` as they are now. Raises OSError if the archive cannot be read.

    progress: called with the number of changed entries read so far, and their total.
    """
    now = _stamps(archive)
    stored = _stored(archive / _FILE)
    if stored is not None and stored.stamps == now:
        return stored
    table = stored or EntryTable(frame_of([]))
    changed = {name: stamp for name, stamp in now.items() if table.stamps.get(name) != stamp}
    clock_ns = _clock(archive)
    rows, problems, gone = _read(archive, changed, progress)
    stale = {as_text(name) for name in table.stamps if name in changed or name not in now}
    kept = table.frame.filter(~pl.col("name").is_in(sorted(stale)))
    used = [name for name in kept.columns if name in _always() or kept[name].null_count() < kept.height]
    frame = pl.concat([kept.select(used), frame_of(rows)], how="diagonal").sort("name")
    problems |= {name: problem for name, problem in table.problems.items() if name not in stale}
    stamps = {
        name: (-1 if name in changed and changed_ns > clock_ns - _TICK_NS else changed_ns, inode, size)
        for name, (changed_ns, inode, size) in now.items()
        if name not in gone
    }
    table = EntryTable(frame.select(frame.columns[:_MOST]), dict(sorted(problems.items())), stamps)
    _store(table, archive / _FILE)
    return table


def _kind(name: str) -> Any:
    return _always().get(name, pl.Float64 if name.startswith(_MEASURED) else pl.String)


def _stamps(archive: Path) -> dict[str, Stamp]:
    """Of the folders that may be entries, by name."""
    descriptor = os.open(archive, os.O_RDONLY | os.O_DIRECTORY)
    stamps: dict[str, Stamp] = {}
    try:
        with os.scandir(descriptor) as folders:
            names = sorted(folder.name for folder in folders if folder.name[0] != "." and folder.is_dir())
        for name in names:
            try:
                found = os.stat(f"{name}/{ENTRY_FILE}", dir_fd=descriptor)
                stamps[name] = found.st_ctime_ns, found.st_ino, found.st_size
            except OSError:
                stamps[name] = 0, 0, 0
    finally:
        os.close(descriptor)
    return stamps


def _read(
    archive: Path, changed: Iterable[str], progress: Progress | None
) -> tuple[list[dict[str, Any]], dict[str, str], set[str]]:
    """Rows of the entries that have changed, why others cannot be read, and which were removed meanwhile."""
    rows, problems, gone = [], {}, set()
    names = list(changed)
    for number, name in enumerate(names, 1):
        try:
            rows.append(_row(read_entry(archive / name)))
        except TraceError as error:
            if (archive / name).is_dir():
                problems[as_text(name)] = as_text(str(error))
            else:
                gone.add(name)
        if progress is not None:
            progress(number, len(names))
    return rows, problems, gone


def _row(entry: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {"name": entry.name, "recording": entry.recording is not None}
    for key, value in entry.about:
        # A key cannot replace a measured value.
        ours = key in ("name", "recording", "duration_ns") or key.startswith(_MEASURED)
        if (value is None or isinstance(value, str)) and not ours:
            row[key] = value
    for part, held in entry.parts.items():
        stem = part.replace("-", "_")
        row |= {f"{stem}_content": str(held.content), f"{stem}_sha256": held.sha256}
        row |= {f"{stem}_duration_ns": held.duration_ns, f"{stem}_rows": held.rows}
        for key, value in (held.statistics or {}).items():
            if isinstance(value, int | float) and key not in _HELD:
                row[f"{stem}_{key}"] = float(value)
    return row | {"duration_ns": max((held.duration_ns for held in entry.parts.values()), default=None)}


def _stored(path: Path) -> EntryTable | None:
    """The stored table; None if it is missing or damaged."""
    try:
        content = inputs.content(path, inputs.share_of_memory())
    except OSError:
        return None
    if hashlib.sha256(memoryview(content)[_DIGEST:]).digest() != content[:_DIGEST]:
        return None
    head, _, table = content[_DIGEST:].partition(b"\n")
    problems, stamps = json.loads(head)
    return EntryTable(pl.read_parquet(io.BytesIO(table)), problems, {name: tuple(it) for name, it in stamps.items()})


def _clock(archive: Path) -> int:
    """The file system's present time, ns."""
    probe = archive / f".unfinished-clock-{os.urandom(8).hex()}"
    try:
        probe.touch()
        return probe.stat().st_ctime_ns
    except OSError:
        return 1 << 62  # a read-only archive does not change
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def _store(table: EntryTable, path: Path) -> None:
    """Write the table, if the archive can be written."""
    content = io.BytesIO()
    content.write(json.dumps([table.problems, table.stamps]).encode() + b"\n")
    table.frame.write_parquet(content, compression="uncompressed")
    with contextlib.suppress(OSError):
        digest = hashlib.sha256(content.getbuffer()).digest()
        write_whole(path, lambda file: file.write_bytes(digest + content.getbuffer()))
        for former in path.parent.glob(".index-*"):
            if former != path:
                former.unlink()
