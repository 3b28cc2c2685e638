"""Faults of single fields in files of others: every leaf, key, line and number of a good file, one at a time."""

import json
import random
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
Path = tuple[str | int, ...]

TYPES: tuple[Any, ...] = (None, True, "", "x", "\x1b[2J\u202e" + "y" * 3000, 0, [], [None], {}, {"x": 1})
"""A value of each type of JSON."""
NUMBERS: tuple[Any, ...] = (-1, -1.5, 0.5, 10**30, 1e308, float("nan"), float("inf"))
DIGITS = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?")
IN_TEXT = (b"-1", b"-0.5", b"1e999", b"9" * 30, b"nan", b"inf", b"", b"x", b"0.25")


def leaves(value: Any, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the place and value of each member and item of a JSON value, inner and outer ones."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*at, key), each
        yield from leaves(each, (*at, key))


def changed(value: Any, at: Path, new: Any = ...) -> Any:
    """Return a copy of a JSON value with another value at a place, or without the one there."""
    made = json.loads(json.dumps(value))
    inner = made
    for key in at[:-1]:
        inner = inner[key]
    if new is ...:
        del inner[at[-1]]
    else:
        inner[at[-1]] = new
    return made


def json_faults(value: Any) -> Iterator[tuple[Path, Any]]:
    """Yield the place of each fault and the value with it: other types and numbers, removed keys, doubled items."""
    for at, leaf in leaves(value):
        is_number = isinstance(leaf, int | float) and not isinstance(leaf, bool)
        for new in (*TYPES, *(NUMBERS if is_number else ())):
            yield at, changed(value, at, new)
        yield at, changed(value, at)
        if isinstance(leaf, list) and leaf:
            yield at, changed(value, at, [*leaf, leaf[-1]])


def line_faults(content: bytes, only: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield the number of each line with a fault, and the text: lines dropped, doubled and cut, numbers replaced.

    only: the one line with faults.
    """
    lines = content.splitlines(keepends=True)
    for number in range(len(lines)) if only is None else [only]:
        line = lines[number]
        others = [b"", line + line, line[: len(line) // 2] + b"\n", line[: len(line) // 3] + b"\n", b"\xff\xfe\x00\n"]
        for found in DIGITS.finditer(line):
            others += [line[: found.start()] + new + line[found.end() :] for new in IN_TEXT]
        for other in others:
            yield number, b"".join([*lines[:number], other, *lines[number + 1 :]])


def word_faults(content: bytes, starts: Iterable[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    """Yield faults of binary records: each word of 32 bits of each head replaced, records cut, dropped and doubled.

    starts: the first byte of each record and the length of its head, in order.
    """
    records = list(starts)
    for number, (at, head) in enumerate(records):
        end = records[number + 1][0] if number + 1 < len(records) else len(content)
        for word in range(at, at + head, 4):
            for new in (bytes(4), b"\xff" * 4, b"\x01\0\0\0", b"\0\0\0\x7f"):
                yield number, content[:word] + new + content[word + 4 :]
        record = content[at:end]
        for other in (b"", record * 2, record[: len(record) // 2]):
            yield number, content[:at] + other + content[end:]


def sample(faults: Iterable[T], count: int | None, seed: str) -> list[T]:
    """Return so many of the faults, the same for a seed; all without a count."""
    found = list(faults)
    return found if count is None or count >= len(found) else random.Random(seed).sample(found, count)
