"""``cellbed traces``: what the archive holds, and the figures of a trace."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from cellbed.traces.summary import TraceSummary

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List and show the traces of the archive.")

_AS_JSON = typer.Option(False, "--json", help="Print JSON instead.")


@app.command("ls")
def list_traces(as_json: bool = _AS_JSON) -> None:
    """List the traces of the archive."""
    from cellbed.traces import ARCHIVE, resolve
    from cellbed.traces.summary import summarise

    summaries = [summarise(resolve(name, Path())) for name in ARCHIVE]
    if as_json:
        print(json.dumps([asdict(summary) for summary in summaries], indent=2))
    else:
        _print_table(summaries)


@app.command("show")
def show_trace(name: str = typer.Argument(help="A trace of the archive, or a file."), as_json: bool = _AS_JSON) -> None:
    """Show the figures of one trace."""
    from cellbed.traces import resolve
    from cellbed.traces.summary import summarise

    summary = summarise(resolve(name, Path.cwd()))
    if as_json:
        print(json.dumps(asdict(summary), indent=2))
        return
    print(
        f"{summary.name}: {'synthetic' if summary.synthetic else 'recorded'}, {summary.duration / 1e9:.1f} s, "
        f"mean {summary.mean_rate / 1e6:.2f} Mbit/s, longest gap {summary.longest_gap / 1e6:.0f} ms, "
        f"{summary.opportunities} opportunities, SHA-256 {summary.sha256}"
    )


def _print_table(summaries: "list[TraceSummary]") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("trace", no_wrap=True)
    table.add_column("direction")
    for heading in ("duration\ns", "mean\nMbit/s", "longest gap\nms"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("origin")
    for summary in summaries:
        table.add_row(
            summary.name,
            summary.direction,
            f"{summary.duration / 1e9:.0f}",
            f"{summary.mean_rate / 1e6:.1f}",
            f"{summary.longest_gap / 1e6:.0f}",
            "synthetic" if summary.synthetic else "recorded",
        )
    Console().print(table)
