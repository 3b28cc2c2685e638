"""Calibration: of links in virtual time and over real sockets, as a table and figures."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cellbed import Link
from cellbed.experiments.calibration import CalibrationError, calibrate_virtually, parse
from cellbed.recordings import recorder
from cellbed.report.calibration import write
from emulator_process import EDGE
from in_process import cellbed
from recorder_server import network, secret, serving

__all__ = ["secret"]

CALIBRATE = [sys.executable, "-m", "cellbed", "calibrate"]


def test_nothing_that_comes_through_is_an_error_that_says_so() -> None:
    silent = Link(rate="10 Mbit/s", loss=0.999999)
    with pytest.raises(CalibrationError, match=r"nothing arrived uplink .*Is the server running"):
        calibrate_virtually(silent.stages, Link(rate="10 Mbit/s").stages)
    with pytest.raises(CalibrationError, match=r"not a calibration: directions: Field required"):
        parse("{}")


def test_the_command_shows_a_profile_and_writes_figures_with_axes(tmp_path: Path) -> None:
    shown = cellbed("calibrate", "--virtual", "lowband-good", "--out", str(tmp_path / "new" / "out"), status=0)
    assert "train (U, D), packets" in shown.stdout
    printed = cellbed("calibrate", "--virtual", "lowband-good", "--json")
    found = parse((tmp_path / "new" / "out" / "calibration.json").read_text())
    assert parse(printed.stdout) == found
    downlink = found.directions.downlink
    assert f"{downlink.saturated_bps / 1e6:.1f} Mbit/s under saturation" in found.verdict[0]
    assert "Replaying saturation alone would deliver a 250 KB download that comes at once" in found.verdict[1]
    pictures = {path.stem: path.read_text() for path in (tmp_path / "new" / "out").glob("*.svg")}
    assert set(pictures) == {f"{kind}-{way}" for kind in ("arrivals", "gaps") for way in ("uplink", "downlink")}
    for picture in pictures.values():
        root = ElementTree.fromstring(picture)
        assert "(ms)" in " ".join(text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text"))
        assert "nan" not in picture.lower()
    directions = found.directions.model_copy(update={"uplink": None})
    half = found.model_copy(update={"directions": directions, "round_trip_ns": None, "verdict": ()})
    assert write(tmp_path / "half", half).exists()
    assert len(list((tmp_path / "half").glob("*.svg"))) == 2


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
    assert downlink.saturated_bps == pytest.approx(60.7e6, rel=0.15)
    assert uplink.saturated_bps == pytest.approx(17.1e6, rel=0.15)
    assert downlink.queue_bytes == pytest.approx(2e6, rel=0.1)
    assert uplink.queue_bytes == pytest.approx(5e5, rel=0.1)
