"""Rich's console for foreign texts, and the width of its tables."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import Final

from rich import console
from rich.segment import Segment

from cellbed.support.errors import printable


class Console(console.Console):  # noqa: TID251
    """A console that escapes control characters in its output."""

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of a renderable, with control characters escaped."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


IN_A_PIPE: Final = 160
"""Characters per line without a terminal: enough for most tables."""


def table_width() -> int:
    """Return the characters per line: the terminal's width; without a terminal, COLUMNS or :data:`IN_A_PIPE`."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    said = os.environ.get("COLUMNS", "")
    return int(said) if said.isascii() and said.isdigit() and int(said) else IN_A_PIPE
