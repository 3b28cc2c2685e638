"""What is known of a public data set: where it is, what one may do with it, and how its files become entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cellbed.archive.store import valid_name

if TYPE_CHECKING:
    from cellbed.archive.draft import Draft
    from cellbed.archive.entry import About
    from cellbed.archive.series import Part

Status = Literal["documented", "uncertain"]
"""documented: publisher or publication say where the files are and what is in them. uncertain: something of that is
not known, and nothing is guessed: files that the user has got hold of can be converted, but none is downloaded."""

Algorithm = Literal["sha256", "md5", "git-blob"]
"""git-blob: the name that Git gives a file's content, SHA-1 over ``blob SIZE NUL`` and the bytes."""

MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Checksum:
    """What the publisher says the bytes of a file hash to, in hexadecimal."""

    algorithm: Algorithm
    digest: str

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.digest}"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a data set. path: where it goes, relative to the data set's folder, with slashes."""

    address: str
    path: str
    checksum: Checksum | None = None


def git_files(repository: str, commit: str, blobs: Mapping[str, str], folder: str = "") -> tuple[RemoteFile, ...]:
    """Files of a commit of ``OWNER/NAME`` at GitHub. blobs: the names of their contents in Git, by path in the folder.

    folder: of the repository, with a slash at its end; it is not in the paths that they get.
    """
    root = f"https://raw.githubusercontent.com/{repository}/{commit}/{folder}"
    return tuple(RemoteFile(f"{root}{path}", path, Checksum("git-blob", blob)) for path, blob in blobs.items())


@dataclass(frozen=True, slots=True)
class Listing:
    """Files that a web server lists: a page of folders, each a page of files.

    folders, files: regular expressions that a whole name must match.
    """

    address: str
    folders: str
    files: str


@dataclass(frozen=True, slots=True)
class Imported:
    """Files that an importer of the archive reads. format: its name; None: what it looks like.

    direction: of what a file has whose name does not tell it.
    """

    files: tuple[Path, ...]
    format: str | None = None
    direction: Literal["uplink", "downlink"] | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """An entry that a data set's files can become.

    of: the file or folder it is made of, relative to the data set's folder. fill: writes the series into a draft, whose
    `about` is already this one; TraceError when the file is malformed.
    """

    name: str
    of: str
    about: About
    fill: Callable[[Draft], None] | Imported


Convert = Callable[[Path, "Part"], Iterator[Recording]]
"""From the folder of a data set's unpacked files to what they can become. Files that are something else are passed by.
The direction is what to take rates for, in a data set that does not say it (`Source.direction_unknown`)."""


@dataclass(frozen=True, slots=True)
class Source:
    """A public data set.

    name: what `fetch` calls it. title: a line. page: where people read about it. remote: its files, or None where they
    cannot be downloaded without a person. usual: regular expression of what is converted unless more is asked for,
    searched in ``Recording.of``. unpacked: regular expression of the files to take out of its archives; the rest stays
    packed. most_bytes: of one download, a limit against surprises. most_unpacked_bytes: of all that comes out of its
    archives. most_entries: how many it becomes unless more are asked for.
    direction_unknown: nobody says whether uplink or downlink was measured, so who asks has to.
    doubt: what is not certain and what to do by hand. terms: what the licence or the publisher asks for.
    checked: what the layout was compared with.
    """

    name: str
    title: str
    status: Status
    page: str
    licence: str
    terms: str
    citation: str
    layout: str
    checked: str
    convert: Convert
    remote: tuple[RemoteFile, ...] | Listing | None = None
    doubt: str = ""
    usual: str = ""
    unpacked: str = ""
    most_bytes: int = 500 * MEGABYTE
    most_unpacked_bytes: int = 2_000 * MEGABYTE
    most_entries: int = 1000
    direction_unknown: bool = False


def named(*words: str) -> str:
    """The name of an entry, of words that say what it is; empty ones are left out."""
    return valid_name("-".join(filter(None, words)))
