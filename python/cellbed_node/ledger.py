"""The outcome of each request: open ones in memory, finished ones as lines of a record. Pure: times are arguments."""

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["ok", "late", "failed", "timed-out", "lost", "skipped"]
MOST_OPEN = 100_000
"""Open requests that are remembered; beyond it the oldest that timed out is given up, so memory has a bound."""


@dataclass(slots=True)
class Request:
    """One request and all that is known of it; the fields are the record's, in its order. Kinds add theirs.

    Times are CLOCK_MONOTONIC nanoseconds. ``uplink_*`` and ``downlink_*`` are offsets into the two byte streams of the
    TCP connection between ``local_port`` and ``remote_port``, 0 being the first byte after the SYN: the whole message
    with its headers, half-open; over UDP they are numbers of datagrams (``udp.py``). ``accepted_ns``: TCP has taken the
    first byte; ``buffer_full_ns``: for how much of the time from ``sent_ns`` to then its send buffer was full.
    ``bytes_up`` and ``bytes_down`` are payloads. ``scale``: share of the payload's width and height that a policy left,
    1 for all. None: it did not come to that.
    """

    request: int
    endpoint: str
    intended_ns: int
    started_ns: int | None = None
    sent_ns: int | None = None
    accepted_ns: int | None = None
    buffer_full_ns: int | None = None
    uplink_start: int | None = None
    uplink_end: int | None = None
    local_port: int | None = None
    remote_port: int | None = None
    reply_ns: int | None = None
    downlink_start: int | None = None
    downlink_end: int | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    scale: float = 1.0
    status: Status = "lost"
    error: str | None = None
    tcp: dict[str, int] | None = None

    def record(self) -> dict[str, Any]:
        """Return the fields of its record."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class Ledger:
    """The requests of one endpoint.

    A request is *ok* with a good reply within ``timeout_ns`` of its intended time, *late* with one after it, *failed*
    if its reply was an error, whenever that came, *timed-out* without a reply by then, *lost* when its connection broke
    or the run ended before, *skipped* if a policy decided not to send it. Each is written once, when that is final: a
    request that timed out stays open until the end, because a late reply may still come.

    ``write`` takes one line of JSON. issued, completed (ok or late), failed, timed_out (without a reply so far), lost,
    skipped (not issued) and reduced (issued with a scale below 1) count. on_reply: called after each reply.
    """

    def __init__(self, timeout_ns: int, write: Callable[[str], object], most_open: int = MOST_OPEN) -> None:
        self._timeout_ns = timeout_ns
        self._write = write
        self._most_open = most_open
        self._open: dict[int, Request] = {}
        self._unexpired: deque[Request] = deque()  # in order of intended time, and so of expiry
        self._expired: set[int] = set()
        self._last_latency_ns: int | None = None
        self.on_reply: Callable[[], object] = lambda: None
        self.issued = self.completed = self.failed = self.timed_out = self.lost = self.skipped = self.reduced = 0

    @property
    def waiting(self) -> int:
        """Open requests that have not timed out: a reply within its time is still possible."""
        return len(self._open) - len(self._expired)

    @property
    def next_expiry_ns(self) -> int | None:
        """When the next open request times out."""
        self._forget_finished()
        return self._unexpired[0].intended_ns + self._timeout_ns if self._unexpired else None

    def latency_ns(self, now: int) -> int | None:
        """Return the latency that a policy observes at `now`, from intended times: of the last reply or time-out, or
        the age of the oldest request that waits if that is greater. None before any."""
        self._forget_finished()
        ages = [now - self._unexpired[0].intended_ns] if self._unexpired else []
        known = [self._last_latency_ns] if self._last_latency_ns is not None else []
        return max(ages + known, default=None)

    def add(self, request: Request) -> None:
        """``request`` is open from now on."""
        self._issue(request)
        self._open[request.request] = request
        self._unexpired.append(request)

    def find(self, number: int) -> Request | None:
        """Return the open request of this number."""
        return self._open.get(number)

    def reply(self, number: int, now: int, *, error: str | None, start: int, end: int, payload: int) -> None:
        """The reply to request ``number`` is complete. A reply to no open request is ignored.

        start, end: its bytes in the downlink's stream. error: what it reports instead of a result.
        """
        request = self._open.pop(number, None)
        if request is None:
            return
        request.reply_ns, request.downlink_start, request.downlink_end = now, start, end
        request.bytes_down, request.error = payload, error
        if number in self._expired:
            self._expired.remove(number)
            self.timed_out -= 1
        self.completed += error is None
        self.failed += error is not None
        self._last_latency_ns = now - request.intended_ns
        in_time = now - request.intended_ns <= self._timeout_ns
        self._finish(request, "failed" if error is not None else "ok" if in_time else "late")
        self.on_reply()

    def lose(self, number: int, error: str) -> None:
        """Request ``number`` gets no reply any more, for this reason; timed out if its time is over already."""
        if number in self._open:
            self._give_up(number, error)

    def refuse(self, request: Request, error: str) -> None:
        """``request`` was due but never sent: lost, for this reason."""
        self._issue(request)
        self.lost += 1
        request.error = error
        self._finish(request, "lost")

    def skip(self, request: Request) -> None:
        """``request`` was due and a policy decided not to send it."""
        self.skipped += 1
        self._finish(request, "skipped")

    def expire(self, now: int) -> None:
        """Count what has timed out by ``now``."""
        while (expiry := self.next_expiry_ns) is not None and expiry <= now:
            request = self._unexpired.popleft()
            self._expired.add(request.request)
            self.timed_out += 1
            self._last_latency_ns = self._timeout_ns
        while len(self._open) > self._most_open and self._expired:
            self._give_up(min(self._expired), "no reply")

    def connection_lost(self, now: int) -> None:
        """The connection broke: what is open gets no reply any more."""
        self._close(now, "the connection broke")

    def close(self, now: int) -> None:
        """The run is over: write what is still open."""
        self._close(now, "the run ended")

    def _issue(self, request: Request) -> None:
        self.issued += 1
        self.reduced += request.scale < 1

    def _close(self, now: int, reason: str) -> None:
        self.expire(now)
        for number in list(self._open):
            self._give_up(number, "no reply" if number in self._expired else reason)
        self._unexpired.clear()

    def _give_up(self, number: int, error: str) -> None:
        request = self._open.pop(number)
        request.error = error
        if number in self._expired:
            self._expired.remove(number)
            self._finish(request, "timed-out")
        else:
            self.lost += 1
            self._finish(request, "lost")

    def _finish(self, request: Request, status: Status) -> None:
        request.status = status
        self._write(json.dumps(request.record(), separators=(",", ":")) + "\n")

    def _forget_finished(self) -> None:
        while self._unexpired and self._unexpired[0].request not in self._open:
            self._unexpired.popleft()
