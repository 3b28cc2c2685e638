"""The load generator of every kind: requests at intended times, one event loop, and a record of what became of each.

One thread and one event loop: a delay of the loop is a delay of the application and appears in the stamps. It waits
with select(2), whose time-outs are in microseconds; those of epoll are whole milliseconds.
"""

import bisect
import gc
import select
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed.workloads import lifecycle
from cellbed.workloads.arrivals import Arrivals, in_flight, schedule
from cellbed.workloads.ledger import Ledger, Request
from cellbed.workloads.lifecycle import WorkloadError, announce
from cellbed.workloads.policies import policy

SECOND = 1_000_000_000
_PROGRESS_INTERVAL = SECOND // 2
_PAUSE_AFTER_LOSS = SECOND // 10
"""A lost request can be over at once; the pause keeps a closed loop from spinning on losses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The configuration of a generator. Times in nanoseconds; ``record``: the file of finished requests; ``policy``: a
    table of :func:`cellbed.workloads.policies.policy`."""

    endpoint: str
    record: str
    arrivals: Arrivals
    rate: float | None
    phase: float
    duration_ns: int
    timeout_ns: int
    seed: int
    policy: dict[str, Any] | None = None


class Generator:
    """The event loop of one endpoint; a kind overrides what follows :meth:`run`."""

    def __init__(self, settings: Settings) -> None:
        self._endpoint = settings.endpoint
        self._due = deque(
            schedule(
                settings.arrivals,
                rate=settings.rate,
                duration_ns=settings.duration_ns,
                seed=settings.seed,
                endpoint=settings.endpoint,
                phase=settings.phase,
            )
        )
        self._in_flight = in_flight(settings.arrivals) or 0
        self._policy = policy(settings.policy) if settings.policy is not None else None
        self._number = 0
        self._lost_before = 0
        self._record = lifecycle.open_record(Path(settings.record))
        self.ledger = Ledger(settings.timeout_ns, self._record.write)
        self._commands = lifecycle.Commands()
        self._start: dict[str, int] | None = None
        self._next_progress = 0

    def run(self) -> None:
        """Get ready, announce it, wait for the start, send until the end, drain, report. Raises WorkloadError."""
        try:
            self.get_ready()
            # What is alive now stays alive: the collector need not look at it again during the run.
            gc.collect()
            gc.freeze()
            if not self.stopped:
                announce("ready")
            while self._start is None and not self.stopped:
                self.wait(None)
            if self._start is not None:
                self._send_and_drain(**self._start)
        finally:
            self.close()
            self.ledger.close(time.monotonic_ns())
            self._record.close()
        announce("done", **self._counts())

    def get_ready(self) -> None:
        """Do what the first request should not pay for. Raises WorkloadError."""

    def create(self, number: int, intended_ns: int) -> Request:
        """The request of this number, before anything is done for it."""
        raise NotImplementedError

    def issue(self, request: Request) -> None:
        """Send a request that is due, or refuse it: it must be in the ledger afterwards."""
        raise NotImplementedError

    @property
    def readers(self) -> Sequence[Any]:
        """What to watch for reading."""
        raise NotImplementedError

    @property
    def writers(self) -> Sequence[Any]:
        """What to watch for writing."""
        raise NotImplementedError

    @property
    def wake_ns(self) -> int | None:
        """When :meth:`drive` has something to do without any descriptor being ready, or None."""
        return None

    def drive(self, readable: Sequence[object], writable: Sequence[object]) -> None:
        """Do what is due. The arguments are what the wait returned."""
        raise NotImplementedError

    def close(self) -> None:
        """Close all connections."""
        raise NotImplementedError

    @property
    def stopped(self) -> bool:
        """Whether standard input has ended: stop now."""
        return self._commands.closed

    def wait(self, until_ns: int | None) -> None:
        """Sleep until ``until_ns`` or until something can be done, and do it."""
        times = [time for time in (until_ns, self.wake_ns) if time is not None]
        patience = max(0, min(times) - time.monotonic_ns()) / SECOND if times else None
        readable, writable, _ = select.select([self._commands, *self.readers], self.writers, [], patience)
        self.drive(readable, writable)
        if self._commands in readable:
            for command in self._commands.read():
                try:
                    self._start = {name: int(command[name]) for name in ("t0_ns", "end_ns", "drain_ns")}
                except (KeyError, TypeError, ValueError):
                    raise WorkloadError(f"standard input: not the start of a workload: {command}") from None

    def _send_and_drain(self, t0_ns: int, end_ns: int, drain_ns: int) -> None:
        now = time.monotonic_ns()
        while self._due and t0_ns + self._due[-1] >= end_ns:
            self._due.pop()
        while not self.stopped and now < end_ns + drain_ns:
            if self._due and t0_ns + self._due[0] <= now:
                self._take_up(self._next_request(t0_ns))
            self._continue_closed_loop(t0_ns, end_ns)
            self._report(now)
            if now >= end_ns and not self._due and not self.ledger.waiting:
                break
            wake = [end_ns if now < end_ns else end_ns + drain_ns, self._next_progress]
            if self._due:
                wake.append(t0_ns + self._due[0])
            if (expiry := self.ledger.next_expiry_ns) is not None:
                wake.append(expiry)
            self.wait(min(wake))
            now = time.monotonic_ns()
            self.ledger.expire(now)
        while self._due and t0_ns + self._due[0] <= now:
            # Requests that were due but whose turn never came are lost, not forgotten.
            self.ledger.refuse(self._next_request(t0_ns), "the endpoint was too busy to send it before the run ended")

    def _next_request(self, t0_ns: int) -> Request:
        request = self.create(self._number, t0_ns + self._due.popleft())
        self._number += 1
        return request

    def _take_up(self, request: Request) -> None:
        now = time.monotonic_ns()
        if self._policy is not None:
            decision = self._policy.decide(now, self.ledger.latency_ns(now))
            request.scale = decision.scale
            if not decision.send:
                self.ledger.skip(request)
                return
        request.started_ns = now
        self.issue(request)

    def _continue_closed_loop(self, t0_ns: int, end_ns: int) -> None:
        while len(self._due) + self.ledger.waiting < self._in_flight:
            lost = self.ledger.lost > self._lost_before
            self._lost_before += lost
            due = time.monotonic_ns() + (_PAUSE_AFTER_LOSS if lost else 0)
            if due >= end_ns:
                break
            bisect.insort(self._due, due - t0_ns)

    def _report(self, now: int) -> None:
        if now >= self._next_progress:
            self._next_progress = now + _PROGRESS_INTERVAL
            announce("progress", **self._counts())

    def _counts(self) -> dict[str, int]:
        ledger = self.ledger
        return {
            "sent": ledger.issued,
            "completed": ledger.completed,
            "timed_out": ledger.timed_out,
            "lost": ledger.lost,
            "skipped": ledger.skipped,
            "reduced": ledger.reduced,
        }
