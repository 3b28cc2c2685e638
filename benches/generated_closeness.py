"""Distances between generated series and their recordings, and between the halves of a recording.

python benches/generated_closeness.py NAME… [--seeds 5]

NAME: of an entry of the archive, one of its directions, or a file of Mahimahi's format.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cellbed.archive.generation.markov import fit
from cellbed.archive.generation.recorded import OUTAGE_NS, TICK_NS, Recorded, read_recorded
from cellbed.archive.generation.series import opportunities
from cellbed.archive.randomness import Stream

Float64 = npt.NDArray[np.float64]

LAGS_NS = 10_000_000_000
"""Maximum lag of the compared autocorrelations, ns."""


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance of two series.

    rate_ks: maximum difference of the distribution functions of the rates over 100 ms (Kolmogorov-Smirnov), 0 to 1.
    rate_wasserstein: mean difference of the quantiles of the rates, divided by the first series' mean rate.
    autocorrelation: mean absolute difference over lags from 0.1 to 10 s. outages_per_minute: of both series. together:
    mean number of opportunities in a busy millisecond, of both series.
    """

    rate_ks: float
    rate_wasserstein: float
    autocorrelation: float
    outages_per_minute: tuple[float, float]
    together: tuple[float, float]


def distance(one: Recorded, other: Recorded) -> Distance:
    """Return the distance of two series."""
    rates = one.rates(), other.rates()
    outages = [len(each.outages(OUTAGE_NS)[1]) / (each.duration_ns / 60e9) for each in (one, other)]
    correlations = [_autocorrelation(each) for each in rates]
    lags = min(len(each) for each in correlations)
    apart = np.abs(correlations[0][:lags] - correlations[1][:lags])
    return Distance(
        rate_ks=_ks(*rates),
        rate_wasserstein=_wasserstein(rates[0], rates[1]) / max(float(rates[0].mean()), 1.0),
        autocorrelation=float(apart.mean()) if lags else 0.0,
        outages_per_minute=(outages[0], outages[1]),
        together=(one.together(), other.together()),
    )


def _ks(one: Float64, other: Float64) -> float:
    """Return the largest difference of the distribution functions."""
    at = np.concatenate((one, other))
    shares = [np.searchsorted(np.sort(each), at, side="right") / len(each) for each in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


def _wasserstein(one: npt.NDArray[np.floating], other: npt.NDArray[np.floating]) -> float:
    """Return the mean difference of the quantiles."""
    ranks = (np.arange(1000) + 0.5) / 1000
    return float(np.abs(np.quantile(one, ranks) - np.quantile(other, ranks)).mean())


def _autocorrelation(rates: Float64) -> Float64:
    """Return the autocorrelation at lags of 1, 2, … ticks up to :data:`LAGS_NS`, or a quarter of the series."""
    off = rates - rates.mean()
    power = float((off * off).mean())
    lags = range(1, min(LAGS_NS // TICK_NS, len(rates) // 4) + 1)
    return np.array([float((off[:-lag] * off[lag:]).mean()) / power if power else 0.0 for lag in lags])


def halves(recorded: Recorded) -> tuple[Recorded, Recorded]:
    """Return the two halves of a recording, each with times from 0."""
    middle, at = recorded.duration_ns // 2, recorded.at_ns
    return Recorded(at[at <= middle], middle), Recorded(at[at > middle] - middle, recorded.duration_ns - middle)


def generate_like(recorded: Recorded, seed: int) -> Recorded:
    """Return a generated series with a recording's characteristics and length."""
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
            fitted = [distance(recorded, generate_like(recorded, seed)) for seed in range(1, arguments.seeds + 1)]
            between = distance(*halves(recorded))
            cells = [f"{name} {part}"]
            for measure in ("rate_ks", "rate_wasserstein", "autocorrelation"):
                mean = statistics.fmean(getattr(each, measure) for each in fitted)
                cells.append(f"{mean:.3f} / {getattr(between, measure):.3f}")
            for measure in ("outages_per_minute", "together"):
                pairs = [getattr(each, measure) for each in fitted]
                cells.append(f"{pairs[0][0]:.1f} → {statistics.fmean(pair[1] for pair in pairs):.1f}")
            print(", ".join(cells))


if __name__ == "__main__":
    main()
