"""What was changed by hand in the links of a run, noted in its folder, so that its report can say so."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed.errors import CellbedError

CHANGES = "changes.jsonl"
"""In the raw folder of a run."""
_TOLD = 3
"""Changes that a warning tells one by one."""


@dataclass(frozen=True, slots=True)
class Changed:
    """One change that is in force. before, after: in words."""

    direction: str
    before: str
    after: str


def note(folder: Path, changed: Changed, stage: Mapping[str, Any]) -> None:
    """Note a change in the folder of the run whose link it was. stage: the new one in the emulator's terms.

    Errors: :class:`cellbed.errors.CellbedError` where it cannot be written.
    """
    entry = {
        "time_ns": time.monotonic_ns(),
        "direction": changed.direction,
        "from": changed.before,
        "to": changed.after,
        "stage": stage,
    }
    path = folder / "raw" / CHANGES
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, json.dumps(entry).encode() + b"\n")
        finally:
            os.close(file)
    except OSError as error:
        raise CellbedError(
            f"{changed.direction} is {changed.after} now, but the run's report will not know: {path}: {error.strerror}"
        ) from error


def manual_changes(folder: Path) -> list[dict[str, Any]]:
    """What was changed by hand in a run, in order of time: ``time_ns`` (monotonic), ``direction``, ``from``, ``to``.

    folder: the run's.
    """
    try:
        lines = (folder / "raw" / CHANGES).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        # The last line may be cut short where the machine went down.
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return [entry for entry in found if isinstance(entry, dict)]


def manual_warning(folder: Path, t0_ns: int | None) -> str | None:
    """What a report has to say of changes by hand; ``None`` where there were none. t0_ns: start of the schedule."""
    found = manual_changes(folder)
    if not found:
        return None
    told = []
    for entry in found[:_TOLD]:
        when = f"at {(entry['time_ns'] - t0_ns) / 1e9:.1f} s " if t0_ns is not None else ""
        told.append(f"{when}{entry['direction']} from {entry['from']} to {entry['to']}")
    more = f"; and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
    return f"links were changed by hand while it ran: {'; '.join(told)}{more}"
