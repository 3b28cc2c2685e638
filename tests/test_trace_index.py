"""The archive's table of entries, as a file: what is in it, what becomes of it, and where it cannot be."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from any_text import many
from archive_examples import add
from cellbed.archive import Archive, TraceError
from cellbed.archive.entry_table import EntryTable, Rows, Value
from cellbed.archive.search import Query, found
from cellbed.cli.traces.json_rows import json_rows

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


def test_keys_of_any_name_are_columns(archive: Archive) -> None:
    add(archive, "walk", place="Delft", **{key: f"of {key}" for key in ODD_KEYS})
    add(archive, "bus", place="Oslo", Place="Bergen")
    table = archive.contents()
    rows = {row["name"]: row for row in map(json.loads, json_rows(found(table, Query())))}
    assert {key: rows["walk"][key] for key in ODD_KEYS} == {key: f"of {key}" for key in ODD_KEYS}
    assert (rows["walk"]["place"], rows["bus"]["place"], rows["bus"]["Place"]) == ("Delft", "Oslo", "Bergen")
    assert rows["bus"]["PLACE"] is None
    for where, name in (
        ("Place = 'Bergen'", "bus"),
        ("place = 'Oslo'", "bus"),
        ("\"PLACE\" = 'of PLACE'", "walk"),
        ("\"0\" = 'of 0'", "walk"),
        ("\"select\" = 'of select' AND order = 'of order'", "walk"),
        ('"a""b" = \'of a"b\'', "walk"),
        ("É = 'of É' AND rowid = 'of rowid' AND _size = 'of _size'", "walk"),
    ):
        assert found(table, Query(where=where)).column("name") == [name]
    assert found(table, Query(sort="Place", origin="recorded")).column("name") == ["bus", "walk"]
    with pytest.raises(TraceError, match="unknown column 'pLACE'"):
        found(table, Query(where="pLACE = 'Oslo'"))
    assert archive.index().select("0", "", "Place").collect().height == 4


def test_what_an_entry_says_cannot_be_taken_for_what_is_measured(archive: Archive) -> None:
    said = {"uplink_mean_bit_s": "fast", "downlink_content": "rate", "duration_ns": "long", "recording": "yes"}
    add(archive, "walk", seconds=1, **said)
    table = archive.contents()
    assert found(table, Query(name="walk", way="downlink")).column("name") == []
    [row] = found(table, Query(name="walk"), ["uplink_mean_bit_s", "duration_ns", "recording"]).rows
    assert set(row) == {12e6, 10**9, False}


def test_more_keys_than_a_table_has_columns_harm_nobody_else(archive: Archive) -> None:
    add(archive, "walk", place="Delft")
    archive.contents()
    add(archive, "many", **{f"key{number}": "x" for number in range(3000)})
    for _ in range(2):
        table = archive.contents()
        assert found(table, Query(place="delft")).column("name") == ["walk"]
        assert found(table, Query(where="key0 = 'x'")).column("name") == ["many"]
        assert len(found(table, Query()).columns) < 2000
    archive.remove("many")
    add(archive, "other", **{f"another{number}": "x" for number in range(1000)})
    assert found(archive.contents(), Query(where="another999 = 'x'")).column("name") == ["other"]


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
        (folder / ".index-4").unlink()
        anew = archive.contents()
        now_rows, anew_rows = (
            [_known(row, rows) for row in rows.rows] for rows in (found(it, Query()) for it in (now, anew))
        )
        assert now_rows == anew_rows
        assert now.problems == anew.problems


def _known(row: tuple[Value, ...], rows: Rows) -> dict[str, Value]:
    return {name: value for name, value in zip(rows.columns, row, strict=True) if value is not None}


def test_the_former_table_goes_when_the_new_one_is_written(archive: Archive) -> None:
    (archive.folder / ".index-3").write_bytes(b"x" * 100)
    add(archive, "walk")
    archive.contents()
    assert [path.name for path in archive.folder.glob(".index*")] == [".index-4"]


def test_bytes_that_are_no_table_are_none() -> None:
    table = EntryTable({"name": "TEXT", "place": "TEXT"})
    table.add([{"name": "walk", "place": "Delft", "uplink_mean_bit_s": 12e6, "recording": False}])
    content = table.content()
    assert content is not None
    again = EntryTable.of(content)
    assert again is not None
    assert again.rows() == table.rows()
    assert again.columns == table.columns
    for other in (b"", b"SQLite format 3\0", b"x" * 5000, content[:100]):
        assert EntryTable.of(other) is None


def test_without_what_gives_a_table_as_bytes_it_is_made_at_each_look(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cellbed.archive.entry_table._is_storable", lambda: False)
    (archive.folder / ".index-4").unlink()
    for name in ("walk", "bus"):
        add(archive, name)
        assert name in archive.contents().values("name")
    assert list(archive.folder.glob(".index*")) == []


def _beginning(program: str, *words: str) -> list[str]:
    """The command after a line of Python."""
    begin = f"import sys; sys.argv[0] = 'cellbed'\n{program}\nfrom cellbed.cli.main import main; main()"
    return [sys.executable, "-P", "-c", begin, *words]


def _started(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_beginning(program, *words), capture_output=True, text=True, check=False)


def test_a_python_without_sqlite_is_told_in_a_line(archive: Archive) -> None:
    done = _started("sys.modules['_sqlite3'] = None", "traces", "ls")
    assert done.returncode == 2
    assert done.stderr.startswith("error: this Python was built without SQLite")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words", [[], ["--json"], ["--tech", "5g", "--min-mean", "20mbit", "--sort", "duration_ns"], ["--where", "true"]]
)
def test_a_list_loads_neither_polars_nor_pydantic(archive: Archive, words: list[str]) -> None:
    time.sleep(0.2)  # what has just been written is read once more
    archive.contents()
    heavy = "{'polars', 'numpy', 'pydantic', 'pydantic_core', 'rich'}"
    done = _started(
        f"import atexit; atexit.register(lambda: print(sorted({heavy} & set(sys.modules)), file=sys.stderr))",
        *("traces", "ls", *words),
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_an_archive_where_nobody_can_write_is_listed(archive: Archive) -> None:
    add(archive, "walk", place="Delft")
    archive.contents()
    path = archive.folder / "walk" / "entry.toml"
    path.write_text(path.read_text().replace("Delft", "Oslo"))
    frozen = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && ! touch "$0/x" 2>/dev/null && exec "$@"'
    begin = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", frozen, str(archive.folder)]
    if subprocess.run([*begin, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    before = (archive.folder / ".index-4").read_bytes()
    command = [sys.executable, "-P", "-m", "cellbed", "traces", "ls", "--place", "oslo"]
    done = subprocess.run([*begin, *command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["name", "walk"]
    assert (archive.folder / ".index-4").read_bytes() == before


def test_a_folder_whose_name_is_no_text_is_told(archive: Archive) -> None:
    folder = archive.folder / os.fsdecode(b"odd-\xff")
    folder.mkdir()
    for _ in range(2):
        contents = archive.contents()
        assert list(contents.problems) == ["odd-\\udcff"]
        assert contents.problems["odd-\\udcff"].endswith("entry.toml: missing")
    folder.rmdir()
    assert archive.contents().problems == {}
