"""Figures of runs for papers, by matplotlib: latency and its parts, links and nodes over time, and comparisons."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cellbed.measure.run_folder import MeasureError, applications_of, read_run, read_tables, replace
from cellbed.report import pages, plot, ranking
from cellbed.report.formats import duration, mark, share
from cellbed.report.plot import Bars, Drawing
from cellbed.runformat.description import Composed
from cellbed.runformat.spans import PLACES, Place, Span

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

    from cellbed.measure.comparison import ApplicationComparison
    from cellbed.measure.decomposition import Decomposition
    from cellbed.measure.statistics import Percentile, Samples
    from cellbed.measure.summary import ApplicationSummary, Summary

Ending = Literal["svg", "pdf", "png"]
TIME = "time since the start of the schedule, s"
TABLES = ("requests", "links", "nodes", "disturbance", "measures", "flows")
_STEPS = 1_500
"""Maximum number of steps drawn of a distribution."""
_BINS = 400
"""Maximum number of bins drawn of a series."""
COLOURS = ("#1f5597", "#cf9138", "#1a5c47", "#9c5f10", "#3f82cb", "#5b6472", "#2f8f72", "#b3261e")
DASHES = ("-", "--", "-.", ":")
_MARKS = {1: ("late", "o"), 2: ("failed", "x"), 3: ("timed out", "+"), 4: ("lost", "1")}
"""Marks of requests by outcome number, as in the charts (:mod:`cellbed.report.timeline`)."""


def write(run: Path, folder: Path, ending: Ending) -> list[Path]:
    """Write every figure of a measured run into `folder`, which is created; return the files.

    Raises MeasureError for a folder that is not a measured run, or that cannot be written to.
    """
    from cellbed.measure.summary import Summary
    from cellbed.report.timeline import timeline

    description = read_run(run)
    tables = read_tables(run, *TABLES, requests=columns_of(description))
    charts = timeline(description, *tables[:4])
    found: dict[str, Drawing | Bars] = {**run_drawings(description, Summary.read(run), tables, charts)}
    found |= {f"link-{link['name']}": _link(link, charts["span"]) for link in charts["links"]}
    return save({name: each.figure for name, each in found.items()}, folder, ending)


def columns_of(description: dict[str, Any]) -> Sequence[str] | None:
    """Return the columns of requests that the figures of a run show; None for all. description: of the run."""
    whole = any(isinstance(each, Composed) for each in applications_of(description))
    return None if whole else ("app", "endpoint", "request", "status", "intended_s", "latency_s")


def save(drawings: Mapping[str, Callable[[], Figure]], folder: Path, ending: Ending) -> list[Path]:
    """Write figures, by name, into `folder`, which is created; return the files. Raises MeasureError for a folder that
    cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MeasureError(f"{folder}: cannot be made: {error.strerror}") from None
    paths = []
    for name, drawing in drawings.items():
        content = plot.draw_file(ending, drawing, name)
        path = folder / f"{file_name(name)}.{ending}"
        replace(path, content)
        paths.append(path)
    return paths


def file_name(name: str) -> str:
    """Return the file name for a figure. Its name may contain any character, as users may edit the source files."""
    return re.sub(r"[^\w.-]", "_", name)


def run_drawings(
    description: dict[str, Any], summary: Summary, tables: Sequence[pl.DataFrame], charts: dict[str, Any]
) -> dict[str, Drawing | Bars]:
    """Return the figures of a measured run by name: for each application its distribution, parts and own measures.

    tables: :data:`TABLES` of the run. charts: its timeline.
    """
    from cellbed.measure.summary import latencies, of

    requests, *_, measured, sampled = tables
    described = applications_of(description)
    found: dict[str, Drawing | Bars | None] = {}
    for each, application in zip(summary.applications, described, strict=True):
        found[f"{each.name}-waterfall"] = pages.draw_page_loads(application, described, requests)
        found[f"{each.name}-measures"] = own_series(of(measured, each.name))
        found[f"{each.name}-latency"] = latency(latencies(of(requests, each.name)), each.percentiles)
        found[f"{each.name}-parts"] = _parts_of_run(each, application.spans)
    gaps = [gap for link in charts["links"] for gap in link["gaps"]]
    found["flows"] = flows_over_time(sampled, gaps, charts["span"][1])
    return {name: each for name, each in found.items() if each is not None}


def _parts_of_run(application: ApplicationSummary, spans: Sequence[Span]) -> Bars | None:
    """Return the bars of the shown decompositions; None if there are none."""
    rows = ranking.decompositions(application)
    columns = [(f"around the {application.percentiles[row].label}", application.decompositions[row]) for row in rows]
    return _parts(columns, spans) if columns else None


def draw_comparison(
    application: ApplicationComparison, names: list[str], groups: list[str]
) -> dict[str, Drawing | Bars]:
    """Return the distributions and the parts of all runs by title. names, groups: by run; if there are several groups,
    each has a colour."""
    found: dict[str, Drawing | Bars] = {}
    if any(np.isfinite(sample).any() for sample in application.samples):
        samples = dict(zip(names, application.samples, strict=True))
        colours = dict(zip(names, groups if len(set(groups)) > 1 else names, strict=True))
        found["Latency"] = distribution(samples, colours, ())
    if columns := application.parts(names):
        found["Parts of the latency"] = _parts(columns, application.spans)
    return found


# ---- latency


def latency(samples: Samples, percentiles: Sequence[Percentile]) -> Drawing | None:
    """Return the distribution of a run's latencies: of all requests, and also of good replies alone if some requests
    lack one; None without a good reply."""
    good = samples[np.isfinite(samples)]
    if not len(good):
        return None
    found = {"": samples} if len(good) == len(samples) else {"all requests": samples, "good replies alone": good}
    return distribution(found, dict.fromkeys(found, ""), percentiles)


def distribution(
    samples: Mapping[str, Samples], groups: Mapping[str, str], percentiles: Sequence[Percentile]
) -> Drawing:
    """Return the share of requests answered within a time, and the share of slower requests on logarithmic axes.
    samples: by run. groups: by run, each with a colour."""
    finite = {name: np.sort(sample[np.isfinite(sample)]) for name, sample in samples.items()}
    slowest = max(each[-1] for each in finite.values() if len(each))
    unit, factor = ("s", 1.0) if slowest >= 2 else ("ms", 1e3)

    def draw(figure: FigureBase) -> None:
        left, right = figure.subplots(1, 2)
        seen: list[str] = []
        for name, replies in finite.items():
            colour = list(dict.fromkeys(groups.values())).index(groups[name])
            dash = colour + seen.count(groups[name])
            seen.append(groups[name])
            style = {"color": COLOURS[colour % len(COLOURS)], "linestyle": DASHES[dash % len(DASHES)]}
            _draw_steps(left, right, name, replies, len(samples[name]), factor, style)
        for at in percentiles:
            if at.value is not None:
                # If an interval has no upper bound, it includes requests without a good reply.
                end = at.high if at.high is not None else slowest if at.has_interval else at.value
                ends = [[(at.value - (at.low or at.value)) * factor], [(end - at.value) * factor]]
                place = at.value * factor, at.quantile
                left.errorbar(*place, xerr=ends, fmt="o", color=plot.INK, ms=4, capsize=3)
                words = f"{at.label} {duration(at.value)}{mark(at)}"
                left.annotate(words, place, (6, -12), textcoords="offset points", fontsize=8)
        left.set(xlabel=f"latency, {unit}", ylabel="share of requests answered", ylim=(0, 1.02), xlim=(0, None))
        right.set(xlabel=f"latency, {unit} (logarithmic)", ylabel="share of slower requests (logarithmic)")
        right.set(xscale="log", yscale="log")
        plot.label_decades(right.xaxis, *right.get_xlim())
        plot.label_decades(right.yaxis, *right.get_ylim())
        if len(samples) > 1:
            figure.legend(loc="outside upper center", ncols=min(4, len(samples)))

    return Drawing(3.6, draw)


def _draw_steps(
    left: Axes, right: Axes, label: str, replies: Samples, total: int, factor: float, style: dict[str, Any]
) -> None:
    """Draw the distribution of the sorted latencies of good replies to `total` requests."""
    steps = _ranks(len(replies))
    times = replies[steps - 1] * factor
    missing = total - len(replies)
    if missing or not len(replies):
        label += f" ({share(missing / total)} without a good reply)" if len(replies) else " (no good reply)"
    style = style | {"where": "post", "linewidth": 1.6}
    left.step(np.r_[0, times], np.r_[0, steps / total], label=label or None, **style)
    # The requests without a good reply remain above the curve's end.
    slower = np.r_[np.ones(len(replies[:1])), (total - steps) / total]
    right.step(np.r_[times[:1], times], np.where(slower > 0, slower, np.nan), **style)


def _ranks(n: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return every rank; if there are too many to see, evenly spaced ranks and all ranks of the tail."""
    if n <= _STEPS:
        return np.arange(1, n + 1)
    return np.unique(np.r_[np.linspace(1, n, _STEPS - 200).astype(int), np.arange(n - 199, n + 1)])


def _parts(columns: Sequence[tuple[str, Decomposition]], spans: Sequence[Span]) -> Bars:
    """Return decompositions as bars, with the parts in the order of a request."""
    colours = plot.shades(spans)
    widest = max(each.latency or 0.0 for _, each in columns) * 1e3
    parts = []
    for span in spans:
        length = [max(each.parts[span.name], 0.0) * 1e3 for _, each in columns]
        # A part too small to see needs no name.
        name = f"{PLACES[span.place]}: {span.label.lower()}" if max(length) >= 0.002 * widest else ""
        parts.append((name, colours[span.name], length))
    parts.append(("", "#ffffff", [max(each.residual or 0.0, 0.0) * 1e3 for _, each in columns]))
    names = [f"{' '.join(heading.split())}, mean of {each.requests}" for heading, each in columns]
    return Bars(names, parts, "mean of the parts of these requests, ms")


# ---- over time


def own_series(table: pl.DataFrame) -> Drawing | None:
    """Return the measures of an application's programs over time; None if there are none. table: the application's rows
    of ``measures.parquet``."""
    table = table.drop_nulls("time_s")
    if {_RATE, _BUFFER} <= set(table["measure"]):
        return Drawing(4.4, lambda figure: _draw_playbacks(figure, table))
    names, programs = (table[of].unique(maintain_order=True).to_list()[: len(COLOURS)] for of in ("measure", "program"))

    def draw(figure: FigureBase) -> None:
        grid = figure.subplots(len(names), 1, sharex=True, squeeze=False).flat
        for axes, name in zip(grid, names, strict=True):
            for colour, program in zip(COLOURS, programs, strict=False):
                series = table.filter(measure=name, program=program).sort("time_s")
                series = series.gather_every(1 + len(series) // _STEPS)
                axes.plot(series["time_s"], series["value"], color=colour, lw=1.2, label=program)
            unit = table.filter(measure=name)["unit"][0]
            axes.set_ylabel(", ".join(filter(None, [name, unit])).replace("$", r"\$"))
        grid[-1].set_xlabel("time of the program, s")
        if len(programs) > 1:
            figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)

    return Drawing(0.5 + 1.5 * len(names), draw) if names else None


def flows_over_time(flows: pl.DataFrame, gaps: Sequence[Mapping[str, Any]], end_s: float) -> Drawing | None:
    """Return throughput, round-trip time and window of the largest flows over time; None if there are none.

    gaps: outages of links, with begin, end and way. end_s: end of the schedule.
    """
    import polars as pl

    from cellbed.measure.flows import bin_flows, transfers

    flows = transfers(flows)
    if not len(flows):
        return None
    carried = flows.group_by("flow").agg(pl.col("acked_bytes").sum()).sort("acked_bytes", "flow", descending=True)
    drawn = sorted(carried["flow"].head(len(COLOURS)))
    series = bin_flows(flows.filter(pl.col("flow").is_in(drawn)), max(0.1, end_s / _BINS))

    def draw(figure: FigureBase) -> None:
        rates, trips, windows = figure.subplots(3, 1, sharex=True)
        for axes in (rates, trips, windows):
            _shade(axes, gaps)
        for colour, ((flow,), bins) in zip(COLOURS, series.group_by("flow", maintain_order=True), strict=False):
            about, time = bins.row(0, named=True), bins["time_s"].to_numpy()
            label = f"flow {flow}: {about['sender']} to {about['receiver'] or 'a shared address'}, {about['law']}"
            style: Any = {"color": colour, "lw": 1.1}
            rates.plot(time, bins["throughput_mbit_s"], label=label, **style)
            trips.plot(time, bins["rtt_s"] * 1e3, **style)
            windows.plot(time, bins["window_bytes"] / 1e3, **style)
            windows.plot(time, bins["threshold_bytes"] / 1e3, color=colour, lw=0.8, ls=":")
            lost = bins["lost"].to_numpy() > 0
            windows.plot(time[lost], (bins["window_bytes"] / 1e3).to_numpy()[lost], "x", color=plot.ALARM, ms=3)
        rates.set(ylabel="throughput, Mbit/s", ylim=(0, None))
        trips.set(ylabel="round trip, ms", ylim=(0, None))
        top = 1.1 * float(series["window_bytes"].max() or 1) / 1e3  # type: ignore[arg-type]
        windows.set(ylabel="window, kB", ylim=(0, top), xlabel=TIME, xlim=(0, end_s))
        windows.set_title("dotted: threshold of slow start; crosses: losses", fontsize=8, fontweight="normal")
        more = f"and {len(carried) - len(drawn)} smaller flows" if len(carried) > len(drawn) else None
        figure.legend(loc="outside lower center", ncols=2, title=more)

    return Drawing(6.6, draw)


def _link(link: dict[str, Any], span: Sequence[float]) -> Drawing:
    """Return the requests of a link's endpoint by application, and both directions' capacity, use and queue."""
    rows = len(link["requests"]) + 2 * len(link["directions"])

    def draw(figure: FigureBase) -> None:
        grid = list(figure.subplots(rows, 1, sharex=True, squeeze=False).flat)
        for axes in grid:
            _shade(axes, link["gaps"])
        for axes, requests in zip(grid, link["requests"], strict=False):
            _draw_requests(axes, requests)
            axes.set_title(f"{requests['app']}: requests of {link['endpoint']} by intended time")
        of_directions = grid[len(link["requests"]) :]
        for rates, queues, direction in zip(of_directions[::2], of_directions[1::2], link["directions"], strict=True):
            _draw_direction(rates, queues, direction)
        if grid:
            grid[-1].set(xlabel=TIME, xlim=span)

    return Drawing(0.5 + 1.5 * rows, draw)


def _draw_requests(axes: Axes, requests: dict[str, Any]) -> None:
    time, latency = _numbers(requests["time"]), _numbers(requests["latency"])
    replied, status = np.isfinite(latency), np.array(requests["status"])
    top = 1.05 * latency[replied].max() if replied.any() else 1.0
    axes.vlines(time[replied], 0, latency[replied], color=plot.RULE, lw=0.6)
    axes.plot(time[replied], latency[replied], ".", ms=3, color=plot.INK)
    top *= 1.1 if not replied.all() else 1.0
    for number, (outcome, mark_of) in _MARKS.items():
        those = status == number
        if those.any():
            height = np.where(replied[those], latency[those], 0.96 * top)
            axes.plot(time[those], height, mark_of, ms=4, color=plot.ALARM, mfc="none", label=outcome)
            axes.legend(loc="upper right")
    axes.set(ylabel="latency, ms", ylim=(0, top))


def _draw_direction(rates: Axes, queues: Axes, direction: dict[str, Any]) -> None:
    place: Place = direction["way"]
    shades = plot.palette(place)
    rate = 8e-6 / direction["bin"]
    if direction["capacity"]:
        _stairs(rates, direction, "capacity", np.mean, rate, color=shades[2], alpha=0.5, label="offered")
    _stairs(rates, direction, "used", np.mean, rate, color=shades[1], label="used")
    rates.set(ylabel="rate, Mbit/s", ylim=(0, None))
    rates.set_title(f"{direction['name']}: capacity" + f" of {direction['trace']}" * bool(direction["trace"]))
    rates.legend(loc="upper right", ncols=2)
    _stairs(queues, direction, "queue", np.max, 1e-3, color=shades[1])
    queues.set(ylabel="queue, kB", ylim=(0, None))
    queues.set_title(f"{direction['name']}: highest queue")


def _shade(axes: Axes, gaps: Sequence[Mapping[str, Any]]) -> None:
    """Shade outages. gaps: begin and end, s, and way of each."""
    for gap in gaps:
        axes.axvspan(gap["begin"], gap["end"], color=plot.ALARM, alpha=0.1 if gap["way"] == "uplink" else 0.05, lw=0)


def _stairs(
    axes: Axes, direction: dict[str, Any], column: str, join: Callable[..., Any], factor: float, **style: Any
) -> None:
    """Draw a series of bins; many bins are joined."""
    values = _numbers(direction[column])
    if not len(values):
        return
    step = -(-len(values) // _BINS)
    whole = np.r_[values, np.full(-len(values) % step, values[-1])].reshape(-1, step)
    edges = direction["begin"] + np.arange(len(whole) + 1) * step * direction["bin"]
    axes.stairs(join(whole, axis=1) * factor, edges, fill=True, **style)


def _numbers(values: Sequence[float | None]) -> Any:
    return np.array([np.nan if value is None else value for value in values], np.float64)


_RATE, _BUFFER, _THROUGHPUT, _STALL = "bitrate_mbit_s", "buffer_s", "throughput_mbit_s", "stall_s"


def _draw_playbacks(figure: FigureBase, table: pl.DataFrame) -> None:
    """Draw the playbacks of an application, one for each node."""
    rates, buffers = figure.subplots(2, 1, sharex=True)
    nodes = table["node"].unique(maintain_order=True).to_list()
    for colour, node in zip(COLOURS, nodes, strict=False):
        measures = (_RATE, _BUFFER, _THROUGHPUT, _STALL)
        steps, buffer, came, stalls = (table.filter(node=node, measure=each).sort("time_s") for each in measures)
        name = node if len(nodes) > 1 else ""
        times, values = [*steps["time_s"], buffer["time_s"].max()], [*steps["value"], *steps["value"][-1:]]
        rates.step(times, values, where="post", color=colour, lw=1.4, label=f"{name} bit rate".strip())
        label = f"{name} throughput of a chunk".strip()
        rates.plot(came["time_s"], came["value"], ".", color=colour, ms=5, alpha=0.6, label=label)
        buffers.plot(buffer["time_s"], buffer["value"], color=colour, lw=1.2)
        for at, length in stalls.select("time_s", "value").iter_rows():
            for axes in (rates, buffers):
                axes.axvspan(at, at + length, color=plot.ALARM, alpha=0.15, lw=0)
    rates.set(ylabel="Mbit/s (logarithmic)", yscale="log")
    plot.label_decades(rates.yaxis, *rates.get_ylim())
    buffers.set(ylabel="buffer, s", ylim=(0, None), xlabel=TIME, xlim=(0, None))
    buffers.set_title("red: stalls", fontsize=8, fontweight="normal")
    figure.legend(*rates.get_legend_handles_labels(), loc="outside upper right", ncols=4)
