"""Round-trip times: their distribution, modes, loss, and variation by hour of the day."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cellbed.archive.statistics.distribution import Distribution, begins_of_runs
from cellbed.archive.statistics.modes import modes
from cellbed.archive.statistics.silences import Silences
from cellbed.archive.statistics.spool import Spool

PERCENTILES = {"p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}

_MOST_OF_AN_HOUR = 20_000
"""Different round-trip times kept exactly for each of the 24 hours."""

Times = NDArray[np.int64]
Floats = NDArray[np.float64]


class RoundTrips:
    """Takes probes in order of time and adds up.

    duration_ns: of the series. steps: into how many bins the profile parts it; least, mean and most of each, and lost.
    starts_at_s: second of the day at which it began. seconds: means in ms over each second that has an answer.
    """

    def __init__(self, duration_ns: int, silences: Silences, steps: int, starts_at_s: float) -> None:
        self.times = Distribution()
        self.silences = silences
        self.hours = [Distribution(_MOST_OF_AN_HOUR) for _ in range(24)]
        self.sent_by_hour = np.zeros(24, np.int64)
        self.probes = 0
        self._starts_at_s = starts_at_s
        self.step_ns = max(1, -(-duration_ns // steps))
        count = -(-duration_ns // self.step_ns) + 1
        self.least, self.most = np.full(count, np.inf), np.full(count, -np.inf)
        self.sums, self.answered, self.lost = np.zeros(count), np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.seconds = Spool()
        # The second that the next probes may continue: its number, the sum and the number of its answers.
        self._second = (-1, 0.0, 0)
        self._jitter = 0.0
        self._pairs = 0
        self._before: float | None = None
        self._run = self._longest_run = 0
        self._last: tuple[int, bool] | None = None
        self._intervals = Distribution(_MOST_OF_AN_HOUR)
        # The longest of them, and when it began.
        self._pause = (0, 0)

    def add(self, at: Times, trips: Floats) -> None:
        """Take the next probes. trips: ns, NaN where no answer came."""
        lost = np.isnan(trips)
        hour = ((at / 1e9 + self._starts_at_s) // 3600 % 24).astype(np.int64)
        self.probes += len(at)
        self.sent_by_hour += np.bincount(hour, minlength=24)
        self._add_intervals(at)
        self._add_losses(at, lost)
        step = at // self.step_ns
        self.lost += np.bincount(step[lost], minlength=len(self.lost))
        at, trips, hour, step = at[~lost], trips[~lost], hour[~lost], step[~lost]
        if not len(trips):
            return
        self.times.add(trips)
        for each in np.flatnonzero(np.bincount(hour)):
            self.hours[each].add(trips[hour == each])
        begins = begins_of_runs(step)
        steps = step[begins]
        self.least[steps] = np.minimum(self.least[steps], np.minimum.reduceat(trips, begins))
        self.most[steps] = np.maximum(self.most[steps], np.maximum.reduceat(trips, begins))
        self.sums[steps] += np.add.reduceat(trips, begins)
        self.answered[steps] += np.diff(begins, append=len(trips))
        self._add_seconds(at // 10**9, trips)
        changes = np.abs(np.diff(trips, prepend=trips[0] if self._before is None else self._before))
        self._pairs += len(trips) - (self._before is None)
        self._jitter += float(changes.sum())
        self._before = float(trips[-1])

    def finish(self, duration_ns: int) -> None:
        """Nothing more comes."""
        if self._last is not None:
            self.silences.follow(np.array([self._last[0]]), np.array([False]))
        self.silences.close(duration_ns)
        self._end_second()

    def figures(self) -> dict[str, float | int | list[float] | list[int]]:
        """The statistics of the probes."""
        lost = self.probes - self.times.count
        found: dict[str, float | int | list[float] | list[int]] = {"probes": self.probes, "lost": lost}
        if not self.probes:
            return found
        found |= {"loss": lost / self.probes, "loss_longest_run": self._longest_run}
        if self._intervals.count:
            found["interval_ms"] = float(self._intervals.quantiles(np.array([0.5]))[0]) / 1e6
            found |= {"pause_longest_ms": self._pause[0] / 1e6, "pause_longest_at_s": self._pause[1] / 1e9}
        if not self.times.count:
            return found
        values, _ = self.times.table()
        found |= {"mean_ms": self.times.mean / 1e6, "least_ms": values[0] / 1e6, "most_ms": values[-1] / 1e6}
        supported = {name: share for name, share in PERCENTILES.items() if _supported(share, self.times.count)}
        quantiles = self.times.quantiles(np.array(list(supported.values())))
        found |= {f"{name}_ms": float(value) / 1e6 for name, value in zip(supported, quantiles, strict=True)}
        if self.times.mean > 0:
            found["cv"] = self.times.deviation / self.times.mean
        if self._pairs:
            found["jitter_ms"] = self._jitter / self._pairs / 1e6
        places, shares = modes(*self.times.table())
        found |= {"modes": len(places), "modes_ms": [place / 1e6 for place in places], "modes_share": shares}
        return found | self._by_hour()

    def _by_hour(self) -> dict[str, list[float] | list[int]]:
        hours = [hour for hour in range(24) if self.hours[hour].count]
        if len(hours) < 2:
            return {}
        both = [self.hours[hour].quantiles(np.array([0.5, 0.95])) / 1e6 for hour in hours]
        return {
            "hours": hours,
            "hourly_p50_ms": [float(pair[0]) for pair in both],
            "hourly_p95_ms": [float(pair[1]) for pair in both],
            "hourly_loss": [1 - self.hours[hour].count / int(self.sent_by_hour[hour]) for hour in hours],
        }

    def _add_intervals(self, at: Times) -> None:
        times = at if self._last is None else np.concatenate(([self._last[0]], at))
        intervals = np.diff(times)
        if not len(intervals):
            return
        self._intervals.add(intervals)
        most = int(np.argmax(intervals))
        if intervals[most] > self._pause[0]:
            self._pause = (int(intervals[most]), int(times[most]))

    def _add_losses(self, at: Times, lost: NDArray[np.bool_]) -> None:
        """Outages last from the first to the last of probes that are lost one after the other."""
        before = np.array([], np.int64) if self._last is None else np.array([self._last[0]])
        was_lost = np.array([], np.bool_) if self._last is None else np.array([self._last[1]])
        both = np.concatenate((was_lost, lost[:-1])) & lost[1 - len(before) :]
        self.silences.follow(np.concatenate((before, at[:-1])), both)
        self._last = (int(at[-1]), bool(lost[-1]))
        edges = np.flatnonzero(np.diff(lost, prepend=self._run > 0))
        if self._run:
            edges = np.concatenate(([-self._run], edges))
        self._run = 0
        if len(edges) % 2:
            self._run = len(lost) - int(edges[-1])
            edges = np.append(edges, len(lost))
        if len(edges):
            self._longest_run = max(self._longest_run, int((edges[1::2] - edges[::2]).max()))

    def _add_seconds(self, second: Times, trips: Floats) -> None:
        begins = begins_of_runs(second)
        sums, counts = np.add.reduceat(trips, begins), np.diff(begins, append=len(trips))
        number, total, answered = self._second
        if number == second[0]:
            sums[0] += total
            counts[0] += answered
        else:
            self._end_second()
        self.seconds.append(sums[:-1] / counts[:-1] / 1e6)
        self._second = (int(second[-1]), float(sums[-1]), int(counts[-1]))

    def _end_second(self) -> None:
        _, total, answered = self._second
        if answered:
            self.seconds.append(np.array([total / answered / 1e6]))


def _supported(share: float, count: int) -> bool:
    """Whether so many values have one on either side of the percentile; the median is given for any number."""
    return share == 0.5 or min(share, 1 - share) * count >= 1 - 1e-9
