import numpy as np
import pytest
from autoregressive import autoregressive
from scipy.special import polygamma
from scipy.stats import chi2

from arviz_swiss.base import stein


def test_offset_of_draws_from_a_density(random_covariance):
    rng = np.random.default_rng(9)
    covariance, factors = random_covariance(rng, 4), []
    factor = np.linalg.cholesky(covariance)
    shift = factor @ np.array([0.5, 0, 0, 0])
    for _ in range(200):
        draws = rng.standard_normal((2, 50, 4)) @ factor.T
        right = stein.offset(-draws @ np.linalg.inv(covariance), covariance)
        wrong = stein.offset(-(draws - shift) @ np.linalg.inv(covariance), covariance)
        factors.append((*right, *wrong))
    right, statistic, wrong, strange = np.mean(factors, axis=0)
    # chi-squared of four degrees of freedom, or less where an effective size is too low
    assert 3 < statistic < 4 + 4 * (8 / 200) ** 0.5
    assert right == pytest.approx(0.19, abs=0.03)
    assert wrong == pytest.approx(np.hypot(0.5, 0.2), abs=0.05)
    assert strange > 20


@pytest.mark.parametrize("width", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("chains", [1, 4])
def test_spread_is_the_ratio_of_variances(random_covariance, width, chains):
    rng = np.random.default_rng(3)
    covariance = random_covariance(rng, 3)
    factor = np.linalg.cholesky(covariance)
    draws = 5 + width * rng.standard_normal((chains, 8000 // chains, 3)) @ factor.T
    # off by an sd: that is another matter
    found = stein.spread(draws, -(draws - 5 - factor[:, 0]) @ np.linalg.inv(covariance))
    assert found.ratio == pytest.approx(width**2, abs=4 * found.error)
    # width^2 times a mean of squares of 24,000 normal draws, and the shift
    least = np.sqrt(2 / 24_000)
    assert max(width**2, 1) * least * 0.9 < found.error < (width**2 + width + 1) * least * 1.2
    assert (stein.chance(found) < 1e-6) == (width != 1)


def test_spread_is_not_biased_by_few_draws():
    rng = np.random.default_rng(4)
    few = [rng.standard_normal((2, 3, 5)) for _ in range(4000)]
    found = stein.pooled_spread([stein.spread(one, -one) for one in few])
    assert found.ratio == pytest.approx(1.0, abs=4 * found.error)
    assert found.error < 0.02


@pytest.mark.parametrize("correlation, draws", [(0.0, 13), (0.0, 125), (0.8, 125)])
def test_chance_is_not_underestimated(correlation, draws):
    rng = np.random.default_rng(5)
    chances = []
    for _ in range(1000):
        x = autoregressive(rng, correlation, 2, draws, 3)
        statistic = stein.offset(-x, np.eye(3))[1]
        chances.append((chi2.sf(statistic, 3), stein.chance(stein.spread(x, -x))))
    # ten and one of a thousand: twice as many, and four errors of so few
    shares = [(np.array(chances) < level).mean(axis=0) for level in (0.01, 0.001)]
    assert np.all(shares[0] < 0.02 + 4 * (0.02 / 1000) ** 0.5)
    assert np.all(shares[1] < 0.002 + 4 * (0.002 / 1000) ** 0.5)


def test_skewed_draws_are_not_doubted():
    # log of Gamma(2), as of two events
    rng = np.random.default_rng(6)
    covariance, doubted = np.eye(2) * polygamma(1, 2), 0
    for _ in range(1000):
        x = np.log(rng.gamma(2, size=(2, 100, 2)))
        scores = 2 - np.exp(x)
        doubted += chi2.sf(stein.offset(scores, covariance)[1], 2) < 1e-4
        doubted += stein.chance(stein.spread(x, scores)) < 1e-4
    assert doubted <= 2
