"""The load generator of every kind: requests at intended times, one event loop, and a record of each outcome.

One thread and one event loop: a delay of the loop is a delay of the application and appears in the stamps. The loop
waits with select(2), whose time-outs are in microseconds; epoll's are whole milliseconds.
"""

import bisect
import gc
import heapq
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed_node import lifecycle, machine, processes
from cellbed_node.arrivals import Arrivals, in_flight, schedule
from cellbed_node.ledger import Ledger, Request
from cellbed_node.lifecycle import WorkloadError, announce
from cellbed_node.policies import policy

SECOND = 1_000_000_000
_PROGRESS_INTERVAL = SECOND // 2
_TOO_BUSY = "the endpoint was too busy to send it before the run ended"
_PAUSE_AFTER_LOSS = SECOND // 10
"""Pause after a loss: some losses are immediate, and a closed loop would spin on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The configuration of a generator. Times in nanoseconds; ``record``: file for finished requests; ``policy``: a
    table of :func:`cellbed_node.policies.policy`."""

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
    """The load of one endpoint; a kind overrides the methods after :meth:`run`.

    In a separate process, :meth:`run` is the event loop. A virtual run calls :meth:`prepare`, :meth:`start` when the
    load is :attr:`ready`, :meth:`turn` and :meth:`drive` at their times, and :meth:`finish`.
    """

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
        self._followers: list[tuple[int, int, Request]] = []  # heap of intended time, number and request
        self._lost_before = 0
        self._record = lifecycle.open_record(Path(settings.record))
        self.ledger = Ledger(settings.timeout_ns, self._record.write)
        self._t0_ns = self._end_ns = self._drain_ns = 0

    def run(self) -> None:
        """Connect on command, wait for the start, send until the end, drain, report. Raises WorkloadError."""
        commands = lifecycle.Commands()
        begun = next_progress = 0
        announce("ready")
        for command in commands.wait():
            try:
                pause_ns = int(command["connect_ns"]) - machine.now_ns()
            except (KeyError, TypeError, ValueError):
                raise WorkloadError(f"standard input: not the time to connect: {command}") from None
            time.sleep(max(0, pause_ns) / SECOND)
        try:
            if not commands.closed:
                self.prepare()
            until = machine.now_ns() + self.patience_ns
            while not self.ready and not commands.closed:
                self._wait(commands, until)
                if machine.now_ns() >= until and not self.ready:
                    raise WorkloadError(self.trouble)
            # Objects alive now live until the end: the collector need not scan them during the run.
            gc.collect()
            gc.freeze()
            if not commands.closed:
                announce("connected")
            while not begun and not commands.closed:
                for command in self._wait(commands, None):
                    try:
                        self.start(*(int(command[name]) for name in ("t0_ns", "end_ns", "drain_ns")))
                        begun = 1
                    except (KeyError, TypeError, ValueError):
                        raise WorkloadError(f"standard input: not the start of a workload: {command}") from None
            while begun and not commands.closed and (wake := self.turn()) is not None:
                if (now := machine.now_ns()) >= next_progress:
                    next_progress = now + _PROGRESS_INTERVAL
                    announce("progress", **self.counts())
                self._wait(commands, min(wake, next_progress))
        finally:
            self.finish()
        announce("done", **self.counts())

    def _wait(self, commands: lifecycle.Commands, until_ns: int | None) -> list[dict[str, Any]]:
        """Sleep until ``until_ns`` or an event; process the event and return the received commands."""
        times = [time for time in (until_ns, self.wake_ns) if time is not None]
        patience = max(0, min(times) - machine.now_ns()) / SECOND if times else None
        readable, writable, _ = select.select([commands, *self.readers], self.writers, [], patience)
        self.drive(readable, writable)
        return commands.read() if commands in readable else []

    def prepare(self) -> None:
        """Do the work that must not delay the first request. Raises WorkloadError."""

    @property
    def ready(self) -> bool:
        """Return whether requests can be sent now."""
        return True

    @property
    def patience_ns(self) -> int:
        """The time limit for becoming ready."""
        return 0

    @property
    def trouble(self) -> str:
        """The reason for not being ready."""
        return ""

    def create(self, number: int, intended_ns: int) -> Request:
        """Return the request of this number, before it is issued."""
        raise NotImplementedError

    def issue(self, request: Request) -> None:
        """Send or refuse a due request. Afterwards it must be in the ledger."""
        raise NotImplementedError

    @property
    def readers(self) -> Sequence[Any]:
        """The sockets to watch for reading."""
        raise NotImplementedError

    @property
    def writers(self) -> Sequence[Any]:
        """The sockets to watch for writing."""
        raise NotImplementedError

    @property
    def wake_ns(self) -> int | None:
        """Time of the next call of :meth:`drive` if no descriptor is ready before, or None."""
        return None

    def drive(self, readable: Sequence[object], writable: Sequence[object]) -> None:
        """Process due events. The arguments are the ready objects."""
        raise NotImplementedError

    def close(self) -> None:
        """Close all connections."""
        raise NotImplementedError

    def start(self, t0_ns: int, end_ns: int, drain_ns: int) -> None:
        """Set the times: requests are due from `t0_ns` until `end_ns`; replies are awaited `drain_ns` longer."""
        self._t0_ns, self._end_ns, self._drain_ns = t0_ns, end_ns, drain_ns
        while self._due and t0_ns + self._due[-1] >= end_ns:
            self._due.pop()

    def turn(self) -> int | None:
        """Process all that is due by now. Return the latest time of the next call, or None when the load is over."""
        now, stop_ns = machine.now_ns(), self._end_ns + self._drain_ns
        self.ledger.expire(now)
        if now >= stop_ns:
            return None
        if self._due and self._t0_ns + self._due[0] <= now:
            self._take_up(self._next_request())
        while now >= self._end_ns and self._followers and self._followers[0][0] >= self._end_ns:
            heapq.heappop(self._followers)
        if self._followers and self._followers[0][0] <= now:
            self._take_up(heapq.heappop(self._followers)[-1])
        if self._in_flight:
            self._continue_closed_loop()
        if now >= self._end_ns and not self._due and not self._followers and not self.ledger.waiting:
            return None
        wake = [self._end_ns if now < self._end_ns else stop_ns]
        if self._due:
            wake.append(self._t0_ns + self._due[0])
        if self._followers:
            wake.append(self._followers[0][0])
        if (expiry := self.ledger.next_expiry_ns) is not None:
            wake.append(expiry)
        return min(wake)

    @property
    def due_ns(self) -> int | None:
        """Time of the next request of the schedule, unless replies or the number of requests can have effects before
        it, in :meth:`turn`."""
        others = self._followers or self._in_flight or self.ledger.timed_out
        return self._t0_ns + self._due[0] if self._due and not others else None

    def finish(self) -> None:
        """Close connections and record the open requests."""
        now = machine.now_ns()
        while self._end_ns and self._due and self._t0_ns + self._due[0] <= now:
            # Due requests that were never taken up are recorded as lost.
            self.ledger.refuse(self._next_request(), _TOO_BUSY)
        for due_ns, _, request in self._followers:
            if due_ns < min(now, self._end_ns):
                self.ledger.refuse(request, _TOO_BUSY)
        self.close()
        self.ledger.close(machine.now_ns())
        self._record.close()

    def follow(self, request: Request) -> None:
        """Send a request at its intended time, besides the schedule, unless the load has ended. Until then a closed
        loop counts the request as in flight."""
        heapq.heappush(self._followers, (request.intended_ns, request.request, request))

    def take_number(self) -> int:
        """Return the number of the next request."""
        self._number += 1
        return self._number - 1

    def write_in_blocks(self) -> None:
        """Write records in blocks instead of lines: for a node that cannot crash."""
        self._record.reconfigure(line_buffering=False)

    def _next_request(self) -> Request:
        return self.create(self.take_number(), self._t0_ns + self._due.popleft())

    def _take_up(self, request: Request) -> None:
        now = machine.now_ns()
        if self._policy is not None:
            decision = self._policy.decide(now, self.ledger.latency_ns(now))
            request.scale = decision.scale
            if not decision.send:
                self.ledger.skip(request)
                return
        request.started_ns = now
        self.issue(request)

    def _continue_closed_loop(self) -> None:
        while len(self._due) + len(self._followers) + self.ledger.waiting < self._in_flight:
            lost = self.ledger.lost > self._lost_before
            self._lost_before += lost
            due = machine.now_ns() + (_PAUSE_AFTER_LOSS if lost else 0)
            if due >= self._end_ns:
                break
            bisect.insort(self._due, due - self._t0_ns)

    def counts(self) -> dict[str, int]:
        """Number of requests so far, by outcome."""
        ledger = self.ledger
        return {
            "sent": ledger.issued,
            "completed": ledger.completed,
            "failed": ledger.failed,
            "timed_out": ledger.timed_out,
            "lost": ledger.lost,
            "skipped": ledger.skipped,
            "reduced": ledger.reduced,
        }


def program(load: Callable[[Any], Generator], settings: Callable[..., Any]) -> Callable[[dict[str, Any]], None]:
    """Return the ``main`` of a load generator's program. settings: class of its configuration, which `load` takes."""

    def main(config: dict[str, Any]) -> None:
        processes.wake_precisely()
        load(settings(**config)).run()

    return main
