"""Processes of this machine, found by their environment."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

_RUN_GROUP = re.compile(rb"/((?:run|testbed)-[0-9]+-[0-9a-f]{6})(?:/|$)", re.MULTILINE)


def environments(run: str = "") -> Iterator[tuple[Path, list[bytes]]]:
    """Yield the folder below ``/proc`` and the variables of each readable process, except in the control groups of runs
    other than `run`: a node there that is short of processor time would make the read wait for minutes."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            groups = set(_RUN_GROUP.findall((process / "cgroup").read_bytes()))
            if groups <= {run.encode()}:
                yield process, (process / "environ").read_bytes().split(b"\0")
