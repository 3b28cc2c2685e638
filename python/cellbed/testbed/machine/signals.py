"""Ctrl-C and its kin: the first ends the run in order, later ones do not disturb the clean-up."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Context that turns SIGINT, SIGTERM and SIGHUP into one ``KeyboardInterrupt``, until :meth:`shield`.

    signal: number of the first signal that came, or ``None``.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._shielded = False
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def shield(self) -> None:
        """From now on only note signals: clean-up has begun."""
        self._shielded = True

    def __enter__(self) -> Interruption:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = number
        if self._shielded:
            with contextlib.suppress(OSError):  # the terminal may be closed
                print("cleaning up, please wait", file=sys.stderr)
            return
        self._shielded = True
        raise KeyboardInterrupt


@contextlib.contextmanager
def hang_ups_ignored() -> Iterator[None]:
    """Context that ignores a closing terminal (SIGHUP)."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
