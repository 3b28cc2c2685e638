"""``cellbed migrate``: move a service of a standing testbed or run to another node."""

from __future__ import annotations

import json
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(no_args_is_help=True)
def migrate(
    application: Annotated[str, typer.Argument(help="Application whose server moves.", metavar="APP")],
    to: Annotated[str, typer.Option("--to", help="Destination node.", metavar="NODE")],
    strategy: Annotated[
        str | None,
        typer.Option(
            "--strategy",
            "-s",
            help="How, as in [[migrations]]. Default: the scenario's, else redeploy, which loses state.",
            show_default=False,
        ),
    ] = None,
    testbed: Annotated[
        str | None, typer.Option(help="Testbed or run; needed only if there are several.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Move a running service to another node, with its address.

    Returns when it serves there. If that fails it still serves where it was (exit status 1), as after Ctrl-C.

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
