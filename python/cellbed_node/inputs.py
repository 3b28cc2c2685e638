"""Files of users and other programs: regular files, opened without waiting, read up to a limit; files of packages."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import resource
import select
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

from cellbed_node.errors import CellbedError
from cellbed_node.extras import remedy

MOST = 64 << 20
"""Maximum bytes of a document, unless stated otherwise."""
PATIENCE = 10.0
"""Maximum seconds without data from a pipe."""
_VALUE_BYTES = 100
"""Memory in bytes per value of a JSON document, besides its text."""
_KINDS = (
    (stat.S_ISDIR, "folder"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
    (stat.S_ISFIFO, "pipe"),
)
_NULL = os.makedev(1, 3)


def kind_of(mode: int) -> str:
    """Return the name of the kind of file."""
    return next((name for matches, name in _KINDS if matches(mode)), "file")


def check(path: Path, *, pipe: bool = False) -> Path:
    """Return the path of a regular file, for libraries that open files. Raises OSError for other kinds.

    The null device counts as an empty file. pipe: also accept a pipe.
    """
    _check(path, path.stat(), pipe)
    return path


def open_file(path: Path, *, pipe: bool = False) -> BufferedReader:
    """Open a file that `check` accepts. Reads that would block, such as of the kernel's log, fail."""
    check(path, pipe=pipe)  # before opening: opening a device can have effects
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb")
    try:
        _check(path, os.fstat(file.fileno()), pipe)
    except OSError:
        file.close()
        raise
    return file


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 digest of a file that `open_file` opens. Raises OSError."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pieces(path: Path, most: int, *, pipe: bool = False) -> Iterator[bytes]:
    """Yield the content of a file that `check` accepts in pieces.

    Raises OSError, also for more than `most` bytes, and for a pipe without data for `PATIENCE`.
    """
    with open_file(path, pipe=pipe) as file:
        poll = select.poll()
        poll.register(file, select.POLLIN)
        size, read = os.fstat(file.fileno()).st_size, 0
        block = min(max(size, 1 << 16), 1 << 20)
        while max(size, read) <= most:
            if not poll.poll(PATIENCE * 1000):
                raise OSError(errno.ETIMEDOUT, f"the pipe gave nothing within {PATIENCE:g} s", str(path))
            try:
                piece = os.read(file.fileno(), block)
            except OSError as error:
                error.filename = str(path)
                raise
            if not piece:
                return
            read += len(piece)
            yield piece
    raise OSError(errno.EFBIG, f"larger than {most >> 20} MiB", str(path))


def content(path: Path, most: int = MOST, *, pipe: bool = False) -> bytes:
    """Return the content of a file. Errors: as in `pieces`."""
    return b"".join(pieces(path, most, pipe=pipe))


def text(path: Path, most: int = MOST) -> str:
    """Return the text of a UTF-8 file. Errors: as in `pieces`."""
    return content(path, most).decode(errors="replace")


def json_value(source: Path | str | bytes) -> Any:
    """Return the value of a JSON file or of its content. Errors: as in `pieces`; ValueError for other content."""
    source = content(source) if isinstance(source, Path) else source
    if isinstance(source, bytes) and sum(map(source.count, (b",", b"[", b"{"))) * _VALUE_BYTES > share_of_memory():
        raise ValueError("more values than a quarter of the memory holds")
    try:
        return json.loads(source)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def share_of_memory() -> int:
    """Return a quarter of the memory available to this process, bytes: the limit for records of any number."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return (memory if limit == resource.RLIM_INFINITY else min(memory, limit)) // 4


def _check(path: Path, status: os.stat_result, pipe: bool) -> None:
    is_empty = stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL
    if not (stat.S_ISREG(status.st_mode) or is_empty or (pipe and stat.S_ISFIFO(status.st_mode))):
        raise OSError(errno.EINVAL, f"a {kind_of(status.st_mode)}, not a file", str(path))


def package_path(package: str, name: str, extra: str = "") -> Path:
    """Return the path of a file or folder in a package, without importing the package, which may take long.

    extra: the extra of cellbed that installs the package. Raises CellbedError if it is missing.
    """
    found = importlib.util.find_spec(package)
    for folder in (found.submodule_search_locations if found else None) or []:
        if (path := Path(folder) / name).exists():
            return path
    command = remedy(extra) if extra else f"pip install --force-reinstall {package}"
    raise CellbedError(f"{name} of the package {package} is missing: {command}")
