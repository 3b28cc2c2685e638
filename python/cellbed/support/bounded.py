"""External programs with a limit of time, memory and output, which leave neither processes nor files."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cellbed.support.prctl import die_with_parent
from cellbed.support.temporary import temporary_folder

_MEMORY = 4 << 30
_WRITTEN = 64 << 20


def run_bounded(
    command: Sequence[str | Path],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    memory: int | None = _MEMORY,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program without input, in a process group and a temporary folder of its own.

    At its end its process group is killed and the folder, its ``$TMPDIR``, removed; after `timeout_s` also descendants
    that have left the group. Files that it writes, and each of its two outputs, have at most 64 MiB.

    Args:
        command: The program and its arguments.
        timeout_s: Longest time, seconds, which is also the longest processor time of each process.
        environment: Variables beside those of this process.
        memory: Address space of each process, bytes; ``None``: unlimited.

    Raises:
        OSError: The program cannot be started.
        subprocess.TimeoutExpired: It has not ended in time.
    """

    def limit() -> None:
        die_with_parent()
        seconds = int(timeout_s) + 1
        for kind, value in (
            (resource.RLIMIT_AS, memory),
            (resource.RLIMIT_FSIZE, _WRITTEN),
            (resource.RLIMIT_CPU, seconds),
            (resource.RLIMIT_CORE, 0),
        ):
            most = resource.getrlimit(kind)[1]
            if value is not None:
                least = value if most == resource.RLIM_INFINITY else min(value, most)
                resource.setrlimit(kind, (least, least))

    with temporary_folder() as folder, (folder / "out").open("w+b") as output, (folder / "err").open("w+b") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**os.environ, **(environment or {}), "TMPDIR": str(folder)},
            process_group=0,
            preexec_fn=limit,
        )
        ended = False
        try:
            ended = _wait(process, timeout_s)
        finally:
            # Its number is not given to another group before it is waited for.
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not ended:
                _kill_marked(f"TMPDIR={folder}".encode())
        if not ended:
            raise subprocess.TimeoutExpired(command, timeout_s)
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, output.read(), errors.read())


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Return whether a process ends in time; it is not waited for."""
    descriptor = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1e3))
    finally:
        os.close(descriptor)


def _kill_marked(mark: bytes) -> None:
    """Kill the processes whose environment has a variable."""
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in environment.read_bytes().split(b"\0"):
                os.kill(int(environment.parent.name), signal.SIGKILL)
