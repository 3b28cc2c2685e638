"""Output files named by users: written atomically, or written through."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from cellbed_node.temporary import temporary_folder

PATIENCE = 10.0
"""Maximum wait for a program to open the other end of a pipe, seconds."""


Content = bytes | str | Callable[[Path], object]
"""Content of a file: bytes, a text (UTF-8), or a function that fills the file at a given path."""


def write_whole(path: Path, content: Content) -> None:
    """Write a file atomically: a temporary file replaces it when complete.

    A symbolic link stays; its target is written. A pipe or a device also stays: the finished content is written through
    it, as soon as a program reads from the pipe.

    Args:
        path: The file.
        content: Its content.

    Raises:
        OSError: A write failed, or a pipe has no reader within `PATIENCE`. Then `path` is unchanged, and the new file
            is removed.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file() and not place.is_dir():
        with temporary_folder() as folder:
            temporary = folder / place.name
            _fill(temporary, content)
            with temporary.open("rb") as complete, open(_open_pipe(place), "wb") as through:
                shutil.copyfileobj(complete, through)
        return
    temporary = place.with_name(f".{place.name[:80]}.{secrets.token_hex(4)}")
    try:
        _fill(temporary, content)
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)


def _fill(file: Path, content: Content) -> None:
    if callable(content):
        content(file)
    else:
        file.write_bytes(content.encode() if isinstance(content, str) else content)


def _open_pipe(place: Path) -> int:
    """Return a descriptor for writing to a pipe or a device."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            descriptor = os.open(place, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            if error.errno != errno.ENXIO or not place.is_fifo():
                raise
            if time.monotonic() > deadline:
                raise OSError(
                    errno.ENXIO, f"no program read from this pipe within {PATIENCE:g} s", str(place)
                ) from None
            time.sleep(0.05)
        else:
            os.set_blocking(descriptor, True)
            return descriptor
