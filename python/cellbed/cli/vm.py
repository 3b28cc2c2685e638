"""``cellbed vm``: the disk image and kernel of VM nodes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="The disk image and kernel of VM nodes."
)


@app.callback()
def vm() -> None:
    """The disk image and kernel of VM nodes."""


@app.command("build")
def build_image(
    include: Annotated[
        list[str] | None, typer.Option("--include", metavar="PACKAGE", help="Install this Debian package, too.")
    ] = None,
    suite: Annotated[str, typer.Option("--suite", help="Release of Debian.")] = "bookworm",
    mirror: Annotated[str, typer.Option("--mirror", metavar="URL", help="Mirror of Debian's packages.")] = "",
) -> None:
    """Build the disk image and kernel that VM nodes boot, from Debian's packages.

    Takes about a minute and 200 MB in the cache folder. Needs mmdebstrap and the network of a package mirror.

    \b
    Examples:
      cellbed vm build
      cellbed vm build --include nginx-light --include iperf3
    """
    from cellbed.testbed.nodes.vm_image import build

    place = build(lambda line: print(line, file=sys.stderr, flush=True), include or [], suite, mirror)
    print(place)
