"""``cellbed evaluate``: the accuracy of replays."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from cellbed import CellbedError

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
        typer.Option(
            help="Applications, separated by commas: round-trips, trains, downloads, pages, player. Default: all."
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, separated by commas: saturation, cellreplay, conditional, itself (the network again, no "
            "replay). Default: all."
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1, help="Trials of each application on each network. Default: 40, with --quick 3.", show_default=False
        ),
    ] = None,
    recordings: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100,
            help="Recordings of each condition; trials take them in turn. Default: 5, with --quick 1.",
            show_default=False,
        ),
    ] = None,
    length: Annotated[str, typer.Option(help="Length of each recording.")] = "120 s",
    seed: Annotated[int, typer.Option(min=0, max=2**32, help="Seed of the radio conditions and the applications.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Quick look: two conditions, shortened applications, 3 trials.")
    ] = False,
    conditions: Annotated[bool, typer.Option("--conditions", help="Also show each condition.")] = False,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Maximum recordings made and replayed in parallel.")] = 1,
    results: Annotated[
        Path | None, typer.Option(help="Folder of samples and table. An existing folder is resumed.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Compare applications on a network and on its replays.

    Records a reference network and replays it with each method, in virtual time.

    \b
    Examples:
      cellbed evaluate replay --jobs 2
      cellbed evaluate replay --quick --applications round-trips,downloads
      cellbed evaluate replay --results evaluation --trials 100
    """
    from cellbed.extension.files import DURATION
    from cellbed.extension.recorded import PROFILES
    from cellbed.extension.reports import Console
    from cellbed.extension.verbs import StatusLine
    from cellbed_papers.evaluation.applications import APPLICATIONS
    from cellbed_papers.evaluation.evaluate import Plan
    from cellbed_papers.evaluation.evaluate import evaluate as run
    from cellbed_papers.evaluation.methods import METHODS
    from cellbed_papers.evaluation.network import ITSELF
    from cellbed_papers.evaluation.terminal import show

    chosen = _parse_choice("--applications", applications, APPLICATIONS, APPLICATIONS)
    try:
        course_ns = int(DURATION.parse(length))
    except ValueError as error:
        raise CellbedError(f"--length: {error}") from None
    plan = Plan(
        profiles=_parse_choice(
            "--profiles", profiles, ("midband-good", "lowband-driving") if quick else PROFILES, PROFILES
        ),
        methods=_parse_choice("--methods", methods, (*METHODS, ITSELF), (*METHODS, ITSELF)),
        applications=tuple(APPLICATIONS[name].quick() if quick else APPLICATIONS[name]() for name in chosen),
        trials=trials or (3 if quick else 40),
        recordings=recordings or (1 if quick else 5),
        course_ns=course_ns,
        seed=seed,
    )
    folder = results or Path(f"evaluation-{datetime.now():%Y%m%d-%H%M%S}")  # noqa: TID251
    again = f"resume with --results {folder} and the same options"
    try:
        with StatusLine() as terminal:
            table, failed = run(plan, folder, jobs, terminal)
    except KeyboardInterrupt:
        print(f"interrupted; {again}", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(table.json(), indent=1))
    else:
        show(table, plan.methods, conditions=conditions, console=Console(highlight=False))
    if failed:
        print(f"{failed} recordings failed; {again}", file=sys.stderr)
        raise typer.Exit(1)
    print(folder.absolute(), file=sys.stderr)


def _parse_choice(option: str, text: str | None, default: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    from cellbed.extension.files import did_you_mean

    if text is None:
        return tuple(default)
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise CellbedError(
                f"{option}: '{name}' is not known: {did_you_mean(name, known)}there is {', '.join(known)}"
            )
    if not names:
        raise CellbedError(f"{option}: names nothing: there is {', '.join(known)}")
    return tuple(dict.fromkeys(names))
