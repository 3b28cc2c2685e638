"""The archive: entries are added, replaced and removed atomically.

An entry is a folder with an ``entry.toml`` and the files that it names. Entries are written under a hidden name and
renamed when complete. So partial entries are never visible, and if two processes add the same name, one fails. The next
process that adds an entry removes the remains of killed processes.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from cellbed.archive import examples
from cellbed.archive.entry_file import ENTRY_FILE, entry_text, read_entry
from cellbed.archive.errors import TraceError
from cellbed.archive.series import PARTS, Part, Series
from cellbed.archive.unfinished import discard, exchange, lock, make_unfinished, sweep
from cellbed.support import user_folders
from cellbed_node.temporary import remove_tree

if TYPE_CHECKING:
    from cellbed.archive.entry import About, Draft, Entry, StoredSeries
    from cellbed.archive.index import EntryTable

NAME = re.compile(r"[a-z0-9][a-z0-9_+-]{0,99}")


def archive_folder() -> Path:
    """Return the folder of the archive: ``$XDG_DATA_HOME/cellbed/traces`` or ``~/.local/share/cellbed/traces``."""
    return user_folders.data_folder() / "traces"


def open_archive() -> Archive:
    """Return the user's archive of traces, whose folder is created by the first write."""
    return Archive(archive_folder())


def valid_name(text: str) -> str:
    """Return the valid name nearest to `text`: ``Verizon-LTE-short.up`` gives ``verizon-lte-short-up``."""
    return re.sub(r"[^a-z0-9_+]+", "-", text.lower())[:100].strip("-_+") or "trace"


@dataclass(frozen=True)
class Archive:
    """Entries by name. Other processes may add, replace and remove entries at any time.

    Errors of all methods: :class:`TraceError`.
    """

    folder: Path

    def names(self) -> list[str]:
        """Return the sorted names of all entries, damaged ones included."""
        try:
            names = {path.name for path in self.folder.iterdir() if NAME.fullmatch(path.name) and path.is_dir()}
        except FileNotFoundError:
            names = set()
        except OSError as error:
            raise TraceError(f"{self.folder}: cannot read the archive: {error.strerror}") from None
        return sorted(names.union(examples.EXAMPLES))

    def has(self, name: str) -> bool:
        """Return whether an entry of that name exists, sound or damaged."""
        return name in examples.EXAMPLES or (NAME.fullmatch(name) is not None and (self.folder / name).is_dir())

    def entry(self, name: str) -> Entry:
        """Return the description of an entry. A built-in example is generated if it is missing or outdated."""
        if not self.has(name):
            raise TraceError(self._unknown(name))
        if name not in examples.EXAMPLES:
            try:
                return read_entry(self.folder / name)
            except TraceError:
                if not self.has(name):  # another process has renamed or removed the entry meanwhile
                    raise TraceError(self._unknown(name)) from None
                raise
        with contextlib.suppress(TraceError):
            entry = read_entry(self.folder / name)
            if examples.is_current(entry):
                return entry
        with self.draft(examples.about(name)) as draft:
            examples.fill(draft, name)
            return self._keep(draft, name, replace=True)

    def series(self, name: str, part: Part) -> Series:
        """Return one part of an entry."""
        return self.series_and_hash(name, part)[0]

    def series_and_hash(self, name: str, part: Part) -> tuple[Series, str]:
        """Return one part of an entry, and the expected SHA-256 of its file."""
        entry = self.entry(name)
        if part not in entry.parts:
            raise TraceError(f"'{name}' has no {part}: it has {_parts(entry)}")
        stored = entry.parts[part]
        path = self.folder / name / stored.file
        if not path.is_file():
            raise TraceError(f"{path}: missing: `cellbed traces rm {name}`, then add it again")
        return Series(stored.content, path, stored.duration_ns), stored.sha256

    def recording(self, name: str) -> Path:
        """Return the folder of the recording of two workloads in an entry."""
        entry = self.entry(name)
        if entry.recording is None:
            raise TraceError(f"'{name}' contains no recording of two workloads: it has {_parts(entry)}")
        return self.folder / name / entry.recording

    def site(self, name: str) -> Path:
        """Return the WARC file of the recorded site in an entry."""
        entry = self.entry(name)
        if entry.site is None:
            raise TraceError(f"'{name}' contains no recorded site: it has {_parts(entry)}")
        return self.folder / name / entry.site.file

    @contextlib.contextmanager
    def draft(self, about: About) -> Iterator[Draft]:
        """Yield a draft of an entry. The draft's files are removed at the end, unless the draft was kept."""
        from cellbed.archive.entry import Draft

        with contextlib.ExitStack() as stack:
            with self.writing():
                folder = stack.enter_context(make_unfinished(self.folder))
            yield Draft(folder, about)

    def keep(self, draft: Draft, name: str, replace: bool = False) -> Entry:
        """Check, measure and hash the files of a draft, and make the draft an entry. A draft can be kept once.

        replace: replace an entry of that name atomically.
        """
        self.require_valid(name)
        if not replace:
            self.require_free(name)
        return self._keep(draft, name, replace)

    def require_free(self, name: str) -> None:
        """Raise TraceError if the name is invalid or taken."""
        self.require_valid(name)
        if self.has(name):
            raise TraceError(_explain_taken(name))

    def require_valid(self, name: str) -> None:
        """Raise TraceError if the name is invalid or names a built-in example."""
        if NAME.fullmatch(name) is None:
            raise TraceError(
                f"{name!r:.60} is not a valid name: use at most 100 small letters, digits, '-', '_' and '+': "
                f"write '{valid_name(name)}'"
            )
        if name in examples.EXAMPLES:
            raise TraceError(f"'{name}' is a built-in example: choose another name")

    def remove(self, *names: str) -> None:
        """Remove entries, damaged ones included. If a name does not exist, no entry is removed."""
        for name in names:
            if name in examples.EXAMPLES:
                raise TraceError(f"'{name}' is a built-in example and cannot be removed")
            if not self.has(name):
                raise TraceError(self._unknown(name))
        for name in dict.fromkeys(names):
            try:
                discard(self.folder, self.folder / name)
            except FileNotFoundError:
                raise TraceError(self._unknown(name)) from None
            except OSError as error:
                raise TraceError(f"{self.folder / name}: cannot be removed: {error.strerror}") from None

    def contents(self) -> EntryTable:
        """Return a table with a row for each readable entry, and the reasons why the other entries are unreadable."""
        from cellbed.archive.index import read_table

        may_write = not self.folder.is_dir() or os.access(self.folder, os.W_OK)
        for name in examples.EXAMPLES:
            if may_write and not (self.folder / name / ENTRY_FILE).is_file():
                self.entry(name)
        with self.writing():
            return read_table(self.folder)

    def verify(self, names: Iterable[str] = ()) -> Iterator[tuple[str, list[str]]]:
        """Read all files of the named entries, default all; yield each name with a list of problems, empty if sound."""
        from cellbed.archive.soundness import find_faults

        for name in list(names) or self.names():
            if not self.has(name):
                raise TraceError(self._unknown(name))
            try:
                problems = find_faults(self.entry(name), self.folder / name)
            except TraceError as error:
                problems = [str(error)]
            yield name, problems

    def sweep(self) -> list[Path]:
        """Remove the unfinished folders of killed processes, and return them."""
        if not self.folder.is_dir():
            return []
        with self.writing():
            return sweep(self.folder)

    def _keep(self, draft: Draft, name: str, replace: bool) -> Entry:
        with self.writing():
            entry = _complete(draft, name)
            (draft.folder / ENTRY_FILE).write_bytes(entry_text(entry).encode())
            place = self.folder / name
            with lock(self.folder):
                if replace and place.is_dir():
                    exchange(draft.folder, place)
                else:
                    try:
                        draft.folder.rename(place)
                    except OSError as error:
                        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                            raise TraceError(_explain_taken(name)) from None
                        raise
        return entry

    def _unknown(self, name: str) -> str:
        from cellbed.support.near_names import near_names, question

        shown = name if len(name) <= 40 else name[:37] + "…"
        if _is_file(name):
            return f"'{name}' is a file, not an entry of the archive: add it first: `cellbed traces add {quote(name)}`"
        meant = question(near_names(name, self.names()))
        return f"the archive has no '{shown}': {meant or '`cellbed traces ls` lists its entries'}"

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Convert an OSError of archive operations to TraceError."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise TraceError(
                f"{self.folder}: cannot write there: {reason}; free some space, or set XDG_DATA_HOME to another folder"
            ) from error


def _complete(draft: Draft, name: str) -> Entry:
    """Return the entry of a draft. Checks and hashes the entry's files, and removes all other files."""
    from cellbed.archive.entry import Entry
    from cellbed.archive.soundness import sha256

    if not draft.parts and draft.recording is None and draft.site is None:
        raise TraceError("nothing to add: no uplink, downlink or round-trip times")
    parts = {part: _measure(draft, draft.parts[part]) for part in PARTS if part in draft.parts}
    files = _hashes(draft.folder / draft.recording) if draft.recording is not None else {}
    known = {ENTRY_FILE, draft.recording, *(stored.file for stored in parts.values())}
    known |= {draft.site.file} if draft.site is not None else set()
    known.update(draft.tables)
    for path in draft.folder.iterdir():
        if path.name not in known:
            remove_tree(path) if path.is_dir() else path.unlink()
    return Entry(
        name=name,
        about=draft.about,
        parts=parts,
        recording=draft.recording,
        recording_files=files,
        site=draft.site,
        tables={name: sha256(draft.folder / name) for name in draft.tables},
        history=tuple(draft.history),
    )


def _measure(draft: Draft, series: Series) -> StoredSeries:
    """Return a checked series of a draft, with its hash and statistics."""
    from cellbed.archive.entry import StoredSeries, second_of_day
    from cellbed.archive.soundness import require_sound, sha256
    from cellbed.archive.statistics import statistics
    from cellbed.archive.statistics.outages import LONGEST_NS

    assert series.path.parent == draft.folder, "a draft's files are in its folder"
    try:
        rows = require_sound(series)
    except TraceError as error:
        # Users read the message after the hidden folder has been removed.
        raise TraceError(str(error).replace(f"{draft.folder}/", "")) from None
    return StoredSeries(
        file=series.path.name,
        content=series.content,
        sha256=sha256(series.path),
        duration_ns=series.duration_ns,
        rows=rows,
        statistics=finite_figures(statistics(series, starts_at_s=second_of_day(draft.about)))
        if series.duration_ns <= LONGEST_NS
        else None,
    )


def _hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in a folder, by relative path."""
    from cellbed.archive.soundness import sha256

    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): sha256(path) for path in files}


def finite_figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures without missing and non-finite values, which TOML lacks or readers treat differently."""
    return {
        key: value
        for key, value in figures.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


def _parts(entry: Entry) -> str:
    has = [*entry.parts, *(["a recording of two workloads"] if entry.recording else [])]
    has += ["a recorded site"] if entry.site else []
    return " and ".join(has) or "nothing"


def _explain_taken(name: str) -> str:
    return f"the archive already has '{name}': choose another --name, or use --replace"


def _is_file(name: str) -> bool:
    """Return whether a file of that name exists."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False
