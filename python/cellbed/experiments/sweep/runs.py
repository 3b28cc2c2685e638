"""Runs of a scenario as trials of a sweep, measured on this machine or predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.archive import TraceSource
from cellbed.experiments.sweep import runner
from cellbed.experiments.sweep.design import OFFSETS_NS
from cellbed.experiments.sweep.kinds import Content, Input, Lacks, TrialKind, content_hash
from cellbed.experiments.sweep.virtual import VirtualPool, simulate
from cellbed.measure import rows
from cellbed.scenario import Scenario
from cellbed.scenario.capacities import RateSeries
from cellbed.scenario.expectations import MEASURES, expectations
from cellbed.scenario.live import LiveLink
from cellbed.scenario.load_dependent import Replay
from cellbed.scenario.nodes import AnyMobileLink, inherits
from cellbed.scenario.problems import Problem
from cellbed.scenario.reader import SCENARIO, TablesError, as_stated
from cellbed.scenario.recorded import RecordedLink
from cellbed.scenario.stage_tables import Series
from cellbed.scenario.table import Path as KeyPath
from cellbed.scenario.table import Table
from cellbed.support.errors import CellbedError
from cellbed.support.worker_pool import WorkerPool, processors

if TYPE_CHECKING:
    from cellbed.experiments.sweep.file import SweepFile
    from cellbed.experiments.sweep.library import Execution
    from cellbed.experiments.sweep.trials import Plan
    from cellbed.measure.factors import Study
    from cellbed.report.plot import Drawing


class Runs(TrialKind):
    """Runs of a scenario."""

    file = SCENARIO
    measures = MEASURES

    def __init__(self, sweep: SweepFile) -> None:
        super().__init__(sweep)
        # By nodes, programs and live links: the search for images and machines takes time.
        self._lacking: dict[tuple[str, str, str], list[Problem]] = {}
        self._live: LiveLink | None = None

    def check(self, data: dict[str, Any], folder: Path, lacks: Lacks) -> Content:
        stated = as_stated(data, folder)
        scenario = stated.complete()
        if not scenario.applications:
            raise TablesError([Problem((), "the scenario has no application: add [workload] or [apps.NAME]")])
        self._live = self._live or scenario.live
        machines = (repr(scenario.nodes), repr(list(scenario.programs())), repr(scenario.live))
        if machines not in self._lacking:
            self._lacking[machines] = lacks(scenario)
        if lacking := self._lacking[machines]:
            raise TablesError(lacking)
        starts = list(_starts(scenario, data, self.sweep.varied_keys))
        known = [_start_of(path) for path, _ in scenario.mobile_links()]
        right = " or ".join(known) or "false, since there is no mobile link"
        unknown: list[tuple[KeyPath, str]] = [
            (("vary_start",), f"'{key}' is not the start of a mobile link: write {right}")
            for key in self.sweep.varied_keys or ()
            if key not in known
        ]
        of_scenario = scenario.expectations()
        of_sweep, problems = expectations(self.sweep.expect, scenario.deadlines)
        return Content(
            stated=stated.stated(),
            inputs=inputs_of(scenario, data, folder),
            applications={name: each.kind for name, each in scenario.applications.items()},
            expectations={app: (*of_scenario.get(app, ()), *of_sweep.get(app, ())) for app in (of_scenario | of_sweep)},
            misfits=[*unknown, *((("expect", *path), text) for path, text in problems)],
            starts=starts,
            notes=[
                f"{key}: the repetitions have the same offset: what the link plays ends with the run, or before"
                for key, _, most in starts
                if most <= 0
            ],
            cpus=sum(group.cpus * group.count for group in scenario.nodes.values() if group.backend.uses_this_machine),
            planned_s=(scenario.duration + max(each.drain for each in scenario.applications.values())) / 1e9,
        )

    def executor(self, execution: Execution, plan: Plan, held: int | None) -> AbstractContextManager[runner.Executor]:
        limits, profile = execution.limits, execution.profile
        if not execution.virtual:
            jobs = execution.jobs or (runner.processors_for(plan) if self._live is None else 1)
            if jobs > 1 and self._live is not None:
                raise CellbedError(f"trials over '{self._live.interface}' run one at a time: leave out --jobs")
            return nullcontext(runner.LocalPool(jobs, limits=limits, held=held))
        jobs, measured = execution.jobs or processors(), None if profile is None else str(profile.absolute())
        pool = WorkerPool(jobs, CellbedError("a process of the sweep was killed: run the same command again"))
        return VirtualPool(pool, jobs, partial(simulate, limits=bool(limits), profile=measured))

    def rows(self, folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
        return rows.measure(folder)

    def discard_logs(self, folder: Path) -> None:
        from cellbed.measure.packets import log_files

        log = folder / "raw" / "packets.bin"
        for file in {log, *(each for _, each in log_files(log))}:
            file.unlink(missing_ok=True)

    def usual_measures(self, study: Study) -> tuple[str, ...]:
        from cellbed.report.sweep import usual_measures

        return usual_measures(study)

    def write_page(self, folder: Path) -> None:
        from cellbed.measure.rows import collect
        from cellbed.report import html

        if (folder / "run.json").is_file():
            if not (folder / "summary.json").is_file():
                collect(folder)
            html.write(folder)

    def drawings(self, study: Study, folder: Path) -> Mapping[str, Mapping[str, Drawing]]:
        from cellbed.report import flows

        return flows.sweep_drawings(study, folder)


_MOBILE = "links.mobile.start"


def _start_of(path: KeyPath) -> str:
    """Return the key of the start of a mobile link."""
    return ".".join((*map(str, path), "start"))


def _starts(scenario: Scenario, data: dict[str, Any], wanted: list[str] | None) -> Iterator[tuple[str, int, int]]:
    """Yield the starts of mobile links that repetitions vary: key, value, and maximum offset, ns. wanted: keys of the
    sweep file; None: all links with traces."""
    for path, link in scenario.mobile_links():
        key = _start_of(path)
        if _has_traces(link) if wanted is None else key in wanted or (_MOBILE in wanted and _follows(path, data)):
            end = _end(link)
            yield key, link.start, OFFSETS_NS if end is None else end - scenario.duration - link.start


def _follows(path: KeyPath, data: dict[str, Any]) -> bool:
    """Return whether the link of a group inherits the start of [links.mobile]."""
    if path[0] != "nodes":
        return False
    link = data["nodes"][path[1]].get("link")
    return inherits(data.get("links", {}).get("mobile"), link) and "start" not in link


def _has_traces(link: AnyMobileLink) -> bool:
    return isinstance(link, RecordedLink) or any(
        isinstance(each, TraceSource | Replay) for _, each in link.capacities()
    )


def _end(link: AnyMobileLink) -> int | None:
    """Return the earliest end of a link's unlooped traces, ns; None without an unlooped trace."""
    ends = [_last(each) for each in _inside(link) if isinstance(each, Series)]
    if not link.loop:
        played = [link.up, link.down] if isinstance(link, RecordedLink) else [each for _, each in link.capacities()]
        for each in played:
            trace = each if isinstance(each, TraceSource) else getattr(each, "heavy", None)
            ends += [trace.trace.duration_ns] if trace is not None else []
    return min((end for end in ends if end is not None), default=None)


def _last(series: Series) -> int | None:
    return None if isinstance(series, RateSeries) and series.period is not None else series.pairs[-1][0]


_SYSTEM = tuple(Path(each) for each in ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr"))
"""Files below these folders belong to the machine, not to the scenario."""


def inputs_of(scenario: Scenario, data: dict[str, Any], folder: Path) -> tuple[Input, ...]:
    """Return the files and folders that a scenario names: traces, recordings, models, files to copy, and files of this
    machine with an absolute path in a command."""
    found: dict[Path, str] = {}
    for each in _inside(scenario):
        if isinstance(each, Path):
            found.setdefault(each, str(each))
        elif isinstance(getattr(each, "path", None), Path):
            found[each.path] = each.name
    for application in scenario.applications.values():
        for _, role in application.roles():
            shared = scenario.nodes[role.on].backend.shares_files
            for word in (role.command or ()) if shared else ():
                path = Path(word)
                if path.is_absolute() and path.is_file() and not any(path.is_relative_to(it) for it in _SYSTEM):
                    found.setdefault(path, word)
    for text in _texts(data):
        # Keep a path in its written form.
        if len(text) < 4096 and "\0" not in text and (path := (folder / text).absolute()) in found:
            found[path] = text
    try:
        return tuple(Input(name, path, content_hash(path)) for path, name in found.items())
    except OSError as error:
        raise CellbedError(f"{error.filename}: cannot read this input of the sweep: {error.strerror}") from None


def _inside(value: Any) -> Iterator[Any]:
    """Yield a value of a scenario and all values inside."""
    yield value
    inner: Any = ()
    if isinstance(value, Table):
        inner = [getattr(value, name) for name in type(value).model_fields]
    elif isinstance(value, Mapping):
        inner = [*value, *value.values()]
    elif isinstance(value, list | tuple):
        inner = value
    elif is_dataclass(value) and not isinstance(getattr(value, "path", None), Path):
        inner = [getattr(value, each.name) for each in fields(value)]
    for each in inner:
        if not isinstance(each, str | int | float | None):
            yield from _inside(each)


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for key, inner in value.items():
                yield key
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)
