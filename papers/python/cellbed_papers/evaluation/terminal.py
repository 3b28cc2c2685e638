"""The table of an evaluation on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table as Grid
from rich.text import Text

from cellbed.extension.reports import Console, formats
from cellbed_papers.evaluation.applications import ROUND_TRIP
from cellbed_papers.evaluation.statistics import Estimate
from cellbed_papers.evaluation.table import ALL, Row, Table, Target

LINE = 300
"""Width without a terminal, characters."""


def show(table: Table, methods: Sequence[str], *, conditions: bool, console: Console | None = None) -> None:
    """Print the table. conditions: whether to include each condition."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=LINE, file=console.file)
    console.print(_error_grid(table.rows, methods, conditions))
    if table.targets:
        console.print()
        console.print(_target_grid(table.targets))
    lost = [row for row in table.rows if row.profile == ALL and row.lost[0] != row.lost[1]]
    for row in lost:
        words = f"{row.measure}: {row.lost[0]} not completed on {row.method}, {row.lost[1]} on the reference"
        console.print(Text(f"note: {words}", style="dim"))


def _error_grid(rows: Sequence[Row], methods: Sequence[str], conditions: bool) -> Grid:
    grid = _grid("measure", "condition")
    for method in methods:
        grid.add_column(f"{method}\nerror of the mean", justify="right")
        grid.add_column("\nWasserstein", justify="right")
    by_key = {(row.measure, row.profile, row.method): row for row in rows}
    of_one = len({row.profile for row in rows} - {ALL}) == 1
    before = None
    for measure, profile in dict.fromkeys((row.measure, row.profile) for row in rows):
        if (profile != ALL and not (conditions or of_one)) or (profile == ALL and of_one):
            continue
        cells: list[Text | str] = []
        for method in methods:
            row = by_key.get((measure, profile, method))
            cells += [_format_mean(row), _format_percent(row.wasserstein)] if row else [formats.NOTHING] * 2
        last = profile == ALL
        grid.add_row(measure if measure != before else "", profile, *cells, style="bold" if last and conditions else "")
        before = measure
        if last:
            grid.add_row("", "worst", *_format_worst(by_key, measure, methods))
        for name in ("median", "p95") if measure == ROUND_TRIP else ():
            grid.add_row("", f"{profile}, {name}", *_format_statistics(by_key, measure, profile, methods, name))
    return grid


def _format_statistics(
    by_key: dict[tuple[str, str, str], Row], measure: str, profile: str, methods: Sequence[str], name: str
) -> Iterable[str]:
    for method in methods:
        row = by_key.get((measure, profile, method))
        yield _format_percent(getattr(row, name), signed=profile != ALL) if row else formats.NOTHING
        yield ""


def _format_worst(by_key: dict[tuple[str, str, str], Row], measure: str, methods: Sequence[str]) -> Iterable[str]:
    for method in methods:
        row = by_key.get((measure, ALL, method))
        yield f"{_format_signed(row.worst[1])} {row.worst[0]}" if row and row.worst else formats.NOTHING
        yield ""


def _target_grid(targets: Sequence[Target]) -> Grid:
    grid = _grid("target", "of", "target value", "is", "worst condition", "")
    for each in targets:
        statistic = "error of the mean" if each.statistic == "mean" else f"error of the {each.statistic}"
        grid.add_row(
            f"{each.method}: {each.measure}",
            statistic,
            each.bound,
            f"{each.value * 100:.1f} %",
            f"{each.worst[0]} {_format_signed(each.worst[1])}",
            Text("reached", style="green") if each.reached else Text("missed", style="bold red"),
        )
    return grid


def _format_mean(row: Row) -> str:
    """Return the error of the mean; for several conditions or pages its absolute value, then the mean with its sign,
    which shows whether all errors have the same sign."""
    if row.distance is not None:
        return _format_percent(row.mean, signed=True)
    return f"{_format_percent(row.mean)} ({_format_signed(row.bias.value).removesuffix(' %')})"


def _format_percent(estimate: Estimate, *, signed: bool = False) -> str:
    def words(value: float) -> str:
        return _format_signed(value).removesuffix(" %") if signed else f"{value * 100:.1f}"

    if estimate.low is None or estimate.high is None:
        return f"{words(estimate.value)} %"
    return f"{words(estimate.value)} % [{words(estimate.low)}, {words(estimate.high)}]"


def _format_signed(value: float) -> str:
    return f"{value * 100:+.1f} %".replace("-", "−")


def _grid(*columns: str) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        grid.add_column(name)
    return grid
