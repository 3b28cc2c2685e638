"""A table of the archive's entries, for finding one among ten thousand.

It lies in the archive as a Parquet file with a checksum and is a cache: what of the entries has changed since it was
written is read again when somebody asks, and nothing else; a table that is missing or damaged is made anew.

| column | is |
|---|---|
| `name`, and each key of an entry's `about` | as in `entry.toml`; null is unknown |
| `PART_content`, `PART_duration_ns`, `PART_rows`, `PART_sha256` | of `uplink`, `downlink` and `round_trip` |
| `PART_KEY` | each statistic that is a number, as float64: `uplink_mean_bit_s` |
| `recording` | whether it holds a recording of two workloads |
| `duration_ns` | of its longest part |
| `problem` | why the entry cannot be read; then all else but its name is null |
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cellbed.traces.entry_file import ENTRY_FILE, read_entry
from cellbed.traces.errors import TraceError
from cellbed.traces.series import PARTS

if TYPE_CHECKING:
    import polars as pl

    from cellbed.traces.entry import Entry

_FILE: Final = ".index-3"
"""SHA-256 of a Parquet file, and the file. The number is to be raised when the columns change."""
_DIGEST: Final = 32
_STAMPS: Final = ("_changed_ns", "_inode", "_size")
"""What of an `entry.toml` tells whether it is the one that was read."""
_OWN: Final = ("name", "recording", "problem")
"""Columns that no key of an entry's `about` is, whatever somebody calls his."""
_TICK_NS: Final = 100_000_000
"""A file that changed this shortly before it was read may change again without its time being another."""


def refreshed(archive: Path, told: Callable[[int, int], None] | None = None) -> pl.LazyFrame:
    """The table of the entries in `archive` as they are now. Raises OSError if the archive cannot be read.

    told: called with how many of the changed entries are read, and how many they are.
    """
    import polars as pl

    path = archive / _FILE
    schema = {"name": pl.String} | dict.fromkeys(_STAMPS, pl.Int64)
    now = pl.DataFrame(_stamps(archive), schema=schema)
    content = _stored(path)
    if content is None:
        return _remade(archive, None, now, told)
    # Only the columns that somebody asks for are read, and from memory: the file may be replaced meanwhile.
    known = pl.read_parquet(io.BytesIO(content), columns=now.columns)
    if known.height == now.height and known.join(now, on=now.columns, how="semi").height == now.height:
        return pl.scan_parquet(io.BytesIO(content)).drop(_STAMPS)
    return _remade(archive, pl.read_parquet(io.BytesIO(content)), now, told)


def _remade(
    archive: Path, table: pl.DataFrame | None, now: pl.DataFrame, told: Callable[[int, int], None] | None
) -> pl.LazyFrame:
    """The table brought up to date. table: as it was. now: names and stamps of what is there."""
    import polars as pl

    if table is None:
        current, fresh = None, now
    else:
        current = table.join(now, on=now.columns, how="semi")
        fresh = now.join(current, on=now.columns, how="anti")
    rows = _rows(archive, fresh.rows(), _clock(archive), told)
    table = rows if current is None else pl.concat([current, rows], how="diagonal_relaxed")
    table = table.sort("name")
    _store(table, archive / _FILE)
    return table.lazy().drop(_STAMPS)


def _stamps(archive: Path) -> tuple[list[str], list[int], list[int], list[int]]:
    """Names of the folders that may be entries, and what tells whether their descriptions are those that were read."""
    descriptor = os.open(archive, os.O_RDONLY | os.O_DIRECTORY)
    columns: tuple[list[str], list[int], list[int], list[int]] = ([], [], [], [])
    names, changed, inodes, sizes = columns
    try:
        with os.scandir(descriptor) as folders:
            names += [folder.name for folder in folders if folder.name[0] != "." and folder.is_dir()]
        for name in names:
            try:
                found = os.stat(f"{name}/{ENTRY_FILE}", dir_fd=descriptor)
            except OSError:
                found = None
            changed.append(found.st_ctime_ns if found else 0)
            inodes.append(found.st_ino if found else 0)
            sizes.append(found.st_size if found else 0)
    finally:
        os.close(descriptor)
    return columns


def _rows(
    archive: Path, stamps: Sequence[tuple[Any, ...]], now_ns: int, told: Callable[[int, int], None] | None
) -> pl.DataFrame:
    import polars as pl

    rows = []
    for number, (name, changed_ns, *rest) in enumerate(stamps, 1):
        if changed_ns > now_ns - _TICK_NS:
            changed_ns = -1
        try:
            row = _row(read_entry(archive / name))
        except TraceError as error:
            if not (archive / name).is_dir():
                continue  # removed meanwhile
            row = {"name": name, "problem": str(error)}
        rows.append(row | dict(zip(_STAMPS, (changed_ns, *rest), strict=True)))
        if told is not None:
            told(number, len(stamps))
    texts = {key: pl.String for row in rows for key, value in row.items() if isinstance(value, str)}
    whole = {key: pl.Int64 for row in rows for key, value in row.items() if type(value) is int}
    always = {"name": pl.String, "problem": pl.String} | dict.fromkeys(_STAMPS, pl.Int64) | _always()
    schema = {key: None for row in rows for key in row} | whole | texts | always
    return pl.DataFrame(rows, schema=schema, orient="row", infer_schema_length=None, strict=False)


def _always() -> dict[str, Any]:
    """Columns that a filter may name whatever there is in the archive."""
    import polars as pl

    from cellbed.traces.entry import About

    columns: dict[str, Any] = dict.fromkeys(About.model_fields, pl.String)
    for part in PARTS:
        stem = part.replace("-", "_")
        columns |= {f"{stem}_content": pl.String, f"{stem}_sha256": pl.String}
        columns |= {f"{stem}_duration_ns": pl.Int64, f"{stem}_rows": pl.Int64}
    columns |= dict.fromkeys(("uplink_mean_bit_s", "downlink_mean_bit_s"), pl.Float64)
    return columns | {"recording": pl.Boolean, "duration_ns": pl.Int64}


def _row(entry: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {"name": entry.name, "recording": entry.recording is not None}
    for key, value in entry.about:
        if key not in _OWN and (value is None or isinstance(value, str)):
            row[key] = value
    for part, held in entry.parts.items():
        stem = part.replace("-", "_")
        row |= {
            f"{stem}_content": str(held.content),
            f"{stem}_sha256": held.sha256,
            f"{stem}_duration_ns": held.duration_ns,
            f"{stem}_rows": held.rows,
        }
        for key, value in (held.statistics or {}).items():
            if isinstance(value, int | float):
                row[f"{stem}_{key}"] = float(value)
    return row | {"duration_ns": max((held.duration_ns for held in entry.parts.values()), default=None)}


def _stored(path: Path) -> bytes | None:
    """The table as it was written, in Parquet; None where there is none, or another.

    Damaged Parquet is not for Polars to find out: it gives other values, or ends the process.
    """
    try:
        content = path.read_bytes()
    except OSError:
        return None
    table = content[_DIGEST:]
    return table if hashlib.sha256(table).digest() == content[:_DIGEST] else None


def _clock(archive: Path) -> int:
    """What the file system calls now, ns."""
    probe = archive / f".unfinished-clock-{secrets.token_hex(8)}"
    try:
        probe.touch()
        return probe.stat().st_ctime_ns
    except OSError:
        return 1 << 62  # an archive that cannot be written does not change either
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def _store(table: pl.DataFrame, path: Path) -> None:
    """Write the table; who may not write there does without."""
    temporary = path.with_name(f".unfinished-index-{secrets.token_hex(8)}")
    try:
        parquet = io.BytesIO()
        table.write_parquet(parquet)
        temporary.write_bytes(hashlib.sha256(parquet.getbuffer()).digest() + parquet.getvalue())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
