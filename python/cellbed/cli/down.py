"""``cellbed down``: end a standing testbed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def down(
    name: Annotated[
        str | None, typer.Argument(help="Name of the testbed; needed only if there are several.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="End all of them.")] = False,
) -> None:
    """End a standing testbed: programs, nodes and links. Its folder stays, for `cellbed report`.

    \b
    Examples:
      cellbed down
      cellbed down second
      cellbed down --all
    """
    from cellbed.experiments.standing import find_testbed, take_down, testbeds
    from cellbed.testbed.links.live import label

    found = [each for each in testbeds() if each.kind == "testbed"] if everything else []
    for record in found if everything else [find_testbed(name, standing=True)]:
        take_down(record, lambda text: print(text, file=sys.stderr))
        print(f"{label(record)} is down; its folder: {record.folder}")
    if everything and not found:
        print("no testbed is up")
