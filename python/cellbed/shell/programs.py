"""Find and run the system's programs, here or in another namespace."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from cellbed.errors import CellbedError
from cellbed.testbed.process import Place, spawn


class ProgramError(CellbedError):
    """A program of the system failed. The text holds what it said."""

    exit_code = 1


def find(name: str) -> str | None:
    """Path of a program, also where distributions keep those that ordinary users seldom run."""
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin")


def run(command: Sequence[str], *, text: str | None = None, place: Place | None = None) -> str:
    """Run `command` with `text` as its input, in the namespaces of `place` if given, and return its output.

    Errors: :class:`ProgramError` when it cannot be run or fails.
    """
    pipe = subprocess.PIPE
    process: subprocess.Popen[bytes]
    try:
        if place is None:
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        else:
            process = spawn(command, place, keep_capabilities=True, stdin=pipe, stdout=pipe, stderr=pipe)
    except (OSError, subprocess.SubprocessError) as error:
        raise ProgramError(f"cannot run {command[0]}: {error}") from error
    output, errors = process.communicate(text.encode() if text is not None else None)
    if process.returncode != 0:
        said = errors.decode(errors="replace").strip().splitlines()
        detail = said[0] if said else f"exit status {process.returncode}"
        raise ProgramError(f"{' '.join(command[:3])}: {detail}")
    return output.decode(errors="replace")
