"""How much of something is done, for what may take longer than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 1.0
"""What is done sooner shows nothing."""
_LINE_S = 10.0


@contextmanager
def share_done() -> Iterator[Callable[[str, float], None]]:
    """A function to be told what is in the making and which share of it is done.

    Draws a bar on standard error if that is a terminal, else prints a line every ten seconds.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    begun = lined = time.monotonic()
    bar = Progress(console=console, transient=True) if console.is_terminal else None
    tasks: dict[str, int] = {}

    def tell(what: str, share: float) -> None:
        nonlocal lined
        now = time.monotonic()
        if bar is None:
            if now - lined >= _LINE_S:
                lined = now
                print(f"{what}: {share:.0%}", file=sys.stderr, flush=True)
        elif now - begun >= PATIENCE_S:
            bar.start()
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=1.0)
            bar.update(tasks[what], completed=share)  # type: ignore[arg-type]

    try:
        yield tell
    finally:
        if bar is not None:
            bar.stop()
