"""Random processes of dependent latencies, for ``interval_coverage.py``: parameters and runs are drawn by seed.

A process draws whole runs, one in each row. The kind of a process fixes the mechanism; correlation, load, sojourns,
shares and tails are drawn. Half of the processes, chosen by a hash of their names, are for development; the other half
is reported.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

Draws = NDArray[np.float64]
Runs = Callable[[int, int, np.random.Generator], Draws]
"""Draws runs: number of runs, number of requests in a run, generator."""
Random = np.random.Generator


def draw_log_uniform(random: Random, low: float, high: float) -> float:
    """Return a number that is uniform on a logarithmic scale."""
    return float(np.exp(random.uniform(np.log(low), np.log(high))))


def noise(random: Random, deviation: float, shape: tuple[int, ...]) -> Draws:
    """Return independent log-normal factors."""
    return np.exp(random.normal(0, deviation, shape))


def gaussian(denominator: Draws, numerator: Draws, burn: int = 3000) -> Runs:
    """Return a linear filter of white noise with a variance of 1."""
    impulse = lfilter(numerator, denominator, np.eye(1, 20_000)[0])
    scaled = numerator / np.sqrt((impulse**2).sum())
    return lambda runs, n, random: lfilter(scaled, denominator, random.normal(size=(runs, burn + n)), axis=1)[:, burn:]


def arma(random: Random) -> Runs:
    """Return log-normal latencies of an ARMA process with up to three poles of modulus up to 0.99."""
    denominator = np.ones(1)
    for _ in range(random.integers(1, 3)):
        pole = 1 - draw_log_uniform(random, 0.01, 1)
        angle = random.choice([0, 0, 0, np.pi, draw_log_uniform(random, 0.02, np.pi)])
        conjugates = [pole * np.exp(1j * angle), pole * np.exp(-1j * angle)][: 1 if angle in {0, np.pi} else 2]
        denominator = np.convolve(denominator, np.poly(conjugates).real)
    process = gaussian(denominator, np.append(1, random.uniform(-0.9, 0.9, random.integers(3))))
    deviation = random.uniform(0.2, 1)
    return lambda runs, n, random: np.exp(deviation * process(runs, n, random))


def markov_runs(random: Random) -> Runs:
    """Return latencies whose level follows a Markov chain with two to four states."""
    count = random.integers(2, 5)
    leave = 1 / np.array([draw_log_uniform(random, 3, 300) for _ in range(count)])
    levels = np.array([draw_log_uniform(random, 1, 20) for _ in range(count)])
    deviation, stationary = random.uniform(0.1, 0.6), 1 / leave / (1 / leave).sum()

    def draw(runs: int, n: int, random: Random) -> Draws:
        state, levels_of = random.choice(count, runs, p=stationary), np.empty((runs, n))
        for at in range(n):
            levels_of[:, at] = levels[state]
            moves = random.random(runs) < leave[state]
            state = np.where(moves, (state + random.integers(1, count, runs)) % count, state)
        return levels_of * noise(random, deviation, (runs, n))

    return draw


def single_server(random: Random) -> Runs:
    """Return sojourn times of a queue with Poisson arrivals and a heavy-tailed service, after 5,000 requests."""
    load, shape, burn = random.uniform(0.3, 0.85), random.integers(3), 5000
    # Parameters: deviation of log-normal service, tail of Pareto service, mean of the slow tenth of bimodal service.
    draws = (lambda: random.uniform(0.3, 1.5), lambda: random.uniform(2.2, 4), lambda: draw_log_uniform(random, 3, 30))
    value = draws[shape]()

    def service(random: Random, size: tuple[int, ...]) -> Draws:
        """Return times with a mean of 1."""
        if shape == 0:
            return noise(random, value, size) / float(np.exp(value**2 / 2))
        if shape == 1:
            return random.random(size) ** (-1 / value) * float((value - 1) / value)
        return random.exponential(np.where(random.random(size) < 0.1, value, 1)) / (0.9 + 0.1 * value)

    def draw(runs: int, n: int, random: Random) -> Draws:
        served, apart = service(random, (runs, burn + n)), random.exponential(1 / load, (runs, burn + n))
        walk = np.cumsum(np.hstack([np.zeros((runs, 1)), (served - apart)[:, :-1]]), axis=1)
        return (walk - np.minimum.accumulate(walk, axis=1) + served)[:, burn:]

    return draw


def periodic(random: Random) -> Runs:
    """Return latencies over a cyclic trace, a sine or pulses, from a random offset."""
    period, height = draw_log_uniform(random, 8, 1000), random.uniform(0.3, 1.5)
    duty, deviation = random.choice([0, random.uniform(0.05, 0.5)]), random.uniform(0.1, 0.6)

    def draw(runs: int, n: int, random: Random) -> Draws:
        place = (np.arange(n) / period + random.random((runs, 1))) % 1
        cycle = np.sin(2 * np.pi * place) if duty == 0 else 2 * (place < duty)
        return np.exp(height * cycle) * noise(random, deviation, (runs, n))

    return draw


def regimes(random: Random) -> Runs:
    """Return latencies with outages that begin at random; the first request of an outage waits longest."""
    share, length = draw_log_uniform(random, 0.02, 0.4), draw_log_uniform(random, 5, 300)
    level, deviation = draw_log_uniform(random, 2, 40), random.uniform(0.1, 0.5)

    def draw(runs: int, n: int, random: Random) -> Draws:
        out = random.random(runs) < share
        means = np.array([length * (1 - share) / share, length])
        left, waits = random.exponential(means[out.astype(int)]), np.zeros((runs, n))
        for at in range(n):
            waits[:, at] = np.where(out, level * np.minimum(1, left / length), 0)
            left -= 1
            while (over := left < 0).any():
                out ^= over
                left[over] += random.exponential(means[out[over].astype(int)])
        return waits + noise(random, deviation, (runs, n))

    return draw


def outages(random: Random) -> Runs:
    """Return latencies with a fixed number of outages per run, at random places, and a fixed share of requests in
    outages."""
    share, count = draw_log_uniform(random, 0.02, 0.4), random.integers(1, 7)
    level, deviation = draw_log_uniform(random, 2, 40), random.uniform(0.1, 0.5)

    def draw(runs: int, n: int, random: Random) -> Draws:
        length, waits = max(1, round(share * n / count)), np.zeros((runs, n))
        for _ in range(count):
            since = (np.arange(n) - random.integers(n, size=(runs, 1))) % n
            waits = np.maximum(waits, np.where(since < length, level * (1 - since / length), 0))
        return waits + noise(random, deviation, (runs, n))

    return draw


def weak_slow(random: Random) -> Runs:
    """Return log-normal latencies, independent except for a small share of the variance from a slow AR(1) process."""
    share, correlation, deviation = (
        draw_log_uniform(random, 0.01, 0.5),
        1 - draw_log_uniform(random, 0.004, 0.05),
        random.uniform(0.2, 1),
    )
    process = gaussian(np.array([1, -correlation]), np.ones(1))
    return lambda runs, n, random: np.exp(
        deviation * (np.sqrt(share) * process(runs, n, random) + np.sqrt(1 - share) * random.normal(size=(runs, n)))
    )


def long_range(random: Random) -> Runs:
    """Return log-normal latencies of fractional Gaussian noise."""
    return fractional(random.uniform(0.55, 0.9), random.uniform(0.2, 1))


def fractional(hurst: float, deviation: float) -> Runs:
    """Return log-normal latencies of fractional Gaussian noise (Davies and Harte, Biometrika 74, 1987)."""

    def draw(runs: int, n: int, random: Random) -> Draws:
        lags = np.append(np.arange(n + 1), np.arange(n - 1, 0, -1)).astype(float)
        covariance = (np.abs(lags + 1) ** (2 * hurst) + np.abs(lags - 1) ** (2 * hurst) - 2 * lags ** (2 * hurst)) / 2
        spectrum = np.sqrt(np.maximum(0, np.fft.rfft(covariance).real))
        white = np.fft.rfft(random.normal(size=(runs, 2 * n)))
        return np.exp(deviation * np.fft.irfft(spectrum * white, 2 * n)[:, :n])

    return draw


def volatile(random: Random) -> Runs:
    """Return latencies with a tail whose size is a slow process; the median hardly depends on the tail."""
    correlation, swing, size = 1 - draw_log_uniform(random, 0.01, 0.5), random.uniform(0.3, 1.2), random.uniform(0.1, 1)
    process = gaussian(np.array([1, -correlation]), np.ones(1))
    return lambda runs, n, random: (
        noise(random, 0.2, (runs, n))
        + size * np.exp(swing * process(runs, n, random)) * random.exponential(size=(runs, n))
    )


def independent(random: Random) -> Runs:
    """Return independent latencies; some processes are rounded so coarsely that many latencies are equal."""
    shape, tail, grid = (
        random.integers(4),
        random.uniform(1.2, 4),
        random.choice([0, draw_log_uniform(random, 0.02, 0.5)]),
    )

    def draw(runs: int, n: int, random: Random) -> Draws:
        size = (runs, n)
        if shape == 0:
            found = noise(random, 1 / tail, size)
        elif shape == 1:
            found = random.random(size) ** (-1 / tail)
        elif shape == 2:
            found = np.where(random.random(size) < 0.3, 5, 1) * noise(random, 0.1, size)
        else:
            found = random.gamma(tail, 1, size)
        return np.ceil(found / grid) * grid if grid else found

    return draw


KINDS: tuple[Callable[[Random], Runs], ...] = (
    arma, markov_runs, single_server, periodic, regimes, outages, weak_slow, long_range, volatile, independent,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Process:
    """A process with drawn parameters, and the size of its runs."""

    name: str
    draw: Runs
    n: int

    @property
    def developed(self) -> bool:
        """Return whether the process is for development."""
        return hashlib.sha256(self.name.encode()).digest()[0] % 2 == 0


def family(seed: int, each: int, low: int = 60, high: int = 20_000) -> Iterator[Process]:
    """Yield `each` processes of each kind, with runs of `low` to `high` requests."""
    for kind in KINDS:
        for number in range(each):
            name = f"{kind.__name__} {seed}.{number}"
            random = np.random.default_rng(zlib.crc32(name.encode()))
            yield Process(name, kind(random), round(draw_log_uniform(random, low, high)))


def quantiles(process: Process, of: tuple[float, ...]) -> Draws:
    """Return the true quantiles, from at least a million latencies in at least 256 runs."""
    random, runs = np.random.default_rng(zlib.crc32(process.name.encode()) + 1), max(256, 1_000_000 // process.n)
    return np.quantile(process.draw(runs, process.n, random), of, method="inverted_cdf")
