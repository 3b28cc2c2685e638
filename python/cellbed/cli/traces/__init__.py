"""``cellbed traces``: the archive of traces and recordings, one file per verb."""

from __future__ import annotations

import typer

from cellbed.cli.verbs import group

VERBS = {
    "ls": "List the entries of the archive.",
    "show": "Show what an entry, a file or a recording holds.",
    "add": "Add a recording, whatever program made it.",
    "stats": "Tell the statistics of entries, or make those of all.",
    "plot": "Draw an entry: PNG, SVG or a page to zoom in.",
    "compare": "Put entries on the same axes.",
    "gallery": "Write a page of the whole archive.",
    "generate": "Generate what nobody has recorded: seeded, cited, labelled.",
    "fetch": "Download a public data set into the archive.",
    "describe": "Change what an entry says of itself: place, operator, date …",
    "rename": "Give an entry another name.",
    "rm": "Remove entries from the archive.",
    "verify": "Read every file and say which is not what was added.",
    "export": "Write an entry or a recording in the files of other programs.",
    "edit": "Make an entry of another: cut, loop, scale, splice, outage, share …",
    "pair": "Hold an uplink against a downlink; make one entry of two.",
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
