"""`cellbed evaluate replay`: the loop from end to end, in virtual time and over real links."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cellbed import Link
from cellbed.experiments.calibration import calibrate_virtually
from cellbed.experiments.evaluation import site
from cellbed.experiments.evaluation.applications.application import Application, Measured
from cellbed.experiments.evaluation.applications.downloads import Downloads, Player
from cellbed.experiments.evaluation.applications.pages import Pages
from cellbed.experiments.evaluation.applications.round_trips import RoundTrips
from cellbed.experiments.evaluation.applications.trains import Trains
from cellbed.experiments.evaluation.command import Options, run
from cellbed.experiments.evaluation.network import HEAVY_DEVICE, LIGHT_DEVICE, Network, reference
from cellbed.experiments.evaluation.socket_recorder import SocketRecorder
from cellbed.recordings import Train, TrainPlan, read_recording
from cellbed.recordings.series import round_trips
from cellbed.recordings.summary import summarise
from cellbed.support.errors import CellbedError
from cellbed.testbed.links.emulator import EmulatorError
from cellbed.testbed.machine.process import find

SAMPLES = "samples.jsonl"


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Live runs of the tests are nobody else's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def options(folder: Path, **changes: Any) -> Options:
    usual: dict[str, Any] = {
        "profiles": "lowband-good",
        "applications": "round-trips,downloads",
        "methods": "saturation,cellreplay",
        "trials": 2,
        "recordings": 1,
        "length": "12 s",
        "seed": 1,
        "virtual": True,
        "record_virtually": False,
        "quick": False,
        "conditions": False,
        "jobs": 1,
        "budget": None,
        "results": folder,
        "as_json": True,
    }
    return Options(**usual | changes)


def evaluate(folder: Path, **changes: Any) -> dict[str, Any]:
    output = io.StringIO()
    assert run(options(folder, **changes), output) == 0
    found: dict[str, Any] = json.loads(output.getvalue())
    return found


def test_a_virtual_evaluation_from_recording_to_table(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    found = evaluate(folder, recordings=2)
    rows = {(row["measure"], row["profile"], row["method"]): row for row in found["rows"]}
    for measure in ("round trip", "download of 1 KB", "download of 10 MB"):
        for method in ("saturation", "cellreplay"):
            row = rows[measure, "lowband-good", method]
            assert (row["recordings"], row["trials"]) == (2, 2)
            assert row["mean"]["low"] <= row["mean"]["value"] <= row["mean"]["high"]
            assert row["wasserstein"]["value"] >= abs(row["mean"]["value"]) - 1e-9
    assert json.loads((folder / "table.json").read_text()) == found
    samples = pl.read_parquet(folder / "samples.parquet")
    assert samples.height == 3 * 2 * (100 + 7 * 3 + 2)
    assert pl.read_csv(folder / "samples.csv").height == samples.height
    assert set(samples["network"]) == {"reference", "saturation", "cellreplay"}
    assert set(zip(samples["trial"], samples["recording"], strict=True)) == {(0, 0), (1, 1)}
    first, second = (read_recording(folder / "recordings" / f"lowband-good-{number}a") for number in (1, 2))
    assert first.description.id != second.description.id
    assert not summarise(first).warnings, "its saturation never left the link idle"


def test_devices_at_one_place_meet_blocks_that_fail_each_for_itself() -> None:
    times = [at * 5_000_000 for at in range(2000)]
    light, heavy = (
        Link.of_stages(reference("lowband-good", 1, device).downlink).run(times, 1400).departed
        for device in (LIGHT_DEVICE, HEAVY_DEVICE)
    )
    assert 0.05 < (light != heavy).mean() < 0.95  # a tenth of the blocks fail


@dataclass(frozen=True)
class Evaluated:
    """An evaluation of round trips that has ended. table: what it printed."""

    folder: Path
    table: dict[str, Any]

    def copied(self, folder: Path) -> Path:
        return shutil.copytree(self.folder, folder)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    """Shared by those that only look, or change a copy."""
    folder = tmp_path_factory.mktemp("evaluated") / "results"
    return Evaluated(folder, evaluate(folder, applications="round-trips"))


def test_an_evaluation_that_was_killed_goes_on_and_ends_alike(evaluated: Evaluated, tmp_path: Path) -> None:
    folder, whole = evaluated.copied(tmp_path / "results"), evaluated.table
    lines = (folder / SAMPLES).read_bytes().splitlines(keepends=True)
    (folder / SAMPLES).write_bytes(b"".join(lines[:3]) + lines[3][:20])
    again = evaluate(folder, applications="round-trips")
    assert again == whole
    assert (folder / SAMPLES).read_bytes().startswith(b"".join(lines[:3]))
    more = evaluate(folder, applications="round-trips", trials=3)
    assert more["rows"][0]["trials"] == 3
    assert (folder / SAMPLES).read_bytes().startswith(b"".join(lines[:3]))


def test_steps_side_by_side_come_to_the_same_table(evaluated: Evaluated, tmp_path: Path) -> None:
    assert evaluate(tmp_path / "together", applications="round-trips", jobs=2) == evaluated.table


def test_an_evaluation_stops_when_its_budget_is_spent_and_goes_on_another_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "results"
    assert evaluate(folder, applications="round-trips", budget="1 ns")["rows"] == []
    assert "6 steps are left" in capsys.readouterr().err
    assert evaluate(folder, applications="round-trips", budget="1 h")["rows"][0]["trials"] == 2


def test_every_application_runs_in_virtual_time(tmp_path: Path) -> None:
    found = evaluate(
        tmp_path / "results", applications="trains,pages,player", trials=1, methods="saturation", quick=True
    )
    measures = {row["measure"] for row in found["rows"]}
    assert {"train of 500", "page google HTTP/1.1", "page google HTTP/2", "start-up buffer"} <= measures


def test_the_table_on_a_terminal_names_what_was_missed(evaluated: Evaluated, tmp_path: Path) -> None:
    output = io.StringIO()
    folder = evaluated.copied(tmp_path / "results")
    assert run(options(folder, applications="round-trips", as_json=False), output) == 0
    text = output.getvalue()
    assert "saturation" in text
    assert "lowband-good, p95" in text
    assert "reached" in text or "missed" in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"profiles": "lowband-god"}, "did you mean 'lowband-good'"),
        ({"applications": "downloads,games"}, "'games' is not known"),
        ({"methods": ","}, "names nothing"),
        ({"length": "long"}, "--length"),
        ({"budget": "an hour"}, "--budget"),
    ],
)
def test_wrong_options_are_told_in_a_sentence(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CellbedError, match=words):
        run(options(tmp_path / "results", **changes), io.StringIO())
    assert not (tmp_path / "results").exists()


@pytest.fixture
def perform() -> Iterator[Callable[[Application, Network], list[Measured]]]:
    """Runs an application over a real link."""
    # Not pytest's folder: Chromium has a socket there, whose path may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="cellbed-", ignore_cleanup_errors=True) as folder:
        yield _performed_in(Path(folder))


def _performed_in(scratch: Path) -> Callable[[Application, Network], list[Measured]]:

    def perform_it(application: Application, network: Network) -> list[Measured]:
        missing = application.missing()
        if missing is not None:
            pytest.skip(missing)
        try:
            return site.perform(application, network, 1, site.Surroundings("evaluation-test", scratch))
        except EmulatorError as error:
            pytest.skip(f"this machine runs no emulator for this user: {error}")

    return perform_it


QUEUE = {"kind": "droptail", "packets": None, "bytes": 200_000}


def steady(bit_rate: int) -> tuple[dict[str, Any], ...]:
    bottleneck = {"kind": "bottleneck", "schedule": {"kind": "constant", "bit_rate": bit_rate}, "queue": QUEUE}
    return {"kind": "delay", "fixed_ns": 10_000_000}, bottleneck


STEADY = Network("steady", steady(5_000_000), steady(20_000_000))
"""20 ms there and back, 5 Mbit/s up and 20 Mbit/s down."""


def test_small_applications_over_a_real_link(perform: Callable[[Application, Network], list[Measured]]) -> None:
    found = perform(RoundTrips(packets=20, interval_s=0.01), STEADY)
    assert [measure for measure, _ in found] == ["round trip"] * 20
    times = sorted(value for _, value in found if value is not None)
    assert len(times) == 20
    assert times[0] >= 0.02  # no packet is early
    trains = perform(Trains(lengths=(1, 50), trains=2, gap_s=0.01), STEADY)
    shortest = {name: min(value or 9 for measure, value in trains if measure == name) for name, _ in trains}
    assert shortest["train of 1"] >= 0.02
    assert shortest["train of 50"] >= 0.02 + 49 * 1400 * 8 / 20e6
    files = perform(Downloads(sizes=(1000, 500_000), pause_s=(0, 0)), STEADY)
    taken = dict(files)
    assert (taken["download of 1 KB"] or 0) >= 0.04  # handshake and request
    assert (taken["download of 500 KB"] or 0) >= 0.04 + 500_000 * 8 / 20e6


def test_a_player_over_a_real_link(perform: Callable[[Application, Network], list[Measured]]) -> None:
    player = Player(rules=("throughput",), rungs=(1.0, 2.0), segment_s=0.5, segments=3)
    found = dict(perform(player, reference("midband-good", 1)))
    assert (found["start-up throughput"] or 0) > 0.03
    assert 1.0 <= (found["bit rate throughput"] or 0) <= 2.0


def test_a_browser_loads_pages_by_both_protocols(perform: Callable[[Application, Network], list[Measured]]) -> None:
    found = dict(perform(Pages(names=("google",), pause_s=(0, 0)), STEADY))
    assert set(found) == {"page google HTTP/1.1", "page google HTTP/2"}
    for value in found.values():
        # TCP and TLS handshakes, the document, and 1.5 MB by 20 Mbit/s.
        assert (value or 0) >= 0.06 + 1.5e6 * 8 / 20e6


def marked(mark: bytes) -> list[int]:
    """Processes that carry the mark of an evaluation."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def _mark(record: Path) -> bytes:
    return f"CELLBED_RUN={record.stem}".encode()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "jobs"), [(signal.SIGINT, 1), (signal.SIGINT, 2), (signal.SIGKILL, 2)])
def test_an_evaluation_that_is_ended_leaves_nothing_behind(tmp_path: Path, number: signal.Signals, jobs: int) -> None:
    folder = tmp_path / "results"
    command = [sys.executable, "-P", "-m", "cellbed", "evaluate", "replay", "--quick", "--results", str(folder)]
    command += ["--profiles", "midband-good", "--methods", "saturation", "--applications", "pages", "--trials", "1"]
    command += ["--jobs", str(jobs)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    live = tmp_path / "state" / "cellbed" / "live"
    while not (records := list(live.glob("*.json"))) or len(marked(_mark(records[0]))) < 4:
        if process.poll() is not None and process.stderr is not None:
            pytest.skip(f"no page was loaded here: {process.stderr.read()}")
        assert time.monotonic() < until
        time.sleep(0.1)
    (record,) = records
    mark, scratch = _mark(record), Path(json.loads(record.read_text())["scratch"])
    assert scratch.is_dir()
    process.send_signal(number)
    process.wait(30)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert not scratch.exists()
        assert not record.exists()
    subprocess.run([sys.executable, "-P", "-m", "cellbed", "clean"], check=True, env=dict(os.environ))
    assert not marked(mark)
    assert not record.exists()
    assert not scratch.exists()
    done = subprocess.run([*command, "--json"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not list(live.glob("*.json"))


@pytest.mark.slow
def test_the_recorder_over_sockets_records_two_devices_in_the_same_weather(tmp_path: Path) -> None:
    if find("ip") is None:
        pytest.skip("a client with two devices needs iproute2")
    calibration = calibrate_virtually(STEADY.uplink, STEADY.downlink, 1)
    train = Train(up=2, down=20, up_bytes=1400, down_bytes=1400)
    single = Train(up=1, down=1, up_bytes=100, down_bytes=1400, gap_ns=20_000_000)
    plan = TrainPlan(rotation=(train, single), gap_ns=50_000_000, jitter=0.1, seed=3)
    recorder = SocketRecorder("evaluation-test", tmp_path)
    try:
        zero_ns = recorder.record(STEADY, STEADY, calibration, plan, 3_000_000_000, tmp_path / "recording")
    except EmulatorError as error:
        pytest.skip(f"this machine runs no emulator for this user: {error}")
    assert zero_ns >= 0
    recording = read_recording(tmp_path / "recording")
    description = recording.description
    assert description.light.plan == plan
    assert description.arrangement == "together"
    assert description.calibration is not None
    assert description.light.interface != description.heavy.interface
    trips = round_trips(recording)["round_trip_ns"]
    assert trips.len() > 20
    assert trips.min() >= 20_000_000  # type: ignore[operator]
    # Saturation of the other device filled its own link: 20 Mbit/s, but for what was under way at the end.
    arrived = recording.heavy_downlink.drop_nulls("arrived_ns")
    span = arrived["arrived_ns"].max() - arrived["arrived_ns"].min()  # type: ignore[operator]
    assert arrived["bytes"].sum() * 8e9 / span <= 20.5e6
    assert recording.heavy_downlink["arrived_ns"].null_count() > 0
