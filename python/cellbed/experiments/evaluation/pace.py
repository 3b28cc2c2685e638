"""How long the rest of an evaluation will take. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from cellbed.workloads.application import Application

BRING_UP_S = 2.0
"""What a link and its programs take until an application begins, about; a browser takes some seconds more."""


class Pace:
    """Learns from steps that are done.

    virtual: applications take no time, so that nothing is known before the first of each is done.
    """

    def __init__(self, *, virtual: bool) -> None:
        self._virtual = virtual
        self._total: dict[str, float] = defaultdict(float)
        self._count: dict[str, int] = defaultdict(int)

    def took(self, application: str, seconds: float) -> None:
        """A step with this application is done."""
        self._total[application] += seconds
        self._count[application] += 1

    def left(self, ahead: Iterable[Application], jobs: int) -> float | None:
        """Seconds until steps with these applications are done, `jobs` at once; ``None`` if that is not known yet."""
        total = 0.0
        for each in ahead:
            if count := self._count[each.name]:
                total += self._total[each.name] / count
            elif self._virtual:
                return None
            else:
                total += each.length_s + BRING_UP_S
        return total / jobs


def words(seconds: float) -> str:
    """A span, rounded as an estimate."""
    minutes = round(seconds / 60)
    if seconds < 60:
        return "less than a minute" if seconds < 45 else "1 min"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
