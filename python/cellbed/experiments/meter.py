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
from numpy.typing import NDArray

from cellbed.packetlog.log import Records
from cellbed.packetlog.tail import Tail
from cellbed.testbed.emulator import Emulator

INTERVAL_NS = 100_000_000
WINDOW_NS = 1_000_000_000
LAG_NS = 200_000_000
"""How long a record may take from the emulator to the disk: two flushes."""

Delays = NDArray[np.float32]


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


class Window:
    """Bytes and delays of the packets that were delivered within :data:`WINDOW_NS`, by direction.

    Records are put together by steps of :data:`INTERVAL_NS` as they come, because the meter shares its machine with
    what it looks at: to go through a whole second of records for every reading would cost it ten times as much.
    """

    def __init__(self) -> None:
        self._steps: dict[int, dict[int, list[tuple[int, Delays]]]] = {}

    def add(self, records: Records) -> None:
        """Take records, which may be of any time that is still to be asked for."""
        records = records[records["drop"] == 0]
        departed = records["departed"].astype(np.int64)
        key = (departed // INTERVAL_NS) << 16 | records["direction"]
        order = np.argsort(key, kind="stable")
        keys, begins = np.unique(key[order], return_index=True)
        delays = ((departed - records["arrived"]) / 1e6).astype(np.float32)[order]
        sizes = records["bytes"][order]
        for value, begin, end in zip(keys.tolist(), begins, [*begins, len(order)][1:], strict=True):
            step = self._steps.setdefault(value >> 16, {}).setdefault(value & 0xFFFF, [])
            step.append((int(sizes[begin:end].sum(dtype=np.int64)), delays[begin:end]))

    def until(self, end_ns: int) -> dict[int, tuple[int, Delays]]:
        """Bytes and delays in ms, by direction, of the window that ends with the last whole step before `end_ns`.

        Forgets what is older.
        """
        end = end_ns // INTERVAL_NS
        begin = end - WINDOW_NS // INTERVAL_NS
        self._steps = {step: content for step, content in self._steps.items() if step >= begin}
        parts: dict[int, list[tuple[int, Delays]]] = {}
        for step, content in self._steps.items():
            if step < end:
                for direction, some in content.items():
                    parts.setdefault(direction, []).extend(some)
        return {
            direction: (sum(size for size, _ in some), np.concatenate([delays for _, delays in some]))
            for direction, some in parts.items()
        }


class Meter:
    """Reads the links of a running emulator. Use as a context manager, made at the start of the schedule.

    names: of the directions, in the order of the emulator's configuration.
    """

    def __init__(self, emulator: Emulator, names: Sequence[str], packet_log: Path) -> None:
        self._emulator = emulator
        self._names = names
        self._tail = Tail(packet_log)
        self._window = Window()
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
        self._window.add(self._tail.read())
        recent = self._window.until(now_ns - LAG_NS)
        status = self._status()
        return [self._reading(name, recent.get(index), status.get(name, {})) for index, name in enumerate(self._names)]

    def _reading(self, name: str, recent: tuple[int, Delays] | None, now: dict[str, Any]) -> Reading:
        then = self._before.get(name, {}).get("dropped", {})
        dropped = {why: n for why, total in now.get("dropped", {}).items() if (n := total - then.get(why, 0)) > 0}
        size, delays = recent if recent is not None else (0, np.empty(0, np.float32))
        return Reading(
            name,
            size * 8e9 / WINDOW_NS,
            now.get("queue_bytes"),
            float(np.median(delays)) if len(delays) else None,
            float(delays.max()) if len(delays) else None,
            dropped,
        )

    def _status(self) -> dict[str, dict[str, Any]]:
        directions = self._emulator.command({"do": "status"}, "status")["directions"]
        return {str(direction["name"]): direction for direction in directions}
