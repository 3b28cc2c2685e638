"""``cellbed evaluate``: the accuracy of replays."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cellbed import CellbedError

if TYPE_CHECKING:
    from cellbed_papers.evaluation.evaluate import Plan
    from cellbed_papers.evaluation.live import LivePlan
    from cellbed_papers.evaluation.network import Reference

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def evaluate() -> None:
    """Measure how closely replays follow the recorded network."""


@app.command()
def replay(
    profiles: Annotated[
        str | None, typer.Option(help="Conditions, or networks of the zoo, separated by commas. Default: all.")
    ] = None,
    zoo: Annotated[
        bool, typer.Option("--zoo", help="Networks drawn from stated ranges, not the ten conditions.")
    ] = False,
    half: Annotated[Literal["development", "reported", "both"], typer.Option(help="Half of the zoo.")] = "development",
    traces: Annotated[
        Path | None, typer.Option(help="Folder of recordings NAME.up and NAME.down in Mahimahi's format, for the zoo.")
    ] = None,
    applications: Annotated[
        str | None, typer.Option(help="Of round-trips, trains, downloads, pages, player. Default: all.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Of saturation, cellreplay, conditional, mm-cellular (CellReplay's own tool, by the program in "
            "MM_CELLULAR), itself (the network again, no replay). Default: all there are."
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Trials of each application. Default: 40, with --quick 3.")
    ] = None,
    recordings: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="Recordings of each network, used in turn. Default: 5, with --quick 1."),
    ] = None,
    length: Annotated[str, typer.Option(help="Length of each recording.")] = "120 s",
    seed: Annotated[int, typer.Option(min=0, max=2**32, help="Seed of the radio conditions and the applications.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Quick look: some networks, shortened applications, 3 trials.")
    ] = False,
    conditions: Annotated[bool, typer.Option("--conditions", help="Also show each condition or network.")] = False,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Maximum recordings made and replayed in parallel.")] = 1,
    results: Annotated[
        Path | None, typer.Option(help="Folder of samples and table. An existing folder is resumed.")
    ] = None,
    recording: Annotated[
        list[str] | None,
        typer.Option(help="Folder of a recording, or name in the archive, whose network is gone. Repeatable."),
    ] = None,
    live: Annotated[
        Path | None,
        typer.Option(
            help="Scenario with a live link: record its network, then run it over the network and its replays in turn.",
            dir_okay=False,
            exists=True,
        ),
    ] = None,
    server: Annotated[str | None, typer.Option(help="With --live: the server of `cellbed record`.")] = None,
    secret: Annotated[Path | None, typer.Option(help="With --live: the secret of this server.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Compare applications on a network and on its replays.

    Records a reference network and replays it with each method, in virtual time. With --recording, prints errors on
    held-back parts of the recording, and differences between methods, which are no errors.

    \b
    Examples:
      cellbed evaluate replay --jobs 2
      cellbed evaluate replay --quick --applications round-trips,downloads
      cellbed evaluate replay --zoo --traces recordings --recordings 1 --trials 10
      cellbed evaluate replay --recording recordings/walk --trials 10
      cellbed evaluate replay --live phone.toml --server vps.example:7700 --secret secret --recordings 1 --trials 10
    """
    from cellbed.extension.files import DURATION, inputs
    from cellbed.extension.recorded import PROFILES, ensure_certificate
    from cellbed.extension.reports import Console
    from cellbed.extension.verbs import StatusLine
    from cellbed_papers.evaluation.applications import APPLICATIONS
    from cellbed_papers.evaluation.evaluate import LEAD_NS, Plan
    from cellbed_papers.evaluation.evaluate import evaluate as run
    from cellbed_papers.evaluation.live import PROFILE as LIVE
    from cellbed_papers.evaluation.live import evaluate as run_live
    from cellbed_papers.evaluation.methods import METHODS, PROGRAM, TOOL
    from cellbed_papers.evaluation.network import ITSELF, Recorded, profile_reference
    from cellbed_papers.evaluation.terminal import show, show_certificate
    from cellbed_papers.evaluation.zoo import zoo as draw_zoo

    chosen = _parse_choice("--applications", applications, APPLICATIONS, APPLICATIONS)
    try:
        course_ns = int(DURATION.parse(length))
    except ValueError as error:
        raise CellbedError(f"--length: {error}") from None
    recorded = [Recorded.of(text) for text in recording or ()]
    known: Mapping[str, Reference] = {each.name: each for each in recorded}
    usual: Iterable[str] = known
    if recorded:
        if zoo or live or profiles or len(known) < len(recorded):
            raise CellbedError("--recording: folders need different names, and no --zoo, --live or --profiles")
        course_ns = min(each.length_ns for each in recorded) - LEAD_NS
    elif zoo:
        drawn, missing = draw_zoo(traces, half)
        print(*missing, sep="\n", end="\n" if missing else "", file=sys.stderr)
        known = {each.name: each for each in drawn}
        usual = list(known)[::4] if quick else known
    elif traces or half != "development":
        raise CellbedError("--half and --traces belong to the zoo: add --zoo")
    else:
        known = {name: profile_reference(name) for name in PROFILES}
        usual = ("midband-good", "lowband-driving") if quick else known
    names = _parse_choice("--profiles", profiles, usual, known)
    replays = tuple(METHODS) if live or recorded else (*METHODS, ITSELF)
    there = [name for name in replays if name != TOOL or (PROGRAM in os.environ and not live)]
    if methods is None and len(there) < len(replays) and not live:
        print(f"{TOOL} is left out: {PROGRAM} names no program", file=sys.stderr)
    plan = Plan(
        references=tuple(known[name] for name in names),
        methods=_parse_choice("--methods", methods, there, there if live else replays),
        applications=tuple(APPLICATIONS[name].quick() if quick else APPLICATIONS[name]() for name in chosen),
        trials=trials or (3 if quick else 40),
        recordings=1 if recorded else recordings or (1 if quick else 5),
        course_ns=course_ns,
        seed=seed,
    )
    folder = results or Path(f"evaluation-{datetime.now():%Y%m%d-%H%M%S}")  # noqa: TID251
    again = f"resume with --results {folder} and the same options"
    try:
        with StatusLine() as terminal:
            if live is None:
                tables, failed = run(plan, folder, jobs, terminal)
            else:
                table, failed = run_live(_live_plan(plan, live, server, secret, length), folder, terminal)
                tables = [table]
    except KeyboardInterrupt:
        print(f"interrupted; {again}", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(inputs.text(folder / "table.json"))
    else:
        console = Console(highlight=False)
        for each in recorded:
            show_certificate(each.name, ensure_certificate(Path(each.folder)), console)
        networks = {LIVE: f"the network of {live}"} if live else {each.name: each.text for each in plan.references}
        for table in tables:
            show(table, networks, conditions=conditions or bool(recorded), console=console)
    if failed:
        print(f"{failed} {'recordings' if live is None else 'runs'} failed; {again}", file=sys.stderr)
        raise typer.Exit(1)
    print(folder.absolute(), file=sys.stderr)


def _live_plan(plan: Plan, live: Path, server: str | None, secret: Path | None, length: str) -> LivePlan:
    """Return the plan of an evaluation on a live network with the numbers and methods of `plan`."""
    from cellbed import Scenario
    from cellbed_papers.evaluation.live import LivePlan, recorder

    scenario = Scenario.load(live)
    if scenario.resolved()["links"]["mobile"].get("kind") != "live":
        raise CellbedError(f"--live: {live} has no live link: write [links.mobile] kind = 'live'")
    if server is None or secret is None:
        raise CellbedError("--live: a recording needs --server and --secret; the other end is `cellbed record serve`")
    record = recorder(scenario, server, secret, length)
    return LivePlan(scenario, record, plan.methods, plan.trials, min(plan.recordings, plan.trials), plan.seed)


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
