"""Fetching of a public data set into the archive: download, unpack, convert, keep."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed import __version__
from cellbed.archive.errors import TraceError
from cellbed.archive.sources.download import GoneError, Report, State, download, is_archive, unpack
from cellbed.archive.sources.source import Imported, Recording, Source, digest, name_table_in_errors
from cellbed.archive.unfinished import downloads_folder, lock, make_unfinished
from cellbed.support.errors import CellbedError
from cellbed_node.temporary import remove_tree

if TYPE_CHECKING:
    from cellbed.archive.entry import Draft, Step
    from cellbed.archive.importers import Importer
    from cellbed.archive.store import Archive

Recognise = Callable[[Sequence[Path], str | None], "Importer"]
"""Returns the importer of files, by their content or for a named format."""


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """Options of fetching a data set.

    given: files, archives and folders to use instead of a download. everything: include recordings that are left out by
    default. only: pattern of entry names, with * and ?.
    """

    given: Sequence[Path] = ()
    everything: bool = False
    only: str = "*"
    replace: bool = False


@dataclass(slots=True)
class Fetched:
    """The result of fetching a data set.

    kept, there: names of new entries, and of entries that existed before. left_out: reasons why files could not be
    converted, by file. unwanted: number of further possible entries. notes: remarks on an entry, by entry name.
    """

    kept: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    unwanted: int = 0
    notes: dict[str, list[str]] = field(default_factory=dict)


def fetch(
    source: Source,
    archive: Archive,
    options: FetchOptions,
    recognise: Recognise,
    report: Report = lambda _: None,
    state: State = lambda _: None,
) -> Fetched:
    """Convert a data set's files to entries of an archive.

    Complete entries appear one after the other; after an interruption the same call continues. report: called with
    messages to show at once. state: called with the present progress. Raises TraceError if there is no entry.
    """
    folder = downloads_folder()
    work = _Fetching(source, archive, options, recognise, report, state, folder / source.name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # If two processes fetch the same data set, the second waits and then finds the first one's entries.
        with lock(folder / source.name), make_unfinished(folder) as unpacked:
            work.convert(list(work.roots(unpacked)))
    except OSError as error:
        raise TraceError(
            f"{folder}: cannot write there: {error.strerror or error}; "
            "free some space, or set XDG_CACHE_HOME to another folder"
        ) from error
    if not options.given:
        remove_tree(folder / source.name, ignore_errors=True)
    return work.fetched


@dataclass(frozen=True, slots=True)
class _Root:
    """A folder to convert. of: SHA-256 of the folder's archive, or of its files, by name; {} for a user's folder."""

    folder: Path
    of: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Fetching:
    source: Source
    archive: Archive
    options: FetchOptions
    recognise: Recognise
    report: Report
    state: State
    downloads: Path
    fetched: Fetched = field(default_factory=Fetched)
    passed: list[str] = field(default_factory=list)

    def roots(self, unpacked: Path) -> Iterator[_Root]:
        """Yield the folders of the data set's files. Archives are unpacked into separate folders in ``unpacked``."""
        given = [_require_folder(path) for path in self.options.given]
        plain = unpacked / "files"
        hashes = {}
        for number, path in enumerate(given or self._downloads_of_source()):
            if path.is_dir():
                yield _Root(path, {})
            elif is_archive(path):
                into = unpacked / str(number)
                into.mkdir()
                self.state(f"unpacking {path.name}")
                try:
                    unpack(path, into)
                except TraceError:
                    if not given:
                        # Without removal, every later call would fail on the same damaged archive.
                        path.unlink()
                    raise
                yield _Root(into, {path.name: digest(path, "sha256")})
            else:
                name = path.name if given else path.relative_to(self.downloads).as_posix()
                if name in hashes:
                    raise TraceError(f"{path}: two of the files are called {name}: give their folder instead")
                hashes[name] = digest(path, "sha256")
                (plain / name).parent.mkdir(parents=True, exist_ok=True)
                (plain / name).symlink_to(path)
        if hashes:
            yield _Root(plain, hashes)

    def convert(self, roots: Sequence[_Root]) -> None:
        """Convert the wanted recordings to entries. Raises TraceError if no recording matches."""
        options, fetched = self.options, self.fetched
        for root in roots:
            for recording in self.source.convert(root.folder):
                if not self._is_wanted(recording):
                    fetched.unwanted += 1
                    self.passed.append(recording.name)
                elif self.archive.has(recording.name) and not options.replace:
                    if self._is_ours(recording.name):
                        fetched.there.append(recording.name)
                    else:
                        fetched.left_out[recording.of] = (
                            f"the archive has a '{recording.name}' that is not of this data set: remove it "
                            f"(`cellbed traces rm`), or put this one in its place (--replace)"
                        )
                else:
                    self._keep(root, recording)
                    self.state(f"{len(fetched.kept)} entries")
        if not fetched.kept and not fetched.there:
            raise TraceError(self._explain_no_recordings())

    def _downloads_of_source(self) -> Iterator[Path]:
        """Yield the downloaded files of a data set. If a data set has several files, missing files are left out."""
        for remote in self.source.remote:
            try:
                yield download(remote, self.downloads, self.state, self.report)
            except GoneError as error:
                self.fetched.left_out[remote.path] = str(error)

    def _is_wanted(self, recording: Recording) -> bool:
        usual = self.options.everything or bool(self.options.given) or bool(re.search(self.source.usual, recording.of))
        return usual and fnmatch.fnmatchcase(recording.name, self.options.only)

    def _is_ours(self, name: str) -> bool:
        """Return whether an entry was made from this data set, even if changed since. True for a damaged entry, which
        may come from this data set."""
        try:
            history = self.archive.entry(name).history
        except TraceError:
            return True
        return any(step.what == "fetched" and step.how.get("source") == self.source.name for step in history)

    def _keep(self, root: _Root, recording: Recording) -> None:
        with self.archive.draft(recording.about) as draft:
            try:
                self._fill(draft, recording)
                draft.history.append(self._step(root, recording))
                self.archive.keep(draft, recording.name, replace=self.options.replace)
            except CellbedError as error:
                # The message names the files without their hidden folders.
                why = str(error).replace(f"{draft.folder}/", "").replace(f"{root.folder}/", "")
                self.fetched.left_out[recording.of] = _without_file(why.partition("\n")[0], recording.of)
                return
        self.fetched.kept.append(recording.name)
        if draft.notes:
            self.fetched.notes[recording.name] = draft.notes

    def _fill(self, draft: Draft, recording: Recording) -> None:
        if isinstance(recording.fill, Imported):
            from cellbed.archive.importers import Options

            paths = recording.fill.files
            asked = Options(direction=recording.fill.direction)
            self.recognise(paths, recording.fill.format).read(paths, draft, asked)
        else:
            with name_table_in_errors(recording.of):
                recording.fill(draft)

    def _step(self, root: _Root, recording: Recording) -> Step:
        from cellbed.archive.entry import Step

        how = {"source": self.source.name, "file": recording.of}
        return Step(what="fetched", how=how, of=_source_files(root, recording), tool=f"cellbed {__version__}")

    def _explain_no_recordings(self) -> str:
        fetched, name = self.fetched, self.source.name
        if fetched.left_out:
            of, why = next(iter(fetched.left_out.items()))
            more = f" ({len(fetched.left_out) - 1} others failed, too)" if len(fetched.left_out) > 1 else ""
            return f"{name}: there is nothing to convert{more}: {of}: {why}"
        if unusual := [each for each in self.passed if fnmatch.fnmatchcase(each, self.options.only)]:
            return f"{name}: '{unusual[0]}' and its like ({len(unusual)} in all) are only taken with --all"
        if self.passed:
            such = f"they have names such as '{self.passed[0]}'"
            return f"{name}: none of its entries is called '{self.options.only}' (--only): {such}"
        return (
            f"{name}: there is no file of the documented layout in it: {self.source.layout} "
            "If the data set has changed, import its files one by one with `cellbed traces add`"
        )


def _without_file(why: str, of: str) -> str:
    """Return an error message without the file's name at the beginning."""
    if line := re.match(rf"{re.escape(of)}:(\d+): ", why):
        return f"line {line[1]}: {why[line.end() :]}"
    return why.removeprefix(f"{of}: ")


def _source_files(root: _Root, recording: Recording) -> dict[str, str]:
    """Return the archive, or the files in a folder, that contain a recording."""
    if len(root.of) == 1:
        return root.of
    if isinstance(recording.fill, Imported):
        parts = [path.relative_to(root.folder) for path in recording.fill.files]
        return {name: hash for name, hash in root.of.items() if any(Path(name).is_relative_to(part) for part in parts)}
    return {name: hash for name, hash in root.of.items() if f"{recording.of} ".startswith(f"{name} ")}


def _require_folder(path: Path) -> Path:
    if not path.exists():
        raise TraceError(f"there is no file or folder {path}")
    return path.absolute()
