"""External programs with limited time, memory and output, which leave neither processes nor files."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cellbed.support.processes import environments
from cellbed_node.processes import die_with_parent
from cellbed_node.temporary import temporary_folder

_MEMORY = 4 << 30
_WRITTEN = 64 << 20


def run_bounded(
    command: Sequence[str | Path],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    memory: int | None = _MEMORY,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program without input, in a separate process group and a temporary folder.

    At its end the process group is killed and the folder, its ``$TMPDIR``, is removed. After `timeout_s`, descendants
    that have left the group are also killed. Files that it writes, and each of its two outputs, have at most 64 MiB.

    Args:
        command: The program and its arguments.
        timeout_s: Maximum run time, seconds, and maximum processor time of each process.
        environment: Variables in addition to this process's.
        memory: Address space of each process, bytes; ``None``: unlimited.

    Raises:
        OSError: The program cannot be started.
        subprocess.TimeoutExpired: The program has not ended in time.
    """
    limits = {resource.RLIMIT_FSIZE: _WRITTEN, resource.RLIMIT_CPU: int(timeout_s) + 1, resource.RLIMIT_CORE: 0}
    limits |= {resource.RLIMIT_AS: memory} if memory is not None else {}

    def limit() -> None:
        die_with_parent()
        for kind, value in limits.items():
            most = resource.getrlimit(kind)[1]
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
            with os.fdopen(os.pidfd_open(process.pid), "rb", buffering=0) as descriptor:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                ended = bool(poll.poll(timeout_s * 1e3))
        finally:
            # No other group can get the same number before `wait`.
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not ended:
                for each, variables in environments():
                    if f"TMPDIR={folder}".encode() in variables:
                        with contextlib.suppress(OSError):
                            os.kill(int(each.name), signal.SIGKILL)
        if not ended:
            raise subprocess.TimeoutExpired(command, timeout_s)
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, output.read(), errors.read())
