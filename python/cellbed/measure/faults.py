"""Losses of a run's applications during faults, handovers and migrations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from cellbed.measure.requests import due
from cellbed.support.readable import duration_words

BEGAN, ENDED = (tuple(f"{kind} {what}" for kind in ("fault", "handover", "migration")) for what in ("began", "ended"))
"""Names of events. Both events have the same number ``fault``, and ``kind``."""
LATE_S = 0.1
"""Maximum lateness of a fault of a node or a program in an undisturbed run, seconds."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Requests of one application during and after a fault.

    during: requests that were due or without their good reply during the fault; after: requests due from its end to the
    next fault. *_lost: number without a reply; *_failed: with an error; *_late: with a good reply after the timeout.
    recovered_s: from the end of the fault to the first good reply in time to a request due after the fault; ``None``
    without such a reply, or if the fault did not affect the application: all requests during the fault got a good
    reply in time, and at least one was due and answered during the fault.
    """

    app: str
    during: int
    during_lost: int
    during_late: int
    after: int
    after_lost: int
    after_late: int
    recovered_s: float | None
    during_failed: int = 0
    after_failed: int = 0

    def __str__(self) -> str:
        """Return the losses in words."""
        text = (
            f"{self.app}: {_count_text(self.during, self.during_lost, self.during_failed, self.during_late)} during it"
        )
        if not self.after:
            return text
        text += f", {_count_text(self.after, self.after_lost, self.after_failed, self.after_late)} afterwards"
        if self.recovered_s is not None:
            return f"{text}; first reply {self.recovered_s:.2f} s after its end"
        in_time = self.after - self.after_lost - self.after_failed - self.after_late
        return text if in_time else f"{text}; no reply in time since"


def _count_text(total: int, lost: int, failed: int, late: int) -> str:
    return f"of {total} requests {lost} lost, {failed} failed and {late} late"


@dataclass(frozen=True, slots=True)
class FaultSummary:
    """One fault. begin_s, end_s: since the start of the schedule; end_s ``None`` if it lasted until the run ended."""

    what: str
    kind: str
    begin_s: float
    end_s: float | None
    losses: list[Loss]


def fault_summaries(
    events: Sequence[dict[str, Any]], requests: pl.DataFrame, apps: Sequence[str]
) -> list[FaultSummary]:
    """Return the faults and handovers among the events of a run, with the losses of each application that has requests.
    Pure."""
    begun = [event for event in events if event["event"] in BEGAN and event.get("at_s") is not None]
    ended = {event.get("fault"): event.get("at_s") for event in events if event["event"] in ENDED}
    found = []
    for number, event in enumerate(begun):
        begin, end = float(event["at_s"]), ended.get(event.get("fault"))
        following = float(begun[number + 1]["at_s"]) if number + 1 < len(begun) else float("inf")
        before = ended.get(begun[number - 1].get("fault")) if number else None
        losses = [
            _loss(app, of, begin, end if end is not None else float("inf"), before or float("-inf"), following)
            for app in apps
            if len(of := due(requests).filter(pl.col("app") == app))
        ]
        found.append(FaultSummary(str(event["what"]), str(event.get("kind", "")), begin, end, losses))
    return found


def late_faults(events: Sequence[dict[str, Any]]) -> list[str]:
    """Return sentences, for `judge`, on faults that began or ended more than `LATE_S` late. Pure."""
    return [
        f"{event['what']}: {event['event'].split()[1]} {duration_words(event['late_s'])} late"
        for event in events
        if isinstance(late := event.get("late_s"), int | float) and late > LATE_S
    ]


def _loss(app: str, requests: pl.DataFrame, begin: float, end: float, before: float, following: float) -> Loss:
    intended, replied = pl.col("intended_s"), pl.col("intended_s") + pl.col("latency_s").fill_null(float("inf"))
    during = requests.filter((intended >= before) & (intended < end) & (replied > begin))
    after = requests.filter((intended >= end) & (intended < max(following, end)))
    untouched = (during["status"] == "ok").all() and during.select(((intended >= begin) & (replied < end)).any()).item()
    answered = after.filter(pl.col("status") == "ok").select((replied - end).min()).item()

    def count(table: pl.DataFrame, *statuses: str) -> int:
        return int(table["status"].is_in(statuses).sum())

    return Loss(
        app=app,
        during=len(during),
        during_lost=count(during, "lost", "timed-out"),
        during_late=count(during, "late"),
        after=len(after),
        after_lost=count(after, "lost", "timed-out"),
        after_late=count(after, "late"),
        recovered_s=None if untouched else answered,
        during_failed=count(during, "failed"),
        after_failed=count(after, "failed"),
    )
