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
    testbeds, changes links and moves services. Only this machine reaches it, only with the printed address: keep the
    address to yourself.

    \b
    Examples:
      cellbed ui
      cellbed ui --runs results --port 8080 --no-browser
      ssh -L 8080:127.0.0.1:8080 HOST cellbed ui --port 8080 --no-browser
    """
    import asyncio

    from cellbed.ui.server import Server, listen, open_browser

    listener = listen(port)

    async def serve() -> None:
        server = Server(runs.absolute(), Path.cwd())
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/?token={server.token}"

        with contextlib.nullcontext() if no_browser else open_browser(address):
            print(f"{address}\nCtrl-C ends the page; testbeds stay up.", flush=True)
            await server.serve(listener)

    asyncio.run(serve())


def top(
    name: Annotated[
        str | None, typer.Argument(help="Name or prefix of a live run, testbed or shell. Default: all.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show one second, then exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show nodes, links and requests of live testbeds, runs and shells in this terminal.

    Keys: q quits, Tab shows the next testbed. It ends with the last testbed.

    \b
    Examples:
      cellbed top
      cellbed top second
      cellbed top --once
      cellbed top --json | jq '.[].links'
    """
    from cellbed.ui.reader import Reader
    from cellbed.ui.terminal import glance, show, text

    if not (once or as_json or sys.stdout.isatty()):
        once = True  # in a pipe
    reader = Reader(name)
    try:
        if not (once or as_json):
            show(reader)
            return
        snapshot = glance(reader)
    finally:
        reader.close()
    if as_json:
        print(json.dumps(list(snapshot.beds.values()), indent=1))
        return
    width = shutil.get_terminal_size((120, 24)).columns
    for bed in snapshot.beds.values():
        text(bed, snapshot.time_s, width)
