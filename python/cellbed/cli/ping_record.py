"""`cellbed ping-record`: round-trip times to hosts, over days."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cellbed.cli.traces.options import AS_JSON, duration


def ping_record(
    hosts: Annotated[list[str], typer.Argument(help="Host names or addresses.", show_default=False, metavar="HOST...")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for one file per host; created if missing.")] = Path(
        "pings"
    ),
    interval: Annotated[
        int, typer.Option(parser=duration, metavar="TIME", help="Time between two probes of a host.")
    ] = "1 s",  # type: ignore[assignment]
    timeout: Annotated[
        int, typer.Option(parser=duration, metavar="TIME", help="Time after which a probe counts as lost.")
    ] = "2 s",  # type: ignore[assignment]
    lasting: Annotated[
        int | None,
        typer.Option(
            "--duration",
            parser=duration,
            metavar="TIME",
            help="How long to record. Default: until Ctrl-C.",
            show_default=False,
        ),
    ] = None,
    family: Annotated[int | None, typer.Option("--family", min=4, max=6, help="4 or 6.", show_default=False)] = None,
    as_json: bool = AS_JSON,
) -> None:
    """Record round-trip times to hosts for hours or days, for the core network of a scenario, by ping (iputils).

    The file of a host grows line by line; the same command resumes it after an interruption.

    \b
    Examples:
      cellbed ping-record ec2.eu-west-3.amazonaws.com --duration "72 h"
      cellbed ping-record cloud.example.org edge.example.org --interval "200 ms" -o pings
    In a scenario, under [links.core]:
      cloud = { kind = "round-trips", record = "pings/example.org.csv" }
    """
    from cellbed.pings.recorder import ping_record as run

    run(hosts, out, interval=interval, timeout=timeout, lasting=lasting, family=family, as_json=as_json)
