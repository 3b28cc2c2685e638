"""``cellbed exec``: run a command on a node of a live testbed or run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None)


# What follows the node's name belongs to the command, with or without a "--" before it.
@app.command(context_settings={"allow_interspersed_args": False}, no_args_is_help=True)
def execute(
    node: Annotated[str, typer.Argument(help="Name of the node.", metavar="NODE")],
    command: Annotated[list[str], typer.Argument(help="Command to run, after --.", metavar="-- CMD")],
    testbed: Annotated[
        str | None, typer.Option(help="Testbed or run; needed only if several have such a node.", show_default=False)
    ] = None,
) -> None:
    """Run a command on a node: in its network, with its names and under its limits, at this terminal.

    The exit status is the command's, 127 if there is none of its name, 128+n after signal n. It ends with the
    testbed, and with the shell that started it.

    \b
    Examples:
      cellbed exec endpoint-0 -- ping -c 3 edge-0
      cellbed exec edge-0 -- bash
      cellbed exec --testbed second phone-0 -- curl -s http://shop:8080/
    """
    from cellbed.experiments.standing import find_testbed
    from cellbed.runformat.events import Journal
    from cellbed.testbed.programs.reach import execute as become
    from cellbed.testbed.programs.reach import find_node

    if command[0] == "--" and len(command) > 1:
        command = command[1:]
    record, found = find_node(node, find_testbed(testbed) if testbed is not None else None)
    Journal.reopen(Path(record.folder or "")).note("exec", found, command=command)
    become(record, found, command)
