"""The current state of links, read from a running emulator and shown in a terminal (``cellbed meter``)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cellbed.support.errors import printable

INTERVAL_NS = 100_000_000
"""Default of the minimum time between two readings."""
WINDOW_NS = 1_000_000_000
"""Time over which rates are averaged."""

Status = dict[str, Any]
"""The emulator's reply to ``{"do":"status"}``."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of one direction.

    bit_rate: bit/s of IP packets delivered in the last second. queue_bytes, queue_packets: length of the bottleneck
    queue. delay_ms, longest_ms: mean and maximum one-way delay in the last 100 ms with packets; ``None`` if the last
    second had no packets. dropped: packets by reason. marked: packets marked by ECN (RFC 3168). closed: outage.
    """

    direction: str
    bit_rate: float
    queue_bytes: int
    queue_packets: int
    delay_ms: float | None
    longest_ms: float | None
    dropped: dict[str, int]
    marked: int = 0
    closed: bool = False


class Meter:
    """A meter of the links of a running emulator.

    status: requests the emulator's status. directions: names of the directions to read, in this order; empty for all.
    since_now: count drops and marks from now on instead of from the emulator's start. interval_ns: minimum time between
    two readings.
    """

    def __init__(
        self,
        status: Callable[[], Status],
        directions: Sequence[str] = (),
        *,
        since_now: bool = False,
        interval_ns: int = INTERVAL_NS,
    ) -> None:
        self._status = status
        self._directions = directions
        self._interval_ns = interval_ns
        first = status()
        self._before = _directions_by_name(first) if since_now else {}
        self._history = deque([(int(first["time_ns"]), _delivery_counts(first))])
        self._next_ns = 0

    def read(self, now_ns: int) -> list[Reading] | None:
        """Return the readings at monotonic time `now_ns`, or ``None`` too early after the last readings.

        Errors: errors of the status request.
        """
        if now_ns < self._next_ns:
            return None
        self._next_ns = now_ns + self._interval_ns
        status = self._status()
        time_ns = int(status["time_ns"])
        self._history.append((time_ns, _delivery_counts(status)))
        # The oldest entry kept is the latest that is at least a window old.
        while len(self._history) > 2 and self._history[1][0] <= time_ns - WINDOW_NS:
            self._history.popleft()
        by_name = _directions_by_name(status)
        return [self._read_direction(by_name[name]) for name in self._directions or by_name]

    def _read_direction(self, now: dict[str, Any]) -> Reading:
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
            now.get("closed", False),
        )


def _directions_by_name(status: Status) -> dict[str, dict[str, Any]]:
    return {str(direction["name"]): direction for direction in status["directions"]}


def _delivery_counts(status: Status) -> dict[str, int]:
    return {str(direction["name"]): int(direction["delivered_bytes"]) for direction in status["directions"]}


_HEADING = "  Mbit/s  queue kB  packets  delay ms  longest  dropped"


def table(readings: Sequence[Reading], columns: int, rows: int, indent: str = "") -> list[str]:
    """Return a heading and a row per direction, in at most `rows` lines of less than `columns` characters.

    If not all directions fit, the table shows the busiest, and the total number in a last line.
    """
    width = max((len(reading.direction) for reading in readings), default=0)
    shown = _busiest(readings, max(0, rows - 1 if len(readings) < rows else rows - 2))
    lines = [f"{indent}{'':{width}}{_HEADING}", *(f"{indent}{_row(reading, width)}" for reading in shown)]
    if len(shown) < len(readings):
        lines = [*lines, f"{indent}… {len(readings)} directions"][: max(0, rows)]
    return [printable(line)[: columns - 1] for line in lines]


def sentence(readings: Sequence[Reading]) -> str:
    """Return all directions in one line; if there are more than 16, the busiest."""
    shown = _busiest(readings, 16)
    more = f"; and {len(readings) - len(shown)} more directions" if len(shown) < len(readings) else ""
    return "; ".join(f"{reading.direction} {', '.join(_fields(reading))}" for reading in shown) + more


def _busiest(readings: Sequence[Reading], most: int) -> list[Reading]:
    """Return the `most` busiest readings in their order: closed directions first, then high rates and queues."""

    def load(index: int) -> tuple[bool, float]:
        reading = readings[index]
        return reading.closed, reading.bit_rate + 8 * reading.queue_bytes

    chosen = sorted(range(len(readings)), key=load, reverse=True)[:most]
    return [readings[index] for index in sorted(chosen)]


def _row(reading: Reading, width: int) -> str:
    delay = "—" if reading.delay_ms is None else f"{reading.delay_ms:.1f}"
    longest = "—" if reading.longest_ms is None else f"{reading.longest_ms:.1f}"
    return (
        f"{reading.direction:{width}}{reading.bit_rate / 1e6:8.2f}  {reading.queue_bytes / 1e3:8.1f}"
        f"  {reading.queue_packets:7d}  {delay:>8}  {longest:>7}  {_drops(reading)}"
    )


def _fields(reading: Reading) -> list[str]:
    fields = [
        f"{reading.bit_rate / 1e6:.2f} Mbit/s",
        f"queue {reading.queue_bytes / 1e3:.1f} kB in {reading.queue_packets} packets",
    ]
    if reading.delay_ms is not None and reading.longest_ms is not None:
        fields.append(f"delay {reading.delay_ms:.1f} ms, at most {reading.longest_ms:.1f} ms")
    return [*fields, f"dropped {_drops(reading)}"]


def _drops(reading: Reading) -> str:
    dropped = ", ".join(f"{count} {why}" for why, count in reading.dropped.items()) or "none"
    marked = f", {reading.marked} marked" if reading.marked else ""
    return dropped + marked + (", outage" if reading.closed else "")


REDRAW_S = 0.2
"""Interval between updates of a display, seconds."""

_LEAST_LINES = 4
"""Minimum number of terminal lines left for the command."""


def display(descriptor: int, *, below: bool = False) -> Lines | InPlace | Below:
    """Return the display for a file descriptor.

    below: whether a command uses the terminal; if so, the display reserves the last lines.
    """
    if not os.isatty(descriptor) or os.environ.get("TERM") == "dumb":
        return Lines(descriptor)
    return Below(descriptor) if below else InPlace(descriptor)


class Lines:
    """A display for files and pipes: one line per second."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._next_s = 1.0

    def show(self, elapsed_s: float, readings: Sequence[Reading]) -> None:
        """Write a line, at most once per second. elapsed_s: time since the start of the meter."""
        if elapsed_s >= self._next_s:
            self._next_s = int(elapsed_s) + 1.0
            _write(self._descriptor, f"{elapsed_s:.0f} s: {sentence(readings)}\n")

    def close(self) -> None:
        """Do nothing."""


class InPlace:
    """A display for a whole terminal: a table that is redrawn in place."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._drawn = 0

    def show(self, elapsed_s: float, readings: Sequence[Reading]) -> None:
        """Redraw the table."""
        lines, columns = _size(self._descriptor)[:2]
        rows = table(readings, columns, lines - 1)
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        _write(self._descriptor, f"\r{up}\x1b[J" + "".join(f"{row}\r\n" for row in rows))
        self._drawn = len(rows)

    def close(self) -> None:
        """Do nothing: the last table stays."""


class Below:
    """A display in the last lines of a terminal, below a running command.

    Two settings reserve the lines: the scrolling region of the terminal excludes them (DECSTBM of the VT100), and so
    does the size that the kernel reports (TIOCSWINSZ), for full-screen programs. Each drawing repeats the settings,
    because programs reset them. A terminal can have one such display.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines = 0
        """Lines of the whole terminal."""
        self._given: tuple[int, ...] = ()
        """Size that the command sees."""
        self._reserved = 0

    def show(self, elapsed_s: float, readings: Sequence[Reading]) -> None:
        """Draw the table in the reserved lines."""
        self._fit(len(readings) + 1)
        if not self._reserved:
            return
        columns = self._given[1]
        rows = table(readings, columns, self._reserved)
        first = self._lines - self._reserved + 1
        # The terminal's save and restore of the cursor include colours, character set and origin mode (DECSC, DECRC).
        drawn = "".join(f"\x1b[{first + index};1H\x1b[2K{row}" for index, row in enumerate(rows))
        _write(self._descriptor, f"\x1b7\x1b[1;{first - 1}r\x1b[m\x0f\x1b(B{drawn}\x1b8")

    def close(self) -> None:
        """Give the reserved lines back to the command."""
        if not self._reserved:
            return
        first = self._lines - self._reserved + 1
        _write(self._descriptor, f"\x1b7\x1b[r\x1b[{first};1H\x1b[m\x1b[J\x1b8")
        if _size(self._descriptor) == self._given:
            _resize(self._descriptor, (self._lines, *self._given[1:]))
        self._reserved = 0

    def _fit(self, wanted: int) -> None:
        """Reserve `wanted` lines if no lines are reserved, or if the terminal was resized."""
        now = _size(self._descriptor)
        if self._reserved and now == self._given:
            return
        self._lines = now[0]
        self._reserved = wanted if self._lines - wanted >= _LEAST_LINES else 0
        if self._reserved:
            self._given = (self._lines - self._reserved, *now[1:])
            # Scroll up the contents of the last lines, together with the cursor (IND, CUU).
            _write(self._descriptor, "\x1b7\x1b[r\x1b8" + "\x1bD" * self._reserved + f"\x1b[{self._reserved}A")
            _resize(self._descriptor, self._given)


def _size(descriptor: int) -> tuple[int, ...]:
    """Return the lines and columns of a terminal, and its width and height in pixels."""
    try:
        size = struct.unpack("HHHH", fcntl.ioctl(descriptor, termios.TIOCGWINSZ, bytes(8)))
    except OSError:
        return (24, 80, 0, 0)
    return size if size[0] and size[1] else (24, 80, *size[2:])


def _resize(descriptor: int, size: tuple[int, ...]) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", *size))


def _write(descriptor: int, text: str) -> None:
    """Write a text at once, so that no other output interleaves. Errors: ``OSError`` if the terminal is closed."""
    data = text.encode()
    while data:
        data = data[os.write(descriptor, data) :]
