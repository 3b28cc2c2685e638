"""The line on standard error that shows what happens now, redrawn in place on a terminal."""

from __future__ import annotations

import os
import sys
from typing import Self

from cellbed.support.errors import printable
from cellbed.support.standard_streams import draw


class StatusLine:
    """A context, at whose end the line is cleared. Without a terminal nothing is drawn.

    redrawn: whether there is a terminal.
    """

    def __init__(self) -> None:
        self.redrawn = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.state("")

    def state(self, text: str) -> None:
        """Show what happens now; an empty text clears the line."""
        if self.redrawn and text != self._shown:
            draw(f"\r\x1b[K{printable(text)}", sys.stderr)
            self._shown = text

    def share(self, what: str, share: float) -> None:
        """Show how much of a step is done."""
        self.state(f"{what}: {share:.0%}")

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self.state("")
        print(text, file=sys.stderr, flush=True)
