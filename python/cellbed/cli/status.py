"""``cellbed status``: live testbeds and runs, and what one of them does."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

MOST = 20
"""Nodes and events that are printed."""


def status(
    name: Annotated[
        str | None, typer.Argument(help="Name of a testbed or run. Default: a line for each.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Show live testbeds and runs; of one by its name nodes, programs, and events such as faults and changes.

    \b
    Examples:
      cellbed status
      cellbed status second
      cellbed status --json
    """
    from cellbed.cli.link import print_table
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
