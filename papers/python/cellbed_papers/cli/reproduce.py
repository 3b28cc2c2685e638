"""``cellbed reproduce``: run the experiments of a publication and compare its claims with our trials."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cellbed.extension.files import entries
from cellbed.extension.verbs import name_values

if TYPE_CHECKING:
    from cellbed_papers.reproduce.page import Result
    from cellbed_papers.reproduce.simulated import Simulations
    from cellbed_papers.reproduce.swept import Sweeps

PUBLICATIONS = "publications"
"""Group of entry points, below `cellbed.`: name of the publication, and module with a `PUBLICATION`."""
_HELP = """{made.title}.

The experiments and claims of {made.citation}. After an interruption, the same command continues. Exit status: 0 every
trial has been run; 1 some failed; 2 bad input; 130 interrupted.

\b
Examples:
  cellbed reproduce {made.name} --short
  cellbed reproduce {made.name} {option} {made.experiments[0].name}
"""


class _Publications(TyperGroup):
    """A group with a command for each publication."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(entries(PUBLICATIONS))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in entries(PUBLICATIONS):
            return None
        from cellbed_papers.publication import SweptPublication

        made = _load(cmd_name)
        run, option = (_run_sweeps, "--experiment") if isinstance(made, SweptPublication) else (_simulate, "--figure")
        command = typer.Typer(add_completion=False, rich_markup_mode=None)
        command.command(cmd_name, help=_HELP.format(made=made, option=option), short_help=made.title)(run)
        shown = typer.main.get_command(command)
        name_values(shown)
        return shown


app = typer.Typer(
    cls=_Publications,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Run the experiments of a publication and compare its claims with our trials.",
)


@app.callback()
def reproduce() -> None:
    """Run the experiments of a publication and compare its claims with our trials.

    \b
    Example:
      cellbed reproduce cosmic --short
    """


def _load(name: str) -> Any:
    return entries(PUBLICATIONS)[name].load().PUBLICATION


_Short = Annotated[bool, typer.Option("--short", help="Run a short version: ten minutes on two idle processors.")]
_Out = Annotated[Path, typer.Option("--out", "-o", help="Parent of the results' folder.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print experiments, trials and time, then exit.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")]


def _run_sweeps(
    ctx: typer.Context,
    experiment: Annotated[
        list[str] | None,
        typer.Option("--experiment", "-e", help="Experiment, see --dry-run; repeatable. Default: all.", metavar="NAME"),
    ] = None,
    short: _Short = False,
    traces: Annotated[
        list[str] | None,
        typer.Option(
            "--traces",
            metavar="FOLDER|ROLE=NAME",
            help="Folder with recordings in any format, called by their roles (see --dry-run); or an entry of the "
            "archive or a file for a role. Repeatable. Default: the archive's, else substitutes, which the page names.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="KIND=PATH",
            help="A trained network of yours in the applications of a kind, with its code in a file beside it, such as "
            "mine.keras and mine.py. Repeatable. Default: seeded weights, which the page marks.",
        ),
    ] = None,
    out: _Out = Path("reproductions"),
    repeats: Annotated[
        int, typer.Option("--repeats", min=0, max=100, help="Maximum repetitions of a disturbed trial.")
    ] = 1,
    dry_run: _DryRun = False,
    no_limits: Annotated[bool, typer.Option("--no-limits", help="Run without CPU and memory limits.")] = False,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Predict the trials in virtual time, into the folder NAME-virtual.")
    ] = False,
    as_json: _Json = False,
) -> None:
    from cellbed.extension.trials import Execution
    from cellbed_papers.reproduce.swept import Sweeps

    sweeps = Sweeps(
        _load(ctx.command.name or ""),
        experiment or [],
        out,
        Execution(virtual=virtual, limits=not no_limits),
        short=short,
        given=traces or [],
        models=model or [],
        repeats=repeats,
        running=not dry_run,
    )
    _carry_out(sweeps, dry_run, as_json)


def _simulate(
    ctx: typer.Context,
    figure: Annotated[
        list[str] | None,
        typer.Option("--figure", "-f", help="Figure, see --dry-run; repeatable. Default: all.", metavar="NAME"),
    ] = None,
    short: _Short = False,
    sizes: Annotated[
        Path | None,
        typer.Option(
            "--sizes",
            help="File of flow sizes; lines SIZE 1 CUMULATIVE-SHARE, SIZE in packets. Default: cellbed's file, after "
            "published values.",
        ),
    ] = None,
    cqi: Annotated[
        list[Path] | None,
        typer.Option(
            "--cqi",
            help="File of recorded channel qualities: whole numbers to 15, one per 5 ms. Repeatable: user n has file n "
            "modulo their number, from a random position. Default: a synthetic process.",
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, max=1000, help="Simulations of each setting.")] = None,
    flows: Annotated[
        int | None, typer.Option("--flows", min=10, max=1_000_000, help="Flows to users in each simulation.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, max=1024, help="Parallel simulations. Default: one per processor."),
    ] = None,
    out: _Out = Path("reproductions"),
    dry_run: _DryRun = False,
    as_json: _Json = False,
) -> None:
    from cellbed_papers.reproduce.simulated import Simulations

    made, scale = _load(ctx.command.name or ""), {"seeds": seeds, "flows": flows}
    given = {"sizes": [sizes] if sizes else [], "cqi": cqi or []}
    _carry_out(Simulations(made, figure or [], out, short=short, given=given, jobs=jobs, **scale), dry_run, as_json)


def _carry_out(reproduction: Sweeps | Simulations, dry_run: bool, as_json: bool) -> None:
    """Print the forecast; or run missing trials, write the page and print the findings, also after an interrupt."""
    from cellbed.extension.verbs import Terminal
    from cellbed_papers.reproduce import page

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

    from cellbed.extension.reports import Console, table_width
    from cellbed_papers.reproduce.page import rows

    table = Table(title=result.publication.title)
    ours = f"{result.ours} (95 % interval)"
    for heading in ("", "where", "claim", "published", ours, "direction", "magnitude", "verdict"):
        table.add_column(heading, overflow="fold")
    for row in rows(result):
        table.add_row(*row)
    console = Console(width=table_width())
    console.print(table)
    console.print(
        f"verdicts: {', '.join(f'{count} {word}' for word, count in result.verdicts.items())}\n", highlight=False
    )
    for key, (_, text) in result.answers().items():
        console.print(f"{key}: {text}\n", highlight=False)
    for text in result.cautions():
        console.print(f"note: {text}", highlight=False)
