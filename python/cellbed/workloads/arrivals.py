"""When requests are due. The schedule is computed before the run and never waits for the system under test.

An open-loop generator that measures from the *intended* time does not hide its own stalls: a request that leaves late
because the generator was held up carries that wait in its latency (coordinated omission; Schroeder, Wierman,
Harchol-Balter, "Open Versus Closed", NSDI 2006, for why the two kinds of loop differ).
"""

import math
import random
from typing import Literal

Arrivals = Literal["periodic", "poisson", "closed"]

NANOSECONDS = 1_000_000_000


def schedule(
    arrivals: Arrivals, *, rate: float | None, duration_ns: int, seed: int, endpoint: str, phase: float = 0.0
) -> list[int]:
    """Intended times in nanoseconds from the start of the workload, ascending, all below ``duration_ns``.

    periodic: one request every ``1/rate`` s, the first after ``phase`` (0 to 1) of a period.
    poisson: exponential gaps of mean ``1/rate`` s, drawn from a generator of this endpoint: the same ``seed`` and
    ``endpoint`` give the same times. closed: only the first; each further request is due when its predecessor is over.

    Raises ValueError for an open loop without a positive rate.
    """
    if duration_ns <= 0:
        return []
    if arrivals == "closed":
        return [0]
    if rate is None or not rate > 0:
        raise ValueError(f"{arrivals} arrivals need a rate above 0 /s, not {rate}")
    if arrivals == "periodic":
        return _periodic(rate, duration_ns, phase)
    if arrivals == "poisson":
        return _poisson(rate, duration_ns, random.Random(f"{seed}/{endpoint}/arrivals"))
    raise ValueError(f"unknown arrivals {arrivals!r}: periodic, poisson or closed")


def _periodic(rate: float, duration_ns: int, phase: float) -> list[int]:
    # Each time is computed from its number, not from its predecessor: rounding does not add up.
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
