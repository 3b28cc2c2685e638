"""What to know of a plan's traces before its results are believed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from cellbed.archive import TraceError, TraceSource, open_archive
from cellbed.archive.warnings import Replayed, of_length, warnings
from cellbed.scenario.core import CoreRoundTrips
from cellbed.testbed.plan import Plan

if TYPE_CHECKING:
    from cellbed.archive.entry import Entry
    from cellbed.archive.series import Part


def cautions(plan: Plan) -> list[str]:
    """Sentences on the archive's entries that the links replay, each once; of files nothing is known."""
    used: dict[tuple[str, Replayed], tuple[Entry, set[Part]]] = {}
    for direction in plan.directions:
        if not isinstance(direction.capacity, TraceSource):
            continue
        # An entry that cannot be read any more is told by who replays it.
        with suppress(TraceError):
            if (found := direction.capacity.entry()) is not None:
                entry, part = found
                replayed = Replayed(plan.scenario.duration, direction.playing.start_ns, direction.playing.looped)
                used.setdefault((entry.name, replayed), (entry, set()))[1].add(part)
    told = [
        f"{name}: {warning}"
        for (name, replayed), (entry, parts) in used.items()
        for warning in warnings(entry, replayed, parts=parts)
    ]
    return list(dict.fromkeys([*told, *_of_core(plan)]))


def _of_core(plan: Plan) -> Iterator[str]:
    """On the records of round-trip times that core links replay; of a file only its length is known."""
    for core in (plan.scenario.links.core.edge, plan.scenario.links.core.cloud):
        if not isinstance(core, CoreRoundTrips):
            continue
        record, replayed = core.record, Replayed(plan.scenario.duration, core.start)
        told = of_length("round-trip", record.duration, replayed)
        with suppress(TraceError):
            archive = open_archive()
            if archive.has(record.name):
                told = iter(warnings(archive.entry(record.name), replayed, parts=["round-trip"]))
        yield from (f"{record.name}: {warning}" for warning in told)
