"""The directory of a recording as a link: in a scenario, a shell and the library."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cellbed import Cell, Link
from cellbed.experiments.calibration import calibrate_virtually, default_plan, fit_plan
from cellbed.experiments.description import notes
from cellbed.recordings.cellreplay import derive
from cellbed.recordings.conditional import conditional_plan, model_text
from cellbed.recordings.derived import cache_folder, is_conditional, write_replay_files
from cellbed.recordings.description import Fixed
from cellbed.recordings.recording import write_recording
from cellbed.recordings.sharing import alone, learn
from cellbed.recordings.virtual import record_virtually
from cellbed.scenario import Scenario, ScenarioError
from cellbed.scenario.reader import load_text
from cellbed.shell.options import EachWay, OptionError, Recorded, parse_link
from cellbed.support.stages import describe
from cellbed.support.ways import WAYS
from cellbed.testbed.links.emulator import Emulator
from cellbed.testbed.plan import make_plan
from cellbed.testbed.proof.links import prove_links
from recording_examples import FULL, MS, SECOND, calibrated, pair, walk
from scenario_text import GOOD


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cellbed" / "replay"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a calibrated recording and one that is not."""
    write_recording(calibrated(walk(queue="infinite")), tmp_path / "walk")
    write_recording(walk(queue="infinite"), tmp_path / "plain")
    return tmp_path


def rate(folder: Path, way: str = "uplink", **more: Any) -> dict[str, Any]:
    return {"kind": "recording", "path": str(folder), "way": way, **more}


def read(folder: Path, more: str = "", path: str = "walk", cell: str = "") -> Scenario:
    """The good scenario with a recording as its mobile link. more: further keys of this. cell: of the endpoints."""
    mobile = f'\n[links.mobile]\nkind = "recording"\npath = "{path}"\n{more}\n'
    text = re.sub(r"\n\[links\.mobile\]\n(.+\n)*", lambda _: mobile, GOOD)
    assert mobile in text
    if cell:
        text = text.replace("[nodes.endpoint]\ncount = 1", f'[nodes.endpoint]\ncount = 2\ncell = "{cell}"')
    return load_text(text, folder / "x.toml")


def stages(scenario: Scenario, way: str) -> dict[str, dict[str, Any]]:
    (direction,) = (each for each in make_plan(scenario).directions if each.name == f"mobile-0.{way}")
    return {stage["kind"]: stage for stage in direction.stages}


def test_a_train_of_the_recorded_length_fares_as_it_did(folder: Path) -> None:
    live = Link(rate="8 Mbit/s", delay="20 ms")
    times = [SECOND] * 4
    replayed = Link(rate=rate(folder / "walk")).run(times, 1400)
    # Half the round-trip time stands for the way up: 50 µs less than 21.4 ms, as the way down is quicker.
    assert (live.run(times, 1400).departed - replayed.departed == 350_000).all()
    saturated = Link(rate=rate(folder / "walk", method="saturation"), queue="infinite")
    many = np.repeat(SECOND, 200)
    gone = live.run(many, 1400).departed - saturated.run(many, 1400).departed
    assert abs(gone).max() < 3 * MS


def test_parameters_come_from_the_calibration_or_from_the_user(folder: Path) -> None:
    [stage] = Link(rate=rate(folder / "walk", "downlink")).stages
    assert (stage["idle_ns"], stage["idle_at"], stage["opportunity_bytes"]) == (21 * MS, "queue", 1400)
    assert stage["queue"]["bytes"] == 60_000
    assert Path(stage["latency_offset"]).read_text() == "100 -6.8\n1400 0\n"
    [asked] = Link(rate=rate(folder / "walk", idle="3 ms", idle_at="link"), queue="5 packets").stages
    assert (asked["idle_ns"], asked["idle_at"], asked["queue"]["packets"]) == (3 * MS, "link", 5)
    [odd] = Link(rate=rate(folder / "walk", idle="2488203 ns")).stages
    assert describe([odd]).startswith("walk uplink by cellreplay, looped, idle after 2.49 ms, drop-tail")
    [plain] = Link(rate=rate(folder / "plain", idle="0 ms")).stages
    assert (plain["latency_offset"], plain["queue"]["bytes"]) == (None, 1_000_000)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"path": "nowhere"}, "rate.path: there is no directory 'nowhere' in .*: write the path of the directory of a"),
        ({"path": "file"}, "rate.path: 'file' is a file, not a recording: write the path of the directory of a rec"),
        ({"path": "a\0b"}, "rate.path: .*: write the path of the directory of a recording"),
        ({"path": "empty"}, r"rate: .*empty: not a recording: it has no recording\.json"),
        ({"path": "plain"}, "rate: .*plain: the idle time F of the uplink was not calibrated: set idle"),
        ({"path": "walk", "method": "magic"}, "rate.method: 'magic' is not known: write one of .cellreplay., .saturat"),
        ({"path": "cut"}, r"rate: .*cut/heavy-uplink\.parquet: missing"),
    ],
)
def test_a_wrong_recording_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, str], message: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "empty").mkdir()
    (folder / "file").write_text("")
    shutil.copytree(folder / "walk", folder / "cut")
    (folder / "cut" / "heavy-uplink.parquet").unlink()
    with pytest.raises(ValueError, match=message):
        Link(rate={"kind": "recording", "way": "uplink", **asked})


def test_a_scenario_names_a_recording(folder: Path) -> None:
    scenario = read(folder, 'loss = "1 %"\nstart = "500 ms"')
    up, down = stages(scenario, "uplink"), stages(scenario, "downlink")
    assert up["delay"]["fixed_ns"] == 0
    assert up["loss"]["probability"] == 0.01
    played = up["workload-dependent"]
    assert (played["offset_ns"], played["looped"], played["idle_ns"]) == (500 * MS, True, 24 * MS)
    assert played["queue"] == {"kind": "droptail", "packets": None, "bytes": 60_000}
    assert down["workload-dependent"]["heavy"] != played["heavy"]
    uplink = make_plan(scenario).directions[0]
    assert uplink.description.startswith("walk uplink by cellreplay (synthetic) from 500 ms, looped, idle after 24 ms")
    # Names, not the paths of derived files in this user's cache.
    assert (uplink.played.name, uplink.played.synthetic) == ("walk uplink by cellreplay", True)
    name = "walk uplink by cellreplay"
    assert set(uplink.recordings()) == {name, f"{name} light rows", f"{name} latency offset"}


@pytest.mark.parametrize(
    ("path", "more", "message"),
    [
        ("plain", "", r"links\.mobile\.path: .*F of the uplink was not calibrated"),
        ("walk", 'up = "5 Mbit/s"', r"links\.mobile\.up: unknown key"),
        ("walk", 'start = "1 h"\nloop = false', r"links\.mobile\.start: the recording ends after 2"),
    ],
)
def test_a_wrong_recording_is_told_with_its_line(folder: Path, path: str, more: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=rf"x\.toml:\d+: {message}"):
        read(folder, more, path)


@pytest.mark.parametrize("method", ["cellreplay", "saturation"])
def test_the_queue_has_the_limit_that_the_saturation_shows(folder: Path, method: str) -> None:
    write_recording(calibrated(walk(queue="100 kB")), folder / "full")
    [stage] = Link(rate=rate(folder / "full", method=method)).stages
    played = stages(read(folder, f'method = "{method}"', "full"), "downlink")["workload-dependent"]
    assert stage["queue"]["bytes"] == played["queue"]["bytes"] == 71 * 1400


def test_a_shell_takes_the_directory(folder: Path) -> None:
    link = parse_link(recorded=Recorded("walk"), folder=folder)
    up, down = ({stage["kind"]: stage for stage in each.stages} for each in (link.uplink, link.downlink))
    assert (up["workload-dependent"]["idle_ns"], down["workload-dependent"]["idle_ns"]) == (24 * MS, 21 * MS)
    assert up["workload-dependent"]["queue"]["bytes"] == 60_000
    asked = parse_link(
        recorded=Recorded("plain", "cellreplay", ("1 ms", "2 ms")), queue=EachWay("30 packets"), folder=folder
    )
    [stage] = [stage for stage in asked.downlink.stages if stage["kind"] == "workload-dependent"]
    assert (stage["idle_ns"], stage["queue"]["packets"]) == (2 * MS, 30)


def test_files_are_derived_once_and_again_when_the_recording_is_another(folder: Path, cache: Path) -> None:
    Link(rate=rate(folder / "walk"))
    [made] = cache.iterdir()
    stamps = {path: path.stat().st_mtime_ns for path in made.iterdir()}
    Link(rate=rate(folder / "walk", idle="5 ms"))
    assert {path: path.stat().st_mtime_ns for path in made.iterdir()} == stamps
    shutil.rmtree(folder / "walk")
    other = calibrated(walk(delay="30 ms"))
    write_recording(other, folder / "walk")
    [stage] = Link(rate=rate(folder / "walk")).stages
    assert Path(stage["light"]).read_text().startswith("0 31.05 ")
    assert len(list(cache.iterdir())) == 2
    shutil.rmtree(cache_folder())
    Link(rate=rate(folder / "walk"))
    assert len(list(cache.iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "file"))
    with pytest.raises(ValueError, match="set XDG_CACHE_HOME to a folder that can be written"):
        Link(rate=rate(folder / "walk"))


# ---- the conditional method


@pytest.fixture(scope="module")
def conditional_recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recording by the conditional plan, its copy without calibration, and one of other trains."""
    found = tmp_path_factory.mktemp("recordings")
    full = Fixed(rate_bps=40_000_000)
    plan = fit_plan(conditional_plan(), calibrate_virtually(*(link.stages for link in pair())))
    links = pair(queue="infinite")
    recording = record_virtually(links, links, plan, (full, full), duration_ns=60 * SECOND)
    write_recording(calibrated(recording), found / "walk")
    write_recording(recording, found / "plain")
    write_recording(calibrated(walk()), found / "other")
    return found


@pytest.fixture
def conditional(conditional_recordings: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, with a cache that all tests share."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(conditional_recordings / "cache"))
    return conditional_recordings


def test_packets_take_as_long_as_over_the_recorded_network(conditional: Path) -> None:
    live, replayed = Link(rate="8 Mbit/s", delay="20 ms"), Link(rate=rate(conditional / "walk"))
    [stage] = replayed.stages
    assert (stage["kind"], stage["queue"]["bytes"]) == ("conditional", 60_000)
    assert Path(stage["model"]).is_relative_to(cache_folder())
    single, burst = np.arange(1, 60) * 100 * MS, np.repeat(SECOND, 40)
    for times in (single, burst):
        gone, again = (link.run(times, 1400).departed for link in (live, replayed))
        assert abs(gone - again).max() < 3 * MS


@pytest.mark.parametrize(
    ("path", "more", "message"),
    [
        ("other", {"method": "conditional"}, "other: its trains are not those .*--for conditional"),
        ("walk", {"idle": "3 ms"}, "the method conditional has no idle time F: leave out idle"),
    ],
)
def test_what_does_not_suit_the_method_is_refused(
    conditional: Path, path: str, more: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=f"rate: .*{message}"):
        Link(rate=rate(conditional / path, **more))
    recorded = Recorded(path, more.get("method"), ("3 ms", "3 ms") if "idle" in more else None)
    with pytest.raises(OptionError, match=f"--recording: .*{message}"):
        parse_link(recorded=recorded, folder=conditional)
    text = "\n".join(f'{key} = "{value}"' for key, value in more.items())
    with pytest.raises(ScenarioError, match=rf"x\.toml:\d+: links\.mobile\.path: .*{message}"):
        read(conditional, text, path)


def test_a_live_link_neither_becomes_nor_leaves_a_recording(conditional: Path) -> None:
    link = Link(rate=rate(conditional / "walk"))
    with pytest.raises(ValueError, match="start another one"):
        link.change(SECOND, rate="5 Mbit/s")
    link.change(SECOND, queue="7 packets")
    with pytest.raises(ValueError, match="start another one"):
        Link(rate="5 Mbit/s").change(SECOND, rate=rate(conditional / "walk"))
    with pytest.raises(ValueError, match="mahimahi: "):
        Link(rate=rate(conditional / "walk"), mahimahi=True)
    # Without a calibration there is a queue all the same; RED needs no rate beforehand.
    [stage] = Link(rate=rate(conditional / "plain")).stages
    assert stage["queue"]["bytes"] == 1_000_000
    Link(rate=rate(conditional / "plain")).change(SECOND, queue="red minimum=20kB maximum=60kB")


def test_a_scenario_replays_by_the_conditional_method(conditional: Path) -> None:
    scenario = read(conditional, 'method = "conditional"\nstart = "500 ms"\nloop = false')
    directions = {each.name: each for each in make_plan(scenario).directions}
    up, down = (directions[f"mobile-0.{way}"] for way in WAYS)
    [stage] = [each for each in up.stages if each["kind"] == "conditional"]
    assert (stage["offset_ns"], stage["looped"], stage["queue"]["bytes"]) == (500 * MS, False, 60_000)
    assert stage["seed"] != next(each["seed"] for each in down.stages if each["kind"] == "conditional")
    assert "walk uplink by conditional (synthetic) from 500 ms, once, drop-tail queue of 60 kB" in up.description
    assert {"walk uplink by conditional", "walk uplink by conditional model"} <= up.recordings().keys()
    assert Scenario.model_validate(scenario.resolved(), context={"folder": conditional}) == scenario


def test_endpoints_in_a_cell_share_a_recording_by_stated_shares(conditional: Path) -> None:
    copies = read(conditional, 'method = "conditional"')
    copies.nodes["endpoint"] = copies.nodes["endpoint"].model_copy(update={"count": 3})
    assert any(
        note.startswith("each of 3 endpoints has all that was recorded in walk") for note in notes(make_plan(copies))
    )
    for cell, scheduler, shares in (
        ("", "round robin, ", "equal shares assumed: bursts took nothing from the saturation"),
        ('scheduler = "max-rate"', "max-rate, ", "shares by the given scheduler, not from a recording"),
    ):
        plan = make_plan(read(conditional, f'method = "conditional"\n[cells.macro]\n{cell}', cell="macro"))
        assert all(str(each).startswith(scheduler) and shares in str(each) for each in plan.cells)
        assert any(f"[cells.macro] downlink: {shares}" in note for note in notes(plan))
    with pytest.raises(
        ScenarioError, match=r"nodes\.endpoint\.cell: a recording shares a cell by the method conditional"
    ):
        read(conditional, 'method = "cellreplay"\n[cells.macro]', cell="macro")


def test_endpoints_that_share_a_recording_get_its_capacity_together(conditional: Path) -> None:
    link = Link(rate=rate(conditional / "walk"))
    times = np.repeat(SECOND + np.arange(80) * 50 * MS, 60)  # 13.4 Mbit/s of recorded 8 Mbit/s
    alone, lone = link.run(times, 1400), Cell([link], scheduler="round-robin").run([times], 1400).users[0]
    assert np.array_equal(alone.departed, lone.departed)
    for count in (2, 4):
        shared = Cell([link] * count, scheduler="round-robin").run([times] * count, 1400).users
        got = [np.count_nonzero(each.delivered & (each.departed > 2 * SECOND) & (each.departed <= 5 * SECOND))
               for each in (alone, *shared)]  # fmt: skip
        assert sum(got[1:]) == pytest.approx(got[0], rel=0.01)
        assert got[1:] == pytest.approx([got[0] / count] * count, rel=0.02)


@pytest.mark.parametrize(("scheduler", "advantage_ms"), [("round-robin", 0), ("proportional-fair", 100 * np.log(2))])
def test_shares_are_learned_from_two_devices_that_compete(tmp_path: Path, scheduler: str, advantage_ms: float) -> None:
    table = {"kind": scheduler} | ({"window": "100 ms"} if advantage_ms else {})
    plan = fit_plan(conditional_plan(), calibrate_virtually(*(link.stages for link in pair("8 Mbit/s"))))
    full = Fixed(rate_bps=12_000_000)
    apart = record_virtually(pair("8 Mbit/s"), pair("8 Mbit/s"), plan, (full, full), duration_ns=60 * SECOND)
    tables = [apart.light_uplink, apart.heavy_uplink]
    link = Link(rate="8 Mbit/s", delay="20 ms", queue="60 packets")
    out = Cell([link, link], scheduler=table).run([it["sent_ns"] for it in tables], [it["bytes"] for it in tables])
    light, heavy = (
        it.with_columns(arrived_ns=pl.Series(np.where(of.delivered, of.departed, -1)).replace(-1, None))
        for it, of in zip(tables, out.users, strict=True)
    )
    recording = replace(apart, light_uplink=light, heavy_uplink=heavy)
    sharing = learn(recording, "uplink")
    assert sharing.displaced == pytest.approx(1, abs=0.06)
    assert sharing.advantage_ns / MS == pytest.approx(advantage_ms, rel=0.25)
    assert str(sharing).startswith("shares learned from ")
    # One device alone: bursts as fast as the saturation, which has what they took.
    single = alone(recording, "uplink")
    spans = single.light_uplink.filter(pl.col("bytes") == 1400).group_by("train").agg(
        pl.len(), span=pl.col("arrived_ns").max() - pl.col("arrived_ns").min(), there=pl.col("arrived_ns").count()
    ).filter((pl.col("len") >= 30) & (pl.col("len") == pl.col("there")))  # fmt: skip
    assert (spans["span"] / (spans["len"] - 1)).mean() == pytest.approx(1.4 * MS, rel=0.05)
    rates = [len(each.heavy_uplink.drop_nulls("arrived_ns")) for each in (single, recording)]
    assert rates[0] == pytest.approx(8e6 * 60 / (8 * 1400), rel=0.02)
    assert rates[1] < rates[0]
    files = write_replay_files(recording, "uplink", "conditional", tmp_path)
    assert len(files.heavy.read_text().split()) == pytest.approx(8e6 * 60 / (8 * 1400), rel=0.02)


@pytest.mark.needs_tun
def test_links_that_replay_it_are_proved(conditional: Path) -> None:
    asked = make_plan(read(conditional))
    emulator = Emulator.start(asked.emulator_config())
    proofs = list(prove_links(asked, emulator))
    emulator.stop()
    assert [str(proof) for proof in proofs if not proof.ok] == []
    proved = {proof.what for proof in proofs if proof.proved}
    assert {f"mobile-0.{way} {what}" for way in WAYS for what in ("delay", "rate")} <= proved


def test_record_sends_trains_for_all_methods_or_for_the_named_one() -> None:
    def record(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cellbed", "record", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    wrong = record("host:7700", "--secret", "none", "--for", "magic")
    assert (wrong.returncode, "possible values: cellreplay, conditional" in wrong.stderr) == (2, True)
    assert "--for <METHOD>" in record("--help").stdout


def test_a_default_recording_serves_all_methods() -> None:
    uplink, downlink = pair()
    calibration = calibrate_virtually(uplink.stages, downlink.stages)
    plan = default_plan(calibration)
    made = record_virtually(pair(), pair(), plan, (FULL, FULL), duration_ns=60 * SECOND)
    assert made.description.warnings == ()
    description = made.description.model_copy(update={"calibration": calibration})
    recording = replace(made, description=description)
    assert is_conditional(description)
    for way in WAYS:
        assert recording.packets("light", way)["arrived_ns"].null_count() == 0
        assert json.loads(model_text(recording, way))["trains"]
        rows = derive(recording, way).light
        assert len(rows) >= 40
        assert len({len(arrivals) for *_, arrivals in rows}) == 1
    many = {"up": 1, "down": 100, "up_bytes": 1400, "down_bytes": 1400, "gap_ns": 20 * MS}
    crowded = plan.rotation[0].model_copy(update=many)
    plan = plan.model_copy(update={"rotation": (crowded,)})
    described = record_virtually(pair(), pair(), plan, duration_ns=5 * SECOND).description
    assert any("met an earlier one downlink" in warning for warning in described.warnings)
