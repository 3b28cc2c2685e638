"""Share of intervals over repetitions that hold the true value, by simulation; it should be 93 to 97 %.

    .venv/bin/python benches/interval_coverage.py [--simulations 100000] [--seed 1]

Each row is a distribution of the values of repetitions, each column a number of repetitions. Figures below 93 % or
above 97 % are marked. Then come percentiles within one run, whose requests depend on each other: the share of intervals
that hold the true value, and the share of runs that have an interval; below 90 % is marked. Random processes follow,
by kinds of ``processes.py``, without the half used to develop the rule (``--developed`` prints that half alone). The
last tables compare two runs: the share of pairs called different where both runs are equal (above 7 % is marked) and
where the second is a fifth slower; then repeated runs of two settings, one slower than the other.
"""

import argparse
import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import groupby

import numpy as np
import processes
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.stats import norm

from cellbed.measure.repetitions import mean_bounds, median_bounds
from cellbed.measure.statistics import label, median_of_pairs, percentile_difference, percentiles, smallest_sample

SEED = 1
REPETITIONS = (3, 5, 10, 20)
Draws = NDArray[np.float64]


def draw(name: str, shape: tuple[int, ...], random: np.random.Generator) -> Draws:
    """Return values of a distribution; only the t distribution has negative values."""
    match name.split():
        case ["normal"]:
            return random.normal(10, 2, shape)
        case ["exponential"]:
            return random.exponential(1, shape)
        case ["gamma", _]:
            return random.gamma(2, 1, shape)
        case ["log-normal", sigma]:
            return np.exp(random.normal(0, float(sigma), shape))
        case ["uniform"]:
            return random.random(shape)
        case ["two", "modes"]:
            return np.where(random.random(shape) < 0.3, 5, 1) * np.exp(random.normal(0, 0.1, shape))
        case ["one", *_]:
            return np.where(random.random(shape) < 0.1, 10, 1) * np.exp(random.normal(0, 0.1, shape))
        case _:
            return random.standard_t(3, shape)


MEANS = {"normal": 10.0, "uniform": 0.5, "gamma 2": 2.0, "exponential": 1.0, "log-normal 0.5": math.exp(1 / 8),
         "log-normal 1": math.exp(1 / 2), "two modes": 2.2 * math.exp(0.005), "one in ten": 1.9 * math.exp(0.005),
         "t 3": 0.0}  # fmt: skip
MEDIANS = {"normal": 10.0, "uniform": 0.5, "gamma 2": 1.67834699, "exponential": math.log(2), "log-normal 0.5": 1.0,
           "log-normal 1": 1.0, "t 3": 0.0}  # fmt: skip
PAIRS = ("normal", "exponential", "log-normal 0.5", "log-normal 1")


def coverage(bounds: tuple[Draws, Draws], truth: float) -> float:
    """Return the share of intervals that hold the true value."""
    return float(((bounds[0] <= truth) & (truth <= bounds[1])).mean())


def mean_coverage(name: str, n: int, simulations: int) -> float:
    """Return the coverage of the interval of the mean."""
    samples = draw(name, (simulations, n), np.random.default_rng(SEED))
    return coverage(mean_bounds(samples, -math.inf if name == "t 3" else 0), MEANS[name])


def median_coverage(name: str, n: int, simulations: int) -> float:
    """Return the coverage of the interval of the median; nan if the repetitions do not support an interval."""
    samples = draw(name, (simulations, n), np.random.default_rng(SEED))
    return coverage(median_bounds(samples), MEDIANS[name]) if n >= 5 else math.nan


def coverage_of_pairs(name: str, n: int, simulations: int) -> float:
    """Return the coverage of the mean difference of pairs without an effect."""
    random = np.random.default_rng(SEED)
    return coverage(mean_bounds(draw(name, (simulations, n), random) - draw(name, (simulations, n), random)), 0)


def _proportional(name: str, n: int, simulations: int) -> tuple[Draws, Draws]:
    """Return pairs whose second value is 1.5 times the first, each value with 10 % of noise."""
    random = np.random.default_rng(SEED)
    base, shape = draw(name, (simulations, n), random), (simulations, n)
    first, second = (base * factor * np.exp(random.normal(0, 0.1, shape)) for factor in (1, 1.5))
    return first, second


def difference_coverage(name: str, n: int, simulations: int) -> float:
    """Return the coverage of the mean difference of pairs with a multiplying factor."""
    first, second = _proportional(name, n, simulations)
    return coverage(mean_bounds(second - first), 0.5 * math.exp(0.005) * MEANS[name])


def ratio_coverage(name: str, n: int, simulations: int) -> float:
    """Return the coverage of the ratio of pairs with a multiplying factor."""
    first, second = _proportional(name, n, simulations)
    return coverage(mean_bounds(np.log(second / first)), math.log(1.5))


Series = Callable[[int, np.random.Generator], Draws]


def queue(load: float) -> Series:
    """Return sojourn times of an M/M/1 queue in equilibrium, with a mean service time of 1 (Lindley's recursion)."""

    def draw_run(n: int, random: np.random.Generator) -> Draws:
        first = random.exponential(1 / (1 - load)) if random.random() < load else 0.0
        service, apart = random.exponential(1, n), random.exponential(1 / load, n)
        steps = np.concatenate([[first], service[:-1] - apart[:-1]])
        walk = np.cumsum(steps)
        return walk - np.minimum(np.minimum.accumulate(walk), 0) + service

    return draw_run


def correlate(slow: float, correlation: float) -> Series:
    """Return log-normal latencies. slow: share of an AR(1) process in the variance of their logarithms."""

    def draw_run(n: int, random: np.random.Generator) -> Draws:
        noise = random.normal(0, math.sqrt(1 - correlation**2), n)
        process, _ = lfilter([1], [1, -correlation], noise, zi=[correlation * random.normal()])
        return np.exp(math.sqrt(slow) * process + math.sqrt(1 - slow) * random.normal(size=n))

    return draw_run


def outage(share: float) -> Series:
    """Return log-normal latencies with an outage at a random place. share: waiting share; the first waits longest."""

    def draw_run(n: int, random: np.random.Generator) -> Draws:
        length, since = max(1, round(share * n)), (np.arange(n) - random.integers(n)) % n
        return np.exp(random.normal(0, 0.3, n)) + np.where(since < length, 20 * (1 - since / length), 0)

    return draw_run


def pareto(tail: float) -> Series:
    """Return independent latencies with a Pareto distribution."""
    return lambda n, random: random.random(n) ** (-1 / tail)


def bimodal(stay: float) -> Series:
    """Return latencies around 1 or 5, three in ten slow. stay: probability that a slow latency follows a slow one."""

    def draw_run(n: int, random: np.random.Generator) -> Draws:
        chance, slow = random.random(n), random.random() < 0.3
        states = np.empty(n, bool)
        for each in range(n):
            slow = states[each] = chance[each] < (stay if slow else (1 - stay) * 0.3 / 0.7)
        return np.where(states, 5, 1) * np.exp(random.normal(0, 0.1, n))

    return draw_run


def periodic(period: float) -> Series:
    """Return latencies over a cyclic trace of `period` requests, from a random offset."""

    def draw_run(n: int, random: np.random.Generator) -> Draws:
        place = 2 * np.pi * (np.arange(n) / period + random.random())
        return np.exp(np.sin(place) + random.normal(0, 0.3, n))

    return draw_run


def long_range(hurst: float, deviation: float) -> Series:
    """Return latencies that vary at all time scales: log-normal fractional Gaussian noise."""
    draw_runs = processes.fractional(hurst, deviation)
    return lambda n, random: draw_runs(1, n, random)[0]


def trend(n: int, random: np.random.Generator) -> Draws:
    """Return latencies that grow by a factor of e over the run."""
    return np.exp(np.arange(n) / n + random.normal(0, 0.5, n))


def _quantile_of(series: Series) -> Callable[[float], float]:
    """Return the quantile of a series, from a long run."""
    return lambda quantile: float(np.quantile(series(1_000_000, np.random.default_rng(SEED)), quantile))


RUNS: dict[str, tuple[Series, Callable[[float], float]]] = {
    "independent": (correlate(0, 0), lambda q: math.exp(norm.ppf(q))),
    "M/M/1, load 0.5": (queue(0.5), lambda q: -math.log(1 - q) / 0.5),
    "M/M/1, load 0.8": (queue(0.8), lambda q: -math.log(1 - q) / 0.2),
    "AR(1), 0.9": (correlate(1, 0.9), lambda q: math.exp(norm.ppf(q))),
    "outage, 5 %": (outage(0.05), cache(_quantile_of(outage(0.05)))),
    "outage, 15 %": (outage(0.15), cache(_quantile_of(outage(0.15)))),
    "weak slow part": (correlate(0.05, 0.98), lambda q: math.exp(norm.ppf(q))),
    "Pareto, 1.2": (pareto(1.2), lambda q: (1 - q) ** (-1 / 1.2)),
    "bimodal": (bimodal(0.7), cache(_quantile_of(bimodal(0.7)))),
    "periodic, 50": (periodic(50), cache(_quantile_of(periodic(50)))),
    "trend": (trend, cache(_quantile_of(trend))),
    "long range, 0.75": (long_range(0.75, 1), lambda q: math.exp(norm.ppf(q))),
    "long range, 0.9": (long_range(0.9, 1), lambda q: math.exp(norm.ppf(q))),
}
"""Series of latencies and their true quantiles."""
REQUESTS = (100, 250, 500, 1000, 2500)
QUANTILES = (0.5, 0.9, 0.99)


def within_coverage(name: str, n: int, simulations: int, seed: int = SEED) -> list[tuple[float, float]]:
    """Return for each quantile the share of intervals that hold the true value, and of runs with an interval."""
    random, (series, truth) = np.random.default_rng([seed, n]), RUNS[name]
    return shares((series(n, random) for _ in range(simulations)), [truth(quantile) for quantile in QUANTILES])


def shares(runs: Iterable[Draws], truths: Sequence[float]) -> list[tuple[float, float]]:
    """Return for each quantile the share of intervals that hold the true value, and of runs with an interval."""
    found = [percentiles(run, QUANTILES) for run in runs]
    columns = []
    for column, true in enumerate(truths):
        intervals = [run[column] for run in found if run[column].has_interval]
        held = sum((at.low or math.inf) <= true <= (at.high or math.inf) for at in intervals)
        columns.append((held / len(intervals) if intervals else math.nan, len(intervals) / len(found)))
    return columns


def within_tables(simulations: int, seed: int) -> None:
    """Print coverage and availability of intervals within a run."""
    cells = {(name, n): within_coverage(name, n, simulations, seed) for n in REQUESTS for name in RUNS}
    for column, quantile in enumerate(QUANTILES):
        print(f"\n{label(quantile)} within one run, held and (having an interval), {simulations} runs; requests:")
        print(f"{'':24}" + "".join(f"{n:>15}" for n in REQUESTS))
        for name in RUNS:
            line = f"{name:24}"
            for n in REQUESTS:
                held, having = cells[name, n][column]
                mark = "!" if held < 0.9 else " "
                line += f"{'–' if math.isnan(held) else f'{held * 100:.0f}{mark}':>7}{f'({having * 100:.3g})':>8}"
            print(line)


def family_coverage(process: processes.Process, simulations: int, seed: int = SEED) -> list[tuple[float, float]]:
    """Return the `shares` of a random process."""
    runs = process.draw(simulations, process.n, np.random.default_rng(seed))
    return shares(runs, list(processes.quantiles(process, QUANTILES)))


def reported(seed: int, developed: bool, each: int = 10) -> list[processes.Process]:
    """Return the half of the random processes that is reported, or the half used to develop the rule."""
    return [process for process in processes.family(seed, each) if process.developed == developed]


def kind_of(process: processes.Process) -> str:
    """Return the kind of a random process."""
    return process.name.split()[0]


def family_table(simulations: int, seed: int, developed: bool) -> None:
    """Print the mean shares of each kind of random processes, over runs of 60 to 20,000 requests."""
    print(f"\nrandom processes, {simulations} runs of each: held and (having an interval)")
    print(f"{'':24}" + "".join(f"{label(quantile):>15}" for quantile in QUANTILES))
    family = reported(seed, developed)
    found = np.array([family_coverage(process, simulations, seed) for process in family])
    kinds = np.array([kind_of(process) for process in family])
    for kind in (*dict.fromkeys(kinds), "all"):
        held, having = found[(kinds == kind) | (kind == "all")].transpose(2, 0, 1)
        with np.errstate(invalid="ignore"):
            means = np.nansum(held * having, axis=0) / having.sum(axis=0)
        cells = (
            f"{mean * 100:>7.0f}{f'({part * 100:.3g})':>8}" for mean, part in zip(means, having.mean(0), strict=True)
        )
        print(f"{kind:24}" + "".join(cells), flush=True)


Pairs = Callable[[int, np.random.Generator], tuple[Draws, Draws]]


def _pair(common: Series, own: Series, paired: bool = True) -> Pairs:
    """Return a generator of two runs with a common and an own factor. paired: use the same common factor for both."""

    def draw_pair(n: int, random: np.random.Generator) -> tuple[Draws, Draws]:
        first = common(n, random)
        second = first if paired else common(n, random)
        return first * own(n, random), second * own(n, random)

    return draw_pair


def _part(scale: float, correlation: float) -> Series:
    """Return a log-normal factor of a latency, an AR(1) process. scale: deviation of its logarithm."""
    return lambda n, random: correlate(1, correlation)(n, random) ** scale


COMPARED: dict[str, tuple[bool, Pairs]] = {
    "own parts only": (True, _pair(_part(0, 0), _part(0.5, 0.9))),
    "common trace": (True, _pair(_part(0.35, 0.98), _part(0.35, 0.9))),
    "common trace, noise": (True, _pair(_part(0.35, 0.9), _part(0.35, 0))),
    "common queue": (True, _pair(queue(0.5), _part(0.2, 0.9))),
    "common outage": (True, _pair(outage(0.15), _part(0.1, 0.9))),
    "common cycle": (True, _pair(periodic(50), _part(0.3, 0.9))),
    "common Pareto": (True, _pair(pareto(1.2), _part(0.3, 0.9))),
    "own long range, 0.75": (True, _pair(_part(0, 0), long_range(0.75, 0.5))),
    "own long range, 0.9": (True, _pair(_part(0, 0), long_range(0.9, 0.5))),
    **{f"unpaired, {name}": (False, _pair(RUNS[name][0], _part(0, 0), paired=False)) for name in RUNS},
}
"""Generators of pairs of equal runs, and whether both runs have the same requests."""


def different(pairs: Iterable[tuple[Draws, Draws]], paired: bool, factor: float = 1.0) -> list[float]:
    """Return the share of pairs called different by each percentile and, for paired runs, request by request.
    factor: slowdown of the second run."""
    found = []
    for first, second in pairs:
        intervals = [
            percentile_difference(first, factor * second, quantile, paired=paired)
            if len(first) >= smallest_sample(quantile)
            else (0, -math.inf, math.inf)
            for quantile in QUANTILES
        ]
        intervals += [median_of_pairs(first, factor * second)] * paired
        found.append([low > 0 or high < 0 for _, low, high in intervals])
    return [float(share) for share in np.mean(found, axis=0)]


def detection_shares(name: str, n: int, simulations: int, seed: int, factor: float = 1.0) -> list[float]:
    """Return the shares of pairs of `COMPARED` that are called :func:`different`."""
    random, (paired, draw_pair) = np.random.default_rng([seed, n]), COMPARED[name]
    return different((draw_pair(n, random) for _ in range(simulations)), paired, factor)


def family_pairs(
    process: processes.Process, family: list[processes.Process], simulations: int, seed: int = SEED
) -> list[list[float]]:
    """Return the shares of equal runs of a random process that are called :func:`different`: unpaired, paired, and as
    the own factors of paired runs with a common factor from a process of another kind."""
    random = np.random.default_rng([seed, zlib.crc32(process.name.encode())])
    others = [each for each in family if kind_of(each) != kind_of(process)]
    common = others[random.integers(len(others))].draw(simulations, process.n, random)
    own = process.draw(2 * simulations, process.n, random) ** processes.draw_log_uniform(random, 0.1, 1)
    apart = list(zip(own[::2], own[1::2], strict=True))
    joined = ((both * first, both * second) for both, (first, second) in zip(common, apart, strict=True))
    return [different(apart, False), different(apart, True), different(joined, True)]


def print_family_comparisons(simulations: int, seed: int, developed: bool) -> None:
    """Print the false positives of comparisons over random processes, by kind and by size of the run."""
    family, found = reported(seed, developed), {}
    for process in family:
        found[process.name] = family_pairs(process, family, simulations, seed)
    groups = {kind: list(members) for kind, members in groupby(family, kind_of)}
    for low, high in ((60, 250), (250, 1000), (1000, 5000), (5000, 20_001)):
        groups[f"{low:,} to {high // 10 * 10:,} requests"] = [each for each in family if low <= each.n < high]
    print(f"\nequal runs of random processes called different, %, as below; {simulations} pairs of each:")
    print(f"{'':26}{'unpaired':>20}{'paired, own parts':>26}{'paired, common part':>26}")
    for group, members in {**groups, "all": family}.items():
        line = f"{group:26}"
        for column, width in enumerate((20, 26, 26)):
            means = np.mean([found[each.name][column] for each in members], axis=0)
            line += f"{' / '.join(f'{each * 100:.1f}' for each in means) + '!' * int(max(means) > 0.07):>{width}}"
        print(line, flush=True)


def false_positives(name: str, n: int, simulations: int, seed: int = SEED) -> list[float]:
    """Return the shares of pairs of equal runs that are called different."""
    return detection_shares(name, n, simulations, seed)


def power(name: str, n: int, simulations: int, seed: int = SEED) -> list[float]:
    """Return the shares of pairs called different whose second run is a fifth slower."""
    return detection_shares(name, n, simulations, seed, 1.2)


def print_comparisons(simulations: int, seed: int) -> None:
    """Print false positives and power of comparisons of two runs."""
    for heading, shares, most in (
        ("equal runs called different", false_positives, 0.07),
        ("a run that is a fifth slower called different", power, 1.0),
    ):
        print(f"\n{heading}, %: median / P90 / P99 / request by request; {simulations} pairs; requests:")
        print(f"{'':26}" + "".join(f"{n:>20}" for n in REQUESTS))
        for name in COMPARED:
            line = f"{name:26}"
            for n in REQUESTS:
                found = shares(name, n, simulations, seed)
                line += f"{' / '.join(f'{each * 100:.0f}' for each in found) + '!' * int(max(found) > most):>20}"
            print(line, flush=True)


def power_of_repetitions(name: str, repetitions: int, factor: float, simulations: int, seed: int = SEED) -> float:
    """Return the share of comparisons that find a setting `factor` slower. A comparison uses the medians of repeated
    runs, of 500 requests each."""
    random, (_, draw_pair) = np.random.default_rng([seed, repetitions]), COMPARED[name]
    medians = np.array([np.median(draw_pair(500, random), axis=1) for _ in range(simulations * repetitions)])
    differences = (factor * medians[:, 1] - medians[:, 0]).reshape(simulations, repetitions)
    low, high = mean_bounds(differences)
    return float(((low > 0) | (high < 0)).mean())


def print_power_of_repetitions(simulations: int, seed: int) -> None:
    """Print the power of comparisons of repeated runs."""
    columns = [(repetitions, factor) for factor in (1.0, 1.1, 1.2) for repetitions in (3, 5, 10)]
    print(f"\nrepeated runs called different, %, {simulations} comparisons; repetitions × factor:")
    print(f"{'':26}" + "".join(f"{f'{repetitions} × {factor}':>10}" for repetitions, factor in columns))
    for name in ("own parts only", "common trace", "common queue", "common outage"):
        found = (power_of_repetitions(name, repetitions, factor, simulations, seed) for repetitions, factor in columns)
        print(f"{name:26}" + "".join(f"{each * 100:>10.0f}" for each in found), flush=True)


def table(heading: str, first: str, columns: dict[int, list[float]], names: list[str]) -> None:
    """Print coverage by distribution (rows) and size (columns)."""
    print(f"\n{heading}\n{first:18}" + "".join(f"{n:>9}" for n in columns))
    for row, name in enumerate(names):
        shares = [values[row] * 100 for values in columns.values()]
        print(
            f"{name:18}"
            + "".join(f"{each:8.1f}{' ' if 93 <= each <= 97 or math.isnan(each) else '!'}" for each in shares)
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=100_000, metavar="N")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N", help="of the runs of the last tables")
    parser.add_argument("--developed", action="store_true", help="print random processes alone, the other half")
    options = parser.parse_args()
    if options.developed:
        family_table(max(1, options.simulations // 1000), options.seed, True)
        print_family_comparisons(max(1, options.simulations // 1000), options.seed, True)
        return
    simulations = options.simulations
    print(f"coverage of 95 % intervals in %, {simulations} simulations; repetitions:")
    for heading, coverage, names in (
        ("mean over repetitions", mean_coverage, MEANS),
        ("median over repetitions", median_coverage, MEDIANS),
        ("mean difference of pairs, no effect", coverage_of_pairs, MEANS),
        ("mean difference of pairs, × 1.5", difference_coverage, PAIRS),
        ("ratio of pairs, × 1.5", ratio_coverage, PAIRS),
    ):
        columns = {n: [coverage(name, n, simulations) for name in names] for n in REPETITIONS}
        table(heading, "distribution", columns, list(names))
    within_tables(max(1, simulations // 50), options.seed)
    family_table(max(1, simulations // 1000), options.seed, False)
    print_family_comparisons(max(1, simulations // 1000), options.seed, False)
    print_comparisons(max(1, simulations // 500), options.seed)
    print_power_of_repetitions(max(1, simulations // 500), options.seed)


if __name__ == "__main__":
    main()
