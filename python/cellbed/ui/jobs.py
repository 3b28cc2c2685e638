"""The page's commands: each is a verb of ``cellbed`` with its words, run as a user runs it in a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cellbed.support.errors import CellbedError

PROGRAM = (sys.executable, "-P", "-m", "cellbed")
_LINES, _LONGEST = 40, 500
"""Maximum number of lines of output kept, and of characters in each."""
_KEPT = 8
"""Number of ended jobs that are kept."""


class JobError(CellbedError):
    """A command that the page may not give."""


def words(form: Mapping[str, Any], runs: Path) -> list[str]:
    """Return the words after ``cellbed`` for a form of the page. runs: folder of runs. Errors: :class:`JobError`.

    Forms by ``verb``: ``up`` (file, name, start, proof), ``down`` (bed), ``link`` (bed, link, settings), ``migrate``
    (bed, app, to, strategy), ``report`` (run).
    """
    match form.get("verb"):
        case "up":
            name = ["--name", _word(form, "name")] if form.get("name") else []
            options = ["--start"] * bool(form.get("start")) + ["--no-proof"] * (form.get("proof") is False)
            return ["up", _word(form, "file"), *name, *options, "--out", str(runs)]
        case "down":
            return ["down", _word(form, "bed")]
        case "link":
            settings = form.get("settings")
            if not isinstance(settings, list) or not settings:
                raise JobError("no setting: fill in a rate, delay, loss or queue")
            each = [_word({"setting": one}, "setting") for one in settings]
            link = [_word(form, "link")] if form.get("link") else []  # a shell has one link without a name
            return ["link", "set", _word(form, "bed"), *link, *each]
        case "migrate":
            strategy = ["--strategy", _word(form, "strategy")] if form.get("strategy") else []
            return [
                "migrate",
                _word(form, "app"),
                "--to",
                _word(form, "to"),
                *strategy,
                "--testbed",
                _word(form, "bed"),
            ]
        case "report":
            return ["report", str(runs / _word(form, "run")), "--open", "no"]
    raise JobError(f"no command is called {str(form.get('verb'))[:40]!r}")


def _word(form: Mapping[str, Any], key: str) -> str:
    value = form.get(key)
    if not isinstance(value, str) or not value.strip():
        raise JobError(f"{key} is missing: fill it in")
    if value.startswith("-") or not value.isprintable() or len(value) > 1000:
        raise JobError(f"{key}: {value[:40]!r} cannot be used here")
    return value


class Jobs:
    """The running commands and the latest ended ones."""

    def __init__(self) -> None:
        self._number = 0
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.content: dict[str, dict[str, Any]] = {}
        """Command, lines of output, and exit status (absent while it runs), by number. Values are never changed."""

    async def start(self, command: list[str]) -> str:
        """Start a command; return its number."""
        self._number += 1
        number = str(self._number)
        shown = {"command": shlex.join(["cellbed", *command]), "lines": []}
        ended = [each for each in self.content if each not in self._running]
        kept = {each: value for each, value in self.content.items() if each not in ended[:-_KEPT]}
        self.content = {**kept, number: shown}
        # Ctrl-C at the page's terminal must not reach it, and a closed page must not end it.
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, start_new_session=True, env=os.environ | {"NO_COLOR": "1"},
        )  # fmt: skip
        self._running[number] = process
        task = asyncio.create_task(self._follow(number, process))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return number

    async def _follow(self, number: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        lines: list[str] = []
        while content := await process.stdout.read(1 << 16):
            lines = [*lines, *content.decode(errors="replace").splitlines()][-_LINES:]
            self._show(number, lines=[line[:_LONGEST] for line in lines])
        status = await process.wait()
        del self._running[number]
        self._show(number, status=status)

    def _show(self, number: str, **values: Any) -> None:
        self.content = {**self.content, number: {**self.content[number], **values}}

    def cancel(self, number: str) -> None:
        """Interrupt a command, like Ctrl-C."""
        if (process := self._running.get(number)) is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)

    async def close(self) -> None:
        """Interrupt all commands, and wait for their ends."""
        for number in list(self._running):
            self.cancel(number)
        if self._tasks:
            await asyncio.wait(self._tasks)
