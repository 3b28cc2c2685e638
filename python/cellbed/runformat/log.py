"""``run.log`` in the folder of a run: plan, phases, programs, changes, retries and errors, a line for each.

Modules write to loggers below ``cellbed`` (:mod:`logging`). ``CELLBED_LOG`` is the minimum level of lines, by default
``info``. If the variable is set, the folder of a run that fails before the start of the schedule is kept.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from cellbed.support.errors import CellbedError, printable

FILE = "run.log"
VARIABLE = "CELLBED_LOG"
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
LARGEST = 4 << 20
"""Maximum bytes of the file for lines below a warning; warnings and errors may use as many more."""
LONGEST_LINE = 2_000
MOST_WAITING = 1_000
"""Maximum number of lines kept in memory until the folder exists, or while the disk is full."""

_ROOT = logging.getLogger("cellbed")


def _level() -> int:
    name = os.environ.get(VARIABLE) or "info"
    if name not in LEVELS:
        raise CellbedError(f"{VARIABLE}='{name[:100]}': expected one of {', '.join(LEVELS)}")
    return LEVELS[name]


class RunLog(logging.Handler):
    """The log of a run. run: identifier of the run, "-" until known. Errors: CellbedError for a bad ``CELLBED_LOG``."""

    def __init__(self) -> None:
        super().__init__(_level())
        self.run = "-"
        self._began = time.monotonic()
        self._path: Path | None = None
        self._waiting: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._left = {False: LARGEST, True: LARGEST}

    def write_into(self, folder: Path) -> None:
        """Write the lines so far and all later lines into a folder."""
        self._path = folder / FILE
        self._write()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line. If the disk is full, the line waits and the run continues."""
        text = printable(self.format(record)[:LARGEST], kept="")
        if len(text) > LONGEST_LINE:
            text = f"{text[: LONGEST_LINE // 2]} … {text[-LONGEST_LINE // 2 :]}"
        now = datetime.fromtimestamp(record.created, UTC)
        stamp = f"{now:%H:%M:%S}.{now.microsecond // 1000:03} {time.monotonic() - self._began:+9.3f} s"
        line = f"{stamp} {self.run} {record.levelname.lower():<7} {text}\n".encode(errors="replace")
        if is_verbose:
            with contextlib.suppress(OSError):
                sys.stderr.write(line.decode())
        is_severe = record.levelno >= logging.WARNING
        before, self._left[is_severe] = self._left[is_severe], self._left[is_severe] - len(line)
        if self._left[is_severe] >= 0:
            self._waiting.append(line)
        elif before >= 0:
            self._waiting.append(b"further lines are left out: the file has reached its limit\n")
        self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            while self._waiting:
                written = os.write(file.fileno(), self._waiting[0])
                self._waiting[0] = self._waiting[0][written:]  # a full disk may truncate a line
                if not self._waiting[0]:
                    self._waiting.popleft()


is_verbose = False
"""True if runs of this process print their log."""


@contextlib.contextmanager
def recording(log: RunLog) -> Iterator[None]:
    """Write a run's lines to `log` during the context."""
    before = _ROOT.level
    _ROOT.setLevel(min(log.level, before or log.level))
    _ROOT.addHandler(log)
    try:
        yield
    finally:
        _ROOT.removeHandler(log)
        _ROOT.setLevel(before)
