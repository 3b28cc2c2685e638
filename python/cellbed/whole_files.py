"""Files that a user names for output: written whole, or written through."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write` fill a file, and put it at `path` when it is complete.

    A symbolic link stays: the file that it leads to is written. A pipe or a device stays, too: the finished content
    goes through it, and waits for a reader where there is none yet.
    Raises OSError; nothing is left of a file that could not be finished, and what was at `path` is as it was.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file() and not place.is_dir():
        with tempfile.TemporaryDirectory(prefix="cellbed-") as folder:
            temporary = Path(folder, place.name)
            write(temporary)
            with temporary.open("rb") as content, place.open("wb") as through:
                shutil.copyfileobj(content, through)
        return
    temporary = place.with_name(f".{place.name[:80]}.{secrets.token_hex(4)}")
    try:
        write(temporary)
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)
