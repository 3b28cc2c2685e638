"""The control socket of a live run, testbed or shell: its path, and what can be asked of the emulator behind it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import tempfile
from pathlib import Path
from typing import Any

from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.state import Record, live_folder

LONGEST = 107
"""Bytes of the path of a Unix socket (unix(7): 108 with the final null)."""
TIMEOUT_S = 10.0


class ControlError(CellbedError):
    """A live emulator that cannot be reached, or that refuses what is asked."""

    exit_code = 1


def control_path(record: Record) -> Path:
    """Where the emulator of a run or shell is to listen: pass it as ``control`` in the emulator's configuration.

    The path is noted in the record, by which ``cellbed link`` finds it; with the record what is left there goes too.
    It lies in ``$XDG_RUNTIME_DIR/cellbed``; where there is none, or the path would be too long for a socket, beside the
    records or in a folder of the user's own for temporary files.
    Errors: :class:`ControlError` where no folder can be used.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    folders = [Path(runtime) / "cellbed"] if runtime.startswith("/") else []
    folders += [live_folder().absolute(), Path(tempfile.gettempdir()).absolute() / f"cellbed-{os.getuid()}"]
    for folder in folders:
        path = folder / f"{record.identifier}.sock"
        if len(os.fsencode(path)) <= LONGEST and _is_ours(folder):
            record.note_control(path)
            return path
    tried = ", ".join(map(str, folders))
    raise ControlError(f"no folder for the control socket: tried {tried}; set XDG_RUNTIME_DIR to a folder that you own")


def _is_ours(folder: Path) -> bool:
    """Make `folder`, unless it is there; whether it belongs to this user, who may write to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and os.access(folder, os.W_OK | os.X_OK)


class Control:
    """A connection to a live emulator. Use as a context manager.

    Errors, of every call: :class:`ControlError`.
    """

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(TIMEOUT_S)
        self._buffer = b""
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise ControlError(f"{path}: the emulator cannot be reached: {error.strerror or error}") from error

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def describe(self) -> list[dict[str, Any]]:
        """Return the directions with name, ends and stages as they are now."""
        directions: list[dict[str, Any]] = self._ask({"do": "describe"}, "description")["directions"]
        return directions

    def status(self) -> dict[str, Any]:
        """Counters of each direction."""
        return self._ask({"do": "status"}, "status")

    def change(self, direction: str, stage: int, to: dict[str, Any]) -> None:
        """Let a stage of a direction do something else from now on."""
        answer = self._ask({"do": "change", "direction": direction, "stage": stage, "to": to}, "changed")
        if problem := answer.get("unrecorded"):
            raise ControlError(f"the change is in force, but the report will lack it: {problem}")

    def _ask(self, command: dict[str, Any], answer: str) -> dict[str, Any]:
        try:
            self._socket.sendall(json.dumps(command).encode() + b"\n")
            while b"\n" not in self._buffer:
                chunk = self._socket.recv(1 << 20)
                if not chunk:
                    raise ControlError("the emulator has ended")
                self._buffer += chunk
        except OSError as error:
            raise ControlError(f"the emulator does not answer: {error.strerror or error}") from error
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            event = json.loads(line)
        except ValueError as error:
            raise ControlError(f"the emulator's answer cannot be read: {line[:80]!r}") from error
        if event.get("event") == "refused":
            raise ControlError(f"the emulator refused the command: {event.get('message')}")
        if event.get("event") != answer:
            raise ControlError(f"the emulator answered {event.get('event')!r} where {answer!r} was expected")
        found: dict[str, Any] = event
        return found
