"""``cellbed compare``: compare runs."""

from pathlib import Path
from typing import Annotated

import typer


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders; each is compared with the first.", metavar="RUN RUN")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Compare runs with the first of them, with 95 % intervals of the differences.

    \b
    Example:
      cellbed compare runs/cubic-20250101-120000 runs/bbr-20250101-120500
    """
    from cellbed.measure.comparison import compare as compare_runs
    from cellbed.report.terminal import show_comparison

    comparison = compare_runs(runs)
    if as_json:
        print(comparison.json())
    else:
        show_comparison(comparison)
