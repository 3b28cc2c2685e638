"""Parts of messages."""

from __future__ import annotations

from cellbed.support.errors import printable


def in_quotes(text: str, most: int = 40) -> str:
    """Return the first characters of a text in quotes, control characters escaped."""
    return f"`{printable(text[:most], kept='')}{'…' if len(text) > most else ''}`"


def count_of(number: int, one: str, many: str) -> str:
    """Return a number of things, with the right form of the noun."""
    return f"{number} {one if number == 1 else many}"


def seconds(ns: int, places: int = 3) -> str:
    """Return a time in seconds with as many decimals as it needs, up to a number of places."""
    return f"{ns / 1e9:.{places}f}".rstrip("0").rstrip(".") + " s"
