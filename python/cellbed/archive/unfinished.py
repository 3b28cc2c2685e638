"""Unfinished and removed entries: hidden folders that do not outlive the process that made them.

An unfinished folder has a hidden name in the archive. Its process holds a lock on the folder, and the kernel releases
the lock with the process. So remains of killed processes can be distinguished from live work.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from cellbed.support import user_folders
from cellbed_node.temporary import hold, remove_stale, remove_tree

_NAME = "unfinished"
_EXCHANGE = 2
"""RENAME_EXCHANGE of renameat2(2)."""
_AT_FDCWD = -100


@contextlib.contextmanager
def lock(archive: Path) -> Iterator[None]:
    """Hold the archive's lock, required for adding or removing a name. Makes the archive's folder."""
    archive.mkdir(parents=True, exist_ok=True)
    with (archive / ".lock").open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_unfinished(archive: Path) -> contextlib.AbstractContextManager[Path]:
    """Make a new hidden folder in the archive for the time of a context, as :func:`make_unfinished_beside`."""
    archive.mkdir(parents=True, exist_ok=True)
    return make_unfinished_beside(archive / _NAME)


@contextlib.contextmanager
def make_unfinished_beside(place: Path) -> Iterator[Path]:
    """Make a hidden folder for the time of a context. Unless renamed, the folder is removed at the end.

    Remains of killed processes for the same place are removed, too.

    Args:
        place: The final path, in the same parent folder.

    Yields:
        The hidden folder.
    """
    stem = f".{place.name[:100]}."
    remain = re.compile(re.escape(stem) + "[0-9a-f]{16}")
    remove_stale(each for each in place.parent.iterdir() if remain.fullmatch(each.name))
    with contextlib.ExitStack() as held:
        while True:
            folder = place.with_name(f"{stem}{os.urandom(8).hex()}")
            held.callback(remove_tree, folder, ignore_errors=True)
            folder.mkdir()
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                held.callback(os.close, hold(folder))
                if folder.exists():
                    break
            # Another process removed the folder as a remain before this process locked it.
        yield folder


def sweep(archive: Path) -> list[Path]:
    """Remove the remains of killed processes, and return their paths."""
    return remove_stale(archive.glob(f".{_NAME}*"))


def discard(archive: Path, folder: Path) -> None:
    """Rename a folder of the archive to a hidden name, and then remove the folder."""
    taken = archive / f".{_NAME}.{os.urandom(8).hex()}"
    with lock(archive):
        folder.rename(taken)
    remove_tree(taken, ignore_errors=True)


def exchange(one: Path, other: Path) -> None:
    """Exchange two folders atomically, or in two steps if the file system lacks an atomic exchange."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).renameat2(_AT_FDCWD, bytes(one), _AT_FDCWD, bytes(other), _EXCHANGE) == 0:
        return
    if ctypes.get_errno() != errno.EINVAL:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(other))
    aside = one.with_name(f"{one.name}-aside")
    other.rename(aside)
    one.rename(other)
    aside.rename(one)


def downloads_folder() -> Path:
    """Return the folder of downloads: ``$XDG_CACHE_HOME/cellbed/downloads`` or ``~/.cache/cellbed/downloads``."""
    return user_folders.cache_folder() / "downloads"


def images_folder() -> Path:
    """Return the folder of unpacked container images: ``$XDG_CACHE_HOME/cellbed/images`` or
    ``~/.cache/cellbed/images``."""
    return user_folders.cache_folder() / "images"


def sweep_cache() -> list[Path]:
    """Remove the unpacked files of killed processes, and return their paths. Downloads stay, to be continued.

    Raises OSError.
    """
    left = []
    for folder in (downloads_folder(), images_folder()):
        if folder.is_dir() and os.access(folder, os.W_OK):
            left += sweep(folder)
    return left
