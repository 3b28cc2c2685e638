"""Rate, queue, delay and drops of each direction at this moment, from the emulator's own account."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

INTERVAL_NS = 100_000_000
WINDOW_NS = 1_000_000_000

Status = dict[str, Any]
"""The emulator's answer to ``{"do":"status"}``."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One direction.

    bit_rate: of the IP packets delivered in the last second. queue_bytes, queue_packets: what waits in the bottleneck.
    delay_ms, longest_ms: mean and longest one-way delay of the packets of the last tenth of a second that had any;
    ``None`` where the last second had none. dropped: packets by reason; marked: packets marked instead (ECN, RFC 3168).
    """

    direction: str
    bit_rate: float
    queue_bytes: int
    queue_packets: int
    delay_ms: float | None
    longest_ms: float | None
    dropped: dict[str, int]
    marked: int = 0


class Meter:
    """Reads the links of a running emulator.

    status: asks the emulator. directions: names of those to read, in this order; none: all.
    since_now: count drops from now on instead of from the emulator's beginning.
    """

    def __init__(
        self, status: Callable[[], Status], directions: Sequence[str] = (), *, since_now: bool = False
    ) -> None:
        self._ask = status
        self._directions = directions
        first = status()
        self._before = _by_name(first) if since_now else {}
        self._history = deque([(int(first["time_ns"]), _delivered(first))])
        self._next_ns = 0

    def read(self, now_ns: int) -> list[Reading] | None:
        """The readings at monotonic time `now_ns`; `None` within 100 ms of the last ones.

        Errors: those of asking the emulator.
        """
        if now_ns < self._next_ns:
            return None
        self._next_ns = now_ns + INTERVAL_NS
        status = self._ask()
        time_ns = int(status["time_ns"])
        self._history.append((time_ns, _delivered(status)))
        # What is kept begins with the youngest that is at least a window old.
        while len(self._history) > 2 and self._history[1][0] <= time_ns - WINDOW_NS:
            self._history.popleft()
        found = _by_name(status)
        return [self._reading(found[name]) for name in self._directions or found]

    def _reading(self, now: dict[str, Any]) -> Reading:
        name = now["name"]
        before = self._before.get(name, {})
        dropped_before = before.get("dropped", {})
        (begin_ns, first), (end_ns, last) = self._history[0], self._history[-1]
        delay = now["delay_ns"]
        return Reading(
            name,
            (last[name] - first[name]) * 8e9 / max(1, end_ns - begin_ns),
            now["queue_bytes"],
            now["queue_packets"],
            delay["mean"] / 1e6 if delay else None,
            delay["max"] / 1e6 if delay else None,
            {why: n for why, total in now["dropped"].items() if (n := total - dropped_before.get(why, 0)) > 0},
            now["marked"] - before.get("marked", 0),
        )


def _by_name(status: Status) -> dict[str, dict[str, Any]]:
    return {str(direction["name"]): direction for direction in status["directions"]}


def _delivered(status: Status) -> dict[str, int]:
    return {str(direction["name"]): int(direction["delivered_bytes"]) for direction in status["directions"]}
