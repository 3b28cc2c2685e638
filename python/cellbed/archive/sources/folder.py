"""Where data sets are downloaded to and unpacked."""

import os
from pathlib import Path

from cellbed import user_folders
from cellbed.archive.unfinished import locked, sweep


def downloads_folder() -> Path:
    """The folder of downloads: ``$XDG_CACHE_HOME/cellbed/downloads`` or ``~/.cache/cellbed/downloads``."""
    return user_folders.cache_folder() / "downloads"


def sweep_downloads() -> list[Path]:
    """Remove what killed calls were unpacking; returns it. Downloads stay, and are gone on with. Raises OSError."""
    folder = downloads_folder()
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return []
    with locked(folder):
        return sweep(folder)
