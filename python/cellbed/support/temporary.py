"""Temporary folders, and how remains of killed processes are distinguished from live work.

A process holds a lock on its folder, which the kernel releases with the process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_PREFIX = "cellbed-tmp-"


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder in ``$TMPDIR`` or ``/tmp``, removed at the end. Remains of killed processes are removed, too.

    Errors: ``OSError``.
    """
    sweep_temporary()
    with contextlib.ExitStack() as held:
        while True:
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
            held.callback(remove_tree, folder, ignore_errors=True)
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                held.callback(os.close, hold(folder))
                if folder.is_dir():  # not swept before it was locked
                    break
        yield folder


def sweep_temporary() -> list[Path]:
    """Remove this user's temporary folders of killed processes, and return them."""

    def is_own(folder: Path) -> bool:
        with contextlib.suppress(OSError):
            return folder.lstat().st_uid == os.geteuid()
        return False

    return remove_left(filter(is_own, Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")))


def remove_left(folders: Iterable[Path]) -> list[Path]:
    """Remove those folders that no process holds, and return them."""
    left = []
    for folder in folders:
        try:
            descriptor = hold(folder)
        except NotADirectoryError:
            folder.unlink(missing_ok=True)
            continue
        except OSError:
            continue  # its owner works in it, or has just removed it
        try:
            remove_tree(folder, ignore_errors=True)
            left.append(folder)
        finally:
            os.close(descriptor)
    return left


def remove_tree(folder: Path, *, ignore_errors: bool = False) -> None:
    """Remove a folder with what programs have left in it, also folders that their owner may not enter: at any depth
    (``shutil.rmtree`` is recursive), and without following links. Errors: ``OSError``."""
    # A group of its own: Ctrl-C does not end the removal before its caller.
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "process_group": 0}
    if os.geteuid() != 0:
        subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=False, **options)
    done = subprocess.run(["rm", "-rf", "--", str(folder)], check=False, **options)
    if done.returncode != 0 and not ignore_errors:
        raise OSError(errno.ENOTEMPTY, done.stderr.decode(errors="replace").strip()[:500], str(folder))


def hold(folder: Path) -> int:
    """Return the descriptor with the folder's lock. Raises BlockingIOError where another process has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
