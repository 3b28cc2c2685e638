"""How often intervals over repetitions hold the true value: coverage by simulation, which should be 93 to 97 %.

    .venv/bin/python benches/coverage.py [--simulations 100000]

Each row is a distribution of the values of repetitions, each column a number of repetitions. Figures below 93 % or
above 97 % are marked. The last table is the bootstrap of blocks within one run, over autocorrelated latencies.
"""

import argparse
import math

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from cellbed.measure.repetitions import mean_bounds, quantile_bounds, student_bounds
from cellbed.measure.statistics import block_quantiles

SEED = 1
REPETITIONS = (5, 10, 20)
Draws = NDArray[np.float64]


def draw(name: str, shape: tuple[int, ...], random: np.random.Generator) -> Draws:
    """Values of a distribution."""
    match name.split():
        case ["normal"]:
            return random.normal(10, 2, shape)
        case ["log-normal", sigma]:
            return np.exp(random.normal(0, float(sigma), shape))
        case ["t", freedom]:
            return random.standard_t(float(freedom), shape)
        case ["Laplace"]:
            return random.laplace(0, 1, shape)
        case _:
            return random.pareto(3, shape)


MEANS = {"normal": 10.0, "log-normal 0.25": math.exp(1 / 32), "log-normal 0.5": math.exp(1 / 8), "t 3": 0.0,
         "Laplace": 0.0, "log-normal 1": math.exp(1 / 2), "Pareto 3": 0.5}  # fmt: skip
MEDIANS = {"normal": 10.0, "log-normal 0.5": 1.0, "log-normal 1": 1.0, "t 3": 0.0, "Pareto 3": 2 ** (1 / 3) - 1}


def covered(bounds: tuple[Draws, Draws], truth: float) -> float:
    """The share of intervals that hold the true value."""
    return float(((bounds[0] <= truth) & (truth <= bounds[1])).mean())


def mean_coverage(name: str, n: int, simulations: int) -> float:
    """Of the interval of the mean."""
    return covered(mean_bounds(draw(name, (simulations, n), np.random.default_rng(SEED))), MEANS[name])


def median_coverage(name: str, n: int, simulations: int) -> float:
    """Of the interval of the median."""
    return covered(quantile_bounds(draw(name, (simulations, n), np.random.default_rng(SEED)), 0.5), MEDIANS[name])


def paired_coverage(name: str, n: int, simulations: int) -> float:
    """Of the mean difference of pairs without an effect."""
    random = np.random.default_rng(SEED)
    return covered(student_bounds(draw(name, (simulations, n), random) - draw(name, (simulations, n), random)), 0)


def within_coverage(correlation: float, n: int, simulations: int) -> float:
    """Of the median of `n` log-normal latencies of one run, each correlated with the one before."""
    random = np.random.default_rng(SEED)
    bounds = []
    for number in range(simulations):
        noise = random.normal(0, math.sqrt(1 - correlation**2), n)
        latencies, _ = lfilter([1], [1, -correlation], noise, zi=[correlation * random.normal()])
        bounds.append(block_quantiles(np.exp(latencies), (0.5,), number)[0][1:])
    low, high = np.array(bounds).T
    return covered((low, high), 1.0)


def table(heading: str, first: str, columns: dict[int, list[float]], names: list[str]) -> None:
    """Print coverage by distribution (rows) and size (columns)."""
    print(f"\n{heading}\n{first:18}" + "".join(f"{n:>9}" for n in columns))
    for row, name in enumerate(names):
        shares = [values[row] * 100 for values in columns.values()]
        print(f"{name:18}" + "".join(f"{each:8.1f}{' ' if 93 <= each <= 97 else '!'}" for each in shares))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=100_000, metavar="N")
    simulations = parser.parse_args().simulations
    print(f"coverage of 95 % intervals in %, {simulations} simulations; repetitions:")
    for heading, coverage, names in (
        ("mean over repetitions", mean_coverage, MEANS),
        ("median over repetitions", median_coverage, MEDIANS),
        ("mean difference of pairs", paired_coverage, MEANS),
    ):
        columns = {n: [coverage(name, n, simulations) for name in names] for n in REPETITIONS}
        table(heading, "distribution", columns, list(names))
    few = max(1, simulations // 500)
    columns = {n: [within_coverage(correlation, n, few) for correlation in (0.0, 0.5, 0.9)] for n in (200, 500)}
    table(
        f"median within one run, by blocks ({few} simulations); requests:",
        "correlation",
        columns,
        ["0", "0.5", "0.9"],
    )


if __name__ == "__main__":
    main()
