"""A condition in SQL as a user writes it, made one that SQLite can be given.

SQLite itself takes a misspelt name in double quotes for a text, and every number for true or false. So the words of a
condition are looked at: which are columns, and whether all of it is one expression.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cellbed.archive.errors import TraceError

if TYPE_CHECKING:
    from cellbed.archive.entry_table import Column, EntryTable, Rows, Value

_TOKEN: Final = re.compile(
    r"""
    (?P<space>[ \t\n\f\r]+)
    | (?P<comment>--|/\*)
    | (?P<text>'(?:[^'\0\ud800-\udfff]|'')*')
    | (?P<quoted>"(?:[^"\0]|"")*"|`(?:[^`\0]|``)*`|\[[^]\0]*\])
    | (?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<word>[A-Za-z_\x80-\ud7ff\ue000-\U0010ffff][A-Za-z0-9_$\x80-\ud7ff\ue000-\U0010ffff]*)
    | (?P<open>\()
    | (?P<close>\))
    | (?P<comparison><=|>=|<>|!=|==|=|<(?!<)|>(?!>))
    | (?P<other>->>?|\|\||<<|>>|[-+*/%&|~,.])
    """,
    re.VERBOSE,
)
_WORDS: Final = frozenset(
    (
        *("AND", "AS", "BETWEEN", "CASE", "CAST", "COLLATE", "DISTINCT", "ELSE", "END", "ESCAPE", "EXISTS", "FALSE"),
        *("FROM", "GLOB", "IN", "IS", "ISNULL", "LIKE", "MATCH", "NOT", "NOTNULL", "NULL", "OR", "REGEXP", "SELECT"),
        *("THEN", "TRUE", "VALUES", "WHEN", "WITH"),
    )
)
"""Words of SQL that are no columns, unless they are quoted."""
_QUERIES: Final = frozenset(("SELECT", "VALUES", "WITH"))
_HIDDEN: Final = frozenset(("rowid", "oid", "_rowid_"))
"""Columns that SQLite has in every table."""
_LONG: Final = 12
"""So many columns are told to who names one that is not there."""
_SPECIMEN: Final = {"TEXT": "'text'", "INTEGER": "7", "REAL": "2.5", "BOOLEAN": "1"}
"""Values of an entry that any column can have, to see what an expression makes of them."""


def rows_where(
    text: str,
    table: EntryTable,
    columns: Sequence[str],
    conditions: Sequence[str],
    parameters: Sequence[Value],
    order: str,
) -> Rows:
    """:meth:`EntryTable.rows` of what fulfils the user's condition, too. Raises TraceError for what is none."""
    import sqlite3

    sql = f"({_translated(text, table.columns)})"
    try:
        rows = table.rows(columns, [*conditions, sql], parameters, order, foreign=True)
    except sqlite3.Error as error:
        if str(error) == "interrupted":
            raise KeyboardInterrupt from None
        raise _not_taken(text, error, table.columns) from None
    if not _is_condition(sql, table):
        raise TraceError(f"--where: {text!r:.60} is not a condition: write for example 'uplink_mean_bit_s > 20e6'")
    return rows


def _is_condition(sql: str, table: EntryTable) -> bool:
    """Whether an expression is true, false or unknown of an entry with a value in each column."""
    import sqlite3

    specimen = ", ".join(f"{_SPECIMEN[column.kind]} AS {column.sql}" for column in table.columns.values())
    try:
        [(value,)] = table.asked(f"SELECT {sql} FROM (SELECT {specimen})")
    except sqlite3.Error:
        return True  # it can be one of other values
    return value in (None, 0, 1) and not isinstance(value, float)


def _not_taken(text: str, error: Exception, columns: Mapping[str, Column]) -> TraceError:
    """What to say of a condition that SQLite did not take."""
    said = str(error)
    found = re.fullmatch("no such column: (.*)", said, re.DOTALL)
    if found:
        return TraceError(f"--where: {no_column(found[1], columns)}")
    names = {f'"{column.sql}"': f'"{name}"' for name, column in columns.items()}
    named = re.sub(r'""\d+""', lambda place: names.get(place[0], place[0]), said)
    return _cannot_be_read(text, "".join(letter if letter.isprintable() else "?" for letter in named))


def no_column(name: str, columns: Collection[str]) -> str:
    """What to say of a column that is not there."""
    from cellbed.archive.near_names import near_names, question

    near = question(near_names(name, sorted(columns))) or f"write one of {', '.join(list(columns)[:_LONG])}, …"
    return f"unknown column {name!r:.60}: {near} `cellbed traces ls --json` lists all"


def _translated(text: str, columns: Mapping[str, Column]) -> str:
    """The same with the names that columns have in the database, if it is one expression by its brackets."""
    tokens = _tokens(text)
    depth = 0
    for kind, _ in tokens:
        depth += (kind == "open") - (kind == "close")
        if depth < 0:
            raise _cannot_be_read(text, "unbalanced closing bracket")
    if depth:
        raise _cannot_be_read(text, "unbalanced opening bracket")
    named = [_column(tokens, place, columns) for place in range(len(tokens))]
    for left, place, right in zip(range(len(tokens)), range(1, len(tokens)), range(2, len(tokens)), strict=False):
        if tokens[place][0] == "comparison":
            for one, other in ((left, right), (right, left)):
                column = named[one]
                # SQLite would compare them letter by letter, "10" below "9".
                if column is not None and column.kind == "TEXT" and tokens[other][0] == "number":
                    name, number = tokens[one][1], tokens[other][1]
                    raise TraceError(f"--where: {name:.60} is text: write '{number:.60}' in quotes")
    return " ".join(token if column is None else column.sql for (_, token), column in zip(tokens, named, strict=True))


def _tokens(text: str) -> list[tuple[str, str]]:
    """Kinds of tokens, and these."""
    found = []
    place = 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None or token.lastgroup is None:
            raise _cannot_be_read(text, f"{text[place]!r} begins nothing")
        if token.lastgroup == "comment":
            raise _cannot_be_read(text, f"{token[0]!r} begins a comment")
        if token.lastgroup == "word" and token[0].upper() in _QUERIES:
            raise _cannot_be_read(text, f"a query, {token[0].upper()}, is not allowed")
        if token.lastgroup != "space":
            found.append((token.lastgroup, token[0]))
        place = token.end()
    return found


def _column(tokens: list[tuple[str, str]], place: int, columns: Mapping[str, Column]) -> Column | None:
    """The column that a token names; None if it is something else."""
    kind, token = tokens[place]
    if kind == "quoted":
        mark = token[-1]
        name = _known(token[1:-1] if mark == "]" else token[1:-1].replace(mark * 2, mark), columns)
        if name is None:
            raise TraceError(f"--where: {no_column(token[1:-1], columns)} Write text in single quotes.")
        return columns[name]
    before = tokens[place - 1][1].upper() if place else ""
    after = tokens[place + 1][0] if place + 1 < len(tokens) else ""
    if kind != "word" or token.upper() in _WORDS or after == "open" or before in ("AS", "COLLATE"):
        return None
    name = _known(token, columns)
    if name is None and token.lower() in _HIDDEN:
        raise TraceError(f"--where: {no_column(token, columns)}")
    return None if name is None else columns[name]


def _known(name: str, columns: Mapping[str, Column]) -> str | None:
    """The column of that name, or of no other than its letters' case."""
    if name in columns:
        return name
    alike = [each for each in columns if each.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def _cannot_be_read(text: str, reason: str) -> TraceError:
    return TraceError(
        f"--where: {text!r:.60} cannot be read ({reason}): "
        "write a condition in SQL, such as \"uplink_mean_bit_s > 20e6 AND mobility = 'driving'\""
    )
