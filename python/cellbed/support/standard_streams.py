"""Standard streams that are closed (``command <&-``) or cannot display every character, and a status line."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, Self, TextIO

from cellbed.support.errors import printable


def open_standard_streams() -> None:
    """Open closed standard streams as the null device, so that no later file gets their number."""
    null = os.open(os.devnull, os.O_RDWR)
    while null <= 2:
        # Child processes inherit the null device like any standard stream.
        os.set_inheritable(null, True)
        null = os.open(os.devnull, os.O_RDWR)
    os.close(null)
    # Despite their types, the streams are None if closed.
    sys.stdin = sys.stdin or open(0, closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False, encoding="utf-8")  # noqa: SIM115
    # Escape characters that the terminal cannot display, such as in a file name that is not UTF-8.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = Printable(sys.stdout), Printable(sys.stderr)


class Printable:
    """A stream that escapes control characters, so that foreign texts cannot control the terminal.

    Rich finds the underlying stream by its attribute and writes to it directly, and so does :func:`draw`.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write the text with its control characters escaped, except for line feeds and tabs."""
        return self.rich_proxied_file.write(printable(text, "\n\t"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def draw(text: str, stream: TextIO) -> None:
    """Write a text with our control characters; foreign parts must already be escaped."""
    drawn: TextIO = getattr(stream, "rich_proxied_file", stream)
    drawn.write(text)
    drawn.flush()


class StatusLine:
    """A context with a line on standard error, cleared at the end. Without a terminal nothing is drawn.

    redrawn: whether standard error is a terminal.
    """

    def __init__(self) -> None:
        self.redrawn = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.state("")

    def state(self, text: str) -> None:
        """Show the current activity; an empty text clears the line."""
        if self.redrawn and text != self._shown:
            draw(f"\r\x1b[K{printable(text)}", sys.stderr)
            self._shown = text

    def share(self, what: str, share: float) -> None:
        """Show the completed share of a step."""
        self.state(f"{what}: {share:.0%}")

    def note(self, text: str) -> None:
        """Print a permanent line."""
        self.state("")
        print(text, file=sys.stderr, flush=True)
