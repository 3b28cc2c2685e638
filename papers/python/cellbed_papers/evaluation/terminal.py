"""The table of an evaluation on the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table as Grid
from rich.text import Text

from cellbed.extension.recorded import Certificate
from cellbed.extension.reports import Console, Estimate, formats
from cellbed.extension.verbs import print_table
from cellbed_papers.evaluation.network import REFERENCE
from cellbed_papers.evaluation.table import Summary, Table

LINE = 300
"""Width without a terminal, characters."""
BEHIND = 0.02
"""Largest difference to the better of the simple methods that is not printed."""


def show(table: Table, networks: Mapping[str, str], *, conditions: bool, console: Console) -> None:
    """Print the table. networks: names and descriptions. conditions: whether to include each network."""
    if not console.is_terminal:
        console = Console(highlight=False, width=LINE, file=console.file)
    if conditions and table.rows:
        for name, text in networks.items():
            console.print(Text(f"{name}: {text}", style="dim"))
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    errors = table.base == REFERENCE
    of = "error" if errors else f"difference from {table.base}, no error"
    for column in (f"measure: {of}", "target" if errors else "", *table.methods):
        grid.add_column(column)
    by_key = {(row.measure, row.profile, row.method): row for row in table.rows}
    found = {(each.measure, each.statistic, each.method): each for each in table.summaries}
    for measure, statistic in dict.fromkeys((measure, statistic) for measure, statistic, _ in found):
        summaries = [found.get((measure, statistic, method)) for method in table.methods]
        target = next((each.target for each in summaries if each), None)
        bounds = "" if target is None else " / ".join(f"{bound * 100:g}" for bound in target) + " %"
        cells = [_format_summary(each, len(networks)) if each else formats.NOTHING for each in summaries]
        if errors:
            grid.add_row(f"{measure}: {statistic}", bounds, *cells, style="bold" if conditions else "")
        for name in networks if conditions and (target or not errors) else ():
            rows = [by_key.get((measure, name, method)) for method in table.methods]
            values = [_format_error(getattr(row, statistic)) if row else formats.NOTHING for row in rows]
            grid.add_row(f"  {name}" if errors else f"{name}: {measure}: {statistic}", "", *values)
    if table.rows:
        console.print(grid)
    for refusal in table.refusals:
        what = f"{refusal.profile}: no {', '.join(refusal.applications)} by {', '.join(refusal.methods)} in "
        text = f"{what}{len(refusal.recordings)} recordings: {refusal.reason}"
        console.print(Text(text, style="bold red"))
    listed = {each.measure for each in table.summaries if each.target or not errors}
    for row in (row for row in table.rows if row.measure in listed and row.lost[0] != row.lost[1]):
        what = f"{row.lost[0]} samples not completed on {row.method}, {row.lost[1]} on {table.base}"
        console.print(Text(f"{row.profile}: {row.measure}: {what}", style="dim"))


def show_certificate(name: str, certificate: Certificate, console: Console) -> None:
    """Print a recording's errors on held-back parts."""
    console.print(Text(f"{name}: errors on held-back parts", style="bold"))
    headings, rows = certificate.table()
    if rows:
        print_table(headings, rows, right=headings[1:])
    console.print(Text("\n".join(certificate.sentences())))


def _format_summary(summary: Summary, networks: int) -> str:
    """Return median and worst error, and what the median hides. networks: number of networks of the evaluation."""
    name, worst = summary.worst
    text = f"{summary.median * 100:.1f} / {worst * 100:.1f} % {name}"
    if summary.networks < networks:
        text += f", {summary.networks} of {networks}"
    if summary.target and summary.behind and summary.behind[1] > BEHIND:
        text += f"; behind by {summary.behind[1] * 100:.1f} on {summary.behind[0]}"
    return text


def _format_error(error: Estimate) -> str:
    text = f"{error.value * 100:+.1f} %".replace("-", "−")
    return text if error.low is None or error.high is None else f"{text} [{error.low:+.1%}, {error.high:+.1%}]"
