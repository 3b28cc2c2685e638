"""Summary of the round trips of a host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class HostSummary:
    """Figures of one host's record. Round-trip times are ns, None where nothing was answered.

    late: answers after the timeout, or second ones, in this session.
    """

    host: str
    address: str
    by: str
    file: str
    sent: int
    lost: int
    late: int
    last: int | None
    median: int | None
    p95: int | None
    p99: int | None


def summarise(
    samples: Sequence[tuple[int, int | None]], *, host: str, address: str, by: str, file: str, late: int
) -> HostSummary:
    """Return the figures of `samples`, (time, round trip or None).

    Percentiles are the smallest value that the share does not exceed (Hyndman & Fan, 1996, type 1).
    """
    answered = [trip for _, trip in samples if trip is not None]

    def percentile(share: float) -> int | None:
        return int(np.quantile(answered, share, method="inverted_cdf")) if answered else None

    return HostSummary(
        host=host,
        address=address,
        by=by,
        file=file,
        sent=len(samples),
        lost=len(samples) - len(answered),
        late=late,
        last=samples[-1][1] if samples else None,
        median=percentile(0.5),
        p95=percentile(0.95),
        p99=percentile(0.99),
    )
