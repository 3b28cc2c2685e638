"""From a public data set to entries of the archive: download, unpack, convert, keep."""

from __future__ import annotations

import fnmatch
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cellbed import __version__, user_folders
from cellbed.errors import CellbedError
from cellbed.traces.errors import TraceError
from cellbed.traces.sources.checksum import digest
from cellbed.traces.sources.download import GoneError, Patience, download
from cellbed.traces.sources.listing import listed
from cellbed.traces.sources.reading import reading
from cellbed.traces.sources.source import Listing, Recording, RemoteFile, Source
from cellbed.traces.sources.unpack import is_archive, unpack
from cellbed.traces.unfinished import unfinished

if TYPE_CHECKING:
    from cellbed.traces.entry import Step
    from cellbed.traces.series import Part
    from cellbed.traces.store import Archive

RecordWorkloads = Callable[[Path, Path], None]
"""Makes a recording of two workloads, in the folder given second, of the files of CellReplay's tool in the first."""


class Listener(Protocol):
    """Who is told how far it is."""

    def downloading(self, name: str, done: int, total: int | None) -> None:
        """A file has so many bytes of so many, if that is known."""

    def unpacking(self, name: str) -> None:
        """A file is being taken out of an archive."""

    def kept(self, count: int) -> None:
        """There are so many entries now."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of a data set.

    given: files, archives and folders to take instead of downloading. address: where the data set is instead of where
    it was. everything: what is usually left out, too. only: a pattern of entry names, with * and ?. way: the direction
    to take the rates for where nobody says it. most_…: limits in place of the source's.
    """

    given: Sequence[Path] = ()
    address: str | None = None
    everything: bool = False
    only: str = "*"
    way: Part | None = None
    replace: bool = False
    keep_download: bool = False
    most_entries: int | None = None
    most_bytes: int | None = None
    most_unpacked_bytes: int | None = None


@dataclass(slots=True)
class Fetched:
    """What came of it.

    kept, there: names of entries that are new, and that were there. left_out: files that could not be converted, and
    why. unwanted: how many more entries there could be. notes: what there is to say of an entry, by its name.
    """

    kept: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    unwanted: int = 0
    notes: dict[str, list[str]] = field(default_factory=dict)


def fetch(
    source: Source,
    archive: Archive,
    wish: Wish,
    listener: Listener,
    record_workloads: RecordWorkloads | None = None,
    patience: Patience | None = None,
) -> Fetched:
    """Make a data set's files entries of an archive.

    Entries appear one after the other, each whole; after whatever stops it the same call goes on where it was. Raises
    TraceError when nothing could be had.
    """
    if source.direction_unknown and wish.way is None:
        raise TraceError(
            f"{source.name}: nobody says whether uplink or downlink was measured: "
            f"say which you take it for, --as uplink or --as downlink. {source.doubt}"
        )
    folder = user_folders.cache_folder() / "downloads"
    fetched = Fetched()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with unfinished(folder) as work:
            roots = list(_roots(source, wish, folder / source.name, work, listener, patience, fetched))
            _convert(source, archive, wish, roots, listener, record_workloads, fetched)
    except OSError as error:
        raise TraceError(
            f"{folder}: cannot write there: {error.strerror or error}; "
            "make room, or set XDG_CACHE_HOME to another folder"
        ) from error
    if not wish.given and not wish.keep_download:
        shutil.rmtree(folder / source.name, ignore_errors=True)
    return fetched


@dataclass(frozen=True, slots=True)
class _Root:
    """A folder to convert. of: the archive that it came out of, or its files, with SHA-256; {} for a user's folder."""

    folder: Path
    of: dict[str, str]


def _roots(
    source: Source,
    wish: Wish,
    downloads: Path,
    work: Path,
    listener: Listener,
    patience: Patience | None,
    fetched: Fetched,
) -> Iterator[_Root]:
    files = [_existing(path) for path in wish.given] or _downloaded(
        source, wish, downloads, listener, patience, fetched
    )
    plain = work / "files"
    hashes = {}
    most = wish.most_unpacked_bytes or source.most_unpacked_bytes
    for number, path in enumerate(files):
        if path.is_dir():
            yield _Root(path, {})
        elif is_archive(path):
            into = work / str(number)
            into.mkdir()
            # The limit is of all archives together.
            most -= unpack(path, into, source.unpacked, most, listener.unpacking)
            yield _Root(into, {path.name: digest(path, "sha256")})
        else:
            below = path.relative_to(downloads) if not wish.given else Path(path.name)
            place = plain / below
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.is_symlink():
                raise TraceError(f"{path}: two of the files are called {path.name}: give their folder instead")
            place.symlink_to(path)
            hashes[below.as_posix()] = digest(path, "sha256")
    if hashes:
        yield _Root(plain, hashes)


def _downloaded(
    source: Source, wish: Wish, downloads: Path, listener: Listener, patience: Patience | None, fetched: Fetched
) -> list[Path]:
    """The files of a data set. Of several those that are gone are left out."""
    files = []
    for remote in _remote(source, wish):
        most = wish.most_bytes or source.most_bytes
        try:
            files.append(download(remote, downloads, most, listener.downloading, patience))
        except GoneError as error:
            fetched.left_out[remote.path] = str(error)
    return files


def _existing(path: Path) -> Path:
    if not path.exists():
        raise TraceError(f"there is no file or folder {path}")
    return path.absolute()


def _remote(source: Source, wish: Wish) -> Sequence[RemoteFile]:
    if source.remote is None:
        raise TraceError(f"{source.name} cannot be downloaded by itself: {source.doubt}")
    if isinstance(source.remote, Listing):
        return listed(replace(source.remote, address=wish.address) if wish.address else source.remote)
    if wish.address is None:
        return source.remote
    if len(source.remote) > 1:
        # Several files side by side: the address is that of their folder.
        return [replace(each, address=f"{wish.address.rstrip('/')}/{each.path}") for each in source.remote]
    name = wish.address.partition("?")[0].rpartition("/")[2] or source.remote[0].path
    return [replace(source.remote[0], address=wish.address, path=name)]


def _convert(
    source: Source,
    archive: Archive,
    wish: Wish,
    roots: Sequence[_Root],
    listener: Listener,
    record_workloads: RecordWorkloads | None,
    fetched: Fetched,
) -> None:
    most = wish.most_entries or source.most_entries
    for root in roots:
        for recording in source.convert(root.folder, wish.way or "downlink"):
            usual = wish.everything or bool(wish.given) or re.search(source.usual, recording.of) is not None
            wanted = usual and fnmatch.fnmatchcase(recording.name, wish.only)
            if not wanted or len(fetched.kept) + len(fetched.there) >= most:
                fetched.unwanted += 1
            elif archive.has(recording.name) and not wish.replace:
                fetched.there.append(recording.name)
            else:
                _keep(archive, source, wish.replace, root, recording, fetched, record_workloads)
                listener.kept(len(fetched.kept))
    if not fetched.kept and not fetched.there:
        raise TraceError(_nothing(source, wish, fetched))


def _keep(
    archive: Archive,
    source: Source,
    instead: bool,
    root: _Root,
    recording: Recording,
    fetched: Fetched,
    record_workloads: RecordWorkloads | None,
) -> None:
    with archive.draft(recording.about) as draft:
        try:
            with reading(recording.of):
                recording.fill(draft)
            if recording.workloads is not None and record_workloads is not None:
                record_workloads(recording.workloads, draft.folder / "recording")
                draft.recording = "recording"
            draft.history.append(_step(source, root, recording))
            archive.keep(draft, recording.name, replace=instead)
        except CellbedError as error:
            # Without the hidden folders that its files are in.
            why = str(error).replace(f"{draft.folder}/", "").replace(f"{root.folder}/", "")
            fetched.left_out[recording.of] = why.partition("\n")[0]
            return
    fetched.kept.append(recording.name)
    if draft.notes:
        fetched.notes[recording.name] = draft.notes


def _step(source: Source, root: _Root, recording: Recording) -> Step:
    from cellbed.traces.entry import Step

    # Of several files side by side those that differ in their ending only: the two directions.
    stem = recording.of.rpartition(".")[0]
    mine = {name: sha256 for name, sha256 in root.of.items() if len(root.of) == 1 or name.rpartition(".")[0] == stem}
    how = {"source": source.name, "file": recording.of}
    return Step(what="fetched", how=how, of=mine, tool=f"cellbed {__version__}")


def _nothing(source: Source, wish: Wish, fetched: Fetched) -> str:
    if fetched.left_out:
        of, why = next(iter(fetched.left_out.items()))
        more = f" ({len(fetched.left_out) - 1} others failed, too)" if len(fetched.left_out) > 1 else ""
        return f"{source.name}: there is nothing to convert{more}: {of}: {why}"
    if fetched.unwanted:
        return (
            f"{source.name}: none of its {fetched.unwanted} entries matches --only '{wish.only}', or is usual (--all)"
        )
    return (
        f"{source.name}: there is no file of the documented layout in it: {source.layout} If the data set has changed, "
        "import its files one by one with `cellbed traces add`"
    )
