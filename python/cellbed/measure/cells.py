"""Radio cells: throughput, queueing and time share of each user, and fairness of the cell."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed.measure.packets import packet_parts
from cellbed.measure.statistics import smallest_sample

SCHEMA = {
    "cell": pl.String,
    "direction": pl.String,
    "packets": pl.Int64,
    "bytes": pl.Int64,
    "queueing_p50_s": pl.Float64,
    "queueing_p99_s": pl.Float64,
    "served_s": pl.Float64,
}


@dataclass(frozen=True, slots=True)
class CellUser:
    """A user of a cell, while the schedule ran and the user was in the cell.

    packets: number that left its queue. queueing_*: of these packets, including service; ``None`` for too few packets.
    share: share of the cell's service time; ``None`` if unknown.
    """

    direction: str
    packets: int
    throughput_mbit_s: float
    queueing_p50_s: float | None
    queueing_p99_s: float | None
    share: float | None


@dataclass(frozen=True, slots=True)
class CellSummary:
    """One direction of a cell. throughput_mbit_s: sum over all users, while the schedule ran.

    fairness, time_fairness: Jain's index of the throughputs and of the time shares of users with packets; ``None`` if
    there are none or the time is unknown.
    """

    name: str
    description: str
    throughput_mbit_s: float
    fairness: float | None
    time_fairness: float | None
    users: list[CellUser]


def jain(amounts: Iterable[float]) -> float | None:
    """Return Jain's fairness index of n users: 1 if all get the same, 1/n if one gets everything; ``None`` if nobody
    gets anything (Jain, Chiu & Hawe, DEC-TR-301, 1984). amounts: at least 0."""
    shares = np.fromiter(amounts, np.float64)
    if not len(shares) or (most := shares.max()) == 0:
        return None
    shares /= most  # squares neither overflow nor vanish
    return float(min(1.0, shares.sum() ** 2 / (len(shares) * (shares**2).sum())))


def read_cells(run: Path, description: dict[str, Any]) -> pl.DataFrame:
    """Return one row per cell, direction and user, from the packet log. description: the content of ``run.json``.

    Columns: ``cell`` (name with its direction), ``direction`` (of the user), ``packets`` and ``bytes`` that left the
    user's queue while the schedule ran, after its warm-up, and the user was in the cell, ``queueing_p50_s`` and
    ``queueing_p99_s`` of these packets (null: too few), ``served_s`` (how long the user had the cell with packets
    waiting, including the drain; null: unknown, as with a warm-up).
    """
    cells = description.get("cells") or []
    numbers = {str(each["name"]): int(each["index"]) for each in description.get("directions") or []}
    users = {numbers[user] for cell in cells for user in cell["users"] if user in numbers}
    t0 = description.get("t0_ns")
    if not users or t0 is None:
        return pl.DataFrame(schema=SCHEMA)
    skip = description.get("skip_ns") or 0
    end = t0 + (description.get("duration_ns") or 0)
    left: dict[int, list[NDArray[Any]]] = {user: [np.empty((3, 0), np.int64)] for user in users}
    for part in packet_parts(run / "raw" / "packets.bin"):
        counts = part[(part["drop"] == 0) & (part["arrived"] >= t0 + skip) & (part["released"] < end)]
        for user in users.intersection(np.unique(counts["direction"]).tolist()):
            of_user = counts[counts["direction"] == user]
            released = of_user["released"]
            left[user].append(np.stack([released - t0, released - of_user["arrived"], of_user["bytes"]]))
    served: dict[tuple[str, str], float] = {}  # over all visits
    for each in ((description.get("emulator") or {}).get("cells") or []) if not skip else []:
        for row in each["users"]:
            key = each["name"], row["direction"]
            served[key] = served.get(key, 0.0) + row["served_ns"] / 1e9
    rows = []
    for cell in cells:
        for name in cell["users"]:
            if name not in numbers:
                continue
            at, wait, size = np.concatenate(left[numbers[name]], axis=1)
            visited = [(begin <= at) & (at < until) for begin, until in _visits(cell, name)]
            here = np.logical_or.reduce(visited)
            queueing = [_quantile(wait[here], 0.5), _quantile(wait[here], 0.99)]
            sums = [int(here.sum()), int(size[here].sum())]
            rows.append([cell["name"], name, *sums, *queueing, served.get((cell["name"], name))])
    return pl.DataFrame(rows, SCHEMA, orient="row")


def _visits(cell: dict[str, Any], user: str) -> list[tuple[float, float]]:
    """Return the times at which a user enters and leaves a cell, ns since the start of the schedule."""
    visits = (cell.get("visits_ns") or {}).get(user, [[0, None]])
    return [(begin, math.inf if until is None else until) for begin, until in visits]


def _quantile(nanos: NDArray[np.int64], at: float) -> float | None:
    return float(np.quantile(nanos, at, method="inverted_cdf")) / 1e9 if len(nanos) >= smallest_sample(at) else None


def summarise_cells(description: dict[str, Any], users: pl.DataFrame, measured_s: float) -> list[CellSummary]:
    """Return the summaries of a run's cells. users: the table of `read_cells`; measured_s: length of the measured
    schedule. Pure."""
    found = []
    skip_s = (description.get("skip_ns") or 0) / 1e9
    lasted_s = measured_s - skip_s
    for cell in description.get("cells") or []:
        rows = users.filter(pl.col("cell") == cell["name"]).to_dicts()
        total = math.fsum(row["served_s"] or 0.0 for row in rows)
        present = [
            math.fsum(
                max(0.0, min(until / 1e9, measured_s) - max(begin / 1e9, skip_s))
                for begin, until in _visits(cell, user)
            )
            for user in (row["direction"] for row in rows)
        ]
        of_cell = [
            CellUser(
                direction=row["direction"],
                packets=row["packets"],
                throughput_mbit_s=row["bytes"] * 8 / 1e6 / present_s if present_s else 0.0,
                queueing_p50_s=row["queueing_p50_s"],
                queueing_p99_s=row["queueing_p99_s"],
                share=row["served_s"] / total if total and row["served_s"] is not None else None,
            )
            for row, present_s in zip(rows, present, strict=True)
        ]
        if not of_cell:
            continue
        sending = [user for user in of_cell if user.packets]
        found.append(
            CellSummary(
                name=str(cell["name"]),
                description=str(cell.get("description") or ""),
                throughput_mbit_s=sum(row["bytes"] for row in rows) * 8 / 1e6 / lasted_s if lasted_s > 0 else 0.0,
                fairness=jain(user.throughput_mbit_s for user in sending),
                time_fairness=jain(user.share for user in sending if user.share is not None),
                users=of_cell,
            )
        )
    return found
