"""``cellbed cc``: congestion control laws."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import polars as pl

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


def _names() -> list[str]:
    from cellbed.laws.law import load_shipped

    return list(load_shipped())


@app.callback()
def cc() -> None:
    """List, describe and check congestion control laws of TCP.

    \b
    Examples:
      cellbed cc ls
      cellbed cc compare --laws cubic,bbr,copa --links "20 Mbit/s" --virtual
    """


@app.command("ls")
def list_laws(as_json: Annotated[bool, typer.Option("--json", help="Print the laws as a JSON list.")] = False) -> None:
    """List the laws for scenarios and `cellbed shell --cc`.

    \b
    Example:
      cellbed cc ls
    """
    import json

    from rich.table import Table

    from cellbed.laws.law import KERNEL_CONTROLS, load_shipped
    from cellbed.support.console import Console
    from cellbed.testbed.testbed import available_congestion_controls

    rows = [
        {"name": name, "origin": "this kernel", "virtual": name in KERNEL_CONTROLS, "title": "", "compared": ""}
        for name in available_congestion_controls() or ()
    ]
    rows += [
        {"name": law.name, "origin": "cellbed", "virtual": True, "title": law.title, "compared": law.compared}
        for law in load_shipped().values()
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("law", "from", "--virtual", "title"):
        table.add_column(heading)
    for row in rows:
        table.add_row(str(row["name"]), str(row["origin"]), "yes" if row["virtual"] else "no", str(row["title"]))
    Console().print(table)
    print("\nRelative to their authors' implementations:")
    for row in rows:
        if row["compared"]:
            print(f"{row['name']:14} {row['compared']}")


_Law = Annotated[str, typer.Argument(help="A law of `cellbed cc ls`, or a header.", autocompletion=_names)]


@app.command()
def describe(
    law: _Law,
) -> None:
    """Print a law's publication, and deviations from it.

    Also compares the law with its authors' implementation.

    \b
    Examples:
      cellbed cc describe vegas
      cellbed cc describe ./my-law.h
    """
    from cellbed.laws.law import find
    from cellbed.support.errors import printable

    found = find(law, Path.cwd())
    beside = f"Relative to its authors' implementation: {found.compared}"
    print(printable(f"{found.name}: {found.title}\n\n{found.description}\n\n{beside}\n\n{found.path}"))


@app.command()
def compare(
    laws: Annotated[str, typer.Option(metavar="LAW,…", help="Laws of `cellbed cc ls`, or headers.")],
    links: Annotated[
        str,
        typer.Option(
            metavar="LINK,…",
            help="Links: rates, entries of the archive, traces without endings, recordings; unlimited if unrecorded.",
        ),
    ],
    flows: Annotated[str, typer.Option(metavar="NUMBER,…", help="Numbers of simultaneous transfers.")] = "1",
    against: Annotated[
        str | None, typer.Option(metavar="LAW,…", help="Laws of competing downloads over the same link.")
    ] = None,
    upload: Annotated[bool, typer.Option("--upload", help="Upload instead of downloading.")] = False,
    seconds: Annotated[int, typer.Option(min=1, max=3600, help="Length of each transfer.")] = 20,
    delay: Annotated[
        str, typer.Option(help="One-way delay, with unit; recordings of two workloads have theirs.")
    ] = "20 ms",
    queue: Annotated[str, typer.Option(help="Limit of the bottleneck's queue: '1 MB' or '100 packets'.")] = "1 MB",
    repetitions: Annotated[int, typer.Option(min=1, max=1000, help="Trials of each point.")] = 3,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Predict in virtual time: needs neither root nor iperf3.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the sweep.")] = Path("laws"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as a JSON list.")] = False,
) -> None:
    """Compare laws by bulk transfers (iperf3) over links.

    Prints throughput, round trips and retransmissions. The comparison is a sweep: its files are in the folder, `cellbed
    sweep report` writes its page, and the same command continues after an interruption. Figures of the flows need root
    or --virtual.

    \b
    Examples:
      cellbed cc compare --laws cubic,bbr,copa --links "20 Mbit/s" --virtual
      cellbed cc compare --laws copa,bbr3 --against cubic --links "20 Mbit/s" --virtual
      sudo cellbed cc compare --laws cubic,exll,./my-law.h --links lte-suburban --flows 1,4
    """
    from cellbed.cli.sweep import Terminal
    from cellbed.experiments.laws import Comparison
    from cellbed.experiments.sweep.library import Execution, Sweep

    counts = [int(text) if text.strip().isdecimal() else 0 for text in flows.split(",")]
    if not all(1 <= count <= 128 for count in counts):
        raise typer.BadParameter("write numbers from 1 to 128, separated by commas", param_hint="--flows")
    if against and upload:
        raise typer.BadParameter("rivals download: leave out --upload", param_hint="--against")
    asked = Comparison(
        [text.strip() for text in laws.split(",")],
        [text.strip() for text in links.split(",")],
        counts,
        [text.strip() for text in against.split(",")] if against else [],
        upload,
        seconds,
        delay,
        queue,
        repetitions,
        series=virtual or os.geteuid() == 0,
        virtual=virtual,
    )
    execution = Execution(virtual=virtual)
    plan = execution.plan(asked.write(out, Path.cwd()))
    folder = out / ("laws-virtual" if virtual else "laws")
    with Terminal() as terminal:
        account = execution.run(plan, folder, terminal)
    if account.interrupted:
        print("interrupted: run the same command to continue", file=sys.stderr)
        raise typer.Exit(130)
    if account.complete + account.disturbed:
        _show(asked.results(Sweep.load(folder)), as_json)
        print(f"write the report: cellbed sweep report {shlex.quote(str(folder))}", file=sys.stderr)
    if account.disturbed:
        print(
            f"note: the machine disturbed {account.disturbed} of {len(plan.distinct)} trials, which are shown; "
            "`cellbed sweep report` leaves them out",
            file=sys.stderr,
        )
    if account.failed:
        print(f"error: {account.failed} trials failed: run the same command to try them again", file=sys.stderr)
        raise typer.Exit(1)


def _show(results: pl.DataFrame, as_json: bool) -> None:
    import json

    from rich.table import Table

    from cellbed.support.console import Console

    if as_json:
        print(json.dumps(results.to_dicts(), indent=2))
        return
    table = Table(box=None, pad_edge=False)
    factors = [name for name in ("link", "flows", "against", "law") if name in results.columns]
    for factor in factors:
        table.add_column(factor, no_wrap=True)
    rivals = ["rivals, Mbit/s"] * ("against" in factors)
    for heading in ("Mbit/s", *rivals, "round trip, ms", "sent again", "fair"):
        table.add_column(heading, justify="right", overflow="fold")
    for row in results.iter_rows(named=True):
        table.add_row(
            *(row[name] for name in factors),
            _interval(row, "throughput_mbit_s"),
            *(_interval(row, "rivals_mbit_s") for _ in rivals),
            _interval(row, "round_trip_s", 1e3),
            _interval(row, "retransmitted"),
            "–" if row["fairness"] is None else f"{row['fairness']:.3f}",
        )
    Console().print(table)


def _interval(row: dict[str, Any], measure: str, factor: float = 1.0) -> str:
    from cellbed.report.formats import number

    value, low, high = (row[f"{measure}{end}"] for end in ("", "_low", "_high"))
    if value is None:
        return "–"
    shown, least, most = ("" if each is None else number(each * factor) for each in (value, low, high))
    return f"{shown} ({least} to {most})" if least != most else shown


@app.command()
def check(law: _Law) -> None:
    """Check that a law compiles and loads, as root.

    Compiles the law for virtual time and for the kernel, loads and unloads it.

    \b
    Example:
      sudo cellbed cc check ./my-law.h
    """
    from cellbed.laws.kernel import load_law
    from cellbed.laws.law import find

    found = find(law, Path.cwd())
    print(f"virtual time: {found.load()}, loaded")
    with load_law(found) as name:
        print(f"kernel: {name}, loaded and unloaded")
