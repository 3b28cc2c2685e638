"""Extraction of zip and tar archives that stays inside the folder."""

from __future__ import annotations

import lzma
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path

from cellbed.archive.errors import TraceError

_ENDINGS = {ending: name for name, endings, _ in shutil.get_unpack_formats() for ending in endings}
_DAMAGED = (
    shutil.ReadError, zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError, KeyError,
    NotImplementedError, RuntimeError,
)  # fmt: skip


def is_archive(path: Path) -> bool:
    """Return whether a file is called like a zip or tar archive."""
    return path.name.lower().endswith(tuple(_ENDINGS))


def unpack(archive: Path, folder: Path) -> None:
    """Extract the files of an archive. Raises TraceError for one that is damaged or unsafe."""
    kind = next(name for ending, name in _ENDINGS.items() if archive.name.lower().endswith(ending))
    try:
        # Of a zip archive, files outside of the folder are passed over, and links are files.
        shutil.unpack_archive(archive, folder, kind, filter=None if kind == "zip" else "data")
    except _DAMAGED as error:
        raise TraceError(f"{archive}: the archive is damaged or unsafe: {error}; use --from on its files") from error
    except OSError as error:
        raise TraceError(f"{archive}: cannot unpack this archive: {error.strerror or error}") from error
