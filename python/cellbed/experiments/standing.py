"""A standing testbed in a background process: bring-up, state, logs and end."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from cellbed.experiments.listener import Listener
from cellbed.runformat.events import Journal, read_events
from cellbed.support.errors import CellbedError
from cellbed.support.extensions import entries
from cellbed.support.interruption import wait_with_handlers
from cellbed.support.near_names import did_you_mean
from cellbed.testbed.links.live import LiveError, connect, find, label, live, select_directions
from cellbed.testbed.machine.process import Place
from cellbed.testbed.machine.state import Record
from cellbed.testbed.programs.reach import ask, nodes_of
from cellbed_node import inputs

if TYPE_CHECKING:
    from cellbed.experiments.real_run import Options
    from cellbed.measure.packetlog.capture import Captured
    from cellbed.testbed.plan import Plan

LOG = "testbed.log"
"""File in the raw folder with the standard error of the background process."""
DOWN_PATIENCE_S = 30.0
"""Maximum time for the orderly end of a testbed, seconds; then it is killed."""


class UpError(CellbedError):
    """A testbed that did not come up. exit_code: exit code of the error."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def up(text: str, plan: Plan, options: Options, listener: Listener) -> Path:
    """Bring up a planned scenario in a background process, and return its folder when the schedule has started.

    options: `standing` is its name. The process outlives its caller and the terminal; Ctrl-C during the start ends it.
    Errors: :class:`CellbedError`; in this case nothing is left.
    """
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        _serve(text, plan, options, os.fdopen(writer, "wb", 0))
    os.close(writer)
    before = signal.getsignal(signal.SIGINT)
    interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        os.kill(process, signal.SIGTERM)

    signal.signal(signal.SIGINT, interrupt)
    try:
        with os.fdopen(reader, "rb", 0) as reports, wait_with_handlers() as wait:
            while wait(reports) and (line := reports.readline()):
                report = json.loads(line)
                match report["is"]:
                    case "phase":
                        listener.phase(report["text"])
                    case "note":
                        listener.note(report["text"])
                    case "up" if not interrupted:
                        return Path(report["text"])
                    case "error":
                        raise UpError(report["text"], report["exit_code"])
    finally:
        signal.signal(signal.SIGINT, before)
    os.waitpid(process, 0)
    if interrupted:
        raise KeyboardInterrupt
    raise UpError("the background process ended unexpectedly; clean up with: cellbed clean", 1)


class _Reports(Listener):
    """The listener of the background process. It reports to the starting command until the command ends."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe

    def send(self, what: str, text: str, **more: Any) -> None:
        if self._pipe.closed:
            return
        try:
            self._pipe.write(json.dumps({"is": what, "text": text, **more}).encode() + b"\n")
        except OSError:  # its terminal is closed
            self._pipe.close()

    def up(self, folder: Path) -> None:
        """Report that the testbed is up; from now on standard error is a file, and there are no further reports."""
        log = os.open(folder / "raw" / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        os.close(log)
        self.send("up", str(folder))
        self._pipe.close()

    def phase(self, text: str) -> None:
        self.send("phase", text)

    def note(self, text: str) -> None:
        self.send("note", text)


def _serve(text: str, plan: Plan, options: Options, pipe: IO[bytes]) -> NoReturn:
    """Run the background process."""
    from cellbed.experiments.real_run import run  # slow import, needed only by `up`

    status = 1
    reports = _Reports(pipe)
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        outcome = run(text, plan, replace(options, on_up=reports.up), reports)
        if outcome.error is not None:
            status = outcome.error.exit_code
            reports.send("error", str(outcome.error), exit_code=status)
            print(f"error: {outcome.error}", file=sys.stderr)
        else:
            status = 0
    except CellbedError as error:
        reports.send("error", str(error), exit_code=error.exit_code)
    except BaseException as error:
        traceback.print_exc()
        reports.send("error", f"the background process failed: {error!r}", exit_code=1)
    finally:
        sys.stderr.flush()
        # Do not exit like the forked command: its clean-up belongs to the parent.
        os._exit(status)


def take_down(record: Record, note: Callable[[str], None]) -> None:
    """End a standing testbed: in order, or else by force. Errors: :class:`LiveError` if `record` is no testbed."""
    if record.kind != "testbed":
        raise LiveError(
            f"{label(record)} is a {record.kind}, not a standing testbed: end it with Ctrl-C in its terminal"
        )
    try:
        descriptor = os.pidfd_open(record.process)
    except ProcessLookupError:
        descriptor = -1
    if descriptor >= 0:
        try:
            if not record.is_stale():  # else the id may belong to another process
                signal.pidfd_send_signal(descriptor, signal.SIGTERM)
                if not select.select([descriptor], [], [], DOWN_PATIENCE_S)[0]:
                    note(f"{label(record)} did not end within {DOWN_PATIENCE_S:g} s and is killed")
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    select.select([descriptor], [], [])
        finally:
            os.close(descriptor)
    if record.is_registered():
        from cellbed.testbed.clean import clean

        for line in clean():
            note(line)


def status(record: Record) -> dict[str, Any]:
    """Return the state, nodes, programs, and latest faults and changes of a live run or testbed, from its events."""
    folder = Path(record.folder or "")
    events = read_events(folder)
    programs: dict[str, dict[str, Any]] = {}
    state, started_ns = "starting", None
    for event in events:
        what = event.get("what", "")
        match event["event"]:
            case "program started":
                programs[what] = {"name": what, "node": event.get("node"), "state": "started", "pid": event.get("pid")}
            case "program ready":
                programs.setdefault(what, {"name": what})["state"] = "ready"
            case "program done":
                programs.setdefault(what, {"name": what})["state"] = "done"
            case "program ended":
                programs.setdefault(what, {"name": what}).update(state="ended", pid=None, status=event.get("status"))
            case "schedule started":
                state, started_ns = ("up" if record.kind == "testbed" else "running"), event["time_ns"]
    since_s = None if started_ns is None else round((time.monotonic_ns() - started_ns) / 1e9, 3)
    return {
        "name": label(record),
        "kind": record.kind,
        "state": state,
        "since_s": since_s,
        "process": record.process,
        "folder": record.folder,
        "nodes": list(nodes_of(record)),
        "programs": list(programs.values()),
        "events": [event for event in events if not event["event"].startswith("program")],
    }


def testbeds() -> list[Record]:
    """Return the live runs and testbeds, oldest first."""
    return [record for record in live() if record.kind in ("run", "testbed")]


def find_testbed(name: str | None, *, standing: bool = False) -> Record:
    """Return the live testbed or run called `name`, or the only one for ``None``. standing: ignore runs, unless named.

    Errors: :class:`LiveError` with the nearest name.
    """
    if name is not None:
        return find(name)
    there = [record for record in testbeds() if record.kind == "testbed" or not standing]
    if not there:
        raise LiveError("no testbed is up: bring one up with `cellbed up FILE`")
    if len(there) > 1:
        raise LiveError(f"several testbeds are up: name one of {', '.join(map(label, there))}")
    return there[0]


class MoveError(CellbedError):
    """A service that did not move: it stays in place."""

    exit_code = 1


def move(record: Record, app: str, to: str, strategy: str | None) -> dict[str, Any]:
    """Move a service of a live run or testbed to another node, and return the account of its migration.

    strategy: ``None`` for the scenario's. Errors: :class:`LiveError`.
    """
    if strategy is not None and strategy not in (names := entries("strategies")):
        hint = did_you_mean(strategy, names)
        raise LiveError(f"there is no strategy '{strategy}': {hint}write one of {', '.join(names)}")
    return ask(record, "migrate", {"app": app, "to": to} | ({"strategy": strategy} if strategy is not None else {}))


def check_moved(app: str, account: Mapping[str, Any]) -> None:
    """Raise :class:`MoveError` if the migration of an application has failed."""
    if account.get("failed") is not None:
        raise MoveError(f"{app} did not move: {account['failed']}")


def tap_link(record: Record, link: str, path: Path, most: int) -> Captured:
    """Capture the packets of a link, or of one direction, into a pcapng file, until the testbed ends or Ctrl-C.

    path: ``-`` is standard output. most: maximum bytes kept per packet. This process must have one thread; it moves
    into a node's network namespace.
    Errors: :class:`LiveError` for an unknown link; ``OSError``.
    """
    nodes = nodes_of(record)
    with connect(record) as control:
        directions = select_directions(control.describe(), link)
    ends = [end for each in directions for end in (each["from"], each["to"]) if end in nodes]
    if not ends:
        raise LiveError(f"{label(record)} has no node at the end of {link}: name the link of a node")
    names = {end: [each["name"] for each in directions if each[end] == ends[0]] for end in ("from", "to")}
    network = nodes[ends[0]]
    # A process with several threads, such as NumPy's, cannot enter the namespaces of an ordinary user.
    Place(**network["network"]).enter()
    from cellbed.measure.packetlog.capture import Tap, capture

    tap = Tap(network["device"], *(next(iter(names[end]), None) for end in names))
    Journal.reopen(Path(record.folder or "")).note("tap", link, file=str(path))
    ended = os.pidfd_open(record.process)
    with os.fdopen(os.dup(1), "wb") if str(path) == "-" else path.open("wb") as file:
        return capture(tap, file, ended, most)


_SUFFIXES = (".log", ".out", ".err")
_PAUSE_S = 0.1


def print_logs(record: Record, app: str, output: IO[str], *, follow: bool = False) -> None:
    """Print the logs whose names begin with `app`, line by line, with program names if there are several.

    follow: also print new lines, until the end of the run or testbed, or Ctrl-C. Errors: :class:`LiveError` with the
    nearest name.
    """
    raw = Path(record.folder or "", "raw")
    if not _logs(raw, app):
        programs = sorted({path.stem for path in _logs(raw, None)})
        names = [*programs, *{program.split(".")[0] for program in programs}]
        listed = ", ".join(programs[:10]) + (" …" if len(programs) > 10 else "")
        raise LiveError(f"no program '{app}' has a log: {did_you_mean(app, names)}programs: {listed or 'none'}")
    read: dict[Path, int] = {}
    while True:
        ended = record.is_stale() or not record.is_registered()
        logs = _logs(raw, app)
        for path in logs:
            with inputs.open_file(path) as file:
                file.seek(read.get(path, 0))
                content = file.read()
            # Print the last line when it is complete, or at the end.
            whole = content if not follow or ended else content[: content.rfind(b"\n") + 1]
            read[path] = read.get(path, 0) + len(whole)
            for line in whole.decode(errors="replace").splitlines():
                output.write(f"{path.stem} | {line}\n" if len(logs) > 1 else f"{line}\n")
        output.flush()
        if not follow or ended:
            return
        time.sleep(_PAUSE_S)


def _logs(raw: Path, app: str | None) -> list[Path]:
    """Return the logs of the program `app`, or of all programs of the application `app`, or all logs."""
    found = sorted(path for path in raw.glob("*.*") if path.suffix in _SUFFIXES and path.name.count(".") > 1)
    return [path for path in found if app is None or path.stem == app or path.name.startswith(f"{app}.")]
