"""``events.jsonl`` in the folder of a run: changes of its state, faults, and changes of links by hand."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from pathlib import Path
from typing import Any

from cellbed.runformat.changes import CHANGES
from cellbed.support.stages import difference
from cellbed_node import inputs

FILE = "events.jsonl"
_log = logging.getLogger(__name__)


class Journal:
    """The events of a run, one JSON object per line: ``time_ns`` (monotonic), ``at_s`` (since the start of the
    schedule; null before), ``event``, ``what`` and more.

    t0_ns: start of the schedule, None until known. lost: last reason why an event could not be written.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._changes = folder / "raw" / CHANGES
        self._read = 0
        self.t0_ns: int | None = None
        self.lost: str | None = None

    @classmethod
    def reopen(cls, folder: Path) -> Journal:
        """Return the journal of a run or testbed that another process runs."""
        journal = cls(folder)
        with contextlib.suppress(OSError, ValueError, AttributeError):
            journal.t0_ns = inputs.json_value(folder / "run.json").get("t0_ns")
        return journal

    def note(self, event: str, what: str, time_ns: int | None = None, **more: Any) -> None:
        """Append and log an event. time_ns: default now. A full disk does not end a run: see ``lost``."""
        _log.info(", ".join([f"{event}: {what}", *(f"{key} {value}" for key, value in more.items())]))
        now = time.monotonic_ns() if time_ns is None else time_ns
        at_s = None if self.t0_ns is None else round((now - self.t0_ns) / 1e9, 6)
        line = {"time_ns": now, "at_s": at_s, "event": event, "what": what, **more}
        try:
            # The file is opened for each event, because `cellbed exec` appends to it, too.
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        except OSError as error:
            self.lost = error.strerror or str(error)
            _log.warning(f"events.jsonl lacks this event: {self.lost}")

    def note_changes(self) -> None:
        """Append the emulator's records of manual changes of links since the last call."""
        try:
            with inputs.open_file(self._changes) as file:
                file.seek(self._read)
                lines = file.read().split(b"\n")
        except OSError:
            return
        for line in lines[:-1]:  # text after the last line end is incomplete
            self._read += len(line) + 1
            with contextlib.suppress(ValueError, LookupError, TypeError):
                change = inputs.json_value(line)
                before, after = difference(change["from"], change["to"])
                more = {"from": before, "to": after, "by": "hand"}
                self.note("link changed", str(change["direction"]), int(change["time_ns"]), **more)


_KEYS: dict[str, Any] = {
    **{"time_ns": int, "event": str, "what": str, "at_s": int | float | None},
    **dict.fromkeys(("from", "to", "kind", "fault", "late_s"), str | int | float | None),
}


def read_events(folder: Path) -> list[dict[str, Any]]:
    """Return the events of a run in order of time, possibly none. Unreadable lines are left out."""
    try:
        lines = inputs.text(folder / FILE).splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):
            event = inputs.json_value(line)
            if isinstance(event, dict) and all(isinstance(event.get(key), kind) for key, kind in _KEYS.items()):
                found.append(event)
    return sorted(found, key=lambda event: event["time_ns"])
