"""Descriptions of public data sets: address, licence, and the files that become entries."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import polars as pl

from cellbed.archive.errors import TraceError
from cellbed.archive.series import Content, Part, Series
from cellbed.archive.store import valid_name
from cellbed.support.ways import Way
from cellbed_node import inputs

if TYPE_CHECKING:
    from cellbed.archive.entry import About, Draft

Algorithm = Literal["sha256", "md5", "git-blob"]
"""git-blob: the name that Git gives a file's content, SHA-1 over ``blob SIZE NUL`` and the bytes."""


@dataclass(frozen=True, slots=True)
class Checksum:
    """The publisher's digest of a file, in hexadecimal."""

    algorithm: Algorithm
    digest: str

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.digest}"

    def matches(self, path: Path) -> bool:
        """Return whether a file has this checksum. Raises OSError."""
        return digest(path, self.algorithm) == self.digest.lower()


def digest(path: Path, algorithm: Algorithm) -> str:
    """Return the hexadecimal digest of a file's bytes. Raises OSError."""
    if algorithm == "sha256":
        state = hashlib.sha256()
    else:  # against transmission errors only: the address is HTTPS
        state = hashlib.new("md5" if algorithm == "md5" else "sha1", usedforsecurity=False)
        state.update(b"blob %d\0" % path.stat().st_size if algorithm == "git-blob" else b"")
    with inputs.open_file(path) as file:
        while piece := file.read(1 << 20):
            state.update(piece)
    return state.hexdigest()


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a data set. path: destination relative to the data set's folder, with slashes."""

    address: str
    path: str
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """Files that an importer of the archive reads. format: name of the format; None: recognised by the contents.

    direction: direction of a file whose name contains none.
    """

    files: tuple[Path, ...]
    format: str | None = None
    direction: Way | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """An entry that a data set's files can become.

    of: source file or folder, relative to the data set's folder. fill: writes the series into a draft that already has
    this `about`; raises TraceError for a malformed file.
    """

    name: str
    of: str
    about: About
    fill: Callable[[Draft], None] | Imported


Convert = Callable[[Path], Iterator[Recording]]
"""Return the recordings in a folder of unpacked files; other files are ignored."""


@dataclass(frozen=True, slots=True)
class Source:
    """A public data set.

    name: name for `fetch`. title: one line. page: address of a description for people. remote: files to download.
    usual: regular expression for the recordings converted by default, searched in ``Recording.of``. doubt:
    uncertainties and work by hand. terms: demands of the licence or the publisher.
    checked: data that the layout was compared with.
    """

    name: str
    title: str
    page: str
    licence: str
    terms: str
    citation: str
    layout: str
    checked: str
    convert: Convert
    remote: tuple[RemoteFile, ...]
    doubt: str = ""
    usual: str = ""

    def about(self, **facts: str | None) -> About:
        """Return the metadata of a recording. facts: fields other than licence, source and citation."""
        from cellbed.archive.entry import About

        facts |= {"licence": self.licence, "source": self.page, "citation": self.citation}
        return About.model_validate({"origin": "recorded", **facts})


def load_source(name: str, convert: Convert) -> Source:
    """Return a data set from its description in `sources.toml` in this folder. `checksums.json` has the Git blob
    names of its files, by path."""
    facts = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))[name]
    files = facts.pop("files", ())
    remote = [RemoteFile(each["address"], each["path"], Checksum("md5", each["md5"])) for each in files]
    if git := facts.pop("git", None):
        root = f"https://raw.githubusercontent.com/{git['repository']}/{git['commit']}/{git['folder']}"
        blobs = json.loads(Path(__file__).with_name("checksums.json").read_text())[name]
        remote += [RemoteFile(f"{root}{path}", path, Checksum("git-blob", blob)) for path, blob in blobs.items()]
    return Source(name=name, convert=convert, remote=tuple(remote), **facts)


def entry_name(*words: str) -> str:
    """Return an entry name made of `words`; empty words are left out."""
    return valid_name("-".join(filter(None, words)))


@contextmanager
def name_table_in_errors(of: str) -> Iterator[None]:
    """Convert errors of a table reader to a TraceError that names the file ``of``."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, OverflowError) as error:
        why = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise TraceError(f"{of}: this file is not as documented: {why}") from error


def put(draft: Draft, part: Part, rows: pl.DataFrame, last_ns: int) -> None:
    """Write rows as a part of the draft.

    rows: `at_ns` int64, and `bit_s` float64 or, for round trips, `round_trip_ns` int64 or null. last_ns: duration of
    the last row.
    """
    if not rows.height:
        raise TraceError("contains no measurement")
    content, value = (Content.ROUND_TRIP, "round_trip_ns") if part == "round-trip" else (Content.RATE, "bit_s")
    path = draft.folder / f"{part}.parquet"
    rows.select("at_ns", value).write_parquet(path)
    draft.parts[part] = Series(content, path, int(rows["at_ns"][-1]) + last_ns)
