"""The distances of generated series from the recordings that they are like, and of the recordings' halves.

python benches/generated_closeness.py NAME… [--seeds 5]

NAME: of an entry of the archive, one of its directions, or a file of Mahimahi's format.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.archive.generation.markov import fit
from cellbed.archive.generation.recorded import OUTAGE_NS, TICK_NS, Recorded, read_recorded
from cellbed.archive.generation.series import opportunities
from cellbed.archive.randomness import Stream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from cellbed.archive.randomness import Float64

LAGS_NS = 10_000_000_000
"""The largest lag of the compared autocorrelations."""


@dataclass(frozen=True, slots=True)
class Distance:
    """Of two series.

    rate_ks: largest difference of the distribution functions of the rates over 100 ms (Kolmogorov-Smirnov), 0 to 1.
    rate_wasserstein: mean difference of their quantiles, in parts of the first one's mean rate. autocorrelation: mean
    absolute difference over lags from 0.1 to 10 s. outages_per_minute, outage_share: of either, the number of outages
    and the share of time in them. outage_wasserstein_s: mean difference of the quantiles of their lengths; ``None`` if
    either has none. together: of either, opportunities in a millisecond that has any.
    """

    rate_ks: float
    rate_wasserstein: float
    autocorrelation: float
    outages_per_minute: tuple[float, float]
    outage_share: tuple[float, float]
    outage_wasserstein_s: float | None
    together: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Closeness:
    """The distance from the recording to the series, and that between the recording's two halves for scale.

    The halves are shorter, so their figures vary more than those of the whole: a distance like theirs is the smallest
    that can be distinguished.
    """

    fitted: Distance
    halves: Distance


def closeness(recorded: Recorded, generated: Recorded, outage_ns: int = OUTAGE_NS) -> Closeness:
    """Compare `generated` with `recorded`."""
    return Closeness(distance(recorded, generated, outage_ns), distance(*halves(recorded), outage_ns))


def distance(one: Recorded, other: Recorded, outage_ns: int = OUTAGE_NS) -> Distance:
    """Return the distance of two series."""
    import numpy as np

    rates = one.rates(), other.rates()
    lengths = tuple(each.outages(outage_ns)[1] * 1e-9 for each in (one, other))
    minutes = one.duration_ns / 60e9, other.duration_ns / 60e9
    correlations = [_autocorrelation(each) for each in rates]
    lags = min(len(each) for each in correlations)
    apart = np.abs(correlations[0][:lags] - correlations[1][:lags])
    return Distance(
        rate_ks=_ks(*rates),
        rate_wasserstein=_wasserstein(rates[0], rates[1]) / max(float(rates[0].mean()), 1.0),
        autocorrelation=float(apart.mean()) if lags else 0.0,
        outages_per_minute=(len(lengths[0]) / minutes[0], len(lengths[1]) / minutes[1]),
        outage_share=(float(lengths[0].sum()) / minutes[0] / 60, float(lengths[1].sum()) / minutes[1] / 60),
        outage_wasserstein_s=_wasserstein(lengths[0], lengths[1]) if len(lengths[0]) and len(lengths[1]) else None,
        together=(one.together(), other.together()),
    )


def _ks(one: Float64, other: Float64) -> float:
    import numpy as np

    at = np.concatenate((one, other))
    shares = [np.searchsorted(np.sort(each), at, side="right") / len(each) for each in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


def _wasserstein(one: npt.NDArray[np.floating], other: npt.NDArray[np.floating]) -> float:
    import numpy as np

    ranks = (np.arange(1000) + 0.5) / 1000
    return float(np.abs(np.quantile(one, ranks) - np.quantile(other, ranks)).mean())


def _autocorrelation(rates: Float64) -> Float64:
    """At lags of 1, 2, … ticks up to :data:`LAGS_NS`, or a quarter of the series."""
    import numpy as np

    off = rates - rates.mean()
    power = float((off * off).mean())
    lags = range(1, min(LAGS_NS // TICK_NS, len(rates) // 4) + 1)
    return np.array([float((off[:-lag] * off[lag:]).mean()) / power if power else 0.0 for lag in lags])


def halves(recorded: Recorded) -> tuple[Recorded, Recorded]:
    """Return the first and the second half, each from time 0."""
    middle, at = recorded.duration_ns // 2, recorded.at_ns
    return Recorded(at[at <= middle], middle), Recorded(at[at > middle] - middle, recorded.duration_ns - middle)


def generate_like(recorded: Recorded, seed: int) -> Recorded:
    """Return a series like a recording, as long as it."""
    import numpy as np

    model = fit(recorded)
    capacity = model.capacity(recorded.duration_ns, Stream(seed, "closeness"))
    times = list(opportunities(capacity, model.grain, Stream(seed, "closeness opportunities")))
    return Recorded(np.concatenate(times), recorded.duration_ns)


def main() -> None:
    """Print a row for each direction: means over the seeds beside the recording's halves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    print("recording, KS: series / halves, W / mean, autocorrelation, outages per minute, opportunities in a busy ms")
    for name in arguments.names:
        for part, recorded in read_recorded(name, Path.cwd()).parts.items():
            found = [closeness(recorded, generate_like(recorded, seed)) for seed in range(1, arguments.seeds + 1)]

            def mean(of: Callable[[Distance], float], found: list[Closeness] = found) -> float:
                return statistics.fmean(of(each.fitted) for each in found)

            between = found[0].halves
            cells = [f"{name} {part}"]
            for of in (
                lambda it: it.rate_ks,
                lambda it: it.rate_wasserstein,
                lambda it: it.autocorrelation,
            ):
                cells.append(f"{mean(of):.3f} / {of(between):.3f}")
            cells.append(
                f"{found[0].fitted.outages_per_minute[0]:.1f} → {mean(lambda it: it.outages_per_minute[1]):.1f}"
            )
            cells.append(f"{found[0].fitted.together[0]:.1f} → {mean(lambda it: it.together[1]):.1f}")
            print(", ".join(cells))


if __name__ == "__main__":
    main()
