"""Options that several verbs have, and the check of expectations."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cellbed.support.errors import CellbedError, printable

if TYPE_CHECKING:
    from cellbed.measure.verdicts import Verdict

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]
ScenarioFile = Annotated[Path, typer.Argument(help="The scenario file (TOML).", metavar="FILE")]
Testbed = Annotated[str | None, typer.Option(help="Testbed or run; needed only if several are live.")]
Overcommit = Annotated[
    bool, typer.Option("--overcommit", help="Accept nodes with more CPUs or memory than this machine has.")
]
Open = Annotated[
    Literal["auto", "yes", "no"],
    typer.Option("--open", help="Open the page in a browser. auto: only on a desktop terminal."),
]
Ending = Annotated[Literal["svg", "pdf", "png"], typer.Option("--format", help="File format of --figures.")]
Check = Annotated[bool, typer.Option("--check", help="Exit with status 5 if an expectation ([expect]) is not met.")]
JUnit = Annotated[
    Path | None, typer.Option("--junit", help="With --check: write the verdicts as JUnit XML.", metavar="FILE")
]


def example_names() -> list[str]:
    """Return the names of the examples, for completion."""
    from cellbed.scenario.examples import examples

    return list(examples())


def _print_log(is_wanted: bool) -> None:
    if is_wanted:
        from cellbed.runformat import log

        os.environ.setdefault(log.VARIABLE, "debug")
        log.is_verbose = True


Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        callback=_print_log,
        help="Print the run's log, and keep the folder of a run that fails early.",
    ),
]


def require(check: bool, junit: Path | None, source: Path, *, expected: bool) -> None:
    """Raise CellbedError if nothing can be checked. expected: whether `source` has expectations."""
    if junit is not None and not check:
        raise CellbedError("--junit needs --check: add it")
    if junit is not None and not junit.parent.is_dir():
        raise CellbedError(f"--junit {junit}: there is no folder {junit.parent}: create it, or write another path")
    if check and not expected:
        raise CellbedError(f'{source}: --check needs expectations: add [expect], such as p99_latency = "< 300 ms"')


def conclude(verdicts: Sequence[Verdict], junit: Path | None, suite: str, *, shown: bool, as_json: bool) -> None:
    """Print a line for each verdict, unless the verdicts are `shown` already, and write the JUnit XML."""
    from cellbed.report import junit as xml
    from cellbed.report.terminal import verdict

    for each in () if shown and not as_json else verdicts:
        print(printable(verdict(each)), file=sys.stderr if as_json else sys.stdout)
    if junit is not None:
        xml.write(junit, suite, verdicts)
