"""Progress of a run: a live line on a terminal, plain lines in a pipe."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cellbed.experiments.run import Listener


class Plain:
    """One line per phase, and one every ten seconds while the workload runs."""

    def __init__(self) -> None:
        self._next_s = 10.0

    def phase(self, text: str) -> None:
        """Print the phase."""
        print(text, file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Print the note, indented."""
        print(f"  {text}", file=sys.stderr, flush=True)

    def progress(self, elapsed_s: float, total_s: float, counts: dict[str, int]) -> None:
        """Print a line now and then."""
        if elapsed_s >= self._next_s:
            self._next_s += 10.0
            print(f"  {min(elapsed_s, total_s):.0f} of {total_s:g} s: {_words(counts)}", file=sys.stderr, flush=True)


class Live(Plain):
    """A progress bar that is redrawn in place. It has no thread of its own: programs are forked meanwhile."""

    WIDTH = 30

    def __init__(self) -> None:
        super().__init__()
        self._drawn_at = 0.0
        self._open = False

    def phase(self, text: str) -> None:
        """Print the phase on a line of its own."""
        self.close()
        print(f"\x1b[1m{text}\x1b[0m", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Print the note, dimmed."""
        self.close()
        print(f"\x1b[2m  {text}\x1b[0m", file=sys.stderr, flush=True)

    def progress(self, elapsed_s: float, total_s: float, counts: dict[str, int]) -> None:
        """Redraw the bar, ten times a second at most."""
        now = time.monotonic()
        if now - self._drawn_at < 0.1:
            return
        self._drawn_at = now
        share = min(1.0, max(0.0, elapsed_s / total_s))
        filled = round(share * self.WIDTH)
        bar = "━" * filled + "\x1b[2m" + "·" * (self.WIDTH - filled) + "\x1b[0m"
        shown = "draining" if elapsed_s > total_s else f"{max(0.0, elapsed_s):4.0f} of {total_s:g} s"
        print(f"\r\x1b[K  {bar} {shown}  {_words(counts)}", end="", file=sys.stderr, flush=True)
        self._open = True

    def close(self) -> None:
        """Leave the bar as it is and go to the next line."""
        if self._open:
            print(file=sys.stderr, flush=True)
            self._open = False


@contextmanager
def listener() -> Iterator[Listener]:
    """The listener that suits where standard error goes."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR"):
        live = Live()
        try:
            yield live
        finally:
            live.close()
    else:
        yield Plain()


def _words(counts: dict[str, int]) -> str:
    text = f"{counts.get('sent', 0)} requests sent, {counts.get('completed', 0)} answered"
    timed_out = counts.get("timed_out", 0)
    return f"{text}, {timed_out} timed out" if timed_out else text
