"""Reports of iperf3 as JSON (``--json``, or a line for each event, ``--json-stream``): rates of each direction.

Arrivals show what a link carried, sending shows the load. So a direction is taken from its receiver, which for an
upload is in the report only with ``--get-server-output``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cellbed.archive.draft import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers.documents import TRUNCATED, Document, checked, document, read_document
from cellbed.archive.importers.header import dated
from cellbed.archive.importers.wording import in_quotes
from cellbed.archive.importers.written import write_series
from cellbed.archive.series import Part
from cellbed.support import inputs

End = Literal["client", "server"]

_LONGEST_EVENT = 1 << 24
"""Bytes: enough for a thousand streams."""
_LONGEST_QUOTE = 200
_SHORTEST_NS = 1_000_000
"""Shorter intervals are remainders at the end of a test."""
_FARTHEST_S = 9e9


class _Half(Document):
    """The traffic that was sent or received in an interval, seconds since the start of the test."""

    start: float = 0.0
    end: float = 0.0
    bytes: float = 0.0
    bits_per_second: float | None = None
    omitted: bool = False
    sender: bool | None = None

    def bit_s(self) -> float:
        if self.bits_per_second is not None:
            return self.bits_per_second
        return self.bytes * 8 / (self.end - self.start) if self.end != self.start else math.inf


class _Interval(Document):
    streams: list[_Half] = Field(default_factory=list)
    sum: _Half | None = None
    sum_bidir_reverse: _Half | None = None


class _TestStart(Document):
    protocol: str | None = None
    num_streams: float = 0.0
    reverse: float = 0.0


class _Start(Document):
    accepted_connection: Any = None
    test_start: _TestStart = _TestStart()
    timestamp: Any = None

    def author(self) -> End:
        return "client" if self.accepted_connection is None else "server"

    def stamp_ns(self) -> int | None:
        stamp = self.timestamp.get("timesecs") if isinstance(self.timestamp, dict) else None
        return stamp * 10**9 if type(stamp) is int else None


class _Report(Document):
    start: _Start = _Start()
    intervals: list[_Interval] = Field(default_factory=list)
    server_output_json: _Report | None = None
    error: str | None = None


class _Event(Document):
    event: str
    data: Any = None


@dataclass
class _Test:
    """A test as one or both of its ends reported it. sides: intervals by their author, in order. cut: whether the
    report is truncated.
    """

    start: _Start = field(default_factory=_Start)
    sides: list[tuple[End, _Start, Sequence[_Interval]]] = field(default_factory=list)
    error: str | None = None
    cut: bool = False

    def halves(self, author: End, sends: bool) -> list[tuple[int, list[_Half]]]:
        """Return what the author sent, or received: an interval's number and its halves, the sum or each stream's."""
        numbered = [(start, each) for by, start, intervals in self.sides if by == author for each in intervals]
        halves = ((number, _halves(each, sends, author, start)) for number, (start, each) in enumerate(numbered, 1))
        return [(number, found) for number, found in halves if found]


def read(path: Path, device: End, only: Part | None, draft: Draft) -> None:
    """Write the rates of each direction that was tested, or only of one, into the draft. Raises TraceError."""
    test = _events(path) if _is_stream(path) else _whole(path)
    chosen: dict[Part, tuple[End, bool, list[tuple[int, list[_Half]]]]] = {}
    ends: tuple[End, End] = ("client", "server")
    for part in ("uplink", "downlink"):
        # What an end received is preferred to what the other one sent.
        for author, sends in ((author, sends) for sends in (False, True) for author in ends):
            is_of_part = (sends == (author == device)) == (part == "uplink")
            if is_of_part and part not in chosen and (halves := test.halves(author, sends)):
                chosen[part] = author, sends, halves
    chosen = {part: found for part, found in chosen.items() if only in (None, part)}
    if not chosen:
        raise TraceError(f"{path}: {_nothing(test, only)}")
    draft.notes.extend(_notes(test, device))
    first_ns = [_write(path, part, *found, draft) for part, found in chosen.items()]
    stamp_ns = test.start.stamp_ns()
    dated(draft, None if stamp_ns is None else stamp_ns + min(first_ns))


def _is_stream(path: Path) -> bool:
    with inputs.opened(path) as file:
        return b"".join(file.read(256).split()).startswith(b'{"event"')


def _whole(path: Path) -> _Test:
    report = read_document(path, _Report, ": record with --json-stream, which is read line by line")
    test = _Test(report.start, [(report.start.author(), report.start, report.intervals)], report.error)
    if (server := report.server_output_json) is not None:
        test.sides.append(("server", server.start, server.intervals))
    return test


def _events(path: Path) -> _Test:
    test = _Test()
    with inputs.opened(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_EVENT), b""), 1):
            try:
                _take(test, line, f"{path}: line {number}")
            except TraceError as error:
                if line.endswith(b"\n") or not str(error).endswith(TRUNCATED):
                    raise
                test.cut = True
    return test


def _take(test: _Test, line: bytes, place: str) -> None:
    if not line.strip():
        return
    event = document(line, _Event, place)
    match event.event:
        case "start":
            test.start = checked(event.data, _Start, place)
        case "interval":
            test.sides.append((test.start.author(), test.start, [checked(event.data, _Interval, place)]))
        case "error":
            test.error = event.data if isinstance(event.data, str) else ""
        case "server_output_json":
            server = checked(event.data, _Report, place)
            test.sides.append(("server", server.start, server.intervals))


def _halves(interval: _Interval, sends: bool, author: End, start: _Start) -> list[_Half]:
    # Before version 3.7 an interval does not state the sender; then all traffic had one direction.
    usual = (author == "client") != (start.test_start.reverse != 0)
    sums = [half for half in (interval.sum, interval.sum_bidir_reverse) if half is not None]
    found = [half for half in sums or interval.streams if (usual if half.sender is None else half.sender) == sends]
    return found[:1] if sums else found


def _write(
    path: Path, part: Part, author: End, sends: bool, intervals: list[tuple[int, list[_Half]]], draft: Draft
) -> int:
    """Write the rates of one direction. Return the start of its first interval, ns since the start of the test."""
    kept = [(number, halves) for number, halves in intervals if not halves[0].omitted]
    zero_ns, end_ns = None, 0
    numbers, times, rates = [], [], []
    for number, halves in kept:
        begins, ends = min(half.start for half in halves), max(half.end for half in halves)
        if not 0 <= begins <= ends < _FARTHEST_S:
            raise TraceError(f"{path}: interval {number}: impossible interval from {begins:.12g} s to {ends:.12g} s")
        from_ns, to_ns = round(begins * 1e9), round(ends * 1e9)
        if to_ns - from_ns < _SHORTEST_NS:
            continue
        zero_ns = from_ns if zero_ns is None else zero_ns
        rate = halves[0].bit_s()
        for half in halves[1:]:
            rate += half.bit_s()
        numbers.append(number)
        times.append(from_ns - zero_ns)
        rates.append(rate)
        end_ns = max(end_ns, to_ns - zero_ns)
    write_series(draft, part, times, rates, end_ns, path, lambda row: f"interval {numbers[row]}")
    if sends:
        remedies = {"client": "use --get-server-output to record what arrived",
                    "server": "the client's report contains what arrived"}  # fmt: skip
        draft.notes.append(f"the {part} contains what was sent, not what arrived: {remedies[author]}")
    if omitted := len(intervals) - len(kept):
        draft.notes.append(f"{omitted} intervals of the {part} were skipped because the test omitted them (-O)")
    return zero_ns or 0


def _nothing(test: _Test, only: Part | None) -> str:
    if test.error is not None:
        reported = in_quotes(test.error, _LONGEST_QUOTE)
        return f"the test failed and has no intervals: iperf3 reports {reported}"
    if only is not None:
        return f"it has no intervals of the {only}"
    return "no intervals: expected a report of iperf3 --json of a test of at least one second"


def _notes(test: _Test, device: End) -> list[str]:
    about = test.start.test_start
    protocol = f" by {about.protocol}" if about.protocol in ("TCP", "UDP", "SCTP") else ""
    streams = f", the sum of {int(about.num_streams)} streams" if about.num_streams >= 2 else ""
    notes = [f"a test{protocol}{streams}; the {device} is assumed to be the device"]
    if test.error is not None:
        notes.append(f"iperf3 ended with an error: {in_quotes(test.error, _LONGEST_QUOTE)}")
    if test.cut:
        notes.append("the report is truncated: the intervals before the end were read")
    return notes
