"""A draft of an entry, made by importers, sources and generators for the archive."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cellbed.archive.entry import About, Step, StoredSite
from cellbed.archive.series import Part, Series


@dataclass(slots=True)
class Draft:
    """An entry that is not visible yet.

    folder: where its files are, on the archive's own file system, and no other files are; each series of `parts` is a
    file there, as is `site`. recording: the folder of a recording of two workloads in it, by name. notes:
    sentences for the user: assumptions and omissions.
    """

    folder: Path
    about: About
    parts: dict[Part, Series] = field(default_factory=dict)
    recording: str | None = None
    site: StoredSite | None = None
    history: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
