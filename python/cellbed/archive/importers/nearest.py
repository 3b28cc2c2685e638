"""The format nearest to an unknown file, and the first line that differs."""

from __future__ import annotations

import csv
import re
from collections import Counter

_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_OTHERS = {
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF document",
    b"\x7fELF": "a program",
    b"SQLite format 3": "an SQLite database",
    b"\x89HDF": "an HDF5 file",
    b"<!DOCTYPE": "a web page",
    b"<html": "a web page",
}
_BOM = b"\xef\xbb\xbf"
_LINES = 200
_MOST = 0.5


def nearest(head: bytes) -> str | None:
    """The nearest format of a file that begins so, in words; null if there is none."""
    for magic, what in _OTHERS.items():
        if head.startswith(magic):
            return f"it is {what}, not a recording"
    if b"\0" in head:
        return "it is a binary file of an unknown format (not pcap, pcapng or Parquet)"
    text = head.removeprefix(_BOM).decode("utf-8", errors="replace").splitlines()[:_LINES]
    lines = [(number, line.strip()) for number, line in enumerate(text, 1) if line.strip()]
    lines = [(number, line) for number, line in lines if not line.startswith("#")]
    if not lines:
        return "it contains only comments and blank lines"
    return _trace(lines, marked=head.startswith(_BOM)) or _table(lines)


def _trace(lines: list[tuple[int, str]], *, marked: bool) -> str | None:
    numbers = sum(_NUMBER.fullmatch(line) is not None and "," not in line for _, line in lines)
    if numbers < _MOST * len(lines):
        return None
    near = "it is nearest to a trace of Mahimahi, a whole number of milliseconds a line"
    for number, line in lines:
        if not (line.isascii() and line.isdigit()):
            return f"{near}, but line {number} is '{line:.40}'"
    if marked:
        return f"{near}, but line 1 begins with a byte order mark (U+FEFF): save it without one"
    return None


def _table(lines: list[tuple[int, str]]) -> str | None:
    found = [(name, [(number, _cells(line, each)) for number, line in lines]) for each, name in _DELIMITERS.items()]
    name, rows = max(found, key=lambda table: sum(len(cells) > 1 for _, cells in table[1]))
    if sum(len(cells) > 1 for _, cells in rows) <= _MOST * len(rows):
        return None
    near = f"it is nearest to a table with {name} between cells"
    if len(rows) == 1:
        return f"{near}, but has no rows below line {rows[0][0]}"
    widths = Counter(len(cells) for _, cells in rows[1:])
    usual = max(widths, key=lambda width: (widths[width], width == len(rows[0][1])))
    for number, cells in rows:
        if len(cells) != usual:
            return f"{near}, but line {number} has {_counted(len(cells))} where most have {usual}"
    for number, cells in rows[1:]:
        if not any(_NUMBER.fullmatch(cell) for cell in cells):
            return f"{near}, but line {number} has no number in it"
    return None


def _counted(cells: int) -> str:
    return "1 cell" if cells == 1 else f"{cells} cells"


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:
        return []
