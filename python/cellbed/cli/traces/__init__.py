"""``cellbed traces``: the archive of traces and recordings."""

from __future__ import annotations

import typer

from cellbed.cli.verbs import group

VERBS = {
    "ls": "List the entries of the archive.",
    "show": "Show the contents of an entry, a file or a recording.",
    "add": "Add a recording made by any supported program.",
    "stats": "Print statistics of entries.",
    "plot": "Plot an entry as PNG or SVG.",
    "compare": "Compare entries in one table and on the same axes.",
    "generate": "Generate synthetic traces: seeded, cited, labelled.",
    "fetch": "Download a public data set into the archive.",
    "rm": "Remove entries from the archive.",
    "verify": "Check every file of the archive against its checksum.",
    "export": "Export an entry or a recording to other programs' formats.",
}
"""The verbs and their first lines of help."""
MODULES = dict.fromkeys(("ls", "show", "stats", "plot", "compare", "export", "rm", "verify"), "entries")
"""Modules of verbs whose module has another name."""

app = typer.Typer(
    cls=group("cellbed.cli.traces", VERBS, MODULES),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def traces() -> None:
    """Manage the archive of traces and recordings.

    \b
    Examples:
      cellbed traces ls
      cellbed traces add walk.up walk.down --tech 5g --mobility walking
      cellbed traces plot lte-suburban
    """
