"""Descriptions and names of entries are changed atomically and kept in their histories, also by several users."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from archive_examples import SECOND, add, start, unfinished, write_rates
from cellbed.archive import Archive, TraceError, resolve
from cellbed.archive.amending import describe
from cellbed.archive.entry import About, Entry, Step
from cellbed.archive.entry_file import read_entry
from cellbed.cli.main import app


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["traces", *words])


def test_describe_changes_values_and_keeps_old_ones_in_the_history(archive: Archive) -> None:
    before = add(archive, "walk", place="Rotterdam", operator="KPN", note="by the window")
    done = run("describe", "walk", "--place", "Delft", "--mobility", "walking", "--note", "")
    assert done.exit_code == 0, done.output
    assert done.stdout == "walk: place Delft, mobility walking, note unknown\n"
    entry = archive.entry("walk")
    assert (entry.about.place, entry.about.mobility, entry.about.note) == ("Delft", "walking", None)
    assert entry.about.operator == "KPN"
    assert entry.parts == before.parts
    assert entry.history[-1].what == "described"
    assert entry.history[-1].how == {
        "place": "Delft",
        "mobility": "walking",
        "was": {"place": "Rotterdam", "note": "by the window"},
    }
    assert [row["name"] for row in json.loads(run("ls", "--place", "delft", "--json").stdout)] == ["walk"]
    assert "history: described place Delft, mobility walking, was (place Rotterdam" in run("show", "walk").output
    assert list(archive.verify(["walk"])) == [("walk", [])]


def test_describing_with_equal_values_changes_nothing(archive: Archive) -> None:
    add(archive, "walk", place="Delft")
    text = (archive.folder / "walk" / "entry.toml").read_text()
    assert run("describe", "walk", "--place", "Delft").stdout == "walk already has these values\n"
    assert (archive.folder / "walk" / "entry.toml").read_text() == text


def test_describe_keeps_unknown_keys_and_old_invalid_values(archive: Archive) -> None:
    add(archive, "walk")
    path = archive.folder / "walk" / "entry.toml"
    path.write_text(path.read_text().replace("[about]", '[about]\ndate = "summer of 2020"\nphone = "green"'))
    assert run("describe", "walk", "--place", "Delft").exit_code == 0
    assert archive.entry("walk").about.model_dump() | {"phone": "green", "date": "summer of 2020"} == (
        archive.entry("walk").about.model_dump()
    )


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["walk", "--date", "31-12-2024"], "'31-12-2024' is not a date: write 2021"),
        (["walk", "--begins", "25:00"], "--begins '25:00' is not a time of day: write 06:30"),
        (["dated", "--begins", "06:30"], "the date already contains a time of day, 2025-03-14T08:00"),
        (["walk", "--place", "x" * 2001], "--place: String should have at most 2000 characters"),
        (["made", "--origin", "recorded"], "'made' was generated according to its history"),
        (["lte-suburban", "--place", "Delft"], "is a built-in example"),
        (["wlak", "--place", "Delft"], "did you mean 'walk'?"),
        (["broken", "--place", "Delft"], "not TOML"),
    ],
)
def test_invalid_values_are_refused_and_change_nothing(archive: Archive, words: list[str], reported: str) -> None:
    add(archive, "walk")
    add(archive, "dated", date="2025-03-14T08:00")
    with archive.draft(About(origin="synthetic")) as draft:
        write_rates(draft, "uplink", [(0, 1e6)], SECOND)
        draft.history.append(Step(what="generated"))
        archive.keep(draft, "made")
    add(archive, "broken")
    (archive.folder / "broken" / "entry.toml").write_text("half an ent")
    before = {path: path.read_bytes() for path in archive.folder.glob("*/entry.toml")}
    done = run("describe", *words)
    assert done.exit_code != 0
    assert reported in str(done.exception)
    assert {path: path.read_bytes() for path in archive.folder.glob("*/entry.toml")} == before


def test_describe_without_options_is_a_usage_error(archive: Archive) -> None:
    add(archive, "walk")
    done = run("describe", "walk")
    assert done.exit_code == 2
    assert "nothing to change" in done.output


def test_hours_follow_the_time_of_day(archive: Archive) -> None:
    with archive.draft(About(origin="recorded")) as draft:
        write_rates(draft, "downlink", [(hour * 3600 * SECOND, (hour + 1) * 1e6) for hour in range(3)], 10_800 * SECOND)
        archive.keep(draft, "walk")

    def hours() -> tuple[list[int], bool]:
        figures = archive.entry("walk").parts["downlink"].statistics
        assert figures is not None
        return figures["hours"], figures["hours_known"]

    assert hours() == ([0, 1, 2], False)
    describe(archive, "walk", {"begins": "06:00"})
    assert hours() == ([6, 7, 8], True)
    # A date that says the time, too, takes the place of the other.
    assert describe(archive, "walk", {"date": "2025-03-14T08:30"}).entry.about.begins is None
    assert hours() == ([8, 9, 10, 11], True)
    describe(archive, "walk", {"date": "2025-03-14"})
    assert hours() == ([0, 1, 2], False)


def test_rename_moves_an_entry_and_records_its_old_name(archive: Archive) -> None:
    before = add(archive, "walk", parts=("uplink", "downlink"), place="Delft")
    (archive.folder / "walk" / "photo.txt").write_text("mine")
    text = resolve("walk.up", Path()).path.read_bytes()
    done = run("rename", "walk", "delft-morning")
    assert done.exit_code == 0, done.output
    assert done.stdout == "renamed walk to delft-morning: `cellbed traces show delft-morning`\n"
    assert "walk.up or walk.down must be changed by hand" in done.stderr
    assert archive.names() == ["5g-midband", "delft-morning", "lte-suburban"]
    entry = archive.entry("delft-morning")
    assert (entry.parts, entry.about) == (before.parts, before.about)
    assert entry.history[-1].what == "renamed"
    assert entry.history[-1].how == {"from": "walk"}
    assert list(archive.verify(["delft-morning"])) == [("delft-morning", [])]
    assert resolve("delft-morning.up", Path()).path.read_bytes() == text
    assert (archive.folder / "delft-morning" / "photo.txt").read_text() == "mine"
    assert [row["name"] for row in json.loads(run("ls", "--place", "delft", "--json").stdout)] == ["delft-morning"]
    assert unfinished(archive) == []
    with pytest.raises(TraceError, match="unknown trace"):
        resolve("walk.up", Path())


@pytest.mark.parametrize(
    ("names", "reported"),
    [
        (["walk", "tram"], "the archive already has 'tram'"),
        (["walk", "walk"], "'walk' already has this name"),
        (["walk", "Walk.1"], "write 'walk-1'"),
        (["walk", "lte-suburban"], "is a built-in example"),
        (["lte-suburban", "mine"], "is a built-in example"),
        (["wlak", "mine"], "did you mean 'walk'?"),
    ],
)
def test_invalid_new_names_are_refused_and_change_nothing(archive: Archive, names: list[str], reported: str) -> None:
    add(archive, "walk")
    add(archive, "tram")
    done = run("rename", *names)
    assert done.exit_code != 0
    assert reported in str(done.exception)
    assert archive.names() == ["5g-midband", "lte-suburban", "tram", "walk"]
    assert unfinished(archive) == []


# Several processes.


def test_concurrent_descriptions_are_all_kept(archive: Archive) -> None:
    add(archive, "walk")
    script = """
        for turn in range(6):
            describe(archive, "walk", {sys.argv[1]: f"said {turn}"})
    """
    keys = ("place", "operator", "note")
    started = [start(script, key) for key in keys]
    while any(process.poll() is None for process in started):
        read_entry(archive.folder / "walk")  # never half of it
    assert [process.wait() for process in started] == [0, 0, 0]
    entry = archive.entry("walk")
    assert [getattr(entry.about, key) for key in keys] == ["said 5"] * 3
    assert [sum(key in step.how for step in entry.history) for key in keys] == [6] * 3
    assert list(archive.verify(["walk"])) == [("walk", [])]


def test_an_entry_renamed_while_it_is_read_is_unknown(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    add(archive, "walk")

    def read(folder: Path) -> Entry:
        folder.rename(folder.with_name("walk-2"))
        return read_entry(folder)

    monkeypatch.setattr("cellbed.archive.store.read_entry", read)
    with pytest.raises(TraceError, match="the archive has no 'walk': did you mean 'walk-2'"):
        archive.entry("walk")


def test_of_concurrent_renames_one_succeeds(archive: Archive) -> None:
    add(archive, "walk")
    script = """
        try:
            rename(archive, "walk", sys.argv[1])
            print("renamed")
        except TraceError as error:
            print("gone" if "has no 'walk'" in str(error) else error)
    """
    said = [process.communicate()[0].strip() for process in [start(script, f"walk-{turn}") for turn in range(3)]]
    assert sorted(said) == ["gone"] * 2 + ["renamed"]
    assert archive.names() == ["5g-midband", "lte-suburban", f"walk-{said.index('renamed')}"]
    assert [faults for _, faults in archive.verify() if faults] == []
