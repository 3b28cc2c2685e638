"""``cellbed recordings``: recordings of two workloads."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from cellbed.cli.options import AsJson
from cellbed.cli.traces.options import entries_and_files

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def recordings() -> None:
    """Check recordings.

    \b
    Examples:
      cellbed recordings check recordings/walk
    """


@app.command()
def check(
    recording: Annotated[
        str,
        typer.Argument(
            help="An entry of the archive, or the directory of a recording.", autocompletion=entries_and_files
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Measure how closely each method replays parts of a recording that it does not know.

    Each method is fitted without the held-back parts and replays them in virtual time. The best method becomes the
    recording's default, in its file certificate.json.

    \b
    Examples:
      cellbed recordings check recordings/walk
      cellbed recordings check recordings/walk --json | jq .methods.conditional.error
    """
    from cellbed.cli.tables import print_table
    from cellbed.experiments.certification import check_recording
    from cellbed.scenario.recorded import find_recording
    from cellbed.support.standard_streams import StatusLine

    with StatusLine() as line:
        certificate, note = check_recording(
            find_recording(recording, Path.cwd()).path, lambda share: line.share("checking", share)
        )
    if as_json:
        print(json.dumps({"best": certificate.best, **certificate.model_dump(mode="json")}, indent=1))
    else:
        headings, rows = certificate.table()
        if rows:
            print_table(headings, rows, right=headings[1:])
        print("\n".join(certificate.sentences()))
    if note:
        print(note, file=sys.stderr)
