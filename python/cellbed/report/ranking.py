"""The order of rows of a long table, so that runs with many nodes are readable; the other rows are folded.

Rows are indices into the summary's lists. A list of up to ``SHOWN`` + 2 rows keeps its order and is not folded.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from cellbed.report import origin

if TYPE_CHECKING:
    from cellbed.measure.cells import CellUser
    from cellbed.measure.statistics import Percentile
    from cellbed.measure.summary import (
        ApplicationSummary,
        DirectionSummary,
        EndpointSummary,
        NodeSummary,
        ProgramSummary,
    )

SHOWN = 8
Row = TypeVar("Row")


def visible_rows(rows: int) -> int:
    """Return the number of rows before the fold."""
    return rows if rows <= SHOWN + 2 else SHOWN


def decompositions(application: "ApplicationSummary") -> list[int]:
    """Select the decompositions of the median and of the highest percentile with parts."""
    having = [index for index, each in enumerate(application.decompositions) if each.parts]
    return sorted({having[0], having[-1]}) if having else []


def endpoints(rows: "Sequence[EndpointSummary]") -> list[int]:
    """Put endpoints with the slowest requests first, by the highest percentile that all endpoints support."""
    common = [
        at
        for at in range(len(rows[0].percentiles) if rows else 0)
        if all(row.percentiles[at].supported for row in rows)
    ]
    highest = common[-1] if common else 0
    return _worst(rows, lambda row: (_slowness(row.percentiles[highest]), row.counts.total - row.counts.answered))


def directions(rows: "Sequence[DirectionSummary]") -> list[int]:
    """Put directions with most dropped packets first, then by longest gap, highest queue, most
    traffic."""

    def badness(row: "DirectionSummary") -> tuple[float, ...]:
        dropped = row.dropped_queue + row.dropped_loss
        return dropped, row.longest_gap_s or 0.0, row.queue_peak_bytes, row.used_mbit_s

    return _worst(rows, badness)


def cell_users(rows: "Sequence[CellUser]") -> list[int]:
    """Put users with the longest queueing first: by P99 if all users have one, else by median."""
    by_p99 = all(row.queueing_p99_s is not None for row in rows)
    return _worst(rows, lambda row: ((row.queueing_p99_s if by_p99 else row.queueing_p50_s) or 0.0,))


def nodes(rows: "Sequence[NodeSummary]") -> list[int]:
    """Put nodes killed for memory first, then by longest throttling, then by CPU use."""
    return _worst(rows, lambda row: (row.oom_kills or 0, row.throttled_s or 0.0, row.cpu_cores_mean or 0.0))


def programs(rows: "Sequence[ProgramSummary]") -> list[int]:
    """Select the programs on nodes with several programs, by CPU use."""
    shared = [index for index, row in enumerate(rows) if sum(row.node == each.node for each in rows) > 1]
    return [shared[index] for index in _worst([rows[index] for index in shared], lambda row: (row.cpu_s,))]


def proofs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Order proofs by state: off, not reached, not proved, holds."""
    states = ("holds", "not proved", "not reached", "off")
    return [rows[index] for index in _worst(rows, lambda row: (states.index(origin.state(row)),))]


def _worst(rows: Sequence[Row], badness: Callable[[Row], tuple[float, ...]]) -> list[int]:
    order = list(range(len(rows)))
    return (
        order
        if visible_rows(len(rows)) == len(rows)
        else sorted(order, key=lambda index: badness(rows[index]), reverse=True)
    )


def _slowness(at: "Percentile") -> float:
    """Return a percentile as sort key; a percentile among requests without a good reply is slower than any other."""
    return at.value if at.value is not None else float("inf") if at.supported else 0.0
