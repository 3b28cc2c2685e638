"""Reports of iperf3 as JSON (``--json``, or a line for each event, ``--json-stream``): rates of each direction.

Received traffic shows the capacity of a link, sent traffic the load. So rates are taken from the receiver. For an
upload, the report contains the receiver only with ``--get-server-output``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from cellbed.archive.entry import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers.format import set_start
from cellbed.archive.importers.written import in_order, in_quotes, write_series
from cellbed.archive.series import Part
from cellbed_node import inputs
from cellbed_node.errors import LeftOut

End = Literal["client", "server"]

_LONGEST_EVENT = 1 << 24
"""Maximum size of an event, bytes: enough for a thousand streams."""
_LONGEST_QUOTE = 200
_SHORTEST_S = 1e-3
"""Minimum interval, s; shorter ones are remainders at the end of a test."""
_FARTHEST_S = 9e9
_MOST_STREAMS = 1000
_HEAD = 1 << 14
_FIRST_KEY = re.compile(rb'\{\s*"(\w+)"\s*:')
_OBJECT = re.compile(r"^[ \t\r]*\{", re.MULTILINE)
ESCAPE = re.compile(rb"\033\[[0-?]*[ -/]*[@-~]")
"""A terminal escape sequence."""
_NO_NUMBER = re.compile(rb'(":\s*)-?(?:nan|inf(?:inity)?)\b', re.IGNORECASE)


class _Document(BaseModel):
    """A JSON object; numbers are finite, and types are not converted."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True)


class _Half(_Document):
    """The traffic sent or received in an interval. start, end: seconds since the start of the test."""

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


class _Interval(_Document):
    streams: list[_Half] = Field(default_factory=list)
    sum: _Half | None = None
    sum_bidir_reverse: _Half | None = None


@dataclass
class _Test:
    """A test, reported by one or both ends.

    start: the report's table; sides: author, whether traffic is reversed, place and content of each interval;
    intervals, lines: malformed intervals, and lines outside the report; cut: place where the report is truncated or
    damaged.
    """

    start: dict[str, Any] = field(default_factory=dict)
    sides: list[tuple[End, bool, str, _Interval]] = field(default_factory=list)
    intervals: LeftOut = field(default_factory=LeftOut)
    lines: LeftOut = field(default_factory=LeftOut)
    error: str | None = None
    cut: str | None = None

    def add(self, report: dict[str, Any], author: End | None = None) -> None:
        """Add the intervals of a report, and of the server's report inside, if any."""
        self.start = self.start or _table(report.get("start"))
        if isinstance(report.get("error"), str):
            self.error = report["error"]
        intervals = report.get("intervals")
        for number, interval in enumerate(intervals if isinstance(intervals, list) else (), 1):
            self.add_interval(_table(report.get("start")), interval, f"interval {number}", author)
        if "server_output_json" in report:
            self.add(_table(report["server_output_json"]), "server")

    def add_interval(self, start: dict[str, Any], interval: Any, place: str, author: End | None = None) -> None:
        """Add an interval; note a malformed one as left out."""
        by: End = author or ("server" if "accepted_connection" in start else "client")
        reverse = _table(start.get("test_start")).get("reverse", 0) not in (0, None)
        try:
            self.sides.append((by, reverse, place, _Interval.model_validate(interval)))
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            where = f"malformed {'.'.join(map(str, fault['loc']))}".rstrip()
            self.intervals.add(place, f"{where}: {fault['msg']}, not {in_quotes(repr(fault['input']))}")

    def halves(self, author: End, sends: bool) -> list[tuple[str, list[_Half]]]:
        """Return the place of each interval, and what the author sent or received: the sum, or each stream."""
        halves = ((place, _halves(each, sends, by, reverse)) for by, reverse, place, each in self.sides if by == author)
        return [(place, found) for place, found in halves if found]


def read(path: Path, device: End, only: Part | None, draft: Draft) -> None:
    """Write the rates of each tested direction, or of `only` one, into the draft. Raises TraceError."""
    test = _events(path) if _is_stream(path) else _whole(path)
    chosen: dict[Part, tuple[End, bool, list[tuple[str, list[_Half]]]]] = {}
    ends: tuple[End, End] = ("client", "server")
    for part in ("uplink", "downlink"):
        # Received rates are preferred to sent rates.
        for author, sends in ((author, sends) for sends in (False, True) for author in ends):
            is_of_part = (sends == (author == device)) == (part == "uplink")
            if is_of_part and part not in chosen and (halves := test.halves(author, sends)):
                chosen[part] = author, sends, halves
    chosen = {part: found for part, found in chosen.items() if only in (None, part)}
    if not chosen:
        raise TraceError(f"{path}: {_explain_empty(test, only)}")
    draft.notes.extend(_notes(test, device))
    first_ns = [_write(path, part, *found, test.intervals, draft) for part, found in chosen.items()]
    stamp = _table(test.start.get("timestamp")).get("timesecs")
    if isinstance(stamp, int | float) and 0 <= stamp < _FARTHEST_S:
        set_start(draft, round(stamp * 10**9) + min(first_ns))
    elif stamp is not None:
        draft.notes.append(f"{in_quotes(str(stamp))} is not a time since 1970: the date is unknown: write --date")


def _is_stream(path: Path) -> bool:
    with inputs.open_file(path) as file:
        key = _FIRST_KEY.search(file.read(_HEAD))
    return key is not None and key[1] == b"event"


def _clean(content: bytes) -> bytes:
    """Return JSON without terminal escape sequences, and with null for NaN and infinity."""
    return _NO_NUMBER.sub(rb"\1null", ESCAPE.sub(b"", content))


def _whole(path: Path) -> _Test:
    try:
        content = inputs.content(path, inputs.share_of_memory() // 8)
    except OSError as error:
        remedy = "record with --json-stream, which is read line by line"
        raise TraceError(f"{path}: {error.strerror or error}: {remedy}") from None
    text, test, at, reports = _clean(content).decode("utf-8", "replace"), _Test(), 0, 0
    while (begin := _OBJECT.search(text, at)) is not None:
        _add_lines(test, text, at, begin.start())
        value, at = _value(path, text, begin.end() - 1, test)
        place = f"line {text.count(chr(10), 0, begin.end()) + 1}"
        if not {"start", "intervals", "error"} & value.keys():
            test.lines.add(place, "a document that is no report")
            continue
        reports += 1
        if reports > 1:
            raise TraceError(f"{path}: {place}: another report begins there: write each into a separate file")
        test.add(value)
    _add_lines(test, text, at, len(text))
    if not reports:
        raise TraceError(f"{path}: not JSON: no report of iperf3 --json begins in any line")
    return test


def _value(path: Path, text: str, at: int, test: _Test) -> tuple[dict[str, Any], int]:
    """Return the object at a place of a text, and the place after it. A truncated object is returned in part."""
    try:
        value, end = JSONDecoder().raw_decode(text, at)
        return value, end
    except RecursionError:
        raise TraceError(f"{path}: not JSON: nested too deeply") from None
    except JSONDecodeError as error:
        test.cut = f"line {error.lineno}"
    try:
        value = _table(from_json(text[at:], allow_partial=True))
    except ValueError as error:
        raise TraceError(f"{path}: {test.cut}: not JSON: {error}") from None
    if isinstance(value.get("intervals"), list):
        value["intervals"] = value["intervals"][:-1]  # the last interval may be truncated
    return value, len(text)


def _add_lines(test: _Test, text: str, begin: int, end: int) -> None:
    """Note lines outside the report as left out."""
    first = text.count("\n", 0, begin) + 1
    for number, line in enumerate(text[begin:end].split("\n"), first):
        if line.strip():
            test.lines.add(f"line {number}", in_quotes(line.strip(), _LONGEST_QUOTE))


def _events(path: Path) -> _Test:
    test = _Test()
    with inputs.open_file(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_EVENT), b""), 1):
            text, place = _clean(line).strip(), f"line {number}"
            try:
                event = inputs.json_value(text) if text else {"event": None}
            except ValueError:
                event = None
            if isinstance(event, dict) and "event" in event:
                _take(test, event["event"], event.get("data"), f"{path}: {place}", place)
            elif isinstance(event, dict) and "intervals" in event:
                pass  # the whole report again, by --json-stream-full-output
            elif event is None and test.start and text.startswith(b"{") and b'"event"' not in text[:20]:
                break  # the whole report again, in several lines
            elif line.endswith(b"\n") or event is not None:
                test.lines.add(place, in_quotes(text.decode("utf-8", "replace"), _LONGEST_QUOTE))
            else:
                test.cut = place
    return test


def _take(test: _Test, event: Any, data: Any, where: str, place: str) -> None:
    match event:
        case "start":
            if test.sides:
                raise TraceError(f"{where}: another test begins there: write each into a separate file")
            test.start = _table(data)
        case "interval":
            test.add_interval(test.start, data, place)
        case "error":
            test.error = data if isinstance(data, str) else ""
        case "server_output_json":
            test.add(_table(data), "server")


def _table(value: Any) -> dict[str, Any]:
    """Return a value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def _halves(interval: _Interval, sends: bool, author: End, reverse: bool) -> list[_Half]:
    # Before version 3.7, an interval does not name the sender, and all traffic of a test has one direction.
    usual = (author == "client") != reverse
    sums = [half for half in (interval.sum, interval.sum_bidir_reverse) if half is not None]
    found = [half for half in sums or interval.streams if (usual if half.sender is None else half.sender) == sends]
    return found[:1] if sums else found


def _write(
    path: Path,
    part: Part,
    author: End,
    sends: bool,
    intervals: list[tuple[str, list[_Half]]],
    malformed: LeftOut,
    draft: Draft,
) -> int:
    """Write the rates of one direction. Return the start of the first interval, ns since the start of the test."""
    kept = [(place, halves) for place, halves in intervals if not halves[0].omitted]
    left_out, places, rows = replace(malformed, named=[*malformed.named]), list[str](), list[tuple[int, int, float]]()
    for place, halves in kept:
        begins, ends = min(half.start for half in halves), max(half.end for half in halves)
        if not 0 <= begins <= ends < _FARTHEST_S:
            left_out.add(place, f"impossible interval from {begins:.12g} s to {ends:.12g} s")
        elif ends - begins >= _SHORTEST_S:
            places.append(place)
            rows.append((round(begins * 1e9), round(ends * 1e9), sum(half.bit_s() for half in halves)))
    table = np.array(rows, dtype=[("begin", np.int64), ("end", np.int64), ("rate", np.float64)])
    in_time = in_order(table["begin"], path, places.__getitem__, left_out)
    table, places = table[in_time], [place for place, is_kept in zip(places, in_time, strict=True) if is_kept]
    zero_ns, end_ns = (int(table["begin"][0]), int(table["end"][-1])) if len(table) else (0, 0)
    at_ns = table["begin"] - zero_ns
    write_series(draft, part, at_ns, table["rate"], end_ns - zero_ns, path, places.__getitem__, left_out)
    if sends:
        remedies = {"client": "use --get-server-output to record what arrived",
                    "server": "the client's report contains what arrived"}  # fmt: skip
        draft.notes.append(f"the {part} contains what was sent, not what arrived: {remedies[author]}")
    if omitted := len(intervals) - len(kept):
        draft.notes.append(f"{omitted} intervals of the {part} were skipped because the test omitted them (-O)")
    return zero_ns


def _explain_empty(test: _Test, only: Part | None) -> str:
    if test.cut is not None:
        return f"{test.cut}: the JSON is truncated or damaged, with no interval before"
    if test.intervals.count:
        return test.intervals.named[0]
    if test.error is not None:
        reported = in_quotes(test.error, _LONGEST_QUOTE)
        return f"the test failed and has no intervals: iperf3 reports {reported}"
    if only is not None:
        return f"it has no intervals of the {only}"
    return "no intervals: expected a report of iperf3 --json of a test of at least one second"


def _notes(test: _Test, device: End) -> list[str]:
    about = _table(test.start.get("test_start"))
    protocol = f" by {about['protocol']}" if about.get("protocol") in ("TCP", "UDP", "SCTP") else ""
    count = about.get("num_streams")
    streams = f", the sum of {count} streams" if isinstance(count, int) and 2 <= count <= _MOST_STREAMS else ""
    notes = [f"a test{protocol}{streams}; the {device} is assumed to be the device"]
    if test.error is not None:
        notes.append(f"iperf3 ended with an error: {in_quotes(test.error, _LONGEST_QUOTE)}")
    if test.lines.count:
        notes.append(test.lines.note("line is no part of the report and", "lines are no part of the report and"))
    if test.cut is not None:
        notes.append(f"{test.cut}: the report is truncated or damaged: the intervals before were read")
    return notes
