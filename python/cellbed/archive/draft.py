"""An entry in the making: what importers, sources, generators and operations hand to the archive."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cellbed.archive.entry import About, Step
from cellbed.archive.series import Part, Series


@dataclass(slots=True)
class Draft:
    """An entry that nobody sees yet.

    folder: where its files are, on the archive's own file system, and nothing else is; each series of `parts` is a file
    there. recording: the folder of a recording of two workloads in it, by name. notes: sentences for whoever asked for
    it: what was taken for what, what was left out.
    """

    folder: Path
    about: About
    parts: dict[Part, Series] = field(default_factory=dict)
    recording: str | None = None
    history: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
