"""The verbs for live testbeds and runs, from ``up`` to ``down``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cellbed.cli.options import AsJson, Overcommit, ScenarioFile, Testbed, Verbose
from cellbed.cli.tables import print_table

MOST = 20
"""Maximum nodes and events printed."""


def up(
    scenario: ScenarioFile,
    name: Annotated[
        str | None, typer.Option("--name", "-n", help="Name of the testbed. Default: the scenario's.")
    ] = None,
    start: Annotated[
        bool, typer.Option("--start", help="Also start the applications' loads: clients and load generators.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Parent of the testbed's folder.")] = Path("runs"),
    no_limits: Annotated[bool, typer.Option("--no-limits", help="Run without CPU and memory limits.")] = False,
    overcommit: Overcommit = False,
    no_proof: Annotated[
        bool, typer.Option("--no-proof", help="Skip the proof of limits and links: faster with many nodes.")
    ] = False,
    packet_log: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Maximum size of the packet log; when it is full, the oldest packets go. "
            "Default: the scenario's, or 1 GiB.",
        ),
    ] = "",
    verbose: Verbose = False,
) -> None:
    """Bring up the nodes, links and services of a scenario, in the background.

    Clients and load generators start only with --start. Traces, changes and faults begin when the testbed is up. The
    testbed outlives the terminal, until `cellbed down`. Its folder is like a run's: packet log, events, logs.

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

    text = read(scenario)
    loaded = load_text(text, scenario)
    try:
        log_bytes = int(SIZE.parse(packet_log)) if packet_log else loaded.packet_log or 1 << 30
    except UnitError as error:
        raise CellbedError(f"--packet-log: {error}") from None
    if not 1 << 20 <= log_bytes <= 8 << 30:
        raise CellbedError(f"--packet-log: {packet_log} is outside the limits: write 1 MiB to 8 GiB")
    check(loaded, text, str(scenario), running=True, limits=enforcement(no_limits, overcommit))
    name = loaded.name if name is None else name
    options = Options(
        out, limits=not no_limits, standing=name, loads=start, proof=not no_proof, packet_log_bytes=log_bytes
    )
    with listener() as reports:
        folder = bring_up(text, make_plan(loaded), options, reports)
    print(f"{name} is up; its folder: {folder}")


def status(
    name: Annotated[str | None, typer.Argument(help="Name of a testbed or run. Default: a line for each.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show live testbeds and runs; with a name: nodes, programs, and events such as faults and changes.

    \b
    Examples:
      cellbed status
      cellbed status second
      cellbed status --json
    """
    from cellbed.experiments.standing import find_testbed, testbeds
    from cellbed.experiments.standing import status as status_of
    from cellbed.support.readable import duration_words

    def since(found: dict[str, Any]) -> str:
        return "" if found["since_s"] is None else duration_words(found["since_s"])

    if name is None:
        each = [status_of(record) for record in testbeds()]
        if as_json:
            print(json.dumps(each, indent=1))
        elif each:
            print_table(
                ("name", "kind", "state", "for", "nodes", "programs", "folder"),
                [
                    [it["name"], it["kind"], it["state"], since(it), str(len(it["nodes"])), _programs(it), it["folder"]]
                    for it in each
                ],
            )
        else:
            print("no testbed is up")
        return
    found = status_of(find_testbed(name))
    if as_json:
        print(json.dumps(found, indent=1))
        return
    print(f"{found['name']}: {found['kind']} {found['state']} {since(found)}\nfolder: {found['folder']}")
    nodes = found["nodes"]
    more = f" and {len(nodes) - MOST} more" if len(nodes) > MOST else ""
    print(f"nodes: {', '.join(nodes[:MOST])}{more}")
    if found["programs"]:
        print_table(
            ("program", "node", "state", "process"),
            [[it["name"], it.get("node") or "", _state(it), str(it.get("pid") or "")] for it in found["programs"]],
        )
    for event in found["events"][-MOST:]:
        at = "" if event["at_s"] is None else f"{event['at_s']:.1f} s"
        failed = f", failed: {event['failed']}" if event.get("failed") else ""
        print(f"{at:>10}  {event['event']}: {event['what']}{failed}")


def _state(program: dict[str, Any]) -> str:
    return f"{program['state']} with status {program['status']}" if "status" in program else str(program["state"])


def _programs(found: dict[str, Any]) -> str:
    ended = sum(program["state"] == "ended" for program in found["programs"])
    return f"{len(found['programs']) - ended}" + (f", {ended} ended" if ended else "")


def meter(
    name: Annotated[
        str | None, typer.Argument(help="Name or prefix of a live run, testbed or shell. Default: all.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show one second, then exit.")] = False,
) -> None:
    """Show rate, queue, delay and drops of the links of live runs and shells.

    \b
    Examples:
      cellbed meter               all live runs and shells, until they end or Ctrl-C
      cellbed meter shell-12345   one of them
      cellbed meter --once        one second, for scripts
    """
    import shutil

    from cellbed.measure.meter import table
    from cellbed.shell.watch import glance, watch

    if once:
        readings = glance(name)
        print("\n".join(table(readings, shutil.get_terminal_size((200, 24)).columns, len(readings) + 1)))
    else:
        watch(name, sys.stdout.fileno())


exec_ = typer.Typer(add_completion=False, rich_markup_mode=None)


# Arguments after the node's name belong to the command, with or without "--".
@exec_.command(context_settings={"allow_interspersed_args": False}, no_args_is_help=True)
def execute(
    node: Annotated[str, typer.Argument(help="Name of the node.", metavar="NODE")],
    command: Annotated[list[str], typer.Argument(help="Command to run, after --.", metavar="-- CMD")],
    testbed: Annotated[str | None, typer.Option(help="Testbed or run; needed only if several have this node.")] = None,
) -> None:
    """Run a command on a node, in this terminal.

    The command has the node's network, host names and limits. The exit status is the command's, 127 if there is no such
    command, 128+n after signal n. The command ends with the testbed, and with the shell that started it.

    \b
    Examples:
      cellbed exec endpoint-0 -- ping -c 3 edge-0
      cellbed exec edge-0 -- bash
      cellbed exec --testbed second phone-0 -- curl -s http://shop:8080/
    """
    from cellbed.experiments.standing import find_testbed
    from cellbed.runformat.events import Journal
    from cellbed.testbed.programs.reach import execute as become
    from cellbed.testbed.programs.reach import find_node

    if command[0] == "--" and len(command) > 1:
        command = command[1:]
    record, found = find_node(node, find_testbed(testbed) if testbed is not None else None)
    Journal.reopen(Path(record.folder or "")).note("exec", found, command=command)
    become(record, found, command)


def logs(
    app: Annotated[str, typer.Argument(help="An application, or a program by a prefix of its name.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C or the end.")] = False,
    testbed: Testbed = None,
) -> None:
    """Print the output of an application's programs.

    \b
    Examples:
      cellbed logs shop
      cellbed logs shop.edge-0 -f
    """
    from cellbed.experiments.standing import find_testbed, print_logs

    print_logs(find_testbed(testbed), app, getattr(sys.stdout, "rich_proxied_file", sys.stdout), follow=follow)


def tap(
    link: Annotated[str, typer.Argument(help="A link or one of its directions: mobile-0, core-edge-0.downlink.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Output file; - is standard output. Default: LINK.pcapng.")
    ] = None,
    size: Annotated[int, typer.Option("--bytes", min=1, help="Maximum bytes kept per packet.")] = 65536,
    testbed: Testbed = None,
) -> None:
    """Capture the packets of a live link as pcapng, until Ctrl-C or the end of the testbed or run.

    The capture has every packet as sent into the link, and as received from the link.

    \b
    Examples:
      cellbed tap mobile-0
      cellbed tap mobile-0 --out - | wireshark -k -i -
      cellbed tap core-edge-0.uplink --bytes 96 --out headers.pcapng
    """
    from cellbed.experiments.standing import find_testbed, tap_link

    target = out if out is not None else Path(f"{link}.pcapng")
    captured = tap_link(find_testbed(testbed), link, target, size)
    lost = f"; {captured.lost} more lost: the reader is too slow" if captured.lost else ""
    where = "" if str(target) == "-" else f" in {target}"
    print(f"{captured.packets} packet{'s' if captured.packets != 1 else ''}{where}{lost}", file=sys.stderr)


migrate = typer.Typer(add_completion=False, rich_markup_mode=None)


@migrate.command(no_args_is_help=True)
def move_service(
    application: Annotated[str, typer.Argument(help="Application whose server moves.", metavar="APP")],
    to: Annotated[str, typer.Option("--to", help="Destination node.", metavar="NODE")],
    strategy: Annotated[
        str | None,
        typer.Option(
            "--strategy",
            "-s",
            help="Strategy, as in [[migrations]]. Default: the scenario's, else redeploy, which loses state.",
        ),
    ] = None,
    testbed: Testbed = None,
    as_json: AsJson = False,
) -> None:
    """Move a running service to another node; it keeps its address.

    The command ends when the service runs there. On failure (exit status 1) or Ctrl-C, the service stays in place.

    \b
    Examples:
      cellbed migrate shop --to edge-0
      cellbed migrate sessions --to edge-0 --strategy state
    """
    from cellbed.experiments.standing import check_moved, find_testbed, move
    from cellbed.report.formats import duration, size

    account = move(find_testbed(testbed), application, to, strategy)
    if as_json:
        print(json.dumps(account, indent=1))
        check_moved(application, account)
        return
    check_moved(application, account)
    for phase in account["phases"]:
        sent = f", {size(phase['bytes'])} sent" if "bytes" in phase else ""
        print(f"{phase['name']}: {duration(phase['end_s'] - phase['begin_s'])}{sent}")
    print(f"{application} is on {to} now ({account['strategy']})")


def down(
    name: Annotated[str | None, typer.Argument(help="Name of the testbed; needed only if there are several.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="End all testbeds.")] = False,
) -> None:
    """End a testbed brought up by `cellbed up`: programs, nodes and links.

    Its folder stays, for `cellbed report`.

    \b
    Examples:
      cellbed down
      cellbed down second
      cellbed down --all
    """
    from cellbed.experiments.standing import find_testbed, take_down, testbeds
    from cellbed.testbed.links.live import label

    found = [each for each in testbeds() if each.kind == "testbed"] if everything else []
    for record in found if everything else [find_testbed(name, standing=True)]:
        take_down(record, lambda text: print(text, file=sys.stderr))
        print(f"{label(record)} is down; its folder: {record.folder}")
    if everything and not found:
        print("no testbed is up")
