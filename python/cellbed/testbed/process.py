"""Start unmodified programs on nodes: inside the node's namespaces and under its limits."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cellbed.testbed.fork_server import ForkedProcess


@dataclass(frozen=True, slots=True)
class Place:
    """Where a program of one node runs.

    user_namespace, network_namespace: paths under ``/proc`` (``None``: the user namespace of the caller).
    binds: (source, target) files that the program sees instead of the host's, such as ``/etc/hosts``.
    cgroups: ``cgroup.procs`` files that the program joins before it executes.
    """

    network_namespace: str
    user_namespace: str | None = None
    binds: tuple[tuple[str, str], ...] = ()
    cgroups: tuple[str, ...] = ()

    def enter(self, *, keep_capabilities: bool = False) -> None:
        """Move the calling process here, its control groups first; it dies with its parent. It must have one thread.

        Errors: ``OSError`` when a namespace or cgroup cannot be entered.
        """
        from cellbed import _core

        _core.enter(
            user_namespace=self.user_namespace,
            network_namespace=self.network_namespace,
            binds=[(source, target) for source, target in self.binds],
            cgroups=list(self.cgroups),
            keep_capabilities=keep_capabilities,
        )


def spawn(
    command: Sequence[str],
    place: Place,
    *,
    environment: Mapping[str, str] | None = None,
    stdin: int | IO[Any] | None = subprocess.DEVNULL,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    own_session: bool = True,
    keep_capabilities: bool = False,
) -> subprocess.Popen[bytes]:
    """Start `command` at `place`; it dies with the calling process.

    own_session: detach it from the terminal, so that Ctrl-C reaches the caller alone. Else a SIGINT that the
    caller ignores is ignored by the command, too.
    keep_capabilities: let the program keep its capabilities in the user namespace (a nested shell needs them).
    Errors: ``OSError`` or ``subprocess.SubprocessError`` when a namespace or cgroup cannot be entered.

    The caller must be single-threaded: the child enters its namespaces between fork and exec.
    """
    # What goes wrong between fork and exec reaches the caller through this pipe: subprocess itself only says that
    # something did.
    heard, told = os.pipe()

    def enter() -> None:
        # Python ignores SIGPIPE, and the supervisor may hold others back: programs start with the default.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if own_session:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            place.enter(keep_capabilities=keep_capabilities)
        except Exception as error:
            os.write(told, str(error).encode(errors="replace")[:2000])
            raise

    try:
        return subprocess.Popen(
            list(command),
            env=dict(environment) if environment is not None else dict(os.environ),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=own_session,
            preexec_fn=enter,
        )
    except subprocess.SubprocessError:
        os.close(told)
        told = -1
        raise OSError(os.read(heard, 2000).decode(errors="replace")) from None
    finally:
        os.close(heard)
        if told >= 0:
            os.close(told)


def end(process: subprocess.Popen[bytes] | ForkedProcess, patience: float = 1.0) -> None:
    """End a program that was started here: ask, wait `patience` seconds, then kill its process group."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            kill(process)
    # Whatever it left in its own session goes too.
    kill(process)


def kill(process: subprocess.Popen[bytes] | ForkedProcess) -> None:
    """Kill a program and, where it leads a session of its own, everything in its process group."""
    try:
        if os.getsid(0) != process.pid:
            os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    if process.poll() is None:
        process.kill()
        process.wait()
