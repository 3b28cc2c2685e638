"""Cache of files that are built once: folders and files are added atomically.

Two processes may build the same entry at once: each builds in a separate temporary place, and the first to finish
wins.
"""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from cellbed.archive.unfinished import make_unfinished_beside
from cellbed.support.errors import CellbedError
from cellbed.support.whole_files import write_whole

Note = Callable[[str], object]
"""Called with a sentence about the progress."""


def silent(_: str) -> None:
    """Ignore the sentence."""


def build_folder(folder: Path, build: Callable[[Path], None]) -> None:
    """Let ``build`` fill a temporary folder, then rename it to ``folder``.

    If another process was faster, its folder stays and ours is dropped. Raises CellbedError if the cache cannot be
    written.
    """
    with _explain_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with make_unfinished_beside(folder) as temporary:
            build(temporary)
            temporary.chmod(0o755)
            _rename_unless_there(temporary, folder)


def build_file(file: Path, build: Callable[[Path], None]) -> None:
    """Let ``build`` write a temporary file, then rename it to ``file``; an existing file is replaced atomically.

    Raises CellbedError if the cache cannot be written.
    """
    with _explain_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, build)


def build_elsewhere(what: str, module: str, path: Path, seed: int, *more: str) -> None:
    """Run `module` as a program that builds `what` at `path`. Raises CellbedError.

    In a separate process: libraries for models start threads and use much memory, and our caller may be about to fork.
    """
    command = [sys.executable, "-P", "-m", module, str(path), str(seed), *more]
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if result.returncode != 0:
        reason = result.stderr.strip().splitlines()
        raise CellbedError(f"{path.parent}: cannot build {what}: {reason[-1] if reason else 'no reason given'}")


def _rename_unless_there(temporary: Path, folder: Path) -> None:
    try:
        temporary.rename(folder)
    except OSError:
        # rename(2) refuses to replace a non-empty folder: another process has built it meanwhile.
        if not folder.is_dir():
            raise


@contextlib.contextmanager
def _explain_errors(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CellbedError(
            f"{error.filename or place}: cannot write the cache: {error.strerror or error}; "
            "free some space, or set XDG_CACHE_HOME to another folder"
        ) from error
