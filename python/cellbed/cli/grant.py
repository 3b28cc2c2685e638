"""``cellbed grant``: make the machine usable for an ordinary user."""

from __future__ import annotations

from typing import Annotated

import typer


def grant(
    user: Annotated[
        str | None, typer.Argument(help="Login name. Default: the user who called sudo.", show_default=False)
    ] = None,
    network: Annotated[
        bool,
        typer.Option(
            "--network",
            help="Also install the network helper: shells of this user get TCP from end to end, as root's do.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done and change nothing.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Revoke what was granted.")] = False,
) -> None:
    """Allow an ordinary user TUN devices, CPU and memory limits, and the congestion control CUBIC. Needs root.

    \b
    Examples:
      sudo cellbed grant alice
      sudo cellbed grant alice --network
    """
    from cellbed.doctor.changes import grant_to

    for line in grant_to(user, network=network, dry_run=dry_run, take_back=undo):
        print(line)
