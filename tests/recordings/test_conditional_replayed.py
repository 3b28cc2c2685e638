"""A recording with the conditional plan as a link: in a scenario, a shell, the library, and proved before a run."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cellbed import Link
from cellbed.cli.record import _with_plan
from cellbed.recordings import Fixed, TrainPlan, write_recording
from cellbed.recordings.conditional import conditional_plan
from cellbed.recordings.virtual import record_virtually
from cellbed.scenario import Scenario, ScenarioError
from cellbed.scenario.reader import load_text
from cellbed.shell.options import OptionError, Recorded, parse_link
from cellbed.support.ways import WAYS
from cellbed.testbed.links.emulator import Emulator
from cellbed.testbed.plan import make_plan
from cellbed.testbed.proof.links import prove_links
from in_process import cellbed
from recording_examples import MS, SECOND, calibrated, pair, walk

ALONE = ("unshare", "--net") if os.geteuid() == 0 else ("unshare", "--net", "--map-current-user")
SCENARIO = """
name = "walk"
duration = "1 s"
[nodes.endpoint]
cpus = 0.5
memory = "256 MiB"
[nodes.edge]
cpus = 1.0
memory = "512 MiB"
[links.mobile]
kind = "recording"
path = "{path}"
{more}
[links.core]
edge = "base-edge"
[workload]
kind = "image-classification"
on = "edge"
rate = "1 /s"
"""


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recording by the conditional plan, its copy without calibration, and one of other trains."""
    found = tmp_path_factory.mktemp("recordings")
    full = Fixed(rate_bps=40_000_000)
    recording = record_virtually(pair(), pair(), conditional_plan(), (full, full), duration_ns=20 * SECOND)
    write_recording(calibrated(recording), found / "walk")
    write_recording(recording, found / "plain")
    write_recording(calibrated(walk()), found / "other")
    return found


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return folder / "cache" / "cellbed" / "replay"


def rate(folder: Path, way: str = "uplink", **more: Any) -> dict[str, Any]:
    return {"kind": "recording", "path": str(folder), "way": way, **more}


def read(folder: Path, path: str = "walk", more: str = "") -> Scenario:
    return load_text(SCENARIO.format(path=path, more=more), folder / "x.toml")


@pytest.mark.parametrize("more", [{}, {"method": "conditional"}])
def test_packets_take_as_long_as_over_the_recorded_network(folder: Path, cache: Path, more: dict[str, str]) -> None:
    live, replayed = Link(rate="8 Mbit/s", delay="20 ms"), Link(rate=rate(folder / "walk", **more))
    [stage] = replayed.stages
    assert (stage["kind"], stage["queue"]["bytes"]) == ("conditional", 60_000)
    assert Path(stage["model"]).is_relative_to(cache)
    single, burst = np.arange(1, 60) * 100 * MS, np.repeat(SECOND, 40)
    for times in (single, burst):
        gone, again = (link.run(times, 1400).departed for link in (live, replayed))
        assert abs(gone - again).max() < 3 * MS


def test_the_model_is_derived_once(folder: Path, cache: Path) -> None:
    models = {Path(Link(rate=rate(folder / "walk")).stages[0]["model"]) for _ in range(2)}
    [model] = models
    stamp = model.stat().st_mtime_ns
    Link(rate=rate(folder / "walk"), queue="5 packets")
    assert model.stat().st_mtime_ns == stamp


@pytest.mark.parametrize(
    ("path", "more", "message"),
    [
        ("other", {"method": "conditional"}, "other: its trains are not those .*--for conditional"),
        ("walk", {"idle": "3 ms"}, "the method conditional has no idle time F: leave out idle"),
    ],
)
def test_what_does_not_suit_the_method_is_refused(folder: Path, path: str, more: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=f"rate: .*{message}"):
        Link(rate=rate(folder / path, **more))
    recorded = Recorded(path, more.get("method"), ("3 ms", "3 ms") if "idle" in more else None)
    with pytest.raises(OptionError, match=f"--recording: .*{message}"):
        parse_link(recorded=recorded, folder=folder)
    text = "\n".join(f'{key} = "{value}"' for key, value in more.items())
    with pytest.raises(ScenarioError, match=rf"x\.toml:\d+: links\.mobile\.path: .*{message}"):
        read(folder, path, text)


def test_a_live_link_neither_becomes_nor_leaves_a_recording(folder: Path) -> None:
    link = Link(rate=rate(folder / "walk"))
    with pytest.raises(ValueError, match="start another one"):
        link.change(SECOND, rate="5 Mbit/s")
    link.change(SECOND, queue="7 packets")
    with pytest.raises(ValueError, match="start another one"):
        Link(rate="5 Mbit/s").change(SECOND, rate=rate(folder / "walk"))
    with pytest.raises(ValueError, match="mahimahi: "):
        Link(rate=rate(folder / "walk"), mahimahi=True)
    # Without a calibration there is a queue all the same; RED needs no rate beforehand.
    [stage] = Link(rate=rate(folder / "plain")).stages
    assert stage["queue"]["bytes"] == 1_000_000
    Link(rate=rate(folder / "plain")).change(SECOND, queue="red minimum=20kB maximum=60kB")


def test_a_scenario_says_how_it_is_played(folder: Path) -> None:
    scenario = read(folder, more='method = "conditional"\nstart = "500 ms"\nloop = false')
    directions = {each.name: each for each in make_plan(scenario).directions}
    up, down = (directions[f"mobile-0.{way}"] for way in WAYS)
    [stage] = [each for each in up.stages if each["kind"] == "conditional"]
    assert (stage["offset_ns"], stage["looped"], stage["queue"]["bytes"]) == (500 * MS, False, 60_000)
    assert stage["seed"] != next(each["seed"] for each in down.stages if each["kind"] == "conditional")
    assert "walk uplink by conditional (synthetic) from 500 ms, once, drop-tail queue of 60 kB" in up.description
    assert {"walk uplink by conditional", "walk uplink by conditional model"} <= up.recordings().keys()
    assert Scenario.model_validate(scenario.resolved(), context={"folder": folder}) == scenario


@pytest.mark.needs_tun
def test_links_that_replay_it_are_proved(folder: Path) -> None:
    asked = make_plan(read(folder))
    emulator = Emulator.start(asked.emulator_config())
    proofs = list(prove_links(asked, emulator))
    emulator.stop()
    assert [str(proof) for proof in proofs if not proof.ok] == []
    proved = {proof.what for proof in proofs if proof.proved}
    assert {f"mobile-0.{way} {what}" for way in WAYS for what in ("delay", "rate")} <= proved


def test_record_takes_the_plan_by_the_name_of_the_method(tmp_path: Path) -> None:
    import contextlib

    for words in (["--for", "conditional"], ["--for=conditional"]):
        with contextlib.ExitStack() as files:
            *before, option, plan = _with_plan(["host:7700", *words], files)
            assert (before, option) == (["host:7700"], "--plan")
            assert TrainPlan.model_validate_json(Path(plan).read_text()) == conditional_plan()
    for words in (["--for", "magic"], ["--for"]):
        done = cellbed("record", "host:7700", *words)
        assert (done.returncode, "no method of replay" in done.stderr) == (2, True)
    reported = subprocess.run(
        [sys.executable, "-m", "cellbed", "record", "--help"], capture_output=True, text=True, check=False
    )
    assert (reported.returncode, "--for <METHOD>" in reported.stdout) == (0, True)
