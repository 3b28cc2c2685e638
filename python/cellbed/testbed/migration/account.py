"""The account of a migration: its phases and events, for ``run.json`` and the journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from cellbed.runformat.events import Journal
from cellbed.scenario.migrations import Migration


class Sent(Protocol):
    """The transfers of a channel so far. sent_bytes: bytes on the wire, compressed. on_link_ns: sum of the times from a
    transfer's first connection to its last byte."""

    sent_bytes: int
    on_link_ns: int


class Account:
    """The account of a migration from a node. content: account in the format of ``run.json``. reason: the policy's
    reason, if any. clock: returns the time, ns."""

    def __init__(
        self,
        table: Migration,
        number: int,
        source: str,
        journal: Journal,
        reason: str | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._table, self._journal, self._clock = table, journal, clock
        self.content: dict[str, Any] = {
            "number": number,
            "app": table.app,
            "strategy": table.strategy,
            "moves_memory": table.traits.moves_memory,
            "source": source,
            "target": table.to,
            "compression": table.compression,
            "phases": [],
            "failed": None,
            "reason": reason,
        }
        self._note("began", "begin_s")

    def end(self, error: Exception | None) -> None:
        """Record the end. error: why the migration failed."""
        self.content["failed"] = None if error is None else str(error)
        self._note("ended", "end_s", failed=self.content["failed"])

    @contextmanager
    def phase(self, name: str, channel: Sent) -> Iterator[dict[str, Any]]:
        """Record a phase and the bytes sent during it. Entries that the body adds are recorded when the phase ends."""
        more: dict[str, Any] = {}
        before, linked, begin_ns = channel.sent_bytes, channel.on_link_ns, self._clock()
        what = f"{self._table.app}: {name}"
        self._journal.note("move phase began", what, begin_ns)
        try:
            yield more
        finally:  # also if the phase fails
            if sent := channel.sent_bytes - before:
                more = {"bytes": sent, "on_link_s": (channel.on_link_ns - linked) / 1e9, **more}
            end_ns = self._clock()
            times = {"begin_s": self._since_start(begin_ns), "end_s": self._since_start(end_ns)}
            self.content["phases"].append({"name": name, **times, **more})
            self._journal.note("move phase ended", what, end_ns, **more)

    def _note(self, event: str, key: str, **more: Any) -> None:
        now = self._clock()
        self.content[key] = self._since_start(now)
        self._journal.note(f"move {event}", str(self._table), now, kind=self._table.strategy, **more)

    def _since_start(self, time_ns: int) -> float:
        return round((time_ns - (self._journal.t0_ns or 0)) / 1e9, 6)
