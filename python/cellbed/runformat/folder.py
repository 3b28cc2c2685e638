"""The folder of a run: its creation, and writing into it."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from cellbed.support.errors import CellbedError
from cellbed_node.temporary import remove_tree

RESERVE = Path("raw", "reserve")
"""A file in the folder of an unfinished run, removed before ``run.json`` is written for the last time. A disk that
became full during the run then has room for ``run.json``."""
RESERVE_BYTES = 1 << 18


def create(parent: Path, name: str, now: datetime) -> Path:
    """Make a new folder ``<name>-<date>-<time>`` below `parent`. If the folder exists, a number is added."""
    parent = parent.absolute()
    stem = f"{name}-{now:%Y%m%d-%H%M%S}"
    number = 1
    while True:
        path = parent / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir(parents=True)
            (path / "raw").mkdir()
            (path / RESERVE).write_bytes(bytes(RESERVE_BYTES))
            return path
        except FileExistsError:
            # `parent` may also be a dangling symbolic link.
            if not parent.is_dir():
                raise CellbedError(f"{parent} is not a folder; choose another place with --out") from None
            number += 1
        except OSError as error:
            remove_tree(path, ignore_errors=True)
            raise CellbedError(f"cannot write to {parent}: {error.strerror}; choose another place with --out") from None


def release_reserve(path: Path) -> None:
    """Make room for the last ``run.json`` of a run; see :data:`RESERVE`."""
    (path / RESERVE).unlink(missing_ok=True)


def is_unstarted(path: Path) -> bool:
    """Return whether a folder belongs to a run before its workload: it has only the files that a run writes first."""
    names = {entry.name.removesuffix(".tmp") for entry in path.iterdir()}
    described = {"run.json", "scenario.toml", "scenario.resolved.json", "environment.json"}
    return "raw" in names <= {"raw", "run.log", "events.jsonl", "live.json", *described}


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, by a temporary file that is renamed."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8", "backslashreplace")
        temporary.rename(path)
    finally:  # also after an interrupt
        temporary.unlink(missing_ok=True)
