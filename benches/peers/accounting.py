"""Processes of an emulator, and of the programs behind its link."""

from __future__ import annotations

from pathlib import Path


def _child_ids() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found.setdefault(int(fields[1]), []).append(int(entry.name))
    return found


def _is_traffic(pid: int, program: str) -> bool:
    try:
        return program.encode() in (Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
    except OSError:
        return False


def _split(root: int, program: str) -> tuple[list[int], list[int]]:
    """Return `root` and its descendants: the emulator's processes, and the ones that run `program` behind the link.

    A shell's own command line names the program too, so only a process without children counts as that program.
    """
    children = _child_ids()
    emulator, programs, waiting = [], [], [root]
    while waiting:
        pid = waiting.pop()
        is_leaf = not children.get(pid)
        (programs if is_leaf and _is_traffic(pid, program) else emulator).append(pid)
        waiting += children.get(pid, [])
    return emulator, programs


def family(root: int, program: str) -> list[int]:
    """Return the processes of the emulator started as `root`, without `program` behind its link."""
    return _split(root, program)[0]


def traffic(root: int, program: str) -> list[int]:
    """Return the processes that run `program` behind the link."""
    return _split(root, program)[1]
