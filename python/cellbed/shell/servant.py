"""Processes that serve a shell beside its command: a name server, a forwarder of published ports, a meter.

All have one protocol: ``main`` of a module reads one JSON line with its task, says in one line how it went
(``{"event":"ready"}`` when all is well), serves, and ends when its standard input does. So none outlives its shell.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from typing import Any

from cellbed.testbed.process import Place

_PATIENCE_S = 10.0
_LEAVE_S = 2.0


def start(
    module: str, task: dict[str, Any], *, stderr: int = subprocess.DEVNULL
) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    """Start a servant and wait for what it says first: (process, event). The event is empty where it said nothing.

    A servant whose event is not ``ready`` has been ended. A ready one ends with this process.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", f"from {module} import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    event: dict[str, Any] = {}
    try:
        process.stdin.write(json.dumps(task).encode() + b"\n")
        process.stdin.flush()
        readable, _, _ = select.select([process.stdout], [], [], _PATIENCE_S)
        line = process.stdout.readline() if readable else b""
        event = json.loads(line) if line else {}
    except BrokenPipeError:
        pass
    finally:
        if event.get("event") != "ready":
            process.kill()
            process.wait()
    return process, event


def stop(process: subprocess.Popen[bytes]) -> None:
    """Let a servant put things right and end; kill one that does not."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_LEAVE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def namespaces(place: Place | None) -> dict[str, str | None]:
    """The namespaces of `place` as a servant's task has them; ``None``: the current ones."""
    return {
        "network_namespace": place.network_namespace if place else None,
        "user_namespace": place.user_namespace if place else None,
    }


def read_task() -> dict[str, Any]:
    """In the servant: its task."""
    task: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    return task


def tell(event: str, message: str = "", **more: int) -> None:
    """In the servant: say how it went."""
    print(json.dumps({"event": event, "message": message, **more}), flush=True)
