"""Disturbance of a run by the machine: a table by second, the latency added to each request, and the judgement.

The reasons of the thresholds are in ``docs/explanation/measurement.md``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed.measure.packets import read_records
from cellbed.measure.run_folder import read_lines
from cellbed.measure.statistics import Percentile, Samples, as_number, percentile_value
from cellbed.runformat.description import Description
from cellbed.runformat.spans import Span
from cellbed.support.readable import duration_words, significant

MAGIC = b"cellbed lateness"
RECORD = np.dtype(
    [
        ("start", "<i8"),
        ("end", "<i8"),
        ("packets", "<u8"),
        ("late", "<u8"),
        ("lateness", "<u8"),
        ("standstill", "<u8"),
        ("stood_until", "<i8"),
        ("ran", "<u4"),
        ("waited", "<u4"),
    ]
)
assert RECORD.itemsize == 64

FROZEN_S = 0.1
"""Minimum standstill of an emulator that counts as frozen, seconds."""
STANDSTILL_S = 0.01
"""Minimum standstill that lengthens requests, seconds; shorter ones appear in residuals only."""
CAUSE_S = 0.005
"""Minimum delay of an emulator or a packet whose cause is named, seconds."""
LATE_SHARE = 0.1
"""Maximum share of packets more than 1 ms late in an undisturbed run without requests."""
LENGTHENED = 0.1
"""Maximum time that nodes waited in an undisturbed run without requests, as a share of the time of their connections;
also the maximum shift of a percentile, as a share of its value, however wide its interval is."""
PRINTED = 0.01
"""Maximum negligible shift of a percentile, as a share of its value, however narrow its interval is."""
FULL = 0.9
"""Minimum share at which a run uses the whole machine, and a node its whole CPU limit."""
CLOCK_S = 0.01
"""Maximum clock step, and maximum suspension of the machine, in an undisturbed run, seconds."""

_HOST = {
    "time_ns": pl.Int64,
    "realtime_ns": pl.Int64,
    "boottime_ns": pl.Int64,
    "cpus": pl.Int64,
    "idle_ns": pl.Int64,
    "steal_ns": pl.Int64,
    "pressure_ns": pl.Int64,
    "own_ns": pl.Int64,
    "nodes": pl.List(
        pl.Struct({"node": pl.String, "cpu_ns": pl.Int64, "waited_ns": pl.Int64, "throttled_ns": pl.Int64})
    ),
}


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine's state during the schedule; ``None`` if not recorded.

    lateness_s: maximum lateness of a packet; late_share: share of packets more than 1 ms late; standstill_s: longest
    time for which the emulator did not run; late_cause: the longest of these delays and its cause in words, from
    `CAUSE_S` on. foreign_cpus: mean number of the `cpus` processors used by other programs; steal_cpus: the
    hypervisor's part of foreign_cpus. pressure: share of the time with a task of the machine waiting for a processor
    (PSI; ``None`` with `cpus` known: the kernel does not report it); pressure_peak: maximum pressure of a second.
    waiting: time per second of the run during which tasks waited for other programs, on the node with most waiting.
    """

    lateness_s: float | None
    late_share: float | None
    standstill_s: float | None
    late_cause: str | None
    cpus: int | None
    foreign_cpus: float | None
    steal_cpus: float | None
    pressure: float | None
    pressure_peak: float | None
    waiting: float | None


def read_seconds(run: Path, description: dict[str, Any]) -> pl.DataFrame:
    """Return one row per ``second`` since the start of the schedule; earlier seconds are negative.

    description: the content of ``run.json``. Of the emulator: ``until_s`` (end of its record, later than the end of the
    second after a standstill), ``packets``, ``late`` (more than 1 ms), ``lateness_s`` (maximum), ``standstill_s``
    (longest time without running), ``stood_until_s``, and ``late_ran_s`` and ``late_waited_s`` (time of the thread on a
    processor, and waiting for a processor, within the longest delay). Of the machine: ``cpus``, ``foreign_cpus``
    (processors used by programs outside the run), ``own_cpus`` (by the run), ``steal_cpus``, ``pressure`` (PSI: share
    of the second in which some task waited for a processor), ``clock_step_s``, ``suspended_s``. Of each node
    ``NODE.cpu_s`` and ``NODE.waited_s``: the time that the node waited for a processor, without stops by its CPU limit,
    and at most the time that other programs ran while the node was running or waiting. All waiting counts if the node
    is below its CPU limit while the run uses the whole machine (`FULL`). A second that was not recorded has no row or
    nulls.
    """
    t0 = description.get("t0_ns") or 0
    emulator = _emulator(read_records(run / "raw" / "lateness.bin", MAGIC, RECORD), t0)
    limits = {str(node["name"]): node.get("cpus") for node in description.get("nodes") or []}
    host = _host(read_lines(run / "raw" / "host.jsonl", _HOST), t0, limits)
    return emulator.join(host, on="second", how="full", coalesce=True).sort("second")


def _emulator(records: "np.ndarray[Any, np.dtype[Any]]", t0: int) -> pl.DataFrame:
    def seconds(name: str, since: int = 0) -> "np.ndarray[Any, np.dtype[np.float64]]":
        return (records[name].astype(np.int64) - since) / 1e9

    return pl.DataFrame(
        {
            "second": (records["start"] - t0) // 1_000_000_000,
            "until_s": seconds("end", t0),
            "packets": records["packets"].astype(np.int64),
            "late": records["late"].astype(np.int64),
            "lateness_s": seconds("lateness"),
            "standstill_s": seconds("standstill"),
            "stood_until_s": seconds("stood_until", t0),
            "late_ran_s": records["ran"] / 1e6,
            "late_waited_s": records["waited"] / 1e6,
        }
    )


def _host(samples: pl.DataFrame, t0: int, limits: Mapping[str, float | None]) -> pl.DataFrame:
    def grown(column: str) -> pl.Expr:
        return pl.col(column).diff().cast(pl.Float64) / 1e9

    # A sample, even a late one, closes the second that the previous sample opened; a second has at most one sample.
    samples = samples.sort("time_ns").with_columns(
        second=(pl.col("time_ns").shift(1) - t0) // 1_000_000_000,
        span_s=grown("time_ns"),
    )
    unused = grown("idle_ns") + grown("own_ns")
    machine = samples.select(
        "second",
        "cpus",
        foreign_cpus=(pl.col("cpus") - unused / pl.col("span_s")).clip(lower_bound=0),
        own_cpus=grown("own_ns") / pl.col("span_s"),
        steal_cpus=grown("steal_ns") / pl.col("span_s"),
        pressure=(grown("pressure_ns") / pl.col("span_s")).clip(0, 1),
        clock_step_s=grown("realtime_ns"),
        suspended_s=grown("boottime_ns"),
    )
    each = samples.select("second", "span_s", "nodes").explode("nodes").drop_nulls("nodes").unnest("nodes")
    each = each.select(
        "second",
        "span_s",
        "node",
        cpu_s=pl.col("cpu_ns").diff().over("node") / 1e9,
        throttled_s=pl.col("throttled_ns").diff().over("node").fill_null(0) / 1e9,
        waited_s=pl.col("waited_ns").diff().over("node") / 1e9,
    ).with_columns(waited_s=pl.col("waited_s") - pl.col("throttled_s"))
    # Waiting for other programs cannot exceed their run time while the node runs or waits. The rest is waiting of the
    # node's tasks for each other, or for other nodes.
    used = machine.select("second", "cpus", "own_cpus", taken_s=pl.col("foreign_cpus") * samples["span_s"])
    each = each.join(used, on="second", how="left")
    limit = pl.col("node").replace_strict(limits, default=None, return_dtype=pl.Float64)
    short = (pl.col("own_cpus") > FULL * pl.col("cpus")) & (pl.col("cpu_s") < FULL * limit)
    present = ((pl.col("cpu_s") + pl.col("waited_s")) / pl.col("span_s")).clip(upper_bound=1)
    foreign_s = pl.min_horizontal("waited_s", pl.col("taken_s") * present)
    waited_s = pl.when(short).then("waited_s").otherwise(foreign_s).clip(lower_bound=0)
    for (node,), series in each.group_by("node", maintain_order=True):
        named = series.select("second", pl.col("cpu_s").alias(f"{node}.cpu_s"), waited_s.alias(f"{node}.waited_s"))
        machine = machine.join(named, on="second", how="left")
    return machine.drop_nulls("second")


def nodes_of(seconds: pl.DataFrame) -> list[str]:
    """Return the nodes with waiting times in the table."""
    return [name.removesuffix(".waited_s") for name in seconds.columns if name.endswith(".waited_s")]


def machine(seconds: pl.DataFrame, duration_s: float) -> Machine:
    """Return figures for the whole run."""
    during = _within(seconds, duration_s)
    packets, cpus = _sum(during["packets"]), as_number(during["cpus"].max())
    waited = [as_number(during[f"{node}.waited_s"].mean()) for node in nodes_of(seconds)]
    return Machine(
        lateness_s=as_number(during["lateness_s"].max()),
        late_share=_sum(during["late"]) / packets if packets else None,
        standstill_s=as_number(during["standstill_s"].max()),
        late_cause=_late_cause(during),
        cpus=None if cpus is None else int(cpus),
        foreign_cpus=as_number(during["foreign_cpus"].mean()),
        steal_cpus=as_number(during["steal_cpus"].mean()),
        pressure=as_number(during["pressure"].mean()),
        pressure_peak=as_number(during["pressure"].max()),
        waiting=max((each for each in waited if each is not None), default=None),
    )


def _late_cause(during: pl.DataFrame) -> str | None:
    """Return the longest delay of the emulator or a packet, and its cause, in words; ``None`` below `CAUSE_S`."""
    delay = pl.max_horizontal("lateness_s", "standstill_s")
    longest = during.with_columns(late_s=delay).filter(delay >= CAUSE_S).sort("late_s", descending=True).head(1)
    if longest.is_empty():
        return None
    of = {name: value or 0.0 for name, value in longest.row(0, named=True).items()}
    causes = {
        "the machine was suspended": of["suspended_s"],
        "it waited for a processor": of["late_waited_s"],
        "it was busy": of["late_ran_s"],
        "perhaps the hypervisor, which ran other machines in this second": of["steal_cpus"],
    }
    # Records of earlier versions, and of kernels without these times, have zeros.
    is_known = of["late_ran_s"] > 0 or of["late_waited_s"] > 0
    other = "it was stopped, or not woken" if is_known else "its cause was not recorded"
    cause = next((words for words, time in causes.items() if time > of["late_s"] / 2), other)
    return f"{duration_words(of['late_s'])} in second {of['second']:.0f}: {cause}"


def _wait_ratio(seconds: pl.DataFrame, node: str) -> float | None:
    """Return a node's waiting time per second of processor time, over all seconds."""
    cpu = _sum(seconds[f"{node}.cpu_s"])
    return _sum(seconds[f"{node}.waited_s"]) / cpu if cpu else None


def delays_by_machine(requests: pl.DataFrame, spans: Sequence[Span], seconds: pl.DataFrame) -> Samples:
    """Return the time that the machine added to each request, seconds; 0 for a request without a reply.

    requests: a table of `read_requests`; spans: spans of its application; seconds: the table of `read_seconds`. Parts
    on links are times of the model, so lateness of packets is the residual. A part on a node was lengthened by the
    share waiting / (running + waiting) of the node in the seconds of the request, and at most by all its waiting. The
    time under way during a standstill of the emulator, and for as long after the standstill, counts fully.
    """
    begin, latency = (requests[name].fill_null(0.0).to_numpy() for name in ("intended_s", "latency_s"))
    end = begin + latency
    stood = np.zeros(len(requests))
    for since, until in _standstills(seconds):
        stood += np.clip(np.minimum(end, 2 * until - since) - np.maximum(begin, since), 0, None)
    late = requests["residual_s"].fill_null(0.0).clip(lower_bound=0).to_numpy()
    found = np.maximum(late, stood)
    for place, column in (("endpoint", "endpoint"), ("remote", "server")):
        parts = [pl.col(span.column).fill_null(0.0) for span in spans if span.place == place]
        if not parts or column not in requests.columns:
            continue
        spent = requests.select(pl.sum_horizontal(parts).clip(lower_bound=0)).to_series().to_numpy()
        found += _delays_on_nodes(requests[column], spent, begin, end, seconds)
    return np.where(latency > 0, np.minimum(found, latency), 0.0)


def _standstills(seconds: pl.DataFrame) -> list[tuple[float, float]]:
    """Return begin and end of each standstill of the emulator, seconds."""
    found = seconds.filter(pl.col("standstill_s") >= STANDSTILL_S)
    return [(until - length, until) for length, until in found.select("standstill_s", "stood_until_s").iter_rows()]


def _delays_on_nodes(nodes: pl.Series, spent: Samples, begin: Samples, end: Samples, seconds: pl.DataFrame) -> Samples:
    """Return `_delay_on_node` of each row on its node; 0 for a node without records."""
    names, found = nodes.fill_null("").to_numpy(), np.zeros(len(spent))
    for node in nodes_of(seconds):
        rows = np.flatnonzero(names == node)
        if len(rows):
            found[rows] = _delay_on_node(spent[rows], begin[rows], end[rows], node, seconds)
    return found


def _delay_on_node(spent: Samples, begin: Samples, end: Samples, node: str, seconds: pl.DataFrame) -> Samples:
    """Return the part of the time `spent` on a node between `begin` and `end` in which its tasks waited for other
    programs."""
    known = seconds.drop_nulls(["second", f"{node}.cpu_s", f"{node}.waited_s"])
    if known.is_empty():
        return np.zeros(len(spent))
    number = known["second"].to_numpy()
    first, last = np.searchsorted(number, np.floor(begin)), np.searchsorted(number, np.floor(end), side="right")

    def total(column: str) -> Samples:
        cumulative = np.concatenate([[0.0], np.cumsum(known[column].to_numpy())])
        return np.asarray(cumulative[last] - cumulative[np.minimum(first, last)])

    waited = total(f"{node}.waited_s")
    ran = total(f"{node}.cpu_s") + waited
    share = np.divide(waited, ran, out=np.zeros(len(spent)), where=ran > 0)
    return np.minimum(spent * share, waited)


def shifts(latencies: Samples, lengthened: Samples, percentiles: Sequence[Percentile]) -> dict[str, float]:
    """Return the time that the machine added to each percentile with a value, seconds. latencies: +inf: no reply."""
    return {
        each.label: each.value - percentile_value(latencies - lengthened, each.quantile)
        for each in percentiles
        if each.value is not None
    }


@dataclass(frozen=True, slots=True)
class Load:
    """An application with requests, for `judge`. shifts: result of `shifts`; unanswered_s: intended times of requests
    without a reply."""

    name: str
    percentiles: Sequence[Percentile]
    shifts: Mapping[str, float]
    unanswered_s: NDArray[np.float64]


def judge(
    seconds: pl.DataFrame, description: dict[str, Any], loads: Sequence[Load], connections: pl.DataFrame
) -> list[str]:
    """Return why a run is disturbed, in sentences; empty if the run is not disturbed. Pure.

    seconds: the table of `read_seconds`; description: the content of ``run.json``; loads: its applications with
    requests; connections: the table of `read_connections` without the connections of `loads`.
    """
    duration_s = (description.get("duration_ns") or 0) / 1e9
    during = _within(seconds, duration_s)
    found = [str(death) for death in description.get("deaths") or []]
    found += [reason for load in loads for reason in _shift_reasons(load, during)]
    if not loads or len(connections):
        found += _standstill_reasons(seconds)
        found += _late(during)
        found += _wait_reasons(connections, during)
    found += _gap_reasons(seconds, duration_s, description.get("status") == "complete")
    found += _clocks(during)
    return found


def overload_reasons(described: Sequence[Description], own: pl.DataFrame) -> Iterator[str]:
    """Yield a sentence for each program that the machine was too slow for, by measures that the programs wrote
    (:attr:`Description.bearable`). own: the table of :func:`cellbed.measure.own.read_own`. Pure."""
    for application in described:
        for limit in application.bearable:
            written = own.filter(app=application.name, measure=limit.measure)
            for node, value, unit in written.select("node", "value", "unit").iter_rows():
                if not limit.holds(value):
                    amount = " ".join(filter(None, [f"{value:.3g}", unit]))
                    what = f"the machine was too slow for {application.name} on {node}"
                    yield f"{what}: {limit.name}: {amount}, not {limit.text}"


def unread_datagrams(requests: pl.DataFrame, links: pl.DataFrame) -> Iterator[str]:
    """Yield a sentence if receivers lost datagrams of transfers that the links had delivered: their buffers were full,
    as they were too slow. links: all links that the datagrams passed; nothing is known without them. Pure."""
    if "datagrams" not in requests.columns or links.is_empty():
        return
    sent, lost = (int(requests[name].sum()) for name in ("datagrams", "datagrams_lost"))
    unread = lost - sum(int(links[name].sum()) for name in ("dropped_queue", "dropped_loss"))
    if unread > PRINTED * sent:
        yield f"the machine was too slow for receivers of datagrams: {unread} of {sent} passed the links and were lost"


def _within(seconds: pl.DataFrame, duration_s: float) -> pl.DataFrame:
    return seconds.filter(pl.col("second").is_between(0, duration_s, closed="left"))


def _shift_reasons(load: Load, during: pl.DataFrame) -> Iterator[str]:
    for each in load.percentiles:
        shift = load.shifts.get(each.label, 0.0)
        if each.value is None or shift <= PRINTED * each.value:
            continue
        without, low = each.value - shift, each.low or 0.0
        if without < max(low, (1 - LENGTHENED) * each.value):
            interval = f", below its interval, which begins at {duration_words(low)}" if without < low else ""
            yield (
                f"the machine made {load.name} slower: without what it added, the {each.label} would be about "
                f"{duration_words(without)} instead of {duration_words(each.value)}{interval} "
                f"({_causes(during)})"
            )
            break
    for since, until in _standstills(during):
        gone = int(((load.unanswered_s >= since) & (load.unanswered_s <= 2 * until - since)).sum())
        if gone and until - since >= FROZEN_S:
            yield (
                f"the emulator did not run for {duration_words(until - since)} from {_time_text(since)} on, and "
                f"{gone} request{'s' * (gone > 1)} of {load.name} of that time got no reply"
            )


def _causes(during: pl.DataFrame) -> str:
    waiting = {node: _wait_ratio(during, node) or 0.0 for node in nodes_of(during)}
    node = max(waiting, key=lambda each: waiting[each], default="")
    latest = max(as_number(during[name].max()) or 0.0 for name in ("lateness_s", "standstill_s"))
    words = [f"packets or the emulator were up to {duration_words(latest)} late"] if latest else []
    if waiting.get(node):
        foreign, own = (as_number(during[f"{whose}_cpus"].mean()) or 0.0 for whose in ("foreign", "own"))
        words.append(
            f"{node} waited {significant(waiting[node])} s for each second of processor time, while other programs "
            f"used {significant(foreign)} and the run {significant(own)} of {during['cpus'].drop_nulls()[0]} processors"
        )
    return "; ".join(words)


def _standstill_reasons(seconds: pl.DataFrame) -> Iterator[str]:
    """Yield a sentence on the standstills of a run without requests."""
    frozen = seconds.filter((pl.col("second") >= 0) & (pl.col("standstill_s") >= FROZEN_S)).sort(
        "standstill_s", descending=True
    )
    if len(frozen):
        longest, until = frozen["standstill_s"][0], frozen["stood_until_s"][0]
        more = f", and {len(frozen) - 1} × more" if len(frozen) > 1 else ""
        at = max(0.0, until - longest)
        yield f"the emulator did not run for {duration_words(longest)} from {_time_text(at)} on{more}"


def _gap_reasons(seconds: pl.DataFrame, duration_s: float, complete: bool) -> Iterator[str]:
    last = seconds["until_s"].max()
    # The emulator closes a second within milliseconds. A standstill delays this to the next record, if there is one.
    if complete and isinstance(last, float) and last < duration_s - FROZEN_S:
        yield f"the emulator recorded nothing from {_time_text(max(0.0, last))} on: it stopped, or records were lost"


def _late(during: pl.DataFrame) -> Iterator[str]:
    """Yield a sentence on the lateness of a run without requests."""
    share = _sum(during["late"]) / max(1, _sum(during["packets"]))
    if share > LATE_SHARE:
        worst = as_number(during["lateness_s"].max()) or 0.0
        yield (
            f"the emulator was late: {significant(share * 100)} % of the packets by more than 1 ms, by up to "
            f"{duration_words(worst)}"
        )


def _wait_reasons(connections: pl.DataFrame, during: pl.DataFrame) -> Iterator[str]:
    """Yield a sentence on waiting that lengthened connections, except while they wait for their client to send."""
    if connections.is_empty():
        return
    names = [name for name in connections.columns if name.startswith("part_")]
    spent = connections.select(pl.sum_horizontal(names)).to_series().fill_null(0.0).to_numpy()
    begin = connections["opened_s"].to_numpy()
    client = connections["part_client"].fill_null(0.0).to_numpy()
    service = [name for name in names if name.startswith("part_server") or name.startswith("part_service")]
    server = connections.select(pl.sum_horizontal(service)).to_series().fill_null(0.0).to_numpy()
    lost = _delays_on_nodes(connections["client"], client, begin, begin + spent, during)
    lost += _delays_on_nodes(connections["server"], server, begin, begin + spent, during)
    total = float((spent - client).sum())
    if total > 0 and lost.sum() > LENGTHENED * total:
        yield (
            f"other programs kept nodes waiting for a processor for {significant(100 * float(lost.sum()) / total)} % "
            f"of the time of their connections ({_causes(during)})"
        )


def _clocks(during: pl.DataFrame) -> Iterator[str]:
    for name, words in (
        ("clock_step_s", "the wall clock was set by"),
        ("suspended_s", "the machine was suspended for"),
    ):
        for second, step in during.filter(pl.col(name).abs() > CLOCK_S).select("second", name).iter_rows():
            sign = "−" if step < 0 else ""
            yield f"{words} {sign}{duration_words(abs(step))} at {second} s"


def _time_text(seconds: float) -> str:
    return f"{seconds:.1f} s"


def _sum(series: pl.Series) -> float:
    return as_number(series.sum()) or 0.0
