"""What is not yet or no longer in the archive: folders that nobody sees and that do not outlive who made them.

Such a folder lies in the archive under a hidden name, and whoever works in it holds a lock on it, which ends with the
process however that ends. So what a killed process has left can be told from what a live one is at.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

_PREFIX = ".unfinished-"
_EXCHANGE = 2
"""RENAME_EXCHANGE of renameat2(2)."""
_AT_FDCWD = -100


@contextlib.contextmanager
def locked(archive: Path) -> Iterator[None]:
    """Hold the archive's lock; everything that gives or takes a name does, and is brief. Makes the archive's folder."""
    archive.mkdir(parents=True, exist_ok=True)
    with (archive / ".lock").open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def unfinished(archive: Path) -> Iterator[Path]:
    """A new folder in the archive that nobody sees, removed at the end unless it was renamed."""
    with contextlib.ExitStack() as held:
        with locked(archive):
            sweep(archive)
            folder = archive / f"{_PREFIX}{os.urandom(8).hex()}"
            folder.mkdir()
            held.callback(os.close, _hold(folder))
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


@contextlib.contextmanager
def unfinished_beside(place: Path) -> Iterator[Path]:
    """A new hidden folder beside a place that it is to be renamed to, removed at the end unless it was.

    What killed processes have left there on the way to the same place is removed, too.
    """
    stem = f".{place.name[:100]}."
    _remove_left(each for each in place.parent.iterdir() if each.name.startswith(stem) and _is_mark(each.name, stem))
    folder = place.with_name(f"{stem}{os.urandom(8).hex()}")
    with contextlib.ExitStack() as held:
        folder.mkdir()
        held.callback(os.close, _hold(folder))
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


def _is_mark(name: str, stem: str) -> bool:
    mark = name.removeprefix(stem)
    return len(mark) == 16 and not set(mark) - set("0123456789abcdef")


def sweep(archive: Path) -> list[Path]:
    """Remove what killed processes have left; returns it. The archive's lock must be held."""
    return _remove_left(archive.glob(f"{_PREFIX}*"))


def _remove_left(folders: Iterable[Path]) -> list[Path]:
    """Remove those in which no process works; returns them."""
    left = []
    for folder in folders:
        try:
            descriptor = _hold(folder)
        except NotADirectoryError:
            folder.unlink(missing_ok=True)
            continue
        except OSError:
            continue  # its owner works in it, or has just removed it
        try:
            shutil.rmtree(folder, ignore_errors=True)
            left.append(folder)
        finally:
            os.close(descriptor)
    return left


def discard(archive: Path, folder: Path) -> None:
    """Take the name of a folder of the archive away, at once, and then remove what was there."""
    with locked(archive):
        taken = withdraw(archive, folder)
    shutil.rmtree(taken, ignore_errors=True)


def withdraw(archive: Path, folder: Path) -> Path:
    """Take the name of a folder of the archive away; returns where it is, to be removed. The lock must be held."""
    taken = archive / f"{_PREFIX}{os.urandom(8).hex()}"
    folder.rename(taken)
    return taken


def exchange(one: Path, other: Path) -> None:
    """Give each of two folders the other's name, in one step; in two where the file system cannot."""
    import ctypes

    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is not None and renameat2(_AT_FDCWD, bytes(one), _AT_FDCWD, bytes(other), _EXCHANGE) == 0:
        return
    if renameat2 is not None and ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(other))
    aside = one.with_name(f"{one.name}-aside")
    other.rename(aside)
    one.rename(other)
    aside.rename(one)


def write_synced(archive: Path, path: Path, content: bytes) -> None:
    """Write a file of the archive in place of another, all of it or nothing, and so that it outlives a loss of power.

    The archive's lock must be held, unless the file is in an unfinished folder.
    """
    temporary = archive / f"{_PREFIX}{os.urandom(8).hex()}"
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Have a file or a folder's names on the disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hold(folder: Path) -> int:
    """The descriptor with the folder's lock. Raises BlockingIOError where another process has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
