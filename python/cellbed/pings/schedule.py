"""Due and unanswered probes of one host, and results to write. No clock, no sockets."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Probes:
    """The probes of one host. Times are ns on any clock that does not step.

    interval: between two probes. timeout: after it a probe counts as lost; an answer that comes later is counted only.
    due: when the next must be sent. late: answers that came after the timeout, or twice.
    """

    interval: int
    timeout: int
    due: int
    late: int = 0
    _next: int = 0
    _sent: dict[int, int] = field(default_factory=dict)
    _answered: dict[int, int] = field(default_factory=dict)

    def send(self, now: int) -> int:
        """Return the number of the probe that is sent now. A late probe does not shift later ones, and missed ones are
        not sent in a burst."""
        number = self._next
        self._next += 1
        self._sent[number] = now
        missed = max(0, now - self.due) // self.interval
        self.due += (missed + 1) * self.interval
        return number

    def answer(self, number: int, round_trip: int) -> None:
        """A probe was answered."""
        if number in self._sent and number not in self._answered:
            self._answered[number] = round_trip
        else:
            self.late += 1

    def finished(self, now: int, *, over: bool = False) -> list[tuple[int, int | None]]:
        """Decided results that were not yet returned: (when it was sent, round trip or None), in order of sending.

        over: do not wait; probes without an answer are left out as unknown.
        """
        found: list[tuple[int, int | None]] = []
        for number, sent in list(self._sent.items()):
            round_trip = self._answered.pop(number, None)
            if round_trip is None and now - sent < self.timeout:
                if over:
                    del self._sent[number]
                    continue
                break
            del self._sent[number]
            found.append((sent, round_trip))
        return found

    @property
    def next_event(self) -> int:
        """When there is something to do at the latest: the next probe, or the first timeout."""
        first = next(iter(self._sent.values()), None)
        return self.due if first is None else min(self.due, first + self.timeout)
