"""Watch live runs and shells from another terminal: `cellbed meter`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from cellbed.errors import CellbedError
from cellbed.meter.display import display
from cellbed.meter.reading import WINDOW_NS, Meter, Reading
from cellbed.testbed.control import Control, ControlError
from cellbed.testbed.state import Record, records

REDRAW_S = 0.2


class WatchError(CellbedError):
    """There is nothing to watch, or nothing of that name."""

    exit_code = 1


def watch(name: str | None, descriptor: int) -> None:
    """Show all live runs and shells, or those whose name begins with `name`, until none is left.

    Those that begin meanwhile are shown as well.
    Errors: :class:`WatchError`.
    """
    with ExitStack() as stack:
        watched = _Watched(name, stack)
        shown = display(descriptor)
        begin = time.monotonic()
        while readings := watched.read():
            shown.show(time.monotonic() - begin, readings)
            time.sleep(REDRAW_S)


def glance(name: str | None) -> list[Reading]:
    """What their links do, of one second.

    Errors: :class:`WatchError`.
    """
    with ExitStack() as stack:
        watched = _Watched(name, stack)
        time.sleep(WINDOW_NS / 1e9)
        return watched.read()


class _Watched:
    """Meters of what is live."""

    def __init__(self, name: str | None, stack: ExitStack) -> None:
        self._name = name or ""
        self._stack = stack
        self._meters: dict[str, Meter] = {}
        self._look()
        if not self._meters:
            others = ", ".join(record.identifier for record in _live())
            if name and others:
                raise WatchError(f"no live run or shell has a name that begins with '{name}': there are {others}")
            raise WatchError("no run or shell of yours is live: start one with cellbed run or cellbed shell")

    def read(self) -> list[Reading]:
        """Readings of all directions; none when nothing is live any more."""
        self._look()
        readings: list[Reading] = []
        for identifier, meter in list(self._meters.items()):
            try:
                some = meter.read(time.monotonic_ns()) or []
            except ControlError:
                del self._meters[identifier]
                continue
            readings += [replace(one, direction=f"{identifier} {one.direction}") for one in some]
        return readings

    def _look(self) -> None:
        for record in _live():
            if record.identifier.startswith(self._name) and record.identifier not in self._meters:
                try:
                    control = self._stack.enter_context(Control(Path(record.control or "")))
                    self._meters[record.identifier] = Meter(control.status)
                except ControlError:
                    # It is about to begin, or has just ended.
                    continue


def _live() -> Iterator[Record]:
    return (record for record in records() if record.control is not None and not record.is_stale())
