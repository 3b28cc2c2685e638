"""``cellbed traces ls``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cellbed.cli.options import AsJson
from cellbed.cli.traces.options import bit_rate, text


def ls(
    name: Annotated[str | None, typer.Argument(help="Only names that contain this text.")] = None,
    technology: Annotated[
        str | None, text("Technology: 3g, 4g (lte), 5g (nr), wifi …", "--tech", "--technology")
    ] = None,
    mobility: Annotated[str | None, text("Mobility: stationary, walking, driving, train …")] = None,
    min_mean: Annotated[
        float | None,
        typer.Option(parser=bit_rate, metavar="RATE", help="Minimum mean rate of a direction: 20mbit, '20 Mbit/s'."),
    ] = None,
    where: Annotated[
        list[str] | None, text("Condition on a column of --json; several must all hold.", metavar="'COLUMN OP VALUE'")
    ] = None,
    sort: Annotated[
        str, typer.Option(help="Column to sort by, such as downlink_mean_bit_s.", metavar="COLUMN")
    ] = "name",
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="Sort in descending order.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the entries of the archive.

    \b
    Examples:
      cellbed traces ls --tech 5g --mobility driving --min-mean 20mbit
      cellbed traces ls --where 'place ~ delft' --sort uplink_mean_bit_s --reverse
      cellbed traces ls --where 'downlink_p5_bit_s_100ms > 2e6' --where 'downlink_outages < 5'
      cellbed traces ls --json | jq -r '.[].name'
    """
    from cellbed.archive import open_archive
    from cellbed.archive.entry_view import list_table
    from cellbed.archive.index import Query, search
    from cellbed.support.console import Console, table_width

    query = Query(name, technology, mobility, min_mean, tuple(where or ()), sort, reverse)
    contents = open_archive().contents()
    for entry, problem in contents.problems.items():
        print(f"warning: {problem}; remove it with `cellbed traces rm {entry}`", file=sys.stderr)
    table = search(contents.frame, query)
    if as_json:
        lines = table.write_ndjson().rstrip("\n").replace("\n", ",\n")
        print(f"[\n{lines}\n]" if lines else "[]")
    elif contents.frame.is_empty():
        print("the archive has no entries; `cellbed traces add` and `cellbed traces fetch` add some", file=sys.stderr)
    elif table.is_empty():
        print("no entry matches; `cellbed traces ls` lists all", file=sys.stderr)
    else:
        Console(width=table_width(), highlight=False).print(list_table(table, sort))
