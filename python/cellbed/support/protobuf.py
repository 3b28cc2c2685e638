"""Protocol Buffers messages, read field by field without their schema."""

from __future__ import annotations

from collections.abc import Iterator


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field: bytes for fields with a length, else a whole number.

    Raises ValueError at a malformed field, after the fields before it.
    """
    at = 0
    while at < len(message):
        key, at = _integer(message, at)
        if key & 7 == 0:
            value, at = _integer(message, at)
            yield key >> 3, value
            continue
        length, at = _integer(message, at) if key & 7 == 2 else ({1: 8, 5: 4}.get(key & 7, len(message) + 1), at)
        content, at = message[at : at + length], at + length
        if at > len(message):
            raise ValueError("malformed field")
        yield key >> 3, content if key & 7 == 2 else int.from_bytes(content, "little")


def content(value: int | bytes) -> bytes:
    """Return the value of a field with a length. Raises ValueError for another field."""
    if isinstance(value, int):
        raise ValueError("a number in place of a text")
    return value


def _integer(message: bytes, at: int) -> tuple[int, int]:
    """Return the integer at an offset, and the offset behind it. Raises ValueError."""
    value = 0
    for shift, byte in enumerate(message[at : at + 10]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, at + shift + 1
    raise ValueError("malformed integer")
