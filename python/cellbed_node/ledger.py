"""The outcome of each request: open ones in memory, finished ones as lines of a record. Pure: times are arguments."""

import json
import math
import operator
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["ok", "late", "failed", "timed-out", "lost", "skipped"]
_encode = json.JSONEncoder(separators=(",", ":")).encode
_encoders: dict[type, Callable[[Any], str]] = {
    str: json.encoder.encode_basestring_ascii,
    float: lambda value: float.__repr__(value) if math.isfinite(value) else _encode(value),
}
"""By type: functions that return the JSON of a value, faster than `_encode`."""
MOST_OPEN = 100_000
"""Maximum open requests; beyond it the oldest timed-out request is closed, so that memory is bounded."""


@dataclass(slots=True)
class Request:
    """The data of one request; the fields are the columns of the record, in order. Kinds add fields.

    Times are CLOCK_MONOTONIC nanoseconds. ``uplink_*`` and ``downlink_*`` are half-open ranges of the whole message,
    with headers, in the two byte streams of the TCP connection between ``local_port`` and ``remote_port``; offset 0 is
    the first byte after the SYN. Over UDP they are numbers of datagrams (``udp.py``). ``accepted_ns``: when TCP
    accepted the first byte; ``buffer_full_ns``: time from ``sent_ns`` to ``accepted_ns`` with a full send buffer.
    ``bytes_up`` and ``bytes_down`` are payloads. ``scale``: share of the payload's width and height after a policy, 1
    for all. None: the step was not reached.
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

    unrecorded = frozenset[str]()
    """Fields that are not columns of the record."""

    def line(self) -> str:
        """Return the line of the request's record: its fields as JSON."""
        form, values = _forms.get(self.__class__) or _form(self.__class__)
        texts = [
            each if type(each) is int else "null" if each is None else _encoders.get(type(each), _encode)(each)
            for each in values(self)
        ]
        return form % tuple(texts)


_Form = tuple[str, Callable[[Request], tuple[Any, ...]]]
_forms: dict[type[Request], _Form] = {}
"""By class: the format of a record's line, and a function for its values. They are faster than an encoder of JSON."""


def _form(kind: type[Request]) -> _Form:
    names = [name for name in kind.__dataclass_fields__ if name not in kind.unrecorded]
    columns = ",".join(f'"{name}":%s' for name in names)
    form = _forms[kind] = f"{{{columns}}}\n", operator.attrgetter(*names)
    return form


class Ledger:
    """The requests of one endpoint.

    A request is *ok* with a good reply within ``timeout_ns`` of its intended time, *late* with a good reply after it,
    *failed* with an error as reply at any time, *timed-out* without a reply by then, *lost* if its connection broke or
    the run ended before, *skipped* if a policy decided not to send it. Each request is written once, when its status is
    final. A timed-out request stays open until the end, because a late reply may still come.

    ``write`` takes one line of JSON. Counters: issued, completed (ok or late), failed, timed_out (without a reply so
    far), lost, skipped (not issued) and reduced (issued with a scale below 1). on_reply: called after each reply.
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
        """Number of open requests that have not timed out: their replies may still be in time."""
        return len(self._open) - len(self._expired)

    @property
    def next_expiry_ns(self) -> int | None:
        """Time at which the next open request times out."""
        unexpired, known = self._unexpired, self._open
        while unexpired and unexpired[0].request not in known:
            unexpired.popleft()
        return unexpired[0].intended_ns + self._timeout_ns if unexpired else None

    def latency_ns(self, now: int) -> int | None:
        """Return the latency that a policy observes at `now`, from intended times: of the last reply or time-out, or
        the age of the oldest waiting request if greater. None before any request."""
        expiry = self.next_expiry_ns
        ages = [now - (expiry - self._timeout_ns)] if expiry is not None else []
        known = [self._last_latency_ns] if self._last_latency_ns is not None else []
        return max(ages + known, default=None)

    def add(self, request: Request) -> None:
        """Open ``request``."""
        self._issue(request)
        self._open[request.request] = request
        self._unexpired.append(request)

    def find(self, number: int) -> Request | None:
        """Return the open request of this number."""
        return self._open.get(number)

    def reply(self, number: int, now: int, *, error: str | None, start: int, end: int, payload: int) -> None:
        """Process the complete reply to request ``number``; ignore a reply to no open request.

        start, end: range of the reply in the downlink's stream. error: the reported error, if any.
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
        """Close request ``number`` without a reply, for this reason; timed out if its time is over."""
        if number in self._open:
            self._give_up(number, error)

    def refuse(self, request: Request, error: str) -> None:
        """Record ``request``, which was due but never sent, as lost for this reason."""
        self._issue(request)
        self.lost += 1
        request.error = error
        self._finish(request, "lost")

    def skip(self, request: Request) -> None:
        """Record ``request``, which a policy decided not to send."""
        self.skipped += 1
        self._finish(request, "skipped")

    def expire(self, now: int) -> None:
        """Count the requests that have timed out by ``now``."""
        while (expiry := self.next_expiry_ns) is not None and expiry <= now:
            request = self._unexpired.popleft()
            self._expired.add(request.request)
            self.timed_out += 1
            self._last_latency_ns = self._timeout_ns
        while len(self._open) > self._most_open and self._expired:
            self._give_up(min(self._expired), "no reply")

    def connection_lost(self, now: int) -> None:
        """Close all open requests: the connection broke."""
        self._close(now, "the connection broke")

    def close(self, now: int) -> None:
        """Write all open requests: the run is over."""
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
        self._write(request.line())
