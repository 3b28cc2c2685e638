"""The check of a recording: its errors against the truth, and its effects wherever the recording is used."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cellbed import Link
from cellbed.experiments.certification import certify, check_recording, replay_stage
from cellbed.experiments.description import notes, replay_warnings
from cellbed.path import Path as Network
from cellbed.recordings import recorder
from cellbed.recordings.certificate import FILE, read_certificate
from cellbed.recordings.recording import Recording, read_recording, write_recording
from cellbed.recordings.virtual import record_virtually, send_again
from cellbed.scenario.reader import load_text
from cellbed.shell.options import Recorded, parse_link
from cellbed.support.ways import WAYS
from cellbed.testbed.plan import make_plan
from in_process import cellbed
from recording_examples import FULL, PLAN, SECOND, calibrated, pair
from scenario_text import GOOD

SIZES = {20_000: "20 kB", 200_000: "200 kB", 1_000_000: "1 MB"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def record(seconds: int = 50, **link: str) -> Recording:
    devices = pair(**link), pair(**link)
    span, downloads = seconds * SECOND, [*SIZES] * 4
    return calibrated(record_virtually(*devices, PLAN, (FULL, FULL), duration_ns=span, downloads=downloads))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checked recordings: of a wired link, and of one that loses a tenth of the packets."""
    made = tmp_path_factory.mktemp("recordings")
    check_recording(write_recording(record(loss="10 %"), made / "lossy"))
    shown = cellbed("recordings", "check", write_recording(record(), made / "walk"), status=0).stdout
    assert re.search(r"round trip, median +\+0\.0 % ", shown)
    assert "replayed by saturation unless another method is named" in shown
    assert "endpoints that share its uplink: equal shares assumed: " in shown
    return made


def uses(recording: Path, more: str = "") -> tuple[list[str], list[str], str]:
    """Notes and warnings of a run about the recording, and the description of its uplink."""
    mobile = f'\n[links.mobile]\nkind = "recording"\npath = "{recording}"\n{more}\n'
    text = re.sub(r"\n\[links\.mobile\]\n(.+\n)*", lambda _: mobile, GOOD)
    plan = make_plan(load_text(text, recording / "x.toml"))
    said = [each for each in notes(plan) if "its replay" in each]
    return said, replay_warnings(plan), plan.directions[0].description


def test_the_same_packets_over_the_same_links_arrive_as_recorded() -> None:
    recording = record(loss="1 %")
    again = send_again(recording, pair(loss="1 %"))
    for (stem, before), (_, after) in zip(recording.tables(), again.tables(), strict=True):
        assert before.equals(after), stem
    assert recording.downloads is not None
    assert again.downloads is not None
    assert recording.downloads.join(again.downloads, on=recording.downloads.columns).height == 12


def test_the_certificate_states_the_true_errors(folder: Path, tmp_path: Path) -> None:
    certificate, _ = read_certificate(folder / "walk")
    assert certificate is not None
    recording = read_recording(folder / "walk")
    replay = Network(*(Link.of_stages([replay_stage(recording, way, "saturation", tmp_path)]) for way in WAYS))
    stated = {each.measure: each.error for each in certificate.methods["saturation"].deviations}
    for size, words in SIZES.items():
        begins = [at * SECOND // 3 for at in range(5, 90)]
        replayed, live = (
            np.mean([path.copy().downloads(at, sizes=[size]).taken[0] for at in begins])
            for path in (replay, Network(*pair()))
        )
        assert stated[f"download of {words}"] == pytest.approx(replayed / live - 1, abs=0.03)
    assert certificate.best == min(certificate.errors, key=certificate.errors.__getitem__)


def test_trains_are_replayed_by_a_method_that_does_not_know_them(tmp_path: Path) -> None:
    """Each train has another delay: a replay of known trains would have no error."""
    light = tuple(Link(rate="8 Mbit/s", delay="normal mean=60ms deviation=20ms", seed=seed) for seed in (1, 2))
    plan = PLAN.model_copy(update={"gap_ns": SECOND // 3})
    made = record_virtually(light, pair(), plan, (FULL, FULL), duration_ns=50 * SECOND)  # type: ignore[arg-type]
    certificate, _ = check_recording(write_recording(calibrated(made), tmp_path / "drawn"))
    [median, *_] = certificate.methods["cellreplay"].deviations
    assert median.low is not None
    assert median.high is not None
    assert median.high - median.low > 0.02


def test_the_best_method_is_the_default(folder: Path, tmp_path: Path) -> None:
    assert uses(folder / "walk") == ([], [], uses(folder / "walk", 'method = "saturation"')[2])
    # F belongs to cellreplay: giving it selects the method for the recorded trains.
    assert "by cellreplay" in uses(folder / "walk", 'idle = "3 ms"')[2]
    other = shutil.copytree(folder / "walk", tmp_path / "walk")
    content = json.loads((other / FILE).read_text())
    content["methods"]["saturation"]["largest"]["error"] = 9.0
    (other / FILE).write_text(json.dumps(content))
    assert "by cellreplay" in uses(other)[2]


def test_a_large_error_is_reported_wherever_the_recording_is_used(folder: Path) -> None:
    certificate, _ = read_certificate(folder / "lossy")
    assert certificate is not None
    checked = certificate.methods["cellreplay"]
    losses = {each.measure: each.error for each in checked.deviations if each.unit == "share"}
    assert losses == pytest.approx({"uplink loss": -0.1, "downlink loss": -0.1}, abs=0.02)
    assert checked.group == "downloads"
    # Without downloads, the packets that a replay lets through in each train count.
    alone = certify(replace(read_recording(folder / "lossy"), downloads=None), "").methods["cellreplay"]
    lost = read_recording(folder / "lossy").light_downlink["arrived_ns"].null_count()
    trains = read_recording(folder / "lossy").light_downlink["train"].n_unique()
    assert (alone.group, alone.error) == ("loss", pytest.approx(lost / trains, rel=0.2))
    sentence = f"its replay by {certificate.best} errs by"
    unsaid, [said], _ = uses(folder / "lossy")
    assert (unsaid, sentence in said) == ([], True)
    with pytest.warns(UserWarning, match=sentence):
        Link(rate={"kind": "recording", "path": str(folder / "lossy"), "way": "uplink"})
    assert sentence in parse_link(recorded=Recorded("lossy"), folder=folder).uplink.notes[0]
    assert sentence in cellbed("traces", "show", folder / "lossy").stdout


@pytest.mark.parametrize("content", ["", "[" * 100_000, '{"format": "other"}', " " * (2 << 20), None])
def test_a_certificate_that_does_not_belong_here_is_not_used(folder: Path, tmp_path: Path, content: str | None) -> None:
    other = shutil.copytree(folder / "walk", tmp_path / "walk")
    (other / FILE).write_text((folder / "lossy" / FILE).read_text() if content is None else content)
    [said], large, description = uses(other)
    assert (large, "by cellreplay" in description) == ([], True)
    assert ("belongs to other files" if content is None else "cannot be read") in said


def test_the_result_is_printed_where_it_cannot_be_stored(folder: Path, tmp_path: Path) -> None:
    other = shutil.copytree(folder / "walk", tmp_path / "walk")
    (other / FILE).unlink()
    (other / FILE).mkdir()
    done = cellbed("recordings", "check", other, "--json", status=0)
    assert (json.loads(done.stdout)["best"], "cannot be written" in done.stderr) == ("saturation", True)
    short = write_recording(record(20), tmp_path / "short")
    assert "for 40 s or more" in cellbed("recordings", "check", short, status=2).stderr


def test_record_checks_the_recording_at_its_end(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, status = tmp_path / "recorder", tmp_path / "status"
    program.write_text(
        f'#!/bin/sh\nfor last; do :; done\ncp -r {folder}/walk "$last"\nrm "$last/{FILE}"\nexit $(cat {status})\n'
    )
    program.chmod(0o700)
    monkeypatch.setattr(recorder, "_PROGRAM", program)
    for name, more, ends in (("text", [], 0), ("json", ["--json"], 0), ("failed", [], 1)):
        status.write_text(str(ends))
        done = cellbed("record", "host:7700", "--secret", "s", "--out", tmp_path / name, *more, status=ends)
        assert (tmp_path / name / FILE).exists() == (ends == 0)
        assert ("replayed by saturation" in done.stdout) == (name == "text")
        assert ('{"event":"checked"' in done.stdout) == (name == "json")
