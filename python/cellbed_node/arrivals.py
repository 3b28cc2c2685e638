"""Intended times of requests. The schedule is computed before the run and never waits for the system under test.

An open-loop generator that measures from the *intended* time does not hide its own stalls: if a stall delays a request,
the delay is part of the latency (coordinated omission; Schroeder, Wierman, Harchol-Balter, "Open Versus Closed", NSDI
2006, explain the difference between the kinds of loop).
"""

import math
import random
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

Arrivals = str | Mapping[str, Any]
"""``"periodic"``, ``"poisson"`` or ``"closed"``, or a table with one of these as ``kind``:

closed: ``in_flight`` requests. bursts: ``size`` requests every ``interval_ns``. ramp: from ``begin`` to ``end``
requests per second. recorded: ``times_ns``, ascending.
"""

NANOSECONDS = 1_000_000_000


def in_flight(arrivals: Arrivals) -> int | None:
    """Return the requests that a closed loop keeps in flight; None for an open loop."""
    if arrivals == "closed":
        return 1
    return int(arrivals["in_flight"]) if not isinstance(arrivals, str) and arrivals["kind"] == "closed" else None


def schedule(
    arrivals: Arrivals, *, rate: float | None, duration_ns: int, seed: int, endpoint: str, phase: float = 0.0
) -> list[int]:
    """Return the intended times in ns since the start of the workload, ascending, from 0 to below ``duration_ns``.

    phase: 0 to 1, position of this endpoint among the endpoints that take turns.

    * periodic: one request every ``1/rate`` s, the first after ``phase`` of a period.
    * poisson: exponential gaps of mean ``1/rate`` s from a generator of this endpoint: equal ``seed`` and ``endpoint``
      give equal times.
    * bursts: as periodic, with several requests at once.
    * ramp: the rate changes linearly over ``duration_ns``. A request is due when the integral of the rate reaches an
      integer plus ``phase``, so a ramp between equal rates is periodic.
    * recorded: the given times.
    * closed: only the first requests; each later request is due when an earlier one is over.

    Raises ValueError for a periodic or Poisson process without a positive rate.
    """
    if duration_ns <= 0:
        return []
    if (count := in_flight(arrivals)) is not None:
        return [0] * count
    table: Mapping[str, Any] = {"kind": arrivals} if isinstance(arrivals, str) else arrivals
    match table["kind"]:
        case "periodic":
            return _periodic(_positive(rate, "periodic"), duration_ns, phase)
        case "poisson":
            return _poisson(_positive(rate, "poisson"), duration_ns, random.Random(f"{seed}/{endpoint}/arrivals"))
        case "bursts":
            instants = _periodic(NANOSECONDS / table["interval_ns"], duration_ns, phase)
            return [instant for instant in instants for _ in range(table["size"])]
        case "ramp":
            return _ramp(table["begin"], table["end"], duration_ns, phase)
        case "recorded":
            times: list[int] = table["times_ns"]
            return times[: bisect_left(times, duration_ns)]
        case unknown:
            raise ValueError(f"unknown arrivals {unknown!r}")


def _positive(rate: float | None, kind: str) -> float:
    if rate is None or not rate > 0:
        raise ValueError(f"{kind} arrivals need a rate above 0 /s, not {rate}")
    return rate


def _periodic(rate: float, duration_ns: int, phase: float) -> list[int]:
    # Each time is computed from its number, not from the previous time: rounding errors do not add up.
    count = math.ceil(duration_ns / NANOSECONDS * rate - phase) + 1
    times = (round((number + phase) / rate * NANOSECONDS) for number in range(max(count, 0)))
    return [time for time in times if time < duration_ns]


def _poisson(rate: float, duration_ns: int, generator: random.Random) -> list[int]:
    times = []
    now = generator.expovariate(rate)
    while (time := round(now * NANOSECONDS)) < duration_ns:
        times.append(time)
        now += generator.expovariate(rate)
    return times


def _ramp(begin: float, end: float, duration_ns: int, phase: float) -> list[int]:
    """Return the solutions of begin · t + slope / 2 · t² = n + phase for each request n."""
    duration = duration_ns / NANOSECONDS
    slope = (end - begin) / duration
    times = []
    for number in range(math.ceil((begin + end) / 2 * duration - phase) + 1):
        due = number + phase
        root = begin**2 + 2 * slope * due
        if root < 0:  # a falling ramp ends earlier
            break
        denominator = begin + math.sqrt(root)  # this form of the solution also holds for a slope of 0
        # At rate zero only requests due at the start come; a tiny rate may give a time beyond all floats.
        instant = 2 * due / denominator * NANOSECONDS if denominator else math.inf if due else 0.0
        if instant < duration_ns and (time := round(instant)) < duration_ns:
            times.append(time)
    return times
