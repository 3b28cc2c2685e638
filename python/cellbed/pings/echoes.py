"""The output of `ping -D -O` (iputils) as results of probes: when each was sent, and its round-trip time."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

Sample = tuple[int, int | None]
"""When a probe was sent, ns since the record's start, and its round-trip time, ns; None for a lost one."""

_ANSWER = re.compile(rb"\[(\d+\.\d+)\] .*icmp_seq=(\d+) .*time=([\d.]+) ms")
_NO_ANSWER = re.compile(rb"\[(\d+\.\d+)\] no answer yet for icmp_seq=(\d+)")
_NUMBERS = 1 << 16


@dataclass(slots=True)
class Echoes:
    """The probes of one host. Times in ns.

    started: of the record, since the epoch. interval: between two probes, of which `patience` can be without an answer
    at a time before the first is lost. late: answers that came later than that, or twice.
    """

    started: int
    interval: int
    patience: int
    late: int = 0
    _latest: int = 0
    _open: dict[int, Sample] = field(default_factory=dict)

    def read(self, line: bytes) -> list[Sample]:
        """Take a line; return the results that have become certain, in the order of sending."""
        if (found := _ANSWER.match(line)) is not None:
            trip = round(float(found[3]) * 1e6)
            number, answered = self._number(found[2]), (self._time(found[1]) - trip, trip)
            known = self._open.get(number)
            if number <= self._latest if known is None else known[1] is not None:
                self.late += 1
                return []
            self._open[number] = answered
        elif (found := _NO_ANSWER.match(line)) is not None:
            # The line is printed when the next probe is sent.
            number = self._number(found[2])
            self._open[number] = self._time(found[1]) - self.interval, None
        else:
            return []
        self._latest = max(self._latest, number)
        return self._certain()

    def _certain(self) -> list[Sample]:
        results = []
        for number, sample in sorted(self._open.items()):
            if sample[1] is None and number > self._latest - self.patience:
                break
            results.append(self._open.pop(number))
        return results

    def _number(self, text: bytes) -> int:
        """Return the number of a probe, of which ping prints 16 bits."""
        ahead = (int(text) - self._latest) % _NUMBERS
        return self._latest + (ahead if ahead < _NUMBERS // 2 else ahead - _NUMBERS)

    def _time(self, text: bytes) -> int:
        seconds, _, fraction = text.partition(b".")
        return int(seconds) * 10**9 + int(fraction.ljust(9, b"0")[:9]) - self.started
