"""Tables on the terminal: the summary of a run, and a comparison of runs."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cellbed.measure.run_folder import applications_of, read_run
from cellbed.report import connections, formats, origin, ranking
from cellbed.runformat.spans import PLACES
from cellbed.support.console import IN_A_PIPE, Console

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cellbed.measure.cells import CellSummary, CellUser
    from cellbed.measure.comparison import (
        ApplicationComparison,
        Comparison,
        Difference,
        Interval,
        SettingDifference,
    )
    from cellbed.measure.connections import PeerSummary
    from cellbed.measure.decomposition import Decomposition
    from cellbed.measure.migrations import MigrationSummary, Phase
    from cellbed.measure.own import OwnMeasure
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
_BY_POLICY = (("skipped", "skipped by policy"), ("reduced", "reduced by policy"))
_DIFFERENCE = ("value", "95 % interval", "verdict")
"""Headings of a difference."""
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
            _print_below(console, own_measures(each).table())
        if not application.spans or application.reported:
            _print_below(console, *show_connections(each.name, summary.connections))
    _print_below(console, *show_connections(None, summary.connections))
    for listing in (links(summary), nodes(summary), programs(summary)):
        if (table := listing.table()).row_count:
            _print_below(console, table)
    for cell in summary.cells:
        console.print(Text(f"\n{cell.name}", style="bold"), Text(formats.cell(asdict(cell))))
        console.print(users(cell).table())
    if summary.servers:
        _print_below(console, servers(summary).table())
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
            console.print(phases(migration).table())
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
    table = decompositions(summary, application.spans)
    if table is not None:
        _print_below(console, table)
        for row in ranking.decompositions(summary):
            if cause := origin.cause(summary.decompositions[row]):
                console.print(f"[bold]around the {summary.percentiles[row].label}[/]: {cause}")
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
    for _, groups in groups_of(summary):
        _print_below(console, groups.table())
        _explain_marks(console, (each.percentiles for each in groups.rows))


def own_measures(summary: ApplicationSummary) -> Listing[OwnMeasure]:
    """Return the measures that an application's programs wrote."""
    columns: dict[str, Cell[OwnMeasure]] = {
        "own measure": lambda each: Text(each.measure),
        "unit": lambda each: Text(each.unit),
        "nodes": lambda each: str(each.nodes),
        "values": lambda each: str(each.samples),
    }
    for name in ("mean", "median", "least", "most"):
        columns[name] = lambda each, name=name: formats.own_value(getattr(each, name))  # type: ignore[misc]
    return Listing(summary.own, columns, "measures")


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


def decompositions(summary: ApplicationSummary, spans: Sequence[Span], *, meanings: bool = False) -> Table | None:
    """Return a table of the parts at the median and at the highest percentile with parts, also with their meanings."""
    columns = []
    for row in ranking.decompositions(summary):
        each = summary.decompositions[row]
        columns.append((f"around the {summary.percentiles[row].label}\nmean of {each.requests}, ms", each))
    return _parts(spans, columns, summary.uncertainty, meanings=meanings) if columns else None


def _parts_table(comparison: ApplicationComparison, names: list[str]) -> Table | None:
    """Return a table of the parts of all runs, side by side."""
    columns = [(f"{heading}, mean of {each.requests}, ms", each) for heading, each in comparison.parts(names)]
    uncertainty = {name: value for summary in comparison.summaries for name, value in summary.uncertainty.items()}
    return _parts(comparison.spans, columns, uncertainty) if columns else None


def _parts(
    spans: Sequence[Span],
    columns: list[tuple[str, Decomposition]],
    uncertainty: dict[str, float],
    *,
    meanings: bool = False,
) -> Table:
    """Return a table of decompositions, a column each. uncertainty: seconds by part."""
    headings, shown = zip(*columns, strict=True)

    def share(each: Decomposition, seconds: float | None) -> float:
        return (seconds or 0.0) / each.latency if each.latency else 0.0

    rows = (
        (
            PLACES[part.place],
            part.label + (f" (± {formats.duration(uncertainty[part.name])})" if part.name in uncertainty else ""),
            part.meaning,
            [(each.parts[part.name], share(each, each.parts[part.name])) for each in shown],
        )
        for part in spans
    )
    table = _places(headings, rows, meanings=meanings)
    rest = [(each.residual, share(each, each.residual) if each.latency else None) for each in shown]
    table.add_row("", "Residual", *_in_ms(rest), *[_RESIDUAL] * meanings, style="dim", end_section=True)
    whole = _in_ms([(each.latency, 1.0) for each in shown])
    table.add_row("", "Latency", *whole, *["intended time → reply"] * meanings, style="bold")
    return table


_RESIDUAL = "what the parts do not account for: the emulator’s own lateness"
Part = tuple[str, str, str, list[tuple[float | None, float]]]
"""Place, label and meaning of a part, and for each column seconds and the share of the whole."""


def _places(headings: Sequence[str], parts: Iterable[Part], *, meanings: bool) -> Table:
    """Return a table of parts of times, with their meanings if asked for."""
    table = _table("where", "part")
    for heading in headings:
        table.add_column(Text(heading), justify="right", overflow="fold")
        table.add_column("share\n", justify="right", style="dim")
    if meanings:
        table.add_column("from and to", style="dim")
    before = None
    for place, label, meaning, values in parts:
        styles = ["bold" if share >= 0.2 else "" for _, share in values for _ in range(2)]
        cells = map(Text, _in_ms(values), styles)
        table.add_row(place if place != before else "", Text(label), *cells, *[Text(meaning)] * meanings)
        before = place
    return table


def _in_ms(values: Iterable[tuple[float | None, float | None]]) -> list[str]:
    return [words for seconds, share in values for words in (formats.milliseconds(seconds), formats.share(share))]


def show_connections(
    application: str | None, peers: Sequence[PeerSummary], *, meanings: bool = False
) -> Iterator[Table]:
    """Yield tables of an application's connections: figures of each peer, and parts of the peers with most bytes."""
    if peers := [peer for peer in peers if peer.app == application]:
        columns = connections.FIGURES | (connections.QUEUES if meanings else {})
        heading = "connections to" if application else "connections of\nno application"
        yield Listing(peers, {heading: lambda peer: Text(connections.name(peer)), **columns}).table(whole=True)
    if shown := [peer for peer in peers if peer.parts][: connections.MOST_COLUMNS]:
        parts = (
            (place, label, meaning, [(peer.parts.get(part), connections.share(peer, part)) for peer in shown])
            for part, place, label, meaning in connections.parts(shown)
        )
        yield _places([f"{connections.name(peer)}\nmean by bytes, ms" for peer in shown], parts, meanings=meanings)


def groups_of(summary: ApplicationSummary) -> Iterator[tuple[str, Listing[EndpointSummary]]]:
    """Yield the steps and the endpoints of an application that has several, each with the name of one."""
    for name, groups in (("step", summary.steps), ("endpoint", summary.endpoints)):
        columns: dict[str, Cell[EndpointSummary]] = {
            name: lambda each: each.endpoint,
            "requests": lambda each: str(each.counts.total),
            "no good\nreply": lambda each: _alarm_text(each.counts.total - each.counts.answered),
            **{at.label: partial(_latency_cell, place=place) for place, at in enumerate(summary.percentiles)},
        }
        more = f"{name}s, in the order of their slowest requests"
        if len(groups) > 1:
            yield name, Listing(groups, columns, more, ranking.endpoints(groups))


def _latency_cell(each: EndpointSummary | ServerSummary, place: int) -> str:
    return _percentile(each.percentiles[place])[0]


def links(summary: Summary) -> Listing[DirectionSummary]:
    """Return the directions of links."""
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
    more = "directions, in the order of packets dropped, longest gap, highest queue, traffic"
    return Listing(summary.directions, columns, more, ranking.directions(summary.directions))


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


def users(cell: CellSummary) -> Listing[CellUser]:
    """Return the users of a cell."""
    columns: dict[str, Cell[CellUser]] = {
        "user": lambda each: each.direction,
        "used\nMbit/s": lambda each: formats.number(each.throughput_mbit_s),
        "queueing\nmedian": lambda each: formats.duration(each.queueing_p50_s),
        "queueing\nP99": lambda each: formats.duration(each.queueing_p99_s),
        "share\nof time": lambda each: formats.share(each.share),
    }
    return Listing(cell.users, columns, "users, in the order of queueing", ranking.cell_users(cell.users))


def servers(summary: Summary) -> Listing[ServerSummary]:
    """Return the servers of requests."""
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
    return Listing(summary.servers, columns, "servers")


def phases(migration: MigrationSummary) -> Listing[Phase]:
    """Return the phases of a migration."""
    columns: dict[str, Cell[Phase]] = {
        "phase": lambda each: each.name,
        "begins": lambda each: f"{each.begin_s:.2f} s",
        "lasts": lambda each: formats.duration(each.end_s - each.begin_s),
        "sent": lambda each: formats.size(each.bytes),
    }
    return Listing(migration.phases, columns, "phases")


def nodes(summary: Summary, limits: Mapping[str, Mapping[str, Any]] | None = None) -> Listing[NodeSummary]:
    """Return the nodes. limits: the description of each node by name, for columns with its limits."""
    columns: dict[str, Cell[NodeSummary]] = {"node": lambda each: each.node}
    if limits is not None:
        columns["CPU\nlimit"] = lambda each: formats.number(limits.get(each.node, {}).get("cpus"))
        columns["memory\nlimit"] = lambda each: formats.memory(limits.get(each.node, {}).get("memory_bytes"))
    columns |= {
        "CPU\nmean": lambda each: formats.number(each.cpu_cores_mean),
        "CPU\npeak": lambda each: formats.number(each.cpu_cores_peak),
        "\nthrottled": lambda each: formats.duration(each.throttled_s),
        "memory\npeak": lambda each: formats.memory(each.memory_peak_bytes),
        "killed for\nmemory": lambda each: _alarm_text(each.oom_kills),
    }
    more = "nodes, in the order of kills, time throttled, CPU used"
    return Listing(summary.nodes, columns, more, ranking.nodes(summary.nodes))


def programs(summary: Summary) -> Listing[ProgramSummary]:
    """Return the programs of nodes with several."""
    columns: dict[str, Cell[ProgramSummary]] = {
        "program": lambda each: each.program,
        "CPU\ntime": lambda each: formats.duration(each.cpu_s),
        "CPU\nmean": lambda each: formats.number(each.cpu_cores_mean),
        "memory\npeak": lambda each: formats.memory(each.memory_peak_bytes),
    }
    order = ranking.programs(summary.programs)
    return Listing(summary.programs, columns, "programs, in the order of CPU time", order)


def _alarm_text(count: int | None) -> Text:
    return Text(formats.number(count), style="red" if count else "")


@dataclass(frozen=True)
class Listing(Generic[Row]):
    """A table, of which the first rows are shown if it is long. columns: cells by heading. more: description of the
    other rows. order: numbers of rows."""

    rows: Sequence[Row]
    columns: Mapping[str, Cell[Row]]
    more: str = "more"
    order: Sequence[int] | None = None

    def table(self, *, whole: bool = False) -> Table:
        """Return the first rows, with the number of hidden rows, or all rows."""
        table = _table(*self.columns)
        order = range(len(self.rows)) if self.order is None else self.order
        shown = len(order) if whole else ranking.visible_rows(len(order))
        for row in order[:shown]:
            table.add_row(*(cell(self.rows[row]) for cell in self.columns.values()))
        if len(order) > shown:
            table.add_row(Text(f"and {len(order) - shown} more", style="dim"))
        return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, name in enumerate(columns):
        words = index == 0 or name in ("part", "level", "levels", "of", "verdict", "")
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
    runs = compare_runs(comparison, names)
    several = len(comparison.applications) != 1
    found = [("", runs)] if several else []
    for each in comparison.applications:
        (_, first), *others = compare_application(each, names, beside(names) if several else runs)
        found += [(f"{each.name}  {each.title}" if several else "", first), *others]
    found += compare_cells(comparison, names)
    for title, table in found:
        console.print(Text(f"\n{title}" if title else "", style="bold"))
        console.print(table)
    _explain_marks(console, (each.percentiles for app in comparison.applications for each in app.summaries))
    console.print()
    for note in comparison.notes:
        console.print(Text(f"note: {note}", style="dim"))


def compare_runs(comparison: Comparison, names: list[str]) -> Table:
    """Return a table of the states of runs. names: headings of the runs."""
    table, summaries = beside(names), comparison.summaries
    states = [formats.outcome(each.status, bool(each.disturbances), each.predicted, each.failure) for each in summaries]
    wrong = ["red" if each.disturbances or each.failure else "" for each in summaries]
    table.add_row("status", *map(Text, states, wrong))
    table.add_row("measured", *(formats.format_reach(each.measured_s, each.duration_s) for each in summaries))
    table.add_row("limits", *("[red]none[/]" if each.no_limits else "enforced" for each in summaries))
    return table


def compare_application(
    comparison: ApplicationComparison, names: list[str], table: Table
) -> Iterator[tuple[str, Table]]:
    """Yield tables of an application of all runs, each with a title or an empty text: `table` with counts and
    percentiles, then parts and differences."""
    summaries = comparison.summaries
    if comparison.has_requests or not comparison.peers:
        _add_counts(table, comparison)
        yield "", table
        if (parts := _parts_table(comparison, names)) is not None:
            yield "Where the time goes", parts
        found = iter(comparison.differences)
        for name, pairs in zip(names[1:], comparison.paired, strict=True):
            differences = _differences("value", islice(found, len(summaries[0].percentiles)))
            if pairs is not None and pairs.value is not None:
                slower = f"slower in {formats.share(pairs.slower)} of {pairs.requests} requests"
                _add_difference(differences, pairs, "per request", more=slower)
            yield f"{name} minus {names[0]}", differences
        for title, rows in groupby(comparison.settings, key=formats.scenario_names):
            yield title, _differences("mean", rows)
    else:
        yield "", table
        for peers in comparison.peers:
            yield "", beside(names, f"connections to\n{connections.name(peers[0])}", connections.compare(peers))
    if comparison.own:
        medians, differences = beside(names, "own measure, median"), _table("difference", "of", *_DIFFERENCE)
        for each in comparison.own:
            medians.add_row(Text(each.measure), *(formats.own_value(at, each.unit) for at in each.medians))
            for at in each.differences:
                _add_difference(differences, at, Text(at.run), Text(each.measure), unit=each.unit)
        yield "", medians
        yield "Measures of its programs", differences


def _add_counts(table: Table, comparison: ApplicationComparison) -> None:
    """Add counts of requests and percentiles of an application to a table of runs."""
    summaries = comparison.summaries
    for name, words in (("total", "requests"), ("ok", "ok"), *_TROUBLES, *_BY_POLICY):
        counts = [getattr(summary.requests, name) for summary in summaries]
        if any(counts) or (name, words) not in _BY_POLICY:
            is_trouble = (name, words) in _TROUBLES
            table.add_row(words, *(_alarm_text(count) if is_trouble else formats.number(count) for count in counts))
    for label, values in formats.timely(summaries):
        table.add_row(label, *values)
    for label, row in comparison.percentiles():
        table.add_row(label, *(_percentile(at)[0] for at in row), style="bold")


def compare_cells(comparison: Comparison, names: list[str]) -> Iterator[tuple[str, Table]]:
    """Yield a table for each cell of any run, with an empty title."""
    of_runs = [{cell.name: cell for cell in summary.cells} for summary in comparison.summaries]
    for name in dict.fromkeys(name for cells in of_runs for name in cells):
        found = [each.get(name) for each in of_runs]
        users = list(dict.fromkeys(user.direction for cell in found if cell is not None for user in cell.users))
        texts: dict[str, Cell[CellSummary]] = {
            "throughput": lambda cell: formats.rate(cell.throughput_mbit_s),
            "Jain's index of throughputs": lambda cell: _index(cell.fairness),
            "Jain's index of shares of time": lambda cell: _index(cell.time_fairness),
        }
        for direction in users[: ranking.visible_rows(len(users))]:
            texts[f"throughput of {direction}"] = partial(_user, direction)
        table = beside(names, name)
        for label, text in texts.items():
            table.add_row(label, *(formats.NOTHING if cell is None else text(cell) for cell in found))
        if more := len(users) - ranking.visible_rows(len(users)):
            table.add_row(f"and {more} users more")
        yield "", table


def _user(direction: str, cell: CellSummary) -> str:
    """Return the throughput of a user, and its share of the throughput of all users in the cell."""
    total = sum(user.throughput_mbit_s for user in cell.users)
    found = next((user for user in cell.users if user.direction == direction), None)
    if found is None:
        return formats.NOTHING
    share = f" ({formats.share(found.throughput_mbit_s / total)})" if total else ""
    return formats.rate(found.throughput_mbit_s) + share


def _index(fairness: float | None) -> str:
    return formats.NOTHING if fairness is None else f"{fairness:.3f}"


def _differences(value: str, rows: Iterable[Difference | SettingDifference]) -> Table:
    """Return a table of differences between percentiles. value: heading of the column of values."""
    table = _table("difference", value, *_DIFFERENCE[1:])
    for each in rows:
        _add_difference(table, each, each.label)
    return table


def _add_difference(table: Table, each: Interval, *labels: str | Text, unit: str | None = None, more: str = "") -> None:
    *cells, verdict = formats.format_difference(each, each.note, unit)
    table.add_row(*labels, *cells, Text(", ".join(filter(None, [verdict, more])), style="dim"))


def _print_below(console: Console, *tables: Table) -> None:
    """Print tables, with an empty line above each."""
    for table in tables:
        console.print()
        console.print(table)


def beside(names: list[str], heading: str = "", rows: Iterable[tuple[str | Text, list[str]]] = ()) -> Table:
    """Return a table with a column for each run. rows: label and cells of each."""
    table = _table(heading)
    for name in names:
        table.add_column(Text(name), justify="right", overflow="fold")
    for label, texts in rows:
        table.add_row(label, *texts)
    return table
