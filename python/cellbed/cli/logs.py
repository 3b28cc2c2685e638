"""``cellbed logs``: the output of an application's programs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def logs(
    app: Annotated[str, typer.Argument(help="An application, or one program of it, by the beginning of its name.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C or the end.")] = False,
    testbed: Annotated[
        str | None, typer.Option(help="Testbed or run; needed only if there are several.", show_default=False)
    ] = None,
) -> None:
    """Print what the programs of an application have written.

    \b
    Examples:
      cellbed logs shop
      cellbed logs shop.edge-0 -f
    """
    from cellbed.experiments.standing import find_testbed, print_logs

    print_logs(find_testbed(testbed), app, getattr(sys.stdout, "rich_proxied_file", sys.stdout), follow=follow)
