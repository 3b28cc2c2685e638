"""The archive's table of entries, as a file: what is in it, what becomes of it, and where it cannot be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from any_text import many
from archive_examples import add
from cellbed.archive import Archive
from cellbed.archive.search import Query, found

ODD_KEYS: Final = [
    "Place",
    "PLACE",
    "0",
    "select",
    "order",
    'a"b',
    "a%sb",
    "",
    "\0",
    "é",
    "É",
    "rowid",
    "_size",
    "x" * 300,
]


def names(archive: Archive, **asked: Any) -> list[str]:
    return found(archive.contents().frame, Query(**asked))["name"].to_list()


def test_keys_of_any_name_are_columns(archive: Archive) -> None:
    add(archive, "walk", place="Delft", **{key: f"of {key}" for key in ODD_KEYS})
    add(archive, "bus", place="Oslo", Place="Bergen")
    rows = {row["name"]: row for row in archive.contents().frame.rows(named=True)}
    assert {key: rows["walk"][key] for key in ODD_KEYS} == {key: f"of {key}" for key in ODD_KEYS}
    assert (rows["walk"]["place"], rows["bus"]["place"], rows["bus"]["Place"]) == ("Delft", "Oslo", "Bergen")
    assert rows["bus"]["PLACE"] is None
    for where, name in (
        ("Place = 'Bergen'", "bus"),
        ("place = 'Oslo'", "bus"),
        ("\"PLACE\" = 'of PLACE'", "walk"),
        ("\"0\" = 'of 0'", "walk"),
        ("\"select\" = 'of select' AND \"order\" = 'of order'", "walk"),
        ('"a""b" = \'of a"b\'', "walk"),
        ("É = 'of É' AND rowid = 'of rowid' AND _size = 'of _size'", "walk"),
    ):
        assert names(archive, where=where) == [name]
    assert names(archive, sort="Place", origin="recorded") == ["bus", "walk"]
    assert archive.index().select("0", "", "Place").collect().height == 4


def test_what_an_entry_says_cannot_be_taken_for_what_is_measured(archive: Archive) -> None:
    said = {"uplink_mean_bit_s": "fast", "downlink_content": "rate", "duration_ns": "long", "recording": "yes"}
    add(archive, "walk", seconds=1, **said)
    assert names(archive, name="walk", way="downlink") == []
    table = found(archive.contents().frame, Query(name="walk"))
    assert table.select("uplink_mean_bit_s", "duration_ns", "recording").row(0) == (12e6, 10**9, False)


def test_more_keys_than_a_table_has_columns_harm_nobody_else(archive: Archive) -> None:
    add(archive, "walk", place="Delft")
    archive.contents()
    add(archive, "many", **{f"key{number}": "x" for number in range(3000)})
    for _ in range(2):
        assert names(archive, place="delft") == ["walk"]
        assert names(archive, where="key0 = 'x'") == ["many"]
        assert archive.contents().frame.width < 2000
    archive.remove("many")
    add(archive, "other", **{f"another{number}": "x" for number in range(1000)})
    assert names(archive, where="another999 = 'x'") == ["other"]


CHANGES: Final = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "d"]),
        st.none()
        | st.just("half an ent")
        | st.dictionaries(st.sampled_from(["place", "Place", "mine", "operator"]), st.text(max_size=3), max_size=2),
    ),
    max_size=3,
)


@settings(many, max_examples=10)
@given(st.lists(CHANGES, min_size=1, max_size=5))
def test_a_table_that_was_changed_is_the_one_that_is_made_anew(
    tmp_path_factory: pytest.TempPathFactory, archive_of_examples: Path, looks: list[list[tuple[str, Any]]]
) -> None:
    folder = tmp_path_factory.mktemp("changed") / "traces"
    shutil.copytree(archive_of_examples, folder)
    described = tomllib.loads((folder / "lte-suburban" / "entry.toml").read_text())
    archive = Archive(folder)
    for changes in looks:
        for name, what in changes:
            shutil.rmtree(folder / name, ignore_errors=True)
            if what is not None:
                (folder / name).mkdir()
                said = {"origin": "recorded"} | what if isinstance(what, dict) else {}
                text = tomli_w.dumps(described | {"name": name, "about": said}) if said else what
                (folder / name / "entry.toml").write_text(text)
        now = archive.contents()
        (folder / ".index-5").unlink()
        anew = archive.contents()
        assert _known(now.frame) == _known(anew.frame)
        assert now.problems == anew.problems


def _known(frame: pl.DataFrame) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if value is not None} for row in frame.rows(named=True)]


def test_the_former_table_goes_when_the_new_one_is_written(archive: Archive) -> None:
    (archive.folder / ".index-4").write_bytes(b"x" * 100)
    add(archive, "walk")
    archive.contents()
    assert [path.name for path in archive.folder.glob(".index*")] == [".index-5"]


def test_an_archive_where_nobody_can_write_is_listed(archive: Archive) -> None:
    add(archive, "walk", place="Delft")
    archive.contents()
    path = archive.folder / "walk" / "entry.toml"
    path.write_text(path.read_text().replace("Delft", "Oslo"))
    frozen = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && ! touch "$0/x" 2>/dev/null && exec "$@"'
    begin = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", frozen, str(archive.folder)]
    if subprocess.run([*begin, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    before = (archive.folder / ".index-5").read_bytes()
    command = [sys.executable, "-P", "-m", "cellbed", "traces", "ls", "--place", "oslo"]
    done = subprocess.run([*begin, *command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["name", "walk"]
    assert (archive.folder / ".index-5").read_bytes() == before


def test_a_folder_whose_name_is_no_text_is_told(archive: Archive) -> None:
    folder = archive.folder / os.fsdecode(b"odd-\xff")
    folder.mkdir()
    for _ in range(2):
        contents = archive.contents()
        assert list(contents.problems) == ["odd-\\udcff"]
        assert contents.problems["odd-\\udcff"].endswith("entry.toml: missing")
    folder.rmdir()
    assert archive.contents().problems == {}
