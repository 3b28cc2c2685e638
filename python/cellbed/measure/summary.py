"""The summary of a run: tables and ``summary.json`` from the raw files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from cellbed.measure.cells import CellSummary, read_cells, summarise_cells
from cellbed.measure.connections import (
    TALK,
    PeerSummary,
    Traffic,
    add_connections,
    claim_connections,
    read_connections,
    summarise_connections,
    traffic,
)
from cellbed.measure.decomposition import Decomposition, decompose
from cellbed.measure.disturbance import (
    Load,
    Machine,
    delays_by_machine,
    judge,
    machine,
    overload_reasons,
    read_seconds,
    shifts,
    unread_datagrams,
)
from cellbed.measure.faults import FaultSummary, fault_summaries, late_faults
from cellbed.measure.flows import read_flows
from cellbed.measure.links import bin_ns, by_direction, gaps, read_links, read_nodes, read_programs
from cellbed.measure.migrations import MigrationSummary, migration_summaries
from cellbed.measure.outages import Outage, find_outages
from cellbed.measure.own import OwnMeasure, read_own, summarise_own
from cellbed.measure.packets import removal_warning
from cellbed.measure.requests import due, read_requests, uncertainties
from cellbed.measure.run_folder import MeasureError, applications_of, read_run, replace
from cellbed.measure.servers import ServerSummary, server_summaries
from cellbed.measure.statistics import Percentile, Samples, as_number, percentile_value, percentiles, smallest_sample
from cellbed.measure.verdicts import Verdict
from cellbed.runformat.changes import manual_warning
from cellbed.runformat.description import REPORTED_MEASURE, Description, Measure
from cellbed.runformat.events import read_events
from cellbed.support.readable import alike
from cellbed_node import inputs

FORMAT: Final = 4
QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Counts:
    """Number of requests by outcome.

    total: all but skipped; ok: a good reply within the timeout; late: a good reply after the timeout, included in the
    distribution; failed: the reply was an error; timed_out: no reply before the timeout; lost: no reply because the
    run or the connection ended first. without_parts: a good reply, but some part of the latency is unknown. skipped:
    due, but not sent by decision of a policy; reduced: sent with a payload that a policy reduced.
    """

    total: int
    ok: int
    late: int
    timed_out: int
    lost: int
    failed: int
    without_parts: int
    skipped: int = 0
    reduced: int = 0

    @property
    def answered(self) -> int:
        """Return the number of requests with a good reply."""
        return self.ok + self.late


@dataclass(frozen=True, slots=True)
class Residual:
    """Latency that the parts do not account for.

    median_s: median residual; median_share, p99_share: median and 99th percentile of |residual| / latency over the
    `requests` with all parts; p99_share ``None`` if `requests` is too small to support a P99.
    """

    requests: int
    median_s: float
    median_share: float
    p99_share: float | None


@dataclass(frozen=True, slots=True)
class MeasureSummary:
    """A measure that the application declares. unit: unit of least, median, most and p99 (``None`` for too few
    values); requests: number with a good reply, or of messages; column: its name in tables; mean: mean of a share."""

    label: str
    unit: str
    requests: int
    least: float
    median: float
    most: float
    p99: float | None = None
    column: str = ""
    mean: float | None = None


@dataclass(frozen=True, slots=True)
class EndpointSummary:
    """Latency of one endpoint's requests."""

    endpoint: str
    counts: Counts
    percentiles: list[Percentile]


@dataclass(frozen=True, slots=True)
class DirectionSummary:
    """One direction of a link while the schedule ran.

    Rates: means in Mbit/s (capacity ``None``: unlimited). queue_peak_bytes: maximum. dropped_*: packets, also after
    the schedule's end. longest_gap_s, longest_gap_at_s: length and begin of the longest time without any capacity.
    dropped_congestion: packets dropped by a managed queue before it was full; dropped_handover: packets dropped at a
    handover; marked, duplicated, corrupted: packets; ``None`` if the emulator was killed: `dropped_queue` then counts
    all drops of queues. synthetic: plays a synthetic trace or recording, or a model.
    """

    direction: str
    capacity_mbit_s: float | None
    used_mbit_s: float
    queue_peak_bytes: int
    dropped_queue: int
    dropped_loss: int
    longest_gap_s: float | None
    longest_gap_at_s: float | None
    dropped_congestion: int | None = None
    dropped_handover: int | None = None
    marked: int | None = None
    duplicated: int | None = None
    corrupted: int | None = None
    synthetic: bool = False


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """One node while the schedule ran; ``None`` if unknown."""

    node: str
    cpu_cores_mean: float | None
    cpu_cores_peak: float | None
    memory_peak_bytes: int | None
    throttled_s: float | None
    oom_kills: int | None


@dataclass(frozen=True, slots=True)
class ProgramSummary:
    """One program with all its child processes, from the start of the schedule to the end of the drain. cpu_s:
    processor time; memory_peak_bytes: maximum of samples taken every second, ``None`` if there is none."""

    program: str
    node: str
    cpu_s: float
    cpu_cores_mean: float | None
    memory_peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class ApplicationSummary:
    """Measurements of one application of a run. Times in seconds.

    reasons: number of requests without a reply, or with an error, by the recorded reason, most frequent first.
    percentiles: over all requests; latency is infinite without a good reply; good_replies: over good replies only.
    uncertainty: by part, maximum error due to different clocks of nodes; only parts with such an error. added_s: by
    percentile, latency added by the machine (docs/explanation/measurement.md#disturbance). deadline_s, on_time_share,
    goodput_bit_s: for an application with a deadline (:func:`on_time`). traffic: all its connections. own: measures
    that its programs wrote; own_problems: missing measures, in sentences. steps: steps of journeys, with step names
    in place of endpoints. unassigned: number of reported requests without a connection, by reason.
    """

    name: str
    kind: str
    title: str
    requests: Counts
    reasons: dict[str, int]
    fastest_s: float | None
    slowest_s: float | None
    percentiles: list[Percentile]
    decompositions: list[Decomposition]
    residual: Residual | None
    good_replies: list[Percentile]
    endpoints: list[EndpointSummary]
    measures: list[MeasureSummary]
    uncertainty: dict[str, float]
    added_s: dict[str, float] = field(default_factory=dict)
    deadline_s: float | None = None
    on_time_share: float | None = None
    goodput_bit_s: float | None = None
    traffic: Traffic | None = None
    own: list[OwnMeasure] = field(default_factory=list)
    own_problems: list[str] = field(default_factory=list)
    steps: list[EndpointSummary] = field(default_factory=list)
    unassigned: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Summary:
    """Measurements of a run; ``summary.json`` is this, field by field. Times in seconds.

    duration_s: planned duration, without the drain; measured_s: duration reached. skip_s: the part at the begin that
    is left out of all other figures. disturbances: why the run is disturbed, in sentences; empty if it is not.
    failure: why a complete run failed: no request of an application got a good reply. expectations: verdicts on
    them. clock: virtual for a prediction.
    """

    format: Literal[4]
    name: str
    status: str
    duration_s: float
    measured_s: float
    no_limits: bool
    applications: list[ApplicationSummary]
    connections: list[PeerSummary]
    directions: list[DirectionSummary]
    nodes: list[NodeSummary]
    machine: Machine
    disturbances: list[str]
    warnings: list[str]
    faults: list[FaultSummary] = field(default_factory=list)
    programs: list[ProgramSummary] = field(default_factory=list)
    cells: list[CellSummary] = field(default_factory=list)
    servers: list[ServerSummary] = field(default_factory=list)
    migrations: list[MigrationSummary] = field(default_factory=list)
    clock: Literal["real", "virtual"] = "real"
    failure: str | None = None
    expectations: list[Verdict] = field(default_factory=list)
    skip_s: float = 0.0

    @property
    def predicted(self) -> bool:
        """Return whether the run was simulated in virtual time, not measured."""
        return self.clock == "virtual"

    @classmethod
    def read(cls, run: Path) -> "Summary":
        """Return the summary that `collect` wrote. Raises MeasureError if it is missing or of another version."""
        path = run / "summary.json"
        try:
            return _SUMMARY.validate_json(inputs.content(path))
        except FileNotFoundError:
            read_run(run)
            raise MeasureError(f"{path}: missing; `cellbed report {run}` writes it from the raw files") from None
        except ValidationError as error:
            raise MeasureError(
                f"{path}: not a summary of this version ({error.errors()[0]['msg']}); "
                f"`cellbed report {run}` writes a new one"
            ) from None

    def json(self) -> bytes:
        """Return the bytes of ``summary.json``."""
        return _SUMMARY.dump_json(self, indent=2) + b"\n"


_SUMMARY: TypeAdapter[Summary] = TypeAdapter(Summary)


def collect(run: Path) -> Summary:
    """Read the raw files of `run`; write ``requests.parquet``, ``messages.parquet``, ``links.parquet``,
    ``nodes.parquet``, ``programs.parquet``, ``connections.parquet``, ``flows.parquet``, ``cells.parquet``,
    ``measures.parquet``, ``disturbance.parquet``, ``traces.parquet`` and ``summary.json``.

    Interrupted and killed runs work too: complete records count. Raises MeasureError for a folder that is not a
    run's.
    """

    def write_requests(requests: pl.DataFrame) -> pl.DataFrame:
        # Memory need not hold the columns that the summary does not use, a third of the table, any longer.
        _write(run / "requests.parquet", requests)
        return requests.drop(set(requests.columns) & _UNUSED)

    tables, summary = measure(run, write_requests)
    for name, table in tables.items():
        if name != "requests":
            _write(run / f"{name}.parquet", table)
    replace(run / "summary.json", summary.json())
    return summary


_WAY_COLUMNS = ("start", "end", *(f"{name}_ns" for name in ("queued", "proxied", "opened", "accepted", "resent")))
_UNUSED = {
    *(f"{way}_{name}" for way in ("uplink", "downlink") for name in (*_WAY_COLUMNS, "sending_ns")),
    *(f"tls_{way}_{name}" for way in ("uplink", "downlink") for name in ("end", "entered_ns", "left_ns")),
    *(f"{name}_ns" for name in ("started", "accepted", "buffer_full", "handed", "held", "window")),
    *(f"downlink_{name}_ns" for name in ("paused", "flowing", "ready")),
    *(f"connect_{name}_ns" for name in ("up", "remote", "down", "rest")),
}
"""Columns of requests that the summary of a run does not use."""


def measure(
    run: Path, keep: Callable[[pl.DataFrame], pl.DataFrame] = lambda requests: requests
) -> tuple[dict[str, pl.DataFrame], Summary]:
    """Return the tables and the summary of a run from its raw files. keep: returns the columns of requests that are
    kept. Raises MeasureError."""
    description = read_run(run)
    tables, warnings = read_requests(run, description)
    connections = tables["connections"]
    requests = add_connections(tables.pop("requests"), connections, description)
    if skip_ns := description.get("skip_ns") or 0:
        connections = read_connections(run, description, skip_ns)
    connections = claim_connections(connections, requests, description).drop(*TALK, strict=False)
    own, problems = read_own(run, description)
    requests = keep(requests.filter(pl.col("intended_s") >= skip_ns / 1e9) if skip_ns else requests)
    tables |= {
        **{"requests": requests, "connections": connections, "measures": own},
        "flows": read_flows(run, description, connections),
        "links": read_links(run, description),
        "nodes": read_nodes(run, description),
        "programs": read_programs(run, description),
        "cells": read_cells(run, description),
        "disturbance": read_seconds(run, description),
    }
    tables = _without_warm_up(tables, skip_ns / 1e9) if skip_ns else tables
    found = [manual_warning(run, description.get("t0_ns")), removal_warning(run / "raw" / "packets.bin")]
    warnings = [*(warning for warning in found if warning is not None), *warnings]
    return tables, summarise(description, tables, problems, warnings, read_events(run))


_TIMES = {
    "flows": "time_s",
    "requests": "intended_s",
    "messages": "received_s",
    "links": "time_s",
    "nodes": "time_s",
    "programs": "time_s",
    "disturbance": "second",
}
"""Columns that decide whether a row belongs to the warm-up, seconds since the start of the schedule."""


def _without_warm_up(tables: dict[str, pl.DataFrame], skip_s: float) -> dict[str, pl.DataFrame]:
    """Return the tables without the first `skip_s` seconds; connections and cells are already read without them."""
    kept = {name: tables[name].filter(pl.col(time) >= skip_s) for name, time in _TIMES.items()}
    own = tables["measures"].filter((pl.col("time_s") >= skip_s) | pl.col("time_s").is_null())
    since_first = pl.col("cpu_s") - pl.col("cpu_s").first().over("program")
    keys = ["app", "endpoint", "request"]
    traces = tables["traces"].join(kept["requests"], on=keys, how="semi", maintain_order="left")
    return tables | kept | {"measures": own, "programs": kept["programs"].with_columns(since_first), "traces": traces}


def _write(path: Path, table: pl.DataFrame) -> None:
    try:
        replace(path, table.write_parquet)
    except pl.exceptions.PolarsError as error:  # also raised for a full disk, without the reason
        reason = str(error).splitlines()[0]
        raise MeasureError(f"{path}: cannot be written: {reason}; is there room on the disk?") from None


def summarise(
    description: dict[str, Any],
    tables: dict[str, pl.DataFrame],
    problems: dict[str, list[str]],
    warnings: list[str],
    events: Sequence[dict[str, Any]],
) -> Summary:
    """Return the summary of a run's tables. description: the content of ``run.json``; problems: problems of the
    programs' own measures, by application; warnings: further warnings; events: events of ``events.jsonl``. Pure."""
    duration = (description.get("duration_ns") or 0) / 1e9
    requests, seconds, connections = tables["requests"], tables["disturbance"], tables["connections"]
    measured = _measurement_span(description, duration, tables)
    outages = find_outages(description, tables["links"])
    described = applications_of(description)
    applications = [
        _application(each, description, tables, outages, measured, problems.get(each.name, [])) for each in described
    ]
    warnings = [*warnings, *alike(text for each in applications for text in each.own_problems)]
    loads = [
        Load(each.name, each.percentiles, each.added_s, _ends_without_answer(of(requests, each.name)))
        for each in applications
        if each.requests.total
    ]
    others = connections.filter(~pl.col("app").is_in([load.name for load in loads]))
    for each, application in zip(described, applications, strict=True):
        if each.spans or application.requests.total:  # else no requests are known to cellbed
            before = f"{each.name}: " if len(described) > 1 else ""
            found = [*_warnings(application, reported=each.reported), *_idle(each, of(requests, each.name))]
            warnings = [*warnings, *(before + warning for warning in found)]
    return Summary(
        format=FORMAT,
        name=str(description.get("name", "")),
        status=str(description.get("status", "unknown")),
        duration_s=duration,
        measured_s=measured,
        no_limits=bool(description.get("no_limits")),
        applications=applications,
        connections=summarise_connections(connections),
        directions=_directions(description, tables["links"], duration),
        nodes=_nodes(description, tables["nodes"], duration),
        machine=machine(seconds, duration),
        disturbances=[
            *judge(seconds, description, loads, others),
            *overload_reasons(described, tables["measures"]),
            *(unread_datagrams(requests, tables["links"]) if _is_local(description) else ()),
            *late_faults(events),
        ],
        warnings=[*map(str, description.get("warnings") or []), *warnings],
        faults=fault_summaries(events, requests, [each.name for each in described]),
        programs=_programs(tables["programs"]),
        cells=summarise_cells(description, tables["cells"], measured),
        servers=server_summaries(description, requests),
        migrations=migration_summaries(description, requests),
        clock="virtual" if description.get("clock") == "virtual" else "real",
        failure=_failure(applications),
        skip_s=(description.get("skip_ns") or 0) / 1e9,
    )


def _failure(applications: Sequence[ApplicationSummary]) -> str | None:
    """Return a sentence that names the applications without any good reply; ``None`` if there are none."""
    found = []
    for each in applications:
        if each.requests.total and not each.requests.answered:
            reasons = [f"{count} × {reason}" for reason, count in each.reasons.items()]
            shown = ", ".join([*reasons[:3], *["…"] * (len(reasons) > 3)])
            whose = f" of {each.name}" if len(applications) > 1 else ""
            found.append(f"none of the {each.requests.total} requests{whose} got a good reply: {shown}")
    return "; ".join(found) or None


def _is_local(description: Mapping[str, Any]) -> bool:
    """Return whether every node is on this machine."""
    return all(each["backend"]["kind"] != "host" for each in description.get("nodes") or [])


def of(table: pl.DataFrame, application: str) -> pl.DataFrame:
    """Return the rows of an application, by its name."""
    return table.filter(pl.col("app") == application)


def _application(
    application: Description,
    description: dict[str, Any],
    tables: dict[str, pl.DataFrame],
    outages: list[Outage],
    measured_s: float,
    own_problems: list[str],
) -> ApplicationSummary:
    everything, messages, connections, own = (
        of(tables[name], application.name) for name in ("requests", "messages", "connections", "measures")
    )
    requests = due(everything)
    on_time_share, goodput_bit_s = on_time(requests, application, measured_s)
    samples, answered = latencies(requests), pl.col("latency_s").is_not_null()
    found = percentiles(samples, QUANTILES)
    return ApplicationSummary(
        name=application.name,
        kind=application.kind,
        title=application.title,
        requests=_counts(everything),
        reasons=_reasons(requests),
        fastest_s=as_number(requests["latency_s"].min()),
        slowest_s=as_number(requests["latency_s"].max()),
        percentiles=found,
        decompositions=[decompose(requests, application.spans, at, outages) for at in found],
        residual=_residual(requests),
        good_replies=percentiles(samples[np.isfinite(samples)], QUANTILES),
        endpoints=sorted(_groups(everything, "endpoint"), key=lambda summary: _natural(summary.endpoint)),
        measures=_measures(requests, messages, application.measures),
        uncertainty=uncertainties(requests, application, description),
        added_s=shifts(samples, delays_by_machine(requests, application.spans, tables["disturbance"]), found),
        deadline_s=None if application.deadline_ns is None else application.deadline_ns / 1e9,
        on_time_share=on_time_share,
        goodput_bit_s=goodput_bit_s,
        traffic=traffic(connections, application.clients),
        own=summarise_own(own),
        own_problems=own_problems,
        steps=_groups(everything, "step") if "step" in application.client_columns else [],
        unassigned=_count(requests.filter(answered)["unassigned"]) if application.reported else {},
    )


def on_time(requests: pl.DataFrame, application: Description, measured_s: float) -> tuple[float | None, float | None]:
    """Return the share of requests with a good reply within the deadline of their application, and the goodput: bits
    of the payloads of these requests and their replies per second of the load. ``None`` without deadline or requests.

    requests: the application's, without skipped requests. measured_s: length of the measured schedule. Pure.
    """
    load_s = application.load_s(measured_s)
    if application.deadline_ns is None or requests.is_empty() or load_s <= 0:
        return None, None
    timely = requests.filter(pl.col("latency_s") <= application.deadline_ns / 1e9)
    payload = sum(int(timely[column].sum()) for column in ("bytes_up", "bytes_down"))
    return len(timely) / len(requests), 8 * payload / load_s


def _ends_without_answer(requests: pl.DataFrame) -> NDArray[np.float64]:
    return due(requests).filter(pl.col("latency_s").is_null())["intended_s"].to_numpy()


def _measures(requests: pl.DataFrame, messages: pl.DataFrame, measures: Sequence[Measure]) -> list[MeasureSummary]:
    own = {measure.column for measure in measures} & set(requests.columns)
    requests = requests.select("latency_s", *(own - {"latency_s"})).drop_nulls("latency_s")
    found = []
    for measure in measures:
        table = messages if measure.column in messages.columns else requests
        values = table.get_column(measure.column, default=pl.Series([], dtype=pl.Float64)).drop_nulls()
        if len(values):
            least, median, most = np.quantile(values.to_numpy(), (0, 0.5, 1)).tolist()
            p99 = percentile_value(values.to_numpy(), 0.99) if len(values) >= smallest_sample(0.99) else None
            mean = float(np.mean(values.to_numpy())) if measure.unit == "share" else None
            figures = (len(values), least, median, most, p99)
            found.append(MeasureSummary(measure.label, measure.unit, *figures, measure.column, mean))
    return found


def _measurement_span(description: dict[str, Any], duration: float, tables: dict[str, pl.DataFrame]) -> float:
    """Return the part of the schedule before the end of the run, by the last record; seconds."""
    if description.get("status") == "complete":
        return duration
    if description.get("t0_ns") is None:
        return 0.0
    links, nodes, requests = (
        as_number(tables[name][column].max()) or 0.0
        for name, column in (("links", "time_s"), ("nodes", "time_s"), ("requests", "intended_s"))
    )
    last_bin = bin_ns(tables["links"]) / 1e9 if len(tables["links"]) else 0.0
    return min(duration, max(0.0, links + last_bin, nodes, requests))


def latencies(requests: pl.DataFrame) -> Samples:
    """Return the latency of every request that was not skipped, seconds, in the order of the table; +inf without a
    good reply."""
    return due(requests)["latency_s"].fill_null(float("inf")).to_numpy()


def _counts(requests: pl.DataFrame) -> Counts:
    everything, requests = len(requests), due(requests)
    status = requests["status"]
    answered = requests.select("latency_s", "residual_s").drop_nulls("latency_s")
    return Counts(
        total=len(requests),
        ok=int((status == "ok").sum()),
        late=int((status == "late").sum()),
        timed_out=int((status == "timed-out").sum()),
        lost=int((status == "lost").sum()),
        failed=int((status == "failed").sum()),
        without_parts=int(answered["residual_s"].null_count()),
        skipped=everything - len(requests),
        reduced=int((requests["scale"] < 1).sum()) if "scale" in requests.columns else 0,
    )


def _reasons(requests: pl.DataFrame) -> dict[str, int]:
    troubled = requests.filter(pl.col("error").is_not_null() | pl.col("reply_ns").is_null())
    return _count(troubled["error"].fill_null("no reply"))


def _count(reasons: pl.Series) -> dict[str, int]:
    """Return the number of occurrences of each text, most frequent first."""
    counts = reasons.drop_nulls().value_counts().sort("count", reasons.name, descending=[True, False])
    return {str(reason): int(count) for reason, count in counts.iter_rows()}


def _residual(requests: pl.DataFrame) -> Residual | None:
    complete = requests.select("residual_s", "latency_s").drop_nulls("residual_s")
    if complete.is_empty():
        return None
    residual, latency = complete["residual_s"].to_numpy(), complete["latency_s"].to_numpy()
    share = np.abs(residual) / latency
    return Residual(
        requests=len(complete),
        median_s=float(np.median(residual)),
        median_share=float(np.median(share)),
        p99_share=float(np.quantile(share, 0.99)) if len(complete) >= smallest_sample(0.99) else None,
    )


def _groups(requests: pl.DataFrame, column: str) -> list[EndpointSummary]:
    """Return the latency of requests grouped by a column, in the order of its values."""
    found, columns = [], {column, "status", "latency_s", "residual_s", "scale"} & set(requests.columns)
    for (name,), group in requests.select(columns).group_by(column, maintain_order=True):
        samples = latencies(group)
        found.append(EndpointSummary(str(name), _counts(group), percentiles(samples, QUANTILES)))
    return found


def _directions(description: dict[str, Any], links: pl.DataFrame, duration: float) -> list[DirectionSummary]:
    account = (description.get("emulator") or {}).get("directions") or {}
    found, width_ns, series_of = [], bin_ns(links), by_direction(links)
    for planned in description.get("directions") or []:
        name, played = str(planned["name"]), planned.get("played") or planned.get("trace") or {}
        # Packets before the begin of the schedule test the links; they are not the workload's.
        since = series_of.get(name, links.clear()).filter(pl.col("time_s") >= 0)
        during = since.filter(pl.col("time_s") < duration)
        if during.is_empty():
            continue
        limited = during["capacity_mbit_s"].null_count() == 0
        found_gaps = gaps(during["capacity_mbit_s"].to_numpy()) if limited else []
        begin, length = max(found_gaps, key=lambda gap: gap[1], default=(0.0, 0.0))
        counted = account.get(name) or {}
        dropped = counted.get("dropped") or {}
        congestion, handover = dropped.get("congestion"), dropped.get("handover")
        found.append(
            DirectionSummary(
                direction=name,
                capacity_mbit_s=as_number(during["capacity_mbit_s"].mean()) if limited else None,
                used_mbit_s=as_number(during["used_mbit_s"].mean()) or 0.0,
                queue_peak_bytes=int(as_number(during["queue_peak_bytes"].max()) or 0),
                dropped_queue=max(0, int(since["dropped_queue"].sum()) - (congestion or 0) - (handover or 0)),
                dropped_loss=int(since["dropped_loss"].sum()),
                longest_gap_s=length * width_ns / 1e9 if limited else None,
                longest_gap_at_s=during["time_s"][0] + begin * width_ns / 1e9 if limited and length else None,
                dropped_congestion=congestion,
                dropped_handover=handover,
                synthetic=bool(played.get("synthetic")),
                **{what: counted.get(what) for what in ("marked", "duplicated", "corrupted")},
            )
        )
    return found


def _nodes(description: dict[str, Any], nodes: pl.DataFrame, duration: float) -> list[NodeSummary]:
    during = nodes.filter(pl.col("time_s").is_between(0, duration)) if duration else nodes
    found = []
    for (node,), series in during.group_by("node", maintain_order=True):
        throttled = series["throttled_s"]
        memory, kills = as_number(series["memory_bytes"].max()), as_number(series["oom_kills"].max())
        found.append(
            NodeSummary(
                node=str(node),
                cpu_cores_mean=as_number(series["cpu_cores"].mean()),
                cpu_cores_peak=as_number(series["cpu_cores"].max()),
                memory_peak_bytes=None if memory is None else int(memory),
                throttled_s=float(throttled.sum()) if throttled.null_count() < len(throttled) else None,
                oom_kills=None if kills is None else int(kills),
            )
        )
    order = [node["name"] for node in description.get("nodes") or []]
    return sorted(found, key=lambda each: order.index(each.node) if each.node in order else len(order))


def _programs(programs: pl.DataFrame) -> list[ProgramSummary]:
    found = []
    for (program, node), series in programs.group_by("program", "node", maintain_order=True):
        cpu_s, span_s = float(series["cpu_s"][-1]), float(series["time_s"][-1] - series["time_s"][0])
        memory = as_number(series["memory_bytes"].max())
        found.append(
            ProgramSummary(
                program=str(program),
                node=str(node),
                cpu_s=cpu_s,
                cpu_cores_mean=cpu_s / span_s if span_s > 0 else None,
                memory_peak_bytes=None if memory is None else int(memory),
            )
        )
    return found


def _warnings(application: ApplicationSummary, *, reported: bool) -> list[str]:
    counts, residual = application.requests, application.residual
    found = []
    if counts.total == 0:
        found.append("the run recorded no request")
    if counts.failed:
        found.append(
            f"{counts.failed} of {counts.total} requests failed: their replies were errors, which count as slower than "
            "every good reply"
        )
    if counts.without_parts and reported:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in application.unassigned.items())
        early = any(each.column == REPORTED_MEASURE.column for each in application.measures)
        found.append(
            f"{counts.without_parts} of {counts.answered} requests could not be assigned to a connection, and have no "
            f"parts: {reasons}{'; their latency is the length of their span, perhaps without its reply' * early}"
        )
    elif counts.without_parts:
        found.append(
            f"{counts.without_parts} of {counts.answered} requests with a good reply lack a part: a stamp is missing, "
            "or their bytes were not found in the packet log"
        )
    if residual is not None and residual.median_share >= 0.01:
        found.append(
            f"the parts leave {residual.median_share * 100:.1f} % of a request's latency unexplained at the median "
            "(goal: below 1 %): the machine may have been too busy for the emulator to keep time"
        )
    return found


def _idle(application: Description, requests: pl.DataFrame) -> Iterator[str]:
    """Yield a sentence on the servers without a request, if the application has several servers."""
    served = set(requests["server"].drop_nulls()) if "server" in requests.columns else set()
    idle = [name for name in application.servers if name not in served]
    if served and idle and application.balance != "migration":
        more = f" and {len(idle) - 3} more" if len(idle) > 3 else ""
        yield f"no request went to {', '.join(idle[:3])}{more}: all were served by {', '.join(sorted(served)[:3])}"


def _natural(name: str) -> tuple[str, int]:
    """Return a sort key that puts ``edge-10`` after ``edge-9``."""
    head, _, tail = name.rpartition("-")
    return (head, int(tail)) if tail.isdigit() else (name, -1)
