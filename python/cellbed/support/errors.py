"""Errors that are printed as a message instead of a traceback."""

import errno
import json
import os
import re
from pathlib import Path

_HINTS = {
    errno.ENOSPC: "free some space, or choose another place",
    errno.EDQUOT: "free some space, or choose another place",
    errno.EROFS: "choose a place that can be written to",
    errno.EACCES: "check its owner and permissions",
    errno.EPERM: "check its owner and permissions",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.EAGAIN: "raise the limit of processes (ulimit -u)",
}
"""Remedies for errors of the operating system."""
_LONGEST = 2000
"""Characters of a line of an error."""


def printable(text: str, kept: str = "\n") -> str:
    """Return a text that others chose without control characters, which are commands for a terminal.

    They are escaped as in JSON, so that JSON stays JSON. kept: except for these.
    """
    return re.sub(
        r"[^ -~]", lambda it: it[0] if it[0].isprintable() or it[0] in kept else json.dumps(it[0])[1:-1], text
    )


class CellbedError(Exception):
    """An error that the user can correct. The text states the problem, its place, and a remedy.

    Messages quote the input; unprintable characters are escaped, and long lines lose their middle.
    exit_code: the exit status of the command that fails with it.
    """

    exit_code = 2

    def __str__(self) -> str:
        lines = printable(super().__str__()).split("\n")
        return "\n".join(line if len(line) < _LONGEST else f"{line[:1000]} … {line[-500:]}" for line in lines)


class OperatingSystemError(CellbedError):
    """An OSError in one sentence: file, reason, remedy.

    place: a file or folder that was in use, for an error that names none.
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
