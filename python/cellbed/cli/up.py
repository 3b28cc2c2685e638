"""``cellbed up``: bring up a testbed that stands until `cellbed down`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cellbed.cli.options import Overcommit, ScenarioFile, Verbose


def up(
    scenario: ScenarioFile,
    name: Annotated[
        str | None, typer.Option("--name", "-n", help="Name of the testbed. Default: the scenario's.")
    ] = None,
    start: Annotated[
        bool, typer.Option("--start", help="Start the loads of the applications, too: clients and generators.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Parent of the testbed's folder.")] = Path("runs"),
    no_limits: Annotated[bool, typer.Option("--no-limits", help="No CPU and memory limits.")] = False,
    overcommit: Overcommit = False,
    no_proof: Annotated[
        bool, typer.Option("--no-proof", help="Do not measure limits and links before: faster with many nodes.")
    ] = False,
    packet_log: Annotated[
        str,
        typer.Option(metavar="SIZE", help="Most that the packet log takes: beyond it the oldest packets are removed."),
    ] = "1 GiB",
    verbose: Verbose = False,
) -> None:
    """Bring up nodes, links and services of a scenario, and leave them standing in the background.

    Clients and load generators start only with --start. Traces, changes and faults begin when the testbed is up. It
    outlives the terminal and ends with `cellbed down`. It has a run's folder: packet log, events, logs.

    \b
    Examples:
      cellbed up scenarios/offload-lte.toml
      cellbed exec endpoint-0 -- ping -c 3 edge-0
      cellbed up my.toml --name second --start
      cellbed status
      cellbed down second
    """
    from cellbed.testbed.machine.cgroups import enforcement, enter_delegated_scope

    if not no_limits:
        enter_delegated_scope()
    from cellbed.cli.progress import listener
    from cellbed.experiments.real_run import Options
    from cellbed.experiments.standing import up as bring_up
    from cellbed.scenario import load_text, read
    from cellbed.support.errors import CellbedError
    from cellbed.support.units import SIZE, UnitError
    from cellbed.testbed.plan import make_plan
    from cellbed.testbed.testbed import check

    try:
        log_bytes = int(SIZE.parse(packet_log))
    except UnitError as error:
        raise CellbedError(f"--packet-log: {error}") from None
    if log_bytes < 1 << 20:
        raise CellbedError(f"--packet-log: {packet_log} is too small; the least is 1 MiB")
    text = read(scenario)
    loaded = load_text(text, scenario)
    check(loaded, text, str(scenario), running=True, limits=enforcement(no_limits, overcommit))
    name = loaded.name if name is None else name
    options = Options(
        out, limits=not no_limits, standing=name, loads=start, proof=not no_proof, packet_log_bytes=log_bytes
    )
    with listener() as reports:
        folder = bring_up(text, make_plan(loaded), options, reports)
    print(f"{name} is up; its folder: {folder}")
