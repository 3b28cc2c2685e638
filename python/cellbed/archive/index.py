"""A table of the archive's entries, for finding one among ten thousand.

It lies in the archive as a database of SQLite with a checksum and is a cache: what of the entries has changed since it
was written is read again when somebody asks, and nothing else; a table that is missing or damaged is made anew. It is
read and replaced whole, so it needs no lock, which not every file system has, and may lie where nobody can write.

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
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellbed.archive.entry_file import ENTRY_FILE, read_entry
from cellbed.archive.entry_table import EntryTable, Kind, Stamps, Value, as_text
from cellbed.archive.errors import TraceError
from cellbed.archive.series import PARTS

if TYPE_CHECKING:
    from cellbed.archive.entry import Entry

_FILE: Final = ".index-4"
"""SHA-256 of a database, and the database. The number is to be raised when the columns change."""
_FORMER: Final = (".index-1", ".index-2", ".index-3")
_DIGEST: Final = 32
_STEMS: Final = {part: part.replace("-", "_") for part in PARTS}
_HELD: Final[dict[str, Kind]] = {"content": "TEXT", "sha256": "TEXT", "duration_ns": "INTEGER", "rows": "INTEGER"}
_TICK_NS: Final = 100_000_000
"""A file that changed this shortly before it was read may change again without its time being another."""

Told = Callable[[int, int], None]


def refreshed(archive: Path, told: Told | None = None) -> EntryTable:
    """The table of the entries in `archive` as they are now. Raises OSError if the archive cannot be read.

    told: called with how many of the changed entries are read, and how many they are.
    """
    now = _stamps(archive)
    table = _stored(archive / _FILE)
    if table is None:
        table = EntryTable(_always())
    elif table.was_made_of(now):
        return table
    before = table.stamps
    changed = {name: stamp for name, stamp in now.items() if before.get(name) != stamp}
    clock_ns = _clock(archive)
    rows, problems, gone = _read(archive, changed, told)
    table.remove(as_text(os.fsdecode(name)) for name in before if name in changed or name not in now)
    if not table.has_room(rows):
        table = table.compacted(_always())
    table.add(rows)
    table.add_problems(problems)
    table.stamps = {
        name: (-1 if name in changed and changed_ns > clock_ns - _TICK_NS else changed_ns, inode, size)
        for name, (changed_ns, inode, size) in now.items()
        if name not in gone
    }
    _store(table, archive)
    return table


def _stamps(archive: Path) -> Stamps:
    """Of the folders that may be entries: time, inode and size of their descriptions, noughts where there is none."""
    descriptor = os.open(archive, os.O_RDONLY | os.O_DIRECTORY)
    stamps: Stamps = {}
    try:
        with os.scandir(descriptor) as folders:
            names = sorted(folder.name for folder in folders if folder.name[0] != "." and folder.is_dir())
        for name in names:
            try:
                found = os.stat(f"{name}/{ENTRY_FILE}", dir_fd=descriptor)
                stamps[os.fsencode(name)] = found.st_ctime_ns, found.st_ino, found.st_size
            except OSError:
                stamps[os.fsencode(name)] = 0, 0, 0
    finally:
        os.close(descriptor)
    return stamps


def _read(
    archive: Path, changed: Stamps, told: Told | None
) -> tuple[list[dict[str, Value]], dict[str, str], set[bytes]]:
    """Rows of the entries that have changed, why others cannot be read, and which were removed meanwhile."""
    rows, problems, gone = [], {}, set()
    for number, name in enumerate(changed, 1):
        folder = archive / os.fsdecode(name)
        try:
            rows.append(_row(read_entry(folder)))
        except TraceError as error:
            if folder.is_dir():
                problems[as_text(folder.name)] = as_text(str(error))
            else:
                gone.add(name)
        if told is not None:
            told(number, len(changed))
    return rows, problems, gone


def _always() -> dict[str, Kind]:
    """Columns that a filter may name whatever there is in the archive; first those that a list shows."""
    from cellbed.archive.entry import About

    columns: dict[str, Kind] = {"name": "TEXT", "duration_ns": "INTEGER"}
    columns |= dict.fromkeys(("uplink_mean_bit_s", "downlink_mean_bit_s"), "REAL")
    columns |= dict.fromkeys(About.model_fields, "TEXT")
    columns |= {f"{stem}_{key}": kind for stem in _STEMS.values() for key, kind in _HELD.items()}
    return columns | {"recording": "BOOLEAN"}


def _row(entry: Entry) -> dict[str, Value]:
    row: dict[str, Value] = {"name": entry.name, "recording": entry.recording is not None}
    for key, value in entry.about:
        if (value is None or isinstance(value, str)) and not _is_ours(key):
            row[key] = value
    for part, held in entry.parts.items():
        stem = _STEMS[part]
        row |= {f"{stem}_content": str(held.content), f"{stem}_sha256": held.sha256}
        row |= {f"{stem}_duration_ns": held.duration_ns, f"{stem}_rows": held.rows}
        for key, value in (held.statistics or {}).items():
            if isinstance(value, int | float) and key not in _HELD:
                row[f"{stem}_{key}"] = float(value)
    return row | {"duration_ns": max((held.duration_ns for held in entry.parts.values()), default=None)}


def _is_ours(key: str) -> bool:
    """Whether a column of that name says something else, whatever somebody calls his keys."""
    return key in ("name", "recording", "duration_ns") or key.startswith(tuple(f"{stem}_" for stem in _STEMS.values()))


def _stored(path: Path) -> EntryTable | None:
    """The table as it was written; None where there is none, or another.

    Damage is not for SQLite to find out: it looks at what it needs only, and would give other values.
    """
    try:
        content = path.read_bytes()
    except OSError:
        return None
    database = memoryview(content)[_DIGEST:]
    return EntryTable.of(database) if hashlib.sha256(database).digest() == content[:_DIGEST] else None


def _clock(archive: Path) -> int:
    """What the file system calls now, ns."""
    probe = archive / f".unfinished-clock-{os.urandom(8).hex()}"
    try:
        probe.touch()
        return probe.stat().st_ctime_ns
    except OSError:
        return 1 << 62  # an archive that cannot be written does not change either
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def _store(table: EntryTable, archive: Path) -> None:
    """Write the table; who may not write there does without."""
    content = table.content()
    if content is None:
        return
    temporary = archive / f".unfinished-index-{os.urandom(8).hex()}"
    try:
        with temporary.open("wb") as file:
            file.write(hashlib.sha256(content).digest())
            file.write(content)
        temporary.replace(archive / _FILE)
        for former in _FORMER:
            (archive / former).unlink(missing_ok=True)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
