"""The archive: entries are added, replaced and removed atomically.

An entry is a folder of the archive's with an `entry.toml` and the files that it names. It is made under a hidden
name and renamed when it is complete, so that partial entries are never visible, and of two concurrent processes with
the same name one fails. The next process that adds an entry removes the remains of killed ones.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from cellbed.archive import examples
from cellbed.archive.entry_file import ENTRY_FILE, entry_text, read_entry
from cellbed.archive.errors import TraceError
from cellbed.archive.series import PARTS, Part, Series
from cellbed.archive.unfinished import discard, exchange, locked, sweep, unfinished
from cellbed.support import user_folders
from cellbed.support.whole_files import write_whole

if TYPE_CHECKING:
    import polars as pl

    from cellbed.archive.draft import Draft
    from cellbed.archive.entry import About, Entry, Held
    from cellbed.archive.index import EntryTable

NAME = re.compile(r"[a-z0-9][a-z0-9_+-]{0,99}")


def archive_folder() -> Path:
    """Return the folder of the archive: ``$XDG_DATA_HOME/cellbed/traces`` or ``~/.local/share/cellbed/traces``."""
    return user_folders.data_folder() / "traces"


def open_archive(folder: Path | None = None) -> Archive:
    """Return the user's archive, or the one in `folder`, which the first write creates."""
    return Archive(archive_folder() if folder is None else folder)


def valid_name(text: str) -> str:
    """Return the valid name nearest to `text`: ``Verizon-LTE-short.up`` gives ``verizon-lte-short-up``."""
    return re.sub(r"[^a-z0-9_+]+", "-", text.lower())[:100].strip("-_+") or "trace"


@dataclass(frozen=True)
class Archive:
    """Entries by their names. Every method may be called while other processes add, replace and remove.

    Errors of all: :class:`TraceError`.
    """

    folder: Path

    def names(self) -> list[str]:
        """Return names of the entries, the damaged ones too, in order."""
        try:
            there = {path.name for path in self.folder.iterdir() if NAME.fullmatch(path.name) and path.is_dir()}
        except FileNotFoundError:
            there = set()
        except OSError as error:
            raise TraceError(f"{self.folder}: cannot read the archive: {error.strerror}") from None
        return sorted(there.union(examples.EXAMPLES))

    def has(self, name: str) -> bool:
        """Return whether there is an entry of that name, even a damaged one."""
        return name in examples.EXAMPLES or (NAME.fullmatch(name) is not None and (self.folder / name).is_dir())

    def entry(self, name: str) -> Entry:
        """Return the description of an entry."""
        if not self.has(name):
            raise TraceError(self._unknown(name))
        if name not in examples.EXAMPLES:
            try:
                return read_entry(self.folder / name)
            except TraceError:
                if not self.has(name):  # another process has renamed or removed it meanwhile
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
        """One part of an entry."""
        return self.held(name, part)[0]

    def held(self, name: str, part: Part) -> tuple[Series, str]:
        """One part of an entry, and the expected SHA-256 of its file."""
        entry = self.entry(name)
        if part not in entry.parts:
            raise TraceError(_lacks(entry, part))
        held = entry.parts[part]
        path = self.folder / name / held.file
        if not path.is_file():
            raise TraceError(f"{path}: missing: `cellbed traces rm {name}`, then add it again")
        return Series(held.content, path, held.duration_ns), held.sha256

    def recording(self, name: str) -> Path:
        """Return the folder of an entry's recording of two workloads."""
        entry = self.entry(name)
        if entry.recording is None:
            raise TraceError(f"'{name}' contains no recording of two workloads: it has {_parts(entry)}")
        return self.folder / name / entry.recording

    @contextlib.contextmanager
    def draft(self, about: About) -> Iterator[Draft]:
        """A draft of an entry, removed at the end unless it is kept."""
        from cellbed.archive.draft import Draft

        with contextlib.ExitStack() as held:
            with self.writing():
                folder = held.enter_context(unfinished(self.folder))
            yield Draft(folder, about)

    def keep(self, draft: Draft, name: str, replace: bool = False) -> Entry:
        """Make a draft an entry: check, measure, hash, and name it. A draft can be kept once.

        replace: whether it may replace an entry of that name, which is complete until then.
        """
        self.require_possible(name)
        if not replace:
            self.require_free(name)
        return self._keep(draft, name, replace)

    def require_free(self, name: str) -> None:
        """Raise TraceError if no new entry can have that name, before the work for it."""
        self.require_possible(name)
        if self.has(name):
            raise TraceError(_taken(name))

    def require_possible(self, name: str) -> None:
        """Raise TraceError if the name is invalid."""
        if NAME.fullmatch(name) is None:
            raise TraceError(
                f"{name!r:.60} is not a valid name: use at most 100 small letters, digits, '-', '_' and '+': "
                f"write '{valid_name(name)}'"
            )
        if name in examples.EXAMPLES:
            raise TraceError(f"'{name}' is a built-in example: choose another name")

    def remove(self, *names: str) -> None:
        """Remove entries, even damaged ones; none if one of them does not exist."""
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

    def amend(self, name: str, change: Callable[[Entry], Entry]) -> Entry:
        """Replace an entry's description by `change` of it, under the lock."""
        self.entry(name)
        with self.writing(), locked(self.folder):
            if not self.has(name):
                raise TraceError(self._unknown(name))
            entry = change(read_entry(self.folder / name))
            write_whole(self.folder / name / ENTRY_FILE, lambda file: file.write_bytes(entry_text(entry).encode()))
        return entry

    def index(self) -> pl.LazyFrame:
        """Return a row for each entry that can be read, for Polars; columns as of :mod:`cellbed.archive.index`."""
        return self.contents().frame.lazy()

    def contents(self) -> EntryTable:
        """Return the table of the index, with the reasons why entries cannot be read."""
        from cellbed.archive.index import read_table

        may_write = not self.folder.is_dir() or os.access(self.folder, os.W_OK)
        for name in examples.EXAMPLES:
            if may_write and not (self.folder / name / ENTRY_FILE).is_file():
                self.entry(name)
        with self.writing():
            return read_table(self.folder)

    def verify(self, names: Iterable[str] = ()) -> Iterator[tuple[str, list[str]]]:
        """Read every file of the named entries, or of all, and return the problems of each: none if it is sound."""
        from cellbed.archive.verification import faults

        for name in list(names) or self.names():
            if not self.has(name):
                raise TraceError(self._unknown(name))
            try:
                found = faults(self.entry(name), self.folder / name)
            except TraceError as error:
                found = [str(error)]
            yield name, found

    def sweep(self) -> list[Path]:
        """Remove unfinished folders of killed processes; returns them."""
        if not self.folder.is_dir():
            return []
        with self.writing(), locked(self.folder):
            return sweep(self.folder)

    def _keep(self, draft: Draft, name: str, replace: bool) -> Entry:
        with self.writing():
            entry = _complete(draft, name)
            (draft.folder / ENTRY_FILE).write_bytes(entry_text(entry).encode())
            place = self.folder / name
            with locked(self.folder):
                if replace and place.is_dir():
                    exchange(draft.folder, place)
                else:
                    try:
                        draft.folder.rename(place)
                    except OSError as error:
                        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                            raise TraceError(_taken(name)) from None
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
                f"{self.folder}: cannot write there: {reason}; make room, or set XDG_DATA_HOME to another folder"
            ) from error


def _complete(draft: Draft, name: str) -> Entry:
    """Return the entry of a draft, its files checked and hashed."""
    from cellbed.archive.entry import Entry

    if not draft.parts and draft.recording is None:
        raise TraceError("nothing to add: no uplink, downlink or round-trip times")
    parts = {part: _measured(draft, draft.parts[part]) for part in PARTS if part in draft.parts}
    files = {}
    if draft.recording is not None:
        files = _hashed(draft.folder / draft.recording)
    known = {ENTRY_FILE, draft.recording, *(held.file for held in parts.values())}
    for path in draft.folder.iterdir():
        if path.name not in known:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return Entry(
        name=name,
        about=draft.about,
        parts=parts,
        recording=draft.recording,
        recording_files=files,
        history=tuple(draft.history),
    )


def _measured(draft: Draft, series: Series) -> Held:
    from cellbed.archive.entry import Held
    from cellbed.archive.soundness import require_sound, sha256
    from cellbed.archive.statistics import statistics
    from cellbed.archive.statistics.clock import second_of_day
    from cellbed.archive.statistics.definition import LONGEST_NS

    assert series.path.parent == draft.folder, "a draft's files are in its folder"
    try:
        rows = require_sound(series)
    except TraceError as error:
        # Without the hidden folder, which no longer exists then.
        raise TraceError(str(error).replace(f"{draft.folder}/", "")) from None
    return Held(
        file=series.path.name,
        content=series.content,
        sha256=sha256(series.path),
        duration_ns=series.duration_ns,
        rows=rows,
        statistics=known_figures(statistics(series, starts_at_s=second_of_day(draft.about)))
        if series.duration_ns <= LONGEST_NS
        else None,
    )


def _hashed(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of a folder, by its path in it."""
    from cellbed.archive.soundness import sha256

    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): sha256(path) for path in files}


def known_figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures without unknown and non-finite values, on which TOML readers differ."""
    return {
        key: value
        for key, value in figures.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


def _lacks(entry: Entry, part: Part) -> str:
    return f"'{entry.name}' has no {part}: it has {_parts(entry)}"


def _parts(entry: Entry) -> str:
    has = [*entry.parts, *(["a recording of two workloads"] if entry.recording else [])]
    return " and ".join(has) or "nothing"


def _taken(name: str) -> str:
    return f"the archive already has '{name}': choose another --name, or use --replace"


def _is_file(name: str) -> bool:
    """Return whether a file of that name exists."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False
