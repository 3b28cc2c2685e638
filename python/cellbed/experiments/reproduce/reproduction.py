"""Running a reproduction: traces, the files of its sweeps, their trials, and the data of its claims."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w

from cellbed.archive import replayable
from cellbed.archive.catalogue import resolve
from cellbed.archive.generation.model import Order
from cellbed.archive.generation.series import write
from cellbed.archive.series import ENDINGS
from cellbed.archive.store import open_archive
from cellbed.experiments.reproduce.publication import (
    MEAN,
    SEGMENT,
    Input,
    Publication,
    Role,
    Swept,
    SweptPublication,
    Trials,
)
from cellbed.experiments.sweep import runner, trials
from cellbed.experiments.sweep.library import Execution
from cellbed.experiments.sweep.store import DATASET, results_in
from cellbed.scenario.reader import with_values
from cellbed.support import inputs
from cellbed.support.errors import CellbedError
from cellbed.support.units import DURATION, SIZE
from cellbed.support.whole_files import write_whole
from cellbed.testbed.testbed import machine

_TRACE = "{trace:"


@dataclass(frozen=True, slots=True)
class Played:
    """A trace that stands for a direction of a role. text: in scenarios. note: what it is, for people; stand_in:
    whether it is ours."""

    role: str
    way: str
    text: str
    note: str
    stand_in: bool

    @property
    def input(self) -> Input:
        """For the page."""
        return Input(f"{self.role}.{self.way}", self.note, self.stand_in)


@dataclass(frozen=True, slots=True)
class Prepared:
    """An experiment whose sweep can be run. folder: of the sweep."""

    experiment: Swept
    plan: trials.Plan
    folder: Path


def congestion_control(wanted: str) -> str:
    """Return the congestion control of nodes: the wanted one, or Reno where only the first network namespace may have
    that (net/ipv4/tcp_cong.c, ``tcp_set_default_congestion_control``)."""
    names = ("tcp_allowed_congestion_control", "tcp_congestion_control")
    try:
        allowed = [word for each in names for word in Path("/proc/sys/net/ipv4", each).read_text("ascii").split()]
    except OSError:
        return wanted
    return wanted if wanted in allowed else "reno"


def fitting(nodes: Mapping[str, Any], processors: int, memory: int) -> dict[str, Any]:
    """Return what nodes that are larger than a machine get, by dotted key. memory: of the machine, MiB."""
    found: dict[str, Any] = {}
    for name, node in nodes.items():
        if node["cpus"] > processors:
            found[f"nodes.{name}.cpus"] = float(processors)
        if SIZE.parse(node["memory"]) > memory << 20:
            found[f"nodes.{name}.memory"] = f"{memory} MiB"
    return found


def deviations(publication: SweptPublication, scenario: Mapping[str, Any]) -> list[str]:
    """Return what this machine lacks: TCP and nodes of a scenario that differ from the publication's."""
    wanted, control = (each["transport"]["congestion_control"] for each in (publication.scenario, scenario))
    found = []
    if control != wanted:
        found.append(f"TCP {control} in place of {wanted}, which this machine refuses nodes: see `cellbed doctor`.")
    for name, node in publication.scenario["nodes"].items():
        for key, unit in (("cpus", " processors"), ("memory", "")):
            if (given := scenario["nodes"][name][key]) != node[key]:
                values = [f"{each:g}" if isinstance(each, float) else each for each in (given, node[key])]
                found.append(f"{name}: {values[0]}{unit}, all of this machine's, in place of {values[1]}.")
    return found


def traces(publication: SweptPublication, chosen: Sequence[str], folder: Path, given: Path | None) -> list[Played]:
    """Return the trace of each direction of each role in the chosen experiments: a file in the folder `given`, else of
    the user's archive, else a stand-in, which is written to `folder`. Errors: :class:`CellbedError`, OSError."""
    files = {}
    if given is not None:
        if not given.is_dir():
            raise CellbedError(f"--traces {given}: not a folder: give the one with the recordings' files")
        files = {_plain(path.name): path for path in sorted(given.iterdir()) if path.is_file()}
    found = []
    wanted = repr([each for each in publication.experiments if each.name in chosen]) + repr(publication.scenario)
    for role in publication.roles:
        if f"{_TRACE}{role.name}." not in wanted:
            continue
        for way in ENDINGS:
            names = [_plain(f"{stem}.{way}") for stem in role.files]
            path = next((files[name] for name in names if name in files), None)
            if path is not None:
                _ = resolve(str(path.absolute()), Path()).trace
                found.append(Played(role.name, way, str(path.absolute()), f"{path.name} (given)", False))
                continue
            archive = open_archive()
            if archive.has(role.entry) and ENDINGS[way] in archive.entry(role.entry).parts:
                text = f"{role.entry}.{way}"
                found.append(Played(role.name, way, text, f"{text} (archive)", False))
            else:
                path = _stand_in(role, way, folder)
                found.append(Played(role.name, way, str(path.absolute()), f"stand-in: {role.stand_in}", True))
    return found


def _plain(name: str) -> str:
    return name.casefold().replace("_", "-")


def _stand_in(role: Role, way: str, folder: Path) -> Path:
    path = folder / f"{role.name}.{way}"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = ENDINGS[way]
        generated = role.model.make(Order(role.model.name, 1, role.model.duration_ns))[part]
        with tempfile.TemporaryDirectory() as temporary:
            made = write(generated, Path(temporary) / "series.parquet", part, lambda part, share: None)
            write_whole(path, partial(replayable.write_text, made.series))
    return path


def prepare(
    publication: SweptPublication,
    chosen: Sequence[str],
    place: Path,
    folder: Path,
    played: Sequence[Played],
    execution: Execution,
    *,
    short: bool,
    running: bool = True,
) -> list[Prepared]:
    """Write the scenario and sweep file of each chosen experiment into `place`, and plan its sweep, whose folder is in
    `folder`. Errors: :class:`CellbedError` with every problem."""
    places = {f"{_TRACE}{each.role}.{each.way}}}": each.text for each in played}
    found = []
    for experiment in publication.experiments:
        if experiment.name not in chosen or not isinstance(experiment, Swept):
            continue
        if short:
            experiment = experiment.shortened()
        values = {**(publication.short if short else {}), **experiment.changes}
        values |= fitting(publication.scenario["nodes"], *machine())
        if not execution.virtual:
            control = congestion_control(publication.scenario["transport"]["congestion_control"])
            values["transport.congestion_control"] = control
        scenario = with_values(dict(publication.scenario), values)
        sweep: dict[str, Any] = {
            "name": experiment.name,
            "scenario": f"{experiment.name}-scenario.toml",
            "repetitions": experiment.repetitions,
            "design": experiment.design,
            "factors": experiment.factors,
        }
        scenario, sweep = _filled(scenario, places), _filled(sweep, places)
        if short and experiment.worst is not None:
            start = _poorest(scenario["links"]["mobile"]["up"], DURATION.parse(scenario["duration"]))
            scenario = with_values(scenario, {"links.mobile.start": f"{start} ms"})
            sweep["vary_start"] = False
        place.mkdir(parents=True, exist_ok=True)
        file = place / f"{experiment.name}.toml"
        for path, content in ((place / sweep["scenario"], scenario), (file, sweep)):
            text = tomli_w.dumps(content)
            write_whole(path, partial(_write, text=text))
        found.append(Prepared(experiment, execution.plan(file, running=running), folder / experiment.name))
    return found


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _filled(value: Any, places: Mapping[str, str]) -> Any:
    match value:
        case str():
            return places.get(value, value)
        case Mapping():
            return {key: _filled(inner, places) for key, inner in value.items()}
        case list():
            return [_filled(inner, places) for inner in value]
        case _:
            return value


def _poorest(trace: str, duration_ns: float) -> int:
    """When a trial must begin, ms, to have the poorest two thirds of its time in its end."""
    import numpy as np

    path = resolve(trace, Path()).path
    stamps = np.loadtxt(inputs.checked(path), comments="#", ndmin=1)
    length = int(duration_ns / 1e6)
    poor = 2 * length // 3
    begins = np.arange(0, max(1, int(stamps[-1]) - poor), 500)
    counts = np.searchsorted(stamps, begins + poor) - np.searchsorted(stamps, begins)
    return max(0, int(begins[counts.argmin()]) - (length - poor))


def seconds(prepared: Sequence[Prepared], repeats: int) -> float:
    """Estimate how long the experiments still take; trials that several share are counted once."""
    left, seen = 0.0, set[str]()
    for each in prepared:
        results = results_in(each.folder)
        around = runner.around_s(each.plan, results) or [runner.AROUND_S]
        ahead = [trial for trial in runner.missing(each.plan, results, repeats) if trial.key not in seen]
        seen |= set(each.plan.distinct)
        left += sum(trial.planned_s + sum(around) / len(around) for trial in ahead) / runner.processors_for(each.plan)
    return left


def collect(folder: Path) -> Trials:
    """Return the trials in the folder of a sweep, with what claims need of their requests."""
    import polars as pl

    table = pl.read_parquet(inputs.checked(folder / DATASET))
    rows = [_of_requests(folder / each) for each in table["folder"]]
    more = pl.DataFrame(rows, infer_schema_length=None) if rows else pl.DataFrame()
    return Trials(pl.concat([table, more], how="horizontal"))


def _of_requests(run_folder: Path) -> dict[str, float | None]:
    """Means of parts, and size, packets and congestion window of the requests of a trial."""
    import polars as pl

    try:
        requests = pl.read_parquet(inputs.checked(run_folder / "requests.parquet"))
    except OSError:
        return {"bytes_up_p50": None}
    requests = requests.filter(pl.col("status") != "skipped")
    whole = requests.drop_nulls("residual_s")
    parts = [name for name in requests.columns if name.startswith("part_")]
    found: dict[str, float | None] = {
        MEAN + name.removeprefix("part_"): _float(whole[name].fill_null(0.0).mean()) for name in parts
    }
    packets = (requests["bytes_up"] / SEGMENT).ceil()
    window = requests["tcp"].struct.field("cwnd") if "tcp" in requests.columns else requests["cwnd"]
    return found | {
        "bytes_up_p50": _float(requests["bytes_up"].median()),
        "packets_p50": _float(packets.median()),
        "packets_mean": _float(packets.mean()),
        "cwnd_p50": _float(window.median()),
    }


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def check_names(publication: Publication, chosen: Sequence[str], option: str = "--experiment") -> list[str]:
    """Return the experiments that a user chose, in their order; all by default. Errors: :class:`CellbedError`."""
    known = {each.name.casefold(): each.name for each in publication.experiments}
    for name in chosen:
        if name.casefold() not in known:
            raise CellbedError(f"{option} {name}: not one of {', '.join(known.values())}")
    return [name for key, name in known.items() if not chosen or key in {each.casefold() for each in chosen}]
