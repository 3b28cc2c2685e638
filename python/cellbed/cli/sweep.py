"""``cellbed sweep``: run a scenario or simulation at many points, several times each, into one dataset."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from cellbed.cli.options import Check, Ending, JUnit, Open, Overcommit, conclude, require
from cellbed.support.errors import CellbedError
from cellbed.support.standard_streams import StatusLine

if TYPE_CHECKING:
    from cellbed.experiments.sweep.runner import Progress
    from cellbed.experiments.sweep.store import Result
    from cellbed.experiments.sweep.trials import Plan, Trial


class _OfFile(TyperGroup):
    """A command group where `cellbed sweep FILE` means `cellbed sweep run FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing or args:
            args = args if args and args[0] in self.commands else ["run", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        return [
            *super().shell_complete(ctx, incomplete),
            *self.commands["run"].params[0].shell_complete(ctx, incomplete),
        ]


app = typer.Typer(
    cls=_OfFile,
    add_completion=False,
    rich_markup_mode=None,
    help="Run a scenario or simulation with many settings.",
)


@app.callback()
def sweep() -> None:
    """Run a scenario or simulation with many settings, several times each, into one dataset."""


@app.command("run")
def run_sweep(
    file: Annotated[Path, typer.Argument(help="The sweep file (TOML).", metavar="FILE")],
    alone: Annotated[
        bool, typer.Option("--alone", help="FILE is a scenario: run its applications together, and each alone.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Parent of the sweep's folder.")] = Path("sweeps"),
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            min=1,
            max=1024,
            help="Maximum parallel trials. Default: as many as the processors can run, or fewer if trials disturb each "
            "other.",
        ),
    ] = None,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Predict the trials in virtual time, into the folder NAME-virtual.")
    ] = False,
    profile: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="With --virtual: folder of an earlier run with measured processing times. Default: measure them once, "
            "for 10 s.",
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", min=0, max=100, help="Maximum repetitions of a disturbed trial.")
    ] = 2,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print points, trials and time, then exit.")] = False,
    no_limits: Annotated[bool, typer.Option("--no-limits", help="Run without CPU and memory limits.")] = False,
    overcommit: Overcommit = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with status 4 if all attempts of a trial were disturbed.")
    ] = False,
    check: Check = False,
    junit: JUnit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan or the result as JSON.")] = False,
) -> None:
    """Run a scenario or simulation with many settings, several times each, into one dataset.

    After an interruption, the same command continues: it runs missing and failed trials. `cellbed sweep report DIR`
    writes the report. Exit status: 0 every trial has been run; 1 some failed; 2 bad input; 4 disturbed (with --strict);
    5 a repetition does not meet an expectation (with --check); 130 interrupted.

    \b
    Examples:
      cellbed sweep load-and-place.toml --dry-run
      cellbed sweep load-and-place.toml
      cellbed sweep load-and-place.toml --jobs 4 --json | jq .failed
      cellbed sweep load-and-place.toml --virtual
      cellbed sweep scenarios/two-applications.toml --alone
      cellbed sweep load-and-place.toml --check --junit results.xml
      cellbed sweep transports.toml && cellbed sweep report sweeps/transports -m slowdown_p99
    """
    from cellbed.experiments.run import DISTURBED, UNMET
    from cellbed.experiments.sweep import runner
    from cellbed.experiments.sweep.library import Execution
    from cellbed.experiments.sweep.store import results_in
    from cellbed.testbed.machine.cgroups import enforcement

    if profile is not None and not virtual:
        raise CellbedError("--profile needs --virtual")
    execution = Execution(virtual, profile, jobs, enforcement(no_limits, overcommit))
    plan = execution.plan(file, running=not dry_run, apart=alone)
    require(check, junit, file, expected=any(any(trial.expectations.values()) for trial in plan.trials))
    folder = out / (f"{plan.sweep.name}-virtual" if virtual else plan.sweep.name)
    if dry_run:
        with execution.executor(plan) as pool:
            _show_plan(plan, runner.forecast(plan, results_in(folder), pool.at_once, repeats), as_json)
        return
    with Terminal() as terminal:
        account = execution.run(plan, folder, terminal, repeats)
    if as_json:
        print(json.dumps(runner.summary(plan, folder, account), indent=1))
    else:
        states = ", ".join(f"{count} {state}" for state, count in account.states().items())
        print(f"{states} of {len(plan.distinct)} trials: {folder / 'trials.parquet'}")
    if check:
        conclude(account.verdicts, junit, plan.sweep.name, shown=False, as_json=as_json)
    if account.disturbed and not as_json:
        again = f"close other programs and run the same command with --repeats {min(repeats + 3, 100)}"
        print(f"trials disturbed by other programs: {account.disturbed}; to try them again, {again}", file=sys.stderr)
    if account.interrupted:
        print("interrupted: run the same command to continue", file=sys.stderr)
        raise typer.Exit(130)
    if not as_json and account.complete + account.disturbed:
        print(f"write the report: cellbed sweep report {shlex.quote(str(folder))}", file=sys.stderr)
    if account.failed:
        print(f"error: {account.failed} trials failed: run the same command to try them again", file=sys.stderr)
        raise typer.Exit(1)
    if strict and account.disturbed:
        raise typer.Exit(DISTURBED)
    raise typer.Exit(UNMET if check and not all(each.met for each in account.verdicts) else 0)


@app.command("report")
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of the sweep.", metavar="DIR")],
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            "-m",
            metavar="COLUMN",
            help="Column of the dataset; repeatable. Default: latency_p50_s, latency_p99_s, failed_share, lost_share; "
            "for applications without known requests, measures of the programs and of their connections.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Page to write. Default: report.html in DIR.", metavar="FILE")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Write every figure into this folder.", metavar="FOLDER")] = None,
    ending: Ending = "svg",
    statistic: Annotated[
        Literal["mean", "median"], typer.Option("--statistic", help="Statistic over the repetitions of a point.")
    ] = "mean",
    half_width: Annotated[
        float,
        typer.Option(
            "--half-width",
            min=0.01,
            max=100,
            metavar="PERCENT",
            help="Estimate the repetitions needed for intervals of ± this share of the mean.",
        ),
    ] = 10.0,
    with_disturbed: Annotated[
        bool, typer.Option("--with-disturbed", help="Use disturbed trials. Default: leave them out.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything but the figures as JSON.")] = False,
    open_: Open = "auto",
) -> None:
    """Write the report of a sweep: a figure per factor, intervals over repetitions, effects.

    The report omits and lists failed trials, and disturbed trials without --with-disturbed. The sweep may still be
    running.

    \b
    Examples:
      cellbed sweep report sweeps/load-and-place
      cellbed sweep report sweeps/load-and-place -m latency_p90_s -m uplink_p50_s --statistic median
      cellbed sweep report sweeps/load-and-place --figures figures --format pdf
      cellbed sweep report sweeps/load-and-place --json | jq '.applications[].measures[].effects'
    """
    from cellbed.experiments.sweep.library import Sweep
    from cellbed.report import html
    from cellbed.report.sweep import show

    found = Sweep.load(folder).report(
        measure or (), statistic=statistic, half_width=half_width / 100, disturbed=with_disturbed
    )
    page = out or folder / "report.html"
    found.write(page)
    if figures is not None:
        written = found.write_figures(figures, ending)
        print(f"{len(written)} figures in {figures}", file=sys.stderr)
    if as_json:
        print(json.dumps(found.content, indent=1))
    else:
        show(found)
        print(page)
    html.open_page(page, open_, quiet=as_json)


def _show_plan(plan: Plan, forecast: dict[str, Any], as_json: bool) -> None:
    from cellbed.experiments.sweep.runner import words

    if as_json:
        trials = [
            {"point": it.point.number, "repetition": it.repetition, "key": it.key, "seed": it.seed}
            for it in plan.trials
        ]
        points = [{"point": point.number, **point.labels} for point in plan.points]
        print(json.dumps({**forecast, "points": points, "trials": trials, "notes": plan.notes}, indent=1))
        return
    from rich.table import Table

    from cellbed.support.console import Console

    table = Table(title=f"{plan.sweep.name}: {len(plan.points)} points × {plan.sweep.repetitions} repetitions")
    table.add_column("point", justify="right")
    for name in plan.sweep.factors:
        table.add_column(name)
    for point in plan.points:
        table.add_row(str(point.number), *point.labels.values())
    Console(soft_wrap=True).print(table)
    print(
        f"{len(plan.distinct)} trials, {forecast['missing']} to run, {forecast['at_once']} at once: "
        f"{words(forecast['seconds'])}"
    )
    for note in plan.notes:
        print(f"note: {note}")


class Terminal(StatusLine):
    """Progress of a sweep: a line per attempt; on a terminal, also the current activity."""

    def ended(self, trial: Trial, result: Result, progress: Progress) -> None:
        """Print the result of an attempt."""
        from cellbed.experiments.sweep.runner import sentence

        self.note(sentence(trial, result, progress))
