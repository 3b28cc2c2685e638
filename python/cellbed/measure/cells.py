"""Radio cells: throughput, queueing and share of time of each user, and how fair the cell was to them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cellbed.measure.packets import packet_parts
from cellbed.measure.statistics import needed

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
    """A user of a cell while the schedule ran.

    packets: that left its queue. queueing_*: of these packets, service included; ``None`` where they are too few.
    share: of the time in which the cell served its users; ``None`` where unknown.
    """

    direction: str
    packets: int
    throughput_mbit_s: float
    queueing_p50_s: float | None
    queueing_p99_s: float | None
    share: float | None


@dataclass(frozen=True, slots=True)
class CellSummary:
    """One direction of a cell.

    fairness, time_fairness: Jain's index of the throughputs and of the shares of time of the users that sent packets;
    ``None`` where none did or the time is unknown.
    """

    name: str
    description: str
    throughput_mbit_s: float
    fairness: float | None
    time_fairness: float | None
    users: list[CellUser]


def jain(amounts: Iterable[float]) -> float | None:
    """Jain's fairness index of what each of n users gets: 1 if all get the same, 1/n if one gets everything; ``None``
    if nobody gets anything (Jain, Chiu & Hawe, DEC-TR-301, 1984). amounts: at least 0."""
    shares = np.fromiter(amounts, np.float64)
    if not len(shares) or (most := shares.max()) == 0:
        return None
    shares /= most  # squares neither overflow nor vanish
    return float(min(1.0, shares.sum() ** 2 / (len(shares) * (shares**2).sum())))


def read_cells(run: Path, description: dict[str, Any]) -> pl.DataFrame:
    """One row per cell, direction and user, from the packet log; description: the content of ``run.json``.

    Columns: ``cell`` (name with its direction), ``direction`` (of the user), ``packets`` and ``bytes`` that left its
    queue while the schedule ran, ``queueing_p50_s`` and ``queueing_p99_s`` of these packets (null: too few),
    ``served_s`` (how long it had the cell with packets waiting, the drain included; null: unknown).
    """
    cells = description.get("cells") or []
    numbers = {str(each["name"]): int(each["index"]) for each in description.get("directions") or []}
    users = {numbers[user] for cell in cells for user in cell["users"] if user in numbers}
    t0 = description.get("t0_ns")
    if not users or t0 is None:
        return pl.DataFrame(schema=SCHEMA)
    end = t0 + (description.get("duration_ns") or 0)
    waits: dict[int, list[np.ndarray[Any, np.dtype[np.int64]]]] = {user: [] for user in users}
    sizes = dict.fromkeys(users, 0)
    for part in packet_parts(run / "raw" / "packets.bin"):
        left = part[(part["drop"] == 0) & (part["arrived"] >= t0) & (part["released"] < end)]
        for user in users.intersection(np.unique(left["direction"]).tolist()):
            of_user = left[left["direction"] == user]
            waits[user].append(of_user["released"] - of_user["arrived"])
            sizes[user] += int(of_user["bytes"].sum(dtype=np.int64))
    served = {
        (each["name"], user["direction"]): user["served_ns"] / 1e9
        for each in (description.get("emulator") or {}).get("cells") or []
        for user in each["users"]
    }
    rows = []
    for cell in cells:
        for name in cell["users"]:
            if name not in numbers:
                continue
            number = numbers[name]
            wait = np.concatenate([np.empty(0, np.int64), *waits[number]])
            queueing = [_quantile(wait, 0.5), _quantile(wait, 0.99)]
            rows.append([cell["name"], name, len(wait), sizes[number], *queueing, served.get((cell["name"], name))])
    return pl.DataFrame(rows, SCHEMA, orient="row")


def _quantile(nanos: np.ndarray[Any, np.dtype[np.int64]], at: float) -> float | None:
    return float(np.quantile(nanos, at, method="inverted_cdf")) / 1e9 if len(nanos) >= needed(at) else None


def summarise_cells(description: dict[str, Any], users: pl.DataFrame, measured_s: float) -> list[CellSummary]:
    """The summaries of the cells of a run; users: of `read_cells`; measured_s: how long the schedule ran. Pure."""
    found = []
    for cell in description.get("cells") or []:
        rows = users.filter(pl.col("cell") == cell["name"]).to_dicts()
        total = math.fsum(row["served_s"] or 0.0 for row in rows)
        of_cell = [
            CellUser(
                direction=row["direction"],
                packets=row["packets"],
                throughput_mbit_s=row["bytes"] * 8 / 1e6 / measured_s if measured_s else 0.0,
                queueing_p50_s=row["queueing_p50_s"],
                queueing_p99_s=row["queueing_p99_s"],
                share=row["served_s"] / total if total and row["served_s"] is not None else None,
            )
            for row in rows
        ]
        if not of_cell:
            continue
        sending = [user for user in of_cell if user.packets]
        found.append(
            CellSummary(
                name=str(cell["name"]),
                description=str(cell.get("description") or ""),
                throughput_mbit_s=math.fsum(user.throughput_mbit_s for user in of_cell),
                fairness=jain(user.throughput_mbit_s for user in sending),
                time_fairness=jain(user.share for user in sending if user.share is not None),
                users=of_cell,
            )
        )
    return found
