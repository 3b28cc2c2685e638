"""What to know of a plan's traces before its results are believed."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cellbed.testbed.plan import Plan
from cellbed.traces import TraceError, TraceSource
from cellbed.traces.warnings import warnings

if TYPE_CHECKING:
    from cellbed.traces.entry import Entry
    from cellbed.traces.series import Part


def cautions(plan: Plan) -> list[str]:
    """Sentences on the archive's entries that the links replay, each once; of files nothing is known."""
    used: dict[str, tuple[Entry, set[Part]]] = {}
    for direction in plan.directions:
        if not isinstance(direction.capacity, TraceSource):
            continue
        # An entry that cannot be read any more is told by who replays it.
        with suppress(TraceError):
            if (found := direction.capacity.entry()) is not None:
                entry, part = found
                used.setdefault(entry.name, (entry, set()))[1].add(part)
    return [
        f"{name}: {warning}"
        for name, (entry, parts) in used.items()
        for warning in warnings(entry, plan.scenario.duration, parts=parts)
    ]
