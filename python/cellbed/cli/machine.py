"""The verbs for this machine: ``doctor``, ``grant``, ``vm`` and ``clean``."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print the checks as a JSON list.")] = False) -> None:
    """Check whether this machine can run cellbed, and print a remedy for each missing feature.

    The exit status is 0 if `cellbed run` works here, else 1.

    \b
    Example:
      cellbed doctor
    """
    from dataclasses import asdict

    from cellbed.doctor import can_run, examine
    from cellbed.doctor.examine import show

    checks = examine()
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=2, ensure_ascii=False))
    else:
        show(checks, sys.stdout)
    raise typer.Exit(0 if can_run(checks) else 1)


def grant(
    user: Annotated[str | None, typer.Argument(help="Login name. Default: the user who called sudo.")] = None,
    network: Annotated[
        bool,
        typer.Option(
            "--network",
            help="Also install the network helper: this user's shells have end-to-end TCP, like root's.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done and change nothing.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Revoke what was granted.")] = False,
) -> None:
    """Allow an ordinary user to run with limits. Needs root.

    The user may use TUN devices, CPU and memory limits, and the congestion control CUBIC.

    \b
    Examples:
      sudo cellbed grant alice
      sudo cellbed grant alice --network
    """
    from cellbed.doctor.changes import grant_to

    for line in grant_to(user, network=network, dry_run=dry_run, take_back=undo):
        print(line)


vm = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Build the disk image of VM nodes."
)


@vm.callback()
def vm_() -> None:
    """Build the disk image of VM nodes."""


@vm.command("build")
def build_image(
    include: Annotated[
        list[str] | None, typer.Option("--include", metavar="PACKAGE", help="Debian package to add; repeatable.")
    ] = None,
    suite: Annotated[str, typer.Option("--suite", help="Release of Debian.")] = "bookworm",
    mirror: Annotated[str, typer.Option("--mirror", metavar="URL", help="Mirror of Debian's packages.")] = "",
) -> None:
    """Build disk image and kernel from Debian's packages.

    Takes about a minute, and 200 MB in the cache folder. Needs mmdebstrap and access to a package mirror.

    \b
    Examples:
      cellbed vm build
      cellbed vm build --include nginx-light --include iperf3
    """
    from cellbed.testbed.nodes.vm_image import build

    place = build(lambda line: print(line, file=sys.stderr, flush=True), include or [], suite, mirror)
    print(place)


def clean(
    cache: Annotated[
        bool, typer.Option("--cache", help="Also remove what cellbed can make again, and print its sizes.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --cache: print the sizes and change nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Clean up after killed runs and shells: processes, control groups, changed settings.

    Live runs are not affected; while there are any, the cache stays. Use this command as the user who started the run
    (with sudo for runs of root).

    \b
    Examples:
      cellbed clean
      cellbed clean --cache --dry-run
      cellbed clean --cache
    """
    from cellbed.support.errors import CellbedError
    from cellbed.testbed.clean import clean as clean_up
    from cellbed.testbed.clean import clean_cache

    if dry_run and not cache:
        raise CellbedError("--dry-run needs --cache: add it")
    done = [] if dry_run else clean_up()
    cached = clean_cache(dry_run=dry_run) if cache else []
    freed = sum(each.bytes for each in cached if not each.kept)
    if as_json:
        entries = [{"path": str(it.path), "bytes": it.bytes, "kept": it.kept} for it in cached]
        print(json.dumps({"done": done, "cache": entries, "bytes": freed} if cache else done))
        return
    for line in done:
        print(line)
    if cached:
        from cellbed.cli.tables import print_table
        from cellbed.report.formats import size

        rows = [(size(it.bytes), str(it.path), it.kept) for it in cached]
        print_table(("size", "in the cache", "kept"), rows, right=("size",))
        print(f"{'would free' if dry_run else 'freed'} {size(freed)}")
    elif not done:
        print("nothing to clean")
