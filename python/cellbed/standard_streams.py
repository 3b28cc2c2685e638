"""Standard streams that the caller has closed (``command <&-``) or that cannot show every text."""

import io
import os
import sys


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
