"""What the links of a run do at this moment: rate, queue, delay, drops.

The emulator's status tells queues and drops; bytes and delays come from the packet log, which it writes ten times a
second. The window therefore ends a little before now.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cellbed.packetlog.log import Records
from cellbed.packetlog.tail import Tail
from cellbed.testbed.emulator import Emulator

INTERVAL_NS = 100_000_000
WINDOW_NS = 1_000_000_000
LAG_NS = 200_000_000
"""How long a record may take from the emulator to the disk: two flushes."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One direction. bit_rate: of IP packets delivered in the window; queue_bytes: now, `None` where unknown;
    delay_ms, longest_ms: median and longest one-way delay of these packets, `None` where there were none; dropped:
    packets since the start of the schedule, by reason."""

    direction: str
    bit_rate: float
    queue_bytes: int | None
    delay_ms: float | None
    longest_ms: float | None
    dropped: dict[str, int]


def read_window(
    names: Sequence[str], records: Records, status: dict[str, dict[str, Any]], before: dict[str, dict[str, Any]]
) -> list[Reading]:
    """A reading for each of `names`, which the field `direction` counts.

    records: of the packets that departed within one window. status, before: the emulator's account by direction, now
    and at the start.
    """
    delivered = records[records["drop"] == 0]
    readings = []
    for index, name in enumerate(names):
        of = delivered[delivered["direction"] == index]
        delay = (of["departed"] - of["arrived"]) / 1e6
        now, then = status.get(name, {}), before.get(name, {}).get("dropped", {})
        dropped = {why: n for why, total in now.get("dropped", {}).items() if (n := total - then.get(why, 0)) > 0}
        readings.append(
            Reading(
                name,
                float(of["bytes"].sum(dtype=np.int64)) * 8e9 / WINDOW_NS,
                now.get("queue_bytes"),
                float(np.median(delay)) if len(of) else None,
                float(delay.max()) if len(of) else None,
                dropped,
            )
        )
    return readings


class Meter:
    """Reads the links of a running emulator. Use as a context manager, made at the start of the schedule.

    names: of the directions, in the order of the emulator's configuration.
    """

    def __init__(self, emulator: Emulator, names: Sequence[str], packet_log: Path) -> None:
        self._emulator = emulator
        self._names = names
        self._tail = Tail(packet_log)
        self._recent = self._tail.read()
        self._before = self._status()
        self._next_ns = 0

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._tail.close()

    def read(self, now_ns: int) -> list[Reading] | None:
        """The readings of all directions at monotonic time `now_ns`; `None` within 100 ms of the last ones."""
        if now_ns < self._next_ns:
            return None
        self._next_ns = now_ns + INTERVAL_NS
        end = now_ns - LAG_NS
        recent = np.concatenate([self._recent, self._tail.read()])
        self._recent = recent[recent["departed"] > end - WINDOW_NS]
        window = self._recent[self._recent["departed"] <= end]
        return read_window(self._names, window, self._status(), self._before)

    def _status(self) -> dict[str, dict[str, Any]]:
        directions = self._emulator.command({"do": "status"}, "status")["directions"]
        return {str(direction["name"]): direction for direction in directions}
