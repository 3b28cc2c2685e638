"""`cellbed evaluate`: the accuracy of replays."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def evaluate() -> None:
    """Measure how closely replays follow the recorded network."""


@app.command()
def replay(
    profiles: Annotated[
        str | None, typer.Option(help="Conditions of the reference network, separated by commas. Default: all ten.")
    ] = None,
    applications: Annotated[
        str | None,
        typer.Option(help="round-trips, trains, downloads, pages, player, separated by commas. Default: all."),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="saturation, cellreplay, conditional, itself (no replay: chance), with commas; left out: all."
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Trials of each application on each network. Default: 40 in virtual time, 10 in real time.",
            show_default=False,
        ),
    ] = None,
    recordings: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100,
            help="Recordings of each condition; trials take them in turn; left out: 5, over sockets or --quick 1.",
            show_default=False,
        ),
    ] = None,
    length: Annotated[str, typer.Option(help="Length of each recording.")] = "120 s",
    seed: Annotated[
        int, typer.Option(min=0, max=2**32, help="Seed of the radio conditions, the order and the applications.")
    ] = 1,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Run everything in virtual time: minutes instead of hours.")
    ] = False,
    record_virtually: Annotated[
        bool, typer.Option("--record-virtually", help="Record in virtual time, but run applications over real links.")
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Quick look: two conditions, shortened applications, 3 trials, recorded in virtual time."
        ),
    ] = False,
    conditions: Annotated[bool, typer.Option("--conditions", help="Also show each condition.")] = False,
    jobs: Annotated[
        int,
        typer.Option(
            min=1, max=256, help="Number of steps run at once, each over a separate link. Needs a core for each."
        ),
    ] = 1,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Start no new step after this time, such as '50 min', and print the results so far. Resume later."
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(help="Folder of samples and table. An existing folder is resumed."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Record a reference network, replay it with each method, and compare applications on all of them.

    \b
    Examples:
      cellbed evaluate replay --virtual
      cellbed evaluate replay --quick --applications round-trips,downloads
      cellbed evaluate replay --results evaluation --trials 20
      cellbed evaluate replay --results evaluation --jobs 4 --budget '50 min'    # repeat until done
    """
    from cellbed.experiments.evaluation.command import Options, run

    status = run(
        Options(
            profiles=profiles,
            applications=applications,
            methods=methods,
            trials=trials,
            recordings=recordings,
            length=length,
            seed=seed,
            virtual=virtual,
            record_virtually=record_virtually,
            quick=quick,
            conditions=conditions,
            jobs=jobs,
            budget=budget,
            results=results,
            as_json=as_json,
        ),
        sys.stdout,
    )
    raise typer.Exit(status)
