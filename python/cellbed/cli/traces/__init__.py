"""``cellbed traces``: the archive of traces and recordings, one file per verb."""

from __future__ import annotations

import typer

from cellbed.cli.verbs import group

VERBS = {
    "ls": "List the entries of the archive.",
    "show": "Show what an entry, a file or a recording holds.",
    "add": "Add a recording, whatever program made it.",
    "rm": "Remove entries from the archive.",
    "verify": "Read every file and say which is not what was added.",
    "export": "Write a recording in the files of other programs.",
    "import-cellreplay": "Make a recording of the files of CellReplay's public tool.",
}
"""The verbs and their first lines of help."""

app = typer.Typer(
    cls=group("cellbed.cli.traces", VERBS),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="The archive of traces and recordings: find, show, export.",
)


@app.callback()
def traces() -> None:
    """The archive of traces and recordings: find, show, export."""
