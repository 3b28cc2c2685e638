"""Output of ``ping``: round-trip times of probes, and lost probes.

iputils (with ``-D`` or without), BusyBox, the BSDs and macOS. With ``-D`` the times are the stamps'; else probes are an
interval apart by their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cellbed.archive.draft import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers.header import dated
from cellbed.archive.importers.wording import counted, seconds
from cellbed.archive.importers.written import UNANSWERED, write_series
from cellbed.support import inputs

_USUAL_INTERVAL_NS = 1_000_000_000
_LONGEST_LINE = 4096
_WINDOW = 4096
"""Numbers by which an answer may be behind others after so many; a later one counts as lost."""
_MOST_MISSING = 1 << 20
_MISSING_PER_LINE = 16
"""Probes known only by missing numbers may be so many, and as many for each line: a long outage is possible, but a file
with gaps only is not from ping.
"""
_MOST_BACKWARDS_NS = 1_000_000_000
"""Maximum backward step of the clock."""
_TURN = 1 << 16
_MOST_NS = (1 << 63) - 1

_STAMP = re.compile(rb"\[([0-9]{0,12})[.,]?([0-9]{0,18})\]\s*")
_NUMBER = re.compile(rb"(?:icmp_seq=|icmp_req=| seq=|icmp_seq )([0-9]{1,18})")
_TRIP = re.compile(rb"=([0-9.,]+) ?ms")
_SENT = re.compile(rb"[0-9]{1,18}")


@dataclass(slots=True)
class _Session:
    """The probes of one ping, by position. first, begins: number and position of its first probe, if it is known."""

    first: int | None = None
    begins: int | None = None
    newest: int = 0
    probes: dict[int, tuple[int | None, int | None]] = field(default_factory=dict)

    def turn(self, number: int) -> int:
        """Return the position of a number, which wraps around at 16 bits."""
        if not self.probes and self.first is not None and self.first < number < self.first + _WINDOW:
            self.begins = self.first + _TURN
        if not self.probes or number >= _TURN:
            return number + _TURN  # room below for what comes out of order
        around = self.newest - self.newest % _TURN + number
        return min((max(around - _TURN, 0), around, around + _TURN), key=lambda turn: abs(turn - self.newest))

    def span(self) -> range:
        """Return the positions from its first probe to its last one."""
        if not self.probes:
            return range(0)
        return range(min(self.probes) if self.begins is None else self.begins, self.newest + 1)


@dataclass(slots=True)
class _Output:
    """The output of ping. rows: times and round-trip times of probes so far."""

    step_ns: int
    session: _Session = field(default_factory=_Session)
    rows: list[tuple[int, int]] = field(default_factory=list)
    stamped: bool | None = None
    known_ns: int | None = None
    heard: int = 0
    begun: int = 0
    sent: int = 0
    copies: int = 0

    def take(self, line: bytes) -> None:
        """Read a line. Raises ValueError."""
        stamp_ns, text = _stamp(line)
        trip_ns = _round_trip(text)
        found = _NUMBER.search(text)
        if found is None:
            if text.startswith(b"PING "):
                self._begin(_first_number(text))
            elif b"%" in text and (summary := _SENT.match(text)):
                self.sent += int(summary[0])
                self._close(int(summary[0]))
            return
        if trip_ns is not None and b"DUP!" in text:
            self.copies += 1
            return
        if trip_ns is not None:
            if self.stamped not in (None, stamp_ns is not None):
                raise ValueError("some answers have timestamps (-D) and others do not")
            self.stamped = stamp_ns is not None
        self.heard += 1
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
        # A stamp is of the answer's arrival.
        sent_ns = None if stamp_ns is None or trip_ns is None else stamp_ns - trip_ns
        _, known_ns = session.probes.get(turn, (None, None))
        if known_ns is None:
            session.probes[turn] = sent_ns, trip_ns
        elif trip_ns is not None:
            self.copies += 1

    def _close(self, sent: int | None) -> None:
        """End a ping with the number of probes that it sent. Raises ValueError."""
        session, self.session = self.session, _Session()
        span = session.span()
        missing = max((sent or 0) - len(span), 0) if span else 0
        missing = 0 if missing == 1 else missing  # a single one may have been in flight at the end
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
        unknown = 0
        for sent_ns, trip_ns in probes:
            if sent_ns is None or trip_ns is None:
                unknown += 1
                continue
            if self.known_ns is not None and self.known_ns - sent_ns > _MOST_BACKWARDS_NS:
                raise ValueError("its timestamp is before that of the line above: the clock was set")
            before = sent_ns - self.step_ns * (unknown + 1) if self.known_ns is None else self.known_ns
            sent_ns = max(sent_ns, before)
            span = sent_ns - before
            self.rows += [(before + span * n // (unknown + 1), UNANSWERED) for n in range(1, unknown + 1)]
            if self.known_ns is not None:
                self.step_ns = span // (unknown + 1)
            self.rows.append((sent_ns, trip_ns))
            self.known_ns, unknown = sent_ns, 0
        for _ in range(unknown):
            self.known_ns = (self.known_ns or 0) + self.step_ns
            self.rows.append((self.known_ns, UNANSWERED))

    def end(self) -> None:
        """End the last ping. Raises ValueError for output without an answer."""
        self._close(None)
        if not self.rows and self.sent:
            probes = counted(self.sent, "probe", "probes")
            raise ValueError(f"none of its {probes} was answered: no round-trip time")
        if not self.rows:
            raise ValueError("no answer to a ping, such as `64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=21.3 ms`")

    def notes(self, interval_ns: int | None) -> Iterator[str]:
        """Yield notes for users."""
        if not self.stamped:
            why = "" if interval_ns else "; correct with --interval"
            yield f"no timestamps (ping -D): probes are assumed to be {seconds(self.step_ns, 9)} apart{why}"
        if self.copies:
            yield f"{counted(self.copies, 'second copy of an answer was', 'second copies of answers were')} left out"
        if self.begun > 1:
            yield f"contains {self.begun} pings in sequence; the time between them is empty"


def read(path: Path, interval_ns: int | None, draft: Draft) -> None:
    """Write the round-trip times of ping's output into the draft. Raises TraceError.

    interval_ns: between probes without stamps; left out, a second.
    """
    output = _Output(interval_ns or _USUAL_INTERVAL_NS)
    place = str(path)
    try:
        with inputs.opened(path) as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE + 2), b""), 1):
                place = f"{path}: line {number}"
                if len(line) > _LONGEST_LINE + 1:
                    raise ValueError(f"the line is longer than {_LONGEST_LINE} bytes: not output of ping")
                output.take(line)
        place = str(path)
        output.end()
    except ValueError as error:
        raise TraceError(f"{place}: {error}") from None
    zero_ns = output.rows[0][0]
    draft.notes.extend(output.notes(interval_ns))
    times = [at_ns - zero_ns for at_ns, _ in output.rows]
    trips = [trip_ns for _, trip_ns in output.rows]
    end_ns = times[-1] + max(output.step_ns, 1)
    write_series(draft, "round-trip", times, trips, end_ns, path, lambda row: f"probe {row + 1}")
    dated(draft, zero_ns if output.stamped else None)


def _stamp(line: bytes) -> tuple[int | None, bytes]:
    """Return the stamp of ``ping -D``, and the rest of the line."""
    found = _STAMP.match(line)
    stamp_ns = _decimal(b".".join(found.groups()), 9) if found else None
    return (None, line) if found is None or stamp_ns is None else (stamp_ns, line[found.end() :])


def _round_trip(text: bytes) -> int | None:
    """Return the number between an equals sign and "ms", in ns."""
    found = _TRIP.search(text)
    return _decimal(found[1], 6) if found else None


def _decimal(text: bytes, places: int) -> int | None:
    """Return a number with decimals times a power of ten, rounded; null if malformed or beyond 64 bits."""
    whole, _, decimals = text.replace(b",", b".").partition(b".")
    if b"." in decimals or not whole + decimals:
        return None
    number = int(whole + decimals[:places].ljust(places, b"0")) + (decimals[places : places + 1] >= b"5")
    return number if number <= _MOST_NS else None


def _first_number(text: bytes) -> int:
    """Return the number of the first probe: iputils counts from 1 and names the size of data as ``56(84)``, the others
    count from 0.
    """
    return int(re.search(rb"[0-9]\(", text) is not None)
