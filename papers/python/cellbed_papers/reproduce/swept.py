"""Running the sweeps of a reproduction: traces, sweep files, trials, and the data of the publication's claims."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w

from cellbed import CellbedError
from cellbed.extension.files import DURATION, SIZE, inputs, temporary_folder, with_values, write_whole
from cellbed.extension.reports import read_tables, transfers
from cellbed.extension.traces import resolve
from cellbed.extension.trials import (
    DATASET,
    Execution,
    Plan,
    machine,
    refusal_to_nodes,
    results_in,
    runner,
    virtual_model,
)
from cellbed_papers.publication import CAPACITY, MEAN, Input, Recorded, Role, Swept, SweptPublication, Trials
from cellbed_papers.reproduce.models import fill_models, find_models, judge_inputs
from cellbed_papers.reproduce.page import Result, values_in
from cellbed_papers.reproduce.roles import mark, traces

SEGMENT = 1448
"""Bytes of a TCP segment over IPv4 with time stamps in an MTU of 1500 bytes."""
OPPORTUNITY_BITS = 12_000
"""Bits of a delivery opportunity."""


class Sweeps:
    """The sweeps of a publication's experiments; of all experiments if there are no names.

    given: the user's recordings, see `traces`. models: the user's networks, see `find_models`. repeats: maximum repeats
    of a disturbed trial. running: whether to run now, rather than only forecast. folder: folder of the results. plans:
    experiments with the plans of their sweeps. skipped: a note on each experiment without a model in virtual time.
    notes: on recordings that are not played.
    Errors: :class:`CellbedError` with every problem, OSError.
    """

    what = "trials"

    def __init__(
        self,
        publication: SweptPublication,
        names: Sequence[str],
        out: Path,
        execution: Execution,
        *,
        short: bool,
        given: Sequence[str] = (),
        models: Sequence[str] = (),
        repeats: int = 1,
        running: bool = True,
    ) -> None:
        selected = publication.select_experiments(names, "--experiment")
        chosen = [each.shorten() if short else each for each in selected if isinstance(each, Swept)]
        self._recorded = [each for each in selected if isinstance(each, Recorded)]
        name = publication.name + "-short" * short
        self._publication, self._execution, self._short, self._repeats = publication, execution, short, repeats
        self.folder, self._other = out / name, out / f"{name}-virtual"
        if execution.virtual:
            self.folder, self._other = self._other, self.folder
        self._models = find_models(publication, models)
        self._inputs = judge_inputs(publication.inputs, self._models)
        with temporary_folder() as temporary:
            place = self.folder if running else temporary
            self.played, self.notes = traces(publication, [*chosen, *self._recorded], place / "traces", given)
            plans = [(each, execution.plan(self._write(each, place), running=running)) for each in chosen]
        lacking = {each.name: describe_unpredicted(plan) if execution.virtual else "" for each, plan in plans}
        self.plans = [(each, plan) for each, plan in plans if not lacking[each.name]]
        self.skipped = [
            f"{name}: skipped, since {kinds} has no model in virtual time." for name, kinds in lacking.items() if kinds
        ]
        if not self.plans and not self._recorded:
            raise CellbedError("\n".join([*self.skipped, "run without --virtual, or choose another experiment"]))

    def _write(self, experiment: Swept, place: Path) -> Path:
        """Write the scenario and the sweep file of an experiment."""
        base = self._publication.scenario
        values = {**(self._publication.short if self._short else {}), **experiment.changes}
        recorded = self._recorded_roles(experiment)
        for role in recorded:
            values |= role.recorded
        values = {key: value for key, value in values.items() if value is not None}
        values |= fit_nodes(with_values(base, values)["nodes"], *machine())
        if not self._execution.virtual:
            wanted = values.get("transport.congestion_control", base["transport"]["congestion_control"])
            values["transport.congestion_control"] = "reno" if refusal_to_nodes(wanted) else wanted
        sweep: dict[str, Any] = {
            "name": experiment.name,
            "scenario": f"{experiment.name}-scenario.toml",
            "repetitions": experiment.repetitions
            if experiment.varies or recorded or not self._execution.virtual
            else 1,
            "design": experiment.design,
            "packet_logs": experiment.packet_logs,
            "factors": experiment.factors if self._execution.virtual else experiment.real or experiment.factors,
        }
        written = (with_values(dict(base), values), sweep)
        scenario, sweep = (fill_models(self._fill_traces(each), self._models) for each in written)
        if experiment.worst:
            sweep["vary_start"] = False
            if self._short:
                start = _find_poorest(scenario["links"]["mobile"]["up"], DURATION.parse(scenario["duration"]))
                scenario = with_values(scenario, {"links.mobile.start": f"{start} ms"})
        place.mkdir(parents=True, exist_ok=True)
        file = place / f"{experiment.name}.toml"
        for path, content in ((place / sweep["scenario"], scenario), (file, sweep)):
            write_whole(path, partial(Path.write_text, data=tomli_w.dumps(content), encoding="utf-8"))
        return file

    def _recorded_roles(self, experiment: Swept) -> list[Role]:
        """Return the roles of an experiment whose downlink is a recording."""
        recorded = {each.name for each in self.played if not each.stand_in}
        marks = {role.name: mark(f"{role.name}.down") in repr(experiment) for role in self._publication.roles}
        return [each for each in self._publication.roles if marks[each.name] and f"{each.name}.down" in recorded]

    def _fill_traces(self, content: dict[str, Any]) -> Any:
        """Return a scenario or sweep with the roles' traces filled in."""
        text = json.dumps(content)
        for each, trace in self.played.items():
            text = text.replace(json.dumps(mark(each.name)), json.dumps(trace))
        return json.loads(text)

    def forecast(self) -> list[str]:
        """Return lines that describe the work of `run`."""
        lines = []
        for each, plan in self.plans:
            missing = runner.missing(plan, results_in(self.folder / each.name), self._repeats)
            lines.append(f"{each.name}: {len(plan.points)} points, {len(missing)} trials to run")
        lines.append(f"in all, with shared trials run once: {runner.words(self.seconds())}")
        used = [f"{each.name}: {each.note}" for each in (*self.played, *self._inputs)]
        return lines + self.skipped + used + self.notes

    def seconds(self) -> float:
        """Estimate the remaining time of the experiments; a trial shared by several experiments counts once."""
        left, seen = 0.0, set[str]()
        for each, plan in self.plans:
            results = results_in(self.folder / each.name)
            around = runner.around_s(plan, results) or [runner.AROUND_S]
            ahead = [trial for trial in runner.missing(plan, results, self._repeats) if trial.key not in seen]
            seen |= set(plan.distinct)
            planned = sum(trial.planned_s + sum(around) / len(around) for trial in ahead)
            left += planned / runner.processors_for(plan)
        return left

    @property
    def _folders(self) -> list[Path]:
        return [self.folder / each.name for each, _ in self.plans]

    def run(self, listener: runner.Listener) -> int:
        """Run missing trials, and return how many failed; missing trials of an experiment that cannot run too. Raises
        ``KeyboardInterrupt`` after the running trials have ended. Errors: OSError."""
        failed, folders = 0, self._folders
        for note in self.skipped:
            listener.note(note)
        for (each, plan), folder in zip(self.plans, folders, strict=True):
            listener.note(f"{each.name}: {each.title}; in all {runner.words(self.seconds())} left")
            try:
                account = self._execution.run(plan, folder, listener, self._repeats, folders)
            except CellbedError as error:
                listener.note(f"{each.name} has not run: {error}")
                failed += len(runner.missing(plan, results_in(folder), self._repeats))
                continue
            if account.interrupted:
                raise KeyboardInterrupt
            failed += account.failed
        return failed

    def result(self, command: str) -> Result:
        """Return the findings of finished trials, also of earlier calls. command: command used."""
        lacking: dict[str, list[str]] = {}
        for each, plan in self.plans:
            for note in deviations(self._publication, each, plan.trials[0].tables):
                lacking.setdefault(note, []).append(each.name)
        notes = [*(f"{', '.join(names)}: {note}" for note, names in lacking.items()), *self.skipped, *self.notes]
        if not self._execution.limits:
            notes.append("CPU and memory of the nodes were not limited (--no-limits).")
        data = {each.name: measure_rates(self.played, each.traces) for each in self._recorded}
        swept = [each.name for each in self._publication.experiments if isinstance(each, Swept)]
        data |= {name: collect(self.folder / name) for name in swept if (self.folder / name / DATASET).is_file()}
        if absent := [name for name in swept if name not in data]:
            notes.append(f"Not run yet, and without claims here: {', '.join(absent)}.")
        return Result(
            self._publication,
            data,
            [*self.played, *self._inputs],
            self._short,
            command,
            notes=notes,
            clock="virtual" if self._execution.virtual else "real",
            other=values_in(self._other),
        )


def fit_nodes(nodes: Mapping[str, Any], processors: int, memory: int) -> dict[str, Any]:
    """Return the reduced values of nodes that exceed the machine, by dotted key. memory: the machine's, MiB."""
    found: dict[str, Any] = {}
    for name, node in nodes.items():
        if node["cpus"] > processors:
            found[f"nodes.{name}.cpus"] = float(processors)
        if SIZE.parse(node["memory"]) > memory << 20:
            found[f"nodes.{name}.memory"] = f"{memory} MiB"
    return found


def describe_unpredicted(plan: Plan) -> str:
    """Return the kinds of a plan's applications without a model in virtual time, as text; empty if there are none."""
    kinds = {kind for trial in plan.trials for kind in trial.applications.values()}
    return ", ".join(f"kind {kind}" for kind in sorted(kinds) if virtual_model(kind) is None)


def deviations(publication: SweptPublication, experiment: Swept, scenario: Mapping[str, Any]) -> list[str]:
    """Return deviations due to limits of this machine: TCP and nodes that differ from the experiment's."""
    key = "transport.congestion_control"
    varied = any(key in (factor.get("key"), *factor.get("keys", ())) for factor in experiment.factors.values())
    asked = with_values(publication.scenario, experiment.changes)
    wanted, control = (each["transport"]["congestion_control"] for each in (asked, scenario))
    found = []
    if control != wanted and not varied:
        found.append(f"TCP {control} in place of {wanted}, which this machine refuses nodes: see `cellbed doctor`.")
    for name, node in asked["nodes"].items():
        for key, unit in (("cpus", " processors"), ("memory", "")):
            if (given := scenario["nodes"][name][key]) != node[key]:
                values = [f"{each:g}" if isinstance(each, float) else each for each in (given, node[key])]
                found.append(f"{name}: {values[0]}{unit}, all of this machine's, in place of {values[1]}.")
    return found


def measure_rates(played: Mapping[Input, str], traces: Sequence[str], parts: int = 5) -> Trials:
    """Return rates of traces, Mbit/s: mean and percentiles of the seconds, and the whole trace's maximum. parts: equal
    parts of a trace, each a repetition.

    Errors: :class:`CellbedError`, OSError.
    """
    import numpy as np
    import polars as pl

    rows = []
    for point, (each, trace) in enumerate(played.items()):
        if mark(each.name) not in traces:
            continue
        stamps = np.loadtxt(inputs.check(resolve(trace, Path()).path), comments="#", ndmin=1)
        rates = np.histogram(stamps, np.arange(0, stamps[-1] + 1, 1000))[0] * OPPORTUNITY_BITS / 1e6
        for repetition, part in enumerate(np.array_split(rates, parts), 1):
            if len(part):
                least, most = np.percentile(part, (10, 90))
                row = {"point": point, "trace": each.name, "repetition": repetition, "status": "complete"}
                rows.append(row | {"mean": part.mean(), "most": rates.max(), "p10": least, "p90": most})
    return Trials(pl.DataFrame(rows))


def _find_poorest(trace: str, duration_ns: float) -> int:
    """Return the begin of a trial, ms, with the poorest part of the trace in the trial's last two thirds."""
    import numpy as np

    path = resolve(trace, Path()).path
    stamps = np.loadtxt(inputs.check(path), comments="#", ndmin=1)
    length = int(duration_ns / 1e6)
    poor = 2 * length // 3
    begins = np.arange(0, max(1, int(stamps[-1]) - poor), 500)
    counts = np.searchsorted(stamps, begins + poor) - np.searchsorted(stamps, begins)
    return max(0, int(begins[counts.argmin()]) - (length - poor))


def collect(folder: Path) -> Trials:
    """Return the trials in the folder of a sweep, with measures of their requests.

    Parts of applications, such as the objects of a page, are left out. Their names contain a colon.
    """
    import polars as pl

    table = pl.read_parquet(inputs.check(folder / DATASET)).filter(~pl.col("app").str.contains(":"))
    rows = [_measure_requests(folder / each, app) for each, app in table.select("folder", "app").iter_rows()]
    more = pl.DataFrame(rows, infer_schema_length=None) if rows else pl.DataFrame()
    return Trials(pl.concat([table, more], how="horizontal"), folder=folder)


def _measure_requests(run_folder: Path, app: str) -> dict[str, float | None]:
    """Return the capacity of the downlink, the mean round trip of the sampled flows, and means of parts, size, packets
    and window of the requests of a trial."""
    import polars as pl

    found: dict[str, float | None] = {}
    if (run_folder / "flows.parquet").is_file():
        sampled = transfers(read_tables(run_folder, "flows")[0].filter(pl.col("app") == app))
        found["round_trip_mean_s"] = _float(sampled["rtt_s"].mean())
    try:
        links = pl.read_parquet(inputs.check(run_folder / "links.parquet"))
        down = links.filter(direction="mobile-0.downlink")
        used = down.filter(pl.col("used_mbit_s") > 0, pl.col("time_s") >= 0)["time_s"]
        found[CAPACITY] = _float(
            down.filter(pl.col("time_s").is_between(used.min(), used.max()))["capacity_mbit_s"].mean()
        )
        requests = pl.read_parquet(inputs.check(run_folder / "requests.parquet"))
    except OSError:
        return {"bytes_up_p50": None, **found}
    requests = requests.filter(pl.col("status") != "skipped", pl.col("app") == app)
    whole = requests.drop_nulls("residual_s")
    parts = [name for name in requests.columns if name.startswith("part_")]
    found |= {MEAN + name.removeprefix("part_"): _float(whole[name].fill_null(0.0).mean()) for name in parts}
    packets = (requests["bytes_up"] / SEGMENT).ceil()
    window = requests["tcp"].struct.field("cwnd") if "tcp" in requests.columns else requests["cwnd"]
    return found | {
        "latency_max_s": _float(requests["latency_s"].max()),
        "first_frames_s": _float(requests.sort("intended_s").filter(status="ok")["latency_s"].head(5).mean()),
        "bytes_up_p50": _float(requests["bytes_up"].median()),
        "packets_p50": _float(packets.median()),
        "packets_mean": _float(packets.mean()),
        "cwnd_p50": _float(window.median()),
    }


def _float(value: Any) -> float | None:
    return None if value is None else float(value)
