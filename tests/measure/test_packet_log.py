"""The packet log in other programs' formats: what they read back is what the log says."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellbed.measure.packetlog import log as log_module
from cellbed.measure.packetlog.convert import COLUMNS, write_csv, write_parquet
from cellbed.measure.packetlog.log import open_log, reason
from cellbed.measure.packets import MAGIC, RECORD
from cellbed.measure.run_folder import read_run
from in_process import cellbed
from predicted_runs import make_run, read_log

MS = 1_000_000


@st.composite
def records(draw: st.DrawFn) -> np.ndarray[Any, np.dtype[Any]]:
    count = draw(st.integers(0, 20))
    small = st.integers(0, 50 * MS)
    rows = np.zeros(count, RECORD)
    for row in rows:
        row["packet"] = draw(st.integers(0, 2**63))
        row["arrived"] = 10**12 + draw(small)
        row["released"] = row["arrived"] + draw(small)
        row["departed"] = row["released"] + draw(small)
        row["observed"] = row["departed"] + draw(st.integers(0, MS))
        row["direction"] = draw(st.integers(0, 3))
        row["drop"] = draw(st.sampled_from([0, 0, 0, 1, 2, 3, 9]))
        row["protocol"] = draw(st.sampled_from([1, 6, 17, 58, 132]))
        row["bytes"] = draw(st.integers(1, 65535))
        row["payload"] = draw(st.integers(0, int(row["bytes"])))
        for name in ("source_port", "destination_port", "source_vertex", "destination_vertex"):
            row[name] = draw(st.integers(0, 65535))
        row["tcp_sequence"] = draw(st.integers(0, 2**32 - 1))
    return rows[np.argsort(rows["observed"], kind="stable")]


def write_log(path: Path, rows: np.ndarray[Any, Any]) -> log_module.PacketLog:
    path.write_bytes(MAGIC + rows.tobytes())
    return open_log(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packet-log")


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks so small that even short logs have many."""
    monkeypatch.setattr(log_module, "CHUNK", 7)


def column_of(rows: np.ndarray[Any, Any], name: str) -> list[Any]:
    """What a table should hold in a column."""
    match name:
        case "direction":
            return [f"direction-{number}" for number in rows["direction"]]
        case "source" | "destination":
            return [f"vertex-{number}" for number in rows[f"{name}_vertex"]]
        case "drop":
            return [reason(int(number)) if number else None for number in rows["drop"]]
    return rows[name.removesuffix("_ns").replace("payload_bytes", "payload")].tolist()


@settings(max_examples=40, deadline=None)
@given(rows=records())
def test_csv_and_parquet_give_back_the_log(folder: Path, rows: np.ndarray[Any, Any]) -> None:
    log = write_log(folder / "packets.bin", rows)
    as_csv = io.BytesIO()
    write_csv(log, as_csv)
    with (folder / "log.parquet").open("wb") as file:
        write_parquet(log, file)
    for table in (pl.read_csv(as_csv.getvalue(), schema=COLUMNS), pl.read_parquet(folder / "log.parquet")):
        assert table.columns == list(COLUMNS)
        for name in COLUMNS:
            assert table[name].to_list() == column_of(rows, name), name


def test_show_counts_from_the_start_of_the_schedule(tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_run(run, loss=0.05)
    log = read_log(run)
    uplink = log[(log["direction"] == 0) & (log["arrived"] >= read_run(run)["t0_ns"])]
    delivered = uplink[uplink["drop"] == 0]
    done = cellbed("log", "show", run, "--json")
    (row, *_) = json.loads(done.stdout)
    assert row["name"] == "mobile-0.uplink"
    assert (row["packets"], row["bytes"]) == (len(delivered), int(delivered["bytes"].sum()))
    assert row["dropped"]["loss"] == int((uplink["drop"] == 2).sum()) > 0
    delays = np.sort(delivered["departed"] - delivered["arrived"]) // 1000 / 1e3
    assert row["delay_ms"] == [delays[-(-len(delays) * q // 100) - 1] for q in (50, 90, 99, 100)]
    assert "mobile-0.uplink" in cellbed("log", "show", run).stdout


def test_a_damaged_log_gives_one_clear_error(tmp_path: Path) -> None:
    rows = np.zeros(20, RECORD)
    rows["arrived"] = rows["released"] = rows["departed"] = 10**9
    rows["bytes"] = 100
    path, out = tmp_path / "x.bin", tmp_path / "x.csv"

    def fails(content: bytes, *words: str) -> None:
        path.write_bytes(content)
        for arguments in (["show", path], ["convert", path, "--to", "csv", "-o", out]):
            done = cellbed("log", *arguments)
            assert done.returncode == 2
            assert done.stderr.startswith("error: ")
            assert done.stderr.count("\n") == 1
            assert all(word in done.stderr for word in [str(path), *words]), done.stderr
            assert sorted(tmp_path.iterdir()) == [path]

    fails(b"cellbed series 1" + rows.tobytes(), "not a packet log")
    fails(b"", "ends after 0 bytes")
    fails(b"cellbed pa", "ends after 10 bytes")
    rows["departed"][11] = 5
    fails(MAGIC + rows.tobytes(), "record 11", "before it arrived")
    rows["departed"][11] = 10**9
    rows["payload"][3] = 101
    fails(MAGIC + rows.tobytes(), "record 3", "payload")
    assert cellbed("log", "show", tmp_path / "absent").returncode == 2


def test_a_log_cut_inside_a_record_is_converted_with_a_note(tmp_path: Path) -> None:
    rows = np.zeros(20, RECORD)
    (tmp_path / "x.bin").write_bytes(MAGIC + rows.tobytes()[:-10])
    done = cellbed("log", "convert", tmp_path / "x.bin", "--to", "csv")
    assert done.returncode == 0
    assert "its last 54 bytes are left out" in done.stderr
    assert len(pl.read_csv(Path(done.stdout.strip()))) == 19


def test_an_unknown_direction_is_answered_with_those_there_are(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    done = cellbed("log", "convert", tmp_path / "run", "--to", "csv", "--direction", "mobile-0.uplnk")
    assert "did you mean 'mobile-0.uplink'?" in done.stderr


def test_every_reason_for_a_drop_has_a_word() -> None:
    assert [reason(code) for code in (1, 2, 3, 9)] == ["queue-full", "loss", "congestion", "reason-9"]
