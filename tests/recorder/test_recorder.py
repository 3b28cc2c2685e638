"""The recorder over real sockets: alone, through emulated links, killed, interrupted, cut off."""

import hmac
import itertools
import json
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cellbed.experiments.calibration import calibrate_virtually
from cellbed.recordings.cellreplay import derive
from cellbed.recordings.derived import is_conditional
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.recording import read_recording
from emulator_process import EDGE, bottleneck, constant, delay, packets
from recorder_server import RECORD, Relay, network, secret, serving

__all__ = ["secret"]

LIGHT = ["--only", "light", "--no-calibration"]


def start(server: str, secret: Path, folder: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [*RECORD, server, "--secret", str(secret), "--out", str(folder), "--json", "--no-check", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def finish(process: subprocess.Popen[str]) -> Any:
    """The last event of a recording that succeeds."""
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    result = json.loads(output.splitlines()[-1])
    assert result["event"] == "recorded"
    return result


def table(folder: Path, stem: str) -> pl.DataFrame:
    return pl.read_parquet(folder / f"{stem}.parquet")


def description(folder: Path) -> Any:
    return json.loads((folder / "recording.json").read_text())


def wait_for_trains(process: subprocess.Popen[str], seconds: float, answered: bool | None = None) -> None:
    """Until a recording has gone on for so long. answered: and trains are answered, or not."""
    for line in process.stdout:
        event = json.loads(line)
        reached = event["event"] == "progress" and event["elapsed_s"] >= seconds
        if reached and answered in (None, event["round_trip_ms"] is not None):
            return
    pytest.fail("the recording ended too soon")


def test_a_recording_over_loopback_has_every_packet_in_its_place(secret: Path, tmp_path: Path) -> None:
    folder, found = tmp_path / "recording", tmp_path / "calibration.json"
    steady = (delay(10), constant(10_000_000, 100_000))
    found.write_text(calibrate_virtually(steady, steady, 1).recorder_json())
    with serving(secret) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        host, port = server.split(":")
        for length in range(1473):  # rubbish does not stop the server
            stranger.sendto(bytes(length), (host, int(port)))
        connections = [
            socket.create_connection((host, int(port))) for _ in range(80)
        ]  # nor do idle and odd connections
        for length, connection in enumerate(connections[::2]):
            connection.sendall(bytes(2 * length))
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
    assert {span["workload"] for span in told_back["spans"]} == {"light", "heavy", "downloads"}
    files = whole.downloads
    assert files["bytes"].to_list() == [10_000, 100_000, 1_000_000]
    assert files["taken_ns"].null_count() == 0
    (fetching,) = (span for span in told_back["spans"] if span["workload"] == "downloads")
    assert told_back["duration_ns"] < fetching["start_ns"] <= files["started_ns"].min()
    assert (files["started_ns"] + files["taken_ns"]).max() <= fetching["end_ns"]


def test_a_default_recording_is_planned_within_its_budget(secret: Path, tmp_path: Path) -> None:
    found, folder = tmp_path / "calibration.json", tmp_path / "recording"
    steady = (delay(10), constant(10_000_000, 100_000))
    found.write_text(calibrate_virtually(steady, steady, 1).model_dump_json())  # with whole numbers as fractions
    options = ["--calibration", str(found), "--duration", "6 s", "--turns", "2s:1s", "--budget"]
    with serving(secret) as server:
        process = start(server, secret, folder, *options, "10 MB")
        output, errors = process.communicate(timeout=300)
        refused = start(server, secret, tmp_path / "none", *options, "1 MB")
        assert "more than the budget of 1 MB" in refused.communicate(timeout=200)[1]
    assert (process.returncode, refused.returncode) == (0, 2), errors
    events = {event["event"]: event for event in map(json.loads, output.splitlines())}
    sent = 1400 * sum(counts["sent"] for counts in events["recorded"]["counts"].values())
    assert events["planned"]["bytes"] <= 10_000_000
    assert sent < 1.3 * events["planned"]["bytes"]
    assert any("took turns over one device" in warning for warning in events["recorded"]["warnings"])
    whole = read_recording(folder)
    assert is_conditional(whole.description)
    assert derive(whole, "downlink").light


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
    # Two round trips at least, and a megabyte at 5.4 Mbit/s.
    files = read_recording(light).downloads
    assert all(taken > least for taken, least in zip(files["taken_ns"], (8e7, 8e7, 1.2e9), strict=True))
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
    # A sender that a busy machine held up leaves the queue empty: opportunities of then carry nothing.
    full = log[(log["direction"] == 3) & (log["bytes"] == 1500) & (log["drop"] == 0)]
    came, left = (np.sort(full[column]) - zero for column in ("arrived", "released"))
    waiting = np.searchsorted(came, loops) > np.searchsorted(left, loops)
    expected = loops[waiting & (loops >= first * 1_000_000) & (loops < last * 1_000_000)]
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


def test_a_pause_costs_packets_and_another_address_seconds(secret: Path, tmp_path: Path) -> None:
    folder, neighbour = tmp_path / "recording", tmp_path / "neighbour"
    with serving(secret) as server, Relay(server) as relay:
        arguments = [*LIGHT, "--light-train", "2:2", "--gap", "20 ms", "--downloads", "20 kB"]
        stopped = start(server, secret, neighbour, *arguments, "--duration", "1 h")
        wait_for_trains(stopped, 1)
        stopped.send_signal(signal.SIGSTOP)
        process = start(relay.address, secret, folder, *arguments, "--duration", "17 s")
        wait_for_trains(process, 2)
        relay.paused = True
        wait_for_trains(process, 6)
        relay.paused = False
        wait_for_trains(process, 8)
        relay.rebind()
        result = finish(process)
        stopped.send_signal(signal.SIGCONT)
        stopped.send_signal(signal.SIGINT)
        assert finish(stopped)["counts"]["light-uplink"]["sent"] > 20
    assert ["lost its session" in each for each in result["warnings"] if "were lost" not in each] == [True]
    up, down = table(folder, "light-uplink"), table(folder, "light-downlink")
    seconds = pl.col("sent_ns") // 1_000_000_000
    arrived = up.group_by(seconds.alias("second")).agg((pl.col("copies") > 0).mean())
    shares = dict(arrived.iter_rows())
    assert len([at for at, share in shares.items() if share == 0 and at < 7]) >= 2  # whole seconds of the pause
    first, second, files = description(folder)["spans"]
    assert [span["workload"] for span in (first, second, files)] == ["light", "light", "downloads"]
    assert 6e9 < first["end_ns"] < second["start_ns"]  # the server has found the new address
    begin = second["start_ns"] // 1_000_000_000
    assert min(share for at, share in shares.items() if at == 0 or at > begin) > 0.9
    assert down.filter(pl.col("arrived_ns") > second["start_ns"]).height > 100
    assert read_recording(folder).downloads["taken_ns"].null_count() == 0


def test_a_restarted_server_leaves_a_gap(secret: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    arguments = [*LIGHT, "--light-train", "2:2", "--no-downloads", "--duration", "1 h"]
    with serving(secret) as server:
        process = start(server, secret, folder, *arguments)
        wait_for_trains(process, 3)
    wait_for_trains(process, 3, answered=False)
    with serving(secret, server):
        wait_for_trains(process, 3, answered=True)
        process.send_signal(signal.SIGINT)
        assert any("interrupted or lost" in warning for warning in finish(process)["warnings"])
    first, second = description(folder)["spans"]
    assert 2e9 < first["end_ns"] < second["start_ns"]
    lost = table(folder, "light-uplink").filter(pl.col("sent_ns") >= second["start_ns"], pl.col("copies") == 0)
    assert lost.height == 0


def test_a_client_of_another_release_learns_it_in_one_sentence(secret: Path) -> None:
    key = hmac.digest(bytes.fromhex(secret.read_text()), b"cellbed-recorder codes of client" + bytes(8), "sha256")
    hello = bytes([1, 2]) + bytes(1166)
    with serving(secret) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as old:
        host, port = server.split(":")
        old.settimeout(200)
        old.sendto(hello + hmac.digest(key, hello, "sha256"), (host, int(port)))
        answer = old.recv(2048)
    assert (answer[0], answer[2], int.from_bytes(answer[3:11])) == (4, 10, answer[1])  # "speaks version 3"


def test_ctrl_c_ends_a_recording_properly(secret: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    with serving(secret) as server:
        process = start(server, secret, folder, *LIGHT, "--light-train", "2:2", "--duration", "1 h")
        wait_for_trains(process, 1)
        process.send_signal(signal.SIGINT)
        result = finish(process)
    assert all("trains arrived" in each for each in result["warnings"])  # a short recording
    assert 0.5 < result["duration_s"] < 60
    assert result["counts"]["light-uplink"]["lost"] == 0


@pytest.mark.slow
def test_ctrl_c_ends_a_recording_and_not_its_check(secret: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    with serving(secret) as server:
        command = [
            *RECORD,
            server,
            "--secret",
            str(secret),
            "--out",
            str(folder),
            "--json",
            *LIGHT,
            "--light-train",
            "1:1",
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for_trains(process, 1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert "not checked: " in errors
    assert read_recording(folder).light_downlink.height > 0


def test_turns_share_one_way(secret: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    with serving(secret) as server:
        options = ["--no-calibration", "--light-train", "3:3", "--uplink-rate", "2", "--downlink-rate", "2"]
        options.append("--no-downloads")
        finish(start(server, secret, folder, *options, "--turns", "0.5s:0.5s", "--duration", "3 s"))
    spans = description(folder)["spans"]
    assert [span["workload"] for span in spans[:2]] == ["light", "heavy"]
    for one, next_ in itertools.pairwise(spans):
        assert next_["start_ns"] >= one["end_ns"] + 1_000_000_000
    for stem in ("light-uplink", "heavy-downlink"):
        packets = table(folder, stem)
        assert packets.select(pl.struct("train", "index").is_duplicated().any()).item() is False


def test_two_devices_bound_by_their_names_make_one_recording(secret: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    with serving(secret) as server:
        devices = ["--light-interface", "lo", "--heavy-interface", "lo", "--duration", "1 s"]
        rates = ["--no-calibration", "--light-train", "2:3", "--uplink-rate", "2", "--downlink-rate", "4"]
        counts = finish(start(server, secret, folder, *rates, *devices))["counts"]
    reported = description(folder)
    assert (reported["light"]["interface"], reported["heavy"]["interface"]) == ("lo", "lo")
    assert min(count["sent"] - count["lost"] for count in counts.values()) > 20


def test_what_is_wrong_is_said_in_one_sentence(secret: Path, tmp_path: Path) -> None:
    def fails(*arguments: str, status: int = 1) -> str:
        done = subprocess.run([*RECORD, *arguments], capture_output=True, text=True, check=False, timeout=200)
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
