"""Distributions that are installed beside cellbed for a test."""

import os
from pathlib import Path


def install(folder: Path, entry_points: str) -> Path:
    """Install a distribution with entry points into a folder, for ``sys.path``."""
    info = folder / "example-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1\n")
    (info / "entry_points.txt").write_text(entry_points)
    return folder


def environment(*folders: Path) -> dict[str, str]:
    """Return the environment of a process that has the modules and distributions in folders."""
    return {**os.environ, "PYTHONPATH": ":".join(map(str, folders))}
