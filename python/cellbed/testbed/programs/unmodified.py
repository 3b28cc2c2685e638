"""Unmodified programs on nodes of any kind: started, awaited, restarted and ended, with their output and files kept.

They are started through the node's back end, and watched from outside of the node: whether they are ready follows from
the node's table of sockets, from their output, from a file, or from the reply to an HTTP request. Nothing connects to a
port to find out whether it is open, since a server may serve a single connection.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from cellbed.support import inputs
from cellbed.testbed.machine.process import ProgramError, Running, end, kill, last_line, outlived, run
from cellbed.testbed.nodes.backend import Backend

Restart = Literal["never", "on-failure", "always"]

OUTPUT_LIMIT = 64 << 20
"""Bytes of each output of a program that are kept; what follows is cut off ten times a second."""
FIRST_CHECK_NS, LAST_CHECK_NS = 10_000_000, 250_000_000
"""Time between two checks whether a program is ready: first, and at most."""
FIRST_PAUSE_NS, LAST_PAUSE_NS = 100_000_000, 5_000_000_000
"""Time before a restart: first, then twice as long each time, up to the last."""
FOREVER_NS = 1 << 62
_TABLES = ("tcp", "tcp6", "udp", "udp6")
_FETCH = """
import sys, time, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
while True:
    try:
        if opener.open(sys.argv[1], timeout=5).status == 200:
            sys.exit(0)
    except OSError:
        pass
    time.sleep(0.05)
"""


@dataclass(frozen=True, slots=True)
class Ready:
    """When a program is ready: it listens on a TCP or UDP port, one of its outputs has a line that contains a match of
    a regular expression, a file exists on the node, a GET request has the reply 200, or a command on the node ends with
    status 0; with none of these at once."""

    port: int | None = None
    line: str | None = None
    file: str | None = None
    http: str | None = None
    command: tuple[str, ...] = ()
    timeout_ns: int = 30_000_000_000

    def __str__(self) -> str:
        """Return the condition in words."""
        if self.port is not None:
            return f"it did not listen on port {self.port}"
        if self.line is not None:
            return f"it printed no line with '{self.line}'"
        if self.file is not None:
            return f"there was no file '{self.file}'"
        if self.http is not None:
            return f"{self.http} did not reply with 200"
        return f"'{shlex.join(self.command)}' did not end with status 0"


@dataclass(frozen=True, slots=True)
class Stop:
    """How a program is ended: by a signal, and after the grace time (ns) by SIGKILL."""

    signal: int = signal.SIGTERM
    grace_ns: int = 5_000_000_000


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run on a node as it is.

    name: begins the names of its files. command: with its arguments; empty for that of the node's image. stage: it
    starts when all programs of lower stages are ready. load: it runs from the start to the end of a load, and may end
    earlier, with one of the statuses in `status`; others run as long as the testbed. vital: the run fails when it ends.
    environment: variables beyond those of the node; folder: working directory on the node. copy_in: (file or folder of
    this machine, path on the node), before it starts; copy_out: paths on the node, afterwards, into the folder `files`.
    stop: how it is ended; ``None`` for a user who expects it to end on its own.
    """

    name: str
    node: str
    command: tuple[str, ...]
    stage: int = 0
    load: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    folder: str | None = None
    ready: Ready = Ready()
    copy_in: tuple[tuple[Path, str], ...] = ()
    copy_out: tuple[str, ...] = ()
    files: Path = Path()
    restart: Restart = "never"
    status: tuple[int, ...] = (0,)
    vital: bool = False
    stop: Stop | None = None


class UnmodifiedProgram:
    """A command on its node. It reports as cellbed's own programs do (``supervise.Program``).

    events: ``ready``; ``done`` of a load that has ended; ``died`` (``at_ns``, ``what``) of a server that ended and is
    not started again. ended: it failed, and :meth:`failure` is why. restarts: how often it was started again. notes:
    what a reader of the run must know, in sentences.
    """

    def __init__(
        self,
        command: Command,
        node: Backend,
        raw: Path,
        note: Callable[..., None] = lambda _, **__: None,
        count: Callable[[int], object] = lambda _: None,
    ) -> None:
        """raw: folder for its output. note: called with each change of its state, in words and further facts. count:
        called with a process before its exit status is taken, or before it is killed."""
        self.command, self._node, self._note, self._count = command, node, note, count
        self.name, self.node = command.name, command.node
        self.log, self._out = raw / f"{command.name}.err", raw / f"{command.name}.out"
        self.process: Running | None = None
        self.events: list[dict[str, Any]] = []
        self.ended = False
        self.restarts = 0
        self.notes: list[str] = []
        self._why = ""
        self._begin_ns: int | None = None
        self._end_ns: int | None = None
        self._again_ns: int | None = None
        self._deadline_ns = 0
        self._kill_ns = FOREVER_NS
        self._check_ns = 0
        self._check_pause_ns = FIRST_CHECK_NS
        self._ready = self._stopping = self._cut = self._taken = self._overran = False
        self._load_s = 0.0
        self._check: Running | None = None
        self._read = {self.log: 0, self._out: 0}

    def start(self) -> None:
        """Copy its files to the node, and start it unless it is a load. Errors: :class:`ProgramError`."""
        for source, target in self.command.copy_in:
            try:
                if not source.is_dir():
                    inputs.checked(source)
                self._node.copy_in(source, target)
            except OSError as error:
                raise ProgramError(f"{self.name}: cannot copy {source} to {target} on {self.node}: {error}") from error
        if self.command.load:
            self._be_ready()
            return
        port = self.command.ready.port
        if port is not None and port in self._listening():
            raise ProgramError(f"{self.name}: port {port} of {self.node} is in use already: choose another one")
        now = time.monotonic_ns()
        self._deadline_ns = now + self.command.ready.timeout_ns
        self._spawn()

    @property
    def is_ready(self) -> bool:
        """Return whether it has been ready since it was last started."""
        return self._ready

    def say(self, line: dict[str, Any]) -> None:
        """The times of its load: ``t0_ns``, ``end_ns`` and ``drain_ns``, monotonic; it ends with the drain."""
        self._begin_ns, self._end_ns = line["t0_ns"], line["end_ns"] + line.get("drain_ns", 0)
        self._load_s = (self._end_ns - self._begin_ns) / 1e9

    def step(self, now_ns: int) -> int:
        """Do what is due; returns when to call again at the latest, monotonic ns."""
        if self._taken:
            return FOREVER_NS
        if not self.ended:
            self._step(now_ns)
        end_ns = None if self._stopping or self.process is None else self._end_ns
        due = [each for each in (self._begin_ns, self._again_ns, end_ns, self._kill_ns) if each]
        if self.process is not None and not self._ready:
            due.append(self._check_ns)
        return max(now_ns, min(due, default=FOREVER_NS))

    def _step(self, now_ns: int) -> None:
        if self._end_ns is not None and now_ns >= self._end_ns and not self._stopping:
            self._overran = self.process is not None
            self.hang_up()
            if self.process is None:
                self._done()
        if self.process is None:
            due = self._begin_ns if self._again_ns is None else self._again_ns
            if due is not None and now_ns >= due:
                self._begin_ns = self._again_ns = None
                with contextlib.suppress(ProgramError):  # it has ended then
                    self._spawn()
            return
        self._bound_output()
        status = self._poll(self.process)
        if status is not None:
            self._has_ended(status, now_ns)
        elif now_ns >= self._kill_ns:
            self._kill()
        elif not self._ready:
            self._await_ready(now_ns)

    def take_out(self) -> None:
        """Kill it for a fault: its end is neither a failure nor a reason to start it again."""
        self._taken = True
        self._again_ns = None
        if self._check is not None:
            end(self._check)
            self._check = None
        if self.process is not None:
            self._count(self.process.pid)
            kill(self.process)
            self._note("program ended", status=self.process.poll(), by="fault")
            self.process = None
            if self.command.load and self.command.restart == "never":
                self._done()

    def put_back(self) -> None:
        """End what :meth:`take_out` has begun: a server starts again, a load if it has a policy for that.

        Errors: :class:`ProgramError`.
        """
        self._taken = False
        if self.ended or self._stopping or self.process is not None:
            return
        if self.command.load:
            if self._begin_ns is None and self.command.restart != "never":
                self._again_ns = time.monotonic_ns()
            return
        self._ready = False
        self._read = {path: path.stat().st_size if path.exists() else 0 for path in self._read}
        self._check_ns, self._check_pause_ns = 0, FIRST_CHECK_NS
        self._deadline_ns = time.monotonic_ns() + self.command.ready.timeout_ns
        self._spawn()

    def has_died(self) -> bool:
        """Return whether it ended with an unexpected status and is not started again."""
        return any(event["event"] == "died" for event in self.events)

    def failure(self) -> ProgramError:
        """Return the failure, with the last line of its output."""
        paths = [path for path in (self.log, self._out) if path.exists()]
        said = next(filter(None, (last_line(_tail(path)) for path in paths)), None)
        where = next((path for path in paths if path.stat().st_size), self.log)
        detail = f": {said}" if said else ", without any output"
        return ProgramError(f"{self.name} on {self.node} {self._why}{detail}\n  its output: {where}")

    def hang_up(self) -> None:
        """Ask it to end, once: programs take a second signal for impatience."""
        if self._stopping:
            return
        self._stopping = True
        self._again_ns = self._begin_ns = None
        if self.process is not None and self._poll(self.process) is None:
            stop = self.command.stop or Stop()
            self._kill_ns = time.monotonic_ns() + stop.grace_ns
            with contextlib.suppress(OSError):
                self.process.send_signal(stop.signal)

    def _kill(self) -> None:
        """Kill it after its grace time."""
        assert self.process is not None
        stop = self.command.stop or Stop()
        self._kill_ns, self._overran = FOREVER_NS, False
        self._count(self.process.pid)
        kill(self.process)
        self.notes.append(
            f"{self.name} was killed, since it had not ended {stop.grace_ns / 1e9:g} s after "
            f"{signal.Signals(stop.signal).name}: what it had not written is lost; it has more time with 'stop', such "
            'as stop = { grace = "30 s" }'
        )

    def _poll(self, process: Running) -> int | None:
        """Return the exit status of its process; what that has used is counted before the status is taken."""
        with contextlib.suppress(ChildProcessError):  # it was taken: `terminate` and `wait` do that, too
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                self._count(process.pid)
        return process.poll()

    def close(self) -> None:
        """Wait for its end after :meth:`hang_up`, kill it after its grace time, and copy its files to this machine."""
        if self._check is not None:
            end(self._check)
        if self.process is not None:
            try:
                self.process.wait(max(0.0, (self._kill_ns - time.monotonic_ns()) / 1e9))
            except subprocess.TimeoutExpired:
                self._kill()
            else:
                kill(self.process)  # the rest of its session
                self._note_overrun(self.process.poll())
            self._bound_output()
        for source in self.command.copy_out:
            parts = [part for part in PurePosixPath(source).parts if part not in ("/", "..")]
            target = self.command.files.joinpath(*parts)
            try:
                if target.resolve() != self.command.files.resolve().joinpath(*parts):
                    raise OSError("a link that was copied before is in its place")
                target.parent.mkdir(parents=True, exist_ok=True)
                self._node.copy_out(source, target)
            except OSError as error:
                self.notes.append(f"{self.name}: cannot copy {source} from {self.node}: {error.strerror or error}")

    def _spawn(self) -> None:
        with self._out.open("ab") as output, self.log.open("ab") as errors:
            try:
                self.process = self._node.spawn(
                    self.command.command,
                    environment=self.command.environment,
                    folder=self.command.folder,
                    stdout=output,
                    stderr=errors,
                )
            except (OSError, subprocess.SubprocessError) as error:
                self._fail(f"cannot be started: {getattr(error, 'strerror', None) or error}")
                raise ProgramError(
                    f"cannot start {self.name} on {self.node}: {getattr(error, 'strerror', None) or error}: "
                    f"'{' '.join(self.command.command[:1])}'"
                ) from error
        self._note("program started", pid=self.process.pid, log=self.log.name)

    def _fail(self, why: str) -> None:
        self._why, self.ended = why, True

    def _be_ready(self) -> None:
        self._ready = True
        self.events.append({"event": "ready"})
        if not self.command.load:
            self._note("program ready")

    def _has_ended(self, status: int, now_ns: int) -> None:
        assert self.process is not None
        if self.command.load and not self._stopping and outlived(self.process.pid):
            self.notes.append(
                f"{self.name} ended while processes that it had started still ran, and they were killed; it must stay "
                "in the foreground"
            )
        kill(self.process)  # the rest of its session
        self.process = None
        self._note_overrun(status)
        self._note("program ended", status=status)
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        restart = self.command.restart
        again = restart == "always" or (restart == "on-failure" and status not in self.command.status)
        if self._stopping:
            self._done()
        elif not self._ready and (not again or now_ns >= self._deadline_ns):
            hint = "; it must stay in the foreground" if status == 0 else ""
            self._fail(f"{how} before it was ready{hint}")
        elif again:
            self.restarts += 1
            pause = min(FIRST_PAUSE_NS << min(self.restarts - 1, 16), LAST_PAUSE_NS)
            self._again_ns = now_ns + pause
        elif self.command.load and status in self.command.status:
            self._done()
        elif self.command.load or self.command.vital:
            self._fail(how)
        elif status in self.command.status:
            self.notes.append(f"{self.name} {how} before the run did")
        else:
            self._why = how
            self.events.append({"event": "died", "at_ns": now_ns, "what": f"{self.name} {how}"})

    def _note_overrun(self, status: int | None) -> None:
        """Note the end of a load that cellbed has ended, unless it ended in order then."""
        if self._overran and self.command.stop is None and status not in self.command.status:
            self.notes.append(
                f"{self.name} still ran after {self._load_s:g} s, the end of its load, and was ended: what it had not "
                "written is lost; it has more time with 'drain', such as drain = \"5 s\""
            )

    def _done(self) -> None:
        if self.command.load and not any(event["event"] == "done" for event in self.events):
            self.events.append({"event": "done"})
            self._note("program done")

    def _await_ready(self, now_ns: int) -> None:
        if now_ns < self._check_ns:
            return
        self._check_pause_ns = min(self._check_pause_ns * 5 // 4, LAST_CHECK_NS)
        self._check_ns = now_ns + self._check_pause_ns
        if self._is_ready():
            self._be_ready()
        elif now_ns >= self._deadline_ns:
            timeout = self.command.ready.timeout_ns / 1e9
            self._fail(f"was not ready within {timeout:g} s, since {self.command.ready}")

    def _is_ready(self) -> bool:
        ready = self.command.ready
        if ready.port is not None:
            return ready.port in self._listening()
        if ready.line is not None:
            return any(self._has_line(path, ready.line.encode()) for path in self._read)
        if ready.file is not None:
            return self._succeeds(lambda: self._node.spawn(["test", "-e", str(ready.file)], folder=self.command.folder))
        if ready.http is not None:
            return self._succeeds(lambda: self._fetch(str(ready.http)))
        if ready.command:
            return self._succeeds(self._ask)
        return True

    def _succeeds(self, begin: Callable[[], Running]) -> bool:
        """Return whether a check that runs as a process has succeeded; begins the next one if there is none."""
        if self._check is None:
            try:
                self._check = begin()
            except (OSError, subprocess.SubprocessError) as error:
                self._fail(f"cannot be watched: {error}")
                return False
        status = self._check.poll()
        if status is not None:
            self._check = None
        return status == 0

    def _ask(self) -> Running:
        null = subprocess.DEVNULL
        asked, environment = self.command.ready.command, self.command.environment
        return self._node.spawn(asked, environment=environment, folder=self.command.folder, stdout=null, stderr=null)

    def _fetch(self, url: str) -> Running:
        null = subprocess.DEVNULL
        if self._node.place is None:
            return self._node.spawn(["python3", "-I", "-c", _FETCH, url], stdout=null, stderr=null)
        from cellbed.testbed.machine.process import spawn

        return spawn([sys.executable, "-I", "-c", _FETCH, url], self._node.place, stdout=null, stderr=null)

    def _has_line(self, path: Path, pattern: bytes) -> bool:
        with inputs.opened(path) as file:
            file.seek(self._read[path])
            whole, _, _ = (content := file.read()).rpartition(b"\n")
        if not content.endswith(b"\n") and re.search(pattern, content[len(whole) :]):
            return True  # a prompt without a line feed
        if re.search(pattern, whole, re.MULTILINE):
            return True
        self._read[path] += len(whole)
        return False

    def _listening(self) -> set[int]:
        """Return the ports of the node at which some program listens."""
        names = [f"/proc/net/{table}" for table in _TABLES]
        place = self._node.place
        if place is not None:
            text = run(["cat", *names], place=place)
        else:
            check = self._node.spawn(["cat", *names], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            assert check.stdout is not None
            text = check.stdout.read().decode(errors="replace")
            check.wait()
        return _ports(text)

    def _bound_output(self) -> None:
        for path in self._read:
            with contextlib.suppress(OSError):
                if path.stat().st_size > OUTPUT_LIMIT:
                    os.truncate(path, OUTPUT_LIMIT)  # the program appends
                    if not self._cut:
                        self._cut = True
                        self.notes.append(
                            f"{self.name}: of its output only the first {OUTPUT_LIMIT >> 20} MiB are kept"
                        )


def _ports(text: str) -> set[int]:
    """Local ports of sockets that listen (TCP, state 0A) or have no peer (UDP, state 07) in ``/proc/net/tcp`` and the
    like."""
    found = set()
    for line in text.splitlines():
        match line.split():
            case [_, local, remote, ("0A" | "07"), *_] if remote.endswith(":0000"):
                found.add(int(local.rpartition(":")[2], 16))
    return found


def _tail(path: Path) -> bytes:
    with inputs.opened(path) as file:
        file.seek(max(0, path.stat().st_size - 4096))
        return file.read()
