"""Sweeps: the file, points, seeds and keys of trials, and what a pool does with them. No run is started here."""

import json
import math
import os
import shutil
import subprocess
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

import cellbed as library
from any_text import many
from cellbed.experiments.child import failure
from cellbed.experiments.sweep import runner
from cellbed.experiments.sweep.design import offset_of, points, seed_of, strata
from cellbed.experiments.sweep.file import json_schema, parse_sweep
from cellbed.experiments.sweep.runner import Outcome, Progress, Runner, Width
from cellbed.experiments.sweep.store import Result, Store
from cellbed.experiments.sweep.trials import Plan, Trial, plan
from cellbed.measure.rows import MEASURES, collect, measure
from cellbed.scenario import Scenario, ScenarioError, parse
from cellbed.support.errors import CellbedError
from cellbed.support.units import DURATION
from in_process import cellbed
from predicted_runs import make_run
from run_commands import command
from scenario_text import GOOD, NODES

FACTORS = {"rate": {"key": "workload.rate", "levels": ["2 /s", "5 /s", "10 /s"]}}


def sweep_text(factors: dict[str, Any] | None = None, **keys: Any) -> str:
    head = {"name": "s", "scenario": "base.toml", "repetitions": 2, **keys}
    return tomli_w.dumps({**head, "factors": FACTORS if factors is None else factors})


def write_sweep(folder: Path, text: str | None = None, scenario: str = GOOD) -> Path:
    (folder / "base.toml").write_text(scenario)
    path = folder / "sweep.toml"
    path.write_text(text or sweep_text())
    return path


def keys_of(found: Plan) -> dict[tuple[str, int], str]:
    return {(str(trial.point), trial.repetition): trial.key for trial in found.trials}


LEVELS = st.lists(st.integers(1, 99), min_size=1, max_size=4, unique=True)


@many
@given(st.lists(LEVELS, max_size=4), st.sampled_from(["factorial", "one-at-a-time"]))
def test_designs_have_the_points_of_their_name(levels: list[list[int]], design: str) -> None:
    factors = {f"f{index}": {"levels": each} for index, each in enumerate(levels)}
    found = points(parse_sweep(sweep_text(factors, design=design), "sweep.toml"))
    values = [tuple(point.changes.values()) for point in found]
    assert len(set(values)) == len(values)
    assert [point.number for point in found] == list(range(len(found)))
    base = tuple(each[0] for each in levels)
    if design == "factorial":
        assert len(values) == math.prod(map(len, levels))
        assert set(values) == {*np.ndindex(*map(len, levels))} or levels
    else:
        assert values[0] == base
        assert len(values) == 1 + sum(len(each) - 1 for each in levels)
        assert all(sum(a != b for a, b in zip(value, base, strict=True)) == 1 for value in values[1:])


@given(st.integers(0, 4), st.integers(1, 40), st.integers(0, 2**40))
def test_a_latin_hypercube_has_each_factor_once_in_each_stratum(factors: int, count: int, seed: int) -> None:
    drawn = strata(factors, count, seed)
    assert drawn == strata(factors, count, seed)
    for column in zip(*drawn, strict=True):
        assert sorted(int(at * count) for at in column) == list(range(count))


@many
@given(st.integers(2, 30), st.integers(0, 2**40))
def test_ranges_of_a_latin_hypercube_are_covered_evenly_in_their_units(count: int, seed: int) -> None:
    factors = {
        "delay": {"range": ["10 ms", "80 ms"]},
        "limit": {"range": ["10 kB", "1 MB"], "scale": "logarithmic"},
        "share": {"range": [0.0, 0.5]},
        "count": {"range": [1, 4]},
        "queue": {"levels": ["a", "b"]},
    }
    text = sweep_text(factors, design={"kind": "latin-hypercube", "points": count}, seed=seed)
    found = points(parse_sweep(text, "sweep.toml"))
    assert len(found) == count
    delays = sorted(DURATION.parse(point.labels["delay"]) for point in found)
    strata_of = [(delay - 10e6) / 70e6 * count for delay in delays]
    assert all(place - 0.01 <= at <= place + 1.01 for place, at in enumerate(strata_of)), "but for the rounding"
    assert all(0 <= point.changes["share"] <= 0.5 for point in found)
    assert {point.changes["count"] for point in found} <= {1, 2, 3, 4}
    halves = Counter(point.changes["queue"] for point in found)
    assert abs(halves["a"] - halves["b"]) <= 1


@given(st.integers(0, 2**62), st.integers(1, 1000))
def test_seeds_and_offsets_depend_on_the_repetition_alone(seed: int, repetition: int) -> None:
    assert seed_of(seed, repetition) == seed_of(seed, repetition) != seed_of(seed, repetition + 1)
    assert 0 <= offset_of(seed, repetition) < 36_000 * 10**9
    assert offset_of(seed, repetition) % 10**6 == 0
    assert offset_of(seed, repetition, 0) == offset_of(seed, repetition, -5) == 0


def test_points_are_paired_and_keys_stay(tmp_path: Path) -> None:
    traced = GOOD.replace('up = "12 Mbit/s"', 'up = "lte-suburban.up"').replace('start = "0 s"', 'start = "1 s"')
    factors = FACTORS | {"delay": {"key": "links.mobile.base_delay", "levels": {"near": "1 ms", "far": "50 ms"}}}
    file = write_sweep(tmp_path, sweep_text(factors), traced)
    first = plan(file)
    assert len(first.trials) == len(first.distinct) == 12
    for repetition in (1, 2):
        assert len({(it.seed, it.offset_ns) for it in first.trials if it.repetition == repetition}) == 1
    assert len({it.seed for it in first.trials}) == len({it.offset_ns for it in first.trials}) == 2
    assert [it.repetition for it in first.trials] == [1] * 6 + [2] * 6, "repetitions are blocks"
    for trial in first.trials:
        scenario = parse(trial.text, source="trial", folder=tmp_path)
        assert scenario.seed == trial.seed
        assert scenario.links.mobile.start == 10**9 + (trial.offset_ns or 0)
    assert keys_of(plan(file)) == keys_of(first)
    assert [it.key for it in plan(file).trials] == [it.key for it in first.trials]

    # A level, a repetition and another base of the sweep's text leave the keys and the order of what was there.
    factors["rate"] = {"key": "workload.rate", "levels": ["1 /s", "2 /s", "5 /s", "10 /s"]}
    file.write_text(sweep_text(factors, repetitions=3))
    more = plan(file)
    assert keys_of(first).items() < keys_of(more).items()
    assert len(more.trials) == 24
    old = [it.key for it in first.trials]
    assert [it.key for it in more.trials if it.key in old] == old

    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for path in (file, tmp_path / "base.toml"):
        shutil.copy(path, moved)
    assert keys_of(plan(moved / "sweep.toml")) == keys_of(more)


def test_keys_do_not_depend_on_defaults(tmp_path: Path) -> None:
    # As in every version before and after it: else a sweep could not be continued after an upgrade.
    assert plan(write_sweep(tmp_path)).trials[0].key == "34ebb8ac63148daf"

    class Later(Scenario):
        new: int = 7

    data, context = tomllib.loads(GOOD), {"folder": tmp_path}
    later = Later.model_validate(data, context=context)
    assert later.stated() == Scenario.model_validate(data, context=context).stated()
    assert later.resolved()["new"] == 7


def test_another_content_of_an_input_makes_another_key(tmp_path: Path) -> None:
    (tmp_path / "walk.up").write_text("1\n2\n5\n")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("one")
    program = tmp_path / "serve.sh"
    program.write_text("#!/bin/sh\n")
    scenario = (
        GOOD.replace('up = "12 Mbit/s"', 'up = "walk.up"').split("[workload]")[0]
        + f"""
[apps.shop]
kind = "http"
url = "http://{{server.address}}/"
rate = "1 /s"
server = {{ on = "edge", command = ["sh", "{program}"], copy_in = {{ "site" = "html" }} }}
"""
    )
    file = write_sweep(
        tmp_path, sweep_text({"delay": {"key": "links.mobile.base_delay", "levels": ["1 ms"]}}), scenario
    )
    found = plan(file)
    assert {each.name for each in found.trials[0].inputs} == {"walk.up", "site", str(program)}
    seen = [set(keys_of(found).values())]
    for path in (tmp_path / "walk.up", tmp_path / "site" / "index.html", program):
        path.write_text(path.read_text() + "7\n")
        seen.append(set(keys_of(plan(file)).values()))
    assert len(set.union(*seen)) == sum(map(len, seen)), "no key occurs twice"


def test_offsets_fit_into_what_does_not_begin_anew(tmp_path: Path) -> None:
    (tmp_path / "long.up").write_text("\n".join(str(at) for at in range(1, 100_001, 10)))
    scenario = GOOD.replace('up = "12 Mbit/s"', 'up = "long.up"\nloop = false')
    found = plan(write_sweep(tmp_path, sweep_text(repetitions=8), scenario))
    assert all(0 <= (trial.offset_ns or 0) < 40 * 10**9 for trial in found.trials)
    assert len({trial.offset_ns for trial in found.trials}) == 8
    found = plan(write_sweep(tmp_path, sweep_text(), scenario.replace('duration = "60 s"', 'duration = "100 s"')))
    assert {trial.offset_ns for trial in found.trials} == {0}
    assert "the repetitions have the same offset" in found.notes[0]
    assert plan(write_sweep(tmp_path)).trials[0].offset_ns is None, "there are no traces"
    found = plan(write_sweep(tmp_path, sweep_text(vary_start="links.mobile.start")))
    assert found.trials[0].offset_ns


def test_levels_that_mean_the_same_run_once(tmp_path: Path) -> None:
    factors = {"delay": {"key": "links.mobile.base_delay", "levels": ["1 ms", "1000 µs", "2 ms"]}}
    found = plan(write_sweep(tmp_path, sweep_text(factors)))
    assert (len(found.trials), len(found.distinct)) == (6, 4)
    assert found.notes == ["2 trials equal others: levels that mean the same run once"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 's'\nscenario = 'base.toml'\nrepetition = 3\n", "sweep.toml:3: repetition: unknown key; did you mean"),
        (sweep_text({"a": {"levels": ["x", "x"]}}), "factors.a.levels: the level 'x' occurs twice"),
        (sweep_text({"a": {}}), "factors.a: write either 'levels' or"),
        (sweep_text({"a": {"range": [1, 2]}}), "factors.a.range: a range needs design"),
        (sweep_text({"a": {"range": ["1 ms", "2 kB"]}}), "factors.a.range: '1 ms' and '2 kB' are not quantities"),
        (sweep_text({"point": {"levels": [1]}}), "factors.point: the dataset has a column of this name"),
        (sweep_text({"a": {"key": "seed", "levels": [1]}}), "factors.a: the repetitions set the key 'seed'"),
        (sweep_text({"b": {"keys": ["x", "y"], "levels": [[1]]}}), r"factors.b.levels\[0\]: not a list of 2 values"),
        (
            sweep_text({"a": {"key": "links.mobile", "levels": [1]}, "b": {"key": "links.mobile.up", "levels": [1]}}),
            "factors.b: sets links.mobile.up, as the factor 'a' does",
        ),
        (
            sweep_text({"rate": {"key": "workload.rate", "levels": ["2 /s", "5 apples"]}}),
            r"sweep.toml:\d+: factors.rate.levels\[1\]: workload.rate: '5 apples' has an unknown unit",
        ),
        (
            sweep_text({"where": {"key": "workload.on", "levels": {"near": "edge", "far": "cloud"}}}),
            r"sweep.toml:10: factors.where.levels.far: workload.on: 'cloud' has no nodes",
        ),
        (
            sweep_text({"kind": {"key": "workload.arrivals", "levels": ["periodic", "closed"]}}) + "\n",
            r"base.toml:\d+: workload.rate: a closed loop has no rate.*\(at point 1: arrivals = closed\)|factors.kind",
        ),
        (
            sweep_text({"on": {"key": "apps.x", "levels": {"there": "x"}}}),
            r"sweep.toml:\d+: factors.on.levels.there: apps.x: 'x' is not a table",
        ),
        (sweep_text(vary_start="links.core.start"), "sweep.toml:4: vary_start: 'links.core.start' is not the start of"),
        ("hello", "not TOML, and not a sweep"),
    ],
)
def test_a_wrong_sweep_is_one_error_at_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = write_sweep(tmp_path, text)
    done = cellbed("sweep", file.name, "--dry-run", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert not (tmp_path / "sweeps").exists()
    with pytest.raises(CellbedError, match=message):
        plan(file)


def test_levels_that_exceed_the_machine_are_errors_before_the_sweep_starts(tmp_path: Path) -> None:
    cpus = len(os.sched_getaffinity(0))
    file = write_sweep(tmp_path, sweep_text({"cpus": {"key": "nodes.edge.cpus", "levels": [1, cpus, cpus + 6]}}))
    for more in (["--dry-run"], []):
        done = cellbed("sweep", file.name, *more, cwd=tmp_path, status=2)
        (error,) = done.stderr.splitlines()
        assert "factors.cpus.levels[2]: nodes.edge.cpus: " in error
        assert f"{cpus + 6} CPUs, but this machine has {cpus}" in error
    assert not (tmp_path / "sweeps").exists()
    for option in ("--overcommit", "--virtual"):
        assert cellbed("sweep", file.name, "--dry-run", option, cwd=tmp_path).returncode == 0


def test_the_schema_accepts_what_the_reader_accepts() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is missing: pip install cellbed[dev]")
    validator = jsonschema.Draft202012Validator(json_schema())
    for text in (
        sweep_text(),
        sweep_text({}, vary_start=False, design="one-at-a-time"),
        sweep_text({"a": {"range": [1, 2]}}, design={"kind": "latin-hypercube", "points": 3}),
        sweep_text({"a": {"levels": {"x": 1, "y": {"kind": "droptail"}}}}, vary_start=["links.mobile.start"]),
    ):
        validator.validate(parse_sweep(text, "s").model_dump(mode="json", exclude_unset=True))
    assert not validator.is_valid({"name": "s"})
    assert not validator.is_valid({"name": "s", "scenario": "b", "factor": {}})
    assert json.loads(cellbed("schema", "sweep").stdout) == json_schema()


class Machine:
    """An executor whose runs are folders that exist already; it runs `width` at once and keeps the order of its trials.

    fates: what becomes of the trials, in turn.
    """

    def __init__(self, example: Path, fates: list[str], width: int = 1) -> None:
        self._example, self._fates, self.at_once = example, fates, width
        self._waiting: list[tuple[Trial, Path]] = []
        self.begun: list[str] = []

    @property
    def running(self) -> int:
        return len(self._waiting)

    def start(self, trial: Trial, place: Path) -> None:
        self.begun.append(trial.key)
        self._waiting.append((trial, place))

    def wait(self, timeout_s: float) -> list[Outcome]:
        if not self._waiting:
            return []
        trial, place = self._waiting.pop(0)
        fate = self._fates.pop(0) if self._fates else "complete"
        if fate == "stop":
            raise KeyboardInterrupt
        if fate == "broken":
            raise OSError("the disk is gone")
        if fate == "failed":
            return [Outcome.of(trial, 0.0, failure("no reason", 1) | {"lacking": True})]
        run = place / "s-20250101-120000"
        shutil.copytree(self._example, run)
        return [Outcome(trial, run, "complete", fate == "disturbed", None, 0, 2.0)]

    def interrupt(self) -> None:
        self._waiting.clear()


class Silent:
    """A listener that counts attempts."""

    def __init__(self) -> None:
        self.attempts: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self.states: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def state(self, text: str) -> None:
        self.states.append(text)

    def ended(self, trial: Trial, result: Result, progress: Progress) -> None:
        assert progress.done <= progress.total
        assert progress.left_s >= 0
        assert runner.sentence(trial, result, progress)
        self.attempts.append((trial.key, result.status))


REASON = "the emulator did not run for 3 s"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example") / "run"
    make_run(folder)
    collect(folder)
    summary = json.loads((folder / "summary.json").read_bytes())
    (folder / "summary.json").write_text(json.dumps(summary | {"disturbances": [REASON]}))
    return folder


def perform(folder: Path, found: Plan, machine: Machine, repeats: int = 2) -> tuple[Store, Silent, Runner]:
    listener = Silent()
    with Store(folder, listener.note) as store:
        store.begin(found)
        running = Runner(found, store, machine, listener, repeats)
        try:
            running.run()
        except KeyboardInterrupt:
            listener.note("interrupted")
    return store, listener, running


def test_trials_are_run_once_repeated_and_tried_again(tmp_path: Path, example: Path) -> None:
    found = plan(write_sweep(tmp_path))
    folder = tmp_path / "sweeps" / "s"
    order = [trial.key for trial in found.trials]
    # Of six: complete; failed; disturbed, then complete at its repetition; the user stops the fourth.
    machine = Machine(example, ["complete", "failed", "disturbed", "stop"])
    _, listener, running = perform(folder, found, machine)
    assert listener.notes == ["interrupted"]
    assert machine.begun == order[:4]
    assert (running.account().complete, running.account().failed) == (1, 1)
    first = pl.read_parquet(folder / "trials.parquet")
    assert sorted(first["status"]) == ["complete", "disturbed", "failed"]

    # What is done is not run again; one remains disturbed after three attempts.
    machine = Machine(example, ["complete", "disturbed", "complete", "complete", "complete", "disturbed"])
    _, _, running = perform(folder, found, machine)
    assert machine.begun == [*order[1:], order[2]]
    account = running.account()
    assert (account.ran, account.complete, account.disturbed, account.failed) == (5, 5, 1, 0)
    sweep = library.Sweep.load(folder)
    assert sweep.trials.group_by("status").len().sort("status").rows() == [("complete", 5), ("disturbed", 1)]
    assert sweep.trials.filter(status="disturbed")["attempts"].to_list() == [3]
    assert first.sort("status")["reason"].to_list() == [None, REASON, "no reason"]
    assert sweep.trials.sort("status")["reason"].to_list() == [None] * 5 + [REASON]
    assert sweep.trials.select("point", "repetition").rows() == [(p, r) for p in range(3) for r in (1, 2)]
    assert sweep.trials.filter(key=order[1])["attempts"].to_list() == [2]
    assert sweep.points["rate"].to_list() == ["2 /s", "5 /s", "10 /s"]
    assert sweep.run(order[0]).path == folder / "trials" / order[0]
    with pytest.raises(CellbedError, match="no run of a trial 'nothing'"):
        sweep.run("nothing")
    assert "5 complete, 1 disturbed" in repr(sweep)
    assert "10 /s" in sweep._repr_html_()

    machine = Machine(example, [])
    assert perform(folder, found, machine)[1].attempts == [], "there is nothing left"
    perform(folder, found, machine, repeats=3)
    assert machine.begun == [order[2]], "it may be repeated more often"
    dry = json.loads(cellbed("sweep", "sweep.toml", "--dry-run", "--json", cwd=tmp_path).stdout)
    assert (dry["missing"], len(dry["trials"]), len(dry["points"]), dry["seconds"]) == (0, 6, 3, 0.0)
    assert "6 trials, 0 to run" in cellbed("sweep", "sweep.toml", "--dry-run", cwd=tmp_path).stdout
    (folder / "trials" / order[0] / "trial.json").write_text("{")
    machine = Machine(example, [])
    assert "damaged: the trial is run again" in perform(folder, found, machine)[1].notes[0]
    assert machine.begun == [order[0]]


def test_the_dataset_is_whole_however_a_sweep_ends(tmp_path: Path, example: Path) -> None:
    found = plan(write_sweep(tmp_path, sweep_text(repetitions=20)))
    folder = tmp_path / "sweeps" / "s"
    with pytest.raises(OSError, match="the disk is gone"):
        perform(folder, found, Machine(example, ["complete"] * 30 + ["broken"]))
    assert len(pl.read_parquet(folder / "trials.parquet")) == 30
    perform(folder, found, Machine(example, ["complete"] * 20 + ["stop"]))
    assert len(pl.read_parquet(folder / "trials.parquet")) == 50
    (folder / "trials.parquet").unlink()  # as of a sweep that was killed
    perform(folder, found, Machine(example, ["stop"]))
    assert len(pl.read_parquet(folder / "trials.parquet")) == 50


def test_a_folder_that_cannot_be_used_is_one_error(tmp_path: Path, example: Path) -> None:
    file = write_sweep(tmp_path)
    found = plan(file)
    with (
        Store(tmp_path / "sweeps" / "s") as store,
        pytest.raises(CellbedError, match=f"another sweep .process {os.getpid()}. uses this folder"),
        Store(store.folder),
    ):
        pass
    other = tmp_path / "documents" / "s"
    other.mkdir(parents=True)
    (other / "letter.txt").write_text("dear")
    done = cellbed("sweep", "sweep.toml", "--out", "documents", cwd=tmp_path)
    assert (done.returncode, "not the folder of a sweep, and not empty" in done.stderr) == (2, True)
    assert [each.name for each in other.iterdir()] == ["letter.txt"]
    done = cellbed("sweep", "sweep.toml", "--out", "base.toml", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    with pytest.raises(CellbedError, match="not the folder of a sweep: it has no"):
        library.Sweep.load(other)
    assert len(found.trials) == 6


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="only root mounts file systems")
@pytest.mark.parametrize(
    ("options", "message"),
    [("size=1m", "the disk is full: less than 4 MiB are free: free some space"), ("ro", "Read-only file system")],
)
def test_a_disk_that_is_full_or_read_only_is_one_error_and_nothing_is_run(
    tmp_path: Path, options: str, message: str
) -> None:
    write_sweep(tmp_path)
    (tmp_path / "sweeps").mkdir()
    script = f'mount -t tmpfs -o {options} none sweeps && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", script, "sh", *command("sweep", "sweep.toml")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: sweeps/s")
    assert message in done.stderr


@given(st.integers(1, 6), st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=80))
def test_the_number_at_once_falls_with_disturbance_and_recovers(most: int, events: list[tuple[bool, int]]) -> None:
    width, running, number = Width(most), list[str](), 0
    for disturbed, which in events:
        while len(running) < width.now:
            running.append(str(number := number + 1))
            width.started(running[-1])
        before = width.now
        width.ended(running.pop(which % len(running)), disturbed=disturbed)
        assert 1 <= width.now <= most
        assert abs(width.now - before) <= 1
        assert width.now <= before or not disturbed
        assert width.now >= before or disturbed


def test_measures_of_a_run_are_those_of_its_summary(tmp_path: Path) -> None:
    make_run(tmp_path, duration=30, outages=((25, 60),))
    summary = collect(tmp_path)
    ((row,), disturbances) = measure(tmp_path)
    assert disturbances == summary.disturbances
    (application,) = summary.applications
    assert set(MEASURES) < set(row)
    assert row["requests"] == application.requests.total
    assert row["answered"] == application.requests.answered
    assert row["lost_share"] == pytest.approx(1 - row["answered"] / row["requests"])
    assert row["latency_p50_s"] == application.percentiles[0].value
    assert row["latency_p90_s"] == math.inf, "a request without a good reply is slower than every other"
    assert [row["latency_p99_s"], row["latency_p01_s"]] == [None, None]
    assert row["refused"] == f"there are {row['requests']:.0f} requests: P1 at least 368, P99 at least 368"
    assert row["throughput_per_s"] == pytest.approx(row["answered"] / 30.0)
    requests = pl.read_parquet(tmp_path / "requests.parquet").drop_nulls("residual_s")
    means = sum(row[f"{place}_mean_s"] for place in ("endpoint", "uplink", "remote", "downlink"))
    assert means == pytest.approx((requests["latency_s"] - requests["residual_s"]).mean())


def test_a_scenario_is_swept_over_its_applications_together_and_each_alone(tmp_path: Path) -> None:
    files = 'kind = "transfers"\nserver = "edge"\ndownload = ["1 MB"]\narrivals = "closed"\n'
    apps = {"db": 'kind = "program"\nserver = { on = "edge", command = "sleep 9" }\n', "a": files, "b": files}
    head = f'name = "mix"\nduration = "2 s"\n{NODES}\n[expect.b]\nmedian_latency = "< 9 s"\n'
    text = head + "".join(f"[apps.{name}]\n{keys}" for name, keys in apps.items())
    (tmp_path / "mix.toml").write_text(text)
    found = plan(tmp_path / "mix.toml", apart=True)
    chosen = {point.labels["applications"]: set(point.changes["apps"]) for point in found.points}
    assert chosen == {"together": {"a", "b", "db"}, "a alone": {"a", "db"}, "b alone": {"b", "db"}}
    judged = {trial.point.labels["applications"]: set(trial.expectations) for trial in found.trials}
    assert judged == {"together": {"b"}, "a alone": set(), "b alone": {"b"}}
    (tmp_path / "mix.toml").write_text(text.replace("[expect.b]", "[expect.a]")[: -len("[apps.b]\n" + files)])
    with pytest.raises(ScenarioError, match="needs two with a client"):
        plan(tmp_path / "mix.toml", apart=True)
