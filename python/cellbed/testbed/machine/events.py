"""A process that writes events and reads commands, one JSON object per line: emulator, cellbed's programs, recorder."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from pathlib import Path
from typing import IO, Any

from cellbed_node import inputs
from cellbed_node.processes import Running, last_line

_LONGEST_LINE, _MOST_EVENTS = 16 << 20, 10_000
"""Maximum length of a line and number of events, for processes on other machines."""


class EventProcess:
    """The pipes of an event process. Lines that are no JSON object are skipped.

    process: process with pipes for standard output and, if it reads commands, standard input. errors: file of its
    standard error, or the file's path. events: events read, but not taken yet. ended: whether its standard output is
    closed.
    """

    def __init__(self, process: Running, errors: Path | IO[bytes]) -> None:
        self.process = process
        self.errors = errors
        self.events: list[dict[str, Any]] = []
        self.ended = False
        self._rest = b""

    def fileno(self) -> int:
        """Return the descriptor of its standard output."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def send(self, command: dict[str, Any]) -> None:
        """Write one line. Errors: ``BrokenPipeError`` or ``ValueError`` if the process no longer reads."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def request_stop(self) -> None:
        """Close the process's standard input, which asks it to flush and end."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def is_readable(self, timeout_s: float | None = 0.0) -> bool:
        """Wait at most `timeout_s` seconds, ``None``: forever; return whether :meth:`read` has data to read."""
        poll = select.poll()  # select(2) refuses descriptors from 1024 on
        poll.register(self, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else 1000 * timeout_s))

    def read(self) -> None:
        """Append the process's new output to ``events``; blocks if the descriptor is not readable."""
        chunk = os.read(self.fileno(), 1 << 20)
        self.ended = not chunk
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[:_LONGEST_LINE]  # a longer line is no object
        for line in lines:
            with contextlib.suppress(ValueError):
                event = inputs.json_value(line)
                if isinstance(event, dict) and len(self.events) < _MOST_EVENTS:
                    self.events.append(event)

    def receive(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """Take the next event; ``None`` if none arrives in time. Errors: ``EOFError`` after the last event."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.events:
            if self.ended:
                raise EOFError
            patience = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self.is_readable(patience):
                return None
            self.read()
        return self.events.pop(0)

    def last_words(self) -> str | None:
        """Return the last line of its standard error; ``None`` without one."""
        if isinstance(self.errors, Path):
            return last_line(self.errors.read_bytes())
        self.errors.seek(0)
        return last_line(self.errors.read())
