"""Links of live runs, testbeds and shells: their control sockets, state, and manual changes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.support.errors import CellbedError
from cellbed.support.near_names import did_you_mean
from cellbed.support.stages import difference
from cellbed.testbed.machine.state import Record, live_folder, records

if TYPE_CHECKING:
    from cellbed.scenario.settings import Settings

LONGEST = 107
"""Maximum length of a Unix socket's path, bytes (unix(7): 108 with the final null)."""
TIMEOUT_S = 10.0


class ControlError(CellbedError):
    """A live emulator that cannot be reached, or that refuses a command."""

    exit_code = 1


def control_path(record: Record) -> Path:
    """Choose the control socket of a run's or shell's emulator: pass the path as ``control`` in the emulator's
    configuration.

    ``cellbed link`` finds the path in the record. Clean-up of the record removes the socket, too.
    The socket is in ``$XDG_RUNTIME_DIR/cellbed``. If this folder is missing, or the path would be too long, the socket
    is next to the records or in the user's own folder for temporary files.
    Errors: :class:`ControlError` if no folder can be used.
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
    """Make `folder` if it is missing; return whether it belongs to this user, who may write to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and os.access(folder, os.W_OK | os.X_OK)


class Control:
    """A connection to a live emulator. Use as a context manager.

    Every call may raise :class:`ControlError`.
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
        """Return the directions with name, ends and current stages."""
        directions: list[dict[str, Any]] = self._ask({"do": "describe"}, "description")["directions"]
        return directions

    def status(self) -> dict[str, Any]:
        """Return the counters of each direction."""
        return self._ask({"do": "status"}, "status")

    def change(self, direction: str, stage: int, to: dict[str, Any]) -> None:
        """Change a stage of a direction from now on."""
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


@dataclass(frozen=True, slots=True)
class Changed:
    """A completed change. before, after: descriptions."""

    direction: str
    before: str
    after: str


class LiveError(CellbedError):
    """A missing run or link, or a change that the link does not allow."""


def live() -> list[Record]:
    """Return live runs and shells of this user whose links can be seen and changed, oldest first."""
    return [record for record in records() if record.control is not None and not record.is_stale()]


def find(name: str | None) -> Record:
    """Return the live run, testbed or shell with the name, identifier or folder `name`; for ``None``, the only one.

    A unique prefix of a name is enough. Errors: :class:`LiveError`.
    """
    there = live()
    if not there:
        how = "start a run with `cellbed run`, a testbed with `cellbed up`, or a shell with `cellbed shell`"
        raise LiveError(f"nothing is running: {how}")
    listed = ", ".join(map(label, there))
    if name is None:
        if len(there) > 1:
            raise LiveError(f"several runs, testbeds or shells are live: name one of {listed}")
        return there[0]
    exact = [record for record in there if name in _names(record)]
    begun = [record for record in there if any(one.startswith(name) for one in _names(record))] if name else []
    found = exact or begun
    if len(found) > 1:
        raise LiveError(f"'{name}' may be {' or '.join(map(label, found))}: write a longer name")
    if not found:
        hint = did_you_mean(name, [one for record in there for one in _names(record)])
        raise LiveError(f"no live run, testbed or shell is called '{name}': {hint}live: {listed}")
    return found[0]


def find_link(names: Sequence[str]) -> tuple[Record, str | None]:
    """Return the live run, testbed or shell and the link that up to two names denote. The run comes first; either name
    may be omitted.

    Errors: :class:`LiveError`.
    """
    if len(names) > 2:
        raise LiveError(f"'{names[2]}' is one name too many: write [RUN] [LINK] KEY=VALUE")
    if len(names) == 2:
        return find(names[0]), names[1]
    if not names:
        return find(None), None
    if any(names[0] in _names(record) for record in live()):
        return find(names[0]), None
    there = live()
    having = [record for record in there if _has(record, names[0])] if len(there) > 1 else []
    if len(having) > 1:
        raise LiveError(f"several runs have a link '{names[0]}': name one of {', '.join(map(label, having))}")
    return having[0] if having else find(None), names[0]


def _has(record: Record, link: str) -> bool:
    """Return whether a live run, testbed or shell has a link or direction of this name."""
    try:
        with connect(record) as control:
            return any(each["name"] == link or each["name"].startswith(f"{link}.") for each in control.describe())
    except ControlError:  # the run is about to begin, or has just ended
        return False


def label(record: Record) -> str:
    """Return the name of a run in commands: the testbed's name, else the folder's name, else the identifier."""
    return record.name or (Path(record.folder).name if record.folder else record.identifier)


def connect(record: Record) -> Control:
    """Return the emulator of a live run, testbed or shell. Errors: :class:`ControlError`."""
    assert record.control is not None
    return Control(Path(record.control))


def select_directions(directions: Sequence[dict[str, Any]], link: str | None) -> list[dict[str, Any]]:
    """Return the directions that `link` denotes: one by its full name, both by the link's name, all for ``None``.

    directions: in the emulator's description. Errors: :class:`LiveError`.
    """
    if link is None:
        if len(directions) > 2:
            raise LiveError(f"there are several links: name one of {', '.join(_link_names(directions))}")
        return list(directions)
    found = [each for each in directions if link == each["name"] or each["name"].startswith(f"{link}.")]
    if not found:
        names = [each["name"] for each in directions]
        hint = did_you_mean(link, [*names, *_link_names(directions)])
        raise LiveError(f"no link is called '{link}': {hint}links: {', '.join(names)}")
    return found


def change(record: Record, link: str | None, settings: Settings) -> list[Changed]:
    """Change the directions that `link` denotes from now on; return the completed changes.

    The emulator of a run records every change in the run's folder. Errors: :class:`LiveError` before any change;
    :class:`ControlError`, with the changes made so far, if the emulator refuses or cannot record a
    change.
    """
    from cellbed.testbed.links.stages import changed  # slow: by Pydantic

    with connect(record) as control:
        wanted = [
            (direction["name"], index, direction["stages"][index], to)
            for direction in select_directions(control.describe(), link)
            for index, to in changed(direction["stages"], settings, str(direction["name"]))
        ]
        done: list[Changed] = []
        for name, index, before, after in wanted:
            if before == after:
                continue
            try:
                control.change(name, index, after)
            except ControlError as error:
                until = "; ".join(f"{each.direction} is {each.after} already" for each in done)
                raise ControlError(f"{name}: {error}" + (f"; {until}" if until else "")) from error
            done.append(Changed(name, *difference(before, after)))
    return done


def _names(record: Record) -> list[str]:
    named = [*([record.name] if record.name is not None else []), record.identifier]
    if record.folder is None:
        return named
    folder = Path(record.folder)
    written = [record.folder, folder.name, f"{folder.name}/"]
    with contextlib.suppress(ValueError):
        relative = str(folder.relative_to(Path.cwd()))
        written += [relative, f"{relative}/"]
    return [*named, *written]


def _link_names(directions: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(each["name"]).rpartition(".")[0] or str(each["name"]) for each in directions))
