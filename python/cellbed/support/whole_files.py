"""Output files that a user names: written atomically, or written through."""

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
"""Seconds that a program has to open the other end of a pipe."""


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file at once: a temporary file takes its place when it is complete.

    A symbolic link stays: the file that it leads to is written. A pipe or a device stays, too: the finished content
    goes through it, once a program reads from the pipe.

    Args:
        path: The file.
        write: Fills the temporary file at the path that it gets.

    Raises:
        OSError: A write failed, or a pipe has no reader within `PATIENCE`. Then `path` is unchanged, and nothing is
            left of the new file.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file() and not place.is_dir():
        with temporary_folder() as folder:
            temporary = folder / place.name
            write(temporary)
            with temporary.open("rb") as content, open(_open_pipe(place), "wb") as through:
                shutil.copyfileobj(content, through)
        return
    temporary = place.with_name(f".{place.name[:80]}.{secrets.token_hex(4)}")
    try:
        write(temporary)
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)


def _open_pipe(place: Path) -> int:
    """Return a descriptor to write to a pipe or a device."""
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
