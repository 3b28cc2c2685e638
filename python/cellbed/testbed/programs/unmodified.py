"""Unmodified programs on nodes of any kind: start, readiness, restarts and end, with their output and files.

The node's back end starts programs. Readiness is observed from outside: in the node's socket table, in the program's
output, by a file, an HTTP request or a command. No probe connects to a port, since a server may accept only a single
connection.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import urlsplit

from cellbed.support.errors import printable
from cellbed.testbed.machine.process import ProgramError, end, outlives
from cellbed.testbed.nodes.backend import Backend
from cellbed_node import inputs
from cellbed_node.processes import Running, kill, last_line, time_limit

_log = logging.getLogger(__name__)

Address = IPv4Address | IPv6Address
Restart = Literal["never", "on-failure", "always"]

MATCHING_S = 10.0
"""Maximum processor time of a search in new output, seconds."""
OUTPUT_LIMIT = 64 << 20
"""Maximum bytes of each output of a program; longer output is truncated ten times a second."""
FIRST_CHECK_NS, LAST_CHECK_NS = 10_000_000, 250_000_000
"""First and maximum interval between checks of readiness, ns."""
FIRST_PAUSE_NS, LAST_PAUSE_NS = 100_000_000, 5_000_000_000
"""Pause before the first restart, doubled with each restart up to the maximum, ns."""
FOREVER_NS = 1 << 62
_SOCKET_TABLES = ("tcp", "tcp6", "udp", "udp6")
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
    """The condition under which a program is ready. Without a condition, it is ready at once.

    port: the program listens on this TCP or UDP port. line: a line of output matches this regular expression. file:
    this path exists on the node. http: GET of this URL has status 200. command: this command ends with status 0 on the
    node.
    """

    port: int | None = None
    line: str | None = None
    file: str | None = None
    http: str | None = None
    command: tuple[str, ...] = ()
    timeout_ns: int = 30_000_000_000

    def __str__(self) -> str:
        """Return why the program is not ready, as a clause."""
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
    """The end of a program: a signal, and SIGKILL after the grace time."""

    signal: int = signal.SIGTERM
    grace_ns: int = 5_000_000_000


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run on a node.

    name: prefix of its output files. command: program with arguments; empty for the command of the node's image. stage:
    the command starts when all programs of lower stages are ready. load: it runs during a load, and may end early with
    one of the exit statuses in `status`; other programs run as long as the testbed. vital: the run fails when it ends.
    environment: variables added to the node's. folder: working directory on the node. copy_in: (file or folder of this
    machine, path on the node), copied before the start. copy_out: paths on the node, copied into `files` after the end.
    stop: signal and grace time at the end; ``None`` for the default, and a note if a load runs over. measures: path of
    a file on the node that is kept with the outputs. cgroups: as in ``Place``, in addition to the node's. reached:
    programs of other nodes connect to it.
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
    measures: str | None = None
    restart: Restart = "never"
    status: tuple[int, ...] = (0,)
    vital: bool = False
    stop: Stop | None = None
    cgroups: tuple[str, ...] = ()
    reached: bool = False


class UnmodifiedProgram:
    """A command running on a node, with the same events as cellbed's own programs (``supervise.Program``).

    events: ``ready``; ``done`` at the end of a load; ``died`` (``at_ns``, ``what``) if a server has ended and is not
    restarted. ended: whether the program has failed; :meth:`failure` has the reason. restarts: number of restarts.
    notes: sentences for the report.
    """

    def __init__(
        self,
        command: Command,
        node: Backend,
        raw: Path,
        note: Callable[..., None] = lambda _, **__: None,
        count: Callable[[int], object] = lambda _: None,
    ) -> None:
        """raw: folder for its output. note: called with each change of state and details. count: called with a process,
        to account for its usage, before its exit status is read or it is killed."""
        self.command, self._node, self._note, self._count = command, node, note, count
        self.name, self.node = command.name, command.node
        self.log, self._out = raw / f"{command.name}.err", raw / f"{command.name}.out"
        self.process: Running | None = None
        self.events: list[dict[str, Any]] = []
        self.ended = False
        self.restarts = 0
        self.notes: list[str] = []
        self._reason = ""
        self._confined = False
        self._begin_ns: int | None = None
        self._end_ns: int | None = None
        self._restart_ns: int | None = None
        self._deadline_ns = 0
        self._kill_ns = FOREVER_NS
        self._check_ns = 0
        self._check_pause_ns = FIRST_CHECK_NS
        self._ready = self._stopping = self._truncated = self._crashed = self._overran = False
        self._fulfilled = False
        """True once the condition of readiness has been fulfilled since the last start of the process, including
        restarts."""
        self._load_s = 0.0
        self._memory_kills = 0
        self._check: Running | None = None
        self._searched = {self.log: 0, self._out: 0}
        """Bytes of each output already searched for the line of readiness."""

    def start(self) -> None:
        """Copy files to the node, and start the program unless it is a load. Errors: :class:`ProgramError`."""
        for source, target in self.command.copy_in:
            try:
                if not source.is_dir():
                    inputs.check(source)
                self._node.copy_in(source, target)
            except OSError as error:
                raise ProgramError(f"{self.name}: cannot copy {source} to {target} on {self.node}: {error}") from error
        if self.command.load:
            self._set_ready()
            return
        port = self.command.ready.port
        if port is not None and port in self._listening_ports():
            raise ProgramError(f"{self.name}: port {port} of {self.node} is in use already: choose another one")
        now = time.monotonic_ns()
        self._deadline_ns = now + self.command.ready.timeout_ns
        self._spawn()

    @property
    def is_ready(self) -> bool:
        """Return whether the program has become ready since its last start, not counting automatic restarts."""
        return self._ready

    @property
    def is_serving(self) -> bool:
        """Return whether the program's process runs and has become ready."""
        return self.process is not None and self._fulfilled

    def shares(self, command: Command) -> bool:
        """Return whether the working folders of this program and of another command overlap: one contains the other."""
        one, other = (PurePosixPath(each.folder or "") for each in (self.command, command))
        return one.is_relative_to(other) or other.is_relative_to(one)

    def send_command(self, command: dict[str, Any]) -> None:
        """Set the times of a load: ``t0_ns`` and ``end_ns``, monotonic; the load may run ``drain_ns`` longer."""
        self._begin_ns, self._end_ns = command["t0_ns"], command["end_ns"] + command.get("drain_ns", 0)
        self._load_s = (self._end_ns - self._begin_ns) / 1e9

    def step(self, now_ns: int) -> int:
        """Process what is due; return the latest time of the next call, monotonic ns."""
        if self._crashed:
            return FOREVER_NS
        if not self.ended:
            self._step(now_ns)
        end_ns = None if self._stopping or self.process is None else self._end_ns
        due = [each for each in (self._begin_ns, self._restart_ns, end_ns, self._kill_ns) if each]
        if self.process is not None and not self._fulfilled:
            due.append(self._check_ns)
        return max(now_ns, min(due, default=FOREVER_NS))

    def _step(self, now_ns: int) -> None:
        if self._end_ns is not None and now_ns >= self._end_ns and not self._stopping:
            self._overran = self.process is not None
            self.request_stop()
            if self.process is None:
                self._note_done()
        if self.process is None:
            due = self._begin_ns if self._restart_ns is None else self._restart_ns
            if due is not None and now_ns >= due:
                self._begin_ns = self._restart_ns = None
                with contextlib.suppress(ProgramError):  # the program has failed then
                    self._spawn()
            return
        self._truncate_output()
        status = self._poll(self.process)
        if status is not None:
            self._handle_end(status, now_ns)
        elif now_ns >= self._kill_ns:
            self._kill()
        elif not self._fulfilled:
            self._check_ready(now_ns)

    def adopt(self, process: Running) -> None:
        """Make a process that was started elsewhere, and serves already, the program's process."""
        self.process, self._crashed = process, False
        self._note("program started", pid=process.pid, log=self.log.name)
        self._fulfilled = True
        if not self._ready:
            self._set_ready()

    def crash(self, by: str = "fault") -> None:
        """Kill the program for a fault or a migration. This counts as no failure and triggers no restart."""
        self._crashed = True
        self._restart_ns = None
        if self._check is not None:
            end(self._check)
            self._check = None
        if self.process is not None:
            self._count(self.process.pid)
            kill(self.process)
            self._note("program ended", status=self.process.poll(), by=by)
            self.process = None
            if self.command.load and self.command.restart == "never":
                self._note_done()

    def recover(self) -> None:
        """Restart the program after :meth:`crash`, unless it is a load without a restart policy.

        Errors: :class:`ProgramError`.
        """
        self._crashed = False
        if self.ended or self._stopping or self.process is not None:
            return
        if self.command.load:
            if self._begin_ns is None and self.command.restart != "never":
                self._restart_ns = time.monotonic_ns()
            return
        self._ready = False
        self._deadline_ns = time.monotonic_ns() + self.command.ready.timeout_ns
        self._spawn()

    def has_died(self) -> bool:
        """Return whether the program has ended with an unexpected status and is not restarted."""
        return any(event["event"] == "died" for event in self.events)

    def failure(self) -> ProgramError:
        """Return the failure, with the last line of the program's output."""
        paths = [path for path in (self.log, self._out) if path.exists()]
        line = next(filter(None, (last_line(_tail(path)) for path in paths)), None)
        file = next((path for path in paths if path.stat().st_size), self.log)
        detail = f": {line}" if line else ", without any output"
        return ProgramError(f"{self.name} on {self.node} {self._reason}{detail}\n  its output: {file}")

    def request_stop(self) -> None:
        """Send the stop signal once, since programs may handle a second signal differently. No restart follows."""
        if self._stopping:
            return
        self._stopping = True
        self._restart_ns = self._begin_ns = None
        if self.process is not None and self._poll(self.process) is None:
            stop = self.command.stop or Stop()
            self._kill_ns = time.monotonic_ns() + stop.grace_ns
            with contextlib.suppress(OSError):
                self.process.send_signal(stop.signal)

    def _kill(self) -> None:
        """Kill the program after its grace time, with a note."""
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
        """Return the exit status of a process, if it has ended. Its usage is counted first, while still
        readable."""
        with contextlib.suppress(ChildProcessError):  # `terminate` or `wait` has read the status
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                self._count(process.pid)
        return process.poll()

    def close(self) -> None:
        """Wait for the end after :meth:`request_stop`, kill the program after its grace time, and copy its files."""
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
            self._truncate_output()
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

        if self.command.measures is not None:
            self._keep_measures(self.command.measures)

    def _keep_measures(self, source: str) -> None:
        try:
            content = self._node.read(source, inputs.MOST + 1)
            if len(content) > inputs.MOST:
                raise OSError(f"larger than {inputs.MOST >> 20} MiB: write less")
            target = self._out.with_name(f"{self.name}.measures{PurePosixPath(source).suffix}")
            target.write_bytes(content)
        except FileNotFoundError:
            pass  # the report names the program
        except OSError as error:
            why = printable(error.strerror or str(error), kept="")
            self.notes.append(f"{self.name}: cannot read its measures, {source} on {self.node}: {why}")

    def _spawn(self) -> None:
        self._fulfilled = self.command.load
        self._searched = {path: path.stat().st_size if path.exists() else 0 for path in self._searched}
        self._check_ns, self._check_pause_ns = 0, FIRST_CHECK_NS
        self._memory_kills = self._node.memory_kills()
        with self._out.open("ab") as output, self.log.open("ab") as errors:
            try:
                self.process = self._node.spawn(
                    self.command.command,
                    environment=self.command.environment,
                    folder=self.command.folder,
                    stdout=output,
                    stderr=errors,
                    cgroups=self.command.cgroups,
                )
            except (OSError, subprocess.SubprocessError) as error:
                self._fail(f"cannot be started: {getattr(error, 'strerror', None) or error}")
                raise ProgramError(
                    f"cannot start {self.name} on {self.node}: {getattr(error, 'strerror', None) or error}: "
                    f"'{' '.join(self.command.command[:1])}'"
                ) from error
        self._note("program started", pid=self.process.pid, log=self.log.name)

    def _fail(self, reason: str) -> None:
        self._reason, self.ended = reason, True

    def _set_ready(self) -> None:
        self._ready = True
        self.events.append({"event": "ready"})
        if not self.command.load:
            self._note("program ready")

    def _handle_end(self, status: int, now_ns: int) -> None:
        assert self.process is not None
        if self.command.load and not self._stopping and outlives(self.process.pid):
            self.notes.append(
                f"{self.name} ended while processes that it had started still ran, and they were killed; it must stay "
                "in the foreground"
            )
        kill(self.process)  # the rest of its session
        self.process = None
        if self._check is not None:
            end(self._check)
            self._check = None
        self._note_overrun(status)
        self._note("program ended", status=status)
        how = self._node.describe_end(status, self._memory_kills)
        ends = [_tail(path)[-500:].decode(errors="replace") for path in (self.log, self._out) if path.exists()]
        _log.info(f"program {self.name} {how}; its output ended: {' | '.join(ends)}")
        restart = self.command.restart
        again = restart == "always" or (restart == "on-failure" and status not in self.command.status)
        if self._stopping:
            self._note_done()
        elif not self._ready and (not again or now_ns >= self._deadline_ns):
            hint = "; it must stay in the foreground" if status == 0 else ""
            self._fail(f"{how} before it was ready{hint}")
        elif again:
            self.restarts += 1
            pause = min(FIRST_PAUSE_NS << min(self.restarts - 1, 16), LAST_PAUSE_NS)
            self._restart_ns = now_ns + pause
            _log.warning(f"{self.name} {how}: it is started again in {pause / 1e9:g} s (restart = '{restart}')")
        elif self.command.load and status in self.command.status:
            self._note_done()
        elif self.command.load or self.command.vital:
            self._fail(how)
        elif status in self.command.status:
            self.notes.append(f"{self.name} {how} before the run did")
        else:
            self._reason = how
            self.events.append({"event": "died", "at_ns": now_ns, "what": f"{self.name} {how}"})

    def _note_overrun(self, status: int | None) -> None:
        """Record that a load still ran at its end, unless it then ended with an expected status."""
        if self._overran and self.command.stop is None and status not in self.command.status:
            self.notes.append(
                f"{self.name} still ran after {self._load_s:g} s, the end of its load, and was ended: what it had not "
                "written is lost; it has more time with 'drain', such as drain = \"5 s\""
            )

    def _note_done(self) -> None:
        if self.command.load and not any(event["event"] == "done" for event in self.events):
            self.events.append({"event": "done"})
            self._note("program done")

    def _check_ready(self, now_ns: int) -> None:
        if now_ns < self._check_ns:
            return
        self._check_pause_ns = min(self._check_pause_ns * 5 // 4, LAST_CHECK_NS)
        self._check_ns = now_ns + self._check_pause_ns
        if self._fulfils_condition():
            self._fulfilled = True
            if not self._ready:
                self._set_ready()
        elif now_ns >= self._deadline_ns and not self._ready:
            timeout = self.command.ready.timeout_ns / 1e9
            self._fail(f"was not ready within {timeout:g} s, since {self.command.ready}")

    def _fulfils_condition(self) -> bool:
        ready = self.command.ready
        if ready.port is not None:
            return self._serves(ready.port)
        if ready.line is not None:
            return any(self._has_line(path, ready.line.encode()) for path in self._searched)
        if ready.file is not None:
            return self._succeeds(lambda: self._node.spawn(["test", "-e", str(ready.file)], folder=self.command.folder))
        if ready.http is not None:
            port = urlsplit(ready.http).port or 80
            return self._succeeds(lambda: self._fetch(str(ready.http))) and self._serves(port, elsewhere=True)
        if ready.command:
            return self._succeeds(self._run_command)
        return True

    def _serves(self, port: int, *, elsewhere: bool = False) -> bool:
        """Return whether a program listens on a port. If only its own node can reach the port, fail. elsewhere: the
        program may listen on another node."""
        addresses = self._listening_ports().get(port, set())
        confined, self._confined = self._confined, all(is_loopback(each) for each in addresses)
        if not addresses or not self._confined:
            return bool(addresses) or elsewhere
        where = (
            f"listens on {', '.join(sorted(map(str, addresses)))} alone (port {port}), which other nodes do not reach"
        )
        if not self.command.reached:
            self.notes = [*(note for note in self.notes if where not in note), f"{self.name} {where}"]
            return True
        if confined:  # in two checks: more sockets may follow the first
            self._fail(f"{where}: let it listen on all addresses, such as with --host 0.0.0.0")
        return False

    def _succeeds(self, start: Callable[[], Running]) -> bool:
        """Return whether the check, a process, has succeeded; start the check if it does not run."""
        if self._check is None:
            try:
                self._check = start()
            except (OSError, subprocess.SubprocessError) as error:
                self._fail(f"cannot be watched: {error}")
                return False
        status = self._check.poll()
        if status is not None:
            self._check = None
        return status == 0

    def _run_command(self) -> Running:
        null = subprocess.DEVNULL
        command, environment = self.command.ready.command, self.command.environment
        return self._node.spawn(command, environment=environment, folder=self.command.folder, stdout=null, stderr=null)

    def _fetch(self, url: str) -> Running:
        null = subprocess.DEVNULL
        if self._node.place is None:
            return self._node.spawn(["python3", "-I", "-c", _FETCH, url], stdout=null, stderr=null)
        from cellbed.testbed.machine.process import spawn

        return spawn([sys.executable, "-I", "-c", _FETCH, url], self._node.place, stdout=null, stderr=null)

    def _has_line(self, path: Path, pattern: bytes) -> bool:
        with inputs.open_file(path) as file:
            file.seek(self._searched[path])
            whole, _, _ = (content := file.read()).rpartition(b"\n")
        try:
            with time_limit(MATCHING_S, TimeoutError(), processor=True):
                if not content.endswith(b"\n") and re.search(pattern, content[len(whole) :]):
                    return True  # a prompt without a line feed
                if re.search(pattern, whole, re.MULTILINE):
                    return True
        except TimeoutError:
            line = self.command.ready.line
            self._fail(f"was not ready: '{line}' took {MATCHING_S:g} s of processor time in its output: simplify it")
        self._searched[path] += len(whole)
        return False

    def _listening_ports(self) -> dict[int, set[Address]]:
        """Return the TCP and UDP ports that programs of the node listen on, with their addresses."""
        tables = " ".join(f"/proc/net/{table}" for table in _SOCKET_TABLES)
        with contextlib.suppress(OSError):  # the node is lost, or does not answer
            return find_listeners(self._node.output(["sh", "-c", f"cat {tables} || :"]).decode(errors="replace"))
        return {}

    def _truncate_output(self) -> None:
        for path in self._searched:
            with contextlib.suppress(OSError):
                if path.stat().st_size > OUTPUT_LIMIT:
                    os.truncate(path, OUTPUT_LIMIT)  # the program appends
                    if not self._truncated:
                        self._truncated = True
                        self.notes.append(
                            f"{self.name}: of its output only the first {OUTPUT_LIMIT >> 20} MiB are kept"
                        )


def find_listeners(text: str) -> dict[int, set[Address]]:
    """Return local ports with addresses of sockets that listen (TCP, state 0A) or have no peer (UDP, state
    07).

    text: ``/proc/net/tcp``, ``tcp6``, ``udp`` and ``udp6``.
    """
    found: dict[int, set[Address]] = {}
    for line in text.splitlines():
        match line.split():
            case [_, local, remote, ("0A" | "07"), *_] if remote.endswith(":0000"):
                digits, _, port = local.rpartition(":")
                with contextlib.suppress(ValueError):  # another machine's text
                    words = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
                    address = ip_address(b"".join(words))
                    found.setdefault(int(port, 16), set()).add(address)
    return found


def is_loopback(address: Address) -> bool:
    """Return whether an address can be reached only from its own node."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _tail(path: Path) -> bytes:
    with inputs.open_file(path) as file:
        file.seek(max(0, path.stat().st_size - 4096))
        return file.read()
