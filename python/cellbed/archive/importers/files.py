"""Files of one recording, read into separate drafts until all of them are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cellbed.archive.draft import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers.format import direction_of
from cellbed.archive.importers.options import Options
from cellbed.archive.series import Part, Series
from cellbed_node.temporary import remove_tree

_READING = ".reading"


@contextmanager
def scratch(draft: Draft) -> Iterator[Draft]:
    """A temporary draft beside it on the same file system."""
    folder = draft.folder / _READING
    try:
        folder.mkdir()
    except OSError as error:
        raise TraceError(f"{folder}: cannot be made: {error.strerror}") from None
    try:
        yield replace(draft, folder=folder, parts={}, history=[], notes=[])
    finally:
        remove_tree(folder, ignore_errors=True)


def settle(made: Draft, draft: Draft) -> None:
    """Move the contents of a draft to another one."""
    moved: dict[Part, Series] = {}
    for part, series in made.parts.items():
        if part in draft.parts:
            raise TraceError(f"the draft already has a series of the {part}")
        moved[part] = replace(series, path=draft.folder / series.path.name)
    for path in made.folder.iterdir():
        path.rename(draft.folder / path.name)
    draft.parts.update(moved)
    draft.about = made.about
    draft.notes.extend(made.notes)
    draft.recording = made.recording or draft.recording


def each_file(paths: Sequence[Path], draft: Draft, options: Options) -> Iterator[tuple[Path, Draft, Options]]:
    """Files of one direction each, in order: each with a separate draft that becomes part of `draft`."""
    if len(paths) == 1:
        yield paths[0], draft, options.towards(direction_of(paths[0]))
        return
    for path in paths:
        towards = replace(options, direction=None).towards(direction_of(path))
        with scratch(draft) as own:
            yield path, own, towards
            for part in own.parts:
                if part in draft.parts:
                    raise TraceError(f"{path}: contains the {part}, as another of the files does: add them one by one")
            own.notes[:] = [f"{path.name}: {note}" for note in own.notes]
            settle(own, draft)
