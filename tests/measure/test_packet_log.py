"""The packet log in other programs' formats: what they read back is what the log says."""

import io
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellbed._core import parse_trace
from cellbed.measure.packetlog import log as log_module
from cellbed.measure.packetlog.convert import COLUMNS, write_csv, write_parquet
from cellbed.measure.packetlog.log import ENTERS, in_order, open_log, reason
from cellbed.measure.packetlog.mahimahi import MS, Opportunities, write_mahimahi
from cellbed.measure.packets import MAGIC, RECORD
from cellbed.measure.run_folder import read_run
from in_process import cellbed
from predicted_runs import change_json, make_run, read_log


@st.composite
def records(draw: st.DrawFn) -> np.ndarray[Any, np.dtype[Any]]:
    count, random = draw(st.integers(0, 20)), np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = np.zeros(count, RECORD)
    rows["arrived"] = 10**12 + random.integers(50 * MS, size=count)
    for before, after, most in (("arrived", "released", 50), ("released", "departed", 50), ("departed", "observed", 1)):
        rows[after] = rows[before] + random.integers(most * MS, size=count)
    for name, most in (("packet", 2**63 - 1), ("direction", 4), ("bytes", 65535), ("tcp_sequence", 2**32)):
        rows[name] = random.integers(most, size=count)
    for name in ("source_port", "destination_port", "source_vertex", "destination_vertex"):
        rows[name] = random.integers(2**16, size=count)
    rows["bytes"] += 1
    rows["payload"] = random.integers(rows["bytes"], endpoint=True)
    rows["drop"] = random.choice([0, 0, 0, 1, 2, 3, 9], count)
    rows["protocol"] = random.choice([1, 6, 17, 58, 132], count)
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


@settings(max_examples=40, deadline=None)
@given(rows=records())
def test_events_come_in_order_and_none_is_missing(folder: Path, rows: np.ndarray[Any, Any]) -> None:
    log = write_log(folder / "packets.bin", rows)
    batches = list(in_order(log))
    times = np.concatenate([batch.time for batch in batches]) if batches else np.empty(0, np.int64)
    assert (np.diff(times) >= 0).all()
    assert sorted(times) == sorted([*rows["arrived"], *rows["departed"]])
    for batch in batches:
        field = np.where(batch.point == ENTERS, batch.records["arrived"], batch.records["departed"])
        assert (batch.time == field).all()
        assert (batch.time < batch.until).all()


def parse_mahimahi(text: str) -> tuple[dict[str, str], list[list[str]]]:
    lines = text.splitlines()
    header = [line[2:].split(": ", 1) for line in lines if line.startswith("# ")]
    return {key[0]: key[-1] for key in header}, [line.split() for line in lines if not line.startswith("# ")]


@settings(max_examples=40, deadline=None)
@given(rows=records())
def test_mahimahis_log_has_every_arrival_departure_and_drop(folder: Path, rows: np.ndarray[Any, Any]) -> None:
    log = write_log(folder / "packets.bin", rows)
    out = io.BytesIO()
    write_mahimahi(log, out, direction=1)
    header, lines = parse_mahimahi(out.getvalue().decode())
    of = rows[rows["direction"] == 1]
    zero = int(of["arrived"].min()) if len(of) else 0
    assert int(header["init timestamp"]) == zero // MS
    assert header["base timestamp"] == "0"

    def ms(times: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return (times - zero) // MS

    kept, lost = of[of["drop"] == 0], of[of["drop"] != 0]
    times = [int(line[0]) for line in lines]
    assert times == sorted(times)
    assert sorted((int(t), int(b)) for t, kind, b in (x[:3] for x in lines) if kind == "+") == sorted(
        zip(ms(of["arrived"]).tolist(), of["bytes"].tolist(), strict=True)
    )
    left = ms(kept["released"])
    departures = zip(left.tolist(), kept["bytes"].tolist(), (left - ms(kept["arrived"])).tolist(), strict=True)
    assert sorted((int(x[0]), int(x[2]), int(x[3])) for x in lines if x[1] == "-") == sorted(departures)
    drops = zip(ms(lost["departed"]).tolist(), [1] * len(lost), lost["bytes"].tolist(), strict=True)
    assert sorted((int(x[0]), int(x[2]), int(x[3])) for x in lines if x[1] == "d") == sorted(drops)


@settings(max_examples=60, deadline=None)
@given(
    stamps=st.lists(st.integers(0, 30), min_size=1, max_size=40).filter(any),
    offset=st.integers(0, 70 * MS),
    cuts=st.lists(st.integers(0, 100 * MS), max_size=4),
)
def test_opportunities_are_those_of_the_trace(folder: Path, stamps: list[int], offset: int, cuts: list[int]) -> None:
    path = folder / "trace"
    path.write_text("".join(f"{stamp}\n" for stamp in sorted(stamps)))
    trace = parse_trace(path)
    schedule = Opportunities(trace, offset)
    edges = [0, *sorted(cuts), 100 * MS]
    found = np.concatenate([schedule.between(*edge) for edge in itertools.pairwise(edges)])
    for begin in range(0, 100 * MS, 5 * MS):
        within = (found >= begin) & (found < begin + 5 * MS)
        assert within.sum() * 1500 == trace.capacity(begin + offset, begin + 5 * MS + offset)
    once = Opportunities(trace, 0, looped=False).between(0, 100 * MS)
    assert (once // MS).tolist() == sorted(stamps)


def test_a_run_in_mahimahis_format_has_the_opportunities_of_its_trace(tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_run(run)
    (tmp_path / "my.up").write_text("1\n5\n5\n10\n")

    def converted(**changed: Any) -> tuple[list[list[str]], str]:
        change_json(run / "run.json", lambda described: described["directions"][0].update(changed))
        words = ("log", "convert", run, "--to", "mahimahi", "--direction", "mobile-0.uplink", "-o", "-")
        done = cellbed(*words, cwd=tmp_path)
        return parse_mahimahi(done.stdout)[1], done.stderr

    def offered(**changed: Any) -> list[int]:
        return [int(line[0]) for line in converted(**changed)[0] if line[1] == "#"]

    trace = {"name": "my.up", "sha256": None, "synthetic": False, "offset_ns": 4_000_000, "looped": True}
    # 4 ms into a trace of 10 ms: 5, 5, 10, 11, 15, 15 …
    assert offered(trace=trace)[:6] == [1, 1, 6, 7, 11, 11]
    # Outages offer nothing.
    assert offered(trace=trace | {"offset_ns": 0}, outages_ns=[[5_000_000, 6_000_000]])[:4] == [1, 11, 15, 15]
    # A trace that was not played throughout is not claimed, nor is one that is gone.
    lines, reported = converted(changes=[{"at_ns": 10**9, "description": "2 Mbit/s", "kinds": ["bottleneck"]}])
    assert "the bottleneck of mobile-0.uplink was changed" in reported
    assert "#" not in {line[1] for line in lines}
    (tmp_path / "my.up").unlink()
    lines, reported = converted(changes=[])
    assert "my.up" in reported
    assert "#" not in {line[1] for line in lines}


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
            done = cellbed("log", *arguments, status=2)
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
    done = cellbed("log", "convert", tmp_path / "x.bin", "--to", "csv", status=0)
    assert "its last 54 bytes are left out" in done.stderr
    assert len(pl.read_csv(Path(done.stdout.strip()))) == 19


@pytest.mark.parametrize("last", [None, b"", MAGIC])
def test_a_run_killed_between_two_files_of_its_log_has_the_earlier_one(tmp_path: Path, last: bytes | None) -> None:
    make_run(tmp_path / "run")
    log = tmp_path / "run" / "raw" / "packets.bin"
    count = open_log(tmp_path / "run").count
    log.rename(tmp_path / "run" / "raw" / "packets.bin.70")
    if last is not None:
        log.write_bytes(last)
    found = open_log(tmp_path / "run")
    assert found.count == sum(map(len, found.chunks())) == count
    assert "70 older ones were removed" in (found.warning or "")


def test_files_beside_the_log_of_a_shell_are_no_part_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text('{"format": 1, "t0_ns": 0, "nodes": [], "directions": []}')
    (tmp_path / "log.1").write_bytes(MAGIC + np.zeros(5, RECORD).tobytes())
    (tmp_path / "log.2").write_text("notes")
    found = write_log(tmp_path / "log", np.zeros(3, RECORD))
    assert (found.count, found.warning) == (3, None)


def test_an_unknown_direction_is_answered_with_those_there_are(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    done = cellbed("log", "convert", tmp_path / "run", "--to", "csv", "--direction", "mobile-0.uplnk")
    assert "did you mean 'mobile-0.uplink'?" in done.stderr
    done = cellbed("log", "convert", tmp_path / "run", "--to", "mahimahi")
    assert "--direction" in done.stderr
    assert "core-edge-0.uplink" in done.stderr
