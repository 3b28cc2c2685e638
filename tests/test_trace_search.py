"""Questions to the archive's table of entries: what SQLite answers is what the words say, and it does nothing else."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import polars as pl
import pytest
import tomli_w
from hypothesis import example, given, settings
from hypothesis import strategies as st

from any_text import many, value_or_line
from archive_examples import add
from cellbed.cli.traces.json_rows import json_rows
from cellbed.cli.traces.listing import listing
from cellbed.traces import Archive, TraceError
from cellbed.traces.entry import About
from cellbed.traces.entry_table import EntryTable, Kind, Rows, Value
from cellbed.traces.search import OTHER_NAMES, Query, Way, found

COLUMNS: Final[dict[str, Kind]] = {
    "name": "TEXT",
    "duration_ns": "INTEGER",
    **dict.fromkeys(("uplink_mean_bit_s", "downlink_mean_bit_s"), "REAL"),
    **dict.fromkeys(About.model_fields, "TEXT"),
    **dict.fromkeys(("uplink_content", "downlink_content"), "TEXT"),
    "recording": "BOOLEAN",
}
TEXTS: Final = st.sampled_from(
    [
        "5g",
        "5G",
        "4g",
        "driving",
        "Driving",
        "DÜSSELDORF",
        "Düsseldorf",
        "straße",
        "STRASSE",
        "İzmir",
        "2021-04",
        "a%_b",
    ]
)
EXACT: Final = ("technology", "band", "mobility", "obstacle", "origin")
PARTS: Final = ("operator", "place", "source", "licence")
RATES: Final = st.sampled_from([0.0, 1e6, 12e6, 12e6 + 1, 1e300]) | st.floats(0, 1e9)
TIMES: Final = st.sampled_from([1, 60 * 10**9, 2**63 - 1])


def table_of(rows: list[Mapping[str, Value]]) -> EntryTable:
    table = EntryTable(COLUMNS)
    table.add(rows)
    return table


@st.composite
def entries(draw: st.DrawFn) -> list[dict[str, Value]]:
    """Rows of the table of some entries."""
    columns: dict[str, st.SearchStrategy[Value]] = {
        **dict.fromkeys((*EXACT, *PARTS, "date"), TEXTS),
        **dict.fromkeys(("uplink_mean_bit_s", "downlink_mean_bit_s"), RATES),
        **dict.fromkeys(("uplink_content", "downlink_content"), st.just("rate")),
        "duration_ns": TIMES,
        "recording": st.booleans(),
    }
    names = draw(st.lists(st.from_regex("[a-z0-9][a-z]{0,3}", fullmatch=True), unique=True, max_size=8))
    known = st.fixed_dictionaries({}, optional=columns)
    return [{"name": name, **draw(known)} for name in names]


def queries() -> st.SearchStrategy[Query]:
    """Questions about such rows, of which most ask one or two things."""
    asked: dict[str, st.SearchStrategy[Any]] = {
        **dict.fromkeys((*EXACT, *PARTS, "date"), TEXTS | st.sampled_from(["lte", " NR ", "ss", "", "\udcff"])),
        "name": st.sampled_from(["a", "", "B", "\udcff"]),
        "way": st.sampled_from(get_args(Way)),
        "minimum_mean": RATES,
        "maximum_mean": RATES,
        "minimum_duration": TIMES | st.just(10**400),
    }
    order = {"sort": st.sampled_from(list(COLUMNS)), "descending": st.booleans()}
    few = st.lists(st.sampled_from(list(asked)), max_size=2, unique=True)
    return few.flatmap(
        lambda keys: st.builds(Query, **{key: asked[key] for key in keys}, **order)  # type: ignore[arg-type]
    )


def answers(row: Mapping[str, Value], query: Query) -> bool:
    """Whether a row is what a query asks for, in plain words."""
    for key in EXACT:
        wanted = getattr(query, key)
        if wanted is not None:
            wanted = wanted.casefold().strip()
            wanted = OTHER_NAMES.get(wanted, wanted) if key == "technology" else wanted
            if row.get(key) is None or str(row[key]).casefold() != wanted:
                return False
    for key in ("name", *PARTS):
        part = getattr(query, key)
        if part is not None and (row.get(key) is None or part.casefold() not in str(row[key]).casefold()):
            return False
    if query.date is not None and not (row.get("date") is not None and str(row["date"]).startswith(query.date)):
        return False
    if query.way is not None and row.get(f"{query.way}_content") is None:
        return False
    if query.minimum_mean is not None or query.maximum_mean is not None:
        least = query.minimum_mean or 0.0
        most = math.inf if query.maximum_mean is None else query.maximum_mean
        means = [row.get(f"{way}_mean_bit_s") for way in ([query.way] if query.way else get_args(Way))]
        if not any(isinstance(mean, float) and least <= mean <= most for mean in means):
            return False
    duration = row.get("duration_ns")
    return query.minimum_duration is None or (isinstance(duration, int) and duration >= query.minimum_duration)


@settings(max_examples=100, deadline=None)
@given(rows=entries(), query=queries())
def test_what_is_found_is_what_is_asked_for(rows: list[dict[str, Value]], query: Query) -> None:
    expected = sorted((row for row in rows if answers(row, query)), key=lambda row: str(row["name"]))
    known = [row for row in expected if row.get(query.sort) is not None]
    known.sort(key=lambda row: _key(row[query.sort]), reverse=query.descending)
    if query.descending:  # of equals the first by name is still the first
        known.sort(key=lambda row: str(row["name"]))
        known.sort(key=lambda row: _key(row[query.sort]), reverse=True)
    names = [row["name"] for row in known + [row for row in expected if row.get(query.sort) is None]]
    result = found(table_of(rows), query)
    assert result.column("name") == names
    by_name = {row["name"]: row for row in rows}
    for row in result.rows:
        one = dict(zip(result.columns, row, strict=True))
        assert {key: value for key, value in one.items() if value is not None} == by_name[one["name"]]
        assert {type(value) for key, value in one.items() if key == "recording"} <= {bool, type(None)}


def _key(value: Value) -> Any:
    return value.encode() if isinstance(value, str) else value


NUMBERS: Final = st.sampled_from([None, -1.5, 0.0, 2.0, 12e6])
COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": lambda one, other: one > other,
    "<=": lambda one, other: one <= other,
    "=": lambda one, other: one == other,
    "<>": lambda one, other: one != other,
}
Truth = bool | None


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> tuple[str, Callable[[Mapping[str, Value]], Truth]]:
    """A condition in SQL, and what it is of a row, in the logic of three values."""
    kind = draw(st.sampled_from(["compare", "null", "and", "or", "not"] if depth else ["compare", "null"]))
    column = draw(st.sampled_from(["uplink_mean_bit_s", "downlink_mean_bit_s"]))
    written = draw(
        st.sampled_from([column, column.upper(), f'"{column}"', f"`{column}`", f"[{column}]", f"({column})"])
    )
    if kind == "compare":
        sign, number = draw(st.sampled_from(list(COMPARISONS))), draw(st.sampled_from([-1.5, 0, 2e0, 1.2e7]))

        def compared(row: Mapping[str, Value]) -> Truth:
            value = row.get(column)
            return COMPARISONS[sign](value, number) if isinstance(value, float) else None

        return f"{written}{sign}{number}", compared
    if kind == "null":
        return f"{written} IS NULL", lambda row: row.get(column) is None
    left, of_left = draw(conditions(depth - 1))
    if kind == "not":
        return f"NOT ({left})", lambda row: None if (it := of_left(row)) is None else not it
    right, of_right = draw(conditions(depth - 1))
    decisive = kind == "or"

    def both(row: Mapping[str, Value]) -> Truth:
        it = {of_left(row), of_right(row)}
        return decisive if decisive in it else None if None in it else not decisive

    return f"({left}) {kind} ({right})", both


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.fixed_dictionaries({"uplink_mean_bit_s": NUMBERS, "downlink_mean_bit_s": NUMBERS}), max_size=5),
    condition=conditions(),
)
def test_a_condition_is_what_sql_says(
    rows: list[dict[str, Value]], condition: tuple[str, Callable[[Mapping[str, Value]], Truth]]
) -> None:
    named: list[Mapping[str, Value]] = [{"name": f"n{number}", **row} for number, row in enumerate(rows)]
    text, truth = condition
    assert found(table_of(named), Query(where=text)).column("name") == [row["name"] for row in named if truth(row)]


def one() -> EntryTable:
    return table_of([{"name": "walk", "place": "Delft", "uplink_mean_bit_s": 12e6, "recording": False}])


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ('"mobilty" = "driving"', "there is no column 'mobilty': did you mean 'mobility'?"),
        ('mobility = "driving"', "there is no column 'driving'"),
        ("`plac` = 'x'", "did you mean 'place'?"),
        ("[plac] = 'x'", "did you mean 'place'?"),
        ("plac = 'x'", "did you mean 'place'?"),
        ("rowid = 1", "there is no column 'rowid'"),
        ("true) OR (true", "a bracket closes that was not opened"),
        ("(true", "a bracket is open"),
        ("true); DROP TABLE entries; --", "';' begins nothing"),
        ("true; DROP TABLE entries", "';' begins nothing"),
        ("true -- for now", "'--' begins a comment"),
        ("true /* for now */", "'/*' begins a comment"),
        ("name = 'walk", '"\'" begins nothing'),
        ("name = ?", "'?' begins nothing"),
        ("name = :name", "':' begins nothing"),
        ("name = 'a\0'", "begins nothing"),
        ("name = '\udcff'", "begins nothing"),
        ("name IN (SELECT name FROM entries)", "a query, SELECT, has no place in it"),
        ("name IN (VALUES ('walk'))", "a query, VALUES, has no place in it"),
        ("name IN problems", "cannot be read"),
        ("name IN sqlite_master", "cannot be read"),
        ("load_extension('x') IS NULL", "cannot be read"),
        ("uplink_mean_bit_s > > 3", 'near ">": syntax error'),
        ("3 uplink_mean_bit_s", 'near "uplink_mean_bit_s": syntax error'),
        ("nosuch(place)", "no such function: nosuch"),
        ("max(uplink_mean_bit_s) > 3", "misuse of aggregate"),
        ("uplink_mean_bit_s", "is no condition"),
        ("uplink_mean_bit_s + 1", "is no condition"),
        ("duration_ns", "is no condition"),
        ("place", "is no condition"),
        ("'true'", "is no condition"),
        ("place > 3", "place is text: write '3' in quotes"),
        ("3 = band", "band is text: write '3' in quotes"),
        ("hex(zeroblob(1000000000)) = ''", "cannot be read"),
        ("abs(-9223372036854775808) = 1", "cannot be read (integer overflow)"),
        ("\u2028 = 1", "there is no column '\\u2028'"),
        ("", "cannot be read"),
    ],
)
def test_what_is_no_condition_is_refused_and_nothing_changes(where: str, reason: str) -> None:
    table = one()
    before = table.content()
    with pytest.raises(TraceError) as refused:
        found(table, Query(where=where))
    told = str(refused.value)
    assert reason in told
    assert told.startswith("--where: ")
    assert told.isprintable()
    assert table.content() == before
    assert found(table, Query()).column("name") == ["walk"]


@pytest.mark.parametrize(
    "where",
    [
        "recording = FALSE",
        "NOT recording",
        "PLACE = 'Delft' AND Uplink_Mean_Bit_S >= 0xF",
        "place LIKE 'del%' AND place NOT IN ('Oslo') AND place COLLATE NOCASE = 'DELFT'",
        "casefold(place) = 'delft' AND length(place) > 4",
        "CASE WHEN uplink_mean_bit_s > 5 THEN place = 'Delft' END",
        "CAST(uplink_mean_bit_s AS INTEGER) % 7 = 12000000 % 7",
        "uplink_mean_bit_s / 1e6 BETWEEN 11 AND 13",
        "uplink_mean_bit_s IS NOT downlink_mean_bit_s",
        "name = 'walk' OR place = '--; (' OR place = 'it''s'",
        "coalesce(mobility, 'unknown') = 'unknown'",
    ],
)
def test_what_sql_has_can_be_asked(where: str) -> None:
    assert found(one(), Query(where=where)).column("name") == ["walk"]


@settings(many, max_examples=100)
@given(
    st.lists(
        st.sampled_from(
            [
                *("(", ")", "'", '"', "`", "[", "]", ";", "--", "/*", "*/", " ", ",", ".", "=", "'a'", "1", "0x", "1e"),
                *("name", "place", "uplink_mean_bit_s", "entries", "NOT", "AND", "IN", "CASE", "END", "abs"),
                *("\0", "é", "\ud800", "?1"),
            ]
        )
    ).map("".join)
)
@example("((name)")
@example("entries.name = 'walk'")
@example("main.entries.rowid = 1")
@example("(" * 3000 + "1" + ")" * 3000)
@example("1" + "+1" * 3000 + " > 0")
def test_any_condition_is_answered_or_refused_in_a_line(where: str) -> None:
    table = one()
    before = table.content()
    rows = value_or_line(lambda: found(table, Query(where=where)))
    assert rows is None or rows.column("name") in ([], ["walk"])
    assert table.content() == before


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
    table = archive.contents().entries
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
    with pytest.raises(TraceError, match="there is no column 'pLACE'"):
        found(table, Query(where="pLACE = 'Oslo'"))
    assert archive.index().select("0", "", "Place").collect().height == 4


def test_what_an_entry_says_cannot_be_taken_for_what_is_measured(archive: Archive) -> None:
    said = {"uplink_mean_bit_s": "fast", "downlink_content": "rate", "duration_ns": "long", "recording": "yes"}
    add(archive, "walk", seconds=1, **said)
    table = archive.contents().entries
    assert found(table, Query(name="walk", way="downlink")).column("name") == []
    [row] = found(table, Query(name="walk"), ["uplink_mean_bit_s", "duration_ns", "recording"]).rows
    assert set(row) == {12e6, 10**9, False}


def test_more_keys_than_a_table_has_columns_harm_nobody_else(archive: Archive) -> None:
    add(archive, "walk", place="Delft")
    archive.contents()
    add(archive, "many", **{f"key{number}": "x" for number in range(3000)})
    for _ in range(2):
        table = archive.contents().entries
        assert found(table, Query(place="delft")).column("name") == ["walk"]
        assert found(table, Query(where="key0 = 'x'")).column("name") == ["many"]
        assert len(found(table, Query()).columns) < 2000
    archive.remove("many")
    add(archive, "other", **{f"another{number}": "x" for number in range(1000)})
    assert found(archive.contents().entries, Query(where="another999 = 'x'")).column("name") == ["other"]


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
            [_known(row, rows) for row in rows.rows] for rows in (found(it.entries, Query()) for it in (now, anew))
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
    table = one()
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
    monkeypatch.setattr("cellbed.traces.entry_table._is_storable", lambda: False)
    (archive.folder / ".index-4").unlink()
    for name in ("walk", "bus"):
        add(archive, name)
        assert name in archive.contents().entries.values("name")
    assert list(archive.folder.glob(".index*")) == []


def _beginning(program: str, *words: str) -> list[str]:
    """The command after a line of Python."""
    begin = f"import sys; sys.argv[0] = 'cellbed'\n{program}\nfrom cellbed.cli.main import main; main()"
    return [sys.executable, "-P", "-c", begin, *words]


def _started(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_beginning(program, *words), capture_output=True, text=True, check=False)


def test_ctrl_c_ends_a_question_that_takes_long() -> None:
    table = table_of([{"name": f"n{number}"} for number in range(100_000)])
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):  # and not in an hour
            found(table, Query(where="hex(zeroblob(9000000 + length(name))) = ''"))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(found(table, Query(where="name = 'n7'"))) == 1


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


@given(
    st.lists(
        st.tuples(st.text(), st.none() | st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False))
    )
)
def test_rows_are_json(rows: list[tuple[Value, ...]]) -> None:
    kinds: dict[str, Kind] = {"a%s": "TEXT", 'b"\\\n': "BOOLEAN", "": "INTEGER", "é": "REAL"}
    told = [json.loads(line) for line in json_rows(Rows(kinds, rows))]
    assert [tuple(row.values()) for row in told] == rows
    assert [[type(value) for value in row.values()] for row in told] == [[type(value) for value in row] for row in rows]
    assert all(list(row) == list(kinds) for row in told)


@given(st.lists(st.none() | st.floats(-1e12, 1e12) | st.integers(0, 10**11).map(lambda it: it / 1000), min_size=1))
@example([13_275_000.0, 125_000.0, 5_000.0, -0.001, 1e-300, 0.0, -0.0])
def test_numbers_are_rounded_as_decimals(values: list[float | None]) -> None:
    rows: list[tuple[Value, ...]] = [("n", value) for value in values]
    lines = listing(Rows({"name": "TEXT", "uplink_mean_bit_s": "REAL"}, rows), "name", 160).lines
    shown = [line.split()[1:] for line in lines[1:]]
    number = pl.Series("of", values, pl.Float64).to_frame().select(of=pl.col("of") * 1e-6)["of"]
    rounded = {places: number.cast(pl.Decimal(38, places)).cast(pl.String).to_list() for places in (2, 4)}
    for place, value in enumerate(number):
        if value is None:
            assert shown == [] or shown[place] == []
        else:
            assert shown[place] == [rounded[4 if value and abs(value) < 0.1 else 2][place]]
