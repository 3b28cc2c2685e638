"""``cellbed reproduce``: run the experiments of a publication and compare its claims with our trials."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

if TYPE_CHECKING:
    from cellbed.experiments.reproduce.page import Result

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Run the experiments of a publication and compare its claims with our trials.",
)


@app.callback()
def reproduce() -> None:
    """Run the experiments of a publication and compare its claims with our trials."""


@app.command()
def thesis(
    experiment: Annotated[
        list[str] | None,
        typer.Option("--experiment", "-e", help="E1, E2, E3, E4 or 6G; repeatable. Default: all.", metavar="NAME"),
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="About ten minutes on two idle processors.")] = False,
    traces: Annotated[
        Path | None,
        typer.Option("--traces", help="Folder with the recordings, such as KPN-5G.up and Verizon-LTE-short.up."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder in which the results are created.")] = Path(
        "reproductions"
    ),
    repeats: Annotated[
        int, typer.Option("--repeats", min=0, max=100, help="How often a disturbed trial is repeated.")
    ] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print experiments, trials and time, then exit.")] = False,
    no_limits: Annotated[bool, typer.Option("--no-limits", help="Run without CPU and memory limits.")] = False,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Predict the trials in virtual time, into the folder thesis-virtual.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
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
    from cellbed.cli.sweep import Terminal
    from cellbed.experiments.reproduce import page, reproduction
    from cellbed.experiments.reproduce.thesis import THESIS
    from cellbed.experiments.sweep import runner
    from cellbed.experiments.sweep.library import Execution
    from cellbed.experiments.sweep.store import results_in

    chosen = reproduction.check_names(THESIS, experiment or [])
    folder, other = (out / ("thesis" + "-short" * short + "-virtual" * clock) for clock in (virtual, not virtual))
    execution = Execution(virtual=virtual, limits=not no_limits)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary) if dry_run else folder
        played = reproduction.traces(THESIS, chosen, place / "traces", traces)
        prepared = reproduction.prepare(
            THESIS, chosen, place, folder, played, execution, short=short, running=not dry_run
        )
    if dry_run:
        for each in prepared:
            missing = runner.missing(each.plan, results_in(each.folder), repeats)
            print(f"{each.experiment.name}: {len(each.plan.points)} points, {len(missing)} trials to run")
        print(f"in all, with shared trials run once: {runner.words(reproduction.seconds(prepared, repeats))}")
        for trace in played:
            print(f"{trace.input.name}: {trace.note}")
        return
    failed, folders = 0, [each.folder for each in prepared]
    with Terminal() as terminal:
        for each in prepared:
            left = reproduction.seconds(prepared, repeats)
            terminal.note(f"{each.experiment.name}: {each.experiment.title}; in all {runner.words(left)} left")
            account = execution.run(each.plan, each.folder, terminal, repeats, folders)
            if account.interrupted:
                _interrupted()
            failed += account.failed
    data = {each.experiment.name: reproduction.collect(each.folder) for each in prepared}
    notes = reproduction.deviations(THESIS, prepared[0].plan.trials[0].tables)
    if no_limits:
        notes.append("CPU and memory of the nodes were not limited (--no-limits).")
    inputs = [*(each.input for each in played), *THESIS.inputs]
    clock: Literal["real", "virtual"] = "virtual" if virtual else "real"
    result = page.Result(THESIS, data, inputs, short, _command(), page.machine(), notes, clock, page.values_in(other))
    _finish(result, folder, failed, "trials", as_json)


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
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder in which the results are created.")] = Path(
        "reproductions"
    ),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print figures and simulations, then exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """The figures of the pDCell paper, a transport for edge data centres, and its assertions beside our simulations.

    Everything is simulated; nothing is measured. The same command continues after any stop. Exit status: 0 every
    simulation has been run, 1 some failed, 2 bad input, 130 interrupted.

    \b
    Examples:
      cellbed reproduce pdcell --short
      cellbed reproduce pdcell --figure 9 --figure 11a --sizes CDF_aditya.txt
    """
    from cellbed.cli.sweep import Terminal
    from cellbed.experiments.reproduce import page, reproduction, simulated
    from cellbed.experiments.reproduce.pdcell import PDCELL_PAPER, flow_sizes

    scale = dict(PDCELL_PAPER.short if short else PDCELL_PAPER.full)
    scale |= {name: value for name, value in (("seeds", seeds), ("flows", flows)) if value is not None}
    chosen = reproduction.check_names(PDCELL_PAPER, figure or [], "--figure")
    points, used = flow_sizes(sizes)
    folder = out / ("pdcell" + "-short" * short)
    runs = simulated.runs(PDCELL_PAPER, chosen, scale, points, folder)
    wanted = simulated.missing(runs)
    if dry_run:
        for name, group in runs.items():
            print(f"{name}: {len(group)} simulations")
        print(f"in all, with shared ones run once: {len(wanted)} to run")
        print(f"{used.name}: {used.note}")
        return
    with Terminal() as terminal:
        terminal.note(f"{len(wanted)} simulations to run")
        try:
            failed = simulated.perform(PDCELL_PAPER, wanted, terminal, jobs)
        except KeyboardInterrupt:
            _interrupted()
    data = simulated.collect(runs)
    result = page.Result(PDCELL_PAPER, data, [used], short, _command(), page.machine(), simulated.notes(data))
    _finish(result, folder, failed, "simulations", as_json)


def _command() -> str:
    return shlex.join(["cellbed", *sys.argv[1:]])


def _interrupted() -> NoReturn:
    print("interrupted: run the same command to continue", file=sys.stderr)
    raise typer.Exit(130)


def _finish(result: Result, folder: Path, failed: int, what: str, as_json: bool) -> None:
    """Write the page and print the findings. failed: how many of `what`."""
    from cellbed.experiments.reproduce import page

    path = page.write(result, folder)
    if as_json:
        print(json.dumps(result.json(), indent=1, ensure_ascii=False))
    else:
        _show(result)
        print(f"page: {path}")
    if failed:
        print(f"error: {failed} {what} failed: run the same command to try them again", file=sys.stderr)
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
