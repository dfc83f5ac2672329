import numpy as np
import pytest
from scipy.stats import kurtosis, norm

from arviz_swiss.base.distances import excess_kurtosis, valley, valleys
from arviz_swiss.checking.statistics import VALLEY
from arviz_swiss.data import statistics


def test_excess_kurtosis_is_scipys():
    sample = np.random.default_rng(0).gamma(2.0, size=(500, 3))
    np.testing.assert_allclose(excess_kurtosis(sample), kurtosis(sample, axis=0))


@pytest.mark.parametrize(
    ("heights", "depth"), [([0, 4, 1, 2, 0], 0.5), ([0, 2, 0, 4, 0], 1.0), ([0, 3, 2, 1, 0], 0.0)]
)
def test_valley_is_the_depth_below_the_lower_mode(heights, depth):
    density = np.interp(np.linspace(0, 4, 401), np.arange(5), heights)
    assert valley(density) == pytest.approx(depth)


def test_two_normals_four_sds_apart():
    grid = np.linspace(-5, 9, 2001)
    density = norm.pdf(grid) + norm.pdf(grid, 4)
    assert valley(density) == pytest.approx(1 - 2 * norm.pdf(2) / density.max(), abs=1e-4)


def test_one_mode_has_no_valley():
    grid = np.linspace(-5, 5, 1001)
    assert valley(norm.pdf(grid)) == 0.0
    assert valley(np.exp(-grid[grid > 0])) == 0.0


def test_few_stray_draws_are_no_mode():
    grid = np.linspace(-5, 25, 3001)
    assert valley(0.97 * norm.pdf(grid) + 0.03 * norm.pdf(grid, 20)) == 0.0


def test_samples_of_one_mode_stay_below_the_threshold():
    sample = np.random.default_rng(0).standard_normal((400, 40))
    assert valleys(sample, statistics.kde).max() < 0.25


# Long tails: ripples that a density estimate has there are no modes.
@pytest.mark.parametrize(
    "make",
    [
        lambda rng, size: rng.lognormal(0, 1, size),
        lambda rng, size: rng.gamma(0.5, size=size),
        lambda rng, size: 1 / rng.gamma(3.0, size=size),
        lambda rng, size: np.abs(rng.standard_cauchy(size)).clip(max=50),
        lambda rng, size: rng.random(size),
    ],
    ids=["lognormal", "gamma", "inverse gamma", "half Cauchy", "uniform"],
)
@pytest.mark.parametrize("draws", [400, 1000, 4000])
def test_long_tails_have_one_mode(make, draws):
    sample = make(np.random.default_rng(0), (draws, 40))
    assert valleys(sample, statistics.kde).max() < VALLEY


def test_ripples_beside_two_modes_do_not_hide_them():
    grid = np.linspace(-5, 9, 2001)
    density = norm.pdf(grid) + norm.pdf(grid, 4)
    rippled = density * (1 + 0.02 * np.sin(40 * grid))
    assert valley(rippled) == pytest.approx(valley(density), abs=0.05)


def test_modes_at_the_ends_and_flat_densities():
    assert valley(np.array([4.0, 1.0, 2.0])) == pytest.approx(0.5)
    assert valley(np.ones(50)) == 0.0
    assert valley(np.array([2.0, 2.0, 0.0, 0.0, 2.0, 2.0])) == pytest.approx(1.0)
