"""Output of ``ping``: round-trip times of probes, and lost probes.

Reads the output of iputils (with ``-D`` or without), BusyBox, the BSDs and macOS, in any language: by numbers, units
and signs, not by words. With ``-D``, times are from stamps. Else times are sequence numbers times the interval.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cellbed.archive.entry import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers.format import set_start
from cellbed.archive.importers.written import UNANSWERED, count_of, in_order, in_quotes, seconds, write_series
from cellbed_node import inputs
from cellbed_node.errors import LeftOut

_USUAL_INTERVAL_NS = 1_000_000_000
_LONGEST_LINE = 4096
_WINDOW = 4096
"""Maximum lag of an answer behind others, in sequence numbers; a later answer counts as lost."""
_MOST_MISSING = 1 << 20
_MISSING_PER_LINE = 16
"""Maximum number of probes known only by missing numbers: `_MOST_MISSING`, and this number more for each line. A long
outage is possible, but a file with gaps only is not from ping.
"""
_MOST_BACKWARDS_NS = 1_000_000_000
"""Maximum backward step of the clock, ns."""
_TURN = 1 << 16
_MOST_NS = (1 << 63) - 1

_STAMP = re.compile(rb"\[([0-9]{0,12})[.,]?([0-9]{0,18})\]\s*")
_NUMBER = re.compile(rb"(?:icmp_seq=|icmp_req=|\bseq=|icmp_seq )([0-9]{1,9})(?![0-9])")
_TRIP = re.compile(r"(?:[=<\uff1d]|\btime) ?([0-9]+(?:[.,][0-9]*)?|[.,][0-9]+) ?([^\W\d_]+)(?![^\W_]|\s*[=<\uff1d])")
"""A number with a unit after a sign. A word followed by a sign is no unit, but the name of the next number."""
_UNITS = {"ns": 0, "us": 3, "µs": 3, "μs": 3, "usec": 3, "мкс": 3, "微秒": 3, "s": 9, "sec": 9, "с": 9, "秒": 9}
"""Units other than ms, with the number of decimals to ns."""
_HOPS = re.compile(rb"\b(?:ttl|hlim)=[0-9]*", re.IGNORECASE)
_SIZE = re.compile(rb"[0-9]{1,9} ")
_SHARE = rb"([0-9]{1,3}(?:[.,][0-9]{1,9})?)"
_SUMMARY = re.compile(rb"\D*([0-9]{1,18})\D+([0-9]{1,18})\D.*?(?:" + _SHARE + rb" ?%|% ?" + _SHARE + rb")")
"""Probes sent and answered, and the share of lost ones, in a line of the statistics."""
_UNREAD = -2
"""The round-trip time of a probe whose answer cannot be read."""
_HEAD = 1 << 16


@dataclass(slots=True)
class _Session:
    """The probes of one ping, by position. first, begins: number and position of the first probe, if known."""

    first: int | None = None
    begins: int | None = None
    newest: int = 0
    probes: dict[int, tuple[int | None, int | None]] = field(default_factory=dict)

    def turn(self, number: int) -> int:
        """Return the position of a sequence number. Numbers wrap around at 16 bits, positions do not."""
        if not self.probes and self.first is not None and self.first < number < self.first + _WINDOW:
            self.begins = self.first + _TURN
        if not self.probes or number >= _TURN:
            return number + _TURN  # room below for answers out of order
        around = self.newest - self.newest % _TURN + number
        return min((max(around - _TURN, 0), around, around + _TURN), key=lambda turn: abs(turn - self.newest))

    def span(self) -> range:
        """Return the positions from the first to the last probe."""
        if not self.probes:
            return range(0)
        return range(min(self.probes) if self.begins is None else self.begins, self.newest + 1)


@dataclass(slots=True)
class _Output:
    """The output of ping. stamped: whether answers have stamps; rows: times and round-trip times of probes so far;
    quiet: whether a line of the statistics reports answers."""

    source: Path
    stamped: bool
    step_ns: int
    session: _Session = field(default_factory=_Session)
    rows: list[tuple[int, int]] = field(default_factory=list)
    known_ns: int | None = None
    heard: int = 0
    begun: int = 0
    sent: int = 0
    copies: int = 0
    answers: int = 0
    quiet: bool = False
    left_out: LeftOut = field(default_factory=LeftOut)

    def take(self, line: bytes, place: str) -> None:
        """Read a line. Raises ValueError."""
        stamp_ns, text = _stamp(line)
        found = _NUMBER.search(text)
        rest = text if found is None else text[: found.start()] + text[found.end() :]
        trip_ns = _round_trip(_HOPS.sub(b"", rest))
        if found is None:
            if text.startswith(b"PING "):
                self._begin(_first_number(text))
            elif (count := _probe_counts(text)) is not None:
                self.sent += count[0]
                self.quiet |= count[1] > 0
                self._close(count[0])
            elif trip_ns is not None:
                self.left_out.add(place, f"an answer without a possible sequence number (icmp_seq=): {_quote(text)}")
            return
        if trip_ns is not None and b"DUP!" in text:
            self.copies += 1
            return
        is_answer = trip_ns is not None or _SIZE.match(text) is not None or _HOPS.search(text) is not None
        if is_answer and trip_ns is None:
            self.left_out.add(place, f"an answer without a time, which takes 16 bytes (-s 16): {_quote(text)}")
            trip_ns = _UNREAD
        elif is_answer and self.stamped != (stamp_ns is not None):
            which = "without" if self.stamped else "with"
            self.left_out.add(place, f"an answer {which} a timestamp (-D), unlike most")
            trip_ns = _UNREAD
        self.heard += 1
        self.answers += trip_ns not in (None, _UNREAD)
        self._hear(int(found[1]), stamp_ns, trip_ns)

    def _begin(self, first: int) -> None:
        self._close(None)
        if self.heard and not self.stamped:
            raise ValueError(
                "another ping begins at an unknown time, since there are no timestamps (-D): split the file"
            )
        self.begun += 1
        self.session.first = first

    def _hear(self, number: int, stamp_ns: int | None, trip_ns: int | None) -> None:
        session = self.session
        turn = session.turn(number)
        is_late = session.newest - turn > _WINDOW and (session.begins is not None or len(session.probes) > _WINDOW)
        if is_late or (session.begins is not None and turn < session.begins):
            return
        session.newest = max(session.newest, turn)
        # A stamp is the answer's arrival time.
        sent_ns = None if stamp_ns is None or trip_ns in (None, _UNREAD) else max(stamp_ns - (trip_ns or 0), 0)
        _, known_ns = session.probes.get(turn, (None, None))
        if known_ns in (None, _UNREAD):
            session.probes[turn] = sent_ns, known_ns if trip_ns is None else trip_ns
        elif trip_ns not in (None, _UNREAD):
            self.copies += 1

    def _close(self, sent: int | None) -> None:
        """End a ping with the number of probes that it sent. Raises ValueError."""
        session, self.session = self.session, _Session()
        span = session.span()
        missing = max((sent or 0) - len(span), 0) if span else 0
        missing = 0 if missing == 1 else missing  # a single probe may have been in flight at the end
        count = len(self.rows) + len(span) + missing
        if count > _MOST_MISSING + _MISSING_PER_LINE * self.heard:
            raise ValueError(f"its sequence numbers imply {count} probes in {self.heard} lines: not output of ping")
        probes = [session.probes.get(turn, (None, None)) for turn in span] + [(None, None)] * missing
        if self.stamped:
            self._add_stamped(probes)
            return
        for _, trip_ns in probes:
            self.known_ns = 0 if self.known_ns is None else self.known_ns + self.step_ns
            self.rows.append((self.known_ns, UNANSWERED if trip_ns is None else trip_ns))

    def _add_stamped(self, probes: list[tuple[int | None, int | None]]) -> None:
        sent = [(number, at_ns) for number, (at_ns, _) in enumerate(probes) if at_ns is not None]
        times = np.array([at_ns for _, at_ns in sent], np.int64)
        kept = in_order(times, self.source, lambda row: f"answer {row + 1}", self.left_out, _MOST_BACKWARDS_NS)
        for (number, _), is_kept in zip(sent, kept, strict=True):
            probes[number] = probes[number] if is_kept else (None, _UNREAD)
        unknown: list[int] = []
        for sent_ns, trip_ns in probes:
            if sent_ns is None or trip_ns is None:
                unknown.append(UNANSWERED if trip_ns is None else trip_ns)
                continue
            if self.known_ns is not None and self.known_ns - sent_ns > _MOST_BACKWARDS_NS:
                raise ValueError("a ping begins before the last answer of the ping above it: split the file")
            count = len(unknown) + 1
            before = sent_ns - self.step_ns * count if self.known_ns is None else self.known_ns
            sent_ns = max(sent_ns, before)
            span = sent_ns - before
            self.rows += [(before + span * n // count, value) for n, value in enumerate(unknown, 1)]
            if self.known_ns is not None:
                self.step_ns = span // count
            self.rows.append((sent_ns, trip_ns))
            self.known_ns, unknown = sent_ns, []
        for value in unknown:
            self.known_ns = (self.known_ns or 0) + self.step_ns
            self.rows.append((self.known_ns, value))

    def end(self) -> None:
        """End the last ping. Raises ValueError for output without an answer."""
        self._close(None)
        self.rows = [row for row in self.rows if row[1] != _UNREAD]
        if self.answers:
            return
        if self.left_out.count:
            raise ValueError(self.left_out.named[0])
        if self.quiet:
            raise ValueError("a summary without the answers, as of ping -q: record without -q")
        if probes := max(self.sent, len(self.rows)):
            raise ValueError(f"none of its {count_of(probes, 'probe', 'probes')} was answered: no round-trip time")
        example = "64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=21.3 ms"
        raise ValueError(f"not output of ping: it has no answer to a ping, such as `{example}`")

    def notes(self, interval_ns: int | None) -> Iterator[str]:
        """Yield notes for users."""
        if not self.stamped:
            why = "" if interval_ns else "; correct with --interval"
            yield f"no timestamps (ping -D): probes are assumed to be {seconds(self.step_ns, 9)} apart{why}"
        if self.copies:
            yield f"{count_of(self.copies, 'second copy of an answer was', 'second copies of answers were')} left out"
        if self.begun > 1:
            yield f"contains {self.begun} pings in sequence; the time between them is empty"


def read(path: Path, interval_ns: int | None, draft: Draft) -> None:
    """Write the round-trip times of ping's output into the draft. Raises TraceError.

    interval_ns: interval between probes without stamps; None: a second.
    """
    with inputs.open_file(path) as file:
        answers = [line for line in file.read(_HEAD).split(b"\n") if _NUMBER.search(line)]
    stamped = 2 * sum(_stamp(line)[0] is not None for line in answers) > len(answers)
    output = _Output(path, stamped, interval_ns or _USUAL_INTERVAL_NS)
    place = str(path)
    try:
        with inputs.open_file(path) as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE + 2), b""), 1):
                place = f"{path}: line {number}"
                if len(line) > _LONGEST_LINE + 1:
                    raise ValueError(f"the line is longer than {_LONGEST_LINE} bytes: not output of ping")
                output.take(line, f"line {number}")
        place = str(path)
        output.end()
    except ValueError as error:
        raise TraceError(f"{place}: {error}") from None
    zero_ns = output.rows[0][0]
    draft.notes.extend(output.notes(interval_ns))
    times = [at_ns - zero_ns for at_ns, _ in output.rows]
    trips = [trip_ns for _, trip_ns in output.rows]
    end_ns = times[-1] + max(output.step_ns, 1)
    write_series(draft, "round-trip", times, trips, end_ns, path, lambda row: f"probe {row + 1}", output.left_out)
    set_start(draft, zero_ns if output.stamped else None)


def _stamp(line: bytes) -> tuple[int | None, bytes]:
    """Return the stamp of ``ping -D``, and the rest of the line."""
    found = _STAMP.match(line)
    stamp_ns = _decimal(b".".join(found.groups()), 9) if found else None
    return (None, line) if found is None or stamp_ns is None else (stamp_ns, line[found.end() :])


def _round_trip(text: bytes) -> int | None:
    """Return the last number with a unit after a sign, in ns. Unknown units are taken as ms."""
    found = _TRIP.findall(text.decode("utf-8", "replace"))
    return _decimal(found[-1][0].encode(), _UNITS.get(found[-1][1].lower(), 6)) if found else None


def _probe_counts(text: bytes) -> tuple[int, int] | None:
    """Return the numbers of sent and answered probes in a line of consistent statistics; None for other lines."""
    found = _SUMMARY.match(text) if b"%" in text else None
    if found is None:
        return None
    sent, answered, lost = int(found[1]), int(found[2]), float((found[3] or found[4]).replace(b",", b"."))
    return (sent, answered) if sent and abs(100 * max(sent - answered, 0) / sent - lost) <= 1 else None


def _quote(text: bytes) -> str:
    return in_quotes(text.decode("utf-8", "replace").strip(), 60)


def _decimal(text: bytes, places: int) -> int | None:
    """Return a decimal number times ten to the power of `places`, rounded; None if malformed or beyond 64 bits."""
    whole, _, decimals = text.replace(b",", b".").partition(b".")
    if b"." in decimals or not whole + decimals:
        return None
    number = int(whole + decimals[:places].ljust(places, b"0")) + (decimals[places : places + 1] >= b"5")
    return number if number <= _MOST_NS else None


def _first_number(text: bytes) -> int:
    """Return the number of the first probe: 1 for iputils, recognised by a data size such as ``56(84)``, else 0."""
    return int(re.search(rb"[0-9]\(", text) is not None)
