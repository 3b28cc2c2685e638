"""Recordings as directories: what is written is read again, what is malformed is refused in one line."""

import json
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

from cellbed.recordings.description import TrainPlan, json_schema
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.packets import DOWNLOADS
from cellbed.recordings.recording import FILES, read_recording, write_recording
from cellbed.recordings.virtual import record_virtually
from in_process import cellbed
from recording_examples import MS, PLAN, calibrated, packets, pair, walk

LIGHT = "light-uplink.parquet"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_recording(calibrated(walk(200 * MS)), tmp_path / "walk")


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    recording = calibrated(walk(200 * MS, loss="5 %", duplication="5 %"))
    assert read_recording(write_recording(recording, tmp_path / "without")).downloads is None
    recording = replace(recording, downloads=pl.DataFrame([(1000, 5, 7), (10**6, 9, None)], DOWNLOADS, orient="row"))
    again = read_recording(write_recording(recording, tmp_path / "a" / "walk"))
    assert again.description == recording.description
    assert again.downloads.equals(recording.downloads)
    for (stem, table), (_, read) in zip(recording.tables(), again.tables(), strict=True):
        assert table.equals(read), stem
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["walk"]


def test_keys_of_a_later_version_are_kept(folder: Path, tmp_path: Path) -> None:
    text = json.loads((folder / "recording.json").read_text())
    text["signal"] |= {"operator": "A", "rsrp_dbm": -97.5, "tilt": 3}
    text["weather"] = {"rain": True}
    (folder / "recording.json").write_text(json.dumps(text))
    read_recording(write_recording(read_recording(folder), tmp_path / "again"))
    reported = json.loads((tmp_path / "again" / "recording.json").read_text())
    assert reported["weather"] == {"rain": True}
    assert (reported["signal"]["rsrp_dbm"], reported["signal"]["tilt"]) == (-97.5, 3)


def test_the_schema_describes_what_is_written(folder: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is missing: pip install cellbed[dev]")
    validator = jsonschema.Draft202012Validator(json_schema())
    validator.check_schema(json_schema())
    reported = json.loads((folder / "recording.json").read_text())
    assert list(validator.iter_errors(reported)) == []
    assert not validator.is_valid(reported | {"duration_ns": "long"})
    assert json.loads(cellbed("schema", "recording").stdout) == json_schema()


def _json(**changes: Any) -> Any:
    def change(folder: Path) -> None:
        path = folder / "recording.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def _column(expression: pl.Expr) -> Any:
    def change(folder: Path) -> None:
        table = pl.read_parquet(folder / LIGHT)
        table.with_columns(expression).write_parquet(folder / LIGHT)

    return change


def _cut(folder: Path) -> None:
    path = folder / LIGHT
    path.write_bytes(path.read_bytes()[:-40])


def _downloads(*rows: tuple[int, int, int | None]) -> Any:
    return lambda folder: pl.DataFrame(rows, DOWNLOADS, orient="row").write_parquet(folder / "downloads.parquet")


def _third(column: str, value: Any) -> pl.Expr:
    """The column with another value in its third row."""
    return pl.when(pl.int_range(pl.len()) == 2).then(pl.lit(value)).otherwise(pl.col(column)).alias(column)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_json(version=2), r"recording\.json: version 2 is unknown: this version of cellbed reads version 1"),
        (_json(format="zip"), r"recording\.json: format is 'zip': not a recording"),
        (_json(duration_ns=-1), r"recording\.json: duration_ns: .*greater than or equal to 1, not -1"),
        (_json(light={"plan": {"rotation": [], "gap_ns": 1}}), r"recording\.json: light\.plan\.rotation: "),
        (_json(spans=[{"workload": "heavy", "start_ns": 2, "end_ns": 1}]), r"spans\.0: ends at 1 ns, before its start"),
        (lambda folder: (folder / "recording.json").write_text("{"), r"recording\.json: not JSON: "),
        (lambda folder: (folder / "recording.json").write_text("{}"), r"recording\.json: '\w+' is missing"),
        (shutil.rmtree, "walk: no such directory"),
        (
            lambda folder: (folder / "recording.json").rename(folder / "journal"),
            "walk.*: not a journal of this version",
        ),
        (lambda folder: (folder / "recording.json").unlink(), r"walk: not a recording: it has no recording\.json"),
        (lambda folder: (folder / LIGHT).unlink(), r"light-uplink\.parquet: missing, though recording\.json counts"),
        (lambda folder: (folder / LIGHT).write_bytes(b"PAR1"), r"light-uplink\.parquet: not a readable Parquet file"),
        (_cut, r"light-uplink\.parquet: not a readable Parquet file, perhaps truncated"),
        (
            lambda folder: pl.read_parquet(folder / LIGHT).drop("copies").write_parquet(folder / LIGHT),
            r"light-uplink\.parquet: no column 'copies': it has train, index, bytes, sent_ns, arrived_ns",
        ),
        (_column(pl.col("sent_ns").cast(pl.String)), r"column 'sent_ns' is of type String: it must be Int64"),
        (_column(_third("sent_ns", -5)), r"row 3: sent_ns is before the recording's time zero"),
        (_column(_third("copies", 300).cast(pl.Int32)), r"row 3: copies is 300: it must fit UInt8"),
        (_column(_third("copies", 0).cast(pl.UInt8)), r"row 3: it arrived, but no copy of it did"),
        (_column(_third("arrived_ns", None)), r"row 3: copies arrived, but there is no time of arrival"),
        (_column(_third("bytes", None)), r"row 3: bytes is missing"),
        (_downloads((0, 5, 7)), r"downloads\.parquet: row 1: a file has at least one byte"),
        (_downloads((1, 5, 7), (1, 4, None)), r"row 2: rows must be in order of started_ns"),
        (_column(_third("index", 0).cast(pl.UInt32)), r"row 3: rows must be in order of train and index"),
    ],
)
def test_what_is_malformed_is_refused_in_one_line(folder: Path, change: Any, message: str) -> None:
    change(folder)
    with pytest.raises(RecordingError, match=message) as caught:
        read_recording(folder)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(folder))


def test_damaged_files_are_read_or_refused_in_one_line(folder: Path) -> None:
    random = Random(4)
    refusals: list[str] = []
    for _ in range(80):
        path = folder / random.choice([LIGHT, "recording.json"])
        whole = path.read_bytes()
        damaged = bytearray(whole)
        for _ in range(random.choice([1, 2, 8])):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        path.write_bytes(damaged[: random.choice([None, random.randrange(len(damaged))])])
        try:
            read_recording(folder)
        except RecordingError as error:
            refusals.append(str(error))
        path.write_bytes(whole)
    assert len(refusals) > 25
    assert not any("\n" in refusal for refusal in refusals)


def test_what_breaks_the_rules_is_not_written(tmp_path: Path) -> None:
    recording = replace(walk(200 * MS), heavy_uplink=packets((0, 0, 1400, 5, 9, 0)))
    with pytest.raises(RecordingError, match=r"heavy-uplink\.parquet: row 1: it arrived, but no copy"):
        write_recording(recording, tmp_path / "walk")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_over_and_nothing_is_left_of_half_a_recording(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="already exists"):
        write_recording(walk(200 * MS), folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordingError, match="cannot be written"):
        write_recording(walk(200 * MS), tmp_path / "file" / "walk")
    support = str(Path(__file__).parent.with_name("support"))
    script = f"import sys; sys.path.insert(0, {support!r}); from recording_examples import walk; "
    script += "from cellbed.recordings.recording import write_recording; write_recording(walk(), 'full/walk')"
    # -B: byte code that is cut at the limit breaks each later import.
    done = subprocess.run(
        [sys.executable, "-B", "-c", script],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )  # fmt: skip
    assert "full/walk: cannot be written" in done.stderr, done.stderr
    assert list((tmp_path / "full").iterdir()) == []


def test_counts_tell_losses_copies_and_reordering() -> None:
    table = packets(
        (1, 0, 1400, 0, 30, 1), (1, 1, 1400, 0, 20, 2), (1, 2, 1400, 0, None, 0), (1, 3, 1400, 0, 40, 1),
        (2, 0, 1400, 50, 90, 1), (2, 1, 1400, 50, 70, 1), (2, 2, 1400, 50, 80, 1),
    )  # fmt: skip
    recording = replace(walk(200 * MS), light_uplink=table).counted()
    counts = recording.description.counts["light-uplink"]
    # The first of each train comes after one with a higher number; whatever belongs to another train does not count.
    assert counts.model_dump() == {"sent": 7, "lost": 1, "duplicated": 1, "reordered": 2}


def test_virtual_trains_are_answered_once_their_first_packet_is_there() -> None:
    recording = record_virtually(pair(), pair(), PLAN, duration_ns=110 * MS)
    up, down = recording.light_uplink, recording.light_downlink
    assert up.filter(pl.col("index") == 0)["sent_ns"].to_list() == [0, 50 * MS, 100 * MS]
    first = up.group_by("train").agg(pl.col("arrived_ns").min()).sort("train")["arrived_ns"].to_list()
    assert first == [at * MS + 21_400_000 for at in (0, 50, 100)]
    assert down.group_by("train").agg(pl.col("sent_ns").unique()).sort("train")["sent_ns"].to_list() == [
        [at] for at in first
    ]
    assert recording.heavy_uplink.height == 0


def test_trains_in_rotation_keep_their_own_gaps_and_lengths() -> None:
    text = (
        '{"rotation": [{"up": 1, "down": 1, "up_bytes": 100, "down_bytes": 1400, "gap_ns": 20000000},'
        '{"up": 3, "down": 0, "up_bytes": 1400, "down_bytes": 100}], "gap_ns": 50000000}'
    )
    plan = TrainPlan.model_validate_json(text)
    recording = record_virtually(pair(), pair(), plan, duration_ns=130 * MS)
    starts = recording.light_uplink.filter(pl.col("index") == 0)
    assert (starts["sent_ns"] // MS).to_list() == [0, 20, 70, 90]
    assert starts["bytes"].to_list() == [100, 1400, 100, 1400]
    assert recording.light_uplink.group_by("train").len().sort("train")["len"].to_list() == [1, 3, 1, 3]
    assert recording.light_downlink["train"].to_list() == [1, 3]
