"""Files out of zip and tar archives, none of which leaves the folder, up to a limit of bytes."""

from __future__ import annotations

import gzip
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from cellbed.archive.errors import TraceError
from cellbed.support import inputs

_TAR = re.compile(r"\.(tar|tgz|tbz2?|txz|tar\.(gz|bz2|xz))$", re.IGNORECASE)
_DAMAGED = (zipfile.BadZipFile, tarfile.ReadError, zlib.error, lzma.LZMAError, EOFError, ValueError, KeyError)
_UNWANTED = re.compile(r"(^|/)(__MACOSX|\.DS_Store|Thumbs\.db|\._[^/]*)(/|$)")
"""Files that file managers leave in archives."""


class DamagedError(TraceError):
    """An archive cannot be read."""


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip archive, or is called like one or like a tar archive."""
    return _is_zip(path) or _TAR.search(path.name) is not None


def unpack(archive: Path, folder: Path, most_bytes: int, state: Callable[[str], None]) -> int:
    """Extract the files of an archive, and return the number of their bytes.

    state: called with the progress. Raises DamagedError, and TraceError when the archive is unsafe or larger than
    ``most_bytes``.
    """
    used = 0

    def wanted(name: str, size: int) -> bool:
        nonlocal used
        used += size
        if used > most_bytes:
            raise TraceError(
                f"{archive}: more than {most_bytes:,} bytes come out of this archive: it is not the data set that is "
                "known; to take it, raise --most-unpacked-bytes"
            )
        state(f"unpacking {name}")
        return _UNWANTED.search(name) is None

    try:
        if _is_zip(archive):
            # `extract` keeps every path inside the folder and makes no links; no more than the stated size comes out.
            with zipfile.ZipFile(archive) as packed:
                for info in packed.infolist():
                    if wanted(info.filename, info.file_size):
                        packed.extract(info, folder)
        else:
            with tarfile.open(archive) as tar:
                for member in tar:
                    if wanted(member.name, member.size):
                        tar.extract(member, folder, filter="data")
                # The checksum of a compression is behind what tar reads.
                while tar.fileobj is not None and tar.fileobj.read(1 << 16):
                    pass
    except _DAMAGED as error:
        raise DamagedError(f"{archive}: the archive is damaged: {error}") from error
    except (tarfile.TarError, NotImplementedError, RuntimeError) as error:
        raise TraceError(f"{archive}: the archive cannot be unpacked here: {error}; use --from on its files") from error
    except OSError as error:
        raise TraceError(f"{archive}: cannot unpack this archive: {error.strerror or error}") from error
    return used


def plain_bytes(path: Path, most_bytes: int) -> bytes:
    """Return the bytes of a file, those inside if it is packed by gzip. Raises TraceError for more than that."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(inputs.checked(path), "rb") as file:
            content = file.read(most_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: cannot read this file: {error}") from error
    if len(content) > most_bytes:
        raise TraceError(f"{path}: there are more than {most_bytes:,} bytes in it")
    return content


def _is_zip(path: Path) -> bool:
    return path.suffix.lower() == ".zip" or zipfile.is_zipfile(path)
