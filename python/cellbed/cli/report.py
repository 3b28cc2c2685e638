"""``cellbed report``: rebuild the tables and the report of a run."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

Open = Literal["auto", "yes", "no"]
"""Cases in which the report opens in a browser."""
Ending = Literal["svg", "pdf"]
"""Formats of figures."""


def report(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", metavar="RUN")],
    open_: Annotated[
        Open, typer.Option("--open", help="Open the page in a browser. auto: only on a desktop terminal.")
    ] = "auto",
    figures: Annotated[
        Path | None, typer.Option(help="Write every figure into this folder, too.", metavar="FOLDER")
    ] = None,
    ending: Annotated[Ending, typer.Option("--format", help="Of these figures.")] = "svg",
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Rebuild the tables, the summary and report.html of a run from its raw files.

    \b
    Examples:
      cellbed report runs/offload-lte-20250101-120000
      cellbed report runs/offload-lte-20250101-120000 --figures figures --format pdf
      cellbed report runs/offload-lte-20250101-120000 --json | jq '.applications[].percentiles'
    """
    from cellbed.measure import collect
    from cellbed.report import html, terminal

    summary = collect(run)
    path = html.write(run)
    if as_json:
        print(summary.json().decode(), end="")
    else:
        terminal.show(run)
    if figures is not None:
        from cellbed.report.figures import write

        written = write(run, figures, ending)
        print(f"{len(written)} figures in {figures}", file=sys.stderr)
    html.open_page(path, open_, quiet=as_json)
