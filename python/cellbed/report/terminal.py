"""Tables on the terminal: the summary of a run, and a comparison of runs."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cellbed.measure.run_folder import applications_of, read_run
from cellbed.report import cells, connections, formats, origin, ranking
from cellbed.runformat.spans import PLACES
from cellbed.support.console import IN_A_PIPE, Console

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cellbed.measure.cells import CellSummary, CellUser
    from cellbed.measure.comparison import ApplicationComparison, Comparison, Difference, SettingDifference
    from cellbed.measure.decomposition import Decomposition
    from cellbed.measure.migrations import MigrationSummary, Phase
    from cellbed.measure.servers import ServerSummary
    from cellbed.measure.statistics import Percentile
    from cellbed.measure.summary import (
        ApplicationSummary,
        DirectionSummary,
        EndpointSummary,
        NodeSummary,
        ProgramSummary,
        Summary,
    )
    from cellbed.measure.verdicts import Verdict
    from cellbed.runformat.description import Description
    from cellbed.runformat.spans import Span

Row = TypeVar("Row")
Cell = Callable[[Row], str | Text]
"""A cell of a row."""
_TROUBLES = (("late", "late"), ("failed", "failed"), ("timed_out", "timed out"), ("lost", "lost"))
"""Counts of requests without a good reply in time, with their labels."""
LINE = 400
"""Width in characters of a row in a pipe or a file."""


def show(run: Path, console: Console | None = None) -> None:
    """Print the summary of a measured run. Raises MeasureError if there is no summary."""
    from cellbed.measure.summary import Summary

    console = console or new_console()
    summary = Summary.read(run)
    description = read_run(run)
    described = applications_of(description)
    _headline(summary, description, console)
    for each, application in zip(summary.applications, described, strict=True):
        moves = [move for move in summary.migrations if move.app == each.name]
        _application(each, application, moves, console, alone=len(described) == 1)
        if each.own:
            _print_below(console, _own_table(each))
        if not application.spans or application.reported:
            _print_below(console, *connections.tables(each.name, summary.connections))
    _print_below(console, *connections.tables(None, summary.connections))
    for table in (_links(summary), _nodes(summary), _programs(summary)):
        if table.row_count:
            _print_below(console, table)
    for cell in summary.cells:
        console.print(Text(f"\n{cell.name}", style="bold"), Text(formats.cell(asdict(cell))))
        console.print(_users(cell))
    if summary.servers:
        _print_below(console, _servers(summary))
        _explain_marks(console, (each.percentiles for each in summary.servers))
    for fault in summary.faults:
        console.print(Text(f"\nat {fault.begin_s:.1f} s {fault.what}", style="bold"))
        for loss in fault.losses:
            console.print(Text(f"  {loss}"))
    console.print()
    if words := formats.machine(asdict(summary.machine)):
        console.print(Text(f"machine: {words}", style="dim"))
    if words := formats.describe_added([asdict(each) for each in summary.applications]):
        console.print(Text(f"machine: {words}", style="dim"))
    for caution in origin.cautions(description, described):
        console.print(Text(f"note: {caution.text}", style="dim"))
    for warning in summary.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))
    show_verdicts(summary.expectations, console)
    for name in ("report.html", "summary.json"):
        if (run / name).exists():
            console.print(Text(str(run.resolve() / name)), soft_wrap=True)


def show_verdicts(verdicts: Sequence[Verdict], console: Console) -> None:
    """Print a line for each verdict on an expectation."""
    for each in verdicts:
        console.print(Text(verdict(each), style="" if each.met else "red"), soft_wrap=True)


def verdict(each: Verdict) -> str:
    """Return a verdict on an expectation as a line."""
    return f"{'met' if each.met else 'NOT MET'}: {formats.verdict(asdict(each))}"


def new_console() -> Console:
    """Return a console for tables on standard output."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=LINE)


def as_html(show: Callable[[Console], object]) -> str:
    """Return the output of `show` as HTML, for notebooks."""
    console = Console(
        record=True, file=io.StringIO(), width=IN_A_PIPE, highlight=False, color_system="standard", force_jupyter=False
    )
    show(console)
    form = '<pre style="white-space:pre;overflow-x:auto;line-height:normal">{code}</pre>'
    return console.export_html(inline_styles=True, code_format=form)


def _headline(summary: Summary, description: dict[str, Any], console: Console) -> None:
    fine = summary.status == "complete" and not (summary.disturbances or summary.failure)
    status = (
        f"[{'green' if fine else 'bold yellow'}]"
        f"{escape(formats.outcome(summary.status, bool(summary.disturbances), summary.predicted, summary.failure))}[/]"
    )
    length = formats.format_reach(summary.measured_s, summary.duration_s)
    length += f" without the first {formats.duration(summary.skip_s)}" if summary.skip_s else ""
    console.print(f"\n[bold]{escape(summary.name)}[/]  {length}, {status}")
    plural = "s" if len(summary.applications) > 1 else ""
    console.print(f"[dim]application{plural}:[/] {escape(formats.titles(summary.applications))}")
    if traces := origin.traces(description):
        console.print(f"[dim]traces:[/] {escape(traces)}")
    if transport := origin.transport(description):
        console.print(f"[dim]transport:[/] {escape(transport)}")
    if summary.no_limits:
        console.print("[bold red]--no-limits: CPU and memory of the nodes were not limited[/]")
    for disturbance in summary.disturbances:
        console.print(Text(f"disturbed: {disturbance}", style="bold red"))


def _migrations(migrations: Sequence[MigrationSummary], console: Console) -> None:
    for migration in migrations:
        console.print(Text(f"\n{formats.migration(asdict(migration))}", style="bold"))
        if migration.phases:
            console.print(_phases(migration))
        for line in formats.migration_as_seen(asdict(migration)):
            console.print(Text(f"  {line}"))


def _application(
    summary: ApplicationSummary,
    application: Description,
    migrations: Sequence[MigrationSummary],
    console: Console,
    *,
    alone: bool,
) -> None:
    """Print an application's requests, latency, migrations and parts. alone: whether it is the run's only application,
    which needs no heading."""
    if not alone:
        console.print(f"\n[bold]{escape(summary.name)}[/]  {escape(summary.title)}")
    counts = summary.requests
    if not (application.spans or counts.total):
        _migrations(migrations, console)
        return
    words = [f"{counts.total} requests", f"{counts.ok} ok"]
    for count, name in ((getattr(counts, key), name) for key, name in _TROUBLES):
        words.append(f"[red]{count} {name}[/]" if count else f"{count} {name}")
    console.print(" · ".join(words))
    if counts.skipped or counts.reduced:
        console.print(f"[yellow]by policy: {counts.skipped} more skipped, {counts.reduced} sent reduced[/]")
    if timely := formats.timely([summary]):
        console.print(" · ".join(f"{name} {value}" for name, (value,) in timely))
    for reason, count in summary.reasons.items():
        console.print(Text(f"  {count} × {reason}", style="red"))
    _print_below(console, _latency(summary, migrations))
    _migrations(migrations, console)
    decompositions = _decompositions(summary, application.spans)
    if decompositions is not None:
        _print_below(console, decompositions)
        for at, each in _select_parts(summary):
            if cause := origin.cause(each):
                console.print(f"[bold]around the {at.label}[/]: {cause}")
    if summary.residual is not None:
        share, at_p99 = summary.residual.median_share, summary.residual.p99_share
        residual = f"residual {formats.share(share)} of the latency at the median"
        if at_p99 is not None:
            residual += f", {formats.share(at_p99)} at its own P99"
        console.print(Text(residual, style="dim"))
    for measure in summary.measures:
        if measure.mean is not None:
            console.print(Text(f"{measure.label}: {formats.share(measure.mean)}", style="dim"))
            continue
        least, median, most = (
            formats.OF_UNIT[measure.unit](value) for value in (measure.least, measure.median, measure.most)
        )
        is_time = measure.unit == "s" and measure.p99 is not None
        p99 = f"{formats.duration(measure.p99)} at the P99, " if is_time else ""
        console.print(Text(f"{measure.label}: {median} at the median, {p99}from {least} to {most}", style="dim"))
    for name, groups in (("step", summary.steps), ("endpoint", summary.endpoints)):
        if len(groups) > 1:
            _print_below(console, _groups(name, groups, summary))
            _explain_marks(console, (each.percentiles for each in groups))


def _own_table(summary: ApplicationSummary) -> Table:
    table = _table("own measure", "unit", "nodes", "values", "mean", "median", "least", "most")
    for each in summary.own:
        figures = (formats.own_value(value) for value in (each.mean, each.median, each.least, each.most))
        table.add_row(Text(each.measure), Text(each.unit), str(each.nodes), str(each.samples), *figures)
    return table


def _latency(summary: ApplicationSummary, migrations: Sequence[MigrationSummary]) -> Table:
    apart = summary.requests.answered < summary.requests.total
    moves = [asdict(each) for each in migrations]
    moved = bool(formats.around(moves, "median"))
    headings = [*(["before → after", "whole run"] if moved else ["value"]), "95 % interval"]
    table = _table("latency", *headings, *(["of good replies"] * apart), "")
    for at, good in zip(summary.percentiles, summary.good_replies, strict=True):
        around, alone = [formats.around(moves, at.label)] * moved, _percentile(good)[:apart]
        note = Text((at.note or "").removeprefix("refused: "), style="dim")
        table.add_row(at.label, *around, *_percentile(at), *alone, note)
    return table


def _percentile(at: Percentile) -> tuple[str, str]:
    if not at.supported:
        return "[yellow]refused[/]", formats.NOTHING
    value = formats.duration(at.value) + formats.mark(at) if at.value is not None else "[red]not finite[/]"
    if at.low is None:
        return value, formats.NOTHING
    return value, f"{formats.duration(at.low)} to {formats.duration(at.high) if at.high is not None else '∞'}"


def _explain_marks(console: Console, shown: Iterable[Sequence[Percentile]]) -> None:
    if any(at.value is not None and formats.mark(at) for percentiles in shown for at in percentiles):
        console.print(Text(formats.MARKED, style="dim"))


def _decompositions(summary: ApplicationSummary, spans: Sequence[Span]) -> Table | None:
    """Return a table of the parts at the median and at the highest percentile with parts."""
    having = _select_parts(summary)
    if not having:
        return None
    columns = [(f"around the {at.label}\nmean of {each.requests}, ms", each) for at, each in having]
    return _parts(spans, columns, summary.uncertainty)


def _parts_table(comparison: ApplicationComparison, names: list[str]) -> Table | None:
    """Return a table of the parts of all runs, side by side."""
    columns = [(f"{heading}, mean of {each.requests}, ms", each) for heading, each in comparison.parts(names)]
    uncertainty = {name: value for summary in comparison.summaries for name, value in summary.uncertainty.items()}
    return _parts(comparison.spans, columns, uncertainty) if columns else None


def _parts(spans: Sequence[Span], columns: list[tuple[str, Decomposition]], uncertainty: dict[str, float]) -> Table:
    """Return a table of decompositions, a column each. uncertainty: seconds by part."""
    shown = [each for _, each in columns]
    table = _table("where", "part")
    for heading, _ in columns:
        table.add_column(Text(heading), justify="right", overflow="fold")
        table.add_column("share\n", justify="right", style="dim")
    before = None
    for part in spans:
        label = part.label
        if part.name in uncertainty:
            label += f" (± {formats.duration(uncertainty[part.name])})"
        cells = []
        for each in shown:
            seconds, latency = each.parts[part.name], each.latency or 0.0
            share = seconds / latency if latency else 0.0
            style = "bold" if share >= 0.2 else ""
            cells += [Text(formats.milliseconds(seconds), style=style), Text(formats.share(share), style=style)]
        table.add_row(PLACES[part.place] if part.place != before else "", label, *cells)
        before = part.place
    residual, total = [], []
    for each in shown:
        left, latency = each.residual or 0.0, each.latency or 0.0
        residual += [formats.milliseconds(each.residual), formats.share(left / latency if latency else None)]
        total += [formats.milliseconds(each.latency), "100 %"]
    table.add_row("", "Residual", *residual, style="dim", end_section=True)
    table.add_row("", "Latency", *total, style="bold")
    return table


def _select_parts(summary: ApplicationSummary) -> list[tuple[Percentile, Decomposition]]:
    """Return the median and the highest percentile with parts."""
    having = [(at, each) for at, each in zip(summary.percentiles, summary.decompositions, strict=True) if each.requests]
    return having if len(having) < 2 else [having[0], having[-1]]


def _groups(name: str, groups: Sequence[EndpointSummary], summary: ApplicationSummary) -> Table:
    latency = {at.label: place for place, at in enumerate(summary.percentiles)}
    columns: dict[str, Cell[EndpointSummary]] = {
        name: lambda each: each.endpoint,
        "requests": lambda each: str(each.counts.total),
        "no good\nreply": lambda each: _alarm_text(each.counts.total - each.counts.answered),
        **{label: partial(_latency_cell, place=place) for label, place in latency.items()},
    }
    return _rows(groups, ranking.endpoints(groups), columns)


def _latency_cell(each: EndpointSummary | ServerSummary, place: int) -> str:
    return _percentile(each.percentiles[place])[0]


def _links(summary: Summary) -> Table:
    columns: dict[str, Cell[DirectionSummary]] = {
        "link": lambda each: f"{each.direction} (synthetic)" if each.synthetic else each.direction,
        "capacity\nMbit/s": lambda each: (
            "unlimited" if each.capacity_mbit_s is None else formats.number(each.capacity_mbit_s)
        ),
        "used\nMbit/s": lambda each: formats.number(each.used_mbit_s),
        "highest\nqueue": lambda each: formats.size(each.queue_peak_bytes),
        "longest gap": _gap,
        "queue\nfull": lambda each: _alarm_text(each.dropped_queue),
        "lost": lambda each: _alarm_text(each.dropped_loss),
    }
    for name, words in _EXTRAS.items():
        if any(map(count := attrgetter(name), summary.directions)):
            columns[words] = lambda each, count=count: formats.number(count(each))  # type: ignore[misc]
    return _rows(summary.directions, ranking.directions(summary.directions), columns)


def _gap(each: DirectionSummary) -> str:
    if not each.longest_gap_s:
        return formats.NOTHING
    return f"{formats.duration(each.longest_gap_s)} at {formats.duration(each.longest_gap_at_s)}"


_EXTRAS = {
    "dropped_congestion": "con-\ngestion",
    "dropped_handover": "hand-\nover",
    "marked": "\nmarked",
    "duplicated": "\ndoubled",
    "corrupted": "\ndamaged",
}
"""Counts of a link with their headings, shown if not 0."""


def _users(cell: CellSummary) -> Table:
    columns: dict[str, Cell[CellUser]] = {
        "user": lambda each: each.direction,
        "used\nMbit/s": lambda each: formats.number(each.throughput_mbit_s),
        "queueing\nmedian": lambda each: formats.duration(each.queueing_p50_s),
        "queueing\nP99": lambda each: formats.duration(each.queueing_p99_s),
        "share\nof time": lambda each: formats.share(each.share),
    }
    return _rows(cell.users, ranking.cell_users(cell.users), columns)


def _servers(summary: Summary) -> Table:
    columns: dict[str, Cell[ServerSummary]] = {
        "application": lambda each: f"{each.app}, {each.policy}",
        "cell": lambda each: each.cell or formats.NOTHING,
        "served by": lambda each: formats.describe_server(asdict(each)),
        "requests": lambda each: str(each.requests),
        "no good\nreply": lambda each: _alarm_text(each.lost),
        "delay\nboth ways": lambda each: formats.duration(each.delay_s),
        "\nmedian": partial(_latency_cell, place=0),
        "\nP99": partial(_latency_cell, place=1),
    }
    if all(each.cell is None for each in summary.servers):
        del columns["cell"]
    return _rows(summary.servers, None, columns)


def _phases(migration: MigrationSummary) -> Table:
    columns: dict[str, Cell[Phase]] = {
        "phase": lambda each: each.name,
        "begins": lambda each: f"{each.begin_s:.2f} s",
        "lasts": lambda each: formats.duration(each.end_s - each.begin_s),
        "sent": lambda each: formats.size(each.bytes),
    }
    return _rows(migration.phases, None, columns)


def _nodes(summary: Summary) -> Table:
    columns: dict[str, Cell[NodeSummary]] = {
        "node": lambda each: each.node,
        "CPU\nmean": lambda each: formats.number(each.cpu_cores_mean),
        "CPU\npeak": lambda each: formats.number(each.cpu_cores_peak),
        "\nthrottled": lambda each: formats.duration(each.throttled_s),
        "memory\npeak": lambda each: formats.memory(each.memory_peak_bytes),
        "killed for\nmemory": lambda each: _alarm_text(each.oom_kills),
    }
    return _rows(summary.nodes, ranking.nodes(summary.nodes), columns)


def _programs(summary: Summary) -> Table:
    columns: dict[str, Cell[ProgramSummary]] = {
        "program": lambda each: each.program,
        "CPU\ntime": lambda each: formats.duration(each.cpu_s),
        "CPU\nmean": lambda each: formats.number(each.cpu_cores_mean),
        "memory\npeak": lambda each: formats.memory(each.memory_peak_bytes),
    }
    return _rows([summary.programs[row] for row in ranking.programs(summary.programs)], None, columns)


def _alarm_text(count: int | None) -> Text:
    return Text(formats.number(count), style="red" if count else "")


def _rows(rows: Sequence[Row], order: list[int] | None, columns: Mapping[str, Cell[Row]]) -> Table:
    """Return a table of the first rows, with the number of hidden rows. columns: cells by heading."""
    table = _table(*columns)
    shown = ranking.visible_rows(len(rows))
    for row in (range(len(rows)) if order is None else order)[:shown]:
        table.add_row(*(cell(rows[row]) for cell in columns.values()))
    if len(rows) > shown:
        table.add_row(Text(f"and {len(rows) - shown} more", style="dim"))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, name in enumerate(columns):
        words = index == 0 or name in ("part", "")
        table.add_column(name, justify="left" if words else "right", overflow="fold", no_wrap=index == 0)
    return table


_LABELS = 30
"""Width of the labels beside the columns of runs, characters."""


def show_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Print runs side by side, and the differences of each run from the first run."""
    console = console or new_console()
    for warning in comparison.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))
    names = comparison.names
    if sum(len(name) + 2 for name in names) > console.width - _LABELS:
        names = [f"run {number}" for number, _ in enumerate(names, 1)]
        for short, name in zip(names, comparison.names, strict=True):
            console.print(Text(f"{short}: {name}", style="bold"))
        console.print()
    table, summaries = _beside(names), comparison.summaries
    table.add_row(
        "status",
        *(
            Text(
                formats.outcome(each.status, bool(each.disturbances), each.predicted, each.failure),
                "red" * bool(each.disturbances or each.failure),
            )
            for each in summaries
        ),
    )
    table.add_row("measured", *(formats.format_reach(summary.measured_s, summary.duration_s) for summary in summaries))
    table.add_row("limits", *("[red]none[/]" if summary.no_limits else "enforced" for summary in summaries))
    if len(comparison.applications) == 1:
        _print_application(comparison.applications[0], names, table, console)
    else:
        console.print(table)
        for each in comparison.applications:
            console.print(f"\n[bold]{escape(each.name)}[/]  {escape(each.title)}")
            _print_application(each, names, _beside(names), console)
    for name, rows in cells.compare(summaries):
        table = _beside(names, name)
        for label, texts in rows:
            table.add_row(label, *texts)
        _print_below(console, table)
    console.print()
    for note in comparison.notes:
        console.print(Text(f"note: {note}", style="dim"))


def _print_application(comparison: ApplicationComparison, names: list[str], table: Table, console: Console) -> None:
    """Print an application of all runs: counts, percentiles (in `table`), parts, differences."""
    summaries = comparison.summaries
    if not comparison.has_requests and comparison.peers:
        console.print(table)
        for peers in comparison.peers:
            figures = _beside(names, f"connections to\n{connections.name(peers[0])}")
            for label, cells in connections.compare(peers):
                figures.add_row(label, *cells)
            _print_below(console, figures)
        _print_own(comparison, names, console)
        return
    table.add_row("requests", *(str(summary.requests.total) for summary in summaries))
    table.add_row("ok", *(str(summary.requests.ok) for summary in summaries))
    for name, words in _TROUBLES:
        table.add_row(words, *(_alarm_text(getattr(summary.requests, name)) for summary in summaries))
    for name in ("skipped", "reduced"):
        if any(getattr(summary.requests, name) for summary in summaries):
            table.add_row(f"{name} by policy", *(str(getattr(summary.requests, name)) for summary in summaries))
    for name, values in formats.timely(summaries):
        table.add_row(name, *values)
    for label, row in comparison.percentiles():
        table.add_row(label, *(_percentile(at)[0] for at in row), style="bold")
    console.print(table)
    _explain_marks(console, (each.percentiles for each in summaries))
    if (parts := _parts_table(comparison, names)) is not None:
        _print_below(console, parts)
    found = iter(comparison.differences)
    for name, pairs in zip(names[1:], comparison.paired, strict=True):
        differences = _differences("value", islice(found, len(summaries[0].percentiles)))
        if pairs is not None and pairs.value is not None:
            value, interval, verdict = formats.format_difference(pairs)
            slower = f"slower in {formats.share(pairs.slower)} of {pairs.requests} requests"
            words = ", ".join(filter(None, [verdict, slower]))
            differences.add_row("per request", value, interval, Text(words, style="dim"))
        console.print(Text(f"\n{name} minus {names[0]}", style="bold"))
        console.print(differences)
    for title, rows in groupby(comparison.settings, key=formats.scenario_names):
        console.print(Text(f"\n{title}", style="bold"))
        console.print(_differences("mean", rows))
    _print_own(comparison, names, console)


def _print_own(comparison: ApplicationComparison, names: list[str], console: Console) -> None:
    """Print medians and differences of the measures that its programs wrote."""
    if not comparison.own:
        return
    table, differences = _beside(names, "own measure, median"), _table("difference", "of", "value", "95 % interval", "")
    for each in comparison.own:
        table.add_row(Text(each.measure), *(Text(formats.own_value(value, each.unit)) for value in each.medians))
        for found in each.differences:
            value, interval, verdict = formats.format_difference(found, found.note, each.unit)
            differences.add_row(Text(found.run), Text(each.measure), value, interval, Text(verdict, style="dim"))
    _print_below(console, table, differences)


def _differences(value: str, rows: Iterable[Difference | SettingDifference]) -> Table:
    """Return a table of differences between percentiles. value: heading of the column of values."""
    table = _table("difference", value, "95 % interval", "")
    for each in rows:
        *cells, verdict = formats.format_difference(each, each.note)
        table.add_row(each.label, *cells, Text(verdict, style="dim"))
    return table


def _print_below(console: Console, *tables: Table) -> None:
    """Print tables, with an empty line above each."""
    for table in tables:
        console.print()
        console.print(table)


def _beside(names: list[str], heading: str = "") -> Table:
    table = _table(heading)
    for name in names:
        table.add_column(Text(name), justify="right", overflow="fold")
    return table
