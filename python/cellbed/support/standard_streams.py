"""Standard streams that the caller has closed (``command <&-``) or that cannot show every text, and a status line."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, Self, TextIO

from cellbed.support.errors import printable


def open_standard_streams() -> None:
    """Open closed standard streams as the null device, so that no file opened later gets their number."""
    null = os.open(os.devnull, os.O_RDWR)
    while null <= 2:
        # Processes started from here inherit it like any standard stream.
        os.set_inheritable(null, True)
        null = os.open(os.devnull, os.O_RDWR)
    os.close(null)
    # Despite their types, they are None if closed.
    sys.stdin = sys.stdin or open(0, closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False, encoding="utf-8")  # noqa: SIM115
    # Text that the terminal has no characters for, such as a file name that is not UTF-8, is escaped.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = Printable(sys.stdout), Printable(sys.stderr)


class Printable:
    """A stream that escapes control characters: texts that others chose give no commands to the terminal.

    Rich writes to the stream itself, which it finds by its attribute, and so does :func:`draw`.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write the text with its control characters escaped, except for line feeds and tabs."""
        return self.rich_proxied_file.write(printable(text, "\n\t"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def draw(text: str, stream: TextIO) -> None:
    """Write a text with control characters of ours; parts that others chose are escaped before."""
    drawn: TextIO = getattr(stream, "rich_proxied_file", stream)
    drawn.write(text)
    drawn.flush()


class StatusLine:
    """A context with a line on standard error, cleared at its end. Without a terminal nothing is drawn.

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
