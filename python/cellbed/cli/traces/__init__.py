"""``cellbed traces``: the archive of traces and recordings, one file per verb."""

from __future__ import annotations

import typer

from cellbed.cli.verbs import group

VERBS = {
    "ls": "List the traces of the archive.",
    "show": "Show the figures of one trace or recording.",
    "generate": "Generate what nobody has recorded: seeded, cited, labelled.",
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
