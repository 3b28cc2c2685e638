"""``cellbed report``: rebuild the tables and the report of a run."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Open(StrEnum):
    """Whether to open the report in a browser."""

    auto = "auto"
    yes = "yes"
    no = "no"


def report(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", metavar="RUN")],
    open_: Annotated[
        Open, typer.Option("--open", help="Open the page in a browser. auto: only on a desktop terminal.")
    ] = Open.auto,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Rebuild the tables, the summary and report.html of a run from its raw files.

    \b
    Examples:
      cellbed report runs/offload-lte-20250101-120000
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
    html.open_page(path, open_.value, quiet=as_json)
