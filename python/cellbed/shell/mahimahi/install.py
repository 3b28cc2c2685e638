"""Launchers with the names of Mahimahi's commands, in a folder chosen by the user."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from cellbed.shell.mahimahi.__main__ import COMMANDS
from cellbed.support.errors import CellbedError

_MARK = "# Made by: cellbed mahimahi install"


def install(prefix: Path, *, force: bool = False) -> list[Path]:
    """Install launchers of all commands in ``PREFIX/bin``, which run this installation of cellbed; return their paths.

    force: replace foreign programs with the same names. Errors: :class:`CellbedError`; then nothing is changed.
    """
    foreign = [path for _, path in _paths(prefix) if os.path.lexists(path) and not _is_ours(path)]
    if foreign and not force:
        raise CellbedError(
            f"{foreign[0]} exists and was not installed by cellbed: choose another --prefix, or replace it with --force"
        )
    folder = prefix / "bin"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in _paths(prefix):
            temporary = path.with_name(f".{name}.{os.getpid()}.tmp")
            temporary.write_text(_script(name), encoding="utf-8")
            temporary.chmod(0o755)
            temporary.replace(path)
    except OSError as error:
        raise CellbedError(f"{error.filename}: cannot write: {error.strerror}; choose another --prefix") from error
    return [path for _, path in _paths(prefix)]


def uninstall(prefix: Path) -> list[Path]:
    """Remove the launchers that `install` installed, but no foreign programs. Return the removed files.

    Errors: :class:`CellbedError`.
    """
    removed = []
    for _, path in _paths(prefix):
        if _is_ours(path):
            try:
                path.unlink()
            except OSError as error:
                raise CellbedError(f"{path}: cannot remove: {error.strerror}") from error
            removed.append(path)
    return removed


def is_on_path(prefix: Path) -> bool:
    """Return whether ``PREFIX/bin`` is on the PATH."""
    folder = (prefix / "bin").resolve()
    return any(Path(entry).resolve() == folder for entry in os.environ.get("PATH", "").split(":") if entry)


def find_launcher(word: str) -> str | None:
    """Return the name of the command that the program `word` launches from this installation, or None."""
    name, path = Path(word).name, shutil.which(word)
    if name not in COMMANDS or path is None:
        return None
    try:
        return name if Path(path).read_text(errors="replace", encoding="utf-8") == _script(name) else None
    except OSError:
        return None


def _paths(prefix: Path) -> list[tuple[str, Path]]:
    return [(name, prefix.absolute() / "bin" / name) for name in COMMANDS]


def _script(name: str) -> str:
    # -I: import no modules from the caller's folder or PYTHONPATH.
    command = shlex.join((sys.executable, "-I", "-m", "cellbed.shell.mahimahi", name))
    return f'#!/bin/sh\n{_MARK}\nexec {command} "$@"\n'


def _is_ours(path: Path) -> bool:
    try:
        return _MARK in path.read_text(errors="replace", encoding="utf-8").splitlines()[1:2]
    except OSError:
        return False
