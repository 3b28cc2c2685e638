"""Meters of live runs and shells, watched from another terminal (``cellbed meter``)."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace

from cellbed.measure.meter import REDRAW_S, WINDOW_NS, Meter, Reading, display
from cellbed.testbed.links.live import ControlError, LiveError, connect, find, label, live


def watch(name: str | None, descriptor: int) -> None:
    """Show the live run or shell called `name`, or all, including later ones, until none is left.

    Errors: :class:`LiveError`.
    """
    with ExitStack() as stack:
        watched = _Watched(name, stack)
        shown = display(descriptor)
        begin = time.monotonic()
        while readings := watched.read():
            shown.show(time.monotonic() - begin, readings)
            time.sleep(REDRAW_S)


def glance(name: str | None) -> list[Reading]:
    """Return the state of links over one second, of the run or shell called `name` or of all.

    Errors: :class:`LiveError`.
    """
    with ExitStack() as stack:
        watched = _Watched(name, stack)
        time.sleep(WINDOW_NS / 1e9)
        return watched.read()


class _Watched:
    """Meters of live runs and shells."""

    def __init__(self, name: str | None, stack: ExitStack) -> None:
        self._only = find(name).identifier if name is not None else None
        self._stack = stack
        self._meters: dict[str, tuple[str, Meter]] = {}
        self._look()
        if not self._meters:
            raise LiveError("nothing is running: start a run with `cellbed run`, or a shell with `cellbed shell`")

    def read(self) -> list[Reading]:
        """Return the readings of all directions; none if nothing is live."""
        self._look()
        readings: list[Reading] = []
        for identifier, (name, meter) in list(self._meters.items()):
            try:
                some = meter.read(time.monotonic_ns()) or []
            except ControlError:
                del self._meters[identifier]
                continue
            readings += [replace(one, direction=f"{name} {one.direction}") for one in some]
        return readings

    def _look(self) -> None:
        for record in live():
            if self._only in (None, record.identifier) and record.identifier not in self._meters:
                try:
                    control = self._stack.enter_context(connect(record))
                    self._meters[record.identifier] = label(record), Meter(control.status)
                except ControlError:
                    # The run is about to begin, or has just ended.
                    continue
