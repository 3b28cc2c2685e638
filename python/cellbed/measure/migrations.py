"""Migrations of services as their users saw them: the gap between replies, requests around it, and when it has paid."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from cellbed.measure.requests import due
from cellbed.runformat.description import ANSWERED

LONGER = 1.5
"""Times the usual gap between replies, above which requests count as delayed by one."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase. begin_s, end_s: since the start of the schedule. bytes: sent to the target, if any."""

    name: str
    begin_s: float
    end_s: float
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MigrationSummary:
    """One migration. Times in seconds, those of events since the start of the schedule.

    end_s: ``None`` where the run ended before; failed: why it failed; reason: why its policy has
    decided it, ``None`` without a policy; bytes: sent to the target, compressed. facts: of
    its strategy, such as its dirty rate.

    gap_s: the longest time between two good replies, of which one came while it lasted; usual_gap_s: the same before it
    began, over as long a time. Of the requests that were due or without their reply while it lasted: failed_requests
    got no good one (of those due before, the ones after the last that had a reply when it began); delayed were due
    before the end of that gap and replied to after it, where it is ``LONGER`` than usual; of the others the source or
    the target replied to served_before and served_after. first_reply_s: of the target, since the begin, before the next
    migration. before_s, after_s: median latencies, until it began and since it ended. paid_s: since its end, after
    which the requests have gained what those with a good reply have lost during it against before_s; ``None`` where
    they gain nothing. has_paid: whether the requests lasted as long.
    """

    app: str
    strategy: str
    source: str
    target: str
    begin_s: float
    end_s: float | None
    failed: str | None
    bytes: int
    phases: list[Phase]
    facts: dict[str, float | str] = field(default_factory=dict)
    reason: str | None = None
    gap_s: float | None = None
    gap_at_s: float | None = None
    usual_gap_s: float | None = None
    served_before: int = 0
    served_after: int = 0
    delayed: int = 0
    failed_requests: int = 0
    first_reply_s: float | None = None
    before_s: float | None = None
    after_s: float | None = None
    paid_s: float | None = None
    has_paid: bool = False


def migration_summaries(description: dict[str, Any], requests: pl.DataFrame) -> list[MigrationSummary]:
    """Return the migrations of a run, in order of time. description: the content of ``run.json``. Pure."""
    accounts: list[dict[str, Any]] = description.get("migrations") or []
    found = []
    for account in accounts:
        app = account["app"]
        same = [each for each in accounts if each["app"] == app]
        place = same.index(account)
        since = same[place - 1].get("end_s") or 0.0 if place else 0.0
        until = same[place + 1]["begin_s"] if place + 1 < len(same) else float("inf")
        summary = MigrationSummary(
            app=app,
            strategy=account["strategy"],
            source=account["source"],
            target=account["target"],
            begin_s=account["begin_s"],
            end_s=account.get("end_s"),
            failed=account.get("failed"),
            bytes=account.get("bytes") or 0,
            phases=sorted(
                (Phase(each["name"], each["begin_s"], each["end_s"], each.get("bytes")) for each in account["phases"]),
                key=lambda each: each.begin_s,
            ),
            facts=account.get("facts") or {},
            reason=account.get("reason"),
            **_as_seen(due(requests).filter(pl.col("app") == app), account, since, until),
        )
        found.append(summary)
    return found


def _as_seen(requests: pl.DataFrame, account: dict[str, Any], since: float, until: float) -> dict[str, Any]:
    """Return the fields that come from requests. since, until: end of the migration before, and begin of the next."""
    good = pl.col("status").is_in(ANSWERED)
    server = pl.col("server") if "server" in requests.columns else pl.lit(None, pl.String)
    table = requests.select(
        intended="intended_s", reply=pl.when(good).then(pl.col("intended_s") + pl.col("latency_s")), server=server
    ).sort("intended")
    if not len(table):
        return {}
    begin, end = account["begin_s"], account.get("end_s") or float("inf")
    intended, reply = pl.col("intended"), pl.col("reply")
    replies = table["reply"].drop_nulls().sort()
    gap_begin, gap_end = _longest_gap(replies, begin, end)
    usual = _longest_gap(replies, max(since, begin - max(end - begin, 1.0)), begin, inside=True)
    usual_s = None if usual[0] is None or usual[1] is None else usual[1] - usual[0]
    gap_s = None if gap_begin is None or gap_end is None else gap_end - gap_begin
    met = table.filter(reply <= begin)["intended"].max()
    unanswered_since = met if isinstance(met, float) else begin
    during = table.filter(
        (intended < end) & (reply > begin)
        | reply.is_null() & (intended <= end) & ((intended > unanswered_since) | (intended >= begin))
    )
    answered = during.drop_nulls("reply")
    is_delayed = pl.lit(False)
    if gap_s is not None and (usual_s is None or gap_s > LONGER * usual_s):
        is_delayed = (intended < gap_end) & (reply >= gap_end)
    served = answered.filter(~is_delayed)["server"]
    by_target = table.filter((pl.col("server") == account["target"]) & reply.is_between(begin, until))["reply"].min()
    latency = reply - intended
    before = table.filter((intended >= since) & (reply <= begin)).select(latency.median()).item()
    after_table = table.filter((intended >= end) & (intended < until)).drop_nulls("reply")
    after = after_table.select(latency.median()).item()
    paid = _paid(answered, after_table, before, after)
    return {
        "gap_s": gap_s,
        "gap_at_s": gap_begin,
        "usual_gap_s": usual_s,
        "served_before": int((served != account["target"]).fill_null(True).sum()),
        "served_after": int((served == account["target"]).sum()),
        "delayed": int(answered.select(is_delayed.sum()).item()),
        "failed_requests": during["reply"].null_count(),
        "first_reply_s": float(by_target) - begin if isinstance(by_target, float) else None,
        "before_s": before,
        "after_s": after,
        "paid_s": paid,
        "has_paid": paid is not None and bool(end + paid <= float(after_table["intended"].max())),  # type: ignore[arg-type]
    }


def _longest_gap(
    replies: pl.Series, begin: float, end: float, *, inside: bool = False
) -> tuple[float | None, float | None]:
    """Return begin and end of the longest time between two replies in order of time, at least one of them (inside: all)
    between these times; ``None`` without two replies."""
    times = replies.filter((replies > begin) & (replies < end))
    if not inside:
        around = [replies.filter(replies <= begin).tail(1), times, replies.filter(replies >= end).head(1)]
        times = pl.concat(around)
    if len(times) < 2:
        return None, None
    place = times.diff().arg_max()
    assert place is not None
    return times[place - 1], times[place]


def _paid(during: pl.DataFrame, after: pl.DataFrame, before_s: float | None, after_s: float | None) -> float | None:
    """Return after how long requests have gained, at the median, what those of the migration have lost."""
    if before_s is None or after_s is None or before_s <= after_s or len(after) < 2:
        return None
    lost = during.select(((pl.col("reply") - pl.col("intended")) - before_s).clip(0).sum()).item()
    lasted = float(after.select(pl.col("intended").max() - pl.col("intended").min()).item())
    rate = (len(after) - 1) / lasted if lasted else 0.0
    return float(lost) / (rate * (before_s - after_s)) if rate else None


def phases_of(migrations: Sequence[MigrationSummary]) -> list[dict[str, Any]]:
    """Return the phases of all migrations for charts: name, begin and end."""
    return [
        {"name": f"{each.app}: {phase.name}", "begin": phase.begin_s, "end": phase.end_s}
        for each in migrations
        for phase in each.phases
    ]
