"""`cellbed meter`: watch live runs and shells from another terminal."""

from __future__ import annotations

from typing import Annotated

import typer


def meter(
    name: Annotated[
        str | None,
        typer.Argument(help="Name or prefix of a live run, testbed or shell. Default: all.", show_default=False),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show one second, then exit.")] = False,
) -> None:
    """Show rate, queue, delay and drops of the links of live runs and shells.

    \b
    Examples:
      cellbed meter               all live runs and shells, until they end or Ctrl-C
      cellbed meter shell-12345   one of them
      cellbed meter --once        one second, for scripts
    """
    import shutil
    import sys

    from cellbed.measure.meter import table
    from cellbed.shell.watch import glance, watch

    if once:
        readings = glance(name)
        print("\n".join(table(readings, shutil.get_terminal_size((200, 24)).columns, len(readings) + 1)))
    else:
        watch(name, sys.stdout.fileno())
