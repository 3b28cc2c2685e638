"""Flows between the hosts of a data centre, and to users of its radio cells, in virtual time."""

from __future__ import annotations

import json
import operator
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed import CellbedError
from cellbed_datacentre import _core

if TYPE_CHECKING:
    import polars as pl

    from cellbed_datacentre.file import AnyTopology, Described

CLASSES = ((10 << 10, "≤ 10 KiB"), (100 << 10, "10–100 KiB"), (1 << 20, "0.1–1 MiB"), (2**63, "> 1 MiB"))
"""Classes of flows by size: maximum bytes and name of each."""
ALL = "all"
_QUANTILES = {"p50": 0.5, "p99": 0.99}
_FIGURES = ("fct_s", "slowdown")

Progress = Callable[[int], None]
"""Called several times a second with the number of finished flows."""


class SimulationError(CellbedError):
    """A description that the simulator refuses. The text states the problem."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """A finished simulation.

    flows: a row for each flow that has started, in order of its number: ``flow``, ``source``, ``destination``, ``user``
    (null in the data centre), ``bytes``, ``start_s``, ``fct_s`` (until the arrival of the last byte; null for an
    unfinished flow), ``ideal_s`` (from the start until the sender has the last acknowledgement, on an empty path),
    ``slowdown`` (the flow's time for this, divided by ``ideal_s``). The last two are null for flows to users of a radio
    cell. With several radio cells also ``central_unit``, ``distributed_unit`` and, with dual connectivity,
    ``second_unit`` of the user.

    ports: a row for each direction of a link: ``tier`` (such as ``leaf to spine``), ``from``, ``to``, ``rate_bit_s``,
    ``packets``, ``bytes`` and ``utilisation`` (of sent packets), ``dropped``, ``dropped_bytes``, ``marked``,
    ``mean_queue_bytes``, ``most_queue_bytes``.

    queues: samples of waiting bytes, in order of time, if the file has ``sampling``: ``tier``, ``time_s``,
    ``mean_bytes`` over the ports of the tier, ``most_bytes`` at one of them. Beyond 65,536 samples, the interval is
    doubled and every other sample is dropped.

    radio: tables of the radio cells by name; empty without a cell. ``users``: ``user`` and ``mean_cqi``, of placed
    users also ``distance_m``. ``queues``,
    while packets wait: ``time_s``, ``unit_packets`` and ``unit_bytes`` in the central unit, ``forwarded_packets`` in
    the distributed unit and the devices, ``threshold_packets``. ``counts``: one row with numbers of packets at the
    central unit and of transport blocks. Several cells also have ``units``, bytes and transport blocks of each
    distributed unit. With several central units all tables have a column ``central_unit``.

    seed: seed of the random choices. duration_s: virtual time until the last event. packet_hops: number of
    transmissions by ports. elapsed_s: duration of the computation.
    """

    flows: pl.DataFrame
    ports: pl.DataFrame
    queues: pl.DataFrame
    radio: Mapping[str, pl.DataFrame]
    seed: int
    duration_s: float
    packet_hops: int
    elapsed_s: float

    def by_size(self) -> pl.DataFrame:
        """Return statistics of the finished flows by size, see :func:`by_size`."""
        return by_size(self.flows)

    def __repr__(self) -> str:
        return f"Simulation({len(self.flows)} flows, {self.packet_hops} packet-hops, {self.duration_s:g} s)"


def simulate(
    simulation: Path | str | Mapping[str, Any],
    *,
    seed: int | None = None,
    folder: Path | str = ".",
    progress: Progress | None = None,
) -> Simulation:
    """Run the simulation of a file, or of the tables of a file, ``{"topology": …, …}``.

    seed: replaces the file's. folder: folder of the files that tables name. progress: may raise to end the simulation.

    Raises ScenarioError for a malformed description, SimulationError for a seed out of range and for a description that
    the simulator refuses.
    """
    from cellbed.extension.files import ScenarioError, TablesError
    from cellbed_datacentre.file import describe, read_simulation

    if seed is not None:
        try:
            seed = operator.index(seed)  # also accepts NumPy's integers
        except TypeError:
            raise SimulationError(f"seed {seed!r}: write a whole number") from None
        if not 0 <= seed < 2**63:
            raise SimulationError(f"seed {seed}: write a whole number from 0 to 2^63 - 1")
    if isinstance(simulation, Mapping):
        try:
            found = describe({"name": "simulation", **simulation}, Path(folder))
        except TablesError as error:
            raise ScenarioError("\n".join(f"{each.key}: {each.text}" for each in error.problems)) from None
    else:
        found = read_simulation(Path(os.fspath(simulation)))
    return run(found, found.file.seed if seed is None else seed, progress)


def run_content(
    content: Mapping[str, Any], seed: int, progress: Progress | None = None, source: str = ""
) -> dict[str, Any]:
    """Run a simulation described in the simulator's format, and return its outcome with ``elapsed_s``.

    source: name of the file in errors. Raises SimulationError.
    """
    from cellbed_datacentre import isolated

    began = time.perf_counter()
    try:
        text, headers = json.dumps({**content, "seed": seed}), _headers(content)
        found = isolated.simulate(text, headers, progress) if headers else _core.simulate(text, progress)
    except ValueError as error:
        raise SimulationError(f"{source}: {error}" if source else str(error)) from None
    return {**found, "elapsed_s": time.perf_counter() - began}


def _headers(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the user's headers by the kind of their functions."""
    tables = [{"transport": content.get("transport")}, *content.get("radio", [])]
    found: dict[str, dict[str, None]] = {}
    for key, header in (item for table in tables for item in table.items()):
        if isinstance(header, Mapping) and "file" in header:
            found.setdefault(key.removesuffix("_header"), {})[header["name"]] = None
    return {kind: " or ".join(names) for kind, names in found.items()}


def run(described: Described, seed: int, progress: Progress | None = None) -> Simulation:
    """Run a described simulation. Raises SimulationError."""
    found = run_content(described.content, seed, progress, described.source)
    duration = found["end_ps"] * 1e-12
    names = described.file.topology.node_names()
    radio = _radio(found["tables"], names)
    return Simulation(
        _with_cells(_flows(found["flows"]), radio.get("users"), names),
        _ports(found["ports"], described.file.topology, duration),
        _queues(found["queues"], described.file.topology),
        radio,
        seed,
        duration,
        found["packet_hops"],
        found["elapsed_s"],
    )


def _flows(columns: Mapping[str, Any]) -> pl.DataFrame:
    import polars as pl

    table = pl.DataFrame(columns).sort("flow")
    start, end = pl.col("start_ps"), pl.col("end_ps")
    finished = pl.when(end >= 0)
    fixed = pl.col("user") < 0
    return table.select(
        pl.col("flow", "source", "destination").cast(pl.UInt32),
        pl.when(pl.col("user") >= 0).then("user").alias("user"),
        pl.col("bytes").cast(pl.UInt64),
        (start * 1e-12).alias("start_s"),
        finished.then((end - start) * 1e-12).alias("fct_s"),
        pl.when(fixed).then(pl.col("ideal_ps") * 1e-12).alias("ideal_s"),
        pl.when(fixed & (pl.col("acknowledged_ps") >= 0))
        .then((pl.col("acknowledged_ps") - start) / pl.col("ideal_ps"))
        .alias("slowdown"),
    )


def _ports(columns: Mapping[str, Any], topology: AnyTopology, duration_s: float) -> pl.DataFrame:
    import polars as pl

    names = pl.Series(topology.node_names())
    kinds = pl.Series(topology.node_kinds())
    table = _frame(columns)
    ends = {end: table[end].cast(pl.UInt32) for end in ("from", "to")}
    tiers = kinds.gather(ends["from"]) + " to " + kinds.gather(ends["to"])
    return table.select(
        tiers.alias("tier"),
        *(names.gather(numbers).alias(end) for end, numbers in ends.items()),
        "rate_bit_s",
        pl.col("packets", "bytes").cast(pl.Int64),
        (pl.col("bytes") * 8 / (pl.col("rate_bit_s") * max(duration_s, 1e-12))).alias("utilisation"),
        pl.col("dropped", "dropped_bytes", "marked").cast(pl.Int64),
        "mean_queue_bytes",
        pl.col("most_queue_bytes").cast(pl.Int64),
    )


def _queues(columns: Mapping[str, Any], topology: AnyTopology) -> pl.DataFrame:
    import polars as pl

    kinds = pl.Series(list(dict.fromkeys(topology.node_kinds())))
    table = _frame(columns)
    source, destination = (kinds.gather(table[end].cast(pl.UInt32)) for end in ("from", "to"))
    return table.select(
        (source + " to " + destination).alias("tier"), "time_s", "mean_bytes", pl.col("most_bytes").cast(pl.Int64)
    )


def _radio(units: Mapping[int, Mapping[str, Any]], names: list[str]) -> dict[str, pl.DataFrame]:
    """Return the tables of all central units by name. units: tables of each central unit, a host of `names`."""
    import polars as pl

    found: dict[str, list[pl.DataFrame]] = {}
    for host, tables in units.items():
        for name, columns in tables.items():
            # Numbers and bytes arrive as floats.
            whole = [name for name in columns if not name.endswith("_s") and not name.startswith("mean_")]
            table = _frame(columns).fill_nan(None).with_columns(pl.col(whole).cast(pl.Int64))
            if len(units) > 1:
                table = table.select(pl.lit(names[host]).alias("central_unit"), pl.all())
            found.setdefault(name, []).append(table)
    return {name: pl.concat(each, how="diagonal") for name, each in found.items()}


def _with_cells(flows: pl.DataFrame, users: pl.DataFrame | None, names: list[str]) -> pl.DataFrame:
    """Return the flows with the units of their users, if there are several."""
    import polars as pl

    if users is None or "distributed_unit" not in users.columns:
        return flows
    to_user = pl.when(pl.col("user").is_not_null())
    named = flows.with_columns(to_user.then(pl.Series(names).gather(flows["destination"])).alias("central_unit"))
    keys = [name for name in ("central_unit", "user") if name in users.columns]
    units = [name for name in ("distributed_unit", "second_unit") if name in users.columns]
    return named.join(users.select(*keys, *units), keys, "left", maintain_order="left")


def _frame(columns: Mapping[str, Any]) -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame(dict(columns))


def by_size(flows: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Return statistics of finished flows by size class (:data:`CLASSES`), after a row for all flows.

    Columns: ``size``, ``count``, and for ``fct_s`` (s) and ``slowdown`` each ``_mean``, ``_p50`` and ``_p99``, order
    statistics of rank ⌈n q⌉. A class without flows has nulls, and a class with fewer than 100 flows has no P99.
    Unfinished flows are excluded.
    """
    import polars as pl

    names = [name for _, name in CLASSES]
    size = pl.lit(names[-1])
    for edge, name in reversed(CLASSES[:-1]):
        size = pl.when(pl.col("bytes") <= edge).then(pl.lit(name)).otherwise(size)
    order = pl.Enum([ALL, *names])
    statistics = [
        statistic
        for figure in _FIGURES
        for statistic in (
            pl.col(figure).mean().alias(f"{figure}_mean"),
            *(_quantile(figure, quantile).alias(f"{figure}_{name}") for name, quantile in _QUANTILES.items()),
        )
    ]
    finished = flows.lazy().filter(pl.col("fct_s").is_not_null())
    classed = finished.with_columns(size.cast(order).alias("size"))
    whole = finished.select(pl.lit(ALL).cast(order).alias("size"), pl.len().alias("count"), *statistics)
    each = classed.group_by("size").agg(pl.len().alias("count"), *statistics)
    found = pl.concat([whole, each.select(whole.collect_schema().names())]).collect()
    rows = pl.DataFrame({"size": pl.Series([ALL, *names], dtype=order)})
    return rows.join(found, "size", "left", maintain_order="left").with_columns(pl.col("count").fill_null(0))


def _quantile(figure: str, quantile: float) -> pl.Expr:
    import polars as pl

    values = pl.col(figure).drop_nulls()
    value = values.sort().get((values.len() * quantile - 1e-9).ceil().cast(pl.Int64) - 1, null_on_oob=True)
    return pl.when(values.len() * (1 - quantile) >= 0.999).then(value)
