"""Processes that serve a shell and its command: forwarders of published ports and DNS queries, a meter.

All use one protocol: ``main`` of a module reads one JSON line with its task, reports in one line whether it is ready
(``{"event":"ready"}``), serves, and ends with its standard input. So no agent outlives its shell.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.events import EventProcess
from cellbed.testbed.machine.process import Place

_PATIENCE_S = 10.0
_LEAVE_S = 2.0


class AgentError(CellbedError):
    """An agent that did not start. event: its first report, empty without one."""

    exit_code = 1

    def __init__(self, what: str, event: Mapping[str, Any]) -> None:
        super().__init__(f"{what} did not start: {event.get('message', 'no answer')}")
        self.event = event


def start(
    module: str, what: str, task: dict[str, Any], *, stderr: int = subprocess.DEVNULL
) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    """Start an agent and wait for its first report: (process, event). The agent ends with this process.

    what: the agent's function, for messages. Errors: :class:`AgentError`; the agent has been ended.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", f"from {module} import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
    )
    channel = EventProcess(process, Path(os.devnull))
    event: dict[str, Any] = {}
    try:
        channel.send(task)
        event = channel.receive(_PATIENCE_S) or {}
    except (BrokenPipeError, EOFError):
        pass
    finally:
        if event.get("event") != "ready":
            process.kill()
            process.wait()
    if event.get("event") != "ready":
        raise AgentError(what, event)
    return process, event


def stop(process: subprocess.Popen[bytes]) -> None:
    """Let an agent clean up and end; kill it after a timeout."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_LEAVE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def start_forwarder(
    what: str, ports: Sequence[Mapping[str, Any]], *, listen: Place | None = None, connect: Place | None = None
) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    """Start the agent that holds `ports` in the namespaces of `listen`, and joins incoming connections with new ones
    from the namespaces of `connect`. ``None``: the current namespaces.

    ports: each with ``protocol``, ``address``, ``port`` (0: any free port, the same for all), ``hosts`` (addresses to
    try in order) and ``target`` (port there). what, errors: as in :func:`start`.
    """
    places = {"listen": listen and asdict(listen), "connect": connect and asdict(connect)}
    return start("cellbed.shell.forwarder", what, {"ports": ports, **places})


def read_task() -> dict[str, Any]:
    """In the agent: return its task."""
    task: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    return task


def report(event: str, message: str = "", **more: int) -> None:
    """In the agent: report the outcome of its start."""
    print(json.dumps({"event": event, "message": message, **more}), flush=True)
