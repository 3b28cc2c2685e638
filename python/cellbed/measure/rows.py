"""Rows of the dataset: the measures of a run, one row per application, and verdicts on its expectations."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cellbed.measure.factors import RESULT_COLUMNS
from cellbed.runformat.description import Description
from cellbed.runformat.spans import PLACES
from cellbed.scenario.expectations import MEASURES
from cellbed.support.limits import OWN

if TYPE_CHECKING:
    import polars as pl

    from cellbed.measure.migrations import MigrationSummary
    from cellbed.measure.own import OwnMeasure
    from cellbed.measure.statistics import Samples
    from cellbed.measure.summary import Summary

TRIAL_COLUMNS = {
    "point": "Int64",
    "repetition": "Int64",
    "key": "String",
    "folder": "String",
    "status": "String",
    "attempts": "Int64",
    "reason": "String",
    "seed": "Int64",
    "start_s": "Float64",
    "pressure_cpu": "Float64",
    "late_p99_s": "Float64",
}
"""Columns of a trial, with their Polars types."""
APPLICATION_COLUMNS = {"app": "String", "refused": "String", "units": "String", "kind": "String"}
"""Columns of an application; columns of measures follow `kind`."""
_QUANTILES = {"p01": 0.01, "p50": 0.5, "p90": 0.9, "p99": 0.99}
PART = "part_"
_ENDS = {"s": "_s", "Mbit/s": "_mbit_s", "B": "_bytes"}
"""Suffixes of measure names, by unit."""
_PROBLEMS = 3
"""Maximum number of problems of own measures in `refused`."""


def is_taken(name: str, measures: Sequence[str]) -> bool:
    """Return whether a factor cannot have this name, because the dataset or a table of its results has such a column.
    measures: measures of the dataset."""
    return name in {*TRIAL_COLUMNS, *APPLICATION_COLUMNS, *measures, *RESULT_COLUMNS} or name.startswith((PART, OWN))


def measure(run: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the measures of each application of a run, with the machine's effect on the run; and the reasons why the
    run is disturbed.

    A request without a good reply counts as longer than every reply, so a percentile among such requests is infinite.
    Percentiles that need more requests are missing, as in the report of the run; `refused` is the reason. Parts are
    means over the requests with all parts known. Errors: :class:`MeasureError`.
    """

    from cellbed.measure.flows import around_outages, recoveries
    from cellbed.measure.outages import find_outages
    from cellbed.measure.requests import due
    from cellbed.measure.run_folder import applications_of, read_run, read_tables
    from cellbed.measure.statistics import refusals
    from cellbed.measure.summary import Summary, of

    description, summary = read_run(run), Summary.read(run)
    requests, sampled, links = read_tables(run, "requests", "flows", "links")
    recovered = recoveries(around_outages(sampled, find_outages(description, links)))
    lateness = ((description.get("emulator") or {}).get("lateness_ns") or {}).get("p99")
    machine = {
        "pressure_cpu": summary.machine.pressure,
        "late_p99_s": None if lateness is None else lateness / 1e9,
    }
    rows = []
    for each, found in zip(applications_of(description), summary.applications, strict=True):
        own = of(requests, each.name)
        refused = [
            refusals(len(due(own)), _QUANTILES.values()) if each.spans else None,
            *found.own_problems[:_PROBLEMS],
        ]
        rows.append(
            {**dict.fromkeys(MEASURES), "app": each.name, "kind": each.kind, **machine}
            | measures(own, each, summary.measured_s)
            | {"refused": "; ".join(filter(None, refused)) or None}
            | (dataclasses.asdict(found.traffic) if found.traffic is not None else {})
            | _transfer_measures(own)
            | _migration_measures([move for move in summary.migrations if move.app == each.name])
            | {"recovery_s": of(recovered, each.name)["recovery_s"].mean()}
            | own_columns(found.own)
            | {
                f"{measure.column.removesuffix(end)}_{name}{end}": value
                for measure in found.measures
                if (end := _ENDS.get(measure.unit)) is not None and measure.column.endswith(end)
                for name, value in (("p50", measure.median), ("p99", measure.p99))
            }
            | {f"{measure.column}_share": measure.mean for measure in found.measures if measure.unit == "share"}
        )
    return rows, summary.disturbances


_ENDED = {"interrupted": "the run was interrupted", "failed": "the run failed"}
"""Reasons why a run meets no expectation, by status."""


def collect(run: Path) -> Summary:
    """Compute the tables and the summary of a run (:func:`cellbed.measure.summary.collect`), with verdicts on its
    expectations. An incomplete run meets no expectation. A measured run without its packet log keeps its tables and
    summary. Raises MeasureError."""
    from cellbed.measure import summary
    from cellbed.measure.packets import log_files
    from cellbed.measure.run_folder import applications_of, read_run, replace
    from cellbed.measure.verdicts import judge

    logs = log_files(run / "raw" / "packets.bin")
    if (run / "summary.json").is_file() and not any(log.exists() for _, log in logs):
        return summary.Summary.read(run)
    found = summary.collect(run)
    described = applications_of(read_run(run))
    if not any(each.expectations for each in described):
        return found
    rows = {row["app"]: row for row in measure(run)[0]}
    failure = None
    if found.status != "complete":
        reasons = (each for each in found.warnings if each.startswith(_ENDED["failed"]))
        failure = next(reasons, _ENDED.get(found.status, "the run did not end"))
    verdicts = [judge(app.name, each, rows[app.name], failure) for app in described for each in app.expectations]
    judged = dataclasses.replace(found, expectations=verdicts)
    replace(run / "summary.json", judged.json())
    return judged


def _transfer_measures(requests: pl.DataFrame) -> dict[str, Any]:
    """Return the shares of datagrams that were lost or out of order, and the number of retransmitted packets of
    protocols whose retransmissions the packet log does not show. requests: an application's."""
    found: dict[str, Any] = {}
    if "datagrams" in requests.columns and (total := float(requests["datagrams"].sum())):
        names = ("lost", "reordered")
        found |= {f"datagrams_{name}_share": float(requests[f"datagrams_{name}"].sum()) / total for name in names}
    if "packets_lost" in requests.columns and requests["packets_lost"].count():
        found["retransmitted"] = requests["retransmitted"].sum()
    return found


def _migration_measures(migrations: Sequence[MigrationSummary]) -> dict[str, Any]:
    """Return the measures of an application's first successful migration."""
    for each in migrations:
        if each.failed is None and each.end_s is not None:
            lasted = [(phase.name, phase.bytes, phase.end_s - phase.begin_s) for phase in each.phases]
            found = {
                "s": each.end_s - each.begin_s,
                "gap_s": each.gap_s,
                "gap_p50_s": each.gap_p50_s,
                "transfer_s": sum(seconds for _, sent, seconds in lasted if sent),
                "restore_s": sum(seconds for name, _, seconds in lasted if name == "restore"),
                "bytes": each.bytes,
                "paid_s": each.paid_s,
                "before_s": each.before_s,
                "after_s": each.after_s,
            }
            return {f"migration_{name}": value for name, value in found.items()}
    return {}


def own_columns(own: Sequence[OwnMeasure]) -> dict[str, Any]:
    """Return the columns of measures that programs wrote, and ``units``, the units of these columns as JSON. Pure."""
    single = {f"{OWN}{each.measure}": (each.mean, each.unit) for each in own if not each.series}
    of_series = {
        f"{OWN}{each.measure}_{name}": (value, each.unit)
        for each in own
        if each.series
        for name, value in (("mean", each.mean), ("p50", each.median))
    }
    found = single | of_series
    units = {name: unit for name, (_, unit) in found.items() if unit}
    return {name: value for name, (value, _) in found.items()} | ({"units": json.dumps(units)} if units else {})


def measures(requests: pl.DataFrame, application: Description, measured_s: float) -> dict[str, float | None]:
    """Return the measures of an application. requests: its rows of ``requests.parquet``. measured_s: length of the
    measured schedule. Pure."""
    from cellbed.measure.requests import due
    from cellbed.measure.summary import on_time

    everything, requests = len(requests), due(requests)
    total, latency = len(requests), requests["latency_s"].fill_null(math.inf).to_numpy()
    good = latency[np.isfinite(latency)]
    answered = len(good)
    failed, timed_out, late = (int((requests["status"] == each).sum()) for each in ("failed", "timed-out", "late"))
    load_s = application.load_s(measured_s)
    on_time_share, goodput_bit_s = on_time(requests, application, measured_s)
    found: dict[str, float | None] = {
        "requests": float(total),
        "answered": float(answered),
        "failed": float(failed),
        "failed_share": failed / total if total else None,
        "lost_share": (total - answered - failed) / total if total else None,
        "timed_out_share": timed_out / total if total else None,
        "late_share": late / total if total else None,
        "skipped": float(everything - total),
        "throughput_per_s": answered / load_s if load_s > 0 and application.spans else None,
        "on_time_share": on_time_share,
        "goodput_bit_s": goodput_bit_s,
        "latency_mean_s": float(good.mean()) if answered else None,
    }
    for of, samples in (("latency", latency), ("good_replies", good)):
        found |= {f"{of}_{name}_s": _quantile(samples, at) for name, at in _QUANTILES.items()}
    spans = [span for span in application.spans if span.column in requests.columns]
    whole = requests.drop_nulls("residual_s") if "residual_s" in requests.columns else requests.clear()
    columns = {span.name: whole[span.column].fill_null(0.0).to_numpy() for span in spans}

    def sum_of(places: Sequence[str]) -> Samples:
        chosen = [columns[span.name] for span in spans if span.place in places]
        return np.sum(chosen, axis=0) if chosen else np.empty(0)

    for place in PLACES:
        times = sum_of([place])
        found |= {f"{place}_{name}_s": _quantile(times, _QUANTILES[name]) for name in ("p01", "p50", "p99")}
        found[f"{place}_mean_s"] = float(times.mean()) if len(times) else None
    for name in ("p50", "p99"):
        found[f"network_{name}_s"] = _quantile(sum_of(["uplink", "downlink"]), _QUANTILES[name])
        found |= {f"{PART}{part}_{name}_s": _quantile(times, _QUANTILES[name]) for part, times in columns.items()}
    # Only means add up to the latency.
    found |= {f"{PART}{part}_mean_s": float(times.mean()) if len(times) else None for part, times in columns.items()}
    return found


def _quantile(samples: Samples, at: float) -> float | None:
    """Return the percentile, as in the report of a run; None for too few samples."""
    from cellbed.measure.statistics import percentile_value, smallest_sample

    return percentile_value(samples, at) if len(samples) >= smallest_sample(at) else None
