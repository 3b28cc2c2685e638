"""The verbs for finished runs: ``report`` and ``compare``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cellbed.cli.options import Check, Ending, JUnit, Open, conclude, require


def report(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", metavar="RUN")],
    open_: Open = "auto",
    figures: Annotated[
        Path | None, typer.Option(help="Also write every figure into this folder.", metavar="FOLDER")
    ] = None,
    ending: Ending = "svg",
    check: Check = False,
    junit: JUnit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Rebuild the tables, the summary and report.html of a run from its raw files.

    With --check the exit status is 5 if the run does not meet an expectation.

    \b
    Examples:
      cellbed report runs/offload-lte-20250101-120000
      cellbed report runs/offload-lte-20250101-120000 --figures figures --format pdf
      cellbed report runs/offload-lte-20250101-120000 --json | jq '.applications[].percentiles'
    """
    from cellbed.experiments.run import UNMET
    from cellbed.measure.rows import collect
    from cellbed.report import html, terminal

    summary = collect(run)
    require(check, junit, run, expected=bool(summary.expectations))
    path = html.write(run)
    if as_json:
        print(summary.json().decode(), end="")
    else:
        terminal.show(run)
    if figures is not None:
        from cellbed.report.figures import write

        written = write(run, figures, ending)
        print(f"{len(written)} figures in {figures}", file=sys.stderr)
    if check:
        conclude(summary.expectations, junit, summary.name, shown=True, as_json=as_json)
    html.open_page(path, open_, quiet=as_json)
    if check and not all(each.met for each in summary.expectations):
        raise typer.Exit(UNMET)


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Two or more run folders; each is compared with the first.", metavar="RUN")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Write a page (.html) or the figures (.svg, .pdf) into this file.", metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Compare runs with the first of them, application by application, with 95 % intervals of the differences.

    \b
    Examples:
      cellbed compare runs/cubic-20250101-120000 runs/bbr-20250101-120500
      cellbed compare runs/cubic-20250101-120000 runs/bbr-20250101-120500 --out cubic-bbr.html
    """
    from cellbed.measure.comparison import compare as compare_runs
    from cellbed.report.comparison import check, write
    from cellbed.report.terminal import show_comparison

    if out is not None:
        check(out)
    comparison = compare_runs(runs)
    if out is not None:
        write(comparison, out)
    if as_json:
        print(comparison.json())
    else:
        show_comparison(comparison)
