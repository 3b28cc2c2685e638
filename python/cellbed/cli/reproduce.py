"""``cellbed reproduce``: run the experiments of a publication and compare its claims with our trials."""

from __future__ import annotations

import json
import shlex
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cellbed.experiments.reproduce.page import Result
    from cellbed.experiments.reproduce.simulated import Simulations
    from cellbed.experiments.reproduce.swept import Sweeps

PUBLICATIONS = {
    name: f"cellbed_reproductions.{module}"
    for name, module in (
        ("thesis", "thesis"),
        ("pdcell", "pdcell"),
        ("cosmic", "cosmic"),
        ("5g-study", "fiveg_study"),
    )
}
"""Modules with a `PUBLICATION`, by name."""

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Run the experiments of a publication and compare its claims with our trials.",
)


@app.callback()
def reproduce() -> None:
    """Run the experiments of a publication and compare its claims with our trials."""


_Experiment = Annotated[
    list[str] | None,
    typer.Option("--experiment", "-e", help="As --dry-run names them; repeatable. Default: all.", metavar="NAME"),
]
_Short = Annotated[bool, typer.Option("--short", help="About ten minutes on two idle processors.")]
_Out = Annotated[Path, typer.Option("--out", "-o", help="Folder in which the results are created.")]
_Repeats = Annotated[int, typer.Option("--repeats", min=0, max=100, help="How often a disturbed trial is repeated.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print experiments, trials and time, then exit.")]
_NoLimits = Annotated[bool, typer.Option("--no-limits", help="Run without CPU and memory limits.")]
_Virtual = Annotated[
    bool, typer.Option("--virtual", help="Predict the trials in virtual time, into the folder NAME-virtual.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")]


@app.command()
def thesis(
    experiment: _Experiment = None,
    short: _Short = False,
    traces: Annotated[
        Path | None,
        typer.Option("--traces", help="Folder with the recordings, such as KPN-5G.up and Verizon-LTE-short.up."),
    ] = None,
    out: _Out = Path("reproductions"),
    repeats: _Repeats = 1,
    dry_run: _DryRun = False,
    no_limits: _NoLimits = False,
    virtual: _Virtual = False,
    as_json: _Json = False,
) -> None:
    """The experiments of chapter 6 of the thesis that cellbed began with, and its findings beside ours.

    The same command continues after any stop. Without the thesis's recordings, in --traces or the archive, synthetic
    stand-ins are used, and the page names them. Exit status: 0 every trial has been run, 1 some failed, 2 bad input,
    130 interrupted.

    \b
    Examples:
      cellbed reproduce thesis --short
      cellbed reproduce thesis --virtual
      cellbed reproduce thesis --experiment E3 --experiment E4 --traces recordings
    """
    _sweep("thesis", experiment, out, short, traces, repeats, dry_run, no_limits, virtual, as_json)


def _without_recordings(name: str, what: str, part: str) -> None:
    """Add the command of a publication whose experiments are sweeps over links without recordings.

    what: begins its help. part: an experiment."""

    @app.command(
        name,
        help=f"""{what}, beside our trials.

    The same command continues after any stop. Exit status: 0 every trial has been run, 1 some failed, 2 bad input, 130
    interrupted.

    \b
    Examples:
      cellbed reproduce {name} --virtual
      cellbed reproduce {name} --short --experiment {part}
    """,
    )
    def command(
        experiment: _Experiment = None,
        short: _Short = False,
        out: _Out = Path("reproductions"),
        repeats: _Repeats = 1,
        dry_run: _DryRun = False,
        no_limits: _NoLimits = False,
        virtual: _Virtual = False,
        as_json: _Json = False,
    ) -> None:
        _sweep(name, experiment, out, short, None, repeats, dry_run, no_limits, virtual, as_json)


_without_recordings("cosmic", "Transport and plates of COSM-IC over a transatlantic link (Tables II to V, VII)", "loss")
_without_recordings("5g-study", "Transport and applications at edge and cloud of 5G (Figs 5 to 11)", "laws")


def _sweep(
    name: str,
    experiment: list[str] | None,
    out: Path,
    short: bool,
    traces: Path | None,
    repeats: int,
    dry_run: bool,
    no_limits: bool,
    virtual: bool,
    as_json: bool,
) -> None:
    from cellbed.experiments.reproduce.swept import Sweeps
    from cellbed.experiments.sweep.library import Execution

    sweeps = Sweeps(
        _publication(name),
        experiment or [],
        out,
        Execution(virtual=virtual, limits=not no_limits),
        short=short,
        given=traces,
        repeats=repeats,
        running=not dry_run,
    )
    _carry_out(sweeps, dry_run, as_json)


@app.command()
def pdcell(
    figure: Annotated[
        list[str] | None,
        typer.Option(
            "--figure", "-f", help="3, 8, 9, 10a, 10b, 11a, 11b, 11c or load; repeatable. Default: all.", metavar="NAME"
        ),
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="At most five minutes on two idle processors.")] = False,
    sizes: Annotated[
        Path | None,
        typer.Option(
            "--sizes",
            help="File of flow sizes, in packets: SIZE 1 CUMULATIVE-SHARE. Default: ours, after published values.",
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, max=1000, help="Simulations of each setting.")] = None,
    flows: Annotated[
        int | None, typer.Option("--flows", min=10, max=1_000_000, help="Flows to users in each simulation.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, max=1024, help="Simulations at once. Default: as many as there are processors."),
    ] = None,
    out: _Out = Path("reproductions"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print figures and simulations, then exit.")] = False,
    as_json: _Json = False,
) -> None:
    """The figures of the pDCell paper, a transport for edge data centres, and its assertions beside our simulations.

    Everything is simulated; nothing is measured. The same command continues after any stop. Exit status: 0 every
    simulation has been run, 1 some failed, 2 bad input, 130 interrupted.

    \b
    Examples:
      cellbed reproduce pdcell --short
      cellbed reproduce pdcell --figure 9 --figure 11a --sizes CDF_aditya.txt
    """
    from cellbed.experiments.reproduce.simulated import Simulations

    simulations = Simulations(
        _publication("pdcell"), figure or [], out, short=short, given=sizes, jobs=jobs, seeds=seeds, flows=flows
    )
    _carry_out(simulations, dry_run, as_json)


def _publication(name: str) -> Any:
    return import_module(PUBLICATIONS[name]).PUBLICATION


def _carry_out(reproduction: Sweeps | Simulations, dry_run: bool, as_json: bool) -> None:
    """Run what is missing, write the page and print the findings, also of an interrupted one; or print the forecast."""
    from cellbed.cli.sweep import Terminal
    from cellbed.experiments.reproduce import page

    if dry_run:
        print("\n".join(reproduction.forecast()))
        return
    with Terminal() as terminal:
        try:
            failed, interrupted = reproduction.run(terminal), False
        except KeyboardInterrupt:
            failed, interrupted = 0, True
    result = reproduction.result(shlex.join(["cellbed", *sys.argv[1:]]))
    if result.data:
        path = page.write(result, reproduction.folder)
        if as_json:
            print(json.dumps(result.json(), indent=1, ensure_ascii=False))
        else:
            _show(result)
            print(f"page: {path}")
    if interrupted:
        print("interrupted: run the same command to continue", file=sys.stderr)
        raise typer.Exit(130)
    if failed:
        print(f"error: {failed} {reproduction.what} failed: run the same command to try them again", file=sys.stderr)
        raise typer.Exit(1)


def _show(result: Result) -> None:
    from rich.table import Table

    from cellbed.experiments.reproduce.page import rows
    from cellbed.support.console import Console

    table = Table(title=result.publication.title)
    for heading in ("", "where", "claim", "published", f"{result.ours} (95 % interval)", "direction", "magnitude"):
        table.add_column(heading)
    for row in rows(result):
        table.add_row(*row)
    console = Console()
    console.print(table)
    for key, (_, text) in result.answers().items():
        console.print(f"{key}: {text}\n", highlight=False)
    for text in result.cautions():
        console.print(f"note: {text}", highlight=False)
