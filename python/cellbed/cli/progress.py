"""Progress of a run, and its links: redrawn in place on a terminal, plain lines in a pipe."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cellbed.experiments.listener import Listener
from cellbed.measure.meter import sentence, table
from cellbed.support.errors import printable
from cellbed.support.standard_streams import draw

if TYPE_CHECKING:
    from cellbed.measure.meter import Reading


class Plain(Listener):
    """Plain lines: one per phase, one every ten seconds while the workload runs, one every second about the links."""

    def __init__(self) -> None:
        self._next_s = 10.0
        self._elapsed_s = 0.0
        self._next_links_s = 1.0

    def phase(self, text: str) -> None:
        """Print the phase."""
        _print(printable(text))

    def note(self, text: str) -> None:
        """Print the note, indented."""
        _print(f"  {printable(text)}")

    def progress(self, elapsed_s: float, total_s: float, counts: dict[str, int]) -> None:
        """Print a line every ten seconds."""
        self._elapsed_s = elapsed_s
        if elapsed_s >= self._next_s:
            self._next_s += 10.0
            words = _words(counts)
            _print(f"  {min(elapsed_s, total_s):.0f} of {total_s:g} s{': ' * bool(words)}{words}")

    def links(self, readings: Sequence[Reading]) -> None:
        """Print one line a second about all links."""
        if self._elapsed_s >= self._next_links_s:
            self._next_links_s = int(self._elapsed_s) + 1.0
            _print(f"  {self._elapsed_s:.0f} s: {printable(sentence(readings))}")


class Live(Plain):
    """A progress bar with the links below, redrawn in place.

    The bar has no thread, because programs are forked during the run.
    """

    WIDTH = 30

    def __init__(self) -> None:
        super().__init__()
        self._drawn_at = 0.0
        self._open = False
        self._bar = ""
        self._links: list[str] = []

    def phase(self, text: str) -> None:
        """Print the phase on a separate line."""
        self.close()
        _print(f"\x1b[1m{printable(text)}\x1b[0m")

    def note(self, text: str) -> None:
        """Print the note, dimmed."""
        self.close()
        _print(f"\x1b[2m  {printable(text)}\x1b[0m")

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
        self._bar = f"  {bar} {shown}  {_words(counts)}"
        self._draw()

    def links(self, readings: Sequence[Reading]) -> None:
        """Set the links, which the next redraw shows below the bar."""
        columns, lines = shutil.get_terminal_size()
        self._links = table(readings, columns, max(0, lines - 3), indent="  ")

    def _draw(self) -> None:
        # Clear and redraw everything below the bar, then move the cursor back to the bar.
        below = "".join(f"\n{row}" for row in self._links)
        back = f"\x1b[{len(self._links)}A" if self._links else ""
        _print(f"\r\x1b[J{self._bar}{below}{back}", end="")
        self._open = True

    def close(self) -> None:
        """Keep the bar, clear the lines below and move to the next line."""
        if self._open:
            self._links = []
            self._draw()
            _print()
            self._open = False


@contextlib.contextmanager
def listener() -> Iterator[Listener]:
    """Yield the listener for standard error: live on a terminal, plain in a pipe."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR"):
        live = Live()
        try:
            yield live
        finally:
            live.close()
    else:
        yield Plain()


def _print(text: str = "", end: str = "\n") -> None:
    """Write to the terminal. Errors of a closed terminal are ignored, so that the run ends in order."""
    with contextlib.suppress(OSError):
        draw(text + end, sys.stderr)


def _words(counts: dict[str, int]) -> str:
    if "sent" not in counts:  # cellbed does not know the programs' requests
        return ""
    text = f"{counts['sent']} requests sent, {counts.get('completed', 0)} answered"
    others = [(counts.get(name, 0), name.replace("_", " ")) for name in ("failed", "timed_out", "skipped")]
    return ", ".join([text, *(f"{count} {what}" for count, what in others if count)])
