"""The recorder over real sockets: alone, through emulated links, killed, interrupted, cut off."""

import itertools
import json
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cellbed.experiments.calibration import calibrate_virtually
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.recording import read_recording
from emulator_process import EDGE, Stages, bottleneck, constant, delay, packets
from recorder_server import RECORD, network, secret, serving

__all__ = ["secret"]

LIGHT = ["--only", "light", "--no-calibration"]


def start(server: str, secret: Path, folder: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [*RECORD, server, "--secret", str(secret), "--out", str(folder), "--json", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def finish(process: subprocess.Popen[str]) -> Any:
    """The last event of a recording that succeeds."""
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    result = json.loads(output.splitlines()[-1])
    assert result["event"] == "recorded"
    return result


def table(folder: Path, stem: str) -> pl.DataFrame:
    return pl.read_parquet(folder / f"{stem}.parquet")


def description(folder: Path) -> Any:
    return json.loads((folder / "recording.json").read_text())


def wait_for_trains(process: subprocess.Popen[str], seconds: float) -> None:
    """Until a recording has gone on for so long."""
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "progress" and event["elapsed_s"] >= seconds:
            return
    pytest.fail("the recording ended too soon")


def test_a_recording_over_loopback_has_every_packet_in_its_place(secret: Path, tmp_path: Path) -> None:
    folder, found = tmp_path / "recording", tmp_path / "calibration.json"
    steady = (delay(10), constant(10_000_000, 100_000))
    found.write_text(calibrate_virtually(steady, steady, 1).recorder_json())
    with serving(secret) as server:
        options = ["--calibration", str(found), "--trains", "5:9,1:1", "--gap", "20 ms", "--together"]
        options += ["--duration", "2 s"]
        rates = ["--uplink-rate", "4 Mbit/s", "--downlink-rate", "8 Mbit/s"]
        reported = ["--operator", "nobody", "--rsrp", "-97.5", "--mobility", "stationary"]
        result = finish(start(server, secret, folder, *options, *rates, *reported))
    assert not (folder / "journal").exists()
    for stem, counts in result["counts"].items():
        packets = table(folder, stem)
        assert packets.height == counts["sent"]
        assert packets.sort("train", "index").equals(packets)
        assert (packets["bytes"] == 1400).all()
        arrived = packets.filter(pl.col("copies") > 0)
        assert arrived.height == counts["sent"] - counts["lost"]
        assert (arrived["arrived_ns"] >= arrived["sent_ns"] - 2_000_000).all()
    light = table(folder, "light-uplink").group_by("train", maintain_order=True).len()["len"].to_list()
    assert light[:4] == [5, 1, 5, 1]
    assert (table(folder, "heavy-downlink")["train"] == 0).all()
    whole = read_recording(folder)
    assert {stem: counts.model_dump() for stem, counts in whole.description.counts.items()} == result["counts"]
    assert whole.counted().description.counts == whole.description.counts
    told_back = description(folder)
    assert told_back["signal"]["operator"] == "nobody"
    assert told_back["signal"]["rsrp_dbm"] == -97.5
    assert told_back["heavy"]["downlink"] == {"method": "fixed", "rate_bps": 8_000_000}
    assert told_back["calibration"] == json.loads(found.read_text())
    assert any("--together" in warning for warning in told_back["warnings"])
    assert told_back["light"]["plan"]["gap_ns"] == 20_000_000
    assert {span["workload"] for span in told_back["spans"]} == {"light", "heavy"}


def test_losses_and_reordering_are_those_of_the_link(secret: Path, tmp_path: Path) -> None:
    jitter = {"kind": "uniform", "mean_ns": 20_000_000, "spread_ns": 3_000_000}

    def direction(seed: int) -> Stages:
        draw = {"kind": "jitter", "distribution": jitter, "reorder": True, "seed": seed}
        return [{"kind": "loss", "probability": 0.01, "seed": seed}, draw]

    folder = tmp_path / "recording"
    with (
        network(direction(1), direction(2), tmp_path) as emulator,
        serving(secret, f"{EDGE[4]}:7700", preexec_fn=emulator.inside("edge")) as server,
    ):
        process = start(
            server, secret, folder, "--no-calibration", "--light-train", "20:30", "--duration", "2.5 s", "--together",
            "--uplink-rate", "6", "--downlink-rate", "6", preexec_fn=emulator.inside("endpoint"),
        )  # fmt: skip
        result = finish(process)
        emulator.stop()
    log = packets(tmp_path)
    probes = log[log["bytes"] == 1400]
    for way, number in (("uplink", 0), ("downlink", 3)):
        dropped = int(((probes["direction"] == number) & (probes["drop"] == 2)).sum())
        counts = [result["counts"][f"{workload}-{way}"] for workload in ("light", "heavy")]
        # What the machine itself dropped, being busy, is no business of this test.
        passed = sum(count["sent"] - count["lost"] for count in counts)
        left = int(((probes["direction"] == number) & (probes["drop"] == 0)).sum())
        assert passed == left
        assert sum(count["lost"] for count in counts) == dropped > 5
        assert all(count["reordered"] > 20 for count in counts)
        assert all(count["duplicated"] == 0 for count in counts)


def test_a_known_trace_and_delay_come_back(secret: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    times = np.sort(rng.choice(np.arange(1, 2000), 900, replace=False))
    path = tmp_path / "known.down"
    path.write_text("".join(f"{ms}\n" for ms in [*times, 2000]))
    schedule = {"kind": "trace", "path": str(path), "looped": True, "offset_ns": 0}
    folder = tmp_path / "recording"
    downlink = [bottleneck(schedule, queue_bytes=150_000), delay(20)]
    with (
        network([delay(20)], downlink, tmp_path) as emulator,
        serving(secret, f"{EDGE[4]}:7700", preexec_fn=emulator.inside("edge")) as server,
    ):
        zero = time.monotonic_ns() + 100_000_000
        emulator.command(do="start", at_ns=zero, offset_ns=0)
        heavy = ["--only", "heavy", "--no-calibration", "--uplink-rate", "1", "--downlink-rate", "7"]
        inside = emulator.inside("endpoint")
        finish(start(server, secret, folder, *heavy, "--packet-bytes", "1500", "--duration", "4 s", preexec_fn=inside))
        light = tmp_path / "light"
        finish(start(server, secret, light, *LIGHT, "--light-train", "1:1", "--duration", "1 s", preexec_fn=inside))
        # A millisecond, and what a busy machine added as the emulator states it.
        tolerance_ns = 1e6 + emulator.stop()["lateness_ns"]["p99"]
    # Both ends have the clock of this machine, and the emulator, too: so it knows where time zero lies on it.
    log = packets(tmp_path)
    entered = np.sort(log["arrived"][(log["direction"] == 0) & (log["bytes"] == 1500)])
    begin = int((entered - table(folder, "heavy-uplink")["sent_ns"].sort().to_numpy()).min())
    clock = description(folder)["clock"]["heavy"]
    assert abs(clock["drift_ppm"]) < 20
    # A busy machine can make one direction of the least round trip longer, which stamps cannot show.
    assert abs(clock["offset_ns"] - begin) <= clock["uncertainty_ns"]
    arrived = table(folder, "heavy-downlink")["arrived_ns"].drop_nulls().sort().to_numpy()
    position = arrived + begin - zero - 20_000_000
    first, last = position[50] // 1_000_000 + 5, position[-50] // 1_000_000 - 5
    steady = position[(position >= first * 1_000_000) & (position < last * 1_000_000)]
    loops = np.concatenate([np.append(times, 2000) + 2000 * loop for loop in range(20)]) * 1_000_000
    expected = loops[(loops >= first * 1_000_000) & (loops < last * 1_000_000)]
    assert len(steady) == pytest.approx(len(expected), rel=0.01)
    nearest = expected[np.clip(np.searchsorted(expected, steady - 500_000), 0, len(expected) - 1)]
    assert np.median(np.abs(steady - nearest)) < tolerance_ns
    up, down = table(light, "light-uplink"), table(light, "light-downlink")
    trips = down.join(up, on=["train", "index"]).select(pl.col("arrived_ns") - pl.col("sent_ns_right")).to_series()
    # Most packets wait for an opportunity of the trace; the luckiest wait for a busy processor only.
    base_delay = float(trips.min()) / 2  # type: ignore[arg-type]
    assert 19.9e6 < base_delay < 25e6 + tolerance_ns


def test_a_killed_recording_loses_its_last_second_and_no_more(secret: Path, tmp_path: Path) -> None:
    folder, copy = tmp_path / "recording", tmp_path / "copy"
    with serving(secret) as server:
        process = start(server, secret, folder, *LIGHT, "--light-train", "4:4", "--gap", "10 ms", "--duration", "1 h")
        wait_for_trains(process, 2)
        busy = subprocess.run([*RECORD, "pack", str(folder)], capture_output=True, text=True, check=False)
        assert "still being recorded" in busy.stderr
        with pytest.raises(RecordingError, match="still being recorded"):
            read_recording(folder)
        process.kill()
        process.communicate()
    assert not (folder / "recording.json").exists()
    shutil.copytree(folder, copy)
    command = [*RECORD, server, "--secret", str(secret), "--out", str(folder), *LIGHT, "--light-train", "1:1"]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "pack" in again.stderr
    packed = subprocess.run([*RECORD, "pack", str(folder)], capture_output=True, text=True, check=True)
    assert "interrupted" in packed.stdout
    read = read_recording(copy)  # a reader packs what a killed recorder has left
    assert read.light_uplink.height == read.description.counts["light-uplink"].sent
    assert not (copy / "journal").exists()
    up, end = table(folder, "light-uplink"), description(folder)["duration_ns"]
    assert up.equals(read.light_uplink)
    assert end > 700_000_000
    assert up["sent_ns"].max() > end - 1_000_000_000  # type: ignore[operator]
    assert up["copies"].sum() == up.height
    assert up.height % 4 == 0


def test_ctrl_c_ends_a_recording_properly(secret: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    with serving(secret) as server:
        process = start(server, secret, folder, *LIGHT, "--light-train", "2:2", "--duration", "1 h")
        wait_for_trains(process, 1)
        process.send_signal(signal.SIGINT)
        result = finish(process)
    assert result["warnings"] == []
    assert 0.5 < result["duration_s"] < 60
    assert result["counts"]["light-uplink"]["lost"] == 0


@pytest.mark.slow
def test_turns_share_one_way(secret: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    with serving(secret) as server:
        options = ["--no-calibration", "--light-train", "3:3", "--uplink-rate", "2", "--downlink-rate", "2"]
        finish(start(server, secret, folder, *options, "--turns", "0.5s:0.5s", "--duration", "3 s"))
    spans = description(folder)["spans"]
    assert [span["workload"] for span in spans[:2]] == ["light", "heavy"]
    for one, next_ in itertools.pairwise(spans):
        assert next_["start_ns"] >= one["end_ns"] + 1_000_000_000
    for stem in ("light-uplink", "heavy-downlink"):
        packets = table(folder, stem)
        assert packets.select(pl.struct("train", "index").is_duplicated().any()).item() is False


def test_what_is_wrong_is_said_in_one_sentence(secret: Path, tmp_path: Path) -> None:
    def fails(*arguments: str, status: int = 1) -> str:
        done = subprocess.run([*RECORD, *arguments], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        assert "panicked" not in done.stderr
        return done.stderr

    reach = ["127.0.0.1:1", "--secret", str(secret)]
    assert "no port" in fails("vps.example", "--secret", str(secret), *LIGHT, "--light-train", "1:1", status=2)
    assert "the trains must be given" in fails(*reach, *LIGHT, status=2)
    assert "no such interface" in fails(*reach, *LIGHT, "--light-train", "1:1", "--interface", "wwan77")
    assert "such as 25:50" in fails(*reach, "--light-train", "twenty", status=2)
    open_secret = tmp_path / "open"
    open_secret.write_text("00" * 32 + "\n")
    open_secret.chmod(0o644)
    assert "chmod 600" in fails("127.0.0.1:1", "--secret", str(open_secret), *LIGHT, "--light-train", "1:1")
    assert "no journal" in fails("pack", str(tmp_path))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    output = ["--out", str(tmp_path / "taken")]
    assert "choose another name" in fails(*reach, *LIGHT, "--light-train", "1:1", *output)
    adaptive = ["--no-calibration", "--light-train", "1:1", "--saturation", "adaptive"]
    assert "needs a second device" in fails(*reach, *adaptive, status=2)


def test_help_shows_what_record_understands() -> None:
    shown = subprocess.run([*RECORD, "--help"], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("Usage: cellbed record [OPTIONS]")
    assert re.search(r"^  -o, --out <DIR> +Directory of the recording", shown, re.M)
    for word in ("--light-interface", "serve", "Examples:", "Exit status:"):
        assert word in shown
    assert "cellbed-recorder" not in shown
    serve = subprocess.run([*RECORD, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    assert "--listen" in serve
