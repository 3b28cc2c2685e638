"""Congestion control laws as functions of this process, and a bottleneck in which they are tried."""

import ctypes
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed.laws.law import load_shipped, read

APP_LIMITED, WINDOW_LIMITED, REPAIR = 1, 2, 4
LOSS, TIMEOUT = 0, 1
UNLIMITED = 0x7FFFFFFF
MSS = 1448


class Window(ctypes.Structure):
    _fields_ = [("cwnd", ctypes.c_uint32), ("ssthresh", ctypes.c_uint32), ("pacing_rate", ctypes.c_uint64)]


class Sample(ctypes.Structure):
    _fields_ = [
        ("now_us", ctypes.c_uint64),
        *[
            (name, ctypes.c_uint32)
            for name in (
                "acked",
                "lost",
                "in_flight",
                "prior_in_flight",
                "rtt_us",
                "srtt_us",
                "delivered",
                "rate_delivered",
                "rate_interval_us",
                "mss",
                "flags",
            )
        ],
    ]


class HostLaw:
    """A connection under a law, shipped (its name) or not (its header)."""

    def __init__(self, law: str | Path, *, cwnd: int = 10, ssthresh: int = UNLIMITED) -> None:
        found = load_shipped()[law] if isinstance(law, str) else read(law)
        self._library = ctypes.CDLL(str(found.compiled("host")))
        self.owns_window = bool(ctypes.c_uint32.in_dll(self._library, "cellbed_law_owns_window").value)
        size = ctypes.c_uint32.in_dll(self._library, "cellbed_law_size").value
        self._state = ctypes.create_string_buffer(max(size, 1))
        self.window = Window(cwnd, ssthresh, 0)
        self._library.cellbed_law_init(self._state, ctypes.byref(self.window))

    def ack(self, now_s: float, **values: Any) -> int:
        """Acknowledge one segment, or as `values` has it, that was limited by the window; returns the window."""
        given = {"acked": 1, "mss": MSS, "flags": WINDOW_LIMITED, **values}
        sample = Sample(now_us=round(now_s * 1e6), **given)
        self._library.cellbed_law_ack(self._state, ctypes.byref(self.window), ctypes.byref(sample))
        return int(self.window.cwnd)

    def event(self, event: int) -> None:
        self._library.cellbed_law_event(self._state, ctypes.byref(self.window), ctypes.c_uint32(event))

    def shown(self) -> list[int]:
        """Return the variables of LAW_SHOWN."""
        values = (ctypes.c_uint64 * 4)()
        self._library.cellbed_law_show(self._state, values)
        return list(values)


@dataclass(frozen=True, slots=True)
class Driven:
    """Results of `drive` over its second half.

    utilisation: share of the bottleneck. mean_rtt: seconds. losses: segments, in all of it.
    """

    utilisation: float
    mean_rtt: float
    losses: int


def drive(
    law: HostLaw, *, packets_per_s: float, rtt: float, queue: int, duration: float, ssthresh: int = UNLIMITED
) -> Driven:
    """Send over a bottleneck with a drop-tail queue; each lost segment is found a round trip later, once per window.

    packets_per_s: capacity. rtt: base round trip, seconds. queue: segments.
    """
    now, busy_until, delivered, lost, sent_at = 0.0, 0.0, 0, 0, 0.0
    service = 1 / packets_per_s
    # Of each segment in flight: when its acknowledgement arrives, when it was sent, deliveries then, and at what time.
    flight: deque[tuple[float, float, int, float, bool]] = deque()
    delivered_at, srtt, recovery_end = 0.0, 0.0, -1.0
    arrived, delays = 0, []
    while now < duration:
        rate = law.window.pacing_rate / MSS
        while len(flight) < law.window.cwnd and (not rate or sent_at <= now):
            backlog = max(0.0, busy_until - now) * packets_per_s
            if backlog >= queue:
                flight.append((now + rtt + backlog * service, now, delivered, delivered_at, False))
            else:
                busy_until = max(busy_until, now) + service
                flight.append((busy_until + rtt, now, delivered, delivered_at, True))
            sent_at = max(sent_at, now) + (1 / rate if rate else 0)
            if len(flight) == 1:
                delivered_at = now if delivered == 0 else delivered_at
        due = flight[0][0] if flight else float("inf")
        if rate and len(flight) < law.window.cwnd and sent_at < due:
            now = sent_at
            continue
        now, began, before, before_at, whole = flight.popleft()
        if not whole:
            lost += 1
            if began >= recovery_end:
                recovery_end = now
                law.event(LOSS)
                if not law.owns_window:
                    law.window.cwnd = law.window.ssthresh
            if law.owns_window:
                law.ack(
                    now,
                    acked=0,
                    lost=1,
                    in_flight=len(flight),
                    prior_in_flight=len(flight) + 1,
                    delivered=delivered,
                    srtt_us=round(srtt * 1e6),
                    flags=REPAIR,
                )
            continue
        delivered, delivered_at = delivered + 1, now
        span = now - began
        srtt = span if not srtt else srtt + (span - srtt) / 8
        interval = max(now - before_at, span if before == 0 else 0)
        law.ack(
            now,
            in_flight=len(flight),
            prior_in_flight=len(flight) + 1,
            rtt_us=round(span * 1e6),
            srtt_us=round(srtt * 1e6),
            delivered=delivered,
            rate_delivered=delivered - before,
            rate_interval_us=round(interval * 1e6),
        )
        if now > duration / 2:
            arrived += 1
            delays.append(span)
    return Driven(arrived / (packets_per_s * duration / 2), sum(delays) / max(len(delays), 1), lost)
