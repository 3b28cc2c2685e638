"""The report of a data centre's simulation, as a self-contained page and on the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from cellbed.extension.files import inputs
from cellbed.extension.reports import COLOURS, Console, Head, duration_unit, formats, html, new_console, plot, replace
from cellbed_datacentre.simulation import CLASSES, by_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Value = Mapping[str, Any]
"""A figure over seeds: ``value``; ``low`` and ``high`` of the 95 % interval; ``seeds``."""
Curve = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Points of a line."""

_POINTS = 800
"""Maximum points of a curve."""
_SAMPLES = 2000
"""Approximate number of samples per series in a drawing."""
_PORTS = 20
"""Maximum ports in the page's table."""
_QUALITIES = (("1–6, QPSK", 0, 6.5), ("7–9, 16QAM", 6.5, 9.5), ("10–15, 64QAM", 9.5, 16))
"""Classes of channel quality: name, and limits of the mean CQI (above, up to). Modulations as in 3GPP TS 36.213, table
7.2.3-1."""
_NAMES = {"fct_s": "flow completion time", "slowdown": "slowdown"}


def write(folder: Path) -> None:
    """Write ``report.html`` from the tables and the summary of a simulation's folder."""
    summary = inputs.json_value(folder / "summary.json")
    page = html.fill_template(
        Path(__file__).with_name("simulation.html"),
        _head(summary),
        summary=summary,
        distributions=_draw_distributions(folder, summary),
        ports=_ports(folder),
        queues=_queues(folder),
        cells=_cells(folder),
        statistics=(("mean", "mean"), ("p50", "median"), ("p99", "P99")),
        shown=format_value,
        whole=lambda value: formats.number(round(value)),
        ratio=ratio,
        resolved=json.dumps(summary["file"], indent=1, ensure_ascii=False),
        tables=sorted(path.name for path in folder.glob("*.parquet")),
        formats=formats,
    )
    replace(folder / "report.html", lambda path: path.write_text(page, encoding="utf-8"))


def facts(summary: Mapping[str, Any]) -> list[str]:
    """Return short facts about a simulation."""
    file, seeds = summary["file"], summary["seeds"]
    topology, traffic, transport = file["topology"], file["traffic"], file["transport"]
    if topology["kind"] == "leaf-spine":
        hosts = topology["racks"] * topology["hosts_per_rack"]
        shape = f"{hosts} hosts in {topology['racks']} racks, {topology['spines']} spines"
    else:
        shape = f"{len(topology['hosts'])} hosts, {len(topology['switches'])} switches"
    pattern = traffic["pattern"] or ("to users" if file["radio"] else "all-to-all")
    flows = [f"{formats.number(summary['flows'])} flows"]
    flows += [f"of {traffic['trace']}"] if traffic["trace"] else [f"at load {traffic['load']:g}"]
    flows += [] if traffic["trace"] else [pattern if isinstance(pattern, str) else pattern["kind"]]
    return [
        transport if isinstance(transport, str) else transport["kind"],
        shape,
        " ".join(flows),
        f"{formats.duration(max(run['duration_s'] for run in summary['runs']))} of virtual time",
        f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds, {seeds[0]} to {seeds[-1]}",
        f"{formats.number(summary['packet_hops'])} packet-hops in {formats.duration(summary['elapsed_s'])}",
    ]


def _head(summary: Mapping[str, Any]) -> Head:
    transport, shape, *rest = facts(summary)
    slow = summary["by_size"][0]["slowdown_mean"]["value"] is not None
    column, words = ("slowdown", ratio) if slow else ("fct_s", formats.duration)
    tiles = []
    for row in summary["by_size"]:
        mean, p99 = (row[f"{column}_{statistic}"]["value"] for statistic in ("mean", "p99"))
        if mean is not None:
            below = [f"P99 {words(p99)}"] if p99 is not None else []
            name = f"{row['size'].capitalize()}: mean {_NAMES[column]}"
            tiles.append((name, words(mean), ", ".join([*below, f"{formats.number(row['count'])} flows"])))
    one = len(summary["seeds"]) == 1
    return Head(
        title=summary["name"],
        kind="simulation",
        asked=[f"How long flows take with {transport} on {shape}.", *rest],
        tiles=tiles,
        answers=[describe_ports(summary)],
        trust="with care" if one or summary["unfinished"] else "yes",
        reasons=[
            "simulated in virtual time",
            "one seed, so without intervals" if one else f"{len(summary['seeds'])} seeds",
        ],
        doubts=[describe_unfinished(summary)] if summary["unfinished"] else [],
        next=[
            (
                "Add seeds for intervals" if one else "Vary a key of the file",
                "" if one else "cellbed sweep run SWEEP.toml",
            )
        ],
    )


def format_value(value: Value, words: Callable[[float], str]) -> str:
    """Return a figure over seeds with its interval: ``"1.70 (1.68 to 1.72)"``."""
    if value["value"] is None:
        return formats.NOTHING
    text = words(value["value"])
    return text if value["low"] is None else f"{text} ({words(value['low'])} to {words(value['high'])})"


def ratio(value: float) -> str:
    """Return a ratio as text: ``"1.70"``, ``"22.9"``."""
    return f"{value:.2f}" if value < 10 else f"{value:,.1f}"


def show(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the summary."""
    from rich.table import Table
    from rich.text import Text

    console = console or new_console()
    console.print(Text.assemble((summary["name"], "bold"), f"  {' · '.join(facts(summary))}"))
    if summary["unfinished"]:
        console.print(Text(describe_unfinished(summary), style="yellow"))
    table = Table(box=None, pad_edge=False)
    for name in ("size", "flows", "FCT: mean", "median", "P99", "slowdown: mean", "median", "P99"):
        table.add_column(name, justify="left" if name == "size" else "right")
    for row in summary["by_size"]:
        figures = [
            format_value({**row[f"{column}_{statistic}"], "low": None}, words)
            for column, words in (("fct_s", formats.duration), ("slowdown", ratio))
            for statistic in ("mean", "p50", "p99")
        ]
        table.add_row(row["size"], formats.number(row["count"]), *figures)
    console.print(table)
    console.print(describe_ports(summary))


def describe_ports(summary: Mapping[str, Any]) -> str:
    """Return a sentence on packets dropped, and on the busiest port."""
    dropped = sum(tier["dropped"]["value"] for tier in summary["ports"])
    most = max(tier["utilisation_most"]["value"] for tier in summary["ports"])
    busy = f"busiest port: {formats.share(most)} of the run"
    return f"Packets dropped at ports: {formats.number(round(dropped))} a seed; {busy}."


def describe_unfinished(summary: Mapping[str, Any]) -> str:
    """Return a sentence on the flows that did not finish, or did not start."""
    share = formats.share(summary["unfinished"] / summary["flows"])
    late = f", {formats.number(summary['not_started'])} of them did not start" if summary["not_started"] else ""
    count = formats.number(summary["unfinished"])
    return f"{count} flows ({share}) did not finish{late}; they are in no figure below."


# ---- distributions


def _draw_distributions(folder: Path, summary: Mapping[str, Any]) -> list[str]:
    """Return drawings of completion times and slowdowns by flow size."""
    flows = pl.scan_parquet(inputs.check(folder / "flows.parquet")).filter(pl.col("fct_s").is_not_null())
    counts = {row["size"]: row["count"] for row in summary["by_size"]}
    over = f" over all {len(summary['seeds'])} seeds" if len(summary["seeds"]) > 1 else ""
    found = []
    unit = duration_unit(flows.select(pl.col("fct_s").median()).collect().item() or 1.0)
    for column, label, factor in (
        ("fct_s", f"flow completion time, {unit.name}", unit.factor),
        ("slowdown", "slowdown", 1.0),
    ):
        curves, low = {}, 0
        for edge, name in CLASSES:
            of_class = flows.filter((pl.col("bytes") > low) & (pl.col("bytes") <= edge))
            if counts[name] and len((curve := _ecdf(of_class, column, factor))[0]):
                curves[name] = curve
            low = edge
        if curves:
            caption = f"{_NAMES[column].capitalize()}: share of the finished flows of each size{over}."
            found.append(_draw_cumulative(label, curves, caption))
    return found


def _ecdf(flows: pl.LazyFrame, column: str, factor: float = 1.0) -> Curve:
    """Return the sorted values, and the share of values up to each."""
    values = flows.select(pl.col(column).drop_nulls().sort() * factor).collect().to_series().to_numpy()
    count = len(values)
    ranks = np.unique(np.linspace(1, count, min(count, _POINTS)).round().astype(int)) if count else np.array([], int)
    return values[ranks - 1], ranks / max(count, 1)


def _draw_cumulative(label: str, curves: Mapping[str, Curve], caption: str) -> str:
    least = min(float(values[0]) for values, _ in curves.values())
    most = max(float(values[-1]) for values, _ in curves.values())
    least, most = (least / 1.3, most * 1.3) if most < 1.4 * least else (least / 1.03, most * 1.03)

    def draw(axes: Axes) -> None:
        for colour, (name, (values, shares)) in zip(COLOURS, curves.items(), strict=False):
            axes.step(
                np.r_[values[:1], values], np.r_[0, shares], where="post", label=name, color=colour, linewidth=1.6
            )
        axes.set_xscale("log")
        plot.label_decades(axes.xaxis, least, most)

    labels = (f"{label} (logarithmic)", "share of flows")
    return plot.element(label, plot.single(labels, (least, most), (0, 1.02), draw), caption)


# ---- ports


def _ports(folder: Path) -> list[dict[str, Any]]:
    """Return the ports with most drops, or else with the longest queues, over all seeds."""
    return (
        pl.scan_parquet(inputs.check(folder / "ports.parquet"))
        .group_by("tier", "from", "to", maintain_order=True)
        .agg(
            pl.col("utilisation", "mean_queue_bytes").mean(),
            pl.col("most_queue_bytes").max(),
            pl.col("packets", "dropped", "marked").sum(),
        )
        .sort("dropped", "mean_queue_bytes", descending=True, maintain_order=True)
        .head(_PORTS)
        .collect()
        .to_dicts()
    )


def _queues(folder: Path) -> str | None:
    """Return a drawing of the longest queue per kind of port over time, first seed; None without samples."""
    path = folder / "queues.parquet"
    if not path.exists():
        return None
    samples = pl.read_parquet(inputs.check(path))
    seed = samples["seed"][0]
    curves = {}
    for (tier,), rows in samples.filter(seed=seed).group_by("tier", maintain_order=True):
        step = max(1, len(rows) // _SAMPLES)
        peaks = rows.group_by(pl.int_range(pl.len()) // step, maintain_order=True)
        drawn = peaks.agg(pl.col("time_s").first(), pl.col("most_bytes").max())
        curves[str(tier)] = (drawn["time_s"].to_numpy() * 1e3, drawn["most_bytes"].to_numpy() / 1e3)
    return _draw_over_time("time, ms", "longest queue, kB", curves, f"Longest queue of each kind of port, seed {seed}.")


def _draw_over_time(time: str, label: str, curves: Mapping[str, Curve], caption: str) -> str:
    last = max(float(times[-1]) for times, _ in curves.values())
    most = max(float(values.max()) for _, values in curves.values())

    def draw(axes: Axes) -> None:
        for colour, (name, (times, values)) in zip(COLOURS, curves.items(), strict=False):
            axes.step(times, values, where="post", label=name, color=colour, linewidth=1.2)

    return plot.element(label, plot.single((time, label), (0, last or 1), (0, 1.05 * most or 1), draw), caption)


# ---- radio cells


def _cells(folder: Path) -> dict[str, Any] | None:
    """Return the page's data on radio cells; None if there are none."""
    files = {name: folder / f"radio-{name}.parquet" for name in ("users", "queues")}
    if not files["users"].exists():
        return None
    users = pl.read_parquet(inputs.check(files["users"]))
    figures = []
    if files["queues"].exists() and len(samples := pl.read_parquet(inputs.check(files["queues"]))):
        figures.append(_draw_buffer(samples))
    counts = pl.read_parquet(inputs.check(folder / "radio-counts.parquet")).drop("seed").sum().row(0, named=True)
    return {
        "rows": _quality_rows(folder, users),
        "figures": figures,
        "counts": counts,
        "units": _unit_rows(folder),
    }


def _unit_rows(folder: Path) -> list[dict[str, Any]]:
    """Return completion times and traffic of each distributed unit, over all seeds; none for a single unit."""
    path = folder / "radio-units.parquet"
    if not path.exists():
        return []
    units = pl.read_parquet(inputs.check(path))
    keys = [name for name in ("central_unit", "distributed_unit") if name in units.columns]
    flows = pl.scan_parquet(inputs.check(folder / "flows.parquet")).filter(pl.col("user").is_not_null())
    time = pl.col("fct_s")
    statistics = (time.count().alias("flows"), time.mean().alias("mean"), time.median().alias("p50"))
    of_users = flows.group_by(keys).agg(*statistics)
    summed = units.drop("seed").group_by(keys, maintain_order=True).sum()
    return summed.join(of_users.collect(), keys, "left", maintain_order="left").to_dicts()


def _quality_rows(folder: Path, users: pl.DataFrame) -> list[dict[str, Any]]:
    """Return completion times by the users' mean channel quality, over all seeds."""
    flows = pl.scan_parquet(inputs.check(folder / "flows.parquet")).filter(pl.col("user").is_not_null())
    keys = [name for name in ("seed", "central_unit", "user") if name in users.columns]
    joined = flows.join(users.lazy().select(*keys, "mean_cqi"), keys, "inner")
    found = []
    for name, above, most in _QUALITIES:
        inside = (pl.col("mean_cqi") > above) & (pl.col("mean_cqi") <= most)
        times = joined.filter(inside, pl.col("fct_s").is_not_null()).select("bytes", "fct_s", "slowdown").collect()
        row: dict[str, Any] = {"quality": name, "users": len(users.filter(inside)), "flows": len(times)}
        row |= dict.fromkeys(("mean", "p50", "p99"))
        if len(times):
            statistics = by_size(times).row(0, named=True)
            row |= {key: statistics[f"fct_s_{key}"] for key in ("mean", "p50", "p99")}
        found.append(row)
    return found


def _draw_buffer(samples: pl.DataFrame) -> str:
    """Draw the occupancy of the central unit's buffer over time, for the first seed and the first unit."""
    seed = samples["seed"][0]
    of_seed = samples.filter(seed=seed)
    where = ""
    if "central_unit" in samples.columns:
        unit = samples["central_unit"][0]
        of_seed, where = of_seed.filter(central_unit=unit), f" at {unit}"
    of_seed = of_seed.gather_every(max(1, len(of_seed) // _SAMPLES))
    curves = {
        name: (of_seed["time_s"].to_numpy(), of_seed[column].to_numpy())
        for column, name in (("unit_packets", "central unit"), ("forwarded_packets", "distributed unit and devices"))
        if column in of_seed.columns
    }
    return _draw_over_time("time, s", "packets that wait", curves, f"Packets that wait over time{where}, seed {seed}.")
