"""The interface of an import format: options, metadata in files, and drafts of files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from cellbed.archive.adding import is_date
from cellbed.archive.entry import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.series import Content, Part, Series
from cellbed.support.parquet_stream import write_frames
from cellbed.support.ways import Way, WayOrBoth
from cellbed_node import inputs
from cellbed_node.temporary import remove_tree

_HEAD = 1 << 14
_LINE = re.compile(r"#\s*(started|place)\s*:\s*(\S.{0,199})")
_PING = re.compile(r"^PING (\S{1,200}) ?\((?:\S{1,100}? \()?([0-9A-Fa-f.:]{2,45})\)", re.MULTILINE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST_NS = 946_684_800 * 10**9
"""2000-01-01: earlier stamps come from an unset clock."""
_LATEST_NS = (1 << 63) - 1


def set_start(draft: Draft, begun_ns: int | None) -> None:
    """Set the start of the recording, ns since 1970, unless a start is known or `begun_ns` is impossible."""
    if begun_ns is not None and _EARLIEST_NS <= begun_ns <= _LATEST_NS:
        moment = _EPOCH + timedelta(seconds=begun_ns // 10**9)
        _date(draft, moment.isoformat().replace("+00:00", "Z"))


def describe_by_comments(draft: Draft, path: Path) -> None:
    """Import the comments ``# started:`` and ``# place:`` of a table's first lines."""
    lines = map(_LINE.fullmatch, _head(path).splitlines())
    asked = {found[1]: found[2].strip() for found in lines if found}
    if is_date(asked.get("started", "")):
        _date(draft, asked["started"])
    if "place" in asked:
        add_metadata(draft, place=asked["place"])


def describe_by_ping(draft: Draft, path: Path) -> None:
    """Import the host from the first line of ping's output."""
    found = _PING.search(_head(path))
    if found:
        host, address = found.groups()
        add_metadata(draft, method=f"ping of {host}" if host == address else f"ping of {host} ({address})")


def _date(draft: Draft, date: str) -> None:
    if draft.about.date is None:
        add_metadata(draft, date=date)
        draft.notes.append(f"started {date} according to the file; correct with --date")


def add_metadata(draft: Draft, **values: str | None) -> None:
    """Set the values of the entry's origin that the user has not given."""
    new = {name: value for name, value in values.items() if getattr(draft.about, name) is None}
    draft.about = draft.about.model_copy(update=new)


def _head(path: Path) -> str:
    with inputs.open_file(path) as file:
        return file.read(_HEAD).removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")


_DIRECTIONS: dict[Way, re.Pattern[str]] = {
    "uplink": re.compile(r"(^|[^a-z])(up|uplink|upload|ul)([^a-z]|$)", re.IGNORECASE),
    "downlink": re.compile(r"(^|[^a-z])(down|downlink|download|dl)([^a-z]|$)", re.IGNORECASE),
}


@dataclass(frozen=True, slots=True)
class Options:
    """Information that the file lacks; None if not given. Each importer uses its options and refuses the others.

    direction: direction of a file, or the only direction to keep.
    device: the mobile device: an address in a capture, ``client`` or ``server`` in a report of iperf3, an RNTI of
        NR-Scope.
    flow: words that the flow of a capture must match: a protocol, an address, ``:PORT``, ``ADDRESS:PORT``. The largest
        matching flow is taken. all_flows: take all matching flows together. each_packet: an opportunity for each packet
        instead of for each 1500 bytes.
    interval_ns: interval between the probes of a ping without stamps.
    columns: the column of a table, ``NAME`` or ``NAME:UNIT``, by meaning (``time``, ``uplink``, ``downlink``,
        ``round-trip``). missing: meaning of an empty cell of a rate: ``zero``, or ``hold`` for the previous rate.
    duration_ns: duration of a table.
    idle_ns: CellReplay's F of uplink and downlink.
    named: direction in the name of the file.
    """

    direction: WayOrBoth | None = None
    device: str | None = None
    flow: str | None = None
    all_flows: bool = False
    each_packet: bool = False
    interval_ns: int | None = None
    columns: dict[str, str] = field(default_factory=dict)
    missing: Literal["zero", "hold"] | None = None
    duration_ns: int | None = None
    idle_ns: tuple[int, int] | None = None
    named: Way | None = None

    def given(self) -> dict[str, Any]:
        """Return the given options."""
        found = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "named"}
        return {name: value for name, value in found.items() if value not in (None, False, {})}

    def part(self) -> Way | None:
        """Return the given single direction."""
        return None if self.direction == "both" else self.direction

    def for_file(self, path: Path, is_alone: bool) -> Options:
        """Return the options for one file. Of several files, each has the direction in its name unless one is given."""
        named = [part for part, words in _DIRECTIONS.items() if words.search(path.name)]
        part = named[0] if len(named) == 1 else None
        return replace(self, named=part, direction=self.direction if is_alone else self.part() or part)


Progress = Callable[[int], None]
"""Called every few MiB with the number of bytes read since the last call."""


@dataclass(frozen=True)
class Format:
    """A file format of recordings.

    name: value of ``--as``. title: name with an article. evidence: returns the reason to assume this format, or None,
    from the path of a file or folder and the first bytes of a file. read: writes the series of a file or folder into
    the draft, or raises TraceError. options: names of the format's options. passes: number of passes over a file.
    """

    name: str
    title: str
    evidence: Callable[[Path, bytes], str | None]
    read: Callable[[Path, Draft, Options, Progress | None], None]
    options: frozenset[str] = frozenset()
    passes: int = 1


@contextmanager
def report_errors(path: Path, progress: Progress | None) -> Iterator[None]:
    """Raise TraceError if a file cannot be read; else report the file's size as progress."""
    try:
        yield
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    if progress is not None:
        progress(path.stat().st_size)


def read_by_core(path: Path, draft: Draft, request: dict[str, Any], progress: Progress | None) -> None:
    """Read a file into the draft in Rust. Raises TraceError."""
    from cellbed._core import TraceFormatError, import_series

    try:
        done = json.loads(import_series(inputs.check(path), draft.folder, json.dumps(request), progress))
    except TraceFormatError as error:
        raise TraceError(str(error)) from None
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None
    for written in done["parts"]:
        part: Part = written["part"]
        series = draft.folder / f"{part}.parquet"
        try:
            _convert_times(draft.folder / f"{part}.times", series)
        except (OSError, pl.exceptions.PolarsError) as error:
            reason = str(error).splitlines()[0]
            raise TraceError(f"{path}: the series could not be written: {reason}") from None
        draft.parts[part] = Series(Content.OPPORTUNITIES, series, written["duration_ns"])
    draft.notes.extend(done["notes"])
    set_start(draft, done["begun_ns"])


def _convert_times(times: Path, series: Path) -> None:
    """Write a file of times, little-endian numbers of 64 bits, as a series in Parquet, and remove the file."""
    rows = np.memmap(inputs.check(times), "<i8", "r")
    chunks = (pl.DataFrame({"at_ns": rows[first : first + _CHUNK]}) for first in range(0, len(rows), _CHUNK))
    write_frames(chunks, {"at_ns": pl.Int64}, series, "zstd")
    times.unlink()


_CHUNK = 1 << 18
"""Number of times in memory at once."""

_READING = ".reading"


@contextmanager
def scratch(draft: Draft) -> Iterator[Draft]:
    """Yield a temporary draft in a folder inside the draft's, on the same file system."""
    folder = draft.folder / _READING
    try:
        folder.mkdir()
    except OSError as error:
        raise TraceError(f"{folder}: cannot create this folder: {error.strerror}") from None
    try:
        yield replace(draft, folder=folder, parts={}, tables=[], history=[], notes=[])
    finally:
        remove_tree(folder, ignore_errors=True)


def move_contents(made: Draft, draft: Draft, source: Path) -> None:
    """Move the contents of `made`, which were read from the file `source`, to `draft`."""
    if both := next((part for part in made.parts if part in draft.parts), None):
        raise TraceError(f"{source}: contains the {both}, as another of the files does: add them one by one")
    for path in made.folder.iterdir():
        path.rename(draft.folder / path.name)
    moved = {part: replace(series, path=draft.folder / series.path.name) for part, series in made.parts.items()}
    draft.parts.update(moved)
    draft.about = made.about
    draft.notes.extend(made.notes)
    draft.recording = made.recording or draft.recording
    draft.tables.extend(made.tables)
