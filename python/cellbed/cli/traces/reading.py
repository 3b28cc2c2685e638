"""The table of the archive's entries, its progress where it takes long, and what cannot be read of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

_MANY = 500
"""Entries to be read anew that take longer than one likes to wait without a word."""


def read_index() -> pl.DataFrame:
    """The table; damaged entries are named on standard error."""
    from cellbed.archive import open_archive

    bar = _Progress()
    try:
        table = open_archive().contents(bar.update)
    finally:
        bar.close()
    for name, problem in table.problems.items():
        print(f"warning: {problem}; remove it with `cellbed traces rm {name}`", file=sys.stderr)
    return table.frame


class _Progress:
    def __init__(self) -> None:
        self._open = False

    def update(self, done: int, of: int) -> None:
        if of < _MANY or not sys.stderr.isatty():
            return
        if done % 100 == 0 or done == of:
            print(f"\rreading {done} of {of} new entries", end="", file=sys.stderr, flush=True)
            self._open = True

    def close(self) -> None:
        if self._open:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
