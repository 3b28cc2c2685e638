"""The phases of a run, each alone, and the ladder that calls them in order."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellbed.experiments.listener import Listener
from cellbed.experiments.real_run import Options, RealRun
from cellbed.experiments.run import Outcome, Run
from cellbed.experiments.virtual import run as prediction
from cellbed.experiments.virtual.profile import Profile
from cellbed.runformat import log
from cellbed.runformat.events import read_events
from cellbed.scenario import parse
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.process import Interruption
from cellbed.testbed.machine.state import records
from cellbed.testbed.plan import make_plan
from predicted_runs import SAMPLE
from scenario_text import app_table
from small_scenario import SCENARIO, WEB

OFFLOADING = app_table("workload", "image-classification", server="edge", rate="4 /s", drain="1 s")
APPLICATIONS = {"web": WEB, "workload": OFFLOADING, "none": ""}


@contextlib.contextmanager
def real_run(folder: Path, application: str = "web") -> Iterator[RealRun]:
    """A run without limits, whose phases the caller calls."""
    text = SCENARIO + APPLICATIONS[application]
    plan = make_plan(parse(text, source="the scenario", folder=folder))
    with Interruption() as interruption:
        run = RealRun(text, plan, Options(folder, limits=False), Listener(), interruption)
        with run.closing:
            yield run


def predicted_run(folder: Path) -> prediction.VirtualRun:
    """A run in virtual time, whose phases the caller calls."""
    text = SCENARIO + OFFLOADING
    Profile("the test", {"workload": [SAMPLE] * 10}, limited=True).write(folder / "profile.json")
    plan = make_plan(parse(text, source="the scenario", folder=folder))
    options = prediction.Options(folder, folder, profile=folder / "profile.json")
    return prediction.VirtualRun(text, plan, options, Listener())


def test_a_prepared_run_has_a_folder_and_a_record_that_its_end_removes(tmp_path: Path) -> None:
    with real_run(tmp_path) as run:
        run.prepare()
        assert (run.folder / "scenario.toml").read_text() == SCENARIO + WEB
        assert str(run.folder) in [record.folder for record in records()]
    assert str(run.folder) not in [record.folder for record in records()]


def test_a_run_without_an_application_is_refused_before_it_has_a_folder(tmp_path: Path) -> None:
    with real_run(tmp_path, "none") as run, pytest.raises(CellbedError, match="has no application"):
        run.prepare()
    assert not list(tmp_path.iterdir())


@pytest.mark.needs_tun
def test_nodes_that_exist_from_bring_up_to_stop_are_proved(tmp_path: Path) -> None:
    with real_run(tmp_path) as run:
        run.prepare()
        run.bring_up()
        namespace = Path(run.bed.emulator.namespace("edge-0"))
        try:
            assert namespace.exists()
            assert (run.folder / "live.json").exists()
            run.prove()
        finally:
            run.stop()
        assert not namespace.exists()
        assert not (run.folder / "live.json").exists()
        assert run.state.emulator is not None
    proved = {name for proof in run.state.proof for name in proof.what.split() if "link" in name}
    assert proved >= {"mobile-0.uplink", "mobile-0.downlink"}


@pytest.mark.needs_tun
def test_a_started_run_is_described_and_its_schedule_can_be_watched_to_the_end(tmp_path: Path) -> None:
    with real_run(tmp_path) as run:
        run.prepare()
        run.bring_up()
        try:
            run.start()
            described = json.loads((run.folder / "run.json").read_text())
            assert (described["status"], described["t0_ns"]) == ("running", run.t0_ns)
            run.watch()
        finally:
            run.stop()
        assert not (run.folder / "raw" / "state0").exists()
    assert [event["event"] for event in read_events(run.folder)][-1] != "program started"
    assert (run.folder / "raw" / "web.endpoint-0.requests.jsonl").read_text().count("\n") > 0


def test_each_phase_of_a_prediction_leaves_what_the_next_one_needs(tmp_path: Path) -> None:
    run = predicted_run(tmp_path)
    run.prepare()
    assert (run.folder / "profile.json").exists()
    run.bring_up()
    assert set(run.world.hosts) == {"endpoint-0", "edge-0"}
    run.prove()
    assert not run.state.proof
    run.start()
    assert run.state.t0_ns == run.journal.t0_ns
    run.watch()
    assert run.state.emulator is not None
    run.stop()
    run.describe()
    assert json.loads((run.folder / "run.json").read_text())["clock"] == "virtual"


class Failing(Run):
    """A run with a phase that fails. reached: phases so far."""

    def __init__(self, folder: Path, phase: str, error: BaseException) -> None:
        text = SCENARIO + WEB
        super().__init__(text, make_plan(parse(text, source="x", folder=folder)), Listener(), limits=True)
        self._out, self._phase, self._error = folder, phase, error
        self.reached: list[str] = []

    def _enter(self, phase: str) -> None:
        self.reached.append(phase)
        if phase == self._phase:
            raise self._error

    def prepare(self) -> None:
        self.create_folder(self._out)
        self.write_scenario()
        self._enter("prepare")

    def bring_up(self) -> None:
        self.held.callback(self.reached.append, "stopped")
        self._enter("bring_up")

    def prove(self) -> None:
        self._enter("prove")

    def start(self) -> None:
        self.state.t0_ns = 1
        self._enter("start")

    def watch(self) -> None:
        self._enter("watch")


ERRORS = [
    (CellbedError("it failed"), "failed", "it failed"),
    (OSError(28, "No space left on device"), "failed", "No space left on device"),
    (KeyboardInterrupt(), "interrupted", "None"),
]


@pytest.mark.parametrize(("error", "status", "text"), ERRORS)
def test_an_error_before_the_schedule_removes_the_folder_and_later_ones_are_described(
    tmp_path: Path, error: BaseException, status: str, text: str
) -> None:
    phases = ("prepare", "bring_up", "prove", "start", "watch")
    for number, phase in enumerate(phases):
        run = Failing(tmp_path, phase, error)
        outcome: Outcome = run.execute()
        assert outcome.status == status
        assert text in str(outcome.error)
        assert run.reached == [*phases[: number + 1], *(["stopped"] if number else [])]
        assert (outcome.folder is None) == (number < 3)
        assert run.folder.exists() == (number >= 3)
        if outcome.folder is not None:
            assert json.loads((outcome.folder / "run.json").read_text())["status"] == status


def test_a_run_that_fails_early_keeps_its_folder_only_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Failing(tmp_path, "bring_up", CellbedError("it failed"))
    assert failed.execute().folder is None
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv(log.VARIABLE, "info")
    kept = Failing(tmp_path, "bring_up", CellbedError("it failed"))
    assert kept.execute().folder is None
    assert "the run failed: it failed" in (kept.folder / log.FILE).read_text()


def test_a_run_without_an_error_is_complete(tmp_path: Path) -> None:
    run = Failing(tmp_path, "never", CellbedError())
    assert run.execute() == Outcome(run.folder, "complete")
