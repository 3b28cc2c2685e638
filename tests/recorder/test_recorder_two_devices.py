"""The recorder over two devices, bound by their names: light on the one, adaptive saturation on the other."""

import json
import signal
import subprocess
from pathlib import Path

import polars as pl
import pytest

from cellbed.recordings.recording import read_recording
from recorder_server import RECORD, secret
from two_devices import DEVICES, SERVER, two_devices

__all__ = ["secret"]


@pytest.mark.slow
def test_the_queue_of_one_device_is_kept_by_news_over_the_other(secret: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    with two_devices("4mbit", "8mbit") as world:
        listen = ["serve", "--secret", str(secret), "--listen", f"{SERVER}:7700", "--json"]
        server = subprocess.Popen([*world.inside("server"), *RECORD, *listen], stdout=subprocess.PIPE, text=True)
        assert json.loads(server.stdout.readline())["event"] == "listening"
        options = ["--no-calibration", "--light-train", "2:3", "--saturation", "adaptive", "--duration", "15 s"]
        devices = ["--light-interface", DEVICES[0], "--heavy-interface", DEVICES[1]]
        reach = [f"{SERVER}:7700", "--secret", str(secret), "--out", str(folder), "--json"]
        done = subprocess.run(
            [*world.inside("client"), *RECORD, *reach, *options, *devices],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=20)
    assert done.returncode == 0, done.stderr
    reported = read_recording(folder).description.model_dump()
    assert not reported["warnings"]
    assert (reported["light"]["interface"], reported["heavy"]["interface"]) == DEVICES
    for way, bit_rate in (("uplink", 4e6), ("downlink", 8e6)):
        adaptive = {"method": "adaptive", "least_delay_ns": 750_000_000, "most_delay_ns": 3_000_000_000}
        assert reported["heavy"][way] == adaptive
        light = pl.read_parquet(folder / f"light-{way}.parquet")
        assert light["copies"].min() == 1
        # The queue of the other device is not on this one's way.
        assert light.select((pl.col("arrived_ns") - pl.col("sent_ns")).median()).item() < 50_000_000
        heavy = pl.read_parquet(folder / f"heavy-{way}.parquet").drop_nulls()
        waited = (heavy["arrived_ns"] - heavy["sent_ns"]).alias("waited")
        settled = heavy.with_columns(waited - waited.min()).filter(pl.col("arrived_ns").is_between(7e9, 15e9))
        assert settled["waited"].is_between(750_000_000, 3_000_000_000).mean() > 0.9  # type: ignore[operator]
        # The kernel's bucket counts 14 bytes of Ethernet, too.
        assert settled.height * 1414 * 8 / 8 == pytest.approx(bit_rate, rel=0.02)
