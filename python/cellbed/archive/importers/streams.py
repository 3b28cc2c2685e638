"""Input from a pipe, kept as a file while it is read: importers read twice, and check the beginning first."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from cellbed.archive.errors import TraceError
from cellbed.support import inputs

_STDIN = "-"


@contextmanager
def kept(paths: Sequence[Path]) -> Iterator[tuple[list[Path], Callable[[str], str]]]:
    """The same files, with copies in place of pipes and of ``-`` (standard input), and a function that restores the
    given names in a message. Raises TraceError.
    """
    piped = {path for path in paths if is_stream(path)}
    if not piped:
        yield list(paths), str
        return
    if len(piped) < sum(path in piped for path in paths):
        raise TraceError(f"{min(piped)}: named twice, but can be read only once")
    with tempfile.TemporaryDirectory(prefix="cellbed-") as folder:
        copies = {path: _copied(path, Path(folder) / str(number)) for number, path in enumerate(sorted(piped))}

        def named(text: str) -> str:
            for path, copy in copies.items():
                text = text.replace(str(copy), "standard input" if str(path) == _STDIN else str(path))
            return text

        yield [copies.get(path, path) for path in paths], named


def is_stream(path: Path) -> bool:
    """Return whether it is a pipe or ``-``, which has no name for an entry."""
    if str(path) == _STDIN:
        return True
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _copied(path: Path, folder: Path) -> Path:
    folder.mkdir()
    copy = folder / ("stdin" if str(path) == _STDIN else path.name)
    try:
        with copy.open("wb") as target:
            if str(path) == _STDIN:
                shutil.copyfileobj(_standard_input(), target, 1 << 20)
            else:
                target.writelines(inputs.pieces(path, shutil.disk_usage(folder).free // 2, pipe=True))
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    return copy


def _standard_input() -> BinaryIO:
    if sys.stdin is None or os.isatty(0):
        raise TraceError("-: standard input is not a pipe")
    return os.fdopen(os.dup(0), "rb")
