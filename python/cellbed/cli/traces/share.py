"""How much of something is done, for what may take longer than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LINE_S = 10.0


@contextmanager
def share_done() -> Iterator[Callable[[str, float], None]]:
    """A function that is called with the name of the current step and the share of it that is done.

    Draws a bar on standard error if that is a terminal, else prints a line every ten seconds.
    """
    from rich.progress import Progress, TaskID

    from cellbed.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines()
        return
    with Progress(console=console, transient=True) as bar:
        tasks: dict[str, TaskID] = {}
        before = bar.add_task("begins", total=None)

        def tell(what: str, share: float) -> None:
            bar.update(before, visible=False)
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=1.0)
            bar.update(tasks[what], completed=share)

        yield tell


def _lines() -> Callable[[str, float], None]:
    printed = time.monotonic()

    def tell(what: str, share: float) -> None:
        nonlocal printed
        now = time.monotonic()
        if now - printed >= _LINE_S:
            printed = now
            print(f"{what}: {share:.0%}", file=sys.stderr, flush=True)

    return tell
