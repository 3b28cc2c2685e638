"""The user's folders for cellbed's data (XDG base directory specification)."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder() -> Path:
    """Return the folder of user data: ``$XDG_DATA_HOME/cellbed`` or ``~/.local/share/cellbed``."""
    return _folder("XDG_DATA_HOME", ".local/share")


def cache_folder() -> Path:
    """Return the folder of reproducible data: ``$XDG_CACHE_HOME/cellbed`` or ``~/.cache/cellbed``."""
    return _folder("XDG_CACHE_HOME", ".cache")


def _folder(variable: str, otherwise: str) -> Path:
    base = os.environ.get(variable, "")
    # Specification: a relative path is invalid and must be ignored.
    return (Path(base) if base.startswith("/") else Path.home() / otherwise) / "cellbed"
