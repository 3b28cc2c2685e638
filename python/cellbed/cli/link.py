"""``cellbed link``: show and change the links of live runs and shells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cellbed.cli.options import AsJson
from cellbed.cli.tables import print_table

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="""Show and change the links of live runs, testbeds and shells.

    \b
    Examples:
      cellbed link ls
      cellbed link set mobile-0 rate="5 Mbit/s"
    """,
)

_Run = Annotated[
    str | None,
    typer.Argument(help="Name of a live run, testbed or shell; needed only if there are several.", metavar="RUN"),
]


@app.command("ls")
def list_runs(as_json: AsJson = False) -> None:
    """List live runs, testbeds and shells.

    \b
    Examples:
      cellbed link ls
      cellbed link ls --json
    """
    from cellbed.testbed.links.live import label, live

    found = [
        {"name": label(record), "kind": record.kind, "process": record.process, "folder": record.folder}
        for record in live()
    ]
    if as_json:
        print(json.dumps(found, indent=1))
    elif found:
        print_table(
            ("name", "kind", "process", "folder"), [[str(value or "") for value in row.values()] for row in found]
        )
    else:
        print("nothing is running")


@app.command("show")
def show_links(run: _Run = None, as_json: AsJson = False) -> None:
    """Show settings and counters of live links, by direction.

    \b
    Examples:
      cellbed link show               the only one that is live
      cellbed link show shell-12345   one of several, by the beginning of its name
      cellbed link show --json
    """
    from cellbed.support.stages import describe
    from cellbed.testbed.links.live import connect, find

    with connect(find(run)) as control:
        directions, status = control.describe(), control.status()
    counts = {each["name"]: each for each in status["directions"]}
    if as_json:
        rows = [
            {**each, "description": describe(each["stages"]), **counts.get(each["name"], {})} for each in directions
        ]
        print(json.dumps(rows, indent=1))
        return
    print_table(
        ("direction", "settings", "delivered", "dropped", "queue"),
        [[each["name"], _does(each, counts), *_figures(counts.get(each["name"], {}))] for each in directions],
    )


@app.command("set", no_args_is_help=True)
def set_link(
    words: Annotated[
        list[str],
        typer.Argument(help="Run, link or direction, and settings (see below).", metavar="[RUN] [LINK] SETTING…"),
    ],
    as_json: AsJson = False,
) -> None:
    """Change a link while it runs. Queued packets stay queued.

    RUN is optional if only one is live, LINK if RUN has only one link. A link's name stands for both directions.
    Settings are KEY=VALUE for rate, delay, queue, loss, duplication and corruption, with the values of the scenario
    file. The setting 'down' stops the bottleneck, so that packets wait in its queue; 'up' starts it again. The other
    settings are unaffected and can be changed while the link is down.

    \b
    Examples:
      cellbed link set mobile-0 rate="5 Mbit/s"
      cellbed link set RUN mobile-0.uplink delay="40 ms" loss="1 %"
      cellbed link set mobile-0.downlink queue=codel rate=lte-suburban.down
      cellbed link set mobile-0 delay="normal mean=20ms deviation=3ms"
      cellbed link set mobile-0 down
      cellbed link set mobile-0.uplink up
    """
    from cellbed.scenario.settings import STATES, read_settings
    from cellbed.testbed.links.live import change, find_link

    settings = [word for word in words if "=" in word or word in STATES]
    record, link = find_link([word for word in words if word not in settings])
    done = change(record, link, read_settings(settings, Path.cwd()))
    if as_json:
        print(
            json.dumps(
                [{"direction": each.direction, "from": each.before, "to": each.after} for each in done], indent=1
            )
        )
        return
    for each in done:
        print(f"{each.direction}: {each.before} -> {each.after}")
    if not done:
        print("nothing to change: the link already has these settings")


def _does(direction: dict[str, Any], counts: dict[str, dict[str, Any]]) -> str:
    from cellbed.support.stages import describe

    closed = counts.get(direction["name"], {}).get("closed", False)
    return describe(direction["stages"]) + (" (closed by an outage now)" if closed else "")


def _figures(counts: dict[str, Any]) -> list[str]:
    from cellbed.support.units import SIZE

    if not counts:
        return ["", "", ""]
    dropped = ", ".join(f"{count} {why}" for why, count in counts["dropped"].items() if count) or "none"
    return [
        f"{counts['delivered']} packets",
        dropped,
        SIZE.format(counts["queue_bytes"]) if counts["queue_bytes"] else "empty",
    ]
