"""Recordings for other programs and out of theirs: exports are whole, the public tool's files go through unchanged."""

import doctest
import json
import resource
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import in_process
from cellbed import Link
from cellbed.archive import resolve
from cellbed.recordings.cellreplay import derive
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.export import export
from cellbed.recordings.imported import import_cellreplay, tool_files
from cellbed.recordings.packets import empty
from cellbed.recordings.recording import read_recording, write_recording
from cellbed.recordings.tool_files import NAMES
from cellbed.scenario.settings import read_settings
from cellbed.shell.mahimahi import cellular
from recording_examples import MS, SECOND, calibrated, walk

QUICK = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NUMBERS = iter(range(10**6))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_recording(calibrated(walk(4 * SECOND)), tmp_path / "the walk")


def cellbed(*words: str | Path, status: int = 0) -> str:
    """What the command prints, of one that fails what it says."""
    done = in_process.cellbed(*words, status=status)
    return done.stdout if status == 0 else done.stderr


def test_mahimahi_traces_replay_the_rate_and_the_delay(folder: Path, tmp_path: Path) -> None:
    cellbed("traces", "export", folder, "--format", "mahimahi", "-o", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["README", "the walk.down", "the walk.up"]
    for name, rate in (("the walk.up", 8e6), ("the walk.down", 16e6)):
        trace = resolve(name, tmp_path / "out").trace
        assert trace.mean_bit_rate == pytest.approx(rate, rel=0.01)
        assert trace.duration_ns == pytest.approx(4 * SECOND, abs=3 * MS)
    readme = (tmp_path / "out" / "README").read_text()
    assert "One-way delay for the traces, half the minimum round-trip time: 21.05 ms." in readme
    assert "mm-delay 21 mm-link 'the walk.up' 'the walk.down' -- COMMAND" in readme
    again = Link(rate=str(tmp_path / "out" / "the walk.up"), delay="21.05 ms", queue="infinite")
    live = Link(rate="8 Mbit/s", delay="20 ms", queue="infinite")
    difference = again.run([SECOND] * 300, 1400).departed - live.run([SECOND] * 300, 1400).departed
    assert abs(difference).max() < 3 * MS  # whole ms, and an opportunity of 1.5 ms


def test_mm_cellular_reads_what_is_exported(folder: Path, tmp_path: Path) -> None:
    reported = json.loads(
        cellbed("traces", "export", folder, "--format", "cellreplay", "--json", "-o", tmp_path / "out")
    )
    assert reported["files"] == [*NAMES.values(), "README"]
    program, *words = shlex.split(reported["notes"][0])
    assert (program, words[-1]) == ("mm-cellular", "COMMAND")
    asked = cellular.parse(words, tmp_path / "out")
    [up], [down] = asked.link.uplink.stages, asked.link.downlink.stages
    assert asked.command == ("COMMAND",)
    assert (up["idle_ns"], down["idle_ns"]) == (24 * MS, 21 * MS)
    assert up["latency_offset"].endswith("latency-offset-up")
    light = (tmp_path / "out" / "up-delay-light-pdo").read_text().splitlines()
    assert light[0] == "0 21 0 1 3 4"
    offsets = (tmp_path / "out" / "latency-offset-up").read_text().split()
    assert offsets[::2] == [str(size) for size in range(100, 1401, 100)]
    assert offsets[1::2][:2] == ["-6.8", "-6.276923"]


def test_exports_are_values_for_a_scenario(folder: Path, tmp_path: Path) -> None:
    cellbed("traces", "export", folder, "--format", "rate", "--bin", "1 s", "-o", tmp_path / "rate")
    cellbed("traces", "export", folder, "--format", "rtt", "-o", tmp_path / "rtt")
    asked = read_settings(["rate=rate/rate-uplink.csv", "delay=rtt/rtt.csv"], tmp_path)
    assert [round(rate / 1e6) for _, rate in asked.rate.pairs] == [8, 8, 8, 8]  # type: ignore[union-attr]
    assert asked.delay.pairs[0] == (0, 21_050_000)  # type: ignore[union-attr]
    table = pl.read_csv(tmp_path / "rate" / "rate-downlink.csv")
    assert table.columns == ["time_s", "rate_bit_s", "packets", "lost"]
    assert table.height == 4


def test_exports_that_fail_leave_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    command = ("traces", "export", folder, "--format")
    assert "full: already exists" in cellbed(*command, "mahimahi", "-o", tmp_path / "full", status=2)
    assert "'5' has no unit" in cellbed(*command, "rate", "--bin", "5", "-o", tmp_path / "new", status=2)
    assert "1 ms or more" in cellbed(*command, "rate", "--bin", "1 us", "-o", tmp_path / "new", status=2)
    assert "not a recording: it has no recording.json" in cellbed(
        "traces", "export", tmp_path, "--format", "rtt", "-o", tmp_path / "new", status=2
    )
    quiet = replace(walk(SECOND), heavy_uplink=empty(), light_downlink=empty())
    export(quiet, "mahimahi", tmp_path / "one way", name="quiet")
    assert "The uplink was not saturated" in (tmp_path / "one way" / "README").read_text()
    assert "the delay of the traces is unknown" in (tmp_path / "one way" / "README").read_text()
    for to, message in (("cellreplay", "no trains of the uplink"), ("rtt", "no train that was answered")):
        with pytest.raises(RecordingError, match=message):
            export(quiet, to, tmp_path / "new", name="quiet")  # type: ignore[arg-type]
    done = subprocess.run(
        [sys.executable, "-B", "-m", "cellbed", *command, "mahimahi", "-o", tmp_path / "new"],
        capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )  # fmt: skip
    assert (done.returncode, "new: cannot be written: File too large" in done.stderr) == (2, True), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "one way", "the walk"]


Row = tuple[int, int, list[int]]


@st.composite
def light(draw: st.DrawFn) -> tuple[list[Row], list[Row]]:
    """Rows of both directions in whole ms, of the same trains."""
    gaps = draw(st.lists(st.integers(0, 120), min_size=1, max_size=12))
    delay, after = st.integers(0, 300), st.lists(st.integers(0, 400), max_size=8)
    times = [sum(gaps[:number]) for number in range(len(gaps))]
    up, down = ([(time, draw(delay), sorted([0, *draw(after)])) for time in times] for _ in range(2))
    return up, down


HEAVY = st.lists(st.integers(0, 3000), min_size=1, max_size=60).map(sorted).filter(lambda times: times[-1] > 0)
OFFSETS = st.none() | st.lists(st.integers(-9_000_000, 9_000_000), min_size=1, max_size=15)


@QUICK
@given(light(), HEAVY, HEAVY, OFFSETS, st.none() | st.tuples(st.integers(0, 90), st.integers(0, 90)))
def test_the_files_of_the_tool_go_through_a_recording_unchanged(
    tmp_path: Path,
    rows: tuple[list[Row], list[Row]],
    heavy_up: list[int],
    heavy_down: list[int],
    offsets: list[int] | None,
    idle_ms: tuple[int, int] | None,
) -> None:
    place = tmp_path / str(next(NUMBERS))
    place.mkdir()
    for key, trains in zip(("light_uplink", "light_downlink"), rows, strict=True):
        lines = (f"{time} {delay} {' '.join(map(str, after))}\n" for time, delay, after in trains)
        (place / NAMES[key]).write_text("".join(lines))
    for key, times in (("heavy_uplink", heavy_up), ("heavy_downlink", heavy_down)):
        (place / NAMES[key]).write_text("".join(f"{time}\n" for time in times))
    if offsets:
        for key in ("latency_offset_uplink", "latency_offset_downlink"):
            lines = (f"{100 * (number + 1)} {_ms(shift)}\n" for number, shift in enumerate(offsets))
            (place / NAMES[key]).write_text("".join(lines))
    idle_ns = None if idle_ms is None else (idle_ms[0] * MS, idle_ms[1] * MS)
    made = import_cellreplay(tool_files(place), idle_ns)
    recording = read_recording(write_recording(made, place / "recording"))
    done = export(recording, "cellreplay", place / "again", name="x")
    assert set(done.files) == {*(path.name for path in place.iterdir() if path.is_file()), "README"}
    for name in set(done.files) - {"README"}:
        assert (place / "again" / name).read_text() == (place / name).read_text(), name
    assert derive(recording, "uplink").idle_ns == (None if idle_ns is None else idle_ns[0])


def _ms(nanos: int) -> str:
    text = f"{abs(nanos) // MS}.{abs(nanos) % MS:06}".rstrip("0").rstrip(".")
    return f"-{text}" if nanos < 0 else text


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    place = tmp_path / "theirs"
    place.mkdir()
    for way in ("up", "down"):
        (place / f"{way}-delay-light-pdo").write_text("0 20 0 1 3 6\n50 30.5 0 2 4\n")
        (place / f"{way}-heavy-pdo").write_text("".join(f"{2 * step}\n" for step in range(1, 501)))
    return place


def test_an_imported_recording_says_what_is_not_known(theirs: Path, tmp_path: Path) -> None:
    write_recording(import_cellreplay(tool_files(theirs), (24 * MS, 21 * MS)), tmp_path / "made")
    recording = read_recording(tmp_path / "made")
    it = recording.description
    assert (it.started, it.clock.light, it.heavy.uplink, it.signal.operator) == (None, None, None, None)
    assert set(it.imported.files) == {"light_uplink", "light_downlink", "heavy_uplink", "heavy_downlink"}
    assert recording.heavy_uplink["sent_ns"].null_count() == 500
    assert recording.light_downlink["sent_ns"].to_list()[:4] == [20 * MS, None, None, None]
    assert recording.light_downlink["arrived_ns"].to_list()[:4] == [40 * MS, 41 * MS, 43 * MS, 46 * MS]
    shown = json.loads(cellbed("traces", "show", tmp_path / "made", "--json"))
    assert shown["imported_from"] == "cellreplay"
    assert shown["saturation"]["uplink"]["mean_bps"] == pytest.approx(5.6e6, rel=0.01)
    assert shown["round_trips"]["median_ns"] == 50.5 * MS
    reported = cellbed("traces", "show", tmp_path / "made")
    assert "imported from cellreplay" in reported
    assert "uplink calibrated: trains of 4 packets, idle after (F) 24 ms" in reported


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("up-delay-light-pdo", "0 20 0\n50 x 0\n", r"up-delay-light-pdo:2: `x` is not a base delay"),
        ("up-delay-light-pdo", "0 20 0 1\n", r"down-delay-light-pdo: 2 rows, but the uplink has 1"),
        ("up-delay-light-pdo", "0 20 0 1\n55 20 0\n", r"down-delay-light-pdo: row 2 is of 50 ms, the uplink's"),
        ("down-delay-light-pdo", "0 20 0\n50 20\n", r"down-delay-light-pdo: row 2, of 50 ms, has no opportunity"),
        ("down-heavy-pdo", "4\n3\n", r"down-heavy-pdo:2: "),
        ("down-heavy-pdo", None, r"theirs: contains no down-heavy-pdo"),
        ("latency-offset-up", "100 -1\n100 -2\n", r"latency-offset-up:2: 100 bytes do not exceed"),
    ],
)
def test_wrong_files_are_refused_with_their_line(theirs: Path, name: str, text: str | None, message: str) -> None:
    (theirs / name).write_text(text) if text is not None else (theirs / name).unlink()
    with pytest.raises(RecordingError, match=message):
        import_cellreplay(tool_files(theirs))


def test_the_page_of_recordings_is_right() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "recordings.md"
    failed, tried = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert (failed, tried > 0) == (0, True)
    described: Any = page.read_text()
    for name in ("light-uplink.parquet", "heavy-downlink.parquet", *NAMES.values()):
        assert name in described
