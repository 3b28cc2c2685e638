"""Manual changes of the links of a run, read from the emulator's record."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from cellbed.support.stages import difference
from cellbed_node import inputs

CHANGES = "changes.jsonl"
"""File in the raw folder of a run: the emulator's record of every change by command."""
_MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_LISTED = 3
"""Maximum number of changes that a warning lists one by one."""


@dataclass(frozen=True, slots=True)
class ManualChange:
    """A change of one stage. time_ns: monotonic time; direction: name; kind: stage's kind; before, after: in words."""

    time_ns: int
    direction: str
    kind: str
    before: str
    after: str


def manual_changes(folder: Path) -> list[ManualChange]:
    """Return the manual changes of a run, in order of time. folder: the run's folder."""
    return read_changes(folder / "raw" / CHANGES)


def changes_beside(packet_log: Path) -> Path:
    """Return the emulator's record of changes in a shell, next to its packet log."""
    return packet_log.with_name(f"{packet_log.name}.{CHANGES}")


def read_changes(path: Path) -> list[ManualChange]:
    """Return the changes in the emulator's record, in order of time; none if there is no file.

    Unreadable lines are left out: a crash of the machine may truncate the last line.
    """
    try:
        lines = inputs.text(path).splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(*_MALFORMED):
            entry = inputs.json_value(line)
            before, after = difference(entry["from"], entry["to"])
            kind = str(entry["to"]["kind"])
            found.append(ManualChange(int(entry["time_ns"]), str(entry["direction"]), kind, before, after))
    return found


def manual_warning(folder: Path, t0_ns: int | None) -> str | None:
    """Return the warning about manual changes; ``None`` if there are none. t0_ns: start of the schedule."""
    found = manual_changes(folder)
    if not found:
        return None
    listed = []
    for each in found[:_LISTED]:
        when = f"at {(each.time_ns - t0_ns) / 1e9:.1f} s " if t0_ns is not None else ""
        listed.append(f"{when}{each.direction} from {each.before} to {each.after}")
    more = f"; and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return f"links were changed by hand while it ran: {'; '.join(listed)}{more}"
