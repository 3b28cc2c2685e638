"""Import files of other programs as an entry."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.archive.describing import doubts
from cellbed.archive.store import Archive, valid_name
from cellbed.archive.warnings import drift_of, pause_of

if TYPE_CHECKING:
    from cellbed.archive.entry import About, Entry
    from cellbed.archive.importers import Importer, Options


@dataclass(frozen=True, slots=True)
class Added:
    """The result. notes: doubts, omissions and assumptions, in sentences."""

    entry: Entry
    notes: tuple[str, ...]


def add(
    archive: Archive,
    paths: Sequence[Path],
    importer: Importer,
    about: About,
    options: Options,
    *,
    name: str | None = None,
    replace: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Added:
    """Read the files of one recording and keep them as an entry.

    name: left out, made of the files' names. replace: whether it may replace an entry. progress: called with the number
    of bytes read since the last call. Raises TraceError; then nothing was added.
    """
    name = name or name_of(paths)
    if not replace:
        archive.require_free(name)
    with archive.draft(about) as draft:
        importer.read(paths, draft, options, progress)
        entry = archive.keep(draft, name, replace)
        measured = [note for note in (drift_of(entry), pause_of(entry)) if note is not None]
        return Added(entry, (*doubts(entry.about), *draft.notes, *measured))


def recordings(paths: Sequence[Path]) -> list[list[Path]]:
    """Return the files of each recording: ``X.up`` and ``X.down`` are one; files of other names are all of one."""
    if any(path.suffix not in (".up", ".down") for path in paths):
        return [list(paths)]
    pairs: dict[Path, list[Path]] = {}
    for path in paths:
        pairs.setdefault(path.with_suffix(""), []).append(path)
    return list(pairs.values())


def name_of(paths: Sequence[Path]) -> str:
    """Return a name for these files' entry: their common part, ``walk`` for ``walk.up`` and ``walk.down``."""
    stems = [path.absolute().stem if path.is_file() else path.absolute().name for path in paths]
    return valid_name(os.path.commonprefix(stems) or stems[0])  # noqa: RUF071 letters are meant
