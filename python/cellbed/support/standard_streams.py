"""Standard streams that the caller has closed (``command <&-``) or that cannot show every text."""

import io
import os
import sys
from typing import Any, TextIO

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
