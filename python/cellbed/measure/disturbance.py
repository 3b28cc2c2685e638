"""Disturbance of a run by the machine: a table by the second, and the judgement.

The reasons of the thresholds are in ``docs/explanation/measurement.md``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cellbed.measure.packets import read_records
from cellbed.measure.run_folder import read_lines
from cellbed.readable import duration_words, significant

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
        ("spare", "<u8"),
    ]
)
assert RECORD.itemsize == 64

FROZEN_S = 0.1
"""An emulator that did not run for this long was frozen: the run is disturbed, however long it lasted."""
LATENESS_S = 0.01
"""A second is disturbed in which a packet or the emulator was later than this, ..."""
LATE_SHARE = 0.1
"""... or more than this share of the packets was more than 1 ms late, ..."""
FOREIGN = 0.05
"""... or other programs used more than this share of the machine's processors ..."""
WAITING = 0.1
"""... and a node waited longer than this share of the processor time that it got ..."""
WAITED_S = 0.01
"""... and longer than this, ..."""
PRESSURE = 0.1
"""... or some program of the machine waited for longer than this share of the second, CPU limits apart, ..."""
CLOCK_S = 0.01
"""... or a clock was set, or the machine suspended, by more than this."""
SECONDS = 0.01
"""A run is disturbed if more than this share of its seconds is."""

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

    lateness_s: the highest of a packet; late_share: packets more than 1 ms late, of all; standstill_s: the longest
    time for which the emulator did not run. foreign_cpus: processors that other programs used, in the mean, of `cpus`;
    steal_cpus: those that the hypervisor took, included in it. pressure: share of the time in which some
    task of the machine waited for a processor (PSI; ``None`` with `cpus` known: the kernel does not report it);
    pressure_peak: of the second with most. waiting: time for which the tasks of the node that waited most waited for
    other programs, in each second of the run.
    """

    lateness_s: float | None
    late_share: float | None
    standstill_s: float | None
    cpus: int | None
    foreign_cpus: float | None
    steal_cpus: float | None
    pressure: float | None
    pressure_peak: float | None
    waiting: float | None


def read_seconds(run: Path, description: dict[str, Any]) -> pl.DataFrame:
    """One row per ``second`` since the start of the schedule, those before it negative.

    description: the content of ``run.json``. Of the emulator: ``until_s`` (end of its record, later than the second's
    where it stood still), ``packets``, ``late`` (more than 1 ms), ``lateness_s`` (highest), ``standstill_s`` (longest
    time without running) and ``stood_until_s``. Of the machine: ``cpus``, ``foreign_cpus`` (processors used by programs
    that are not the run's), ``own_cpus`` (by the run's), ``steal_cpus``, ``pressure`` (PSI: share of the second in
    which some task waited for a processor), ``stopped`` (for how long CPU limits stopped nodes, all together, as a
    share), ``clock_step_s``, ``suspended_s``. Of each node ``NODE.cpu_s``; ``NODE.waited_s``: the time that it waited
    for a processor, without the time that its CPU limit stopped it, and at most as long as other programs ran;
    ``NODE.queued_s``: the rest of its waiting, for programs of the run. A second that was not recorded has no row or
    nulls.
    """
    t0 = description.get("t0_ns") or 0
    emulator = _emulator(read_records(run / "raw" / "lateness.bin", MAGIC, RECORD), t0)
    host = _host(read_lines(run / "raw" / "host.jsonl", _HOST), t0)
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
        }
    )


def _host(samples: pl.DataFrame, t0: int) -> pl.DataFrame:
    def grown(column: str) -> pl.Expr:
        return pl.col(column).diff().cast(pl.Float64) / 1e9

    # A sample closes the second that the one before has opened, late or not; there is one at most in each second.
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
    # Waiting for other programs cannot exceed their run time: the rest is waiting of a node's tasks for each other.
    taken_s = machine.select("second", taken_s=pl.col("foreign_cpus") * samples["span_s"])
    each = each.join(taken_s, on="second", how="left")
    waited_s = pl.min_horizontal("waited_s", "taken_s").clip(lower_bound=0)
    stopped = each.group_by("second").agg(stopped=pl.col("throttled_s").sum() / pl.col("span_s").first())
    machine = machine.join(stopped, on="second", how="left").with_columns(pl.col("stopped").fill_null(0))
    queued_s = pl.col("waited_s") - waited_s
    for (node,), series in each.group_by("node", maintain_order=True):
        columns = {"cpu_s": pl.col("cpu_s"), "waited_s": waited_s, "queued_s": queued_s}
        named = series.select("second", **{f"{node}.{name}": column for name, column in columns.items()})
        machine = machine.join(named, on="second", how="left")
    return machine.drop_nulls("second")


def nodes_of(seconds: pl.DataFrame) -> list[str]:
    """The nodes of which the table has waiting times."""
    return [name.removesuffix(".waited_s") for name in seconds.columns if name.endswith(".waited_s")]


def machine(seconds: pl.DataFrame, duration_s: float) -> Machine:
    """The whole run in figures."""
    during = _during(seconds, duration_s)
    packets, cpus = _sum(during["packets"]), _number(during["cpus"].max())
    waited = [_number(during[f"{node}.waited_s"].mean()) for node in nodes_of(seconds)]
    return Machine(
        lateness_s=_number(during["lateness_s"].max()),
        late_share=_sum(during["late"]) / packets if packets else None,
        standstill_s=_number(during["standstill_s"].max()),
        cpus=None if cpus is None else int(cpus),
        foreign_cpus=_number(during["foreign_cpus"].mean()),
        steal_cpus=_number(during["steal_cpus"].mean()),
        pressure=_number(during["pressure"].mean()),
        pressure_peak=_number(during["pressure"].max()),
        waiting=max((each for each in waited if each is not None), default=None),
    )


def _waiting(seconds: pl.DataFrame, node: str) -> float | None:
    """How long a node waited for each second of processor time, over all seconds."""
    cpu = _sum(seconds[f"{node}.cpu_s"])
    return _sum(seconds[f"{node}.waited_s"]) / cpu if cpu else None


def judge(seconds: pl.DataFrame, description: dict[str, Any]) -> list[str]:
    """Why a run is disturbed, in sentences; empty for one that is not. Pure.

    seconds: the table of `read_seconds`; description: the content of ``run.json``.
    """
    duration_s = (description.get("duration_ns") or 0) / 1e9
    during = _during(seconds, duration_s)
    found = [str(death) for death in description.get("deaths") or []]
    found += _frozen(seconds, duration_s, description.get("status") == "complete")
    found += _late(during)
    found += list(_deprived(during, nodes_of(seconds))) or _pressed(during)
    found += _short(during, description)
    found += _clocks(during)
    return found


def _during(seconds: pl.DataFrame, duration_s: float) -> pl.DataFrame:
    return seconds.filter(pl.col("second").is_between(0, duration_s, closed="left"))


def _frozen(seconds: pl.DataFrame, duration_s: float, complete: bool) -> Iterator[str]:
    frozen = seconds.filter((pl.col("second") >= 0) & (pl.col("standstill_s") >= FROZEN_S)).sort(
        "standstill_s", descending=True
    )
    if len(frozen):
        longest, until = frozen["standstill_s"][0], frozen["stood_until_s"][0]
        more = f", and {_times(len(frozen) - 1)} more" if len(frozen) > 1 else ""
        at = max(0.0, until - longest)
        yield f"the emulator stood still for {duration_words(longest)} from {_at(at)} on{more}"
    last = seconds["until_s"].max()
    # It closes a second within milliseconds, unless it stands still; then that is in its next record, if there is one.
    if complete and isinstance(last, float) and last < duration_s - FROZEN_S:
        yield f"the emulator recorded nothing from {_at(max(0.0, last))} on: it stood still, or its records were lost"


def _late(during: pl.DataFrame) -> Iterator[str]:
    share, latest = pl.col("late") / pl.col("packets"), pl.max_horizontal("lateness_s", "standstill_s")
    many = (pl.col("packets") > 0) & (share > LATE_SHARE)
    late = during.filter(((latest > LATENESS_S) | many) & (pl.col("standstill_s") < FROZEN_S))
    if _too_many(late, during):
        worst = float(late.select(latest.max()).item())
        share_of_all = _sum(late["late"]) / max(1, _sum(late["packets"]))
        yield (
            f"the emulator was late in {_of(late, during)}: by up to {duration_words(worst)}, and with "
            f"{significant(share_of_all * 100)} % of their packets by more than 1 ms"
        )


def _deprived(during: pl.DataFrame, nodes: list[str]) -> Iterator[str]:
    waiting: list[tuple[int, float, str]] = []
    for node in nodes:
        deprived = _deprived_seconds(during, node)
        if _too_many(deprived, during):
            waiting.append((len(deprived), _waiting(deprived, node) or 0.0, node))
    if not waiting:
        return
    _, share, node = max(waiting)
    deprived = _deprived_seconds(during, node)
    others = (
        f" and {len(waiting) - 1} more nodes" if len(waiting) > 2 else " and another node" if len(waiting) > 1 else ""
    )
    yield (
        f"other programs kept {node}{others} waiting for a processor: {node} in {_of(deprived, during)}, "
        f"{significant(share)} s for each second of processor time, while they used "
        f"{significant(_number(deprived['foreign_cpus'].mean()) or 0)} of {deprived['cpus'][0]} processors"
    )


def _pressed(during: pl.DataFrame) -> Iterator[str]:
    foreign = pl.col("foreign_cpus") > FOREIGN * pl.col("cpus")
    pressed = during.filter(foreign & (pl.col("pressure") - pl.col("stopped") > PRESSURE))
    if _too_many(pressed, during):
        waited, used = _number(pressed["pressure"].max()) or 0, _number(pressed["foreign_cpus"].mean()) or 0
        yield (
            f"the machine's processors were under pressure in {_of(pressed, during)}: programs waited for them in up "
            f"to {significant(waited * 100)} % of a second (PSI), while other programs used {significant(used)} of "
            f"{pressed['cpus'][0]} processors"
        )


def _short(during: pl.DataFrame, description: dict[str, Any]) -> Iterator[str]:
    """Nodes that waited below their limits while the run used the whole machine."""
    short = []
    for node in description.get("nodes") or []:
        name, limit = node["name"], node["cpus"]
        if f"{name}.queued_s" in during.columns:
            cpu, queued = pl.col(f"{name}.cpu_s"), pl.col(f"{name}.queued_s")
            full = pl.col("own_cpus") > (1 - WAITING) * pl.col("cpus")
            below = full & (cpu < (1 - WAITING) * limit) & (queued > WAITING * cpu) & (queued > WAITED_S)
            if _too_many(found := during.filter(below), during):
                used = _sum(found[f"{name}.cpu_s"]) / len(found)
                had = f"{name} had {significant(used)} of its {limit:g} CPUs and waited in {_of(found, during)}"
                short.append((used / limit, had, int(found["cpus"][0])))
    if short:
        _, had, cpus = min(short)
        more = f" (and {len(short) - 1} more like this)" if len(short) > 1 else ""
        yield f"the nodes together needed more than the {cpus} processors of this machine: {had}{more}"


def _deprived_seconds(during: pl.DataFrame, node: str) -> pl.DataFrame:
    cpu, waited = pl.col(f"{node}.cpu_s"), pl.col(f"{node}.waited_s")
    foreign = pl.col("foreign_cpus") > FOREIGN * pl.col("cpus")
    return during.filter(foreign & (waited > WAITING * cpu) & (waited > WAITED_S))


def _clocks(during: pl.DataFrame) -> Iterator[str]:
    for name, words in (
        ("clock_step_s", "the wall clock was set by"),
        ("suspended_s", "the machine was suspended for"),
    ):
        for second, step in during.filter(pl.col(name).abs() > CLOCK_S).select("second", name).iter_rows():
            sign = "−" if step < 0 else ""
            yield f"{words} {sign}{duration_words(abs(step))} at {second} s"


def _too_many(those: pl.DataFrame, of: pl.DataFrame) -> bool:
    return len(those) > SECONDS * len(of)


def _of(those: pl.DataFrame, of: pl.DataFrame) -> str:
    return f"{len(those)} of {len(of)} seconds"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _at(seconds: float) -> str:
    return f"{seconds:.1f} s"


def _sum(series: pl.Series) -> float:
    return _number(series.sum()) or 0.0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
