"""Samples of place and signal during a recording: from sources that work, search, send rubbish or are not there.

In place of adb, which needs a phone, a program of this name prints texts in the format of several Android versions.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellbed.archive.entry import About, Draft
from cellbed.experiments.android import AndroidSampler, Signal, parse_registry
from cellbed.experiments.position import Fix, GpsdReader, NmeaReader, PositionSampler, nmea_checksum
from cellbed.recordings.importing import recognise
from recorder_server import RECORD, secret, serving

__all__ = ["secret"]


def sentence(body: str) -> str:
    return f"${body}*{nmea_checksum(body)}"


RMC = sentence("GPRMC,083559.00,A,4717.11437,N,00833.91522,W,12.5,77.52,091202,,,A")
GGA = sentence("GNGGA,083559.00,4717.11437,N,00833.91522,W,1,08,1.01,499.6,M,48.0,M,,")
TPV = {"class": "TPV", "mode": 3, "lat": 46.49, "lon": 7.56, "altMSL": 1343.1, "speed": 0.09, "eph": 6.3}
LTE = "mLte=CellSignalStrengthLte: rssi=-65 rsrp={} rsrq=-7 rssnr={} {}cqi=11 ta=0 level=4"
NR = "mNr=CellSignalStrengthNr:{{ csiRsrp = 2147483647 csiCqiReport = [] ssRsrp = {} ssRsrq = -12 ssSinr = 15 }}"
NONE, NEW = 2147483647, "cqiTableIndex=1 "
FLAT = "Phone Id=0\n  mSignalStrength=SignalStrength: 99 0 -120 -160 -120 -1 -1 26 -87 -7 262 2147483647 gsm|lte\n"
AROUND = (
    "  mCellInfo=[CellInfoLte:{{mRegistered=NO CellIdentityLte:{{ mCi=7 }}}}, CellInfo{0}:{{mRegistered=YES {1}}}]\n"
)
SERVED = "CellIdentityLte:{{ mCi={} mPci=312 mEarfcn=1650 mBands=[3] mAdditionalPlmns={{}} }}"
IN_NR = "CellIdentityNr:{ mPci = 269 mNrArfcn = 396030 mMcc = 311 mNci = 14567084500 mAdditionalPlmns = {} }"


def dump(sim: int, connected: int, lte: str, rsrp: int, cell: str) -> str:
    signal = f"  mSignalStrength=SignalStrength:{{{lte},{NR.format(rsrp)},primary=CellSignalStrengthLte}}\n"
    return f"Phone Id={sim}\n  mDataConnectionState={connected}\n{signal}{cell}"


OTHER_SIM = dump(0, 0, LTE.format(-101, 9, NEW), NONE, "")
DUMPS = [
    (FLAT, Signal("lte", None, -87, -7, 26.2)),  # Android 9
    (
        dump(0, 2, LTE.format(-85, 150, ""), NONE, AROUND.format("Lte", SERVED.format(19695115))),  # 10
        Signal("lte", "19695115", -85, -7, 15),
    ),
    (
        OTHER_SIM + dump(1, 2, LTE.format(-90, 22, NEW), -88, "mCellIdentity=" + SERVED.format("7*****68")),
        Signal("5g-nsa", "PCI 312 on 1650", -88, -12, 15),
    ),
    (
        dump(0, 2, LTE.format(NONE, NONE, NEW), -95, f"mServiceState={{cellIdentity={IN_NR}}}"),
        Signal("5g-sa", "14567084500", -95, -12, 15),
    ),
    (dump(0, 0, LTE.format(NONE, NONE, NEW), NONE, ""), None),
]


def test_receivers_and_phones_report_in_known_units() -> None:
    reader = NmeaReader()
    assert reader.read(GGA) is None
    fix = reader.read(RMC)
    found = (fix.latitude, fix.longitude, fix.altitude_m, fix.speed_m_s, fix.accuracy_m)
    assert found == pytest.approx((47.2852395, -8.5652536667, 499.6, 6.4305556, None))
    assert GpsdReader().read(json.dumps(TPV)) == Fix(46.49, 7.56, 1343.1, 0.09, 6.3)
    for damaged in (RMC[:-1], RMC.replace("4717", "4718"), RMC.replace("$", ""), sentence(RMC[1:-3].replace("N", "X"))):
        assert reader.read(damaged) is None
    assert (reader.read(sentence("GPRMC,083559.00,V,,,,,,,091202,,,N")), reader.is_searching) == (None, True)
    assert [parse_registry(text) for text, _ in DUMPS] == [signal for _, signal in DUMPS]


PIECES = st.sampled_from([*re.split("(,)", RMC[1:-3]), "", "1e999", "-1", "nan", "99999999", "1_0", "GPGGA", "A", "٣"])
VALUES = st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    st.lists(st.lists(PIECES, max_size=16).map(",".join) | st.text(), max_size=4),
    st.dictionaries(st.sampled_from(list(TPV)), VALUES),
    st.randoms(use_true_random=False),
)
def test_any_input_gives_possible_values_or_none(bodies: list[str], report: dict[str, Any], random: Any) -> None:
    reader = NmeaReader()
    fixes = [reader.read(sentence(body)) for body in bodies]
    for fix in [*fixes, *(GpsdReader().read(line) for line in (json.dumps(TPV | report), json.dumps(report), *bodies))]:
        assert fix is None or (abs(fix.latitude) <= 90 and abs(fix.longitude) <= 180)
        assert fix is None or fix.speed_m_s is None or 0 <= fix.speed_m_s <= 1000
    text = random.choice(DUMPS)[0]
    for piece in [*bodies, "9" * 30, "=-", "{"]:
        at = random.randrange(len(text) + 1)
        text = text[:at] + piece + text[at + random.randrange(12) :]
    signal = parse_registry(text * random.choice([1, 50]))
    assert signal is None or -156 <= signal.rsrp_dbm <= -31


@pytest.fixture
def adb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for serial, cell in (("ONE", 100), ("TWO", 200)):
        text = dump(0, 2, LTE.format(-90, 9, NEW), NONE, "mCellIdentity=" + SERVED.format(cell))
        (tmp_path / serial).write_text(text)
    program = tmp_path / "adb"
    program.write_text(
        f'#!/bin/sh\n[ "$*" = "-s $2 shell dumpsys telephony.registry" ] || exec sleep 1000\n'
        f"cat {tmp_path}/$2 || {{ echo \"error: device '$2' not found\"; exit 1; }}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_a_recording_has_place_and_signal(
    adb: None, secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, folder, over = tmp_path / "receiver", tmp_path / "drive", threading.Event()
    os.mkfifo(pipe)

    def receive() -> None:
        with contextlib.suppress(BrokenPipeError), pipe.open("wb", buffering=0) as receiver:
            while not over.wait(0.05):
                receiver.write(f"{GGA}\r\n{'x' * 70_000}\r\n\0\xff\r\n{RMC}\r\n".encode())

    thread = threading.Thread(target=receive, daemon=True)  # waits for a reader, without an end if there is none
    thread.start()
    plan = ["--trains", "1:1", "--no-calibration", "--uplink-rate", "2", "--downlink-rate", "4", "--together"]
    sources = [word for name in ("ONE", "TWO", "GONE") for word in ("--signal", f"adb:{name}")]
    with serving(secret) as server:
        options = ["--duration", "4 s", "--operator", "Example", "--gps", str(pipe), "--out", str(folder)]
        command = [*RECORD, server, "--secret", str(secret), *plan, *sources, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    over.set()
    assert done.returncode == 0, done.stderr
    thread.join()
    described = json.loads((folder / "recording.json").read_text())
    warnings = " ".join(described["warnings"])
    assert "ONE and TWO were in different cells for 100% of the time" in warnings
    assert "No signal: adb:GONE: error: device 'GONE' not found." in warnings
    signal = {key: described["signal"][key] for key in ("operator", "technology", "cell", "rsrp_dbm")}
    assert signal == {"operator": "Example", "technology": "lte", "cell": "100", "rsrp_dbm": -90}
    assert pl.read_parquet(folder / "signal.parquet")["device"].rle().struct["value"].to_list() == ["ONE", "TWO"]
    rows = pl.read_parquet(folder / "position.parquet")
    assert rows.height == described["position"]["fixes"] > 10
    assert rows["at_ns"].is_sorted()
    assert rows["at_ns"].is_between(0, described["duration_ns"]).all()
    draft = Draft(tmp_path / "draft", About(origin="recorded"))
    draft.folder.mkdir()
    recognise([folder]).read([folder], draft)
    assert (draft.about.place, draft.about.speed) == ("47.28524, -8.56525", "6.4 m/s")
    assert pl.read_parquet(draft.folder / "recording" / "position.parquet").equals(rows)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for words in (["add", str(folder), "--name", "drive"], ["plot", "drive", "-o", str(tmp_path / "drive.svg")]):
        subprocess.run([*RECORD[:-1], "traces", *words], check=True, capture_output=True)
    picture = (tmp_path / "drive.svg").read_text()
    assert all(text in picture for text in ("Rate over signal power", "RSRP, dBm"))


def test_gpsd_is_asked_and_a_lost_connection_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr("cellbed.experiments.position._GPSD", listener.getsockname())
        sampler = PositionSampler("gpsd")
        sampler.start()
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                assert b'"json":true' in connection.recv(100)
                connection.sendall(b'{"class":"VERSION"}\r\n' + json.dumps(TPV).encode() + b"\r\n")
        while sampler.table(0, 1 << 62).height < 2:
            time.sleep(0.02)
        sampler.stop()


@pytest.mark.parametrize("sampler", [PositionSampler("/nowhere"), AndroidSampler("adb")])
def test_a_missing_or_silent_source_is_a_warning(adb: None, sampler: PositionSampler | AndroidSampler) -> None:
    sampler.start()
    sampler.stop()
    assert f"No {sampler.kind}: {sampler.source}: " in sampler.warnings(sampler.table(0, 1))[0]
