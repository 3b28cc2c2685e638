"""Errors that are printed as messages instead of tracebacks."""

import errno
import os
from pathlib import Path

from cellbed_node.errors import CellbedError as CellbedError
from cellbed_node.errors import printable as printable

_HINTS = {
    errno.ENOSPC: "free some space, or choose another place",
    errno.EDQUOT: "free some space, or choose another place",
    errno.EROFS: "choose a place that can be written to",
    errno.EACCES: "check its owner and permissions",
    errno.EPERM: "check its owner and permissions",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.EAGAIN: "raise the limit of processes (ulimit -u)",
}
"""Remedies for operating system errors."""


def quote(text: str, most: int = 40) -> str:
    """Return at most `most` characters of a text in quotes, with control characters escaped."""
    shown = text if len(text) <= most else text[: most - 3] + "…"
    return f"'{shown}'" if shown.isprintable() else ascii(shown)


class OperatingSystemError(CellbedError):
    """An OSError in one sentence: file, reason, remedy.

    place: the file or folder in use, for an error without a file name.
    """

    exit_code = 1

    def __init__(self, error: OSError, place: Path | None = None) -> None:
        super().__init__(_sentence(error, place))


def _sentence(error: OSError, place: Path | None) -> str:
    if error.filename is None and error.errno == errno.ENOENT and not _has_working_directory():
        return "the current working directory has been deleted; change to another one"
    reason = error.strerror or str(error) or type(error).__name__
    hint = f"; {_HINTS[error.errno]}" if error.errno in _HINTS else ""
    named = error.filename if isinstance(error.filename, str | bytes) else place
    return f"{os.fsdecode(named)}: {reason}{hint}" if named is not None else f"{reason}{hint}"


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True
