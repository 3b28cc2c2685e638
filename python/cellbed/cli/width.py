"""The width of tables in a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final

IN_A_PIPE: Final = 160
"""Characters of a line outside of a terminal: enough for most tables."""


def table_width() -> int:
    """Characters of a line: the terminal's width; in a pipe COLUMNS, else :data:`IN_A_PIPE`."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    said = os.environ.get("COLUMNS", "")
    return int(said) if said.isascii() and said.isdigit() and int(said) else IN_A_PIPE
