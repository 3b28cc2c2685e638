"""``cellbed compare``: compare runs."""

from pathlib import Path
from typing import Annotated

import typer


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders; each is compared with the first.", metavar="RUN RUN")
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
