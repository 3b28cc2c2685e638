"""``cellbed traces ls``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cellbed.cli.options import AsJson
from cellbed.cli.traces.options import bit_rate

if TYPE_CHECKING:
    import polars as pl


def _filter(text: str, *names: str, metavar: str = "TEXT") -> Any:
    return typer.Option(*names, help=text, show_default=False, metavar=metavar)


def ls(
    name: Annotated[str | None, typer.Argument(help="Only names that contain this text.", show_default=False)] = None,
    technology: Annotated[
        str | None, _filter("Technology: 3g, 4g (lte), 5g (nr), wifi …", "--tech", "--technology")
    ] = None,
    mobility: Annotated[str | None, _filter("Mobility: stationary, walking, driving, train …")] = None,
    min_mean: Annotated[
        float | None,
        typer.Option(parser=bit_rate, metavar="RATE", help="Minimum mean rate of a direction: 20mbit, '20 Mbit/s'."),
    ] = None,
    where: Annotated[
        list[str] | None,
        _filter("Condition on a column of --json; several must all hold.", metavar="'COLUMN OP VALUE'"),
    ] = None,
    sort: Annotated[
        str,
        typer.Option(help="Column to sort by, such as downlink_mean_bit_s.", metavar="COLUMN"),
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
    from cellbed.archive.search import Query, search

    query = Query(
        name=name,
        technology=technology,
        mobility=mobility,
        minimum_mean=min_mean,
        where=tuple(where or ()),
        sort=sort,
        descending=reverse,
    )

    contents = open_archive().contents()
    for entry, problem in contents.problems.items():
        print(f"warning: {problem}; remove it with `cellbed traces rm {entry}`", file=sys.stderr)
    index = contents.frame
    table = search(index, query)
    if as_json:
        _print_json(table)
    elif index.is_empty():
        print("the archive has no entries; `cellbed traces add` and `cellbed traces fetch` add some", file=sys.stderr)
    else:
        _print_table(table, sort)


def _print_json(table: pl.DataFrame) -> None:
    lines = table.write_ndjson().rstrip("\n").replace("\n", ",\n")
    print(f"[\n{lines}\n]" if lines else "[]")


def _print_table(table: pl.DataFrame, sort: str) -> None:
    from cellbed.archive.entry_view import list_table
    from cellbed.support.console import Console, table_width

    if not len(table):
        print("no entry matches; `cellbed traces ls` lists all", file=sys.stderr)
        return
    Console(width=table_width(), highlight=False).print(list_table(table, sort))
