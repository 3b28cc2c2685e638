"""Processes of this machine, found by their environment."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_RUN_GROUP = re.compile(rb"/((?:run|testbed)-[0-9]+-[0-9a-f]{6})(?:/|$)", re.MULTILINE)
_READER = """
import sys
for name in sys.argv[1:]:
    try:
        content = open(f"/proc/{name}/environ", "rb", buffering=0).read(4 << 20)
    except OSError:
        content = b""
    print(content.hex(), flush=True)
"""
_PATIENCE_S, _LONGEST_S = 1.0, 10.0
"""Maximum time for one process, and for all processes, seconds."""


def environments(run: str = "") -> Iterator[tuple[Path, list[bytes]]]:
    """Yield the folder below ``/proc`` and the variables of each readable process, except in the control groups of runs
    other than `run`: a node that is short of processor time there would delay the read by minutes.

    A process may make the kernel wait for the process's own file system (FUSE) while the process holds the lock of its
    memory. Then the reader also waits, and even SIGKILL has no effect. So another program reads, and is abandoned with
    that process. A reader that only lacks a processor is waited for.
    """
    left = [each for each in Path("/proc").glob("[0-9]*") if _is_of_no_other(each, run)]
    end = time.monotonic() + _LONGEST_S
    while left and time.monotonic() < end:
        command = [sys.executable, "-I", "-S", "-c", _READER, *(each.name for each in left)]
        try:
            reader = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except OSError:  # the limit of processes is reached
            return
        assert reader.stdout is not None
        with reader.stdout as output:
            poll, rest = select.poll(), b""
            poll.register(output, select.POLLIN)
            while True:
                if not poll.poll(_PATIENCE_S * 1e3):
                    if _waits_in_kernel(reader.pid) or time.monotonic() > end:
                        break
                    continue
                if not (data := os.read(output.fileno(), 1 << 16)):
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    yield left.pop(0), bytes.fromhex(line.decode()).split(b"\0")
        reader.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            reader.wait(_PATIENCE_S)
        del left[:1]


def _waits_in_kernel(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"D"


def _is_of_no_other(process: Path, run: str) -> bool:
    with contextlib.suppress(OSError):
        return {*_RUN_GROUP.findall((process / "cgroup").read_bytes())} <= {run.encode()}
    return False
