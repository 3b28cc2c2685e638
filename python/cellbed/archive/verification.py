"""Check that the files of an entry have not changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.archive.errors import TraceError
from cellbed.archive.series import Series
from cellbed.archive.soundness import require_sound, sha256

if TYPE_CHECKING:
    from cellbed.archive.entry import Entry


def faults(entry: Entry, folder: Path) -> list[str]:
    """Problems of the files of an entry, each in a sentence that names the file.

    Every byte of them is read.
    """
    found = []
    for path, digest in _files(entry, folder):
        try:
            if sha256(path) != digest:
                found.append(f"{path}: not the file that was added: its SHA-256 differs")
        except TraceError as error:
            found.append(str(error))
    if found:
        return found
    for held in entry.parts.values():
        try:
            require_sound(Series(held.content, folder / held.file, held.duration_ns))
        except TraceError as error:
            found.append(str(error))
    return found


def _files(entry: Entry, folder: Path) -> Iterator[tuple[Path, str]]:
    for held in entry.parts.values():
        yield folder / held.file, held.sha256
    if entry.site is not None:
        yield folder / entry.site.file, entry.site.sha256
    if entry.recording is not None:
        for file, digest in entry.recording_files.items():
            yield folder / entry.recording / file, digest
