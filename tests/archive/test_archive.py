"""The archive of traces: entries appear whole, are found by name, and what is damaged is named."""

import hashlib
import os
import re
import signal
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archive_examples import MS, SECOND, add, start, unfinished, write_rates
from cellbed.archive import Archive, TraceError, resolve
from cellbed.archive.entry import About
from cellbed.archive.replayable import write_text
from cellbed.archive.series import Content, Series
from cellbed.archive.store import valid_name

EXAMPLES = ["5g-midband", "lte-suburban"]
RECORDED = About(origin="recorded")


def test_an_entry_has_the_series_of_its_draft(archive: Archive) -> None:
    kept = add(archive, "walk", parts=("uplink", "downlink"), technology="5g", place="Delft")
    assert archive.entry("walk") == kept
    assert (kept.about.technology, kept.about.place, kept.about.operator) == ("5g", "Delft", None)
    assert {part: (held.rows, held.duration_ns) for part, held in kept.parts.items()} == {
        "uplink": (1000, SECOND),
        "downlink": (1000, SECOND),
    }
    series = archive.series("walk", "uplink")
    assert series.content is Content.OPPORTUNITIES
    assert hashlib.sha256(series.path.read_bytes()).hexdigest() == kept.parts["uplink"].sha256
    assert archive.names() == [*EXAMPLES, "walk"]
    assert list(archive.verify(["walk"])) == [("walk", [])]


def test_a_recording_of_two_workloads_is_kept_beside_the_series(archive: Archive) -> None:
    with archive.draft(RECORDED) as draft:
        (draft.folder / "recording").mkdir()
        (draft.folder / "recording" / "recording.json").write_text("{}")
        draft.recording = "recording"
        archive.keep(draft, "walk")
    assert (archive.recording("walk") / "recording.json").read_text() == "{}"
    (archive.recording("walk") / "recording.json").write_text("{ }")
    [(_, faults)] = archive.verify(["walk"])
    assert "recording.json: not the file that was added" in faults[0]
    with pytest.raises(TraceError, match="'walk' has no uplink: it has a recording of two workloads"):
        archive.series("walk", "uplink")


def test_a_name_in_use_needs_replace(archive: Archive) -> None:
    add(archive, "walk", every_ms=1)
    with pytest.raises(TraceError, match="the archive already has 'walk': choose another --name, or use --replace"):
        add(archive, "walk", every_ms=2)
    assert archive.entry("walk").parts["uplink"].rows == 1000
    add(archive, "walk", every_ms=2, replace=True)
    assert archive.entry("walk").parts["uplink"].rows == 500
    assert unfinished(archive) == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "Walk", "walk.up", "-x", "a b", "ä", "x" * 101, "a\n"])
def test_invalid_names_are_answered_by_a_valid_one(archive: Archive, name: str) -> None:
    with pytest.raises(TraceError, match="is not a valid name: ") as caught:
        add(archive, name)
    assert "\n" not in str(caught.value)
    add(archive, valid_name(name))


def test_examples_are_entries_with_their_own_opportunities(archive: Archive) -> None:
    entry = archive.entry("lte-suburban")
    assert entry.about.origin == "synthetic"
    for ending, part in (("up", "uplink"), ("down", "downlink")):
        name = f"lte-suburban.{ending}"
        assert resolve(name, Path()).sha256 == entry.parts[part].sha256
        series = archive.series("lte-suburban", part)
        write_text(series, archive.folder / "text")
        stamps = series.scan().collect()["at_ns"] // MS
        assert (archive.folder / "text").read_text().split() == [str(stamp) for stamp in stamps]
    for change in (lambda: archive.remove("lte-suburban"), lambda: add(archive, "lte-suburban", replace=True)):
        with pytest.raises(TraceError, match="built-in example"):
            change()


def test_unsound_series_are_refused(archive: Archive) -> None:
    with archive.draft(RECORDED) as draft:
        with pytest.raises(TraceError, match="nothing to add: no uplink"):
            archive.keep(draft, "walk")
        write_rates(draft, "uplink", [(0, 0.0)], SECOND)
        with pytest.raises(TraceError, match=r"^uplink\.parquet: all rates are 0"):
            archive.keep(draft, "walk")
    assert archive.names() == EXAMPLES


DAMAGE: dict[str, tuple[str, bytes | None, str]] = {
    "no description": ("entry.toml", None, "entry.toml: missing"),
    "empty description": ("entry.toml", b"", "entry.toml: missing key 'about'"),
    "no TOML": ("entry.toml", b"name = \n", "entry.toml: not TOML: "),
    "no text": ("entry.toml", b"\xff\xfe", "entry.toml: not text in UTF-8"),
    "nested": ("entry.toml", b"x = " + b"[" * 100_000, "entry.toml: not TOML: "),
    "a later version": (
        "entry.toml",
        b'format = "cellbed-trace"\nversion = 2\nname = "walk"\n[about]\norigin = "recorded"\n',
        "entry.toml: version: ",
    ),
    "a file elsewhere": (
        "entry.toml",
        b'format = "cellbed-trace"\nversion = 1\nname = "walk"\n[about]\norigin = "recorded"\n[parts.uplink]\n'
        b'file = "../../secret"\ncontent = "opportunities"\nsha256 = "' + b"0" * 64 + b'"\nduration_ns = 1\nrows = 1\n',
        "entry.toml: parts.uplink.file: ",
    ),
    "no series": ("uplink.parquet", None, "uplink.parquet: missing"),
    "another series": ("uplink.parquet", b"PAR1", "uplink.parquet: not the file that was added"),
}


@pytest.mark.parametrize(("file", "content", "reason"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_entry_is_named_not_replayed_and_can_be_removed(
    archive: Archive, file: str, content: bytes | None, reason: str
) -> None:
    add(archive, "walk")
    add(archive, "bus")
    path = archive.folder / "walk" / file
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    found = dict(archive.verify(["walk", "bus"]))
    assert reason in found["walk"][0]
    assert str(path) in found["walk"][0]
    assert found["bus"] == []
    if file == "entry.toml":
        assert reason in archive.contents().problems["walk"]
    with pytest.raises(TraceError, match=re.escape(reason)):
        _ = resolve("walk.up", Path()).trace
    assert archive.contents().frame["name"].to_list() == [
        "5g-midband", "bus", "lte-suburban", *(["walk"] if file != "entry.toml" else []),
    ]  # fmt: skip
    archive.remove("walk")
    assert "walk" not in archive.names()
    assert archive.contents().problems == {}


def test_the_index_follows_every_change(archive: Archive) -> None:
    def names() -> list[str]:
        return [name for name in archive.contents().frame["name"] if name not in EXAMPLES]

    assert names() == []
    add(archive, "walk", technology="4g")
    assert names() == ["walk"]
    add(archive, "bus", technology="5g")
    assert names() == ["bus", "walk"]
    add(archive, "walk", technology="5g", replace=True)
    assert archive.contents().frame.filter(pl.col("technology") == "5g")["name"].to_list() == [
        "5g-midband", "bus", "walk",
    ]  # fmt: skip
    archive.remove("walk")
    assert names() == ["bus"]
    # By an editor, too.
    path = archive.folder / "bus" / "entry.toml"
    path.write_text(path.read_text().replace('"5g"', '"3g"'))
    assert archive.contents().frame.filter(pl.col("technology") == "3g")["name"].to_list() == ["bus"]


def test_an_entry_is_replayed_by_name_and_a_file_by_a_path_with_a_slash(archive: Archive, tmp_path: Path) -> None:
    add(archive, "walk", parts=("uplink",))
    source = resolve("walk.up", Path("/nowhere"))
    assert not source.synthetic
    assert source == resolve("walk.up", Path())
    assert source.trace.opportunities == 1000
    assert source.path.parent == Path(os.environ["XDG_CACHE_HOME"]) / "cellbed" / "traces"
    first = source.path.stat().st_ino
    assert resolve("walk.up", Path()).path.stat().st_ino == first
    add(archive, "walk", every_ms=4, replace=True)
    assert resolve("walk.up", Path()).trace.opportunities == 250
    with pytest.raises(TraceError, match="'walk' has no downlink: it has uplink"):
        resolve("walk.down", Path())
    with pytest.raises(TraceError, match=r"did you mean 'walk\.up'\?"):
        resolve("walk", Path("/nowhere"))
    with pytest.raises(TraceError, match=r"did you mean 'walk\.up'\?"):
        resolve("wlak.up", Path("/nowhere"))
    (tmp_path / "walk.up").write_text("7\n")
    assert resolve("walk.up", tmp_path).trace.opportunities == 250
    assert resolve("./walk.up", tmp_path).trace.opportunities == 1


def _text_of(tmp_path: Path, content: Content, table: pl.DataFrame, duration_ns: int) -> list[int]:
    path = tmp_path / "series.parquet"
    table.write_parquet(path)
    write_text(Series(content, path, duration_ns), tmp_path / "text")
    return [int(line) for line in (tmp_path / "text").read_text().splitlines()]


def test_nanoseconds_are_rounded_up_and_the_end_is_the_period(tmp_path: Path) -> None:
    table = pl.DataFrame({"at_ns": [0, 1, MS, MS + 1, 9 * MS]})
    assert _text_of(tmp_path, Content.OPPORTUNITIES, table, 9 * MS) == [0, 1, 1, 2, 9]
    assert _text_of(tmp_path, Content.OPPORTUNITIES, table, 20 * MS - 1) == [0, 1, 1, 2, 9, 20]


def test_a_rate_becomes_evenly_spaced_opportunities(tmp_path: Path) -> None:
    # 12 Mbit/s for 5 ms, nothing for 10 ms, 6 Mbit/s until 21 ms.
    table = pl.DataFrame({"at_ns": [0, 5 * MS, 15 * MS], "bit_s": [12e6, 0.0, 6e6]})
    assert _text_of(tmp_path, Content.RATE, table, 21 * MS) == [1, 2, 3, 4, 5, 17, 19, 21]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 50 * MS), st.floats(0, 1e9)), min_size=1, max_size=20).filter(
        lambda steps: any(rate for _, rate in steps)
    )
)
def test_opportunities_of_a_rate_carry_its_bits(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, float]]
) -> None:
    ends = [sum(length for length, _ in steps[: number + 1]) for number in range(len(steps))]
    begins = [0, *ends[:-1]]
    table = pl.DataFrame(
        {"at_ns": begins, "bit_s": [rate for _, rate in steps]}, schema={"at_ns": pl.Int64, "bit_s": pl.Float64}
    )
    duration = ends[-1] + 1
    stamps = _text_of(tmp_path_factory.mktemp("rate"), Content.RATE, table, duration)
    offered = sum(rate * length for length, rate in steps) / 1e9 + steps[-1][1] / 1e9
    assert stamps == sorted(stamps)
    assert stamps[-1] == -(-duration // MS)
    assert abs(len(stamps) - offered / 12_000) <= 1.001


# Several processes.


def test_adding_replacing_and_removing_at_once_never_shows_half_an_entry(archive: Archive) -> None:
    change = """
        from contextlib import suppress
        try:
            add(archive, "walk", every_ms=1 + int(sys.argv[1]))
            print("kept")
        except TraceError as error:
            print("already" if "already" in str(error) else error)
        for turn in range(3):
            add(archive, f"own-{sys.argv[1]}", every_ms=1 + turn, replace=True)
            with suppress(TraceError):
                add(archive, "shared", every_ms=1 + turn, replace=True)
            with suppress(TraceError):
                archive.remove("shared")
    """
    changing = [start(change, str(number)) for number in range(3)]
    seen = 0
    while any(process.poll() is None for process in changing):
        table = archive.contents().frame
        assert table["origin"].null_count() == 0
        assert archive.contents().problems == {}
        seen += table.height
        for name in ("own-0", "own-1", "own-2"):
            if archive.has(name):
                # Replaced in one step: a request by name always gets one of them.
                assert archive.entry(name).parts["uplink"].rows > 0
    said = [process.communicate()[0].strip() for process in changing]
    assert [process.returncode for process in changing] == [0, 0, 0]
    assert sorted(said) == ["already"] * 2 + ["kept"]
    assert archive.entry("walk").parts["uplink"].rows == 1000 // (said.index("kept") + 1)
    assert seen
    assert [faults for _, faults in archive.verify() if faults] == []
    assert unfinished(archive) == []
    assert {"own-0", "own-1", "own-2"} <= set(archive.contents().frame["name"])


def test_a_killed_add_leaves_nothing_visible_and_the_next_sweeps_it(archive: Archive) -> None:
    script = """
        with archive.draft(About(origin="recorded")) as draft:
            write_opportunities(draft, "uplink", [1, 2, 3])
            print("busy", flush=True)
            time.sleep(600)
    """
    alive, killed = start(script), start(script)
    try:
        for process in (alive, killed):
            assert process.stdout.readline() == "busy\n"
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert archive.names() == EXAMPLES
        assert archive.contents().frame.height == 2
        assert len(unfinished(archive)) == 2
        assert len(archive.sweep()) == 1
        # What a live process is at stays.
        assert len(unfinished(archive)) == 1
    finally:
        alive.kill()
        alive.wait()
    add(archive, "walk")
    assert unfinished(archive) == []
    assert archive.names() == [*EXAMPLES, "walk"]


def test_keys_that_a_user_adds_are_columns_and_replace_no_measured_value(archive: Archive) -> None:
    stated = {"uplink_mean_bit_s": "fast", "downlink_content": "rate", "duration_ns": "long", "recording": "yes"}
    add(archive, "walk", seconds=1, place="Delft", Place="Bergen", **stated)
    row = archive.contents().frame.filter(pl.col("name") == "walk").row(0, named=True)
    assert (row["place"], row["Place"]) == ("Delft", "Bergen")
    assert (row["uplink_mean_bit_s"], row["duration_ns"], row["recording"]) == (12e6, 10**9, False)
    assert row["downlink_content"] is None
