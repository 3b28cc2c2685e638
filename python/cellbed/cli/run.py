"""``cellbed run``: run a scenario."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from cellbed.cli.options import Check, JUnit, Overcommit, Verbose, conclude, require
from cellbed.support.errors import CellbedError
from cellbed_node import inputs


def run(
    scenario: Annotated[Path | None, typer.Argument(help="The scenario file (TOML).", metavar="FILE")] = None,
    example: Annotated[
        str | None, typer.Option("--example", help="Instead of FILE: an example that cellbed ships.", metavar="NAME")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Parent of the run's folder.")] = Path("runs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print nodes, links and limits, then exit.")] = False,
    no_limits: Annotated[
        bool, typer.Option("--no-limits", help="Run without CPU and memory limits; the report says so.")
    ] = False,
    overcommit: Overcommit = False,
    meter: Annotated[
        bool, typer.Option("--meter", help="Show rate, queue, delay and drops of each link while it runs.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with status 4 if the machine disturbed the run.")
    ] = False,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Predict the run in virtual time; the report says so.")
    ] = False,
    profile: Annotated[
        Path | None,
        typer.Option(
            help="With --virtual: an earlier run that has measured what the programs take. Default: measured once, for "
            "20 s, of translation 60 s."
        ),
    ] = None,
    check_expectations: Check = False,
    junit: JUnit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan or the summary as JSON.")] = False,
    verbose: Verbose = False,
) -> None:
    """Run a scenario and report where the time of each request went.

    Ctrl-C ends the run and keeps what was measured. Exit status: 0 complete, 2 bad input, 3 a link or limit is
    not what was asked, 4 disturbed (with --strict), 5 an expectation is not met (with --check), 130 interrupted, 1 no
    request of an application got a good reply, or anything else that failed.

    A run is disturbed if late packets, or other programs that took the processors which the nodes needed, moved a
    percentile out of its interval, if a clock was set, or if a process of the workload died. The report gives the
    reasons.

    \b
    Examples:
      cellbed run --example offload-lte
      cellbed run --example offload-lte --virtual
      cellbed run my.toml --dry-run
      cellbed run my.toml --meter
      cellbed run my.toml --check --junit results.xml
      cellbed run my.toml --out /tmp/runs --json | jq '.applications[].percentiles'
    """
    if (scenario is None) == (example is None):
        raise CellbedError("write either a scenario file or --example NAME, such as: cellbed run --example offload-lte")
    from cellbed.testbed.machine.cgroups import enforcement, enter_delegated_scope

    if not (no_limits or dry_run or virtual):
        enter_delegated_scope()
    from cellbed.scenario import load_text, read
    from cellbed.scenario.examples import find_example
    from cellbed.testbed.plan import make_plan
    from cellbed.testbed.testbed import check, describe_overcommitment

    if example is not None:
        scenario = find_example(example)
    assert scenario is not None
    text = read(scenario)
    loaded = load_text(text, scenario)
    if profile is not None and not virtual:
        raise CellbedError("--profile needs --virtual: add it")
    if meter and virtual:
        raise CellbedError("--meter shows a run in real time: remove it, or --virtual")
    require(check_expectations, junit, scenario, expected=any(loaded.expectations().values()))
    lacking: CellbedError | None = None
    try:
        if not virtual:
            check(loaded, text, str(scenario), running=not dry_run, limits=enforcement(no_limits, overcommit))
    except CellbedError as error:
        if not dry_run:
            raise
        lacking = error
    plan = make_plan(loaded)
    if dry_run:
        from cellbed.cli.tables import plan_as_dict, show_plan
        from cellbed.experiments.description import cautions

        warnings = [*cautions(plan), *([] if virtual or no_limits else describe_overcommitment(loaded))]
        if as_json:
            print(json.dumps(plan_as_dict(plan) | {"cautions": warnings}, indent=1))
        else:
            show_plan(plan, warnings)
        if lacking is not None:
            raise lacking
        return
    from cellbed.cli.progress import listener
    from cellbed.experiments.real_run import Options
    from cellbed.experiments.real_run import run as execute
    from cellbed.experiments.run import exit_code, finish

    with listener() as terminal:
        if virtual:
            from cellbed.experiments.virtual import run as prediction

            options = prediction.Options(out, scenario.parent, limits=not no_limits, profile=profile)
            outcome = prediction.run(text, plan, options, terminal)
        else:
            outcome = execute(text, plan, Options(out, limits=not no_limits, meter=meter), terminal)
        reported = finish(outcome, terminal)
    if outcome.folder is not None and reported:
        from cellbed.report.terminal import show

        if as_json:
            print(inputs.text(outcome.folder / "summary.json"))
        else:
            show(outcome.folder)
    if check_expectations:
        from cellbed.measure.verdicts import verdicts_without_run

        why = str(outcome.error or "the run was interrupted")
        verdicts = outcome.verdicts or verdicts_without_run(loaded.expectations(), why)
        conclude(verdicts, junit, loaded.name, shown=reported and bool(outcome.verdicts), as_json=as_json)
    if outcome.error is not None:
        print(f"error: {outcome.error}", file=sys.stderr)
        if outcome.folder is not None and not reported:
            print(f"what was measured is in {outcome.folder}; see it with: cellbed report RUN", file=sys.stderr)
    elif outcome.status == "interrupted":
        where = f"; what was measured is in {outcome.folder}" if outcome.folder else " before anything was measured"
        print(f"interrupted{where}", file=sys.stderr)
    raise typer.Exit(exit_code(outcome, strict=strict, check=check_expectations))
