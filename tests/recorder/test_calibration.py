"""Calibration: of links in virtual time and over real sockets, as a table and figures."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cellbed import Link
from cellbed.experiments.calibration import CalibrationError, calibrate_radio, calibrate_virtually, parse
from cellbed.recordings import recorder
from cellbed.recordings.description import Calibration
from cellbed.report.calibration import figures, write
from emulator_process import EDGE
from in_process import cellbed
from recorder_server import network, secret, serving

__all__ = ["secret"]

CALIBRATE = [sys.executable, "-m", "cellbed", "calibrate"]


@pytest.fixture(scope="module")
def lowband() -> Calibration:
    return calibrate_radio("lowband-good")


def test_a_link_in_virtual_time_is_told_as_it_is() -> None:
    queue = {"kind": "droptail", "limit": "300 kB"}
    uplink = Link(rate="10 Mbit/s", queue=queue, delay="20 ms")
    downlink = Link(rate="40 Mbit/s", queue=queue, delay="10 ms")
    found = calibrate_virtually(uplink.stages, downlink.stages)
    assert found.directions.uplink is not None
    assert found.directions.downlink is not None
    assert found.directions.uplink.saturated_bps == pytest.approx(10e6, rel=0.01)
    assert found.directions.downlink.saturated_bps == pytest.approx(40e6, rel=0.01)
    assert found.directions.downlink.queue_bytes == pytest.approx(300e3, rel=0.03)
    assert found.round_trip_ns is not None
    assert found.round_trip_ns.median == pytest.approx(30e6 + 1.12e6 + 0.28e6, rel=0.02)


def test_nothing_that_comes_through_is_an_error_that_says_so() -> None:
    silent = Link(rate="10 Mbit/s", loss=0.999999)
    with pytest.raises(CalibrationError, match=r"nothing arrived uplink .*Is the server running"):
        calibrate_virtually(silent.stages, Link(rate="10 Mbit/s").stages)


def test_what_is_no_calibration_is_refused() -> None:
    with pytest.raises(CalibrationError, match=r"this is no calibration: directions: Field required"):
        parse("{}")


def test_the_verdict_has_the_figures(lowband: Calibration) -> None:
    downlink = lowband.directions.downlink
    assert downlink is not None
    assert downlink.saturated_bps is not None
    rate = {
        profile.length: (profile.length - 1) * 11200 / profile.mean_arrival_ns[-1] * 1e3 for profile in downlink.lengths
    }
    first, second = lowband.verdict[:2]
    assert f"100-packet downlink trains are delivered {rate[100] / rate[10]:.1f} (±" in first
    assert f"{downlink.saturated_bps / 1e6:.1f} Mbit/s under saturation" in first
    assert "Replaying saturation alone would deliver a 250 KB download that comes at once" in second


def test_each_figure_is_a_picture_with_its_axes(lowband: Calibration) -> None:
    pictures = dict(figures(lowband))
    kinds = ("arrivals", "gaps")
    assert set(pictures) == {f"{kind}-{way}" for kind in kinds for way in ("uplink", "downlink")}
    for picture in pictures.values():
        root = ElementTree.fromstring(picture)
        words = " ".join(text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text"))
        assert "(ms)" in words
        assert "NaN" not in picture
        assert "nan" not in picture


def test_a_folder_has_everything(lowband: Calibration, tmp_path: Path) -> None:
    path = write(tmp_path / "new" / "folder", lowband)
    assert parse(path.read_text()) == lowband
    assert len(list(path.parent.glob("*.svg"))) == 4


def test_half_a_calibration_can_be_shown(lowband: Calibration, tmp_path: Path) -> None:
    directions = lowband.directions.model_copy(update={"uplink": None})
    half = lowband.model_copy(update={"directions": directions, "round_trip_ns": None, "verdict": ()})
    assert len(dict(figures(half))) == 2
    assert write(tmp_path / "half", half).exists()


def test_the_command_shows_a_profile(lowband: Calibration, tmp_path: Path) -> None:
    shown = cellbed("calibrate", "--virtual", "lowband-good", "--out", str(tmp_path / "out"), status=0)
    assert "train (U, D), packets" in shown.stdout
    assert (tmp_path / "out" / "calibration.json").exists()
    printed = cellbed("calibrate", "--virtual", "lowband-good", "--json")
    assert parse(printed.stdout) == lowband


def test_what_is_wrong_is_said_in_one_sentence(tmp_path: Path) -> None:
    unknown = cellbed("calibrate", "--virtual", "lowband-god", status=2)
    assert "did you mean 'lowband-good'?" in unknown.stderr
    assert cellbed("calibrate").returncode == 2
    unreadable = cellbed("calibrate", "192.0.2.1:7700", "--secret", str(tmp_path / "none"), status=2)
    assert str(tmp_path / "none") in unreadable.stderr
    assert "Traceback" not in unreadable.stderr


def test_without_the_recorder_the_error_names_the_command_that_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_PROGRAM", tmp_path / "cellbed-recorder")
    for words in (["calibrate", "192.0.2.1:7700", "--secret", "x"], ["record", "--help"]):
        assert "scripts/setup.sh core" in cellbed(*words, status=2).stderr


@pytest.mark.slow
def test_a_network_behind_real_sockets_is_told_as_it_is(secret: Path, tmp_path: Path) -> None:
    """Less than five minutes, by definition."""
    link = {"kind": "radio", "profile": "lowband-good", "seed": 3}
    with (
        network([link | {"way": "uplink"}], [link | {"way": "downlink"}], tmp_path) as emulator,
        serving(secret, f"{EDGE[4]}:7700", preexec_fn=emulator.inside("edge")) as server,
    ):
        command = [*CALIBRATE, server, "--secret", str(secret), "--json", "--out", str(tmp_path / "out")]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=emulator.inside("endpoint")
        )
        output, errors = process.communicate(timeout=500)
        assert process.returncode == 0, errors
        emulator.stop()
    found = parse(output)
    assert json.loads(output)["verdict"]
    downlink, uplink = found.directions.downlink, found.directions.uplink
    assert downlink is not None
    assert uplink is not None
    assert downlink.saturated_bps == pytest.approx(60.7e6, rel=0.15)
    assert uplink.saturated_bps == pytest.approx(17.1e6, rel=0.15)
    assert downlink.queue_bytes == pytest.approx(2e6, rel=0.1)
    assert uplink.queue_bytes == pytest.approx(5e5, rel=0.1)
