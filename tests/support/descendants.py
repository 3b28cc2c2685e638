"""The processes below another one, by their command lines."""

import contextlib
from pathlib import Path


def words(pid: int) -> bytes:
    """Return the command line of a process, nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def descendants(root: int) -> dict[int, bytes]:
    """Return the descendants of a process with their command lines."""
    found, below = {}, [root]
    while below:
        pid = below.pop()
        files: list[Path] = []
        with contextlib.suppress(OSError):
            files += Path(f"/proc/{pid}/task").glob("*/children")
        for file in files:
            with contextlib.suppress(OSError):
                for child in map(int, file.read_text().split()):
                    below.append(child)
                    if line := words(child):
                        found[child] = line
    return found
