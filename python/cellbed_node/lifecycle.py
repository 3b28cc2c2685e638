"""The life cycle of a workload process: it reads its configuration, reports ``ready``, ends with stdin or its parent.

Standard output carries one JSON object per line (``{"event": "ready"}`` first), standard error text for humans. The end
of standard input means: stop now. Every process imports this module at its start, so the module imports little.
"""

import json
import os
import select
import signal
import sys
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from cellbed_node.processes import die_with_parent


class WorkloadError(Exception):
    """An error that ends a workload's process; its text is the last line on standard error."""


def run(main: Callable[[dict[str, Any]], None], arguments: list[str] | None = None) -> NoReturn:
    """Run ``main`` with the configuration named on the command line (``--config FILE.json``), then exit.

    arguments: replace the command line. Exit status: 0 at the end of ``main`` or on SIGTERM, 1 for a WorkloadError, 2
    for an invalid configuration. SIGINT is ignored: Ctrl-C is for the parent command, which closes our standard input.
    """
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        config = _configuration(sys.argv[1:] if arguments is None else arguments)
    except (OSError, ValueError) as error:
        print(f"wrong configuration: {error}", file=sys.stderr)
        sys.exit(2)
    try:
        main(config)
    except WorkloadError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        # The parent, which reads our events, has ended.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(0)


def announce(event: str, **fields: Any) -> None:
    """Write one event for the parent process."""
    print(json.dumps({"event": event, **fields}), flush=True)


def open_record(path: Path) -> TextIOWrapper:
    """Return a file for appending JSON lines. Each line is written at once, since the node may crash: without the
    service's lines, parts of answered requests would be missing. Raises WorkloadError."""
    try:
        return path.open("a", encoding="utf-8", buffering=1)
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be written: {error.strerror or error}") from error


class Commands:
    """JSON lines on standard input, read without blocking.

    closed: whether standard input has ended: the process must stop.
    """

    def __init__(self) -> None:
        self._descriptor = sys.stdin.fileno()
        self._rest = b""
        self.closed = False

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> list[dict[str, Any]]:
        """Return the received commands. Call it when the descriptor is readable. Raises WorkloadError."""
        chunk = os.read(self._descriptor, 65536)
        self.closed = not chunk
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        try:
            return [json.loads(line) for line in lines if line.strip()]
        except ValueError as error:
            raise WorkloadError(f"standard input: not a line of JSON: {error}") from error

    def wait(self) -> list[dict[str, Any]]:
        """Return the next commands; none when standard input has ended. Raises WorkloadError."""
        commands: list[dict[str, Any]] = []
        while not commands and not self.closed:
            select.select([self], [], [])
            commands = self.read()
        return commands


async def wait_for_stop() -> None:
    """Wait until standard input has ended, in a program with an event loop."""
    import asyncio

    commands, ended = Commands(), asyncio.Event()

    def read() -> None:
        commands.read()
        if commands.closed:
            ended.set()

    asyncio.get_running_loop().add_reader(commands, read)
    await ended.wait()


def _configuration(arguments: list[str]) -> dict[str, Any]:
    if len(arguments) != 2 or arguments[0] != "--config":
        raise ValueError("usage: --config FILE.json")
    config = json.loads(Path(arguments[1]).read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise ValueError(f"{arguments[1]}: not a JSON object")
    return config


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)
