"""The checked machine (files below a root folder, programs, user), and the result of a check."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cellbed.support.bounded import run_bounded
from cellbed.testbed.machine.cgroups import parse_mounts
from cellbed.testbed.machine.privilege import user_name

Status = Literal["ok", "warn", "missing"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    status: ``"ok"``; ``"warn"``, a feature is limited or absent; ``"missing"``, `cellbed run` fails
    without it. found: the state, in words. remedy: empty if none is needed.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""


def can_run(checks: Iterable[Check]) -> bool:
    """Return whether `cellbed run` would work."""
    return all(check.status != "missing" for check in checks)


@dataclass(frozen=True)
class Machine:
    """A machine, and the user for whom it is checked.

    root: the folder with its file system. user: numeric identifier. environment: variables of the user's processes.
    """

    root: Path = Path("/")
    user: int = field(default_factory=os.geteuid)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def user_name(self) -> str:
        """The user's login name; the number without one."""
        return user_name(self.user)

    @property
    def grant_command(self) -> str:
        """The command line that grants this user the requirements of cellbed."""
        return f"sudo {executable()} grant {self.user_name}"

    def path(self, absolute: str) -> Path:
        """Return the location of an absolute path below the root folder."""
        return self.root / absolute.lstrip("/")

    def read(self, absolute: str) -> str | None:
        """Return the text of a file, stripped, or ``None`` if it cannot be read."""
        try:
            return self.path(absolute).read_text(errors="replace", encoding="utf-8").strip()
        except OSError:
            return None

    def find(self, program: str) -> str | None:
        """Return the path of a program, also from outside ordinary users' search path."""
        folders = [*self.environment.get("PATH", os.defpath).split(":"), "/usr/local/sbin", "/usr/sbin", "/sbin"]
        if self.root != Path("/"):
            folders = [str(self.path(folder)) for folder in folders if folder]
        return shutil.which(program, path=":".join(folders))

    def mounts(self) -> list[tuple[str, str, list[str]]]:
        """Return the mounted file systems: (type, mount point, options of the file system)."""
        return list(parse_mounts(self.read("/proc/self/mountinfo") or ""))


def executable() -> str:
    """Return the absolute path of this program for sudo, whose search path differs."""
    if Path(sys.argv[0]).name == "cellbed":
        return str(Path(sys.argv[0]).absolute())
    beside = Path(sys.executable).with_name("cellbed")
    return str(beside) if beside.exists() else (shutil.which("cellbed") or "cellbed")


def output_of(command: Sequence[str]) -> tuple[int, str]:
    """Return the exit status of a command, and its output on both streams; 127 if it does not exist."""
    try:
        outcome = run_bounded(command, timeout_s=10)
    except FileNotFoundError:
        return 127, f"{command[0]} is not installed"
    except (OSError, subprocess.TimeoutExpired) as error:
        return 126, str(error)
    return outcome.returncode, (outcome.stdout + outcome.stderr).decode(errors="replace").strip()
