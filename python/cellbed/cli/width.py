"""How wide a table may be."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final

IN_A_PIPE: Final = 160
"""Letters of a line that nobody's terminal limits: most rows of most tables, and still a screen of today's."""


def table_width() -> int:
    """Letters of a line: as many as the terminal has; in a pipe as COLUMNS says, else :data:`IN_A_PIPE`."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    said = os.environ.get("COLUMNS", "")
    return int(said) if said.isascii() and said.isdigit() and int(said) else IN_A_PIPE
