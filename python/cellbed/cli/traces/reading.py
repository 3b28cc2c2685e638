"""The table of the archive's entries, its progress where it takes long, and what cannot be read of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cellbed.status_line import StatusLine

if TYPE_CHECKING:
    import polars as pl

_MANY = 500
"""Entries to be read anew that take longer than one likes to wait without a word."""


def read_index() -> pl.DataFrame:
    """The table; damaged entries are named on standard error."""
    from cellbed.archive import open_archive

    def update(done: int, of: int) -> None:
        if of >= _MANY and (done % 100 == 0 or done == of):
            line.state(f"reading {done} of {of} new entries")

    with StatusLine() as line:
        table = open_archive().contents(update)
    for name, problem in table.problems.items():
        print(f"warning: {problem}; remove it with `cellbed traces rm {name}`", file=sys.stderr)
    return table.frame
