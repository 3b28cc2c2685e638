"""Look-up of files and folders that a user names, relative to a folder."""

import stat
from pathlib import Path

from cellbed.support.errors import quote
from cellbed_node import inputs


def find_file(text: str, folder: Path) -> Path | None:
    """Return the absolute path of a regular file.

    Args:
        text: A path, absolute or relative to `folder`.
        folder: The folder of the file that names it.

    Returns:
        The path, or ``None`` if there is no regular file.
    """
    path = place_of(text, folder)
    mode = _mode(path)
    return path if mode is not None and stat.S_ISREG(mode) else None


def find_folder(text: str, folder: Path) -> Path | None:
    """Return the absolute path of the directory ``text``, relative to ``folder``; None if there is none."""
    path = place_of(text, folder)
    mode = _mode(path)
    return path if text and mode is not None and stat.S_ISDIR(mode) else None


def obstacle(text: str, folder: Path, wanted: str) -> str:
    """Return the reason why `text` names no regular file.

    Args:
        text: A path, absolute or relative to `folder`.
        folder: The folder of the file that names it.
        wanted: The expected kind, such as "trace file".

    Returns:
        The reason, as part of a sentence.
    """
    shown = quote(text, 200)
    path = place_of(text, folder)
    try:
        mode = path.stat().st_mode if path else None
    except FileNotFoundError:
        mode = None
    except (OSError, ValueError) as error:
        return f"{shown} cannot be used as a {wanted}: {getattr(error, 'strerror', None) or error}"
    if mode is not None and text:
        return f"{shown} is a {inputs.kind_of(mode)}, not a {wanted}"
    if text.startswith(("/", "~")):
        return f"there is no file {shown}"
    return f"there is no file {shown} in {folder.absolute()}"


def place_of(text: str, folder: Path) -> Path | None:
    """Return the absolute path of ``text``, relative to ``folder``; None for the home of an unknown user."""
    try:
        return (folder / Path(text).expanduser()).absolute()
    except (OSError, RuntimeError, ValueError):
        return None


def _mode(path: Path | None) -> int | None:
    try:
        return path.stat().st_mode if path else None
    except (OSError, ValueError):  # missing file, name too long, or NUL in the name
        return None
