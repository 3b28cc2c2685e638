"""The verbs that show live testbeds: ``ui`` in a browser, ``top`` in a terminal."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from cellbed.cli.options import AsJson


def ui(
    runs: Annotated[Path, typer.Option("--runs", "-r", help="Folder of finished runs and sweeps.")] = Path("runs"),
    port: Annotated[int, typer.Option(help="Port of the page. Default: a free one.", min=0, max=65535)] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Show live testbeds, runs and shells, and finished runs, on a page of this machine, until Ctrl-C.

    The page draws the topology, and shows links, nodes, requests, faults and moves as they happen. It starts and stops
    testbeds and runs, changes links, pauses nodes and moves services. Only this machine reaches it, only with the
    printed address: keep the address to yourself.

    \b
    Examples:
      cellbed ui
      cellbed ui --runs results --port 8080 --no-browser
      ssh -L 8080:127.0.0.1:8080 HOST cellbed ui --port 8080 --no-browser
    """
    from cellbed.report.html import open_page
    from cellbed.ui.server import ENTER, Server
    from cellbed_node.temporary import temporary_folder

    server = Server(port, runs.absolute(), Path.cwd())
    print(f"{server.address}\nCtrl-C ends the page; testbeds stay up.", flush=True)
    with temporary_folder() as folder:
        # The address is passed in a file: other users see words of commands.
        (folder / "open.html").write_text(ENTER.format(server.address), encoding="utf-8")
        open_page(folder / "open.html", "no" if no_browser else "auto")
        server.serve()


def top(
    name: Annotated[
        str | None, typer.Argument(help="Name or prefix of a live run, testbed or shell. Default: all.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show one second, then exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show nodes, links and requests of live testbeds, runs and shells in this terminal.

    It ends with the last testbed, or by Ctrl-C.

    \b
    Examples:
      cellbed top
      cellbed top second
      cellbed top --once
      cellbed top --json | jq '.[].links'
    """
    from cellbed.support.console import Console
    from cellbed.ui.reader import Reader
    from cellbed.ui.terminal import draw, glance, show

    with contextlib.closing(Reader(name)) as reader:
        if not (once or as_json) and sys.stdout.isatty():
            show(reader)
            return
        beds = glance(reader)
    if as_json:
        print(json.dumps(beds, indent=1))
        return
    width = shutil.get_terminal_size((120, 24)).columns
    for bed in beds:
        Console(width=width, highlight=False).print(draw(bed, rows=10_000, width=width))
