"""Options of verbs that check expectations, and what they print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cellbed.support.errors import CellbedError, printable

if TYPE_CHECKING:
    from cellbed.measure.verdicts import Verdict

Check = Annotated[bool, typer.Option("--check", help="Exit with status 5 if an expectation ([expect]) is not met.")]
JUnit = Annotated[
    Path | None, typer.Option("--junit", help="With --check: write the verdicts as JUnit XML.", metavar="FILE")
]


def require(check: bool, junit: Path | None, source: Path, *, expected: bool) -> None:
    """Raise CellbedError where nothing can be checked. expected: whether `source` has expectations."""
    if junit is not None and not check:
        raise CellbedError("--junit is of --check: add --check")
    if junit is not None and not junit.parent.is_dir():
        raise CellbedError(f"--junit {junit}: there is no folder {junit.parent}: make it, or write another path")
    if check and not expected:
        raise CellbedError(f'{source}: --check needs expectations: add [expect], such as p99_latency = "< 300 ms"')


def conclude(verdicts: Sequence[Verdict], junit: Path | None, suite: str, *, shown: bool, as_json: bool) -> None:
    """Print a line for each verdict, unless they are shown already, and write the JUnit XML."""
    from cellbed.report import junit as xml
    from cellbed.report.terminal import verdict

    for each in () if shown and not as_json else verdicts:
        print(printable(verdict(each)), file=sys.stderr if as_json else sys.stdout)
    if junit is not None:
        xml.write(junit, suite, verdicts)
