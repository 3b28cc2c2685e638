"""The table of the archive's entries, in SQLite's memory: made, changed, written as bytes and read from them.

In the database columns have numbers for names. Those that users give may differ in case only, which SQLite does not
tell apart, or be no names to it at all; and what somebody writes in a condition cannot happen to be one of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

from cellbed.archive.errors import TraceError

if TYPE_CHECKING:
    import sqlite3

    import polars as pl

Value = str | int | float | bool | None
Kind = Literal["TEXT", "INTEGER", "REAL", "BOOLEAN"]
Stamps = dict[bytes, tuple[int, int, int]]
"""By the names of folders, in order: what tells whether their descriptions are those that were read."""

_KINDS: Final[dict[type, Kind]] = {str: "TEXT", int: "INTEGER", float: "REAL", bool: "BOOLEAN"}
_MOST: Final = 1900
"""Columns. SQLite's own limit is 2000 unless somebody has built it with another."""
_LONGEST: Final = 1 << 26
"""Bytes of a value; an entry's description has a quarter of that."""
_STEPS: Final = 50
"""Of SQLite's machine, after which it looks up at the end of a row."""
_SCHEMA: Final = """
CREATE TABLE columns(place INTEGER PRIMARY KEY, name TEXT UNIQUE, kind TEXT, came INTEGER);
CREATE TABLE problems(name TEXT PRIMARY KEY, problem TEXT);
CREATE TABLE looked(folders BLOB, stamps BLOB);
CREATE TABLE entries("0" TEXT PRIMARY KEY);
INSERT INTO columns VALUES(0, 'name', 'TEXT', NULL);
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. place: its number in the database. kind: of its values; each may be null, which is unknown."""

    place: int
    kind: Kind

    @property
    def sql(self) -> str:
        """What it is called in the database."""
        return f'"{self.place}"'


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of some entries, with the kind of each; a row has its values in their order."""

    columns: dict[str, Kind]
    rows: list[tuple[Value, ...]]

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> list[Value]:
        """The values of a column."""
        place = list(self.columns).index(name)
        return [row[place] for row in self.rows]


class EntryTable:
    """A row for each entry that can be read, and why each other one cannot.

    columns: by name, in the order in which entries brought them.
    """

    def __init__(self, columns: Mapping[str, Kind]) -> None:
        """A table without a row. Raises TraceError where this Python has no SQLite.

        columns: those that are there whatever entries have; the first are found fastest.
        """
        self._database = _opened()
        self._database.executescript(_SCHEMA)
        self.columns = self._read_columns()
        self._widen(columns)

    @classmethod
    def of(cls, content: bytes | memoryview) -> EntryTable | None:
        """The table whose `content()` that was; None if it is something else, or cannot be taken so."""
        table = cls.__new__(cls)
        table._database = _opened()
        import sqlite3

        if not content or not _is_storable():
            return None
        try:
            table._database.deserialize(content)
            table.columns = table._read_columns()
        except sqlite3.Error:
            return None
        return table

    def __del__(self) -> None:
        database = getattr(self, "_database", None)
        if database is not None:
            database.close()

    def content(self) -> bytes | None:
        """The table as bytes; None where this Python's SQLite was built without what that takes."""
        return self._database.serialize() if _is_storable() else None

    @property
    def problems(self) -> dict[str, str]:
        """By name, why an entry cannot be read."""
        return dict(self._database.execute("SELECT name, problem FROM problems ORDER BY name"))

    def was_made_of(self, stamps: Stamps) -> bool:
        """Whether it is of just these folders, with these stamps."""
        return self._database.execute("SELECT folders, stamps FROM looked").fetchall() == [_packed(stamps)]

    @property
    def stamps(self) -> Stamps:
        """Of what it was made."""
        found = self._database.execute("SELECT folders, stamps FROM looked").fetchone()
        if found is None or not found[0]:
            return {}
        return dict(zip(found[0].split(b"/"), struct.iter_unpack("<3q", found[1]), strict=True))

    @stamps.setter
    def stamps(self, stamps: Stamps) -> None:
        self._database.execute("DELETE FROM looked")
        self._database.execute("INSERT INTO looked VALUES(?, ?)", _packed(stamps))

    def has_room(self, rows: Iterable[Mapping[str, Value]]) -> bool:
        """Whether there may be a column for each key of these rows."""
        return len(self.columns.keys() | {key for row in rows for key in row}) <= self._most

    def add(self, rows: Sequence[Mapping[str, Value]]) -> None:
        """Add entries, by `name`. What there is no room for is left out: the keys that come last."""
        kinds = _kinds(rows)
        self._widen(kinds)
        [(before,)] = self._database.execute("SELECT coalesce(max(came), 0) FROM columns")
        self._database.executemany(
            "UPDATE columns SET came = ? WHERE name = ? AND came IS NULL", enumerate(kinds, before + 1)
        )
        self.columns = self._read_columns()
        places = sorted(self.columns, key=lambda name: self.columns[name].place)
        self._database.executemany(
            f"INSERT INTO entries VALUES({', '.join('?' * len(places))})",
            ([row.get(name) for name in places] for row in rows),
        )

    def add_problems(self, problems: Mapping[str, str]) -> None:
        """Add entries that cannot be read, by name, and why."""
        self._database.executemany("INSERT OR REPLACE INTO problems VALUES(?, ?)", problems.items())

    def remove(self, names: Iterable[str]) -> None:
        """Remove entries, be they readable or not; those that are not there are ignored."""
        gone = [(name,) for name in names]
        self._database.executemany('DELETE FROM entries WHERE "0" = ?', gone)
        self._database.executemany("DELETE FROM problems WHERE name = ?", gone)

    def rows(
        self,
        columns: Sequence[str] | None = None,
        conditions: Sequence[str] = (),
        parameters: Sequence[Value] = (),
        order: str = '"0"',
        foreign: bool = False,
    ) -> Rows:
        """Entries that fulfil all conditions. Raises sqlite3.Error where one of them is none.

        columns: those that are wanted; left out: all. conditions, order: of SQL, with the columns' names there and the
        function ``casefold``. foreign: whether a part of them is not ours; they can then only look at the entries.
        """
        wanted = {name: self.columns[name] for name in (self.columns if columns is None else columns)}
        names = ", ".join(column.sql for column in wanted.values())
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        query = f"SELECT {names} FROM entries{where} ORDER BY {order}"
        found = self.asked(query, parameters) if foreign else self._database.execute(query, parameters).fetchall()
        for place, column in enumerate(wanted.values()):
            if column.kind == "BOOLEAN":
                found = [(*row[:place], None if row[place] is None else bool(row[place]), *row[place + 1 :])
                         for row in found]  # fmt: skip
        return Rows({name: column.kind for name, column in wanted.items()}, found)

    def asked(self, query: str, parameters: Sequence[Value] = ()) -> list[tuple[Value, ...]]:
        """What a query gives that can do nothing but look at the entries. Raises sqlite3.Error for any other.

        Ctrl-C ends it: SQLite's error is then ``interrupted``.
        """
        self._database.set_authorizer(_looks_only)
        self._database.set_progress_handler(_go_on, _STEPS)
        try:
            return self._database.execute(query, parameters).fetchall()
        finally:
            self._database.set_progress_handler(None, 0)
            self._database.set_authorizer(None)

    def values(self, column: str) -> list[Value]:
        """What is in a column, each once, in order."""
        place = self.columns[column].sql
        found = self._database.execute(f"SELECT DISTINCT {place} FROM entries WHERE {place} NOT NULL ORDER BY 1")
        return [value for (value,) in found]

    def compacted(self, columns: Mapping[str, Kind]) -> EntryTable:
        """The same without the columns that no entry has any more. columns: as of a new one."""
        table = EntryTable(columns)
        rows = self.rows()
        named = (zip(rows.columns, row, strict=True) for row in rows.rows)
        table.add([{name: value for name, value in row if value is not None} for row in named])
        table.add_problems(self.problems)
        table.stamps = self.stamps
        return table

    def frame(self) -> pl.DataFrame:
        """The same for Polars."""
        import polars as pl

        kinds = {"TEXT": pl.String, "INTEGER": pl.Int64, "REAL": pl.Float64, "BOOLEAN": pl.Boolean}
        rows = self.rows()
        schema = {name: kinds[kind] for name, kind in rows.columns.items()}
        values: Sequence[Any] = list(zip(*rows.rows, strict=True)) or [()] * len(schema)
        return pl.DataFrame(dict(zip(schema, values, strict=True)), schema=schema)

    def _widen(self, kinds: Mapping[str, Kind]) -> None:
        """Make columns of those that are not there, as far as there is room."""
        new = [name for name in kinds if name not in self.columns][: max(0, self._most - len(self.columns))]
        if not new:
            return
        places = enumerate(new, len(self.columns))
        self._database.executemany(
            "INSERT INTO columns VALUES(?, ?, ?, NULL)", ((place, name, kinds[name]) for place, name in places)
        )
        before = ", ".join(f'"{place}"' for place in range(len(self.columns)))
        self.columns = self._read_columns()
        columns = sorted(self.columns.values(), key=lambda column: column.place)
        defined = ", ".join(f"{each.sql} {each.kind}{'' if each.place else ' PRIMARY KEY'}" for each in columns)
        # Not a column at a time: SQLite reads the whole definition again for each.
        self._database.executescript(
            f"CREATE TABLE wider({defined}); INSERT INTO wider({before}) SELECT * FROM entries; "
            "DROP TABLE entries; ALTER TABLE wider RENAME TO entries; VACUUM"
        )

    def _read_columns(self) -> dict[str, Column]:
        found = self._database.execute("SELECT name, place, kind FROM columns ORDER BY came IS NULL, came, place")
        return {name: Column(place, kind) for name, place, kind in found}

    @property
    def _most(self) -> int:
        import sqlite3

        limits = (sqlite3.SQLITE_LIMIT_COLUMN, sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
        return min(_MOST, *(self._database.getlimit(limit) - 100 for limit in limits))


def as_text(said: str) -> str:
    """What the table can hold of what may be no text: the name of a folder, an argument of a program."""
    return said.encode(errors="backslashreplace").decode()


def _is_storable() -> bool:
    """Whether this Python's SQLite gives a table as bytes and takes it so: it can be built without."""
    import sqlite3

    return hasattr(sqlite3.Connection, "serialize") and hasattr(sqlite3.Connection, "deserialize")


def _opened() -> sqlite3.Connection:
    try:
        import sqlite3
    except ImportError as error:
        raise TraceError(
            f"this Python was built without SQLite ({error}), which the archive needs: "
            "use another Python, or rebuild it with SQLite's headers installed (libsqlite3-dev, sqlite-devel)"
        ) from None

    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
    database.create_function("casefold", 1, _casefolded, deterministic=True)
    return database


def _casefolded(text: Value) -> Value:
    """SQLite's own lower() knows the letters of ASCII only."""
    return text.casefold() if isinstance(text, str) else text


def _go_on() -> int:
    """Nothing; but Python hears of Ctrl-C where a line of its own is run."""
    return 0


def _looks_only(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Allows what a query does that looks at the entries."""
    import sqlite3

    if action == sqlite3.SQLITE_READ:
        allowed = first == "entries"
    elif action == sqlite3.SQLITE_FUNCTION:
        allowed = second != "load_extension"
    else:
        allowed = action == sqlite3.SQLITE_SELECT
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _kinds(rows: Sequence[Mapping[str, Value]]) -> dict[str, Kind]:
    """Of the values that keys have, in the order in which they come; text where there is none."""
    types = {key: type(value) for row in rows for key, value in row.items() if value is not None}
    return {key: _KINDS[types.get(key, str)] for key in dict.fromkeys(chain.from_iterable(rows))}


def _packed(stamps: Stamps) -> tuple[bytes, bytes]:
    numbers = [number for stamp in stamps.values() for number in stamp]
    return b"/".join(stamps), struct.pack(f"<{len(numbers)}q", *numbers)
