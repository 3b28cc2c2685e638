"""Taking files out of archives that nobody vouches for.

What comes out is written by us, byte for byte, to a name that we have checked, and counted: a path that leads out of
the folder, a link, a device or more bytes than a data set can have (a "bomb") ends it. Nothing that an archive says of
its sizes is believed.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from cellbed import inputs
from cellbed.archive.errors import TraceError

_MOST_FILES = 100_000
_PIECE = 1 << 16
_TAR = re.compile(r"\.(tar|tgz|tbz2?|txz|tar\.(gz|bz2|xz))$", re.IGNORECASE)
_DAMAGED = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, ValueError, OverflowError, IndexError, KeyError),
)
"""What the libraries end with, depending on where the damage is."""
_UNWANTED = re.compile(r"(^|/)(__MACOSX|\.DS_Store|Thumbs\.db|\._[^/]*)(/|$)")
"""What file managers leave in archives."""


class DamagedError(TraceError):
    """An archive cannot be read."""


def is_archive(path: Path) -> bool:
    """Whether a file is a zip archive, or is called like one or like a tar archive."""
    return _is_zip(path) or _TAR.search(path.name) is not None


def unpack(archive: Path, folder: Path, most_bytes: int, progress: Callable[[str], None]) -> int:
    """Take the files out of an archive, and return the number of their bytes.

    progress: called with each file. Raises DamagedError, and TraceError when the archive is unsafe or larger than
    ``most_bytes``.
    """
    room = _Room(archive, folder, most_bytes)
    try:
        for name, opened in _members(archive, room):
            if room.wants(name):
                progress(name)
                with opened() as content:
                    room.write(name, content)
    except _DAMAGED as error:
        raise DamagedError(f"{archive}: the archive is damaged: {error}") from error
    except (NotImplementedError, RuntimeError) as error:
        raise TraceError(f"{archive}: the archive cannot be unpacked here: {error}; use --from on its files") from error
    except OSError as error:
        raise TraceError(f"{archive}: cannot unpack this archive: {error.strerror or error}") from error
    return room.used


def plain_bytes(path: Path, most_bytes: int) -> bytes:
    """The bytes of a file, those inside if it is packed by gzip. Raises TraceError when they are more than that."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(inputs.checked(path), "rb") as file:
            content = file.read(most_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: cannot read this file: {error}") from error
    if len(content) > most_bytes:
        raise TraceError(f"{path}: there are more than {most_bytes:,} bytes in it")
    return content


class _Room:
    """Where an archive's files go, and what is left of the space for them."""

    def __init__(self, archive: Path, folder: Path, most_bytes: int) -> None:
        self.archive = archive
        self.folder = folder
        self.most_bytes = most_bytes
        self.used = 0
        self.files = 0

    def wants(self, name: str) -> bool:
        self.files += 1
        if self.files > _MOST_FILES:
            raise TraceError(f"{self.archive}: there are more than {_MOST_FILES:,} files in this archive")
        return _UNWANTED.search(name) is None

    def write(self, name: str, content: IO[bytes]) -> None:
        place = self._place(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        # Exclusive: two members of one name are a trick or a mistake.
        with place.open("xb") as file:
            while piece := content.read(_PIECE):
                self.used += len(piece)
                if self.used > self.most_bytes:
                    raise TraceError(
                        f"{self.archive}: more than {self.most_bytes:,} bytes come out of this archive: it is not the "
                        "data set that is known; to take it, raise --most-unpacked-bytes"
                    )
                file.write(piece)

    def _place(self, name: str) -> Path:
        path = PurePosixPath(name)
        if not name.isprintable() or "\\" in name or ":" in name or path.is_absolute() or ".." in path.parts:
            raise TraceError(f"{self.archive}: a file of this archive is called {name!r}, which would leave its folder")
        return self.folder / path


def _members(archive: Path, room: _Room) -> Iterator[tuple[str, Callable[[], IO[bytes]]]]:
    """The regular files of an archive in its order: name and how to open it."""
    if _is_zip(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                # The upper half is the mode of Unix: 0o120000 is a link, 0 is not given.
                kind = info.external_attr >> 16 & 0o170000
                if kind not in (0, 0o100000, 0o040000):
                    raise TraceError(f"{archive}: {info.filename!r} in this archive is not a regular file")
                if not info.is_dir():
                    yield info.filename, lambda info=info: packed.open(info)  # type: ignore[misc]
        return
    # As a stream, so that a gigabyte is read once.
    with _unpacked(archive) as plain:
        with tarfile.open(fileobj=plain, mode="r|") as stream:
            for member in stream:
                if member.isdir():
                    continue
                if not member.isreg():
                    if room.wants(member.name):
                        raise TraceError(f"{archive}: {member.name!r} in this archive is not a regular file")
                    continue
                content = stream.extractfile(member)
                if content is not None:
                    yield member.name, lambda content=content: content  # type: ignore[misc]
        # The checksum of what is packed stands at its very end, behind what tar reads.
        while plain.read(_PIECE):
            pass


def _unpacked(archive: Path) -> IO[bytes]:
    """A tar archive without the compression around it. Its checksum is compared, unlike by `tarfile`'s own streams."""
    with inputs.opened(archive) as file:
        begins = file.read(6)
    if begins.startswith(b"\x1f\x8b"):
        return gzip.open(archive, "rb")  # type: ignore[return-value]
    if begins.startswith(b"BZh"):
        return bz2.open(archive, "rb")
    if begins.startswith(b"\xfd7zXZ"):
        return lzma.open(archive, "rb")
    return inputs.opened(archive)


def _is_zip(path: Path) -> bool:
    return path.suffix.lower() == ".zip" or zipfile.is_zipfile(path)
