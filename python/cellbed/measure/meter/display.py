"""Where a meter is drawn: in place in a terminal, below a command that has the terminal, or as lines in a file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import Sequence
from typing import Protocol

from cellbed.measure.meter.reading import Reading
from cellbed.measure.meter.rows import sentence, table

REDRAW_S = 0.2
"""How often a display is given news."""

_LEAST_LINES = 4
"""What a command keeps of the terminal, at least."""


class Display(Protocol):
    """What shows readings."""

    def show(self, elapsed_s: float, readings: Sequence[Reading]) -> None:
        """Show them. elapsed_s: since the meter began."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def display(descriptor: int, *, below: bool = False) -> Display:
    """The display that suits a file descriptor.

    below: a command has this terminal; the last lines are kept for the meter.
    """
    if not os.isatty(descriptor) or os.environ.get("TERM") == "dumb":
        return Lines(descriptor)
    return Below(descriptor) if below else InPlace(descriptor)


class Lines:
    """One line a second, for files and pipes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._next_s = 1.0

    def show(self, elapsed_s: float, readings: Sequence[Reading]) -> None:
        """Write a line once a second."""
        if elapsed_s >= self._next_s:
            self._next_s = int(elapsed_s) + 1.0
            _write(self._descriptor, f"{elapsed_s:.0f} s: {sentence(readings)}\n")

    def close(self) -> None:
        """Nothing is to be done."""


class InPlace:
    """A table that is drawn over itself, in a terminal of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._drawn = 0

    def show(self, elapsed_s: float, readings: Sequence[Reading]) -> None:
        """Draw the table anew."""
        lines, columns = _size(self._descriptor)[:2]
        rows = table(readings, columns, lines - 1)
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        _write(self._descriptor, f"\r{up}\x1b[J" + "".join(f"{row}\r\n" for row in rows))
        self._drawn = len(rows)

    def close(self) -> None:
        """The last table stays to be read."""


class Below:
    """The last lines of a terminal in which a command runs.

    The command is kept out of them twice: the terminal scrolls only what is above (DECSTBM, ECMA-48's private
    extension of the VT100), and the terminal's size is given without them (TIOCSWINSZ), so that full-screen programs do
    not draw there. Everything is set again with each drawing, because programs reset it. Not to be had by two at once.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines = 0
        """Of the whole terminal; 0 while no lines are kept."""
        self._given: tuple[int, ...] = ()
        self._kept = 0

    def show(self, elapsed_s: float, readings: Sequence[Reading]) -> None:
        """Draw the table into the last lines."""
        self._fit(len(readings) + 1)
        if not self._kept:
            return
        columns = self._given[1]
        rows = table(readings, columns, self._kept)
        first = self._lines - self._kept + 1
        # The terminal's save and restore of the cursor include colours, character set and origin mode (DECSC, DECRC).
        drawn = "".join(f"\x1b[{first + index};1H\x1b[2K{row}" for index, row in enumerate(rows))
        _write(self._descriptor, f"\x1b7\x1b[1;{first - 1}r\x1b[m\x0f\x1b(B{drawn}\x1b8")

    def close(self) -> None:
        """Give the lines back."""
        if not self._kept:
            return
        first = self._lines - self._kept + 1
        _write(self._descriptor, f"\x1b7\x1b[r\x1b[{first};1H\x1b[m\x1b[J\x1b8")
        if _size(self._descriptor) == self._given:
            _resize(self._descriptor, (self._lines, *self._given[1:]))
        self._kept = 0

    def _fit(self, wanted: int) -> None:
        """Keep `wanted` lines of the terminal, which has another size than the one we gave it when it was resized."""
        now = _size(self._descriptor)
        if self._kept and now == self._given:
            return
        self._lines = now[0]
        self._kept = wanted if self._lines - wanted >= _LEAST_LINES else 0
        if self._kept:
            self._given = (self._lines - self._kept, *now[1:])
            # Whatever stands in the last lines is scrolled up to where it may stay, and the cursor with it (IND, CUU).
            _write(self._descriptor, "\x1b7\x1b[r\x1b8" + "\x1bD" * self._kept + f"\x1b[{self._kept}A")
            _resize(self._descriptor, self._given)


def _size(descriptor: int) -> tuple[int, ...]:
    """Lines, columns and the same in pixels."""
    try:
        size = struct.unpack("HHHH", fcntl.ioctl(descriptor, termios.TIOCGWINSZ, bytes(8)))
    except OSError:
        return (24, 80, 0, 0)
    return size if size[0] and size[1] else (24, 80, *size[2:])


def _resize(descriptor: int, size: tuple[int, ...]) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", *size))


def _write(descriptor: int, text: str) -> None:
    """In one piece, so that nothing of others comes between. Errors: ``OSError``, as when the terminal is gone."""
    data = text.encode()
    while data:
        data = data[os.write(descriptor, data) :]
