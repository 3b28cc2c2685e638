"""Distribution functions beside SciPy's."""

import numpy as np
import pytest
from scipy import special, stats

from cellbed.experiments.sweep.design import strata
from cellbed.measure.distributions import binomial_cdf, student_cdf, student_quantile


@pytest.mark.parametrize("p", [0.001, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("n", [1, 6, 480, 100_000])
def test_the_binomial_distribution_is_scipys(n: int, p: float) -> None:
    assert binomial_cdf(n, p) == pytest.approx(special.bdtr(np.arange(n + 1), n, p), abs=1e-9)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 9, 30, 99, 1000])
def test_students_distribution_and_quantiles_are_scipys(degrees: int) -> None:
    for t in (-1000, -40, -5, -2.01, -2, -0.1, 0, 0.5, 3):
        assert student_cdf(degrees, t) == pytest.approx(special.stdtr(degrees, t), rel=1e-9, abs=1e-250)
    for probability in (0.025, 0.5, 0.6, 0.975, 0.9999):
        expected = special.stdtrit(degrees, probability)
        assert student_quantile(degrees, probability) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("factors", "count", "seed"), [(1, 1, 0), (2, 10, 1), (5, 100, 77)])
def test_latin_hypercubes_are_scipys(factors: int, count: int, seed: int) -> None:
    assert strata(factors, count, seed) == stats.qmc.LatinHypercube(d=factors, seed=seed).random(count).tolist()
