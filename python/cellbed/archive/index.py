"""A table of the archive's entries, made of their descriptions at each use.

| column | is |
|---|---|
| `name`, and each key of an entry's `about` | as in `entry.toml`; null is unknown |
| `PART_content`, `PART_duration_ns`, `PART_rows`, `PART_sha256` | of `uplink`, `downlink` and `round_trip` |
| `PART_KEY` | each statistic that is a number, as a floating-point number: `uplink_mean_bit_s` |
| `recording` | whether it holds a recording of two workloads |
| `site_origins`, `site_objects`, `site_bytes` | of a recorded site |
| `duration_ns` | of its longest part |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import polars as pl

from cellbed.archive.entry import About, Entry
from cellbed.archive.entry_file import read_entry
from cellbed.archive.errors import TraceError
from cellbed.archive.search import as_text
from cellbed.archive.series import PARTS

_STEMS: Final = tuple(part.replace("-", "_") for part in PARTS)
_HELD: Final[dict[str, Any]] = {"content": pl.String, "sha256": pl.String, "duration_ns": pl.Int64, "rows": pl.Int64}
_OF_SITE: Final = ("site_origins", "site_objects", "site_bytes")
_MEASURED: Final = tuple(f"{stem}_" for stem in _STEMS)


@dataclass(frozen=True, slots=True)
class EntryTable:
    """A row for each entry that can be read, in order of their names. problems: why others cannot be read, by name."""

    frame: pl.DataFrame
    problems: dict[str, str]


def read_table(archive: Path) -> EntryTable:
    """Return the table of the entries in `archive`. Raises OSError if the archive cannot be read."""
    rows, problems = [], {}
    for folder in sorted(path for path in archive.iterdir() if path.name[0] != "." and path.is_dir()):
        try:
            rows.append(_row(read_entry(folder)))
        except TraceError as error:
            if folder.is_dir():  # not removed meanwhile
                problems[as_text(folder.name)] = as_text(str(error))
    return EntryTable(frame_of(rows), problems)


def frame_of(rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Return a table of entries with these values by column."""
    rows = list(rows)
    names = list(dict.fromkeys([*_always(), *(key for row in rows for key in row)]))
    schema = {name: _kind(name) for name in names}
    return pl.DataFrame({name: [row.get(name) for row in rows] for name in names}, schema=schema).sort("name")


@cache
def _always() -> dict[str, Any]:
    """Return the columns that always exist; first the listed ones."""
    return {
        **{"name": pl.String, "duration_ns": pl.Int64},
        **dict.fromkeys(("uplink_mean_bit_s", "downlink_mean_bit_s"), pl.Float64),
        **dict.fromkeys(About.model_fields, pl.String),
        **{f"{stem}_{key}": kind for stem in _STEMS for key, kind in _HELD.items()},
        "recording": pl.Boolean,
        **dict.fromkeys(_OF_SITE, pl.Int64),
    }


def _kind(name: str) -> Any:
    return _always().get(name, pl.Float64 if name.startswith(_MEASURED) else pl.String)


def _row(entry: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {"name": entry.name, "recording": entry.recording is not None}
    for key, value in entry.about:
        # A key cannot replace a measured value.
        ours = key in ("name", "recording", "duration_ns", *_OF_SITE) or key.startswith(_MEASURED)
        if (value is None or isinstance(value, str)) and not ours:
            row[key] = value
    for part, held in entry.parts.items():
        stem = part.replace("-", "_")
        row |= {f"{stem}_content": str(held.content), f"{stem}_sha256": held.sha256}
        row |= {f"{stem}_duration_ns": held.duration_ns, f"{stem}_rows": held.rows}
        for key, value in (held.statistics or {}).items():
            if isinstance(value, int | float) and key not in _HELD:
                row[f"{stem}_{key}"] = float(value)
    if entry.site is not None:
        total = entry.site.total
        row |= dict(zip(_OF_SITE, (len(entry.site.origins), total.objects, total.bytes), strict=True))
    return row | {"duration_ns": max((held.duration_ns for held in entry.parts.values()), default=None)}
