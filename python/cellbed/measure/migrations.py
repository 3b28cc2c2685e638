"""Migrations of services as seen by users: the gap between replies, the requests around this gap, and the payback."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from cellbed.measure.requests import due
from cellbed.measure.statistics import percentile_value, smallest_sample
from cellbed.runformat.description import ANSWERED

LONGER = 1.5
"""Minimum ratio of a user's gap to the usual gap at which requests count as delayed by the gap."""
LEAST_USERS = 10
"""Minimum number of users for a P90 that is not the maximum."""
_LEAST_TIMES = 5
"""Minimum number of idle times of a user whose median counts as usual."""
_PORTS = 1 << 16
_ROUNDED_S = 1e-6
"""Tolerance for rounding errors of times, seconds."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase. begin_s, end_s: since the start of the schedule. bytes: number sent to the target, if any."""

    name: str
    begin_s: float
    end_s: float
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MigrationSummary:
    """One migration. Times in seconds; times of events count from the start of the schedule.

    end_s: ``None`` if the run ended before; failed: why the migration failed; reason: why its policy decided it,
    ``None`` without a policy; bytes: number sent to the target, compressed. facts: figures of its strategy, such as
    its dirty rate.

    gap_s: maximum time between two good replies to one user (:func:`_with_users`), gap_user, that overlaps the
    migration; gap_at_s: begin of this gap. gap_p50_s, gap_p90_s: over the users; the latter for at least
    ``LEAST_USERS``. usual_gap_s: median over the users of the maximum gap in an equal time before the migration.
    silent_endpoints: number with replies before the migration, and requests but no good reply since its end. Numbers of
    requests that were due or without their reply during the migration: failed_requests: without a good reply (before
    the migration, only requests due after the last one already answered at its begin); delayed: due before the end of
    their user's gap and answered after it, if this gap is ``LONGER`` than usual; served_before, served_after: the other
    requests, by source and target.
    first_reply_s: first reply of the target, since the begin, before the next migration. before_s, before_p90_s,
    after_s, after_p90_s: median latency and P90 of all requests until it began and since it ended, infinite without a
    good reply. paid_s: time since its end until the gain of later requests equals the loss of requests with a good
    reply during the migration, relative to before_s; ``None`` if there is no gain. has_paid: whether the requests
    continued until then.
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
    users: int = 0
    gap_s: float | None = None
    gap_at_s: float | None = None
    gap_user: str | None = None
    gap_p50_s: float | None = None
    gap_p90_s: float | None = None
    usual_gap_s: float | None = None
    silent_endpoints: int = 0
    served_before: int = 0
    served_after: int = 0
    delayed: int = 0
    failed_requests: int = 0
    first_reply_s: float | None = None
    before_s: float | None = None
    before_p90_s: float | None = None
    after_s: float | None = None
    after_p90_s: float | None = None
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
    """Return the fields that depend on requests. since, until: end of the previous and begin of the next migration."""
    good = pl.col("status").is_in(ANSWERED)
    server, port, handshake = (
        pl.col(name) if name in requests.columns else pl.lit(None, kind)
        for name, kind in (("server", pl.String), ("local_port", pl.Int64), ("part_connect_uplink", pl.Float64))
    )
    reused = (handshake > 0).fill_null(False).cum_sum().over("endpoint", port, order_by="intended_s")
    begun = [pl.col(name) for name in ("begin_ns", "sent_ns") if name in requests.columns]
    waited = (pl.coalesce(*begun) - pl.col("intended_ns")) / 1e9 if begun else pl.lit(None, pl.Float64)
    table = requests.select(
        "endpoint",
        intended="intended_s",
        begun=pl.col("intended_s") + waited.fill_null(0.0),
        reply=pl.when(good).then(pl.col("intended_s") + pl.col("latency_s")),
        server=server,
        connection=port + _PORTS * reused.cast(pl.Int64),
    ).sort("intended")
    if not len(table):
        return {}
    begin, end = account["begin_s"], account.get("end_s") or float("inf")
    intended, reply = pl.col("intended"), pl.col("reply")
    table = _with_users(table)
    gaps = _gaps(table)
    usual = gaps.filter(pl.col("previous") >= max(since, begin - max(end - begin, 1.0)), reply <= begin)
    usual_s = usual.group_by("user").agg(pl.col("gap").max())["gap"].median()
    of_users = gaps.filter(pl.col("previous") < end, reply > begin).sort("gap").unique("user", keep="last")
    of_users = of_users.sort("gap", "user").with_columns(gap_end="reply")
    met = table.filter(reply <= begin)["intended"].max()
    unanswered_since = met if isinstance(met, float) else begin
    during = table.filter(
        (intended < end) & (reply > begin)
        | reply.is_null() & (intended <= end) & ((intended > unanswered_since) | (intended >= begin))
    )
    answered = during.drop_nulls("reply").join(of_users.select("user", "gap", "gap_end"), on="user", how="left")
    is_delayed = (intended < pl.col("gap_end")) & (reply >= pl.col("gap_end"))
    if isinstance(usual_s, float):
        is_delayed &= pl.col("gap") > LONGER * usual_s
    answered = answered.with_columns(is_delayed=is_delayed.fill_null(False))
    served = answered.filter(~pl.col("is_delayed"))["server"]
    by_target = table.filter((pl.col("server") == account["target"]) & reply.is_between(begin, until))["reply"].min()
    before_table = table.filter(
        intended >= since, (reply <= begin) | reply.is_null() & (intended <= unanswered_since) & (intended < begin)
    )
    after_table = table.filter((intended >= end) & (intended < until))
    before, after = (_quantile(each, 0.5) for each in (before_table, after_table))
    paid = _paid(answered, after_table.drop_nulls("reply"), before, after)
    had, asked, got = (
        set(table.filter(each)["endpoint"])
        for each in (reply <= begin, intended.is_between(end, until), reply.is_between(end, until))
    )
    found = {
        "users": len(of_users),
        "usual_gap_s": usual_s,
        "silent_endpoints": len(had & asked - got),
        "served_before": int((served != account["target"]).fill_null(True).sum()),
        "served_after": int((served == account["target"]).sum()),
        "delayed": int(answered["is_delayed"].sum()),
        "failed_requests": during["reply"].null_count(),
        "first_reply_s": float(by_target) - begin if isinstance(by_target, float) else None,
        "before_s": before,
        "before_p90_s": _quantile(before_table, 0.9),
        "after_s": after,
        "after_p90_s": _quantile(after_table, 0.9),
        "paid_s": paid,
        "has_paid": paid is not None and bool(end + paid <= float(after_table["intended"].max())),  # type: ignore[arg-type]
    }
    if len(of_users):
        worst, sizes = of_users.row(-1, named=True), of_users["gap"].to_numpy()
        known = worst["connection"] is not None and worst["connection"] >= 0
        name = f"{worst['endpoint']}, port {worst['connection'] % _PORTS}" if known else worst["endpoint"]
        found |= {"gap_s": worst["gap"], "gap_at_s": worst["reply"] - worst["gap"], "gap_user": name}
        found["gap_p50_s"] = percentile_value(sizes, 0.5)
        found["gap_p90_s"] = percentile_value(sizes, 0.9) if len(sizes) >= LEAST_USERS else None
    return found


def _with_users(table: pl.DataFrame) -> pl.DataFrame:
    """Add the user of each request. An endpoint that sends each request after the previous reply is one user. Otherwise
    a user is a connection, or consecutive connections, as of a client that reconnects. If most overlapping requests
    have no known connection, such as requests that share one, each counts as a connection. Other requests without a
    known connection have the only user of their endpoint, or none."""
    latest = pl.col("reply").cum_max().shift(1).over("endpoint")  # rows are by intended time
    early = pl.col("intended") < latest - _ROUNDED_S
    overlaps = early & pl.col("reply").is_not_null()
    of_several = overlaps & pl.col("connection").is_null()
    shares = (2 * of_several.sum() > overlaps.sum()).over("endpoint")
    single = -1 - pl.int_range(pl.len())
    table = table.with_columns(connection=pl.when(shares).then(single).otherwise("connection"))
    overlapping = table.filter(overlaps).select(pl.col("endpoint").unique())
    several = table.join(overlapping, on="endpoint", how="semi").drop_nulls(["reply", "connection"])
    spans = several.group_by("endpoint", "connection").agg(first=pl.col("begun").min(), last=pl.col("reply").max())
    spans = spans.sort("first", "endpoint", "connection")
    users: list[int] = []
    ended: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for endpoint, first, last in spans.select("endpoint", "first", "last").iter_rows():
        place = bisect_left(ended[endpoint], (first + _ROUNDED_S, -1))
        users.append(ended[endpoint].pop(place - 1)[1] if place else len(users))  # the user that ended last
        insort(ended[endpoint], (last, users[-1]))
    known = spans.select("endpoint", "connection", user=pl.Series(users, dtype=pl.Int64))
    found = table.join(known, on=["endpoint", "connection"], how="left", maintain_order="left")
    alone = pl.col("user").drop_nulls().n_unique().over("endpoint") <= 1
    only = pl.coalesce(pl.col("user").max().over("endpoint"), -pl.col("endpoint").rank("dense").cast(pl.Int64))
    return found.with_columns(user=pl.when(alone).then(only).otherwise("user"))


def _gaps(table: pl.DataFrame) -> pl.DataFrame:
    """Return the good replies to each user with the time since the previous reply: ``gap``.

    Idle time of a user counts only as far as is usual at its endpoint (P90) or for the user (median): the reserve
    connection of a client is no waiting user. After a request without a good reply, the user waited until a new
    connection of its endpoint had a reply.
    """
    known = table.drop_nulls(["reply", "user"]).sort("user", "reply")
    rows = known.with_columns(previous=pl.col("reply").shift(1).over("user")).drop_nulls("previous")
    unanswered = table.filter(pl.col("reply").is_null())
    opened = known.group_by("endpoint", "connection").agg(opened=pl.col("reply").min())

    def followed(rows: pl.DataFrame, at: str, by: str, times: pl.DataFrame, name: str) -> pl.DataFrame:
        """Add to each row the first of some times at or after the row's time in a column."""
        times = times.select(by, pl.col(times.columns[-1]).alias(name)).drop_nulls().sort(name)
        keys = {"left_on": at, "right_on": name, "by": by, "strategy": "forward", "check_sortedness": False}
        return rows.sort(at, nulls_last=True).join_asof(times, **keys)  # type: ignore[arg-type]

    rows = followed(rows, "previous", "user", unanswered.select("user", "intended"), "failed")
    of_none = unanswered.filter(pl.col("user").is_null()).select("endpoint", "intended")
    rows = followed(rows, "previous", "endpoint", of_none, "failed_of_none")
    failed = pl.min_horizontal("failed", "failed_of_none")
    rows = rows.with_columns(failed=pl.when(failed < pl.col("reply")).then(failed))
    rows = followed(rows, "failed", "endpoint", opened.select("endpoint", "opened"), "resumed")
    idle = (pl.min_horizontal("intended", "failed") - pl.col("previous")).clip(0)
    own = pl.when(idle.count().over("user") >= _LEAST_TIMES).then(idle.quantile(0.5, "lower").over("user"))
    usual = pl.max_horizontal(idle.quantile(0.9, "higher").over("endpoint"), own)
    unasked = (idle - usual).clip(0)
    unasked += (pl.col("intended") - pl.col("resumed")).clip(0).fill_null(0.0)
    return rows.with_columns(gap=pl.col("reply") - pl.col("previous") - unasked)


def _quantile(table: pl.DataFrame, quantile: float) -> float | None:
    """Return a percentile of the latency of requests; ``None`` for too few requests, or if it has no good reply."""
    latency = table.select((pl.col("reply") - pl.col("intended")).fill_null(float("inf"))).to_series().to_numpy()
    if len(latency) < (smallest_sample(quantile) if quantile > 0.5 else 1):
        return None
    value = percentile_value(latency, quantile)
    return value if value < float("inf") else None


def _paid(during: pl.DataFrame, after: pl.DataFrame, before_s: float | None, after_s: float | None) -> float | None:
    """Return the time until requests have gained, at the median, what requests lost during the migration."""
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
