"""Start unmodified programs on nodes, inside their namespaces and under their limits; signals of this process."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any, TypedDict, Unpack

from cellbed.support.errors import CellbedError
from cellbed.support.interruption import is_postponed
from cellbed_node.processes import Running, die_with_parent, kill, last_line

_log = logging.getLogger(__name__)
_MOST_SOCKETS = 253
"""Maximum number of descriptors in a message (``SCM_MAX_FD`` of Linux)."""
_ANSWER_S, _RUN_S = 10.0, 60.0
"""Maximum duration, seconds, of a child that opens sockets, and of a command."""
_PASSES = 100
"""Maximum number of searches for processes that started during the previous search."""


class ProgramError(CellbedError):
    """A program did not start, failed, or ended too early."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Place:
    """The namespaces and control groups of a program of one node.

    user_namespace, network_namespace: paths under ``/proc`` (``None``: the user namespace of the caller).
    binds: (source, target) files that the program sees instead of the host's, such as ``/etc/hosts``.
    cgroups: ``cgroup.procs`` files that the program joins before it executes.
    mount_namespace: path under ``/proc`` (``None``: the mount namespace of the caller).
    disk: a folder and a number of bytes. In the program's mount namespace, a file system of this size covers the
    folder. host_name: the machine's name for the program (``None``: the real name). keep_network_capabilities: whether
    the program may administer the network of the user namespace.
    """

    network_namespace: str
    user_namespace: str | None = None
    binds: tuple[tuple[str, str], ...] = ()
    cgroups: tuple[str, ...] = ()
    mount_namespace: str | None = None
    disk: tuple[str, int] | None = None
    host_name: str | None = None
    keep_network_capabilities: bool = False

    def enter(self, *, keep_capabilities: bool = False) -> None:
        """Move the calling process here, its control groups first. The process must have one thread; it dies with its
        parent.

        Errors: ``OSError`` if a namespace or control group cannot be entered.
        """
        from cellbed import _core

        _core.enter(json.dumps({**asdict(self), "keep_capabilities": keep_capabilities}))


@dataclass(frozen=True, slots=True)
class Process:
    """A program to run on a node under a supervisor.

    It writes JSON lines on standard output, ``{"event": "ready"}`` first, and stops when its standard input ends.
    stage: it starts when all programs of lower stages are ready. load: it then waits for ``{"connect_ns": …}``,
    connects, writes ``{"event": "connected"}``, waits for ``{"t0_ns": …, "end_ns": …, "drain_ns": …}``, and
    ends, with ``{"event": "done", …}`` as its last line.
    module: module of cellbed with a ``main`` (:mod:`cellbed_node.lifecycle`); config: path of its configuration, JSON.
    reads: files that it reads, by their paths in the configuration; its output goes next to `config`. env: variables
    added to the environment. forked: whether the process can be a fork of another process of the same program
    (:mod:`cellbed.testbed.programs.fork_server`). cgroups: as in :class:`Place`, in addition to the node's.
    """

    name: str
    node: str
    module: str
    config: Path
    reads: tuple[str, ...] = ()
    stage: int = 0
    load: bool = False
    env: dict[str, str] = field(default_factory=dict)
    forked: bool = False
    cgroups: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """The arguments of the process."""
        return ["--config", str(self.config)]

    @property
    def argv(self) -> list[str]:
        """The whole command."""
        # -P: do not import from a folder 'cellbed' in the current directory.
        return [sys.executable, "-P", "-m", self.module, *self.arguments]


class Streams(TypedDict, total=False):
    """Standard streams of a program, as for ``subprocess.Popen``; without `stdin`, standard input is empty."""

    stdin: int | IO[Any] | None
    stdout: int | IO[Any] | None
    stderr: int | IO[Any] | None


def spawn(
    command: Sequence[str],
    place: Place,
    *,
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
    own_session: bool = True,
    keep_capabilities: bool = False,
    descriptors: Collection[int] = (),
    **streams: Unpack[Streams],
) -> subprocess.Popen[bytes]:
    """Start `command` at `place`; it dies with the calling process.

    folder: working directory.
    own_session: detach the program from the terminal, so that Ctrl-C reaches only the caller. Otherwise, the program
    ignores SIGINT if the caller does.
    keep_capabilities: let the program keep its capabilities in the user namespace, for a nested shell.
    descriptors: open file descriptors that the program inherits.
    Errors: ``OSError`` or ``subprocess.SubprocessError`` if a namespace or control group cannot be entered.

    The caller must be single-threaded: the child enters its namespaces between fork and exec.
    """
    streams.setdefault("stdin", subprocess.DEVNULL)
    # This pipe passes errors between fork and exec to the caller: subprocess itself only reports that there was an
    # error.
    heard, told = os.pipe()
    _log.debug(f"starting {shlex.join(command)} in {place.network_namespace}")

    def enter() -> None:
        # Python ignores SIGPIPE, and the supervisor may block signals: programs start with the default.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if own_session:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            place.enter(keep_capabilities=keep_capabilities)
            if folder is not None:
                os.chdir(folder)
        except Exception as error:
            os.write(told, str(error).encode(errors="replace")[:2000])
            raise

    try:
        return subprocess.Popen(
            list(command),
            env=dict(environment) if environment is not None else dict(os.environ),
            start_new_session=own_session,
            preexec_fn=enter,
            pass_fds=descriptors,
            **streams,
        )
    except subprocess.SubprocessError:
        os.close(told)
        told = -1
        raise OSError(os.read(heard, 2000).decode(errors="replace")) from None
    finally:
        os.close(heard)
        if told >= 0:
            os.close(told)


def sockets_at(place: Place, make: Callable[[], Sequence[socket.socket]]) -> list[socket.socket]:
    """Return sockets that a short-lived child makes in the namespaces of a place.

    Errors: ``OSError``. The caller must be single-threaded.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        child = os.fork()
        if child == 0:
            try:
                place.enter()
                made = make()
                socket.send_fds(theirs, [b"ok"], [each.fileno() for each in made])
            except BaseException as error:
                theirs.send(str(error).encode(errors="replace")[:2000])
            finally:
                os._exit(0)
        theirs.close()
        ours.settimeout(_ANSWER_S)
        try:
            answer, descriptors, _, _ = socket.recv_fds(ours, 2000, _MOST_SOCKETS)
        except TimeoutError:
            raise TimeoutError(
                f"no socket could be opened in {place.network_namespace} within {_ANSWER_S:g} s"
            ) from None
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)  # nothing can delay the child's death after SIGKILL
    if not descriptors:
        raise OSError(answer.decode(errors="replace") or "its child was killed")
    return [socket.socket(fileno=each) for each in descriptors]


def listener(place: Place | None, address: tuple[str, int], backlog: int = 128) -> socket.socket:
    """Return a TCP socket that listens in the namespaces of `place`, by default here. Errors: ``OSError``."""
    if place is None:
        return socket.create_server(address, backlog=backlog)
    return sockets_at(place, lambda: [socket.create_server(address, backlog=backlog)])[0]


@contextlib.contextmanager
def isolate() -> Iterator[Place]:
    """Yield a place with a separate network whose only device is loopback. Errors: :class:`ProgramError`."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    command = ["unshare", *user, "--net", "sh", "-c", "ip link set lo up && echo && exec cat"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=die_with_parent) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stderr is not None
        if not holder.stdout.readline():
            raise ProgramError(f"a network namespace is not possible here: {last_line(holder.stderr.read())}")
        folder = f"/proc/{holder.pid}/ns"
        yield Place(f"{folder}/net", f"{folder}/user" if user else None)
        holder.stdin.close()


def end(process: Running, patience: float = 1.0) -> None:
    """End a program that was started here: SIGTERM, wait `patience` seconds, then kill its process group."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            kill(process)
    # End the rest of the program's session, too.
    kill(process)


def outlives(leader: int) -> bool:
    """Return whether processes of a group still run 50 ms after its leader has ended."""
    for _ in range(5):
        try:
            os.killpg(leader, 0)
        except OSError:
            return False
        time.sleep(0.01)
    return True


def inhabitants(namespace: int) -> list[int]:
    """Return the processes in the network namespace with this inode number, as far as this user can see them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if (entry / "ns" / "net").stat().st_ino == namespace:
                    found.append(int(entry.name))
    return found


def signal_inhabitants(namespace: str, number: int, spared: Collection[int]) -> None:
    """Send a signal to all processes in the network namespace at a path, except `spared`. Processes that start
    meanwhile are included."""
    inode = Path(namespace).stat().st_ino
    reached = set(spared)
    for _ in range(_PASSES):
        new = set(inhabitants(inode)) - reached
        if not new:
            return
        for process in new:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, number)
        reached |= new


def run(command: Sequence[str], *, text: str | None = None, place: Place | None = None) -> str:
    """Run `command` with input `text`, in the namespaces of `place` if given, and return its output.

    Errors: :class:`ProgramError` if it cannot be run or fails.
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
    try:
        output, errors = process.communicate(text.encode() if text is not None else None, _RUN_S)
    except subprocess.TimeoutExpired:
        kill(process)
        raise ProgramError(f"{' '.join(command[:3])}: has not ended within {_RUN_S:g} s") from None
    if process.returncode != 0:
        said = errors.decode(errors="replace").strip().splitlines()
        detail = said[0] if said else f"exit status {process.returncode}"
        raise ProgramError(f"{' '.join(command[:3])}: {detail}")
    return output.decode(errors="replace")


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Context that turns SIGINT, SIGTERM and SIGHUP into one ``KeyboardInterrupt``, until :meth:`shield`.

    signal: number of the first signal that arrived, or ``None``.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._shielded = False
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def shield(self) -> None:
        """From now on, only note signals: clean-up has begun."""
        self._shielded = True

    def __enter__(self) -> Interruption:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = number
        if self._shielded:
            with contextlib.suppress(OSError):  # the terminal may be closed
                print("cleaning up, please wait", file=sys.stderr)
            return
        if not is_postponed(number, frame):
            self._shielded = True
            raise KeyboardInterrupt


@contextlib.contextmanager
def ignore_hang_ups() -> Iterator[None]:
    """Return a context that ignores a closing terminal (SIGHUP)."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
