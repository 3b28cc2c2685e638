"""The interface of an import format: options, metadata in files, and files of one recording."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

from cellbed.archive.adding import is_date
from cellbed.archive.entry import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.series import Content, Part, Series
from cellbed.support.ways import WayOrBoth
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
    """Set the start of the recording, ns since 1970, unless it is known or impossible."""
    if begun_ns is not None and _EARLIEST_NS <= begun_ns <= _LATEST_NS:
        moment = _EPOCH + timedelta(seconds=begun_ns // 10**9)
        _date(draft, moment.isoformat().replace("+00:00", "Z"))


def describe_by_comments(draft: Draft, path: Path) -> None:
    """Import ``# started:`` and ``# place:`` of a table's first lines."""
    lines = map(_LINE.fullmatch, _head(path).splitlines())
    asked = {found[1]: found[2].strip() for found in lines if found}
    if is_date(asked.get("started", "")):
        _date(draft, asked["started"])
    if "place" in asked:
        _say(draft, place=asked["place"])


def describe_by_ping(draft: Draft, path: Path) -> None:
    """Import the host from the first line of ping's output."""
    found = _PING.search(_head(path))
    if found:
        host, address = found.groups()
        _say(draft, method=f"ping of {host}" if host == address else f"ping of {host} ({address})")


def _date(draft: Draft, date: str) -> None:
    if draft.about.date is None:
        if draft.about.begins is not None:
            # A given time of day has precedence.
            date = date[: len("2021-04-30")]
        _say(draft, date=date)
        draft.notes.append(f"started {date} according to the file; correct with --date")


def _say(draft: Draft, **values: str) -> None:
    new = {name: value for name, value in values.items() if getattr(draft.about, name) is None}
    draft.about = draft.about.model_copy(update=new)


def _head(path: Path) -> str:
    with inputs.open_file(path) as file:
        return file.read(_HEAD).removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class Options:
    """Information that the file lacks; null if not given. Each importer uses its options and refuses the others.

    direction: which direction a file is of, or which of its directions to keep.
    device: the mobile device: in a capture its address, in a report of iperf3 ``client`` or ``server``.
    flow: words that the flow of a capture must match: a protocol, an address, ``:PORT``, ``ADDRESS:PORT``. The largest
        is taken. all_flows: all of them together. each_packet: an opportunity for each packet instead of for each
        1500 bytes.
    interval_ns: between the probes of a ping without stamps.
    columns: by meaning (``time``, ``uplink``, ``downlink``, ``round-trip``), the column of a table, ``NAME`` or
        ``NAME:UNIT``. missing: what an empty cell of a rate is: ``zero``, or ``hold`` for the one before.
    duration_ns: how long a table lasts.
    idle_ns: F of uplink and downlink of CellReplay.
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

    def asked(self) -> dict[str, Any]:
        """Return the given options."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in found.items() if value not in (None, False, {})}

    def part(self) -> Part | None:
        """Return the given single direction."""
        return None if self.direction == "both" else self.direction

    def towards(self, part: Part | None) -> Options:
        """Return the same, for a file whose name contains its direction, unless it is given."""
        if self.direction is not None or part is None or part == "round-trip":
            return self
        return replace(self, direction=part)


Progress = Callable[[int], None]
"""Called every few MiB with the number of bytes read since the last call."""

_DIRECTIONS: dict[Part, re.Pattern[str]] = {
    "uplink": re.compile(r"(^|[^a-z])(up|uplink|upload|ul)([^a-z]|$)", re.IGNORECASE),
    "downlink": re.compile(r"(^|[^a-z])(down|downlink|download|dl)([^a-z]|$)", re.IGNORECASE),
}


class Format(Protocol):
    """A file format of recordings."""

    @property
    def name(self) -> str:
        """Its name after ``--as``."""

    @property
    def title(self) -> str:
        """Its description, with an article."""

    @property
    def options(self) -> frozenset[str]:
        """Names of the options that concern it."""

    @property
    def passes(self) -> int:
        """Number of passes over a file."""

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """Return the reason to assume this format, or None. head: first bytes of a single file, empty for several."""

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, progress: Progress | None) -> None:
        """Write the files' series into the draft. Raises TraceError."""


def direction_of(path: Path) -> Part | None:
    """Return the direction in a file's name: ``walk.up``, ``downlink.csv``, ``ul_1.pcap``."""
    named = [part for part, words in _DIRECTIONS.items() if words.search(path.name)]
    return named[0] if len(named) == 1 else None


@contextmanager
def report_errors(path: Path, progress: Progress | None) -> Iterator[None]:
    """Raise TraceError for a file that cannot be read, and report one that was as progress."""
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
        draft.parts[part] = Series(Content.OPPORTUNITIES, draft.folder / f"{part}.parquet", written["duration_ns"])
    draft.notes.extend(done["notes"])
    set_start(draft, done["begun_ns"])


_READING = ".reading"


@contextmanager
def scratch(draft: Draft) -> Iterator[Draft]:
    """A temporary draft beside it on the same file system."""
    folder = draft.folder / _READING
    try:
        folder.mkdir()
    except OSError as error:
        raise TraceError(f"{folder}: cannot be made: {error.strerror}") from None
    try:
        yield replace(draft, folder=folder, parts={}, history=[], notes=[])
    finally:
        remove_tree(folder, ignore_errors=True)


def move_contents(made: Draft, draft: Draft) -> None:
    """Move the contents of a draft to another one."""
    moved: dict[Part, Series] = {}
    for part, series in made.parts.items():
        if part in draft.parts:
            raise TraceError(f"the draft already has a series of the {part}")
        moved[part] = replace(series, path=draft.folder / series.path.name)
    for path in made.folder.iterdir():
        path.rename(draft.folder / path.name)
    draft.parts.update(moved)
    draft.about = made.about
    draft.notes.extend(made.notes)
    draft.recording = made.recording or draft.recording


def each_file(paths: Sequence[Path], draft: Draft, options: Options) -> Iterator[tuple[Path, Draft, Options]]:
    """Files of one direction each, in order: each with a separate draft that becomes part of `draft`."""
    if len(paths) == 1:
        yield paths[0], draft, options.towards(direction_of(paths[0]))
        return
    for path in paths:
        towards = replace(options, direction=None).towards(direction_of(path))
        with scratch(draft) as own:
            yield path, own, towards
            for part in own.parts:
                if part in draft.parts:
                    raise TraceError(f"{path}: contains the {part}, as another of the files does: add them one by one")
            own.notes[:] = [f"{path.name}: {note}" for note in own.notes]
            move_contents(own, draft)
