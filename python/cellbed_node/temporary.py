"""Temporary folders, and the distinction between remains of killed processes and live work.

A process holds a lock on its folder, which the kernel releases with the process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_PREFIX = "cellbed-tmp-"


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder in ``$TMPDIR`` or ``/tmp``, removed at the end. Remains of killed processes are also removed.

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

    return remove_stale(filter(is_own, Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")))


def remove_stale(folders: Iterable[Path]) -> list[Path]:
    """Remove and return the folders that no process holds."""
    left = []
    for folder in folders:
        try:
            descriptor = hold(folder)
        except NotADirectoryError:
            folder.unlink(missing_ok=True)
            continue
        except OSError:
            continue  # the owner works in it, or has just removed it
        try:
            remove_tree(folder, ignore_errors=True)
            left.append(folder)
        finally:
            os.close(descriptor)
    return left


def remove_tree(folder: Path | str, *, ignore_errors: bool = False, **options: Any) -> None:
    """Remove a folder with all files of programs, also subfolders that the owner may not enter: at any depth
    (``shutil.rmtree`` is recursive), and without following links. options: options of ``subprocess.run``; they force
    removal by another program.

    Errors: ``OSError``.
    """
    if not os.path.lexists(folder):
        return
    if not options:
        with contextlib.suppress(OSError, RecursionError):
            shutil.rmtree(folder)
            return
    script = 'test "$(id -u)" = 0 || chmod -R u+rwX -- "$1" 2>&-; exec rm -rf -- "$1"'
    command, output = ["sh", "-c", script, "sh", str(folder)], subprocess.DEVNULL
    with contextlib.suppress(*[OSError] * ignore_errors):
        try:  # in a separate group, which Ctrl-C does not end before its caller
            subprocess.run(command, stdout=output, stderr=subprocess.PIPE, check=True, process_group=0, **options)
        except BlockingIOError:  # no more processes are allowed
            shutil.rmtree(folder)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            reason = (error.stderr or b"").decode(errors="replace").strip()[:500] or "files remain"
            raise OSError(errno.ENOTEMPTY, reason, str(folder)) from None


def hold(folder: Path) -> int:
    """Lock the folder and return the descriptor with the lock. Raises BlockingIOError if another process has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
